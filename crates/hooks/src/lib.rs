//! Hooks: external decisions about what sessions do, before and after it.
//!
//! ```text
//! connect > command (each line) > login > command ... > upload > reply > ... > logout > disconnect
//! ```
//!
//! [`EVENTS`] has them all. For some events the session waits for a verdict, which may refuse or rewrite. For the
//! others it holds back its replies until the hook has been called, so that no client sees an effect that a hook has
//! not heard of. Hooks run on their own threads: sessions without hooks are not delayed, and cost one pointer check.
//!
//! [`Hooks`] is the door. Behind it, from the configuration file, stand [`Rules`]: programs, webhooks, and
//! what the server does by itself.

mod backlog;
mod delivery;
mod delivery_state;
mod delivery_workers;
mod facts;
mod patterns;
mod pending;
mod pools;
mod posting;
mod queue;
mod queue_error;
mod rules;
mod setting_error;
mod shared_queue;
mod verify;
mod webhook;

use std::fmt::{self, Debug};
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use millrace_ftp::listing::search::Searched;
use millrace_ftp::reply::{Reply, code};
use millrace_vfs::{ReadHandle, Storage, VirtualPath};

pub use backlog::{Backlog, Meant, Undeliverables, Undelivered};
pub use facts::{NAMES, Template, TemplateError};
pub use millrace_ftp::digest::Algorithm;
pub use patterns::PathPattern;
pub use pending::{CommitError, Pending};
pub use pools::Pools;
pub use queue_error::QueueError;
pub use rules::{Action, Rule, Rules};
pub use setting_error::SettingError;
pub use webhook::{Credentials, DeliveryError, Webhook};

use millrace_cluster::Cluster;
use millrace_log::{Subject, Undecided};
use millrace_metrics::Waited;
use millrace_process::Recall;

/// Bytes of a program's output that are kept, and looked at.
const HEARD: usize = 4096;

/// Receives events, and may refuse or change some of them. One value serves all sessions.
pub trait Hooks: Send + Sync + Debug {
    /// Returns true if sessions must call [`Hooks::call`] for this event; other events cost nothing more. The verb is
    /// empty where the event has none. Reactors call this often.
    fn concerns(&self, event: Event, verb: &str) -> bool;

    /// Whether a call about this may take long, as where it waits for a program. Then it waits for a thread together
    /// with others that may, and what cannot take long does not wait for them. Asked by reactors.
    fn may_take_long(&self, context: &EventContext) -> bool {
        let _ = context;
        true
    }

    /// Whether [`Event::Upload`] is asked about before a staged upload takes its name, so that what has the name outlives
    /// a refusal. The file is not at its path then: [`EventContext::preview`] reads it, and [`EventContext::commit`] has it take its
    /// name, which is done at the latest when the call has passed. Asked by reactors.
    fn asks_beforehand(&self) -> bool {
        false
    }

    /// Handles an event, before or after it happens. Called on a thread that may block; the session waits, and its
    /// events keep their order. The verdict counts where the event [may be refused](Event::asks).
    fn call(&self, context: &EventContext) -> HookVerdict;

    /// The server is a node of this cluster, which holds until the server ends. Called before [`Hooks::begin`].
    fn join(&self, cluster: &Arc<Cluster>) {
        let _ = cluster;
    }

    /// The server begins; what goes wrong later may be said with `warn`, which logs it. An error keeps the server
    /// from starting.
    fn begin(&self, warn: Arc<dyn Fn(&str) + Send + Sync>) -> Result<(), HookError> {
        let _ = warn;
        Ok(())
    }

    /// Undelivered events, where they are stored for an administrator. Of a cluster whose nodes share them, those of all.
    fn backlog(&self) -> Option<Backlog> {
        None
    }

    /// Another process takes over the stored events; new ones of this process are stored for that one.
    fn give_way(&self) {}

    /// It does not after all.
    fn take_back(&self) -> Result<(), HookError> {
        Ok(())
    }

    /// The server has ended: nothing more will come.
    fn close(&self) {}
}

/// Why hooks do not begin; hooks of an embedding program have errors of their own.
pub type HookError = Box<dyn std::error::Error + Send + Sync>;

