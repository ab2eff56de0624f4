//! In place of the library, where this program was built without it.

use super::{Question, Verdict};

pub(super) const IS_LINKED: bool = false;

pub(super) const MISSING: &str = "this program was built without PAM, as those are that need no library of the system; build it with the \
                                  feature pam: cargo build --release --features pam";

pub(super) fn begin(_: &str) -> Result<(), String> {
    Err(MISSING.to_owned())
}

pub(super) fn ask(_: &Question) -> Result<Verdict, String> {
    Err(MISSING.to_owned())
}
