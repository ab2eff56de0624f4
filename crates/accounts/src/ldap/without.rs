//! In place of the directory, where this program was built without LDAP.

use super::Ldap;
use crate::absent::{Absent, absent};
use crate::source::Source;
use crate::source_error::SetupError;

/// Fails: there are no directories in this build.
pub fn ldap(_: &Ldap) -> Result<impl Source + use<>, SetupError> {
    absent("LDAP", "ldap").map(|absent: Absent| absent)
}