/// Calls hooks for a session. A call that panics refuses the event, and so does one whose session no longer waits.
pub fn call(hooks: &dyn Hooks, context: &EventContext) -> HookVerdict {
    let is_given_up = context.is_given_up();
    let verdict = match is_given_up {
        true => HookVerdict::Refuse(Refusal::of_giving_up()),
        false => catch_unwind(AssertUnwindSafe(|| hooks.call(context)))
            .unwrap_or_else(|_| HookVerdict::Refuse(Refusal::for_now("451 Internal error: a hook failed."))),
    };
    let aborted = (is_given_up && context.event == Event::Upload).then(|| "aborted".to_owned());
    if let Some(why) = conclude(context, &verdict).or(aborted)
        && hooks.concerns(Event::UploadFailed, "")
    {
        let (event, reason) = (Event::UploadFailed, Some(why));
        let failed = EventContext { event, reason, pending: None, undecided: None, ..context.clone() };
        let _ = catch_unwind(AssertUnwindSafe(|| hooks.call(&failed)));
    }
    verdict
}

/// Like [`call`], where a reload may have removed the hooks: the event is then allowed.
pub fn call_if_any(hooks: Option<&dyn Hooks>, context: &EventContext) -> HookVerdict {
    match hooks {
        Some(hooks) => call(hooks, context),
        None => {
            conclude(context, &HookVerdict::Pass);
            HookVerdict::Pass
        }
    }
}

/// Applies and logs the verdict about an upload that has no name yet; returns an error if it could not take its name.
pub fn conclude(context: &EventContext, verdict: &HookVerdict) -> Option<String> {
    if let Some(pending) = &context.pending {
        match verdict {
            HookVerdict::Refuse(_) => drop(pending.give_up()),
            HookVerdict::Pass | HookVerdict::Rewrite(_) => drop(pending.commit()),
        }
    }
    let failure =
        context.pending.as_ref().and_then(|pending| pending.failure()).map(|error| error.to_string());
    if let (Some(undecided), Some(path)) = (&context.undecided, &context.path) {
        let why = why_not(context, verdict, failure.as_deref());
        let subject = Subject { session: context.session, peer: context.peer, user: context.user.as_deref() };
        let (bytes, elapsed) = (context.bytes.unwrap_or(0), context.elapsed.unwrap_or_default());
        undecided.write(&subject, path, bytes, elapsed, context.hash.as_deref(), why.as_deref());
    }
    failure
}

/// Why an upload that has come does not stay, if it does not.
fn why_not(context: &EventContext, verdict: &HookVerdict, failure: Option<&str>) -> Option<String> {
    let has_vanished = context.pending.as_ref().is_some_and(|pending| pending.has_vanished());
    match (failure, verdict) {
        (Some(failure), _) => Some(failure.to_owned()),
        (None, HookVerdict::Refuse(refusal)) if *refusal != Refusal::of_giving_up() => {
            Some(format!("refused: {}", refusal.text()))
        }
        (None, HookVerdict::Refuse(_)) => Some("aborted".to_owned()),
        (None, HookVerdict::Pass | HookVerdict::Rewrite(_)) => has_vanished.then(|| "aborted".to_owned()),
    }
}

/// The events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)] // The table below is the documentation.
pub enum Event {
    Connect,
    Login,
    Command,
    Upload,
    UploadFailed,
    Download,
    DownloadFailed,
    Delete,
    Rename,
    Copy,
    MakeFile,
    MakeDirectory,
    RemoveDirectory,
    Quota,
    Ban,
    Reply,
    Logout,
    Disconnect,
    Interrupted,
}

/// Every event: its name, whether it is asked about or told, and when that is.
pub const EVENTS: &[(Event, &str, Way, &str)] = &[
    (Event::Connect, "connect", Way::Asked, "a client has connected; before the greeting"),
    (Event::Command, "command", Way::Asked, "a command is about to be run; it has passed all other checks"),
    (Event::Login, "login", Way::Asked, "the password is right; before the client knows"),
    (Event::Upload, "upload", Way::Asked, "an uploaded file is there, whole; before the client knows"),
    (Event::UploadFailed, "upload-failed", Way::Told, "an upload did not end well"),
    (Event::Download, "download", Way::Told, "a file was sent, all of what was asked for"),
    (Event::DownloadFailed, "download-failed", Way::Told, "a download did not end well"),
    (Event::Delete, "delete", Way::Told, "a file was removed"),
    (Event::Rename, "rename", Way::Told, "a file or directory was renamed"),
    (Event::Copy, "copy", Way::Told, "a file was copied here, or by HTTP a directory with what is in it"),
    (
        Event::MakeFile,
        "make-file",
        Way::Told,
        "an empty file was made, for a LOCK of a name that nothing had",
    ),
    (Event::MakeDirectory, "make-directory", Way::Told, "a directory was made"),
    (
        Event::RemoveDirectory,
        "remove-directory",
        Way::Told,
        "a directory was removed, alone or with all in it",
    ),
    (Event::Quota, "quota", Way::Told, "something was refused or cut because a quota is used up"),
    (Event::Ban, "ban", Way::Told, "failed logins have banned a user at an address, or the address"),
    (Event::Reply, "reply", Way::Told, "a command was run: its last reply is about to be sent"),
    (Event::Logout, "logout", Way::Told, "a user's session has ended"),
    (Event::Disconnect, "disconnect", Way::Told, "the connection has ended"),
    (
        Event::Interrupted,
        "interrupted",
        Way::Told,
        "a killed server was about to run a command that changes something; it may or may not have done it",
    ),
];

