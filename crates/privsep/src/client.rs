//! The server's side of the helper: asks it.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::{Command, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use thiserror::Error;

use crate::files::{CONNECTIONS, UserFiles};
use crate::policy::{MOST_SERVICES, Policy};
use crate::question::{Answer, LONGEST_PASSWORD, LONGEST_USER, Question, Request, Verdict};
use crate::wire::{DESCRIPTORS, LONGEST, malformed, pair, pairs, receive, send};

/// Questions that a service may be asked at once, so that one that hangs leaves the others connections.
const CONNECTIONS_OF_A_SERVICE: usize = 16;

/// Connections for what is asked of no service.
const OTHER_CONNECTIONS: usize = 4;

const _: () = assert!(MOST_SERVICES * CONNECTIONS_OF_A_SERVICE + OTHER_CONNECTIONS <= DESCRIPTORS);

/// Users whose processes are kept although no session uses them: the next request of HTTP does.
const KEPT: usize = 16;

/// The helper of this server.
#[derive(Debug)]
pub struct Helper {
    policy: Policy,
    /// The helper ends when this is closed.
    _control: OwnedFd,
    /// The connections without a request. Guarded for a push or a pop.
    idle: Mutex<Vec<OwnedFd>>,
    /// A connection was put back.
    returned: Condvar,
    users: Mutex<Users>,
}

/// Users whose files are open.
#[derive(Debug, Default)]
struct Users {
    open: HashMap<String, Weak<UserFiles>>,
    /// The last of them.
    kept: Vec<Arc<UserFiles>>,
}

/// Why the helper cannot be started; a sentence without its full stop.
#[derive(Debug, Error)]
pub enum StartError {
    /// It names too much.
    #[error("more than {MOST_SERVICES} services of PAM are in the configuration")]
    Services,
    /// The process cannot be started, or ends.
    #[error("the privileged helper cannot be started: {0}")]
    Process(#[from] io::Error),
    /// It says why.
    #[error("{0}")]
    Refused(String),
}

/// Why the helper does not do something; a sentence without its full stop.
#[derive(Debug, Error)]
pub enum HelperError {
    /// There is none.
    #[error(
        "this server has no privileged helper, which is started with it where its configuration has accounts of PAM"
    )]
    None,
    /// It has ended.
    #[error("the privileged helper has ended: restart the server")]
    Ended(#[source] io::Error),
    /// It says why.
    #[error("{0}")]
    Refused(String),
}

static HELPER: OnceLock<Helper> = OnceLock::new();

/// Starts a helper by this command, which has to call [`run_helper`](crate::run_helper), for this process from now on.
pub fn connect_helper(mut command: Command, policy: Policy) -> Result<(), StartError> {
    let (control, theirs) = pair()?;
    // It ends when this process closes its end.
    command.stdin(Stdio::from(theirs)).spawn()?;
    drop(command);
    join_helper(control, policy)
}

/// Has the helper of the predecessor, whose [`Helper::for_successor`] has made this socket, serve this process from now
/// on.
pub fn join_helper(control: OwnedFd, policy: Policy) -> Result<(), StartError> {
    let helper = Helper::meet(control, policy)?;
    HELPER.set(helper).map_err(|_| io::Error::from(io::ErrorKind::AlreadyExists).into())
}

/// The helper of this process.
pub fn helper() -> Result<&'static Helper, HelperError> {
    HELPER.get().ok_or(HelperError::None)
}

impl Helper {
    /// Sends the policy and the helper's ends of the connections.
    fn meet(control: OwnedFd, policy: Policy) -> Result<Self, StartError> {
        if policy.services.len() > MOST_SERVICES {
            return Err(StartError::Services);
        }
        let count = policy.services.len() * CONNECTIONS_OF_A_SERVICE + OTHER_CONNECTIONS;
        let (idle, theirs) = pairs(count)?;
        let theirs: Vec<BorrowedFd<'_>> = theirs.iter().map(AsFd::as_fd).collect();
        send(&control, &policy.to_bytes(), &theirs)?;
        let mut buffer = vec![0; LONGEST];
        let ended = || io::Error::new(io::ErrorKind::UnexpectedEof, "it has ended at once");
        let (message, _) = receive(&control, &mut buffer)?.ok_or_else(ended)?;
        match Answer::read(message)? {
            Answer::Done => {
                let (idle, returned) = (Mutex::new(idle), Condvar::new());
                Ok(Self { policy, _control: control, idle, returned, users: Mutex::default() })
            }
            Answer::Failed(why) => Err(StartError::Refused(why)),
            _ => Err(malformed().into()),
        }
    }

