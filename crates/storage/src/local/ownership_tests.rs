//! Uploads that take a file over, one after another; `tests/loom.rs` has them at a time.

use std::sync::LazyLock;

use millrace_vfs::{FileError, Wait};

use super::ownership::OwnedFiles;

static FILES: LazyLock<OwnedFiles> = LazyLock::new(OwnedFiles::default);

/// File systems that there are not.
const NOWHERE: u64 = u64::MAX;

#[test]
fn the_last_upload_owns_a_file_which_is_forgotten_with_the_last() {
    let (this, other) = ((NOWHERE, 1), (NOWHERE, 2));
    let first = FILES.take(this, Wait::Never).unwrap();
    let elsewhere = FILES.take(other, Wait::Never).unwrap();
    assert!(first.check().is_ok());
    let second = FILES.take(this, Wait::Never).unwrap();
    assert!(matches!(first.hold(|| Ok(())), Err(FileError::Busy)));
    drop(first);
    assert!(second.hold(|| Ok(())).is_ok() && elsewhere.check().is_ok());
    drop((second, elsewhere));
    assert!(!FILES.is_known(this) && !FILES.is_known(other));
}

#[test]
fn a_takeover_waits_for_a_write() {
    let this = (NOWHERE - 1, 1);
    let first = FILES.take(this, Wait::Never).unwrap();
    let busy = first.hold(|| FILES.take(this, Wait::Never).map(drop));
    assert!(matches!(busy, Err(FileError::WouldWait)));
    assert!(first.check().is_ok(), "who did not get it has taken nothing");
    drop(first);
    assert!(!FILES.is_known(this));
}
