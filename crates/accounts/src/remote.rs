//! Servers elsewhere that know accounts: connections to one, and what becomes of logins while it is away.
//!
//! Everything about it has a time limit, the wait for a connection included; a connection that is too slow is not used
//! again. While the server is unreachable, logins are refused at once, and a task tries every second whether it is
//! back. Callers block on pool threads; the sockets belong to a small async runtime, because only there a query can be
//! cancelled at any moment.

use std::fmt::Debug;
use std::hash::Hash;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::runtime::{Builder, Runtime};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout_at};

use super::source::{Found, Source, mark_of};
use super::source_error::{SetupError, SourceError};
use super::watch::Watch;
use super::{Attempt, Changed};

/// Connections at a time. More logins than that wait for one another.
const CONNECTIONS: usize = 8;

/// How long after a failure the next connection is tried.
const PAUSE: Duration = Duration::from_secs(1);

/// A way to a server of one kind.
pub(super) trait Link: Debug + Send + Sync + 'static {
    /// Whether it has groups for other purposes too: see [`Source::has_groups_of_its_own`].
    const GROUPS_OF_ITS_OWN: bool = false;

    /// A connection, kept between queries.
    type Connection: Send + 'static;

    /// The server's error, or that of its answer.
    type Error: std::error::Error + Send + Sync + 'static;

    /// Connects, and prepares the connection for queries.
    fn connect(&self) -> impl Future<Output = Result<Self::Connection, Self::Error>> + Send;

    /// Finds a user, and whether the password is right; with `None` only the user is wanted.
    fn find(
        &self,
        connection: &mut Self::Connection,
        name: &str,
        password: Option<&str>,
    ) -> impl Future<Output = Result<Found, Self::Error>> + Send;
}

/// A server that knows accounts, as a source of them.
#[derive(Debug)]
pub(super) struct Remote<L: Link> {
    name: String,
    mark: u64,
    holds_hashes: bool,
    shared: Arc<Shared<L>>,
    /// `None` only while this is dropped.
    runtime: Option<Runtime>,
}

/// The state shared by logins and the tasks of the runtime.
struct Shared<L: Link> {
    link: L,
    time: Duration,
    turns: Semaphore,
    /// Idle connections. Locked for a push or a pop.
    idle: Mutex<Vec<L::Connection>>,
    /// Why there is no connection; `None` as far as it is known that there can be one. Guarded for a clone.
    away: Mutex<Option<Arc<SourceError>>>,
    /// Guarded for a step of it.
    watch: Mutex<Watch>,
    is_looking: AtomicBool,
}

impl<L: Link> Remote<L> {
    /// Makes a source without connecting.
    pub(super) fn new(name: String, link: L, holds_hashes: bool, time: Duration) -> Result<Self, SetupError> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("millrace-sources")
            .enable_all()
            .build()?;
        let shared = Arc::new(Shared {
            link,
            time,
            turns: Semaphore::new(CONNECTIONS),
            idle: Mutex::default(),
            away: Mutex::default(),
            watch: Mutex::default(),
            is_looking: AtomicBool::new(false),
        });
        Ok(Self { name, mark: 0, holds_hashes, shared, runtime: Some(runtime) })
    }

    /// The same, which this tells from others of its name.
    pub(super) fn marked(mut self, settings: &impl Hash) -> Self {
        self.mark = mark_of(settings);
        self
    }

    fn runtime(&self) -> &Runtime {
        self.runtime.as_ref().expect("it is there until this is dropped")
    }
}

