//! In place of MySQL, where this program was built without it.

use super::Sql;
use crate::absent::{Absent, absent};
use crate::source::Source;
use crate::source_error::SetupError;

/// Fails: MySQL is not in this build.
pub fn mysql(_: &Sql) -> Result<impl Source + use<>, SetupError> {
    absent("MySQL", "mysql").map(|absent: Absent| absent)
}
