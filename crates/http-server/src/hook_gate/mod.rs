//! What a connection of HTTP does about hooks: it asks before a request is carried out, and before a client hears that
//! its upload is there; it tells of what was done.
//!
//! The invariant: events go to hooks through one [`Line`], in order, on the hooks' threads. A request has one verdict,
//! before any effect, however often its head is processed. The number of unprocessed events is bounded: further
//! requests of the client wait. Without hooks, a request costs one pointer check.

pub(crate) mod submit;
pub(crate) mod uploads;

use std::net::SocketAddr;
use std::sync::Arc;

use millrace_hooks::{Event, EventContext, HookVerdict, Hooks, Refusal};
use millrace_http::target::Target;
use millrace_http::tus::Concern;
use millrace_http::{Framing, Head, Method, Status};
use millrace_log::{self as log, Direction};
use millrace_metrics::Cause;
use millrace_vfs::VirtualPath;

use crate::answer::Answers;
use crate::connection::exchange::Exchange;
use crate::connection::{Connection, Work};
use crate::dav_work::members::DavAnswer;
use crate::hook_state::{Ruled, Then};
use crate::identity::{ANONYMOUS, Who};
use crate::lookup::Found;
use crate::notices::{Notices, undecided};
use crate::record::{Record, destination, shown};
use crate::secure::Handshake;
use crate::upload_outcome::{AnswerFields, lent, of_refusals};
use crate::worker::Core;

/// The state of hooks, while the worker calls them.
pub(crate) struct HookGate<'a> {
    pub(crate) connection: &'a mut Connection,
    pub(crate) core: &'a mut Core,
}

impl<'a> HookGate<'a> {
    pub(crate) fn new(connection: &'a mut Connection, core: &'a mut Core) -> Self {
        Self { connection, core }
    }
}

impl Connection {
    /// A new connection: begins TLS if it is for that, then requests, unless a hook refuses it.
    pub fn greet(&mut self, core: &mut Core, secure: Option<SocketAddr>) {
        match core.server.hooks().filter(|hooks| hooks.concerns(Event::Connect, "")) {
            Some(hooks) => {
                let context = Notices::of(self).context(core, Event::Connect, None);
                HookGate::new(self, core).submit(hooks, vec![context], Then::Begin(secure), None);
            }
            None => HookGate::new(self, core).begin(secure),
        }
    }

    /// The connection ends: who was let in by hooks is no longer here, and they hear of that. The end of a
    /// stream is not the client's.
    pub(crate) fn note_end(&mut self, core: &mut Core) {
        HookGate::new(self, core).note_logout();
        if self.stream.is_none() {
            drop(Notices::of(self).parting(core));
        }
    }

    /// Hooks have heard so much that requests may go on.
    pub(crate) fn was_heard(&mut self, core: &Core) {
        // A head that has begun has its time from now on.
        self.http.moved(core.now.instant);
    }
}

impl HookGate<'_> {
    /// A user that hooks have not accepted yet: the earlier user's login has ended, and hooks are asked about the new
    /// one.
    fn login_moment(&mut self, hooks: &dyn Hooks, who: &Who) -> Option<EventContext> {
        if self.connection.hooked.state().let_in.as_ref() == Some(&who.user) {
            return None;
        }
        HookGate::new(self.connection, self.core).note_logout();
        hooks.concerns(Event::Login, "").then(|| EventContext {
            user: Some(who.user.as_deref().unwrap_or(ANONYMOUS).into()),
            ..Notices::of(self.connection).context(self.core, Event::Login, Some(&who.account))
        })
    }
}

