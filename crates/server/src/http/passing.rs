//! Requests that others answer: applications by FastCGI, and other servers by HTTP (`side/forward.rs`).
//!
//! Both are asked by a [`Conversation`], which is driven as a program is (`running.rs`): the body goes there and the answer
//! to the client as either takes it, a client that goes ends it, and silence has an end.

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use millrace_ftp::session::Permission;
use millrace_http::cgi::{self, Environment};
use millrace_http::target::Target;
use millrace_http::{Framing, Head, Refusal, Status, fastcgi};
use millrace_vfs::{FileError, ReadHandle, Storage, VirtualPath, Wait};

use super::answerer::Answerer;
use super::connection::{Asked, Work};
use super::conversation::{self, Conversation};
use super::exchange::Exchange;
use super::find::Found;
use super::program;
use super::programs::{Lane, Line, Slot};
use super::running::Time;
use super::side::forward;
use super::who::Who;
use super::writing::Refused;
use crate::config::{Pass, Upstream};
use crate::http::answer::Answers;
use crate::http::hooking::Notices;
use crate::limits::Direction;
use crate::slab::Key;
use crate::state::Server;

/// How long an idle connection is kept, and how many by a worker.
const KEPT: Duration = Duration::from_secs(20);
const MOST_KEPT: usize = 8;

/// How long connecting may take.
const CONNECT: Duration = Duration::from_secs(10);

/// What a worker has of a pass.
#[derive(Debug)]
pub(crate) struct Passing {
    lane: Lane,
    /// Idle connections, and since when.
    kept: Vec<(Instant, OwnedFd)>,
}

impl Passing {
    /// For so many workers.
    pub(super) fn new(pass: &Pass, workers: usize) -> Self {
        Self { lane: Lane::new(pass.most.div_ceil(workers.max(1)).max(1)), kept: Vec::new() }
    }

    /// Admits waiting requests as far as there is room; connections that have waited for too long are closed.
    pub(crate) fn look(&mut self, now: Instant, admitted: &mut VecDeque<Key>) {
        self.lane.admit(admitted);
        self.kept.retain(|(since, _)| now.saturating_duration_since(*since) < KEPT);
    }

    /// When [`Passing::look`] has something to do.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.kept.first().map(|(since, _)| *since + KEPT)
    }

    /// The running and waiting requests.
    pub(super) fn lane(&mut self) -> &mut Lane {
        &mut self.lane
    }

    fn take(&mut self) -> Option<OwnedFd> {
        std::iter::from_fn(|| self.kept.pop()).map(|(_, socket)| socket).find(conversation::is_quiet)
    }

    /// A connection whose request is done.
    pub(super) fn keep(&mut self, socket: OwnedFd, now: Instant) {
        if self.kept.len() < MOST_KEPT {
            self.kept.push((now, socket));
        }
    }
}

/// What came of asking an application.
#[derive(Debug)]
pub(crate) enum Asking {
    To(Box<Conversation>),
    /// There is no such script.
    Nowhere,
    /// Why it cannot be asked.
    Failed(String),
}

/// Which of the passes a path is for.
pub(super) fn pass_of(passes: &[Pass], path: &VirtualPath) -> Option<usize> {
    passes.iter().position(|pass| pass.takes(path))
}

impl Pass {
    /// Returns whether it is for a path.
    pub fn takes(&self, path: &VirtualPath) -> bool {
        let ends = |suffix: &String| path.components().any(|name| name.ends_with(suffix.as_bytes()));
        path.starts_with(&self.path) && self.suffix.as_ref().is_none_or(ends)
    }

    /// Returns whether a path whose names may have slashes in them is for it whatever they are, and that no file is
    /// looked for: all of them are in this folder.
    pub(super) fn takes_as_sent(&self, outer: &VirtualPath) -> bool {
        self.suffix.is_none() && outer.starts_with(&self.path)
    }

