//! Short bodies, which are collected before the pool answers their request.

use std::sync::Arc;

use millrace_http::tus::sharer;
use millrace_http::{Refusal, Status};

use crate::answer::Answers;
use crate::body_reader::Reader;
use crate::connection::Work;
use crate::connection::ending::unanswered;
use crate::dav_work::requests::{BODY, Collecting, DavRequest, refusal_of};
use crate::lookup::Found;
use crate::upload::Reception;

impl Reception<'_> {
    /// Goes on with the body of a request, and with the request once that is whole.
    pub(crate) fn collect_more(&mut self) {
        let Some(who) = self.connection.who.clone() else { return };
        let Work::Collecting(mut collecting) = std::mem::replace(&mut self.connection.work, Work::Idle)
        else {
            return;
        };
        let body = &mut collecting.body;
        let taken = Reader::new(self.connection, self.core).take_body(body, BODY + 1);
        let refusal = match taken {
            Err(refusal) => Some(refusal),
            Ok(()) if body.len() > BODY => {
                Some(Refusal { status: Status::CONTENT_TOO_LARGE, reason: "The body is too long." })
            }
            Ok(()) => None,
        };
        if let Some(Refusal { status, reason }) = refusal {
            self.connection.linger();
            let record = unanswered(self.core, collecting.head());
            return Answers::new(self.connection, self.core).answer_page(record, status, reason, &[]);
        }
        if !self.connection.http.has_whole_body() {
            self.connection.break_where_ended();
            self.connection.work = Work::Collecting(collecting);
            return;
        }
        let Collecting { head, path, is_directory, body, .. } = *collecting;
        let asking = DavRequest {
            server: Arc::clone(&self.core.server),
            storage: Arc::clone(&who.account.storage),
            user: who.user.clone(),
            address: sharer(self.connection.peer.ip()),
            path,
            is_directory,
        };
        let kept = Arc::clone(&head);
        self.connection
            .exchange(self.core, &head)
            .ask_pool(move || Ok(Found::Dav(asking.answer(&kept, &body).unwrap_or_else(refusal_of))));
    }
}
