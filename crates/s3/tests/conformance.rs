//! The back end keeps what `vfs` promises, over a real store.

mod common;

use common::Server;

#[test]
fn a_bucket_is_a_storage() {
    let Some(server) = Server::seaweed() else { return };
    // A page and some.
    millrace_vfs::conformance::run_with(&server.storage("tree/of files"), 1_100);
}