    /// The script that a path names, and what stands behind it.
    fn split<'a>(&self, path: &'a VirtualPath) -> (&'a [u8], &'a [u8]) {
        let bytes = path.as_bytes();
        let mut end = if self.path.is_root() { 0 } else { self.path.as_bytes().len() };
        if let Some(suffix) = &self.suffix {
            end = 0;
            for name in path.components() {
                end += 1 + name.len();
                if name.ends_with(suffix.as_bytes()) {
                    break;
                }
            }
        }
        bytes.split_at(end.min(bytes.len()))
    }
}

/// Returns whether an account may read at a path, whatever is there; answers the request where it may not.
fn may_pass(exchange: &mut Exchange<'_>, who: &Who, target: &Target<'_>) -> bool {
    if !exchange.permits(who, Permission::Read) {
        return false;
    }
    let Some(rules) = &who.account.rules else { return true };
    if rules.denies_name(&target.path) {
        exchange.fail_with(&FileError::NotFound);
        return false;
    }
    // Where one name may be several, both of what that may be has to be allowed.
    let inner = rules.at(&target.path);
    let both = target.outer.as_ref().map_or(inner, |outer| inner.intersection(rules.at(outer)));
    exchange.permits_within(who, both, Permission::Read)
}

/// Has a request answered by others.
pub(super) fn pass(exchange: &mut Exchange<'_>, target: &Target<'_>, who: &Who, pass: usize) {
    let head = exchange.head;
    let server = Arc::clone(&exchange.core.server);
    let config = &server.config.passes[pass];
    if !may_pass(exchange, who, target) || !exchange.may_move(Direction::Download) {
        return;
    }
    if head.framing == Framing::Chunked && matches!(config.to, Upstream::FastCgi(_)) {
        let reason = "An application is told the length of what it gets: send a Content-Length.";
        return exchange.fail(Status::LENGTH_REQUIRED, reason);
    }
    let claimed = exchange.connection.slot.take();
    let Some(slot) =
        claimed.or_else(|| exchange.core.http.passing[pass].lane().enter(exchange.connection.key))
    else {
        let asked = Asked::in_line(head, Line::Pass(pass));
        exchange.connection.work = Work::Queued(exchange.core.now.instant + config.silence, Box::new(asked));
        return;
    };
    match config.to {
        Upstream::Http(_) => pass_to_server(exchange, target, who, (pass, slot)),
        Upstream::FastCgi(_) => pass_to_application(exchange, target, who, (pass, slot)),
    }
}

fn pass_to_server(exchange: &mut Exchange<'_>, target: &Target<'_>, who: &Who, (pass, slot): (usize, Slot)) {
    match forward(exchange, target, who, pass) {
        Ok(conversation) => {
            exchange.connection.slot = Some(slot);
            begin_conversation(exchange, conversation);
        }
        Err(Refused { refusal, reached }) => {
            Answers::new(exchange.connection, exchange.core).tell_limit(reached.as_deref());
            exchange.fail(refusal.status, refusal.reason);
        }
    }
}

fn pass_to_application(
    exchange: &mut Exchange<'_>,
    target: &Target<'_>,
    who: &Who,
    (pass, slot): (usize, Slot),
) {
    let head = exchange.head;
    let Ok(local) = exchange.connection.local() else {
        return exchange.fail_with(&FileError::Exhausted);
    };
    let passed = Passed {
        server: Arc::clone(&exchange.core.server),
        pass,
        kept: exchange.core.http.passing[pass].take(),
        storage: Arc::clone(&who.account.storage),
        user: who.user.clone(),
        path: target.path.clone(),
        is_directory: target.is_directory,
        query: target.query.unwrap_or_default().to_vec(),
        uri: uri(exchange, target),
        head: Arc::clone(head),
        peer: exchange.connection.peer.ip(),
        local,
        encrypted: exchange.connection.is_encrypted(),
        protocol: head.version.name(),
    };
    exchange.ask_pool(move || passed.ask().map(Found::Asking));
    if let Work::Asked(asked) = &mut exchange.connection.work {
        asked.slot = Some(slot);
    }
}

