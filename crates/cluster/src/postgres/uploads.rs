//! The questions about resumable uploads, and their tables.

use std::time::Duration;

use tokio_postgres::types::Type;

use super::connections::Lane;
use super::error::ClusterError;
use super::{Parameter, PostgresTable, number};
use crate::table::{Epoch, TableError};
use crate::upload_table::{KnownUpload, NewUpload, UploadKey, UploadSecret, UploadTable};

/// Uploads that wait for more, with what their addresses do not say, and for a while those that have become files. Locks of
/// uploads are among those of names.
pub(super) const UPLOADS: &str = r#"
    SET LOCAL search_path = millrace_cluster;

    CREATE TABLE upload_secret (
        one    boolean PRIMARY KEY DEFAULT true CHECK (one),
        secret bytea NOT NULL
    );

    CREATE TABLE upload (
        key      bytea PRIMARY KEY,
        "user"   bytea,
        address  text,
        length   bigint,
        finished boolean NOT NULL DEFAULT false,
        settled  boolean NOT NULL DEFAULT false,
        parts    bytea,
        until    timestamptz NOT NULL
    );
    CREATE INDEX upload_user ON upload ("user") WHERE NOT finished;
    CREATE INDEX upload_address ON upload (address) WHERE NOT finished;
    CREATE INDEX upload_until ON upload (until);

    -- The first secret is that of all.
    CREATE FUNCTION upload_secret(candidate bytea) RETURNS bytea LANGUAGE sql AS $$
        INSERT INTO millrace_cluster.upload_secret (secret) VALUES (candidate) ON CONFLICT DO NOTHING;
        SELECT s.secret FROM millrace_cluster.upload_secret AS s;
    $$;

    -- False: the user or the address has a whole share.
    CREATE FUNCTION begin_upload(of bytea, holder bytea, source text, seconds double precision, most bigint) RETURNS boolean
        LANGUAGE plpgsql AS $$
    BEGIN
        PERFORM pg_advisory_xact_lock(1835625472, 6);
        DELETE FROM millrace_cluster.upload AS u WHERE u.until <= clock_timestamp();
        IF (SELECT count(*) FROM millrace_cluster.upload AS u WHERE u."user" = holder AND NOT u.finished) >= most
            OR (SELECT count(*) FROM millrace_cluster.upload AS u WHERE u.address = source AND NOT u.finished) >= most
        THEN
            RETURN false;
        END IF;
        INSERT INTO millrace_cluster.upload (key, "user", address, until)
            VALUES (of, holder, source, clock_timestamp() + make_interval(secs => seconds));
        RETURN true;
    END $$;

    CREATE FUNCTION find_upload(of bytea, seconds double precision) RETURNS SETOF upload LANGUAGE sql AS $$
        UPDATE millrace_cluster.upload AS u SET until = clock_timestamp() + make_interval(secs => seconds)
            WHERE u.key = of AND NOT u.finished AND u.until < clock_timestamp() + make_interval(secs => seconds / 2);
        SELECT u.* FROM millrace_cluster.upload AS u WHERE u.key = of AND u.until > clock_timestamp();
    $$;

    -- False: another length was said before.
    CREATE FUNCTION say_length(of bytea, said bigint, seconds double precision) RETURNS boolean LANGUAGE plpgsql AS $$
    BEGIN
        INSERT INTO millrace_cluster.upload AS u (key, length, until)
            VALUES (of, said, clock_timestamp() + make_interval(secs => seconds))
            ON CONFLICT (key) DO UPDATE SET length = excluded.length, until = excluded.until
                WHERE u.length IS NULL OR u.length = excluded.length;
        RETURN FOUND;
    END $$;
"#;

impl UploadTable for PostgresTable {
    fn secret(&self, candidate: &UploadSecret) -> Result<UploadSecret, TableError> {
        const SECRET: &str = "SELECT millrace_cluster.upload_secret($1)";
        let candidate = &candidate[..];
        self.connections.ask(Lane::Keeper, async |client| {
            let row = client.query_typed_one(SECRET, &[(&candidate, Type::BYTEA)]).await?;
            let secret: &[u8] = row.try_get(0)?;
            secret.try_into().map_err(|_| ClusterError::Answer("a secret of another length".to_owned()))
        })
    }

    fn begin_upload(&self, upload: &NewUpload<'_>) -> Result<bool, TableError> {
        const BEGIN: &str = "SELECT millrace_cluster.begin_upload($1, $2, $3, $4, $5)";
        let (key, address) = (&upload.key[..], upload.address.map(|address| address.to_string()));
        let (age, most) = (upload.age.as_secs_f64(), number(upload.most));
        self.connections.ask(Lane::Transfer, async |client| {
            let parameters: [Parameter<'_>; 5] = [
                (&key, Type::BYTEA),
                (&upload.user, Type::BYTEA),
                (&address, Type::TEXT),
                (&age, Type::FLOAT8),
                (&most, Type::INT8),
            ];
            Ok(client.query_typed_one(BEGIN, &parameters).await?.try_get(0)?)
        })
    }

