//! Requests that change files: `PUT`, `DELETE` (RFC 9110 section 9.3), `MKCOL`, `MOVE` and `COPY` (RFC 4918
//! section 9). All of it is the pool's to do; rights are asked here, and by the storage where they differ by place.

use std::sync::Arc;

use millrace_hooks::Event;
use millrace_http::change;
use millrace_http::dav::multistatus;
use millrace_http::target::Target;
use millrace_http::{Method, Status};
use millrace_limits::{Direction, Reached};
use millrace_vfs::FileError;

use crate::answer::Answers;
use crate::change::{Change, Changed};
use crate::connection::exchange::Exchange;
use crate::hook_gate::HookGate;
use crate::identity::Who;
use crate::lookup::Found;
use crate::notices::Notices;
use crate::record::Record;
use crate::refused::{Refused, status_of};

/// Changes something, or begins to.
pub(crate) fn change_files(
    exchange: &mut Exchange<'_>,
    target: &Target<'_>,
    who: &Who,
    found: Option<Result<Found, FileError>>,
) {
    let head = exchange.head;
    if let Err(refusal) = change::check_body(head) {
        if head.method == Method::Put {
            exchange.prepare_to_close();
        }
        return exchange.fail(refusal.status, refusal.reason);
    }
    match found {
        None if !exchange.permits(who, change::first_permission(head.method)) => {}
        None if head.method == Method::Put && !exchange.may_move(Direction::Upload) => {}
        None => {
            let change = Arc::new(Change {
                head: Arc::clone(head),
                server: Arc::clone(&exchange.core.server),
                user: who.user.clone(),
                storage: Arc::clone(&who.account.storage),
                permissions: who.account.permissions,
                path: target.path.clone(),
                is_directory: target.is_directory,
            });
            let make = move || Ok(Found::Changed(change.make()));
            match head.method {
                // It may be about all that a folder holds.
                Method::Delete | Method::Move | Method::Copy => {
                    exchange.ask_long(make);
                }
                _ => exchange.ask_pool(make),
            }
        }
        Some(Ok(Found::Changed(Changed::Upload(upload, change, replaces)))) => {
            exchange.receive_file(upload, change, replaces);
        }
        Some(Ok(Found::Changed(Changed::Done(status, event)))) => {
            let record = Record { status, ..exchange.record() };
            HookGate::new(exchange.connection, exchange.core).conclude(
                record,
                None,
                event.map(|event| (event, 0)),
            );
        }
        Some(Ok(Found::Changed(Changed::Partly(failures, event)))) => {
            let record = exchange.record();
            // Of a folder that could not be removed as a whole, hooks do not hear.
            let audited = event.unwrap_or(Event::RemoveDirectory);
            Notices::of(exchange.connection).audit_change(exchange.core, audited, &record);
            if let Some(event) = event {
                Notices::of(exchange.connection).note_change(exchange.core, event, &record);
            }
            let body = failures.to_xml();
            let media_type = multistatus::MEDIA_TYPE;
            exchange.answer_bytes(Status::MULTI_STATUS, media_type, &[], body.as_bytes());
        }
        Some(Ok(Found::Changed(Changed::Refused(Refused { refusal, reached })))) => {
            Answers::new(exchange.connection, exchange.core).tell_limit(reached.as_deref());
            exchange.fail(refusal.status, refusal.reason);
        }
        Some(Ok(_)) => exchange.fail(Status::CONFLICT, "It has changed meanwhile."),
        Some(Err(error)) => {
            let (status, reason) = status_of(&error);
            Answers::new(exchange.connection, exchange.core).tell_limit(Reached::by(&error).as_ref());
            exchange.fail(status, reason);
        }
    }
}
