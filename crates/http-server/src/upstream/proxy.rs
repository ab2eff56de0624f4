//! Requests that others answer: applications by FastCGI, and other servers by HTTP (`gateway/src/forward.rs`).
//!
//! Both are asked by a [`Conversation`], which is driven as a program is (`upstream_response.rs`): the body goes there and the answer
//! to the client as either takes it, a client that goes ends it, and silence has an end.

use std::os::unix::net::UnixStream;
use std::sync::Arc;

use millrace_ftp::session::Permission;
use millrace_gateway::answerer::Answerer;
use millrace_gateway::conversation::{Contact, Conversation};
use millrace_gateway::programs::{Line, Slot};
use millrace_gateway::upstream::Upstream;
use millrace_gateway::{application, forward};
use millrace_http::target::Target;
use millrace_http::{Framing, Refusal, Status};
use millrace_limits::Direction;
use millrace_vfs::FileError;

use crate::answer::Answers;
use crate::connection::exchange::Exchange;
use crate::connection::{Asked, Work};
use crate::identity::Who;
use crate::lookup::Found;
use crate::notices::Notices;
use crate::refused::Refused;
use crate::upstream_response::Time;

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
pub(crate) fn ask(exchange: &mut Exchange<'_>, target: &Target<'_>, who: &Who, route: usize) {
    let head = exchange.head;
    let server = Arc::clone(&exchange.core.server);
    let config = &server.config.proxy_routes[route];
    if !may_pass(exchange, who, target) || !exchange.may_move(Direction::Download) {
        return;
    }
    if head.framing == Framing::Chunked && matches!(config.to, Upstream::FastCgi(_)) {
        let reason = "An application is told the length of what it gets: send a Content-Length.";
        return exchange.fail(Status::LENGTH_REQUIRED, reason);
    }
    let claimed = exchange.connection.slot.take();
    let Some(slot) =
        claimed.or_else(|| exchange.core.http.routes[route].lane().enter(exchange.connection.key))
    else {
        let asked = Asked::in_line(head, Line::Proxy(route));
        exchange.connection.work = Work::Queued(exchange.core.now.instant + config.silence, Box::new(asked));
        return;
    };
    match config.to {
        Upstream::Http(_) => ask_server(exchange, target, who, (route, slot)),
        Upstream::FastCgi(_) => ask_application(exchange, target, who, (route, slot)),
    }
}

fn ask_server(exchange: &mut Exchange<'_>, target: &Target<'_>, who: &Who, (route, slot): (usize, Slot)) {
    match forward(exchange, target, who, route) {
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

fn ask_application(
    exchange: &mut Exchange<'_>,
    target: &Target<'_>,
    who: &Who,
    (route, slot): (usize, Slot),
) {
    let _head = exchange.head;
    let Ok(local) = exchange.connection.local() else {
        return exchange.fail_with(&FileError::Exhausted);
    };
    let request = exchange.gateway_request(target, who, local);
    let kept = exchange.core.http.routes[route].take();
    let (server, uri) = (Arc::clone(&exchange.core.server), uri(exchange, target));
    exchange.ask_pool(move || {
        application::ask((route, &server.config.proxy_routes[route]), kept, &request, &uri)
            .map(Found::Contact)
    });
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
pub(crate) fn contacted(exchange: &mut Exchange<'_>, asking: Contact) {
    match asking {
        Contact::To(conversation) => begin_conversation(exchange, *conversation),
        Contact::Nowhere => exchange.fail(Status::NOT_FOUND, "There is no such file."),
        Contact::Failed(why) => {
            Notices::of(exchange.connection).warn(exchange.core, &why);
            exchange.fail(Status::BAD_GATEWAY, "What is to answer this cannot be asked.");
        }
    }
}

fn begin_conversation(exchange: &mut Exchange<'_>, conversation: Conversation) {
    let silence = exchange.core.server.config.proxy_routes[conversation.route].silence;
    let answerer = Answerer::Conversation(Box::new(conversation));
    exchange.begin_answer(answerer, false, Time::OfSilence(silence));
}

/// Has the side runtime ask another server.
fn forward(
    exchange: &mut Exchange<'_>,
    target: &Target<'_>,
    who: &Who,
    route: usize,
) -> Result<Conversation, Refused> {
    let head = exchange.head;
    const STRANGE: Refusal =
        Refusal { status: Status::BAD_REQUEST, reason: "This cannot be passed on as it is written." };
    let config = &exchange.core.server.config.proxy_routes[route];
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
    let (config, kept) = (Arc::clone(config), Arc::clone(&exchange.core.server.forwards[route]));
    let forward = forward::Forward { link: theirs, request, length, route: config, kept };
    exchange.core.server.side.spawn(|_| forward.run());
    Ok(Conversation::new(ours.into(), route, Vec::new(), head.framing != Framing::None, false))
}
