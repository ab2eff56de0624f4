//! Files of users in browsers, where there is an origin for downloads: a browser that opens a file as a document is sent
//! there, with a signed link to that file alone.
//!
//! The invariants: the origin for downloads answers signed links and nothing else, so that no browser has a login for
//! it; and no request for a document is answered with a file by any other origin, also not one that came by a link.

use millrace_http::Status;
use millrace_http::download_origin::opens_document;
use millrace_http::target::Target;
use millrace_vfs::VirtualPath;

use crate::answer::Answers;
use crate::connection::exchange::Exchange;
use crate::identity::{ANONYMOUS, Who};
use crate::lookup::Entry;
use crate::web::{Gives, Link};

/// Seconds for which a browser may load the file again, or seek in it.
const VALIDITY: u64 = 4 * 60 * 60;

impl Exchange<'_> {
    /// Returns whether the request was sent to the origin for downloads.
    pub(crate) fn is_at_download_origin(&self) -> bool {
        let origin = self.core.http.web.download_origin.as_ref();
        origin.is_some_and(|isolated| isolated.origin.is_host_of(self.head))
    }
}

/// Refuses a request to the origin for downloads that has no link. Returns whether it has.
pub(crate) fn refuses_without_link(exchange: &mut Exchange<'_>, sent: &Target<'_>) -> bool {
    if !exchange.is_at_download_origin() || exchange.core.http.web.links.is_link(sent.query) {
        return false;
    }
    exchange.pass_over_body();
    exchange.fail(Status::FORBIDDEN, "Only signed links are answered at this address.");
    true
}

/// Sends a browser that opens a file as a document to the origin for downloads. Returns whether it has.
pub(crate) fn sends_to_download_origin(
    exchange: &mut Exchange<'_>,
    target: &Target<'_>,
    entry: &Entry,
    who: &Who,
) -> bool {
    let head = exchange.head;
    let web = &exchange.core.http.web;
    let Some(isolated) = &web.download_origin else { return false };
    if isolated.origin.is_host_of(head) || !opens_document(head) {
        return false;
    }
    // A link that is good at a virtual host is good nowhere else.
    if exchange.virtual_host(target).is_some() {
        return false;
    }
    let now = exchange.core.now.wall.seconds;
    let latest = u64::try_from(now).unwrap_or(0) + VALIDITY;
    let expires = match exchange.link(target) {
        Some(Ok(link)) => link.expires.min(latest),
        _ => latest,
    };
    let user = who.user.clone().unwrap_or_else(|| ANONYMOUS.to_vec());
    let link = Link { path: path_of(entry), gives: Gives::File, user, expires };
    let Some(signed) = web.links.sign(&link) else { return false };
    let location = isolated.origin.location(&signed);
    let record = exchange.record();
    Answers::new(exchange.connection, exchange.core).answer_page(
        record,
        Status::TEMPORARY_REDIRECT,
        "The file is at another address.",
        &[("Location", &location), ("Cache-Control", "no-store"), ("Vary", "Accept, Sec-Fetch-Dest")],
    );
    true
}

/// The path of a file, also where a neighbour is sent in its place, whose name has the suffix of a coding behind it.
fn path_of(entry: &Entry) -> VirtualPath {
    let path = &entry.path;
    let name = path.name();
    match (entry.coding, name.iter().rposition(|&byte| byte == b'.')) {
        (Some(_), Some(dot)) => path.parent().join(&name[..dot]).unwrap_or_else(|_| path.clone()),
        _ => path.clone(),
    }
}