impl<L: Link> Shared<L> {
    fn idle(&self) -> MutexGuard<'_, Vec<L::Connection>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn away(&self) -> MutexGuard<'_, Option<Arc<SourceError>>> {
        self.away.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn watch(&self) -> MutexGuard<'_, Watch> {
        self.watch.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks on an idle connection or a new one, within the time limit.
    async fn find(self: &Arc<Self>, name: &str, password: Option<&str>) -> Result<Found, SourceError> {
        let end = (Instant::now() + self.time).into();
        let turn = timeout_at(end, self.turns.acquire()).await;
        let _turn = turn.map_err(|_| SourceError::Busy)?;
        if let Some(why) = self.away().clone() {
            return Err(SourceError::Away(why));
        }
        let answer = timeout_at(end, self.find_in_turn(name, password)).await;
        answer.unwrap_or_else(|_| Err(self.be_away(SourceError::TimedOut(self.time))))
    }

    async fn find_in_turn(
        self: &Arc<Self>,
        name: &str,
        password: Option<&str>,
    ) -> Result<Found, SourceError> {
        // The server may have been restarted since: an error of an old connection says nothing about it.
        let kept = self.idle().pop();
        if let Some(mut connection) = kept
            && let Ok(found) = self.link.find(&mut connection, name, password).await
        {
            self.idle().push(connection);
            return Ok(found);
        }
        let connected = self.link.connect().await.map_err(SourceError::backend);
        let mut connection = connected.map_err(|why| self.be_away(why))?;
        let found = self.link.find(&mut connection, name, password).await.map_err(SourceError::backend)?;
        self.idle().push(connection);
        Ok(found)
    }

    /// Connects in time, and keeps the connection.
    async fn connect(&self) -> Result<(), SourceError> {
        let connected = timeout_at((Instant::now() + self.time).into(), self.link.connect()).await;
        let connected = connected.map_err(|_| SourceError::TimedOut(self.time))?;
        self.idle().push(connected.map_err(SourceError::backend)?);
        Ok(())
    }

    /// Refuses logins from now on with this error, which it returns, until a task has found the server again.
    fn be_away(self: &Arc<Self>, why: SourceError) -> SourceError {
        let why = Arc::new(why);
        self.idle().clear();
        if self.away().replace(Arc::clone(&why)).is_some() {
            return SourceError::Away(why); // There is such a task.
        }
        let shared = Arc::clone(self);
        tokio::spawn(async move {
            loop {
                sleep(PAUSE).await;
                let connected = shared.connect().await;
                *shared.away() = connected.err().map(Arc::new);
                if shared.away().is_none() {
                    return;
                }
            }
        });
        SourceError::Away(why)
    }

    /// Looks for changes of these users.
    async fn look(self: Arc<Self>, names: Vec<String>) {
        let _looking = Looking(&self.is_looking);
        for name in names {
            // A user that cannot be queried stays unchanged.
            let user = match self.find(&name, None).await {
                Ok(Found::User(user, _)) => Some(*user),
                Ok(Found::Unknown) => None,
                Err(_) => break,
            };
            self.watch().saw(&name, user.as_ref());
        }
        self.watch().end(Instant::now());
    }
}

/// That users are being looked at, until this is dropped.
struct Looking<'a>(&'a AtomicBool);

impl Drop for Looking<'_> {
    fn drop(&mut self) {
        self.0.store(false, Relaxed);
    }
}

impl<L: Link> Source for Remote<L> {
    fn name(&self) -> &str {
        &self.name
    }

    fn mark(&self) -> u64 {
        self.mark
    }

    /// A name or password that is not UTF-8 belongs to no user.
    fn find(&self, attempt: &Attempt<'_>) -> Result<Found, SourceError> {
        let (Ok(name), Ok(password)) = (str::from_utf8(attempt.user), str::from_utf8(attempt.password))
        else {
            return Ok(Found::Unknown);
        };
        let (shared, name, password) = (Arc::clone(&self.shared), name.to_owned(), password.to_owned());
        // On the runtime's own thread: its stack is as large as TLS wants it, and what panics is lost alone.
        let asked = self.runtime().spawn(async move { shared.find(&name, Some(&password)).await });
        let found = self.runtime().block_on(asked);
        let found = found.unwrap_or(Err(SourceError::Panicked))?;
        if let Found::User(user, _) = &found {
            self.shared.watch().met(user, Instant::now());
        }
        Ok(found)
    }

    fn holds_hashes(&self) -> bool {
        self.holds_hashes
    }

    fn has_groups_of_its_own(&self) -> bool {
        L::GROUPS_OF_ITS_OWN
    }

    fn begin(&self) -> Result<(), SourceError> {
        let connect = async { self.shared.connect().await.map_err(|why| self.shared.be_away(why)) };
        self.runtime().block_on(connect)
    }

    /// The result of the last check of the users with sessions; the next check runs in the background.
    fn changed(&self, present: &dyn Fn() -> Vec<Vec<u8>>) -> Changed {
        if !self.shared.is_looking.load(Relaxed)
            && let Some(names) = self.shared.watch().begin(Instant::now(), present)
        {
            self.shared.is_looking.store(true, Relaxed);
            self.runtime().spawn(Arc::clone(&self.shared).look(names));
        }
        self.shared.watch().changed()
    }
}

impl<L: Link> Drop for Remote<L> {
    /// Does not wait: a name lookup may take as long as the resolver likes.
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl<L: Link> Debug for Shared<L> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared")
            .field("link", &self.link)
            .field("away", &*self.away())
            .finish_non_exhaustive()
    }
}
