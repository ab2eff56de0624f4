//! The server's side of a control connection, as a value.
//!
//! ```text
//!                    USER, PASS                     RETR, STOR, LIST ...
//! Connected -> Ready ----------> Asking --granted--> Ready -> Asking -> Transferring -> Ready
//!                ^                  |denied                     |            |
//!                |                  v                           |failed      |ended (226, 4xx)
//!                +------530----- Penalty                        +-> Ready <--+
//!                                   |too many
//!              QUIT, 421 ---------> Closed
//! ```
//!
//! [`Session::handle`] is given one [`Input`] at a time and answers with a [`Step`]: replies to send, in
//! order, then at most one effect. While a question is open (`Phase::Asking`) the driver keeps further
//! lines back, so the replies to pipelined commands cannot overtake one another; during a transfer or a
//! long question only the table's `busy` rows pass ([`Session::takes`]).
//!
//! The invariant: every command line gets exactly one final reply (a code of 200 or more), in the order
//! of the lines, except that `ABOR` also ends what it aborts. `tests/pair.rs` holds it against the client.

pub mod commands;
mod data;
mod ending;
mod exchange;
pub(crate) mod failure;
mod gate;
pub(crate) mod notes;
mod rules;
mod security;
mod settings;
mod texts;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use millrace_vfs::{FileError, PathError, VirtualPath};

use crate::codec::Coding;
use crate::escape;
use crate::language::Language;
use crate::listing::Facts;
use crate::reply::{Part, Reply, code};

pub(crate) use data::DataPlan;
use ending::Closing;
pub use exchange::{
    Act, Answer, Bound, ByteRange, Content, Credentials, Grant, Input, LeftOut, ListRequest, Now, Outcome,
    Progress, Protection, Request, Step, Transfer, TransferError, Verdict, Via,
};
pub(crate) use gate::{DENIED, split, wrong_syntax};
pub use gate::{NOT_BEGUN, Named, rewritten};
pub use millrace_vfs::{Permission, Permissions};
pub use rules::Rules;
pub(crate) use security::Security;
pub use settings::{Settings, TlsPolicy};
pub use texts::{Cookies, Occupancy, Texts};

/// The continuation of a request, so that a command stays in one file. A box around a function that captures nothing,
/// which most are, allocates nothing.
pub(crate) type Then = Box<dyn FnOnce(&mut Session, Answer) -> Step + Send>;

/// Runs after a successful transfer.
pub(crate) type Success = Box<dyn FnOnce(&mut Session) -> Step + Send>;

/// The server's side of one control connection.
#[derive(Debug)]
pub struct Session {
    /// What holds for it: of the server, or of the host that the client has named by now.
    pub settings: Arc<Settings>,
    /// The client's address, in its plain form (an IPv4 client is IPv4 also on a dual-stack socket).
    pub(crate) peer: SocketAddr,
    /// The address that the client connected to.
    pub(crate) local: SocketAddr,
    phase: Phase,
    /// `ABOR` waits for its 226: it is sent when the operation under way has ended.
    aborting: bool,
    /// The connection closes when the operation under way has ended.
    closing: Option<Closing>,
    pub(crate) access: Access,
    /// The protection of the connections.
    pub(crate) security: Security,
    /// Wrong names or passwords so far.
    failed_logins: u8,
    /// Failed logins of the client's other connections.
    failed_elsewhere: u8,
    /// Lines in a row that were no command.
    nonsense: u8,
    /// The working directory.
    pub(crate) directory: VirtualPath,
    pub(crate) coding: Coding,
    pub(crate) data: DataPlan,
    /// After `EPSV ALL` every other way to a data connection is refused (RFC 2428 section 4).
    pub(crate) extended_only: bool,
    /// Set by `REST` and `RANG` for the next transfer.
    pub(crate) restart: ByteRange,
    /// The value of `restart` when the current transfer command consumed it.
    pub(crate) range: ByteRange,
    /// Set by `RNFR` for `RNTO`, or by `SITE CPFR` for `SITE CPTO`.
    pub(crate) source: Option<Source>,
    /// The path of the open request, or of the running transfer.
    pub(crate) subject: Option<VirtualPath>,
    /// The command that it belongs to, or the last one.
    verb: &'static str,
    /// Which facts `MLST` and `MLSD` give.
    pub(crate) facts: Facts,
    /// Rarely-set things, so that an idle session is small.
    pub(crate) extras: Option<Box<Extras>>,
    deadline: Option<Instant>,
    pub(crate) now: Now,
}

