//! A request that a program answers (CGI/1.1, RFC 3875): how it comes to one, which is started.
//!
//! `running.rs` handles the running program, as any other upstream.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use millrace_ftp::session::Permission;
use millrace_http::cgi;
use millrace_http::target::Target;
use millrace_http::{Framing, Head, Status};
use millrace_vfs::{FileError, Storage, VirtualPath};

use super::answerer::Answerer;
use super::connection::{Asked, Work};
use super::exchange::Exchange;
use super::find::Found;
use super::passing::Asking;
use super::program::{self, NoScript, Program, Script};
use super::programs::Line;
use super::running::Time;
use super::who::Who;
use crate::config::Programs;
use crate::limits::Direction;
use crate::state::Server;
use crate::worker::Core;

/// Has a request answered by a program, where its path is one of a program.
pub(super) fn run(exchange: &mut Exchange<'_>, target: &Target<'_>, who: &Who) {
    let head = exchange.head;
    if !exchange.permits(who, Permission::Read) || !exchange.may_move(Direction::Download) {
        return;
    }
    if head.framing == Framing::Chunked {
        let reason = "A program is told the length of what it gets: send a Content-Length.";
        return exchange.fail(Status::LENGTH_REQUIRED, reason);
    }
    let claimed = exchange.connection.slot.take();
    let Some(slot) = claimed.or_else(|| exchange.core.http.programs.lane().enter(exchange.connection.key))
    else {
        let until = exchange.core.now.instant + exchange.core.server.config.programs.time;
        exchange.connection.work = Work::Queued(until, Box::new(Asked::in_line(head, Line::Programs)));
        return;
    };
    let Core { http, kernel, .. } = &mut *exchange.core;
    let errors = http.programs.errors(|pipe| kernel.watch_errors(pipe));
    let (errors, local) = match (errors, exchange.connection.local()) {
        (Ok(errors), Ok(local)) => (errors, local),
        _ => {
            return exchange.fail_with(&FileError::Exhausted);
        }
    };
    let wanted = Wanted {
        server: Arc::clone(&exchange.core.server),
        storage: Arc::clone(&who.account.storage),
        user: who.user.clone(),
        path: target.path.clone(),
        is_directory: target.is_directory,
        query: target.query.unwrap_or_default().to_vec(),
        head: Arc::clone(head),
        peer: exchange.connection.peer.ip(),
        local,
        encrypted: exchange.connection.is_encrypted(),
        protocol: head.version.name(),
        errors,
    };
    exchange.ask_pool(move || wanted.start());
    if let Work::Asked(asked) = &mut exchange.connection.work {
        asked.slot = Some(slot);
    }
}

/// The program runs: its answer is awaited.
pub(super) fn begin_program(exchange: &mut Exchange<'_>, program: Program, is_non_parsed: bool) {
    let time = exchange.core.server.config.programs.time;
    exchange.begin_answer(Answerer::Program(program), is_non_parsed, Time::InAll(time));
}

/// A program that is to be started for a request.
struct Wanted {
    server: Arc<Server>,
    storage: Arc<dyn Storage>,
    user: Option<Vec<u8>>,
    path: VirtualPath,
    /// It was written with a slash at its end.
    is_directory: bool,
    query: Vec<u8>,
    /// The request.
    head: Arc<Head>,
    peer: IpAddr,
    local: SocketAddr,
    encrypted: bool,
    protocol: &'static str,
    /// Where what it says of errors goes.
    errors: Arc<OwnedFd>,
}

impl Wanted {
    /// Finds it, and starts it. May wait.
    fn start(self) -> Result<Found, FileError> {
        let marked = self.server.config.programs.marked(&self.path);
        let Some((mark, folder)) = marked else { return Err(FileError::NotFound) };
        let script = match program::find(&*self.storage, mark, folder, (&self.path, self.is_directory)) {
            Ok(script) => script,
            Err(NoScript::File(error)) => return Err(error),
            Err(NoScript::NotRunnable) => return Err(FileError::PermissionDenied),
            Err(NoScript::Elsewhere) => return Ok(Found::NoProgram),
        };
        let head = &*self.head;
        let mut variables =
            cgi::environment(head, &self.request(&script, script.path_translated().as_deref()));
        variables.set("PATH", program::PATH);
        let takes_input = head.framing != Framing::None;
        match script.start(&variables, takes_input, self.errors.as_fd()) {
            Ok(program) => Ok(Found::Program(Box::new(program), cgi::is_non_parsed(script.path.name()))),
            Err(error) => match script.fault(&error) {
                Some(why) => Ok(Found::Asking(Asking::Failed(why))),
                None => Err(error.into()),
            },
        }
    }

    /// What it is told.
    fn request<'a>(&'a self, script: &'a Script, path_translated: Option<&'a [u8]>) -> cgi::Request<'a> {
        cgi::Request {
            script: script.path.as_bytes(),
            path_info: &script.path_info,
            path_translated,
            query: &self.query,
            user: self.user.as_deref(),
            peer: self.peer,
            local: self.local,
            encrypted: self.encrypted,
            protocol: self.protocol,
        }
    }
}

impl Programs {
    /// The folder of programs that a path lies in, as clients name it and as the file system does.
    pub(crate) fn marked(&self, path: &VirtualPath) -> Option<(&VirtualPath, &Path)> {
        let mut folders = self.folders.iter();
        folders.find(|(mark, _)| path.starts_with(mark)).map(|(mark, folder)| (mark, folder.as_path()))
    }
}
