//! Sources of accounts that this program was built without.

use crate::Attempt;
use crate::source::{Found, Source};

/// A source that there cannot be.
#[derive(Debug)]
pub(crate) enum Absent {}

impl Source for Absent {
    fn name(&self) -> &str {
        match *self {}
    }

    fn find(&self, _: &Attempt<'_>) -> Result<Found, String> {
        match *self {}
    }
}

/// The error of a source that was compiled out, with the cargo feature that brings it.
pub(crate) fn absent<T>(what: &str, feature: &str) -> Result<T, String> {
    Err(format!(
        "this program was built without {what}; build it with the feature {feature}: cargo build --release --features {feature}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_names_the_missing_part_and_its_feature() {
        let error = absent::<Absent>("LDAP", "ldap").map(drop).unwrap_err();
        assert!(error.contains("without LDAP") && error.ends_with("--features ldap"), "{error}");
    }
}
