//! In place of PostgreSQL, where this program was built without it.

use std::sync::Arc;

use millrace_cluster::{AuditTable, EventTable, Table};

use super::Sql;
use crate::absent::{Absent, absent};
use crate::source::Source;
use crate::source_error::SetupError;

/// Fails: PostgreSQL is not in this build.
pub fn postgres(_: &Sql) -> Result<impl Source + use<>, SetupError> {
    absent("PostgreSQL", "postgres").map(|absent: Absent| absent)
}

/// Fails likewise.
pub fn cluster_table(_: &Sql) -> Result<Box<dyn Table>, SetupError> {
    absent("PostgreSQL", "postgres")
}

/// Fails likewise.
pub fn cluster_events(_: &Sql) -> Result<Arc<dyn EventTable>, SetupError> {
    absent("PostgreSQL", "postgres")
}

/// Fails likewise.
pub fn cluster_audit(_: &Sql) -> Result<Arc<dyn AuditTable>, SetupError> {
    absent("PostgreSQL", "postgres")
}
