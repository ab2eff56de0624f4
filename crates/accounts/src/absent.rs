//! Sources of accounts that this program was built without.

use crate::Attempt;
use crate::source::{Found, Source};
use crate::source_error::{SetupError, SourceError};

/// A source that there cannot be.
#[derive(Debug)]
pub(crate) enum Absent {}

impl Source for Absent {
    fn name(&self) -> &str {
        match *self {}
    }

    fn find(&self, _: &Attempt<'_>) -> Result<Found, SourceError> {
        match *self {}
    }
}

/// The error of a source that was compiled out, with the cargo feature that brings it.
pub(crate) fn absent<T>(what: &'static str, feature: &'static str) -> Result<T, SetupError> {
    Err(SetupError::NotBuilt { what, feature })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_names_the_missing_part_and_its_feature() {
        let error = absent::<Absent>("LDAP", "ldap").map(drop).unwrap_err().to_string();
        assert!(error.contains("without LDAP") && error.ends_with("--features ldap"), "{error}");
    }
}
