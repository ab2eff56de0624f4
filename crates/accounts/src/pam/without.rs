//! In place of the library, where this program was built without it.

use super::{MISSING, Question, Verdict};
use crate::source_error::SetupError;

pub(super) const IS_LINKED: bool = false;

pub(super) fn begin(_: &str) -> Result<(), SetupError> {
    Err(SetupError::NotBuilt { what: MISSING, feature: "pam" })
}

pub(super) fn ask(_: &Question) -> Result<Verdict, SetupError> {
    Err(SetupError::NotBuilt { what: MISSING, feature: "pam" })
}
