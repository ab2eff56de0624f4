//! A request that a program answers (CGI/1.1, RFC 3875): how it comes to one, which is started.
//!
//! `upstream_response.rs` handles the running program, as any other upstream.

use std::os::fd::AsFd;
use std::sync::Arc;

use millrace_ftp::session::Permission;
use millrace_gateway::answerer::Answerer;
use millrace_gateway::cgi::{self, Started};
use millrace_gateway::conversation::Contact;
use millrace_gateway::program::Program;
use millrace_gateway::programs::Line;
use millrace_http::target::Target;
use millrace_http::{Framing, Status};
use millrace_limits::Direction;
use millrace_vfs::FileError;

use crate::connection::exchange::Exchange;
use crate::connection::{Asked, Work};
use crate::identity::Who;
use crate::lookup::Found;
use crate::upstream_response::Time;
use crate::worker::Core;

/// Has a request answered by a program, where its path is one of a program.
pub(crate) fn run(exchange: &mut Exchange<'_>, target: &Target<'_>, who: &Who) {
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
    let request = exchange.gateway_request(target, who, local);
    let server = Arc::clone(&exchange.core.server);
    exchange.ask_pool(move || {
        Ok(match cgi::start(&server.config.programs, &request, errors.as_fd())? {
            Started::Program(program, is_non_parsed) => Found::Program(program, is_non_parsed),
            Started::NoProgram => Found::NoProgram,
            Started::Failed(why) => Found::Contact(Contact::Failed(why)),
        })
    });
    if let Work::Asked(asked) = &mut exchange.connection.work {
        asked.slot = Some(slot);
    }
}

/// The program runs: its answer is awaited.
pub(crate) fn begin_program(exchange: &mut Exchange<'_>, program: Program, is_non_parsed: bool) {
    let time = exchange.core.server.config.programs.time;
    exchange.begin_answer(Answerer::Program(program), is_non_parsed, Time::InAll(time));
}