/// State that few sessions need.
#[derive(Debug, Default, Clone)]
pub(crate) struct Extras {
    /// The hash of `HASH`, where it is not the default.
    pub(crate) hash: Option<crate::digest::Algorithm>,
    /// The language of `LANG`, where it is not English.
    pub(crate) language: Option<Language>,
    /// The text of `CLNT` or `CSID`.
    pub(crate) client: Option<Box<[u8]>>,
    /// `SITE IDLE`, in seconds.
    pub(crate) idle: Option<u32>,
    /// `SITE UMASK`, where it was set.
    pub(crate) umask: Option<u32>,
    /// The deflate level of `OPTS MODE Z LEVEL`.
    pub(crate) deflate_level: Option<u8>,
    /// Directories whose notes were told, the last one last.
    pub(crate) told: Vec<VirtualPath>,
    /// The size from `ALLO` for the next upload, in bytes.
    pub(crate) announced: Option<u64>,
    /// The mail address that an anonymous user gave.
    pub(crate) guest: Option<Box<[u8]>>,
    /// The sessions of its class.
    pub(crate) class: Option<Arc<dyn Occupancy>>,
}

/// A path named for the command that follows.
#[derive(Debug, Clone)]
pub(crate) enum Source {
    /// `RNFR`
    Rename(VirtualPath),
    /// `SITE CPFR`
    Copy(VirtualPath),
}

/// The client's authentication.
#[derive(Debug)]
pub(crate) enum Access {
    /// Not logged in.
    Stranger,
    /// `USER` was given; `PASS` is due.
    Named(Vec<u8>),
    /// The password was right; `ACCT` is due.
    Half(Credentials),
    /// Logged in.
    User(Login),
}

/// A logged-in user.
#[derive(Debug)]
pub(crate) struct Login {
    pub(crate) name: Box<[u8]>,
    /// Those of some place.
    pub(crate) permissions: Permissions,
    /// `None`: the same everywhere.
    pub(crate) rules: Option<Arc<Rules>>,
    pub(crate) home: VirtualPath,
    /// This user's data connections have to be encrypted.
    pub(crate) encrypted_data: bool,
}

/// The state of the session.
enum Phase {
    /// The next command.
    Ready,
    /// The end of the handshake, and until then nothing.
    Securing,
    /// An answer.
    Asking(Question),
    /// The end of a transfer.
    Transferring(Success),
    /// The end of a listing that is itself the reply: no other may come into it.
    Reporting,
    /// The end of the delay after a wrong password.
    Penalty,
    /// Nothing: the connection is being closed.
    Closed,
}

/// An open question.
struct Question {
    then: Then,
    /// The table's `busy` rows pass meanwhile.
    long: bool,
    /// `then` gets failures too; otherwise a failure becomes a reply by itself.
    hears_failure: bool,
}

impl std::fmt::Debug for Phase {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Ready => "Ready",
            Self::Securing => "Securing",
            Self::Asking(_) => "Asking",
            Self::Transferring(_) => "Transferring",
            Self::Reporting => "Reporting",
            Self::Penalty => "Penalty",
            Self::Closed => "Closed",
        })
    }
}

impl Session {
    /// A session of a client at `peer` that connected to `local`.
    pub fn new(settings: Arc<Settings>, peer: SocketAddr, local: SocketAddr, now: Now) -> Self {
        let deadline = Some(now.instant + settings.login_timeout);
        let canonical = |address: SocketAddr| SocketAddr::new(address.ip().to_canonical(), address.port());
        Self {
            settings,
            peer: canonical(peer),
            local: canonical(local),
            phase: Phase::Ready,
            aborting: false,
            closing: None,
            access: Access::Stranger,
            security: Security::default(),
            failed_logins: 0,
            failed_elsewhere: 0,
            nonsense: 0,
            directory: VirtualPath::root(),
            coding: Coding::default(),
            data: DataPlan::None,
            extended_only: false,
            restart: ByteRange::default(),
            range: ByteRange::default(),
            source: None,
            subject: None,
            verb: "",
            facts: Facts::default(),
            extras: None,
            deadline,
            now,
        }
    }