impl HookGate<'_> {
    fn begin(&mut self, secure: Option<SocketAddr>) {
        self.connection.http.moved(self.core.now.instant);
        if let Some(bound) = secure {
            Handshake::new(self.connection, self.core).begin_tls(bound);
        }
    }

    fn note_logout(&mut self) {
        if let Some(user) = self.connection.hooked.get_mut().and_then(|hooked| hooked.let_in.take()) {
            let user = Some(user.as_deref().unwrap_or(ANONYMOUS).into());
            Notices::of(self.connection).tell(
                self.core,
                EventContext { user, ..Notices::of(self.connection).context(self.core, Event::Logout, None) },
            );
        }
    }

    /// Something was changed, or a file has come: the client hears of it when hooks have.
    pub(crate) fn conclude(&mut self, mut record: Record, tag: Option<String>, event: Option<(Event, u64)>) {
        let fields = tag.map(|tag| ("ETag", tag)).into_iter().collect();
        record.waits.note(None, self.core.now.instant);
        if let Some((event, _)) = event {
            Notices::of(self.connection).audit_change(self.core, event, &record);
        }
        if let (Some(hooks), Some((event, bytes))) = (self.core.server.hooks(), event)
            && hooks.concerns(event, &record.method)
        {
            let context = Notices::of(self.connection).moment_of(self.core, event, &record, bytes, None);
            let undecided =
                (event == Event::Upload).then(|| undecided(self.connection, self.core, context.waited));
            let context = EventContext { undecided, ..context };
            record.waits.note(Some(Cause::Hook), self.core.now.instant);
            let then = Then::Answer(Box::new(record), fields);
            return self.submit(hooks, vec![context], then, None);
        }
        if let Some((Event::Upload, bytes)) = event {
            Notices::of(self.connection).note_transfer(self.core, Direction::Upload, &record, bytes, None);
        }
        self.answer_done(record, &fields);
    }

    fn answer_done(&mut self, record: Record, fields: &AnswerFields) {
        let status = record.status;
        Answers::new(self.connection, self.core).answer_empty(record, status, &lent(fields));
    }

    /// Hooks have answered.
    pub(crate) fn hooks_answered(&mut self, serial: u64, ruled: Ruled) {
        let then = match std::mem::replace(&mut self.connection.work, Work::Idle) {
            Work::Ruled(number, then) if number == serial => *then,
            other => {
                self.connection.work = other;
                return;
            }
        };
        let Ruled { event, about, verdict } = ruled;
        match (then, verdict) {
            (then, HookVerdict::Refuse(refusal)) => {
                let (on, path, reason) = (event.name(), about.as_ref(), refusal.text());
                self.core.log(&self.connection.subject(), log::Event::HookRefused { on, path, reason });
                self.refused(then, event, &refusal);
            }
            (Then::Begin(secure), _) => self.begin(secure),
            (Then::Request(head), verdict) => {
                let user = self.connection.who.as_ref().and_then(|who| who.user.clone());
                let path = match verdict {
                    HookVerdict::Rewrite(path) => Some(path),
                    _ => None,
                };
                self.connection.hooked.set_ruling(user, path);
                self.connection.resume(head, None);
            }
            (Then::Answer(record, fields), _) => self.answer_done(*record, &fields),
            (Then::Dav(head, answer), _) => self.connection.resume(head, Some(Ok(Found::Dav(*answer)))),
            (Then::Named(record, naming, fields), _) => {
                self.answer_named(*record, &naming, fields, None);
            }
        }
    }

    fn refused(&mut self, then: Then, event: Event, refusal: &Refusal) {
        let status = status_of_hook(refusal);
        match then {
            Then::Begin(None) => {
                crate::refusal(refusal.text(), &mut self.core.out);
                self.connection.close_behind(self.core);
            }
            // Nothing that is not encrypted would be understood.
            Then::Begin(Some(_)) => self.connection.link.cut(),
            Then::Request(head) => {
                // A user that was accepted and only lacks a permission is not asked about again.
                if event != Event::Login {
                    let user = self.connection.who.as_ref().and_then(|who| who.user.clone());
                    self.connection.hooked.state_mut().let_in = Some(user);
                }
                // Its body may be in flight: it is not read.
                if head.framing != Framing::None {
                    self.connection.exchange(self.core, &head).prepare_to_close();
                }
                self.connection.exchange(self.core, &head).fail(status, refusal.text());
            }
            Then::Answer(record, fields) => {
                let fields = of_refusals(&fields);
                Answers::new(self.connection, self.core).answer_page(
                    *record,
                    status,
                    refusal.text(),
                    &fields,
                );
            }
            Then::Dav(head, answer) => self.connection.resume(head, Some(Ok(Found::Dav(*answer)))),
            Then::Named(record, naming, fields) => {
                self.answer_named(*record, &naming, fields, Some(refusal));
            }
        }
    }
}