    /// Returns whether it was started for all that this policy names.
    pub fn covers(&self, policy: &Policy) -> bool {
        self.policy.covers(policy)
    }

    /// Makes a socket at which the successor of this server can [join](join_helper) its helper.
    pub fn for_successor(&self) -> Result<OwnedFd, HelperError> {
        let (ours, theirs) = pair().map_err(HelperError::Ended)?;
        match self.request(&Request::Join, &[theirs.as_fd()])? {
            Answer::Done => Ok(ours),
            answer => Err(unexpected(answer)),
        }
    }

    /// Checks that a service can be asked.
    pub fn begin(&self, service: &str) -> Result<(), HelperError> {
        match self.request(&Request::Begin(service), &[])? {
            Answer::Done => Ok(()),
            answer => Err(unexpected(answer)),
        }
    }

    /// Asks about a login. Takes as long as the service does.
    pub fn check(&self, question: &Question<'_>) -> Result<Verdict, HelperError> {
        let is_possible = (1..=LONGEST_USER).contains(&question.user.len())
            && question.password.len() <= LONGEST_PASSWORD
            && !question.user.contains('\0')
            && !question.password.contains('\0');
        if !is_possible {
            return Ok(Verdict::Unknown);
        }
        match self.request(&Request::Check(*question), &[])? {
            Answer::Verdict(verdict) => Ok(verdict),
            answer => Err(unexpected(answer)),
        }
    }

    /// Opens files with the rights of a user who has logged in.
    pub fn files_of(&self, user: &str) -> Result<Arc<UserFiles>, HelperError> {
        let open = self.users().open.get(user).and_then(Weak::upgrade).filter(|files| !files.has_ended());
        let files = match open {
            Some(files) => files,
            // Without the lock, as it may take a while: of two logins at once each gets a process.
            None => Arc::new(self.open_files(user)?),
        };
        self.users().keep(user, &files);
        Ok(files)
    }

    fn users(&self) -> MutexGuard<'_, Users> {
        self.users.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn open_files(&self, user: &str) -> Result<UserFiles, HelperError> {
        let (ours, theirs) = pairs(CONNECTIONS).map_err(HelperError::Ended)?;
        let theirs: Vec<BorrowedFd<'_>> = theirs.iter().map(AsFd::as_fd).collect();
        match self.request(&Request::OpenFiles(user), &theirs)? {
            Answer::Opened(number) => Ok(UserFiles::new(number, ours)),
            answer => Err(unexpected(answer)),
        }
    }

    fn request(&self, request: &Request<'_>, descriptors: &[BorrowedFd<'_>]) -> Result<Answer, HelperError> {
        let connection = self.take();
        let answer = ask(&connection, request, descriptors);
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
        self.returned.notify_one();
        answer.map_err(HelperError::Ended)
    }

    fn take(&self) -> OwnedFd {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            match idle.pop() {
                Some(connection) => return connection,
                None => idle = self.returned.wait(idle).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }
}

impl Users {
    /// Notes the files of a user, as the last that were asked for.
    fn keep(&mut self, user: &str, files: &Arc<UserFiles>) {
        self.kept.retain(|kept| !Arc::ptr_eq(kept, files) && !kept.has_ended());
        self.kept.truncate(KEPT - 1);
        self.kept.insert(0, Arc::clone(files));
        self.open.retain(|_, files| files.strong_count() > 0);
        self.open.insert(user.to_owned(), Arc::downgrade(files));
    }
}

fn unexpected(answer: Answer) -> HelperError {
    match answer {
        Answer::Failed(why) => HelperError::Refused(why),
        _ => HelperError::Refused(
            "the privileged helper has given another answer than it was asked for".to_owned(),
        ),
    }
}

fn ask(connection: &OwnedFd, request: &Request<'_>, descriptors: &[BorrowedFd<'_>]) -> io::Result<Answer> {
    send(connection, &request.to_bytes(), descriptors)?;
    let mut buffer = vec![0; LONGEST];
    let ended = || io::Error::from(io::ErrorKind::BrokenPipe);
    let (message, _) = receive(connection, &mut buffer)?.ok_or_else(ended)?;
    Answer::read(message)
}
