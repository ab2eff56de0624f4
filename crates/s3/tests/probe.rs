//! The probe tells a store that keeps its promises from one that does not.

mod common;

use common::Server;

#[test]
fn of_seaweedfs_nothing_is_to_be_told() {
    let Some(server) = Server::seaweed() else { return };
    let storage = server.storage("");
    assert_eq!(storage.start(), Vec::<String>::new());
    assert!(common::names(&storage, "/").is_empty(), "the probe leaves nothing that is seen");
}

#[test]
fn rclone_ignores_conditions_and_is_caught() {
    let Some(server) = Server::rclone() else { return };
    let told = server.storage("").start();
    for expected in ["ignores If-None-Match", "ignores If-Match", "does not copy parts"] {
        assert!(told.iter().any(|message| message.starts_with(expected)), "{expected}: {told:?}");
    }
}

#[test]
fn a_store_that_is_away_is_told_of() {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let settings = common::settings(port, "");
    let told = millrace_s3::S3Storage::new(&settings).unwrap().start();
    assert!(matches!(&told[..], [message] if message.starts_with("cannot be asked: ")), "{told:?}");
}
