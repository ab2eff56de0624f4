//! The copies of audit logs in PostgreSQL, on a connection of their own.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use millrace_storage::PostgresServer;
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::connections::{Connections, Lane};
use super::error::ClusterError;
use super::{Parameter, number};
use crate::audit::{ArrivedRecord, AuditChain, AuditCopy, AuditTable};
use crate::table::TableError;

/// The table of copies, and how it is written to: a record that is there is not replaced, and one that is another is named.
pub(super) const AUDIT: &str = r#"
    SET LOCAL search_path = millrace_cluster;

    -- number is the order in which records came.
    CREATE TABLE audit (
        chain  text NOT NULL,
        seq    bigint NOT NULL,
        sha256 text NOT NULL,
        node   text NOT NULL,
        line   text NOT NULL,
        came   timestamptz NOT NULL DEFAULT clock_timestamp(),
        number bigserial,
        PRIMARY KEY (chain, seq)
    );
    CREATE INDEX audit_number ON audit (number);

    CREATE FUNCTION put_audit(of text, by text, seqs bigint[], hashes text[], lines text[]) RETURNS bigint
        LANGUAGE sql AS $$
        INSERT INTO millrace_cluster.audit (chain, seq, sha256, node, line)
            SELECT of, r.seq, r.sha256, by, r.line FROM unnest(seqs, hashes, lines) AS r (seq, sha256, line)
            ORDER BY r.seq ON CONFLICT (chain, seq) DO NOTHING;
        SELECT min(a.seq) FROM unnest(seqs, hashes) AS r (seq, sha256)
            JOIN millrace_cluster.audit AS a ON a.chain = of AND a.seq = r.seq WHERE a.sha256 <> r.sha256;
    $$;
"#;

/// The table of copies in one database. A node that has registered has made it.
#[derive(Debug)]
pub struct PostgresAudit {
    connections: Connections,
}

impl PostgresAudit {
    /// Makes it without connecting. An answer may take so long.
    pub fn new(server: Arc<dyn PostgresServer>, time: Duration) -> io::Result<Self> {
        Ok(Self { connections: Connections::new(server, time)? })
    }

    fn rows<T>(
        &self,
        query: &str,
        parameters: &[Parameter<'_>],
        of: fn(&Row) -> Result<T, ClusterError>,
    ) -> Result<Vec<T>, TableError> {
        self.connections.ask(Lane::Keeper, async |client| {
            client.query_typed(query, parameters).await?.iter().map(of).collect()
        })
    }
}

impl AuditTable for PostgresAudit {
    fn last(&self, chain: &str) -> Result<Option<AuditCopy>, TableError> {
        const LAST: &str = "SELECT seq, sha256, line FROM millrace_cluster.audit WHERE chain = $1
            ORDER BY seq DESC LIMIT 1";
        Ok(self.rows(LAST, &[(&chain, Type::TEXT)], copy)?.pop())
    }

    fn put(&self, chain: &str, node: &str, records: &[AuditCopy]) -> Result<Option<u64>, TableError> {
        const PUT: &str = "SELECT millrace_cluster.put_audit($1, $2, $3, $4, $5)";
        let seqs: Vec<i64> = records.iter().map(|record| number(record.seq)).collect();
        let hashes: Vec<&str> = records.iter().map(|record| &*record.sha256).collect();
        let lines: Vec<&str> = records.iter().map(|record| &*record.line).collect();
        self.connections.ask(Lane::Keeper, async |client| {
            let parameters: [Parameter<'_>; 5] = [
                (&chain, Type::TEXT),
                (&node, Type::TEXT),
                (&seqs, Type::INT8_ARRAY),
                (&hashes, Type::TEXT_ARRAY),
                (&lines, Type::TEXT_ARRAY),
            ];
            let other: Option<i64> = client.query_typed_one(PUT, &parameters).await?.try_get(0)?;
            Ok(other.map(unsigned))
        })
    }

    fn chains(&self) -> Result<Vec<AuditChain>, TableError> {
        // From chain to chain along the primary key, however many records each has.
        const CHAINS: &str = "
            WITH RECURSIVE c AS (
                (SELECT chain FROM millrace_cluster.audit ORDER BY chain LIMIT 1)
                UNION ALL
                SELECT next.chain FROM c CROSS JOIN LATERAL (
                    SELECT a.chain FROM millrace_cluster.audit AS a WHERE a.chain > c.chain ORDER BY a.chain LIMIT 1
                ) AS next
            )
            SELECT c.chain, last.node, first.seq, last.seq FROM c
            CROSS JOIN LATERAL (
                SELECT a.seq FROM millrace_cluster.audit AS a WHERE a.chain = c.chain ORDER BY a.seq LIMIT 1
            ) AS first
            CROSS JOIN LATERAL (
                SELECT a.seq, a.node FROM millrace_cluster.audit AS a WHERE a.chain = c.chain
                ORDER BY a.seq DESC LIMIT 1
            ) AS last ORDER BY last.node, c.chain";
        self.rows(CHAINS, &[], |row| {
            Ok(AuditChain {
                chain: row.try_get(0)?,
                node: row.try_get(1)?,
                first: unsigned(row.try_get(2)?),
                last: unsigned(row.try_get(3)?),
            })
        })
    }

    fn read(&self, chain: &str, behind: u64, most: usize) -> Result<Vec<AuditCopy>, TableError> {
        const READ: &str =
            "SELECT seq, sha256, line FROM millrace_cluster.audit WHERE chain = $1 AND seq > $2
            ORDER BY seq LIMIT $3";
        let (behind, most) = (number(behind), number(most as u64));
        self.rows(READ, &[(&chain, Type::TEXT), (&behind, Type::INT8), (&most, Type::INT8)], copy)
    }

    fn arrived(&self, behind: i64, most: usize) -> Result<Vec<ArrivedRecord>, TableError> {
        const ARRIVED: &str = "SELECT number, node, line FROM millrace_cluster.audit WHERE number > $1 ORDER BY number LIMIT $2";
        let most = number(most as u64);
        self.rows(ARRIVED, &[(&behind, Type::INT8), (&most, Type::INT8)], |row| {
            Ok(ArrivedRecord { number: row.try_get(0)?, node: row.try_get(1)?, line: row.try_get(2)? })
        })
    }
}

fn copy(row: &Row) -> Result<AuditCopy, ClusterError> {
    Ok(AuditCopy { seq: unsigned(row.try_get(0)?), sha256: row.try_get(1)?, line: row.try_get(2)? })
}

fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}
