//! Requests that came in clear, and are sent on to HTTPS.

use millrace_http::target::Target;
use millrace_http::{Status, redirect};

use crate::answer::Answers;
use crate::connection::exchange::Exchange;
use crate::shared::CHALLENGE_PATH;
use crate::web::HttpsRedirect;

/// Sends a request on to HTTPS, where that is wanted: at the name that it came by, so that each host stays the same,
/// and with its method (308). Answers whether it has.
pub(crate) fn sends_to_https(exchange: &mut Exchange<'_>, sent: &Target<'_>) -> bool {
    let head = exchange.head;
    let port = match exchange.core.http.web.https_redirect {
        HttpsRedirect::Off => None,
        HttpsRedirect::ToOwn => exchange.core.server.https_port,
        HttpsRedirect::To(port) => Some(port),
    };
    let Some(port) = port.filter(|_| !exchange.connection.is_encrypted()) else { return false };
    if sent.path.as_bytes().starts_with(CHALLENGE_PATH) {
        return false;
    }
    let own = exchange.connection.local().map_or(exchange.connection.peer.ip(), |local| local.ip());
    let location = redirect::https_location(head, sent, own, port);
    exchange.pass_over_body();
    let record = exchange.record();
    let reason = "This is to be had by HTTPS.";
    Answers::new(exchange.connection, exchange.core).answer_page(
        record,
        Status::PERMANENT_REDIRECT,
        reason,
        &[("Location", &location)],
    );
    true
}
