//! The questions about locks and properties of WebDAV.

use std::net::IpAddr;
use std::time::Duration;

use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::connections::Lane;
use super::error::ClusterError;
use super::{Parameter, PostgresTable, number, seconds};
use crate::dav_table::{
    Changing, DavTable, FoundDav, Granting, LockBounds, NewLocks, PlaceDigest, SharedLock, SharedProperties,
    Wanted,
};
use crate::table::TableError;

impl DavTable for PostgresTable {
    fn find_dav(&self, wanted: &Wanted) -> Result<FoundDav, TableError> {
        // One question: what is no lock has no token.
        // One question. What has no token is no lock.
        const FIND: &str = r#"
            SELECT l.token, l.place, l.above, l.root, l.is_exclusive, l.is_deep, l.owner, l."user", l.address, l.bytes,
                   extract(epoch FROM l.until - clock_timestamp())::float8, l.number, NULL::bytea
                FROM millrace_cluster.dav_lock AS l
                WHERE (l.place = ANY ($1) OR l.above && $2) AND l.until > clock_timestamp()
            UNION ALL
            SELECT NULL, p.place, NULL, NULL, NULL, NULL, NULL, p."user", NULL, p.bytes, NULL, p.edition, p.content
                FROM millrace_cluster.dav_properties AS p WHERE p.place = ANY ($3)
            ORDER BY 12"#;
        let [on, beneath, properties] = [&wanted.on, &wanted.beneath, &wanted.properties].map(|of| bytes(of));
        self.connections.ask(Lane::Transfer, async |client| {
            let parameters: [Parameter<'_>; 3] =
                [(&on, Type::BYTEA_ARRAY), (&beneath, Type::BYTEA_ARRAY), (&properties, Type::BYTEA_ARRAY)];
            let mut found = FoundDav::default();
            for row in client.query_typed(FIND, &parameters).await? {
                match row.try_get(0)? {
                    Some(token) => found.locks.push(read_lock(token, &row)?),
                    None => found.properties.push(read_properties(&row)?),
                }
            }
            Ok(found)
        })
    }

    fn give_lock(&self, lock: &SharedLock, most: &LockBounds) -> Result<Granting, TableError> {
        const GIVE: &str =
            "SELECT millrace_cluster.give_lock($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)";
        let (place, above) = (&lock.place[..], bytes(&lock.above));
        let address = lock.address.map(|address| address.to_string());
        let (size, left) = (number(lock.bytes), lock.left.as_secs_f64());
        let most = [most.locks, most.bytes, most.share, most.share_bytes, most.shared].map(number);
        self.connections.ask(Lane::Transfer, async |client| {
            let parameters: [Parameter<'_>; 12] = [
                (&lock.token, Type::TEXT),
                (&place, Type::BYTEA),
                (&above, Type::BYTEA_ARRAY),
                (&lock.root, Type::TEXT),
                (&lock.is_exclusive, Type::BOOL),
                (&lock.is_deep, Type::BOOL),
                (&lock.owner, Type::TEXT),
                (&lock.user, Type::BYTEA),
                (&address, Type::TEXT),
                (&size, Type::INT8),
                (&left, Type::FLOAT8),
                (&&most[..], Type::INT8_ARRAY),
            ];
            match client.query_typed_one(GIVE, &parameters).await?.try_get::<_, i32>(0)? {
                0 => Ok(Granting::Given),
                1 => Ok(Granting::Held),
                2 => Ok(Granting::Full),
                other => Err(ClusterError::Answer(other.to_string())),
            }
        })
    }

    fn extend_lock(&self, token: &str, left: Duration) -> Result<bool, TableError> {
        const EXTEND: &str = "SELECT millrace_cluster.extend_lock($1, $2)";
        self.connections.ask(Lane::Transfer, async |client| {
            let parameters: [Parameter<'_>; 2] = [(&token, Type::TEXT), (&left.as_secs_f64(), Type::FLOAT8)];
            Ok(client.query_typed_one(EXTEND, &parameters).await?.try_get(0)?)
        })
    }

    fn release_lock(&self, token: &str) -> Result<(), TableError> {
        const RELEASE: &str = "SELECT millrace_cluster.release_lock($1)";
        self.connections.ask(Lane::Transfer, async |client| {
            client.query_typed(RELEASE, &[(&token, Type::TEXT)]).await?;
            Ok(())
        })
    }

    fn change_properties(
        &self,
        properties: &SharedProperties,
        most: u64,
        share: u64,
    ) -> Result<Changing, TableError> {
        const CHANGE: &str = "SELECT millrace_cluster.change_properties($1, $2, $3, $4, $5, $6, $7)";
        let place = &properties.place[..];
        let [size, most, share] = [properties.bytes, most, share].map(number);
        self.connections.ask(Lane::Transfer, async |client| {
            let parameters: [Parameter<'_>; 7] = [
                (&place, Type::BYTEA),
                (&properties.values, Type::BYTEA),
                (&properties.user, Type::BYTEA),
                (&size, Type::INT8),
                (&properties.edition, Type::INT8),
                (&most, Type::INT8),
                (&share, Type::INT8),
            ];
            match client.query_typed_one(CHANGE, &parameters).await?.try_get::<_, i32>(0)? {
                0 => Ok(Changing::Changed),
                1 => Ok(Changing::Full),
                2 => Ok(Changing::Outdated),
                other => Err(ClusterError::Answer(other.to_string())),
            }
        })
    }

    fn forget_place(&self, place: &PlaceDigest) -> Result<(), TableError> {
        const FORGET: &str = "SELECT millrace_cluster.forget_place($1)";
        let place = &place[..];
        self.connections.ask(Lane::Transfer, async |client| {
            client.query_typed(FORGET, &[(&place, Type::BYTEA)]).await?;
            Ok(())
        })
    }

    fn pull_locks(&self, since: i64) -> Result<NewLocks, TableError> {
        // The first row is no lock: it says whether there are any, or properties.
        const PULL: &str = "
            SELECT NULL::bytea, NULL::bytea[], 0::float8, $1::bigint,
                   EXISTS (SELECT FROM millrace_cluster.dav_lock AS l WHERE l.until > clock_timestamp())
                   OR EXISTS (SELECT FROM millrace_cluster.dav_properties)
            UNION ALL
            SELECT l.place, l.above, extract(epoch FROM l.until - clock_timestamp())::float8, l.edition, true
                FROM millrace_cluster.dav_lock AS l WHERE l.edition > $1 AND l.until > clock_timestamp()";
        self.connections.ask(Lane::Keeper, async |client| {
            let mut new = NewLocks { edition: since, ..NewLocks::default() };
            for row in client.query_typed(PULL, &[(&since, Type::INT8)]).await? {
                new.edition = new.edition.max(row.try_get(3)?);
                new.are_any |= row.try_get::<_, bool>(4)?;
                if let Some(place) = row.try_get::<_, Option<&[u8]>>(0)? {
                    let left = seconds(row.try_get(2)?);
                    new.locks.push((digest(place)?, digests(&row, 1)?, left));
                }
            }
            Ok(new)
        })
    }
}

fn bytes(places: &[PlaceDigest]) -> Vec<&[u8]> {
    places.iter().map(|place| &place[..]).collect()
}

fn digest(bytes: &[u8]) -> Result<PlaceDigest, ClusterError> {
    bytes.try_into().map_err(|_| ClusterError::Answer("a place of another length".to_owned()))
}

fn digests(row: &Row, column: usize) -> Result<Vec<PlaceDigest>, ClusterError> {
    row.try_get::<_, Vec<&[u8]>>(column)?.into_iter().map(digest).collect()
}

fn read_lock(token: String, row: &Row) -> Result<SharedLock, ClusterError> {
    let address: Option<&str> = row.try_get(8)?;
    Ok(SharedLock {
        token,
        place: digest(row.try_get(1)?)?,
        above: digests(row, 2)?,
        root: row.try_get(3)?,
        is_exclusive: row.try_get(4)?,
        is_deep: row.try_get(5)?,
        owner: row.try_get(6)?,
        user: row.try_get(7)?,
        address: address.and_then(|address| address.parse::<IpAddr>().ok()),
        bytes: u64::try_from(row.try_get::<_, i64>(9)?).unwrap_or(0),
        left: seconds(row.try_get(10)?),
    })
}

fn read_properties(row: &Row) -> Result<SharedProperties, ClusterError> {
    Ok(SharedProperties {
        place: digest(row.try_get(1)?)?,
        values: row.try_get(12)?,
        user: row.try_get(7)?,
        bytes: u64::try_from(row.try_get::<_, i64>(9)?).unwrap_or(0),
        edition: row.try_get(11)?,
    })
}