/// The path and the query as the client asked for them.
fn uri(exchange: &Exchange<'_>, target: &Target<'_>) -> Vec<u8> {
    let head = exchange.head;
    let asked_for = exchange.connection.redirected.as_ref().and_then(|redirected| redirected.uri.clone());
    asked_for.unwrap_or_else(|| forward::path_and_query(head, target))
}

/// What the pool says of an application.
pub(super) fn passed(exchange: &mut Exchange<'_>, asking: Asking) {
    match asking {
        Asking::To(conversation) => begin_conversation(exchange, *conversation),
        Asking::Nowhere => exchange.fail(Status::NOT_FOUND, "There is no such file."),
        Asking::Failed(why) => {
            Notices::of(exchange.connection).warn(exchange.core, &why);
            exchange.fail(Status::BAD_GATEWAY, "What is to answer this cannot be asked.");
        }
    }
}

fn begin_conversation(exchange: &mut Exchange<'_>, conversation: Conversation) {
    let silence = exchange.core.server.config.passes[conversation.pass].silence;
    let answerer = Answerer::Conversation(Box::new(conversation));
    exchange.begin_answer(answerer, false, Time::OfSilence(silence));
}

/// Has the side runtime ask another server.
fn forward(
    exchange: &mut Exchange<'_>,
    target: &Target<'_>,
    who: &Who,
    pass: usize,
) -> Result<Conversation, Refused> {
    let head = exchange.head;
    const STRANGE: Refusal =
        Refusal { status: Status::BAD_REQUEST, reason: "This cannot be passed on as it is written." };
    let config = &exchange.core.server.config.passes[pass];
    let client = forward::Client {
        peer: exchange.connection.peer.ip(),
        encrypted: exchange.connection.is_encrypted(),
        user: who.user.as_deref(),
    };
    let request = forward::request(head, target, config, &client).ok_or(STRANGE)?;
    let exhausted = |_| FileError::Exhausted;
    let (ours, theirs) = UnixStream::pair().map_err(exhausted)?;
    ours.set_nonblocking(true).and_then(|()| theirs.set_nonblocking(true)).map_err(exhausted)?;
    let length = match head.framing {
        Framing::None => Some(0),
        Framing::Length(length) => Some(length),
        Framing::Chunked => None,
    };
    let forward =
        forward::Forward { link: theirs, request, length, server: Arc::clone(&exchange.core.server), pass };
    exchange.core.server.side.spawn(|_| forward.run());
    Ok(Conversation::new(ours.into(), pass, Vec::new(), head.framing != Framing::None, false))
}

/// A request that goes to an application.
struct Passed {
    server: Arc<Server>,
    pass: usize,
    /// A connection that is open.
    kept: Option<OwnedFd>,
    storage: Arc<dyn Storage>,
    user: Option<Vec<u8>>,
    path: VirtualPath,
    /// It was written with a slash at its end.
    is_directory: bool,
    query: Vec<u8>,
    /// The path and the query, as applications that look for themselves take them apart.
    uri: Vec<u8>,
    head: Arc<Head>,
    peer: IpAddr,
    local: SocketAddr,
    encrypted: bool,
    protocol: &'static str,
}

impl Passed {
    /// Connects to the application, and begins with the request. May wait.
    fn ask(mut self) -> Result<Asking, FileError> {
        let kept = self.kept.take();
        let head = &*self.head;
        let config = &self.server.config.passes[self.pass];
        let Upstream::FastCgi(to) = &config.to else { return Err(FileError::Unsupported) };
        let Some(variables) = self.variables(head, config)? else { return Ok(Asking::Nowhere) };
        let mut records = Vec::new();
        fastcgi::begin(&variables, config.keep, &mut records);
        let was_used = kept.is_some();
        let connected = kept.map_or_else(|| conversation::connect(to, config.silence.min(CONNECT)), Ok);
        Ok(match connected {
            Ok(socket) => {
                let has_body = head.framing != Framing::None;
                let mut conversation = Conversation::new(socket, self.pass, records, has_body, config.keep);
                conversation.was_used = was_used;
                Asking::To(Box::new(conversation))
            }
            Err(error) => Asking::Failed(format!("{config} failed: it cannot be connected to: {error}")),
        })
    }

