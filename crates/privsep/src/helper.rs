//! The helper's side: checks passwords, and starts what opens files with the rights of users.

use std::collections::HashSet;
use std::ffi::CString;
use std::io;
use std::os::fd::OwnedFd;
use std::process::{Child, Command};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;

use nix::unistd::{self, Uid};
use rustix::process::{DumpableBehavior, Resource, Rlimit, getrlimit, set_dumpable_behavior, setrlimit};
use thiserror::Error;

use crate::files::{CONNECTIONS, start};
use crate::pam::Library;
use crate::policy::{Policy, Setup};
use crate::question::{Answer, Request, Verdict};
use crate::wire::{LONGEST, receive, send};

/// Users whose files are open at a time: each is a process.
const MOST_USERS: usize = 1024;

/// Users who are remembered as known. With this many, no other can have files opened until the server is restarted.
const MOST_KNOWN: usize = 100_000;

/// What a module may use up: no core files, which have passwords; descriptors, which old modules can wait for up to this
/// number; bytes of memory.
const LIMITS: [(Resource, u64); 3] =
    [(Resource::Core, 0), (Resource::Nofile, 1024), (Resource::Data, 4 << 30)];

/// What a thread needs that waits for a process.
const STACK: usize = 64 * 1024;

/// Serves a server at this socket until it closes its end, and so have its successors. `user_files` is the command that
/// calls [`run_user_files`](crate::run_user_files).
pub fn run_helper(socket: OwnedFd, user_files: fn() -> Command) -> io::Result<()> {
    limit_process()?;
    serve_as_helper(socket, user_files)
}

/// [`run_helper`] without limits of its process, which a fuzzer's memory would exceed.
#[doc(hidden)]
pub fn serve_as_helper(socket: OwnedFd, user_files: fn() -> Command) -> io::Result<()> {
    let mut buffer = vec![0; LONGEST];
    let Some((message, connections)) = receive(&socket, &mut buffer)? else { return Ok(()) };
    let policy = Policy::read(message)?;
    confine(&policy)?;
    let service = Arc::new(Service {
        policy,
        pam: Library::load(),
        known: Mutex::default(),
        users: Arc::default(),
        servers: Servers::default(),
        user_files,
    });
    service.servers.enter();
    let served = service.begin(&socket, connections);
    service.servers.leave();
    // The process ends with this, also where modules hang.
    service.servers.wait();
    served
}

fn limit_process() -> io::Result<()> {
    for (resource, most) in LIMITS {
        let current = getrlimit(resource);
        let at_most = |limit: Option<u64>| Some(limit.map_or(most, |limit| limit.min(most)));
        setrlimit(resource, Rlimit { current: at_most(current.current), maximum: at_most(current.maximum) })?;
    }
    Ok(())
}

/// Confines this process, which has one thread yet, as far as modules of PAM bear. What is not root has no rights to give
/// up, and needs those that programs of modules get (`unix_chkpwd`).
fn confine(policy: &Policy) -> io::Result<()> {
    // Passwords are in its memory: no other process of its user reads it.
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    if let Some(trees) = policy.sandbox.as_ref().filter(|_| unistd::geteuid().is_root()) {
        millrace_sandbox::enter_as_helper(trees).map_err(io::Error::other)?;
    }
    Ok(())
}

struct Service {
    policy: Policy,
    pam: Library,
    /// Users whose password was right, at a service of users of the system. Guarded for a look-up.
    known: Mutex<HashSet<String>>,
    /// Processes that open files.
    users: Arc<AtomicUsize>,
    servers: Servers,
    user_files: fn() -> Command,
}

/// How many servers are served: one, and for the time of an upgrade its successor.
#[derive(Default)]
struct Servers {
    /// Guarded for a number.
    count: Mutex<usize>,
    left: Condvar,
}

impl Servers {
    fn enter(&self) {
        *self.count.lock().unwrap_or_else(PoisonError::into_inner) += 1;
    }

    fn leave(&self) {
        *self.count.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        self.left.notify_all();
    }

    fn wait(&self) {
        let count = self.count.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.left.wait_while(count, |count| *count > 0));
    }
}

