//! Waarp's commands for administrators.

use std::sync::Arc;

use millrace_ftp::session::Permission;
use millrace_server::{Accounts, Config, Permissions};
use millrace_storage::MemoryStorage;

use crate::kit::{Client, Served, config, serve_with};

fn serve() -> Served {
    let storage = Arc::new(MemoryStorage::new());
    let accounts = Accounts::new()
        .user("root", "p", Permissions::READ_WRITE.with(Permission::Admin), storage.clone())
        .user("u", "p", Permissions::READ_WRITE, storage.clone());
    serve_with(Config {
        accounts: Arc::new(accounts),
        shutdown_password: Some("down".into()),
        ..config(storage)
    })
}

fn log_in(served: &Served, user: &str) -> Client {
    let mut client = served.connect();
    client.log_in(user, "p");
    client
}

#[test]
fn limitbandwidth_limits_the_server_for_administrators_alone() {
    let served = serve();
    let in_force = || {
        let server = served.running.limits().swap_remove(0);
        (server.upload, server.download)
    };
    let mut user = log_in(&served, "u");
    user.expect("LIMITBANDWIDTH 5", 500);
    user.expect("SITE LIMITBANDWIDTH 5", 500);
    user.expect("INTERNALSHUTDOWN down", 500);
    assert_eq!(in_force(), (0, 0));
    let mut root = log_in(&served, "root");
    for (line, code, expected) in [
        ("LIMITBANDWIDTH 7000", 200, (7000, 7000)),
        ("LIMITBANDWIDTH 8000 9000", 200, (8000, 9000)),
        ("LIMITBANDWIDTH x", 501, (8000, 9000)),
        ("LIMITBANDWIDTH 1 2 3", 501, (8000, 9000)),
        ("LIMITBANDWIDTH -1", 501, (8000, 9000)),
        ("SITE LIMITBANDWIDTH 0 5", 200, (0, 5)),
        ("LIMITBANDWIDTH", 200, (0, 0)),
    ] {
        root.expect(line, code);
        assert_eq!(in_force(), expected, "{line}");
    }
}

#[test]
fn internalshutdown_takes_its_password_and_stops_the_server() {
    let served = serve();
    let mut root = log_in(&served, "root");
    let mut user = log_in(&served, "u");
    root.expect("INTERNALSHUTDOWN", 501);
    root.expect("INTERNALSHUTDOWN wrong", 501);
    user.expect_alive();
    root.expect("INTERNALSHUTDOWN down", 221);
    root.expect_end();
    user.expect_reply(421);
    served.running.wait();
}