    /// Takes what happened and says what to do about it.
    pub fn handle(&mut self, now: Now, input: Input<'_>) -> Step {
        self.now = now;
        let step = match input {
            Input::Connected => notes::greet(self),
            Input::Secured => self.secured(),
            Input::Line(line) => self.line(line),
            Input::LineTooLong => {
                self.nonsense(Reply::new(code::UNKNOWN_COMMAND, "The command line is too long."))
            }
            Input::LineTorn => self.nonsense(Reply::new(
                code::BAD_ARGUMENT,
                "Telnet options in the line have no end; a byte 255 of a name is sent twice.",
            )),
            Input::Answer(answer) => self.answered(answer),
            Input::TransferEnded(outcome) => self.transfer_ended(outcome),
            Input::Deadline => self.expired(),
            Input::Shutdown => self.shut_down(),
            Input::Regranted(grant) => regrant(self, grant),
            Input::Expelled => self.expel(Closing::Expelled),
            Input::Kicked => self.expel(Closing::Kicked),
            Input::Refused(line, reply) => self.refused(line, reply),
            Input::Dismissed(reply) => self.close(reply),
        };
        self.rearm(now.instant);
        match self.language() {
            None => step,
            Some(language) => Step { replies: step.replies.map(|reply| language.translate(reply)), ..step },
        }
    }

    /// When [`Input::Deadline`] is due; `None` while a transfer keeps the time.
    pub fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// Returns true if a command line may be given to the session now.
    ///
    /// Between commands every line may be given. During a transfer or a long request only commands marked `busy` in the
    /// table, during a short request `ABOR` and `QUIT`; the others wait in the driver's buffer, and so does a line that
    /// was too long (ask with the empty line).
    pub fn takes(&self, line: &[u8]) -> bool {
        match &self.phase {
            Phase::Ready => true,
            Phase::Transferring(_) | Phase::Asking(Question { long: true, .. }) => {
                // Behind ABOR or QUIT nothing passes: its own reply comes first.
                !self.aborting && self.closing != Some(Closing::Quit) && gate::is_busy_command(line)
            }
            // A command with a reply of its own would overtake the open one; but a disk may be stuck, and then the
            // client must be able to abort.
            Phase::Reporting | Phase::Asking(_) => {
                !self.aborting && self.closing != Some(Closing::Quit) && gate::is_silent_busy_command(line)
            }
            Phase::Securing | Phase::Penalty | Phase::Closed => false,
        }
    }

    /// Returns true if a transfer or a question is under way.
    pub fn is_busy(&self) -> bool {
        matches!(self.phase, Phase::Transferring(_) | Phase::Reporting | Phase::Asking(_))
    }

    /// Returns true if the connection is to be closed.
    pub fn is_closed(&self) -> bool {
        matches!(self.phase, Phase::Closed)
    }