    fn find_upload(&self, key: &UploadKey, age: Duration) -> Result<Option<KnownUpload>, TableError> {
        const FIND: &str =
            "SELECT length, finished, settled, parts FROM millrace_cluster.find_upload($1, $2)";
        let key = &key[..];
        self.connections.ask(Lane::Transfer, async |client| {
            let parameters: [Parameter<'_>; 2] = [(&key, Type::BYTEA), (&age.as_secs_f64(), Type::FLOAT8)];
            let Some(row) = client.query_typed_opt(FIND, &parameters).await? else { return Ok(None) };
            let length = row.try_get::<_, Option<i64>>(0)?;
            Ok(Some(KnownUpload {
                length: length.and_then(|length| u64::try_from(length).ok()),
                is_finished: row.try_get(1)?,
                is_settled: row.try_get(2)?,
                parts: row.try_get(3)?,
            }))
        })
    }

    fn say_length(&self, key: &UploadKey, length: u64, age: Duration) -> Result<bool, TableError> {
        const SAY: &str = "SELECT millrace_cluster.say_length($1, $2, $3)";
        let (key, length) = (&key[..], number(length));
        self.connections.ask(Lane::Transfer, async |client| {
            let parameters: [Parameter<'_>; 3] =
                [(&key, Type::BYTEA), (&length, Type::INT8), (&age.as_secs_f64(), Type::FLOAT8)];
            Ok(client.query_typed_one(SAY, &parameters).await?.try_get(0)?)
        })
    }

    fn finish_upload(&self, key: &UploadKey, known: &KnownUpload, age: Duration) -> Result<(), TableError> {
        const FINISH: &str = "
            INSERT INTO millrace_cluster.upload (key, length, finished, settled, parts, until)
                VALUES ($1, $2, $6, $3, $4, clock_timestamp() + make_interval(secs => $5))
                ON CONFLICT (key) DO UPDATE SET length = excluded.length, finished = excluded.finished,
                    settled = excluded.settled, parts = excluded.parts, until = excluded.until";
        let (key, length) = (&key[..], known.length.map(number));
        self.connections.ask(Lane::Transfer, async |client| {
            let parameters: [Parameter<'_>; 6] = [
                (&key, Type::BYTEA),
                (&length, Type::INT8),
                (&known.is_settled, Type::BOOL),
                (&known.parts, Type::BYTEA),
                (&age.as_secs_f64(), Type::FLOAT8),
                (&known.is_finished, Type::BOOL),
            ];
            client.query_typed(FINISH, &parameters).await?;
            Ok(())
        })
    }

    fn settle_upload(&self, key: &UploadKey) -> Result<(), TableError> {
        self.change_upload("UPDATE millrace_cluster.upload SET settled = true WHERE key = $1", key)
    }

    fn end_upload(&self, key: &UploadKey) -> Result<(), TableError> {
        self.change_upload("DELETE FROM millrace_cluster.upload WHERE key = $1", key)
    }

    fn holds_lock(&self, epoch: Epoch, lock: u64) -> Result<bool, TableError> {
        const HOLDS: &str =
            "SELECT EXISTS (SELECT FROM millrace_cluster.name_lock WHERE epoch = $1 AND number = $2)";
        let lock = number(lock);
        self.connections.ask(Lane::Transfer, async |client| {
            let parameters: [Parameter<'_>; 2] = [(&epoch.0, Type::INT8), (&lock, Type::INT8)];
            Ok(client.query_typed_one(HOLDS, &parameters).await?.try_get(0)?)
        })
    }

    fn release_upload(&self, epoch: Epoch, lock: u64) -> Result<(), TableError> {
        const RELEASE: &str = "DELETE FROM millrace_cluster.name_lock WHERE epoch = $1 AND number = $2";
        let lock = number(lock);
        self.connections.ask(Lane::Transfer, async |client| {
            client.query_typed(RELEASE, &[(&epoch.0, Type::INT8), (&lock, Type::INT8)]).await?;
            Ok(())
        })
    }
}

impl PostgresTable {
    fn change_upload(&self, statement: &str, key: &UploadKey) -> Result<(), TableError> {
        let key = &key[..];
        self.connections.ask(Lane::Transfer, async |client| {
            client.query_typed(statement, &[(&key, Type::BYTEA)]).await?;
            Ok(())
        })
    }
}