/// Why something was not done; a sentence without its full stop.
#[derive(Debug, Error)]
enum Refusal {
    #[error(
        "the privileged helper does not ask the service {0}, which was not in the configuration when it started"
    )]
    Service(String),
    #[error("the privileged helper was not started for these accounts of PAM, or trees: restart the server")]
    More,
    #[error("the privileged helper cannot serve another server: {0}")]
    Join(io::Error),
    #[error("the privileged helper opens no files, as the configuration said when it started")]
    Files,
    #[error("the privileged helper has let no user {0} in")]
    NotKnown(String),
    #[error("{0} is root, with whose rights no files are served")]
    Root(String),
    #[error("the system knows no user {0}")]
    NoUser(String),
    #[error(
        "the privileged helper is of user {own}, and cannot become {user}: that takes a server that is started as root"
    )]
    NotRoot { user: String, own: Uid },
    #[error("the files of {0} users are open, which is the most")]
    TooMany(usize),
    #[error("the process for the files of {user} cannot be started: {source}")]
    Start { user: String, source: io::Error },
    #[error("the process for the files of {user} gives up: {why}")]
    GivesUp { user: String, why: String },
}

impl Service {
    /// Serves these connections, and returns when the server has closed this socket.
    fn begin(self: &Arc<Self>, socket: &OwnedFd, connections: Vec<OwnedFd>) -> io::Result<()> {
        for connection in connections {
            let service = Arc::clone(self);
            let serve = move || service.serve(&connection);
            // Modules need the stack that threads have by default.
            thread::Builder::new().name("millrace-helper".to_owned()).spawn(serve)?;
        }
        let begun = match self.pam.missing() {
            None => Answer::Done,
            Some(why) => Answer::Failed(why.to_string()),
        };
        send(socket, &begun.to_bytes(), &[])?;
        let mut buffer = vec![0; LONGEST];
        // It sends nothing more there.
        while receive(socket, &mut buffer)?.is_some() {}
        Ok(())
    }

    /// Serves a successor on a thread of its own.
    fn join(self: &Arc<Self>, sockets: Vec<OwnedFd>) -> Result<(), Refusal> {
        let [socket] = <[OwnedFd; 1]>::try_from(sockets)
            .map_err(|_| Refusal::Join(io::ErrorKind::InvalidInput.into()))?;
        self.servers.enter();
        let service = Arc::clone(self);
        let serve = move || {
            let _ = service.meet(&socket);
            service.servers.leave();
        };
        let begun = thread::Builder::new().name("millrace-helper".to_owned()).spawn(serve);
        begun.map(drop).map_err(|error| {
            self.servers.leave();
            Refusal::Join(error)
        })
    }

    /// Serves a successor that wants no more than the first server did.
    fn meet(self: &Arc<Self>, socket: &OwnedFd) -> io::Result<()> {
        let mut buffer = vec![0; LONGEST];
        let Some((message, connections)) = receive(socket, &mut buffer)? else { return Ok(()) };
        match self.policy.covers(&Policy::read(message)?) {
            true => self.begin(socket, connections),
            false => send(socket, &Answer::Failed(Refusal::More.to_string()).to_bytes(), &[]),
        }
    }

    /// Answers the requests of a connection until it is closed.
    fn serve(self: &Arc<Self>, connection: &OwnedFd) {
        let mut buffer = vec![0; LONGEST];
        // What is too long ends the connection, and what is malformed otherwise is told.
        while let Ok(Some((message, descriptors))) = receive(connection, &mut buffer) {
            let answer = match Request::read(message) {
                Ok(request) => self.answer(&request, descriptors),
                Err(error) => Answer::Failed(error.to_string()),
            };
            let mut answer = answer.to_bytes();
            if answer.len() > LONGEST {
                answer = Answer::Failed("the entry of the user is too long".to_owned()).to_bytes();
            }
            if send(connection, &answer, &[]).is_err() {
                return;
            }
        }
    }

