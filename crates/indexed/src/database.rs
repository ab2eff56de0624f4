//! Connections to the database of names, kept between questions. Callers block; the sockets belong to a small async runtime.
//!
//! Each try of a question has a time limit; a connection that was too slow, or has broken, is not used again. While the
//! database is away, looks and changes fail at once, and one in a second tries whether it is back. The end of an upload
//! waits for it instead.

use std::cell::Cell;
use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use millrace_storage::PostgresServer;
use millrace_vfs::FileError;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_postgres::Client;

use crate::error::IndexError;
use crate::schema;

/// Connections at a time. More questions than that wait for one another.
const CONNECTIONS: usize = 8;

/// How long after a failure the next connection is tried.
const PAUSE: Duration = Duration::from_secs(1);

/// How long the end of an upload waits for a database that is away.
const UPLOAD: Duration = Duration::from_secs(120);

/// How often a question is asked that others stand in the way of.
const CONFLICTS: u32 = 10;

/// How long a question goes on where the database is away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Patience {
    /// Not at all; a connection that broke unnoticed is replaced.
    None,
    /// Not at all. Where its answer is lost it is not asked again: it may have been done, and would be done to what has the
    /// name by then.
    Once,
    /// As for bytes that have come. The question may be asked again where its answer was lost.
    Upload,
}

/// The connections to one database.
pub(crate) struct Database {
    server: Arc<dyn PostgresServer>,
    time: Duration,
    /// The name of the tree there.
    tree: String,
    root: OnceLock<i64>,
    turns: Semaphore,
    /// Locked for a push or a pop.
    idle: Mutex<Vec<Client>>,
    /// When and why it was away last. Locked for a look.
    away: Mutex<Option<(Instant, String)>>,
    /// `None` only while this is dropped.
    runtime: Option<Runtime>,
}

impl Database {
    /// Does not connect yet.
    pub(crate) fn new(server: Arc<dyn PostgresServer>, time: Duration, tree: String) -> io::Result<Self> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("millrace-index")
            .enable_all()
            .build()?;
        let (root, turns, idle, away) =
            (OnceLock::new(), Semaphore::new(CONNECTIONS), Mutex::default(), Mutex::default());
        Ok(Self { server, time, tree, root, turns, idle, away, runtime: Some(runtime) })
    }

    /// Asks on an idle connection or a new one; the question is given the root of the tree.
    pub(crate) fn ask<T>(
        &self,
        patience: Patience,
        question: impl AsyncFn(&Client, i64) -> Result<T, IndexError>,
    ) -> Result<T, FileError> {
        let (begun, mut conflicts) = (Instant::now(), 0);
        loop {
            let is_new = Cell::new(true);
            match self.try_once(patience, &question, &is_new) {
                Err(error) if error.is_conflict() && conflicts < CONFLICTS => conflicts += 1,
                Err(error) if error.is_loss() => {
                    let is_over = match patience {
                        Patience::Once => true,
                        Patience::None => is_new.get() || begun.elapsed() >= self.time,
                        Patience::Upload => begun.elapsed() + PAUSE >= UPLOAD,
                    };
                    if is_over {
                        return Err(error.into());
                    }
                    if patience == Patience::Upload {
                        std::thread::sleep(PAUSE);
                    }
                }
                result => return Ok(result?),
            }
        }
    }

    fn try_once<T>(
        &self,
        patience: Patience,
        question: &impl AsyncFn(&Client, i64) -> Result<T, IndexError>,
        is_new: &Cell<bool>,
    ) -> Result<T, IndexError> {
        if patience != Patience::Upload
            && let Some((since, why)) = &*lock(&self.away)
            && since.elapsed() < PAUSE
        {
            return Err(IndexError::Away(why.clone()));
        }
        let runtime = self.runtime.as_ref().expect("it is there until this is dropped");
        let asked = async {
            let _turn = self.turns.acquire().await.map_err(|error| IndexError::Away(error.to_string()))?;
            let client = self.client(runtime, is_new).await?;
            // Where the tables are not made the connection may be within a transaction: it is not used again.
            let root = self.root(&client).await?;
            let answer = question(&client, root).await;
            if !answer.as_ref().is_err_and(IndexError::is_loss) {
                lock(&self.idle).push(client);
            }
            answer
        };
        let answer = runtime.block_on(async { timeout(self.time, asked).await });
        let answer = answer.unwrap_or(Err(IndexError::TimedOut(self.time)));
        *lock(&self.away) = match &answer {
            Err(error) if error.is_loss() && is_new.get() => Some((Instant::now(), error.to_string())),
            _ => None,
        };
        answer
    }

    async fn root(&self, client: &Client) -> Result<i64, IndexError> {
        if let Some(root) = self.root.get() {
            return Ok(*root);
        }
        let root = schema::open_tree(client, &self.tree).await?;
        Ok(*self.root.get_or_init(|| root))
    }

    /// An idle connection, or a new one.
    async fn client(&self, runtime: &Runtime, is_new: &Cell<bool>) -> Result<Client, IndexError> {
        let idle = {
            let mut idle = lock(&self.idle);
            idle.retain(|client| !client.is_closed());
            idle.pop()
        };
        is_new.set(idle.is_none());
        if let Some(client) = idle {
            return Ok(client);
        }
        // On the runtime's own thread: its stack is as large as TLS wants it.
        let connected = runtime.spawn(self.server.connect()).await;
        Ok(connected.map_err(|error| IndexError::Away(error.to_string()))??)
    }
}

impl Drop for Database {
    /// Does not wait: a name lookup may take as long as the resolver likes.
    fn drop(&mut self) {
        lock(&self.idle).clear();
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Database")
            .field("server", &self.server)
            .field("tree", &self.tree)
            .finish_non_exhaustive()
    }
}

/// Locks for a few lines.
pub(crate) fn lock<T>(guarded: &Mutex<T>) -> MutexGuard<'_, T> {
    guarded.lock().unwrap_or_else(PoisonError::into_inner)
}
