//! Connections to the database of a cluster, kept between questions. Callers block; the sockets belong to a small async
//! runtime, because only there an answer can be abandoned at any moment.
//!
//! Each question has a time limit, the wait for a connection included; a connection that was too slow, or has broken, is not
//! used again. The keeper has a connection that no login waits for.

use std::fmt;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use millrace_storage::PostgresServer;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Semaphore;
use tokio::time::timeout_at;
use tokio_postgres::Client;

use super::error::ClusterError;
use crate::lock::lock;
use crate::table::{Asker, TableError};

/// Logins that are asked about at a time. More than that wait for one another.
const LOGINS: usize = 8;

/// Transfers that are asked about at a time.
const TRANSFERS: usize = 4;

/// What a question is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lane {
    Login,
    Transfer,
    Keeper,
    /// The keeper's, which makes the tables or brings them up to date.
    Migration,
    /// An administrator's, about many rows. It waits among the logins, and may take longer than they may.
    Survey,
}

impl From<Asker> for Lane {
    fn from(by: Asker) -> Self {
        match by {
            Asker::Keeper => Self::Keeper,
            Asker::Order => Self::Login,
        }
    }
}

/// How many times as long as another question one about many rows may take, and one that makes the tables: in the usual time a
/// database that is busy would never come to the end of it.
const LONG_TIMES: u32 = 5;

/// The connections to one database.
pub(super) struct Connections {
    server: Arc<dyn PostgresServer>,
    time: Duration,
    logins: Semaphore,
    transfers: Semaphore,
    keeper: Semaphore,
    /// Locked for a push or a pop.
    idle: Mutex<Vec<Client>>,
    /// `None` only while this is dropped.
    runtime: Option<Runtime>,
}

impl Connections {
    /// Does not connect yet.
    pub(super) fn new(server: Arc<dyn PostgresServer>, time: Duration) -> io::Result<Self> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("millrace-nodes")
            .enable_all()
            .build()?;
        let [logins, transfers, keeper] = [LOGINS, TRANSFERS, 1].map(Semaphore::new);
        Ok(Self { server, time, logins, transfers, keeper, idle: Mutex::default(), runtime: Some(runtime) })
    }

    /// Asks on an idle connection or a new one.
    pub(super) fn ask<T>(
        &self,
        lane: Lane,
        question: impl AsyncFnOnce(&Client) -> Result<T, ClusterError>,
    ) -> Result<T, TableError> {
        let time = match lane {
            Lane::Survey | Lane::Migration => self.time * LONG_TIMES,
            _ => self.time,
        };
        let end = (Instant::now() + time).into();
        let runtime = self.runtime.as_ref().expect("it is there until this is dropped");
        let turns = match lane {
            Lane::Login | Lane::Survey => &self.logins,
            Lane::Transfer => &self.transfers,
            Lane::Keeper | Lane::Migration => &self.keeper,
        };
        let turn = runtime.block_on(async { timeout_at(end, turns.acquire()).await });
        let _turn = turn.map_err(|_| TableError::Busy)?;
        let asked = async {
            let client = self.client(runtime).await?;
            let answer = question(&client).await?;
            Ok((client, answer))
        };
        match runtime.block_on(async { timeout_at(end, asked).await }) {
            Ok(Ok((client, answer))) => {
                lock(&self.idle).push(client);
                Ok(answer)
            }
            Ok(Err(error)) => Err(ClusterError::into(error)),
            Err(_) => Err(TableError::TimedOut(time)),
        }
    }

    async fn client(&self, runtime: &Runtime) -> Result<Client, ClusterError> {
        while let Some(client) = self.pop() {
            if !client.is_closed() {
                return Ok(client);
            }
        }
        // On the runtime's own thread: its stack is as large as TLS wants it.
        let connected = runtime.spawn(self.server.connect()).await;
        Ok(connected.map_err(|error| ClusterError::Answer(error.to_string()))??)
    }

    fn pop(&self) -> Option<Client> {
        lock(&self.idle).pop()
    }
}

impl Drop for Connections {
    /// Does not wait: a name lookup may take as long as the resolver likes.
    fn drop(&mut self) {
        lock(&self.idle).clear();
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl fmt::Debug for Connections {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connections").field("server", &self.server).finish_non_exhaustive()
    }
}