    fn answer(self: &Arc<Self>, request: &Request<'_>, descriptors: Vec<OwnedFd>) -> Answer {
        let failed = |error: &dyn std::fmt::Display| Answer::Failed(error.to_string());
        match request {
            Request::Begin(service) | Request::Check(crate::Question { service, .. })
                if self.policy.service(service).is_none() =>
            {
                failed(&Refusal::Service((*service).to_owned()))
            }
            Request::Begin(service) => match self.pam.begin(service) {
                Ok(()) => Answer::Done,
                Err(error) => failed(&error),
            },
            Request::Check(question) => match self.pam.check(question) {
                Ok(verdict) => {
                    let is_of_system =
                        self.policy.service(question.service).is_some_and(|service| service.opens_files);
                    if is_of_system && matches!(verdict, Verdict::Right(_)) {
                        self.remember(question.user);
                    }
                    Answer::Verdict(verdict)
                }
                Err(error) => failed(&error),
            },
            Request::OpenFiles(user) => match self.open_files(user, descriptors) {
                Ok(number) => Answer::Opened(number),
                Err(refusal) => failed(&refusal),
            },
            Request::Join => match self.join(descriptors) {
                Ok(()) => Answer::Done,
                Err(refusal) => failed(&refusal),
            },
        }
    }

    fn remember(&self, user: &str) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() < MOST_KNOWN {
            known.insert(user.to_owned());
        }
    }

    fn open_files(&self, user: &str, connections: Vec<OwnedFd>) -> Result<u32, Refusal> {
        if !self.policy.opens_files() {
            return Err(Refusal::Files);
        }
        if !self.known.lock().unwrap_or_else(PoisonError::into_inner).contains(user) {
            return Err(Refusal::NotKnown(user.to_owned()));
        }
        let setup = self.setup(user)?;
        let slot = Slot::take(&self.users)?;
        self.start(user, &setup, &connections, slot)?;
        Ok(setup.user)
    }

    /// What a process has to become to have the rights of a user.
    fn setup(&self, user: &str) -> Result<Setup, Refusal> {
        let none = || Refusal::NoUser(user.to_owned());
        let found = unistd::User::from_name(user).ok().flatten().ok_or_else(none)?;
        if found.uid.is_root() {
            return Err(Refusal::Root(user.to_owned()));
        }
        let own = unistd::geteuid();
        if !own.is_root() && own != found.uid {
            return Err(Refusal::NotRoot { user: user.to_owned(), own });
        }
        let name = CString::new(user).map_err(|_| none())?;
        let groups = unistd::getgrouplist(&name, found.gid).map_err(|_| none())?;
        Ok(Setup {
            user: found.uid.as_raw(),
            group: found.gid.as_raw(),
            groups: groups.into_iter().map(unistd::Gid::as_raw).collect(),
            sandbox: self.policy.sandbox.clone(),
        })
    }

    /// Starts a process, and waits until it has become the user.
    fn start(&self, user: &str, setup: &Setup, connections: &[OwnedFd], slot: Slot) -> Result<(), Refusal> {
        let failed = |source: io::Error| Refusal::Start { user: user.to_owned(), source };
        if connections.len() != CONNECTIONS {
            return Err(failed(io::ErrorKind::InvalidInput.into()));
        }
        let (child, begun) = start((self.user_files)(), setup, connections).map_err(failed)?;
        collect(child, slot).map_err(failed)?;
        match begun.map_err(failed)? {
            Answer::Done => Ok(()),
            Answer::Failed(why) => Err(Refusal::GivesUp { user: user.to_owned(), why }),
            Answer::Verdict(_) | Answer::Opened(_) => Err(failed(io::ErrorKind::InvalidData.into())),
        }
    }
}

/// One of the processes that there may be.
struct Slot(Arc<AtomicUsize>);

impl Slot {
    fn take(users: &Arc<AtomicUsize>) -> Result<Self, Refusal> {
        let slot = Self(Arc::clone(users));
        match users.fetch_add(1, Ordering::Relaxed) {
            before if before < MOST_USERS => Ok(slot),
            _ => Err(Refusal::TooMany(MOST_USERS)),
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Waits for a process on a thread of its own: modules wait for theirs by their numbers, so no other may be taken.
fn collect(mut child: Child, slot: Slot) -> io::Result<()> {
    let wait = move || {
        let _ = child.wait();
        drop(slot);
    };
    thread::Builder::new().stack_size(STACK).spawn(wait).map(drop)
}
