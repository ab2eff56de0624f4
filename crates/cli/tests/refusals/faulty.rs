//! A server on files whose device has a quota, which cannot be had without being root: in a process of its own, as its
//! log is that of its process.

use std::io::Read;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use millrace_server::{Accounts, Config, Permissions, Server};
use millrace_storage::{Fault, FaultStorage, MemoryStorage};

/// How this program becomes it.
pub(crate) const COMMAND: [&str; 4] = ["--exact", "faulty::device_with_a_quota", "--ignored", "--nocapture"];

#[test]
#[ignore = "started by the table's row"]
fn device_with_a_quota() {
    let host: IpAddr = std::env::var("REFUSALS_HOST").unwrap().parse().unwrap();
    let storage = FaultStorage::new(MemoryStorage::new());
    storage.faults().from(1, Fault::QuotaExceeded);
    let accounts = Accounts::new().user("alice", "password", Permissions::READ_WRITE, Arc::new(storage));
    let door = vec![SocketAddr::new(host, 0)];
    let config = Config {
        ftp: door.clone(),
        http: door,
        passive_ports: 61000..=61015,
        ..Config::new(Arc::new(accounts))
    };
    let running = Server::start(config).unwrap();
    println!("\nftp://{}/\nhttp://{}/\nReady", running.ftp_addresses()[0], running.http_addresses()[0]);
    // Until the test closes our input.
    let _ = std::io::stdin().read(&mut [0]);
}