impl Exchange<'_> {
    /// What a request is about, where that is another path than the one that was sent: the one that hooks have said; or
    /// of a new upload that they have ruled on, the file that it becomes. An upload that was begun has its path.
    pub(crate) fn as_ruled<'a>(&self, sent: &Target<'a>, resumable: Option<Concern>) -> Option<Target<'a>> {
        let head = self.head;
        let ruled = self.connection.hooked.get()?.ruled.clone()?;
        let path = match resumable {
            None => ruled?,
            Some(_) => {
                let (path, _) = new_file(self.core, head, sent, resumable)?;
                ruled.unwrap_or(path)
            }
        };
        Some(Target { path, outer: None, ..sent.clone() })
    }

    /// Has hooks rule on a request, where they are concerned and have not; answers whether it has to wait for them.
    pub(crate) fn asks_hooks(&mut self, target: &Target<'_>, who: &Who, resumable: Option<Concern>) -> bool {
        let head = self.head;
        if self.connection.hooked.is_ruled() {
            return false;
        }
        let Some(hooks) = self.core.server.hooks() else { return false };
        let new_file = new_file(self.core, head, target, resumable);
        let (path, length) = match new_file.clone() {
            Some(new) => new,
            None => (target.path.clone(), length_of_put(head)),
        };
        self.connection.hooked.state_mut().about = Some(path.clone());
        let mut contexts: Vec<EventContext> =
            HookGate::new(self.connection, self.core).login_moment(&*hooks, who).into_iter().collect();
        let verb = verb_of(head, resumable, new_file.is_some());
        let (is_asked, is_told) = (hooks.concerns(Event::Command, verb), hooks.concerns(Event::Reply, verb));
        if is_asked || is_told {
            let begun = resumable.and_then(|_| self.core.server.tus.file_of(&self.core.server.log, &path));
            let command = EventContext {
                verb: verb.to_owned(),
                argument: shown(&self.core.server.links, head.target()).into_owned(),
                path: Some(begun.unwrap_or(path)),
                is_directory: target.is_directory,
                to: destination(head),
                bytes: length,
                user: who.user.as_deref().map(Arc::from),
                ..Notices::of(self.connection).context(self.core, Event::Command, Some(&who.account))
            };
            self.connection.hooked.state_mut().command = is_told.then(|| Box::new(command.clone()));
            contexts.extend(is_asked.then_some(command));
        }
        if contexts.is_empty() {
            self.connection.hooked.set_ruling(who.user.clone(), None);
            return false;
        }
        HookGate::new(self.connection, self.core).submit(
            hooks,
            contexts,
            Then::Request(Arc::clone(head)),
            None,
        );
        true
    }

    /// A `LOCK` may have made a file: hooks hear of it before the client. Answers the answer where there are none.
    pub(crate) fn tell_of_file(&mut self, answer: DavAnswer) -> Option<DavAnswer> {
        let head = self.head;
        if answer.has_made_file {
            let record = self.record();
            Notices::of(self.connection).audit_change(self.core, Event::MakeFile, &record);
        }
        let concerned = |hooks: &Arc<dyn Hooks>| hooks.concerns(Event::MakeFile, head.method_text());
        let Some(hooks) = self.core.server.hooks().filter(|hooks| answer.has_made_file && concerned(hooks))
        else {
            return Some(answer);
        };
        let context =
            Notices::of(self.connection).moment_of(self.core, Event::MakeFile, &self.record(), 0, None);
        let answer = DavAnswer { has_made_file: false, ..answer };
        let then = Then::Dav(Arc::clone(head), Box::new(answer));
        HookGate::new(self.connection, self.core).submit(hooks, vec![context], then, None);
        None
    }
}

/// The method for hooks. A resumable upload counts as one, so that rules about uploads cannot be bypassed.
fn verb_of(head: &Head, resumable: Option<Concern>, is_new_file: bool) -> &str {
    match resumable {
        _ if is_new_file => "PUT",
        Some(Concern::Upload) => millrace_http::tus::method_text(head),
        _ => head.method_text(),
    }
}

fn length_of_put(head: &Head) -> Option<u64> {
    match (head.method, head.framing) {
        (Method::Put, Framing::Length(length)) => Some(length),
        _ => None,
    }
}

/// The file that a new upload becomes, and how long it is, where that is known.
fn new_file(
    core: &Core,
    head: &Head,
    target: &Target<'_>,
    resumable: Option<Concern>,
) -> Option<(VirtualPath, Option<u64>)> {
    (resumable == Some(Concern::Creation)).then(|| core.server.tus.named(&core.server.log, head, target))?
}

/// The status that stands for a refusal: its code is one of FTP's.
pub(crate) fn status_of_hook(refusal: &Refusal) -> Status {
    match refusal.reply(550).code() {
        452 | 552 => Status::INSUFFICIENT_STORAGE,
        400..500 => Status::SERVICE_UNAVAILABLE,
        _ => Status::FORBIDDEN,
    }
}
