//! `PROPFIND`, `PROPPATCH`, `LOCK` and `UNLOCK`: collects their bodies, and sends their answers.

use std::sync::Arc;

use millrace_ftp::session::Permission;
use millrace_http::target::Target;
use millrace_http::{Framing, Method, Status};
use millrace_vfs::FileError;

use crate::answer::{Answers, Made};
use crate::connection::Work;
use crate::connection::exchange::Exchange;
use crate::dav_state::ELSEWHERE;
use crate::dav_work::members::{DavAnswer, DavContent};
use crate::dav_work::requests::{BODY, Collecting};
use crate::identity::Who;
use crate::lookup::Found;
use crate::record::Record;
use crate::refused::Refused;

/// Answers a request of WebDAV's, or has its body collected first.
pub(crate) fn answer_request(
    exchange: &mut Exchange<'_>,
    target: &Target<'_>,
    who: &Who,
    found: Option<Result<Found, FileError>>,
) {
    let head = exchange.head;
    match found {
        None if !exchange.permits(who, first_permission(head.method)) => {}
        None if matches!(head.framing, Framing::Length(length) if length > BODY as u64) => {
            exchange.fail(Status::CONTENT_TOO_LARGE, "The body is too long.");
        }
        None => {
            exchange.connection.want_body(exchange.core);
            exchange.connection.flush(exchange.core, false);
            exchange.connection.work = Work::Collecting(Box::new(Collecting {
                head: Arc::clone(head),
                path: target.path.clone(),
                is_directory: target.is_directory,
                body: Vec::new(),
                began: exchange.core.now.instant,
            }));
        }
        Some(Ok(Found::Dav(answer))) => {
            if let Some(answer) = exchange.tell_of_file(answer) {
                answer_dav(exchange, answer);
            }
        }
        Some(Ok(_)) => exchange.fail(Status::CONFLICT, "It has changed meanwhile."),
        Some(Err(error)) => {
            let Refused { refusal, reached } = error.into();
            Answers::new(exchange.connection, exchange.core).tell_limit(reached.as_deref());
            exchange.fail(refusal.status, refusal.reason);
        }
    }
}

/// The server that takes over is to be asked: at once, over another connection.
pub(crate) fn send_to_successor(exchange: &mut Exchange<'_>) {
    let record = Record { persistent: false, ..exchange.record() };
    Answers::new(exchange.connection, exchange.core).answer_page(
        record,
        Status::SERVICE_UNAVAILABLE,
        ELSEWHERE,
        &[("Retry-After", "0")],
    );
}

fn answer_dav(exchange: &mut Exchange<'_>, answer: DavAnswer) {
    // It was given up while the request was with the pool.
    if answer.status == Status::SERVICE_UNAVAILABLE && exchange.core.server.dav.is_left() {
        return send_to_successor(exchange);
    }
    let DavAnswer { status, field, media_type, content, reached, has_made_file: _ } = answer;
    Answers::new(exchange.connection, exchange.core).tell_limit(reached.as_deref());
    let fields: Vec<(&str, &str)> = field.iter().map(|(name, value)| (*name, value.as_str())).collect();
    match content {
        DavContent::Whole(body) if body.is_empty() => {
            let record = exchange.record();
            Answers::new(exchange.connection, exchange.core).answer_empty(record, status, &fields);
        }
        DavContent::Whole(body) => exchange.answer_bytes(status, media_type, &fields, &body),
        DavContent::Long(members) => {
            let made = Made::Listing(members);
            exchange.answer_stream(status, media_type, &[("DAV", "1, 2")], made);
        }
    }
}

/// The right without which a method does nothing.
fn first_permission(method: Method) -> Permission {
    match method {
        Method::PropFind => Permission::List,
        _ => Permission::Write,
    }
}
