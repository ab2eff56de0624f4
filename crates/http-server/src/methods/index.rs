//! A folder whose index is a program or a script: the request for the folder is one for that (`lookup.rs` says which).
//!
//! As with a `Location` within the server, hooks and permissions are asked about where it leads; the log, and the
//! application in `REQUEST_URI`, hear what the client has asked for.

use std::sync::Arc;

use millrace_ftp::session::Permission;
use millrace_gateway::forward;
use millrace_http::internal_redirect::MAX_REDIRECTS;
use millrace_http::target::{self, Target};
use millrace_http::{Head, Method, Refusal, Status, internal_redirect};
use millrace_vfs::{FileError, VirtualPath, Wait};

use crate::config::HttpConfig;
use crate::connection::Redirected;
use crate::connection::exchange::Exchange;
use crate::identity::Who;
use crate::lookup;
use crate::lookup::Found;

/// Returns true if a folder's index may be a program or server that takes a `POST`.
pub(crate) fn may_take_post(config: &HttpConfig, head: &Head, target: &Target<'_>) -> bool {
    let has_others = !config.proxy_routes.is_empty() || !config.programs.folders.is_empty();
    head.method == Method::Post && target.is_directory && has_others
}

/// Answers a `POST` to a folder: its index does, unless that is a file.
pub(crate) fn post_to_folder(
    exchange: &mut Exchange<'_>,
    target: &Target<'_>,
    who: &Who,
    found: Option<Result<Found, FileError>>,
) {
    if !exchange.permits(who, Permission::Read) {
        return;
    }
    match found {
        None => {
            let (storage, path) = (Arc::clone(&who.account.storage), target.path.clone());
            let (web, server) = (Arc::clone(&exchange.core.http.web), Arc::clone(&exchange.core.server));
            exchange.ask_pool(move || {
                lookup::find((&web, &server.config), &*storage, &path, true, Wait::Allowed)
            });
        }
        Some(Ok(Found::Index(index))) => lead_to_index(exchange, target, &index),
        Some(found) => {
            exchange.core.discard(found);
            exchange.pass_over_body();
            exchange.refuse_post();
        }
    }
}

/// Has a request for a folder answered as one for its index.
pub(crate) fn lead_to_index(exchange: &mut Exchange<'_>, target: &Target<'_>, index: &VirtualPath) {
    let head = exchange.head;
    exchange.connection.redirects += 1;
    if exchange.connection.redirects > MAX_REDIRECTS {
        let reason = "The index of the folder leads to the folder again.";
        return exchange.fail(Status::BAD_GATEWAY, reason);
    }
    let uri = forward::path_and_query(head, target);
    let mut path = Vec::new();
    target::encode(index.as_bytes(), &mut path);
    let query = target.query.map_or(Vec::new(), |query| [b"?", query].concat());
    let leads_to = internal_redirect::to_index(head, &[path, query].concat(), target.authority);
    let again = match leads_to {
        Ok(again) => Arc::new(again),
        Err(Refusal { status, reason }) => return exchange.fail(status, reason),
    };
    let asked_for = exchange.connection.redirected.take();
    exchange.connection.forget_request();
    exchange.connection.redirected =
        asked_for.or_else(|| Some(Box::new(Redirected { uri: Some(uri), ..Redirected::from(&**head) })));
    exchange.connection.resume(again, None);
}
