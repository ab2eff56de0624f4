//! Requests for resumable uploads (tus 1.0).

use std::sync::Arc;

use millrace_ftp::session::Permission;
use millrace_http::target::Target;
use millrace_http::tus::{Concern, joins, sharer};
use millrace_http::{Framing, Status, tus};
use millrace_limits::Direction;
use millrace_vfs::FileError;

use crate::answer::Answers;
use crate::connection::exchange::Exchange;
use crate::identity::Who;
use crate::lookup::Found;
use crate::receiving::{Purpose, Received};
use crate::refused::Refused;
use crate::tus_state::OF_REFUSALS;
use crate::tus_work::{TusAnswer, TusRequest};
use crate::upload_outcome::lent;

/// Answers a request of tus's, about what was sent or, where hooks have ruled on it, the file that it becomes.
pub(crate) fn tus(
    exchange: &mut Exchange<'_>,
    targets: (&Target<'_>, Option<&Target<'_>>),
    who: &Who,
    found: Option<Result<Found, FileError>>,
) {
    match found {
        None => begin(exchange, targets, who),
        Some(Ok(Found::Tus(TusAnswer::Upload(upload, check, piece)))) => {
            exchange.receive_body(Received { upload, check }, Purpose::Piece(piece));
        }
        Some(Ok(Found::Tus(TusAnswer::Told(status, fields)))) => {
            let record = exchange.record();
            Answers::new(exchange.connection, exchange.core).answer_empty(record, status, &lent(&fields));
        }
        Some(Ok(Found::Tus(TusAnswer::Refused(refused)))) => refuse(exchange, &refused),
        Some(Ok(other)) => exchange.core.discard(other),
        Some(Err(error)) => refuse(exchange, &error.into()),
    }
}

/// Looks at the request, and has the pool look at the upload.
fn begin(exchange: &mut Exchange<'_>, (sent, ruled): (&Target<'_>, Option<&Target<'_>>), who: &Who) {
    let head = exchange.head;
    let target = ruled.unwrap_or(sent);
    if !tus::speaks_our_version(head) {
        let record = exchange.record();
        let fields = [("Tus-Version", tus::VERSION)];
        let reason = "This is for clients that speak tus 1.0.0.";
        let mut answers = Answers::new(exchange.connection, exchange.core);
        return answers.answer_page(record, Status::PRECONDITION_FAILED, reason, &fields);
    }
    let may_begin = exchange.permits(who, Permission::Write)
        && (head.framing == Framing::None || exchange.may_move(Direction::Upload));
    if !may_begin {
        return;
    }
    let Some(concern) = exchange.core.server.tus.concern(head, Some(target)) else { return };
    let asking = TusRequest {
        server: Arc::clone(&exchange.core.server),
        storage: Arc::clone(&who.account.storage),
        permissions: who.account.permissions,
        user: who.user.clone(),
        address: sharer(exchange.connection.peer.ip()),
        head: Arc::clone(head),
        path: target.path.clone(),
        is_directory: target.is_directory,
        is_ruled: concern == Concern::Creation && ruled.is_some(),
        wall: exchange.core.now.wall,
    };
    let answer = move || Ok(Found::Tus(asking.answer(&asking.head, concern)));
    match concern {
        // Of parts, which may have to be copied.
        Concern::Creation if joins(head) => exchange.ask_long(answer),
        _ => exchange.ask_pool(answer),
    }
}

fn refuse(exchange: &mut Exchange<'_>, Refused { refusal, reached }: &Refused) {
    Answers::new(exchange.connection, exchange.core).tell_limit(reached.as_deref());
    let record = exchange.record();
    let mut answers = Answers::new(exchange.connection, exchange.core);
    answers.answer_page(record, refusal.status, refusal.reason, &OF_REFUSALS);
}