/// Whether an answer counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// It may be refused.
    Asked,
    /// It has happened.
    Told,
}

impl Event {
    /// Its name.
    pub fn name(self) -> &'static str {
        self.row().1
    }

    /// The event of this name.
    pub fn parse(name: &str) -> Option<Self> {
        EVENTS.iter().find(|row| row.1 == name).map(|row| row.0)
    }

    /// Returns true if it may be refused.
    pub fn asks(self) -> bool {
        self.row().2 == Way::Asked
    }

    fn row(self) -> &'static (Event, &'static str, Way, &'static str) {
        // In the order of the table for all but a few; nineteen comparisons beside a trip to another thread.
        EVENTS.iter().find(|row| row.0 == self).unwrap_or(&EVENTS[0])
    }
}

/// An event, and all that is known of it.
#[derive(Debug, Clone)]
pub struct EventContext {
    /// The event.
    pub event: Event,
    /// When it was.
    pub time: SystemTime,
    /// The session, as the log numbers it.
    pub session: u64,
    /// The client.
    pub peer: SocketAddr,
    /// Where it connected to.
    pub local: SocketAddr,
    /// The user that is logged in; with [`Event::Login`] the one that is about to be, with [`Event::Ban`] the one that
    /// tried.
    pub user: Option<Arc<[u8]>>,
    /// The command in upper case, with the subcommand of `SITE`: `SITE CHMOD`. Empty for other events.
    pub verb: String,
    /// Its argument; never a password.
    pub argument: Vec<u8>,
    /// The file or directory, as clients see it.
    pub path: Option<VirtualPath>,
    /// Whether a request of HTTP names it as a directory: with a slash at its end.
    pub is_directory: bool,
    /// Its new name, where it is renamed.
    pub to: Option<VirtualPath>,
    /// Further paths of a command: the parts of `COMB`, the source of an `RNTO`, the other end of a copy.
    pub also: Vec<VirtualPath>,
    /// The folders that the pattern of a listing leads into.
    pub searched: Option<Searched>,
    /// How many bytes were moved.
    pub bytes: Option<u64>,
    /// For how long.
    pub elapsed: Option<Duration>,
    /// What it has waited for.
    pub waited: Waited,
    /// The hashes of an upload that were computed on its way: `SHA-256:ba78...`.
    pub hash: Option<String>,
    /// The code of the reply.
    pub code: Option<u16>,
    /// Why it failed, or which limit it was.
    pub reason: Option<String>,
    /// The user's files, without the bounds that hold for the user.
    pub storage: Option<Arc<dyn Storage>>,
    /// By which the session says that it waits no longer.
    pub recall: Recall,
    /// An upload that has no name yet.
    pub pending: Option<Arc<Pending>>,
    /// An upload that is not logged yet.
    pub undecided: Option<Box<Undecided>>,
}

impl EventContext {
    /// An event of a session, `wall` after 1970, of which nothing else is known yet.
    pub fn new(event: Event, wall: Duration, session: u64, peer: SocketAddr, local: SocketAddr) -> Self {
        Self {
            event,
            time: SystemTime::UNIX_EPOCH + wall,
            session,
            peer,
            local,
            user: None,
            verb: String::new(),
            argument: Vec::new(),
            path: None,
            is_directory: false,
            to: None,
            also: Vec::new(),
            searched: None,
            bytes: None,
            elapsed: None,
            waited: Waited::default(),
            hash: None,
            code: None,
            reason: None,
            storage: None,
            recall: Recall::default(),
            pending: None,
            undecided: None,
        }
    }

    /// Returns true if the session no longer waits for the verdict: the client has sent `ABOR`, or has gone. The
    /// operation is then not performed, whatever the verdict.
    pub fn is_given_up(&self) -> bool {
        self.event.asks() && self.recall.is_given()
    }

