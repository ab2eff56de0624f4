//! A request that a program answers (CGI/1.1, RFC 3875): how it comes to one, which is started.
//!
//! What runs then is in `running.rs`, as with whoever else answers.

use std::sync::Arc;

use millrace_ftp::session::Permission;
use millrace_http::cgi;
use millrace_http::target::Target;
use millrace_http::{Framing, Head, Status};
use millrace_vfs::FileError;

use super::answerer::Answerer;
use super::connection::{Asked, Connection, Work};
use super::find::Found;
use super::program::{self, NoScript, Program, Script};
use super::running::Time;
use super::who::Who;
use crate::config::Programs;
use crate::limits::Direction;
use crate::worker::Core;

impl Connection {
    /// Has a request answered by a program, where its path is one of a program.
    pub(super) fn run(
        &mut self,
        core: &mut Core,
        head: &Head<'_, '_>,
        bytes: &[u8],
        target: &Target<'_>,
        who: &Who,
    ) {
        if !self.permits(core, head, who, Permission::Read) || !self.may_move(core, head, Direction::Download)
        {
            return;
        }
        if head.framing == Framing::Chunked {
            let reason = "A program is told the length of what it gets: send a Content-Length.";
            return self.fail(core, head, Status::LENGTH_REQUIRED, reason);
        }
        let claimed = self.slot.take();
        let Some(slot) = claimed.or_else(|| core.http.programs.enter(self.key)) else {
            let until = core.now.instant + core.server.config.programs.time;
            self.work = Work::Queued(until, Box::new(Asked::of(bytes)));
            return;
        };
        let Core { http, registry, .. } = core;
        let errors = http.programs.errors(|pipe| crate::worker::watch_errors(registry, pipe));
        let (errors, local) = match (errors, self.local()) {
            (Ok(errors), Ok(local)) => (errors, local),
            _ => {
                return self.fail_with(core, head, &FileError::Exhausted);
            }
        };
        let (server, storage) = (Arc::clone(&core.server), Arc::clone(&who.account.storage));
        let (user, path) = (who.user.clone(), target.path.clone());
        let (encrypted, protocol) = (self.is_encrypted(), self.protocol(head.version));
        let (query, peer) = (target.query.unwrap_or_default().to_vec(), self.peer.ip());
        let (takes_input, kept) = (head.framing != Framing::None, bytes.to_vec());
        self.ask_pool(core, bytes, move || {
            let marked = server.config.programs.marked(&path);
            let Some((mark, folder)) = marked else { return Err(FileError::NotFound) };
            let script = match program::find(&*storage, mark, folder, &path) {
                Ok(script) => script,
                Err(NoScript::File(error)) => return Err(error),
                Err(NoScript::NotRunnable) => return Err(FileError::PermissionDenied),
                Err(NoScript::Elsewhere) => return Ok(Found::NoProgram),
            };
            let path_translated = script.path_translated();
            let request = cgi::Request {
                script: script.path.as_bytes(),
                path_info: &script.path_info,
                path_translated: path_translated.as_deref(),
                query: &query,
                user: user.as_deref(),
                peer,
                local,
                encrypted,
                protocol,
            };
            start(&script, &request, &kept, takes_input, errors)
        });
        if let Work::Asked(asked) = &mut self.work {
            asked.slot = Some(slot);
        }
    }

    /// The program runs: its answer is awaited.
    pub(super) fn begin_program(
        &mut self,
        core: &mut Core,
        head: &Head<'_, '_>,
        bytes: &[u8],
        program: Program,
        is_non_parsed: bool,
    ) {
        let time = core.server.config.programs.time;
        self.begin_answer(core, head, bytes, Answerer::Program(program), is_non_parsed, Time::InAll(time));
    }
}

fn start(
    script: &Script,
    request: &cgi::Request<'_>,
    bytes: &[u8],
    takes_input: bool,
    errors: std::os::fd::OwnedFd,
) -> Result<Found, FileError> {
    let mut slots = millrace_http::Slots::new();
    let Ok(Some((head, _))) = millrace_http::request::parse(bytes, &mut slots) else {
        return Err(FileError::Unsupported);
    };
    let variables = cgi::environment(&head, request);
    let program = script.start(variables, takes_input, errors).map_err(FileError::from)?;
    Ok(Found::Program(Box::new(program), cgi::is_non_parsed(script.path.name())))
}

impl Programs {
    /// The folder of programs that a path lies in, as clients name it and as the file system does.
    pub(crate) fn marked(
        &self,
        path: &millrace_vfs::VirtualPath,
    ) -> Option<(&millrace_vfs::VirtualPath, &std::path::Path)> {
        let mut folders = self.folders.iter();
        folders.find(|(mark, _)| path.starts_with(mark)).map(|(mark, folder)| (mark, folder.as_path()))
    }
}
