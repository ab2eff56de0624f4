//! The shortest embedded server: a free port, files in memory and one user.

use std::sync::Arc;

use millrace_server::storage::MemoryStorage;
use millrace_server::{Accounts, Config, Permissions, Server};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let files = Arc::new(MemoryStorage::new());
    let accounts = Accounts::new().user("alice", "secret", Permissions::READ_WRITE, files);
    let config = Config { ftp: vec!["127.0.0.1:0".parse()?], ..Config::new(Arc::new(accounts)) };
    let server = Server::start(config)?;
    println!("ftp://alice:secret@{}/", server.ftp_addresses()[0]);
    server.shut_down();
    Ok(())
}

#[test]
fn it_starts_and_ends() {
    main().unwrap();
}
