//! The back end keeps what `vfs` promises, over a real database and a real store.

mod common;

use std::time::Duration;

use common::Site;
use millrace_indexed::Swept;

#[test]
fn names_in_a_database_with_contents_in_a_bucket_are_a_storage() {
    let Some(site) = Site::new() else { return };
    let storage = site.storage("tree/of files");
    // Some pages.
    millrace_vfs::conformance::run_with(&storage, 2_500);
    storage.sweep(Duration::ZERO).unwrap();
    assert_eq!(site.unnamed(), "0", "what was removed is gone");
    assert_eq!(site.objects("tree/of files"), Vec::<String>::new());
    assert_eq!(storage.sweep(Duration::ZERO).unwrap(), Swept::default());
}
