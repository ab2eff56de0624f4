//! A server for one test.

use std::net::{Ipv4Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use millrace_server::config::LogFormat;
use millrace_server::{Accounts, Config, Permissions, Running, Server};
use millrace_vfs::Storage;

use super::{Client, free_ports};

/// A running server; it ends at once when dropped.
pub(crate) struct Served {
    pub(crate) running: Running,
    pub(crate) address: SocketAddr,
    pub(crate) ports: RangeInclusive<u16>,
}

/// Serves a storage to `u` (all rights), `r` (read only), password `p`.
pub(crate) fn serve(storage: Arc<dyn Storage>) -> Served {
    serve_with(config(storage))
}

/// The settings of [`serve`], to be changed.
pub(crate) fn config(storage: Arc<dyn Storage>) -> Config {
    let accounts = Accounts::new().user("u", "p", Permissions::READ_WRITE, Arc::clone(&storage)).user(
        "r",
        "p",
        Permissions::READ_ONLY,
        storage,
    );
    Config {
        ftp: vec![SocketAddr::from((Ipv4Addr::LOCALHOST, 0))],
        passive_ports: free_ports(16),
        workers: 2,
        login_delay: Duration::from_millis(20),
        grace: Duration::from_secs(5),
        mode_z: true,
        log: LogFormat::Off,
        ..Config::new(Arc::new(accounts))
    }
}

pub(crate) fn serve_with(config: Config) -> Served {
    let ports = config.passive_ports.clone();
    let running = Server::start(config).expect("the server starts");
    Served { address: running.ftp_addresses()[0], running, ports }
}

impl Served {
    /// A client that has read the greeting.
    pub(crate) fn connect(&self) -> Client {
        let mut client = Client::connect(self.address);
        client.expect_reply(220);
        client
    }

    /// A client that is logged in with all rights, in `TYPE I`.
    pub(crate) fn login(&self) -> Client {
        let mut client = self.connect();
        client.log_in("u", "p");
        client
    }
}