    /// Returns true if it is an upload which has not taken its name yet.
    pub fn is_pending(&self) -> bool {
        self.pending.as_ref().is_some_and(|pending| pending.is_waiting())
    }

    /// Returns true if it is an upload whose file a hook has moved away before it had a name.
    pub fn is_taken(&self) -> bool {
        self.pending.as_ref().is_some_and(|pending| pending.is_taken())
    }

    /// The content of an upload without a name, if it can be opened.
    pub fn preview(&self) -> Option<ReadHandle> {
        self.pending.as_ref()?.preview()
    }

    /// Has an upload take its name, if it has not; answers whether it has. Where it cannot, the client is told.
    pub fn commit(&self) -> bool {
        self.pending.as_ref().is_none_or(|pending| pending.commit())
    }
}

/// The verdict of a hook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HookVerdict {
    /// Go on.
    Pass,
    /// Go on as if this path had been named, where the event is a command whose argument is one path. Of another command
    /// it is refused.
    Rewrite(VirtualPath),
    /// No.
    Refuse(Refusal),
}

/// How a client is told no.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// A code of 400 to 599, where the usual one does not fit.
    code: Option<u16>,
    text: String,
    /// It says nothing of what was asked about: another time it may be good.
    is_passing: bool,
}

/// A refusal's text at most, in bytes.
const LONGEST_TEXT: usize = 400;

impl Refusal {
    /// A refusal with one line of text, which may begin with a code: `552 Too large for this folder.`
    pub fn new(text: &str) -> Self {
        // Clients only get text: a program may print anything.
        let text: String = text.chars().map(|char| if char == '\n' { char } else { plain(char) }).collect();
        let line = text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or("Refused.");
        let (code, text) = match line.split_once(' ') {
            Some((code, rest)) if code.len() == 3 && !rest.trim().is_empty() => {
                let code = code.parse().ok().filter(|code| (400..600).contains(code));
                (code, if code.is_some() { rest.trim() } else { line })
            }
            _ => (None, line),
        };
        let end = text.floor_char_boundary_at(LONGEST_TEXT);
        Self { code, text: text[..end].to_owned(), is_passing: false }
    }

    /// That of what cannot be said now: something of ours does not work.
    pub fn for_now(text: &str) -> Self {
        Self { is_passing: true, ..Self::new(text) }
    }

    /// The text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// As a reply: with the usual code where it has none of its own.
    pub fn reply(&self, usual: u16) -> Reply {
        Reply::owned(self.code.unwrap_or(usual), self.text.as_bytes())
    }

    /// That of a command that was to be about another path, and has not one that can be taken out.
    pub fn of_rewriting() -> Self {
        Self::new("451 This command cannot be put to another path, as a hook wants it.")
    }

    /// That of what a client would not wait for.
    pub fn of_giving_up() -> Self {
        Self::for_now("426 Transfer aborted.")
    }

    /// As the last reply of a session that is not wanted.
    pub fn farewell(&self) -> Reply {
        Reply::owned(code::SERVICE_CLOSING, self.text.as_bytes())
    }
}

fn plain(char: char) -> char {
    if char.is_control() { ' ' } else { char }
}

/// `str::floor_char_boundary`, which the oldest compiler that we promise lacks.
trait FloorCharBoundary {
    fn floor_char_boundary_at(&self, most: usize) -> usize;
}

impl FloorCharBoundary for str {
    fn floor_char_boundary_at(&self, most: usize) -> usize {
        (0..=most.min(self.len())).rev().find(|&at| self.is_char_boundary(at)).unwrap_or(0)
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_one_line_with_a_code_where_it_has_one() {
        for (text, code, rest) in [
            ("552 Too large.\nmore", 552, "Too large."),
            ("\n  a virus \n", 550, "a virus"),
            ("", 550, "Refused."),
            ("226 fine", 550, "226 fine"),
            ("999 what", 550, "999 what"),
            ("550", 550, "550"),
            ("\0\0\x1b", 550, "Refused."),
        ] {
            let reply = Refusal::new(text).reply(550);
            assert_eq!((reply.code(), reply.text()), (code, rest.as_bytes()), "{text:?}");
        }
        let long = "ä".repeat(1000);
        assert!(Refusal::new(&long).text().len() <= LONGEST_TEXT);
    }

    #[test]
    fn every_event_has_a_row() {
        for (event, name, ..) in EVENTS {
            assert_eq!((event.name(), Event::parse(name)), (*name, Some(*event)));
        }
        assert_eq!(Event::parse("nothing"), None);
    }
}
