//! A tree with a database and a store of its own.
#![allow(dead_code, reason = "each test uses a part of it")]

#[path = "../../../server/tests/sources/daemon.rs"]
pub(crate) mod daemon;
#[path = "../../../server/tests/sources/postgresql.rs"]
pub(crate) mod postgresql;
#[path = "../../../s3/tests/common/mod.rs"]
pub(crate) mod stores;

use std::sync::Arc;
use std::time::Duration;

use millrace_indexed::{IndexSettings, IndexedStorage};
use millrace_storage::{Connecting, PostgresServer};
use millrace_vfs::{Storage, WriteMode};
use postgresql::Postgres;
use stores::Server;
#[allow(unused_imports, reason = "each test uses a part of them")]
pub(crate) use stores::{names, path, read, write};
use tokio_postgres::{Config, NoTls};

pub(crate) const PATIENT: Duration = Duration::from_secs(30);

/// A way to a database without TLS.
#[derive(Debug)]
struct Way(Config);

impl PostgresServer for Way {
    fn place(&self) -> String {
        String::new()
    }

    fn connect(&self) -> Connecting {
        let config = self.0.clone();
        Box::pin(async move {
            let (client, connection) = config.connect(NoTls).await?;
            tokio::spawn(connection);
            Ok(client)
        })
    }
}

/// A database and a store.
pub(crate) struct Site {
    pub(crate) database: Postgres,
    pub(crate) store: Server,
}

impl Site {
    /// `None` where one of them is not installed.
    pub(crate) fn new() -> Option<Self> {
        Some(Self { database: Postgres::new()?, store: Server::seaweed()? })
    }

    /// The tree beneath a prefix, as a server of its own has it.
    pub(crate) fn storage(&self, prefix: &str) -> IndexedStorage {
        self.storage_at(self.store.port, prefix, Duration::ZERO)
    }

    /// The same, whose store is at this port, and which keeps garbage for so long.
    pub(crate) fn storage_at(&self, port: u16, prefix: &str, keep: Duration) -> IndexedStorage {
        let server = Arc::new(Way(self.database.connection().parse().unwrap()));
        let settings = IndexSettings { store: stores::settings(port, prefix), time: PATIENT, keep };
        let storage = IndexedStorage::new(server, &settings).unwrap();
        storage.make_bucket().unwrap();
        storage
    }

    /// How many objects have no name.
    pub(crate) fn unnamed(&self) -> String {
        self.database.run("SELECT count(*) FROM millrace_index.unnamed")
    }

    /// The objects that the bucket has beneath a prefix, as the mapped layout sees them.
    pub(crate) fn objects(&self, prefix: &str) -> Vec<String> {
        names(&self.store.storage(prefix), "/")
    }
}

/// Appends to a file, or begins it.
pub(crate) fn append(storage: &dyn Storage, name: &str, content: &[u8]) {
    let mut upload = storage.open_write(&path(name), WriteMode::Append, millrace_vfs::Wait::Allowed).unwrap();
    upload.write_all(content).unwrap();
    upload.commit().unwrap();
}
