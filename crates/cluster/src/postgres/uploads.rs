//! The questions about resumable uploads, and their tables.

use std::time::Duration;

use tokio_postgres::types::Type;

use super::connections::Lane;
use super::error::ClusterError;
use super::{Parameter, PostgresTable, number};
use crate::table::TableError;
use crate::upload_table::{KnownUpload, NewUpload, UploadKey, UploadSecret, UploadTable, UploadVerdict};

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
        lock     bigint,
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

    -- False: this lock is not there any more; or none is said, and the file is known already.
    CREATE FUNCTION finish_upload(of bytea, said bigint, is_settled boolean, joined bytea, seconds double precision,
                                  own bigint) RETURNS boolean LANGUAGE plpgsql AS $$
    BEGIN
        -- No other node takes the lock while the record is made.
        PERFORM FROM millrace_cluster.name_lock AS l
            WHERE l.tree = 'tus' AND l.name = of AND l.number = own FOR KEY SHARE;
        IF own IS NOT NULL AND NOT FOUND THEN
            RETURN false;
        END IF;
        INSERT INTO millrace_cluster.upload AS u (key, length, finished, settled, parts, lock, until)
            VALUES (of, said, true, is_settled, joined, own, clock_timestamp() + make_interval(secs => seconds))
            ON CONFLICT (key) DO UPDATE SET length = excluded.length, finished = true, settled = excluded.settled,
                parts = excluded.parts, lock = excluded.lock, until = excluded.until
                WHERE own IS NOT NULL OR NOT u.finished;
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

    fn finish_upload(
        &self,
        key: &UploadKey,
        lock: Option<u64>,
        known: &KnownUpload,
        age: Duration,
    ) -> Result<bool, TableError> {
        const FINISH: &str = "SELECT millrace_cluster.finish_upload($1, $2, $3, $4, $5, $6)";
        let (key, length, lock) = (&key[..], known.length.map(number), lock.map(number));
        self.connections.ask(Lane::Transfer, async |client| {
            let parameters: [Parameter<'_>; 6] = [
                (&key, Type::BYTEA),
                (&length, Type::INT8),
                (&known.is_settled, Type::BOOL),
                (&known.parts, Type::BYTEA),
                (&age.as_secs_f64(), Type::FLOAT8),
                (&lock, Type::INT8),
            ];
            Ok(client.query_typed_one(FINISH, &parameters).await?.try_get(0)?)
        })
    }

    fn settle_upload(&self, key: &UploadKey, verdict: UploadVerdict) -> Result<(), TableError> {
        const PASSED: &str = "UPDATE millrace_cluster.upload SET settled = true WHERE key = $1";
        const GONE: &str = "DELETE FROM millrace_cluster.upload WHERE key = $1";
        const UNFINISHED: &str = "
            UPDATE millrace_cluster.upload SET finished = false, settled = false, parts = NULL, lock = NULL,
                until = clock_timestamp() + make_interval(secs => $3) WHERE key = $1 AND finished AND lock = $2";
        let key = &key[..];
        self.connections.ask(Lane::Transfer, async |client| {
            let of: Parameter<'_> = (&key, Type::BYTEA);
            match verdict {
                UploadVerdict::Passed => client.query_typed(PASSED, &[of]).await?,
                UploadVerdict::Gone => client.query_typed(GONE, &[of]).await?,
                UploadVerdict::Unfinished { lock, age } => {
                    let (lock, age) = (number(lock), age.as_secs_f64());
                    let parameters = [of, (&lock, Type::INT8), (&age, Type::FLOAT8)];
                    client.query_typed(UNFINISHED, &parameters).await?
                }
            };
            Ok(())
        })
    }

    fn holds_lock(&self, key: &UploadKey, lock: u64) -> Result<bool, TableError> {
        const HOLDS: &str = "SELECT EXISTS (SELECT FROM millrace_cluster.name_lock
            WHERE tree = 'tus' AND name = $1 AND number = $2)";
        let (key, lock) = (&key[..], number(lock));
        self.connections.ask(Lane::Transfer, async |client| {
            let parameters: [Parameter<'_>; 2] = [(&key, Type::BYTEA), (&lock, Type::INT8)];
            Ok(client.query_typed_one(HOLDS, &parameters).await?.try_get(0)?)
        })
    }

    fn release_upload(&self, key: &UploadKey, lock: u64) -> Result<(), TableError> {
        const RELEASE: &str =
            "DELETE FROM millrace_cluster.name_lock WHERE tree = 'tus' AND name = $1 AND number = $2";
        let (key, lock) = (&key[..], number(lock));
        self.connections.ask(Lane::Transfer, async |client| {
            client.query_typed(RELEASE, &[(&key, Type::BYTEA), (&lock, Type::INT8)]).await?;
            Ok(())
        })
    }
}