    /// The verb of the last command that was run, of a subcommand of `SITE` its own; empty before the first.
    pub fn verb(&self) -> &'static str {
        self.verb
    }

    /// When it was last given something.
    pub fn last_input(&self) -> Instant {
        self.now.instant
    }

    /// The client's address.
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// The address that the client connected to.
    pub fn local(&self) -> SocketAddr {
        self.local
    }

    /// The name of the logged-in user.
    pub fn user(&self) -> Option<&[u8]> {
        match &self.access {
            Access::User(login) => Some(&login.name),
            _ => None,
        }
    }

    /// The mail address that an anonymous user gave.
    pub fn guest(&self) -> Option<&[u8]> {
        self.extras.as_ref().and_then(|extras| extras.guest.as_deref())
    }

    /// The client's name from `CLNT` or `CSID`.
    pub fn client(&self) -> Option<&[u8]> {
        self.extras.as_ref().and_then(|extras| extras.client.as_deref())
    }

    /// The name that a login is being tried with.
    pub fn claimed_user(&self) -> Option<&[u8]> {
        match &self.access {
            Access::Named(name) => Some(name),
            _ => None,
        }
    }

    /// The working directory.
    pub fn directory(&self) -> &VirtualPath {
        &self.directory
    }

    /// Asks a question, and says what goes on with the answer. An [`Answer::Failed`] becomes the reply of
    /// [`Session::refusal`] without troubling `then`.
    pub(crate) fn ask(
        &mut self,
        request: Request,
        then: impl FnOnce(&mut Self, Answer) -> Step + Send + 'static,
    ) -> Step {
        question(self, request, Box::new(then), false)
    }

    /// As [`Session::ask`], about a path that replies will name.
    pub(crate) fn ask_about(
        &mut self,
        path: VirtualPath,
        request: impl FnOnce(VirtualPath) -> Request,
        then: impl FnOnce(&mut Self, Answer) -> Step + Send + 'static,
    ) -> Step {
        self.subject = Some(path.clone());
        self.ask(request(path), then)
    }

    /// As [`Session::ask_about`], about what a client's argument names, if it names anything.
    pub(crate) fn ask_at(
        &mut self,
        argument: &[u8],
        request: impl FnOnce(VirtualPath) -> Request,
        then: impl FnOnce(&mut Self, Answer) -> Step + Send + 'static,
    ) -> Step {
        match self.path(argument) {
            Ok(path) => self.ask_about(path, request, then),
            Err(reply) => reply.into(),
        }
    }

    /// As [`Session::ask`], where a failure is an answer like any other.
    pub(crate) fn ask_whether(
        &mut self,
        request: Request,
        then: impl FnOnce(&mut Self, Answer) -> Step + Send + 'static,
    ) -> Step {
        question(self, request, Box::new(then), true)
    }

    /// Begins a transfer over the agreed data connection, behind the reply that announces it.
    pub(crate) fn transfer(
        &mut self,
        announcement: Reply,
        transfer: Transfer,
        success: impl FnOnce(&mut Self) -> Step + Send + 'static,
    ) -> Step {
        let Some(via) = self.data.via() else { return data::NO_PLAN.into() };
        let protection = self.protection();
        self.phase = Phase::Transferring(Box::new(success));
        self.data = DataPlan::None;
        let transfer = Transfer { via, protection, ..transfer };
        Step::from(announcement).then(Act::Transfer(Box::new(transfer)))
    }

    /// Begins a transfer onto the control connection, which writes its own first and last line.
    pub(crate) fn report(&mut self, transfer: Transfer) -> Step {
        self.phase = Phase::Reporting;
        Step::act(Act::Transfer(Box::new(transfer)))
    }

    /// Ends the session behind a last reply.
    pub(crate) fn close(&mut self, reply: Reply) -> Step {
        self.phase = Phase::Closed;
        Step::from(reply).then(Act::Close)
    }

    /// What the user may do anywhere; nothing before the login. The account's storage checks the permissions of each
    /// place, also behind links and patterns.
    pub(crate) fn permissions(&self) -> Permissions {
        match &self.access {
            Access::User(login) => login.permissions,
            _ => Permissions::NONE,
        }
    }

    /// The user's permissions at a path.
    pub(crate) fn permissions_at(&self, path: &VirtualPath) -> Permissions {
        match &self.access {
            Access::User(login) => login.rules.as_ref().map_or(login.permissions, |rules| rules.at(path)),
            _ => Permissions::NONE,
        }
    }

    /// The language of replies, where it is not English.
    pub(crate) fn language(&self) -> Option<Language> {
        self.extras.as_ref().and_then(|extras| extras.language)
    }

    /// The user is gone: the next one has the whole login timeout.
    pub(crate) fn log_out(&mut self) {
        self.access = Access::Stranger;
        self.directory = VirtualPath::root();
        self.restart = ByteRange::default();
        self.source = None;
        self.deadline = None;
        if let Some(extras) = &mut self.extras {
            (extras.umask, extras.idle, extras.announced, extras.guest) = (None, None, None, None);
            extras.class = None;
        }
    }

    /// The rarely-set things, made when first needed.
    pub(crate) fn extras_mut(&mut self) -> &mut Extras {
        self.extras.get_or_insert_default()
    }

    /// The honest reply to a failed file operation, naming the path that it was about.
    pub(crate) fn refusal(&mut self, error: &FileError) -> Reply {
        let subject = self.subject.take();
        let about = subject.as_ref().map_or(&b""[..], VirtualPath::as_bytes);
        failure::file_failure(Part::Own(about), error)
    }

    /// A client's argument as a path, or the reply if it is invalid. Names are taken as listings and replies write
    /// them, with `\012` for a line feed, which no command line could hold otherwise.
    pub(crate) fn path(&self, argument: &[u8]) -> Result<VirtualPath, Reply> {
        self.directory.resolve(&escape::unescaped(argument)).map_err(|error| match error {
            PathError::Nul => Reply::new(code::BAD_ARGUMENT, "Not a usable path: it contains a NUL byte."),
            PathError::NameTooLong => {
                Reply::new(code::BAD_NAME, "Not a usable path: a name in it is longer than 255 bytes.")
            }
            PathError::TooLong => {
                Reply::new(code::BAD_NAME, "Not a usable path: it is longer than 4095 bytes.")
            }
        })
    }

    fn answered(&mut self, answer: Answer) -> Step {
        if let Answer::Progress(progress) = answer {
            return gate::progress_report(&progress);
        }
        if let Answer::Waiting(verb, elapsed) = answer {
            return gate::waiting_report(&verb, elapsed);
        }
        let question = match std::mem::replace(&mut self.phase, Phase::Ready) {
            Phase::Asking(question) => question,
            other => {
                self.phase = other;
                return Step::NOTHING;
            }
        };
        let answer = match answer {
            Answer::FailedAt(path, error) => {
                self.subject = Some(path);
                Answer::Failed(error)
            }
            answer => answer,
        };
        let step = match answer {
            // The answer would begin a transfer, but the client has aborted it.
            Answer::Readable(_) | Answer::Writable(_) | Answer::Unique(..) | Answer::Listing(_)
                if self.aborting =>
            {
                self.refusal(&FileError::Cancelled).into()
            }
            Answer::Failed(error) if !question.hears_failure => self.refusal(&error).into(),
            answer => (question.then)(self, answer),
        };
        if self.is_busy() { step } else { self.finish(step) }
    }

    fn transfer_ended(&mut self, outcome: Outcome) -> Step {
        let success = match std::mem::replace(&mut self.phase, Phase::Ready) {
            Phase::Transferring(success) => success,
            Phase::Reporting => Box::new(|_: &mut Self| Step::NOTHING),
            other => {
                self.phase = other;
                return Step::NOTHING;
            }
        };
        let step = match outcome.result {
            Ok(()) => match outcome.unread {
                None => success(self),
                Some(unread) => failure::not_all_read(&unread).into(),
            },
            Err(error) => failure::transfer_failure(error).into(),
        };
        if self.is_busy() { step } else { self.finish(step) }
    }
}

