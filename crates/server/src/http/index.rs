//! A folder whose index is a program or a script: the request for the folder is one for that (`find.rs` says which).
//!
//! As with a `Location` within the server, hooks and permissions are asked about where it leads; the log, and the
//! application in `REQUEST_URI`, hear what the client has asked for.

use std::sync::Arc;

use millrace_ftp::session::Permission;
use millrace_http::internal_redirect::MAX_REDIRECTS;
use millrace_http::target::{self, Target};
use millrace_http::{Head, Method, Refusal, Status, internal_redirect};
use millrace_vfs::{FileError, VirtualPath, Wait};

use super::connection::{Connection, Redirected};
use super::find::{self, Found};
use super::side::forward;
use super::who::Who;
use crate::config::Config;
use crate::worker::Core;

/// Claims that a folder's index may be somebody's who takes what is posted to it.
pub(super) fn may_take_post(config: &Config, head: &Head, target: &Target<'_>) -> bool {
    let has_others = !config.passes.is_empty() || !config.programs.folders.is_empty();
    head.method == Method::Post && target.is_directory && has_others
}

impl Connection {
    /// Answers what is posted to a folder: its index does, where that is no file that is sent.
    pub(super) fn post_to_folder(
        &mut self,
        core: &mut Core,
        head: &Arc<Head>,
        target: &Target<'_>,
        who: &Who,
        found: Option<Result<Found, FileError>>,
    ) {
        if !self.permits(core, head, who, Permission::Read) {
            return;
        }
        match found {
            None => {
                let (storage, path) = (Arc::clone(&who.account.storage), target.path.clone());
                let (web, server) = (Arc::clone(&core.http.web), Arc::clone(&core.server));
                self.ask_pool(core, head, move || {
                    find::find((&web, &server.config), &*storage, &path, true, Wait::Allowed)
                });
            }
            Some(Ok(Found::Index(index))) => self.lead_to_index(core, head, target, &index),
            Some(found) => {
                core.discard(found);
                self.pass_over_body(core, head);
                self.refuse_post(core, head);
            }
        }
    }

    /// Has a request for a folder answered as one for its index.
    pub(super) fn lead_to_index(
        &mut self,
        core: &mut Core,
        head: &Head,
        target: &Target<'_>,
        index: &VirtualPath,
    ) {
        self.redirects += 1;
        if self.redirects > MAX_REDIRECTS {
            let reason = "The index of the folder leads to the folder again.";
            return self.fail(core, head, Status::BAD_GATEWAY, reason);
        }
        let uri = forward::path_and_query(head, target);
        let mut path = Vec::new();
        target::encode(index.as_bytes(), &mut path);
        let query = target.query.map_or(Vec::new(), |query| [b"?", query].concat());
        let leads_to = internal_redirect::to_index(head, &[path, query].concat(), target.authority);
        let again = match leads_to {
            Ok(again) => Arc::new(again),
            Err(Refusal { status, reason }) => return self.fail(core, head, status, reason),
        };
        let asked_for = self.redirected.take();
        self.forget_request();
        self.redirected =
            asked_for.or_else(|| Some(Box::new(Redirected { uri: Some(uri), ..Redirected::from(head) })));
        self.handle(core, &again, None);
    }
}