    /// What the application is told; `None` where the script that it is to run is none.
    fn variables(&self, head: &Head, config: &Pass) -> Result<Option<Environment>, FileError> {
        let (script, path_info) = config.split(&self.path);
        let file = match (&config.root, &config.suffix) {
            // Applications that look for a script nearby would run what was uploaded as a picture.
            (Some(root), Some(_)) => match script_file(&*self.storage, script, root)? {
                Some(file) => Some(file),
                None => return Ok(None),
            },
            (None, Some(_)) => return Ok(None),
            (Some(root), None) => Some(root.join(relative(script))),
            (None, None) => None,
        };
        let path_info = program::path_info(path_info, self.is_directory);
        let request = cgi::Request {
            script,
            path_info: &path_info,
            path_translated: None,
            query: &self.query,
            user: self.user.as_deref(),
            peer: self.peer,
            local: self.local,
            encrypted: self.encrypted,
            protocol: self.protocol,
        };
        let mut variables = cgi::environment(head, &request);
        if let (Some(root), Some(file)) = (&config.root, &file) {
            variables.set("DOCUMENT_ROOT", root.as_os_str().as_bytes());
            variables.set("SCRIPT_FILENAME", file.as_os_str().as_bytes());
        }
        variables.set("REQUEST_URI", &self.uri);
        Ok(Some(variables))
    }
}

fn relative(script: &[u8]) -> &OsStr {
    OsStr::from_bytes(script.strip_prefix(b"/").unwrap_or(script))
}

/// The file of a script in the user's tree, if it is readable there: the opened one, after all roots and links. `None`
/// if it lies outside `root`. May block.
fn script_file(storage: &dyn Storage, script: &[u8], root: &Path) -> Result<Option<PathBuf>, FileError> {
    let path = VirtualPath::parse(script).map_err(|_| FileError::NameTooLong)?;
    let range = match storage.open_read(&path, Wait::Allowed) {
        Ok(ReadHandle::File(range)) => range,
        Ok(ReadHandle::Stream(_)) | Err(FileError::IsDirectory) => return Ok(None),
        Err(error) => return Err(error),
    };
    let file = std::fs::read_link(format!("/proc/self/fd/{}", range.file.as_raw_fd()))?;
    let root = root.canonicalize()?;
    Ok(file.starts_with(root).then_some(file))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Peer;

    fn pass(path: &str, suffix: Option<&str>) -> Pass {
        Pass {
            path: VirtualPath::parse(path.as_bytes()).unwrap(),
            suffix: suffix.map(str::to_owned),
            ..Pass::new(Upstream::FastCgi(Peer::Unix("/run/x".into())))
        }
    }

    #[test]
    fn a_pass_takes_what_lies_beneath_its_path_or_has_its_suffix() {
        let passes = [pass("/app", None), pass("/", Some(".php")), pass("/all", None)];
        for (path, expected) in [
            ("/app", Some((0, "/app", ""))),
            ("/app/x/y", Some((0, "/app", "/x/y"))),
            ("/apple", None),
            ("/a/b.php", Some((1, "/a/b.php", ""))),
            ("/a/b.php/c.php/d", Some((1, "/a/b.php", "/c.php/d"))),
            ("/a/b.php5", None),
            ("/all", Some((2, "/all", ""))),
            ("/", None),
        ] {
            let path = VirtualPath::parse(path.as_bytes()).unwrap();
            let found = pass_of(&passes, &path).map(|index| {
                let (script, rest) = passes[index].split(&path);
                (index, std::str::from_utf8(script).unwrap(), std::str::from_utf8(rest).unwrap())
            });
            assert_eq!(found, expected, "{path:?}");
        }
        let root = pass("/", None);
        assert_eq!(root.split(&VirtualPath::parse(b"/a/b").unwrap()), (&b""[..], &b"/a/b"[..]));
    }
}