fn question(session: &mut Session, request: Request, then: Then, hears_failure: bool) -> Step {
    session.phase = Phase::Asking(Question { then, long: request.is_long(), hears_failure });
    Step::act(Act::Ask(request))
}

/// A path as it appears in replies: in quotes, quotes within it doubled.
pub(crate) fn quoted(path: &VirtualPath) -> Vec<u8> {
    let mut text = Vec::with_capacity(path.as_bytes().len() + 2);
    escape::quote_path(path.as_bytes(), &mut text);
    text
}

/// The account was changed: what it allows counts from the next command on.
fn regrant(session: &mut Session, grant: Grant) -> Step {
    session.note_class(grant.class);
    if let Access::User(login) = &mut session.access {
        (login.permissions, login.rules, login.home) = (grant.permissions, grant.rules, grant.home);
    }
    Step::NOTHING
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of the 1 KiB that an idle connection may cost in all; the rest are the driver's and the allocator's.
    #[test]
    fn an_idle_session_is_small() {
        assert!(size_of::<Session>() <= 400, "{}", size_of::<Session>());
    }

    #[test]
    fn a_question_without_captures_allocates_nothing() {
        fn then(_: &mut Session, _: Answer) -> Step {
            Step::NOTHING
        }
        // A box around a zero-sized value is no allocation.
        assert_eq!(size_of_val(&then), 0);
    }
}
