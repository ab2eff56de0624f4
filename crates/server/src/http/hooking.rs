//! What a connection of HTTP does about hooks: it asks before a request is carried out, and before a client hears that
//! its upload is there; it tells of what was done.
//!
//! The invariant: events go to hooks through one [`Line`], in order, on the hooks' threads. A request has one verdict,
//! before any effect, however often its head is processed. The number of unprocessed events is bounded: further
//! requests of the client wait. Without hooks, a request costs one pointer check.

mod batch;
mod moments;
mod uploads;

use std::cell::OnceCell;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use millrace_http::target::{self, Target};
use millrace_http::{Field, Framing, Head, Method, Status};
use millrace_vfs::VirtualPath;

pub(super) use self::batch::Parting;
pub(crate) use self::batch::Ruled;
pub(super) use self::moments::Notices;
pub(super) use self::uploads::{Committing, Settled, Settling, Unnamed};
use self::uploads::{Naming, of_refusals};
use super::connection::{Connection, Work};
use super::dav;
use super::exchange::Exchange;
use super::find::Found;
use super::record::{Record, shown};
use super::tus::{self, Concern, lent};
use super::who::{ANONYMOUS, Who};
use crate::blocking::Line;
use crate::hooks::{Event, Hooks, Moment, Refusal, Ruling};
use crate::http::answer::Answers;
use crate::http::secure::Handshake;
use crate::log::{self, Direction};
use crate::program::Recall;
use crate::worker::Core;

/// So many events of a connection wait to be heard before its next request has to wait as well.
const MOST_UNHEARD: usize = 16;

/// A connection's part in the hooks; there is none where there are none.
#[derive(Debug, Default)]
pub(super) struct Hooked {
    /// The user that they have accepted: as in the request.
    let_in: Option<Option<Vec<u8>>>,
    /// They have ruled on the request that is answered: it is about this path, where they said another.
    ruled: Option<Option<VirtualPath>>,
    /// What the request is about.
    about: Option<VirtualPath>,
    /// The command that they heard of, for those who hear how it was answered.
    command: Option<Box<Moment>>,
    line: Arc<Line>,
    /// By which they hear that their word is not wanted any more.
    recall: Recall,
    /// Events that were told and are not heard yet.
    unheard: Arc<AtomicUsize>,
}

/// A connection's part in the hooks, which is made when they first hear of it.
#[derive(Debug, Default)]
pub(super) struct HookState(OnceCell<Box<Hooked>>);

impl HookState {
    /// The state, where hooks have heard of the connection.
    pub(super) fn get(&self) -> Option<&Hooked> {
        self.0.get().map(|hooked| &**hooked)
    }

    fn get_mut(&mut self) -> Option<&mut Hooked> {
        self.0.get_mut().map(|hooked| &mut **hooked)
    }

    /// The state, from the first thing on that hooks hear: all go through one line.
    pub(super) fn state(&self) -> &Hooked {
        self.0.get_or_init(Box::default)
    }

    pub(super) fn state_mut(&mut self) -> &mut Hooked {
        self.state();
        self.0.get_mut().expect("it was made just now")
    }

    /// Returns whether hooks have too much to hear of this connection for now.
    pub(super) fn waits_to_be_heard(&self) -> bool {
        self.0.get().is_some_and(|hooked| hooked.unheard.load(Ordering::Relaxed) >= MOST_UNHEARD)
    }

    /// A new request: without a verdict.
    pub(super) fn forget_ruling(&mut self) {
        if let Some(hooked) = self.0.get_mut() {
            (hooked.ruled, hooked.about, hooked.command) = (None, None, None);
        }
    }

    pub(super) fn set_ruling(&mut self, user: Option<Vec<u8>>, path: Option<VirtualPath>) {
        let hooked = self.state_mut();
        if path.is_some() {
            hooked.about.clone_from(&path);
        }
        (hooked.let_in, hooked.ruled) = (Some(user), Some(path));
    }

    /// The client of a request that hooks are asked about is gone, so that it is not carried out: they hear of that,
    /// too, and whatever they are at is ended.
    pub(super) fn give_up(&mut self) {
        if let Some(hooked) = self.0.get_mut() {
            hooked.recall.give();
            hooked.ruled.get_or_insert(None);
        }
    }

    /// Returns whether hooks have ruled on the request, or had no wish to.
    pub(super) fn is_ruled(&self) -> bool {
        self.0.get().is_some_and(|hooked| hooked.ruled.is_some())
    }

    /// The path that hooks would have a request be about.
    pub(super) fn ruled_path(&self) -> Option<&VirtualPath> {
        self.0.get()?.ruled.as_ref()?.as_ref()
    }
}

/// Fields of an answer.
type Fields = Vec<(&'static str, String)>;

/// What goes on with the answer.
#[derive(Debug)]
pub(super) enum Then {
    /// The connection; with TLS, where it came to this address for that.
    Begin(Option<SocketAddr>),
    /// The request of this head.
    Request(Arc<Head>),
    /// An answer without a body, with fields.
    Answer(Box<Record>, Fields),
    /// That of WebDAV, to the request of this head.
    Dav(Arc<Head>, Box<dav::Answer>),
    /// That to an upload which has taken its name by then, or could not.
    Named(Box<Record>, Naming, Fields),
}

/// The state of hooks, while the worker calls them.
pub(in crate::http) struct HookGate<'a> {
    pub(in crate::http) connection: &'a mut Connection,
    pub(in crate::http) core: &'a mut Core,
}

impl<'a> HookGate<'a> {
    pub(in crate::http) fn new(connection: &'a mut Connection, core: &'a mut Core) -> Self {
        Self { connection, core }
    }
}

impl Connection {
    /// A new connection: begins TLS if it is for that, then requests, unless a hook refuses it.
    pub(crate) fn greet(&mut self, core: &mut Core, secure: Option<SocketAddr>) {
        match core.server.hooks().filter(|hooks| hooks.concerns(Event::Connect, "")) {
            Some(hooks) => {
                let moment = Notices::of(self).moment(core, Event::Connect, None);
                HookGate::new(self, core).submit(hooks, vec![moment], Then::Begin(secure), None);
            }
            None => HookGate::new(self, core).begin(secure),
        }
    }

    /// The connection ends: who was let in by hooks is no longer here, and they hear of that. The end of a
    /// stream is not the client's.
    pub(super) fn note_end(&mut self, core: &mut Core) {
        HookGate::new(self, core).note_logout();
        if self.stream.is_none() {
            drop(Notices::of(self).parting(core));
        }
    }

    /// Hooks have heard so much that requests may go on.
    pub(super) fn was_heard(&mut self, core: &Core) {
        // A head that has begun has its time from now on.
        self.http.moved(core.now.instant);
    }
}

impl HookGate<'_> {
    /// A user that hooks have not accepted yet: the earlier user's login has ended, and hooks are asked about the new
    /// one.
    fn login_moment(&mut self, hooks: &dyn Hooks, who: &Who) -> Option<Moment> {
        if self.connection.hooked.state().let_in.as_ref() == Some(&who.user) {
            return None;
        }
        HookGate::new(self.connection, self.core).note_logout();
        hooks.concerns(Event::Login, "").then(|| Moment {
            user: Some(who.user.as_deref().unwrap_or(ANONYMOUS).into()),
            ..Notices::of(self.connection).moment(self.core, Event::Login, Some(&who.account))
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
                Moment { user, ..Notices::of(self.connection).moment(self.core, Event::Logout, None) },
            );
        }
    }

    /// Something was changed, or a file has come: the client hears of it when hooks have.
    pub(super) fn conclude(&mut self, record: Record, tag: Option<String>, event: Option<(Event, u64)>) {
        let fields = tag.map(|tag| ("ETag", tag)).into_iter().collect();
        if let (Some(hooks), Some((event, bytes))) = (self.core.server.hooks(), event)
            && hooks.concerns(event, &record.method)
        {
            let undecided = (event == Event::Upload).then(|| moments::undecided(self.core));
            let moment = Moment {
                undecided,
                ..Notices::of(self.connection).moment_of(self.core, event, &record, bytes, None)
            };
            let then = Then::Answer(Box::new(record), fields);
            return self.submit(hooks, vec![moment], then, None);
        }
        if let Some((Event::Upload, bytes)) = event {
            Notices::of(self.connection).note_transfer(self.core, Direction::Upload, &record, bytes, None);
        }
        self.answer_done(record, &fields);
    }

    fn answer_done(&mut self, record: Record, fields: &Fields) {
        let status = record.status;
        Answers::new(self.connection, self.core).answer_empty(record, status, &lent(fields));
    }

    /// Hooks have answered.
    pub(super) fn hooks_answered(&mut self, serial: u64, ruled: Ruled) {
        let then = match std::mem::replace(&mut self.connection.work, Work::Idle) {
            Work::Ruled(number, then) if number == serial => *then,
            other => {
                self.connection.work = other;
                return;
            }
        };
        let Ruled { event, about, ruling } = ruled;
        match (then, ruling) {
            (then, Ruling::Refuse(refusal)) => {
                let (on, path, reason) = (event.name(), about.as_ref(), refusal.text());
                self.core.log(&self.connection.subject(), log::Event::HookRefused { on, path, reason });
                self.refused(then, event, &refusal);
            }
            (Then::Begin(secure), _) => self.begin(secure),
            (Then::Request(head), ruling) => {
                let user = self.connection.who.as_ref().and_then(|who| who.user.clone());
                let path = match ruling {
                    Ruling::Rewrite(path) => Some(path),
                    _ => None,
                };
                self.connection.hooked.set_ruling(user, path);
                self.connection.exchange(self.core, &head).handle(None);
            }
            (Then::Answer(record, fields), _) => self.answer_done(*record, &fields),
            (Then::Dav(head, answer), _) => {
                self.connection.exchange(self.core, &head).handle(Some(Ok(Found::Dav(*answer))))
            }
            (Then::Named(record, naming, fields), _) => {
                self.answer_named(*record, &naming, fields, None);
            }
        }
    }

    fn refused(&mut self, then: Then, event: Event, refusal: &Refusal) {
        let status = status_of(refusal);
        match then {
            Then::Begin(None) => {
                crate::http::refusal(refusal.text(), &mut self.core.out);
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
            Then::Dav(head, answer) => {
                self.connection.exchange(self.core, &head).handle(Some(Ok(Found::Dav(*answer))))
            }
            Then::Named(record, naming, fields) => {
                self.answer_named(*record, &naming, fields, Some(refusal));
            }
        }
    }
}

impl Exchange<'_> {
    /// What a request is about, where that is another path than the one that was sent: the one that hooks have said; or
    /// of a new upload that they have ruled on, the file that it becomes. An upload that was begun has its path.
    pub(super) fn as_ruled<'a>(&self, sent: &Target<'a>, resumable: Option<Concern>) -> Option<Target<'a>> {
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
    pub(super) fn asks_hooks(&mut self, target: &Target<'_>, who: &Who, resumable: Option<Concern>) -> bool {
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
        let mut moments: Vec<Moment> =
            HookGate::new(self.connection, self.core).login_moment(&*hooks, who).into_iter().collect();
        let verb = verb_of(head, resumable, new_file.is_some());
        let (is_asked, is_told) = (hooks.concerns(Event::Command, verb), hooks.concerns(Event::Reply, verb));
        if is_asked || is_told {
            let begun = resumable.and_then(|_| self.core.server.tus.file_of(&self.core.server, &path));
            let command = Moment {
                verb: verb.to_owned(),
                argument: shown(&self.core.server.config.web.links, head.target()).into_owned(),
                path: Some(begun.unwrap_or(path)),
                is_directory: target.is_directory,
                to: destination(head),
                bytes: length,
                user: who.user.as_deref().map(Arc::from),
                ..Notices::of(self.connection).moment(self.core, Event::Command, Some(&who.account))
            };
            self.connection.hooked.state_mut().command = is_told.then(|| Box::new(command.clone()));
            moments.extend(is_asked.then_some(command));
        }
        if moments.is_empty() {
            self.connection.hooked.set_ruling(who.user.clone(), None);
            return false;
        }
        HookGate::new(self.connection, self.core).submit(
            hooks,
            moments,
            Then::Request(Arc::clone(head)),
            None,
        );
        true
    }

    /// A `LOCK` may have made a file: hooks hear of it before the client. Answers the answer where there are none.
    pub(super) fn tell_of_file(&mut self, answer: dav::Answer) -> Option<dav::Answer> {
        let head = self.head;
        let concerned = |hooks: &Arc<dyn Hooks>| hooks.concerns(Event::MakeFile, head.method_text());
        let Some(hooks) = self.core.server.hooks().filter(|hooks| answer.has_made_file && concerned(hooks))
        else {
            return Some(answer);
        };
        let moment =
            Notices::of(self.connection).moment_of(self.core, Event::MakeFile, &self.record(), 0, None);
        let answer = dav::Answer { has_made_file: false, ..answer };
        let then = Then::Dav(Arc::clone(head), Box::new(answer));
        HookGate::new(self.connection, self.core).submit(hooks, vec![moment], then, None);
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
    (resumable == Some(Concern::Creation)).then(|| tus::named(&core.server, head, target))?
}

/// The path that `Destination` names.
pub(super) fn destination(head: &Head) -> Option<VirtualPath> {
    match head.method {
        Method::Move | Method::Copy => {
            target::parse(head.get(Field::Destination)?).ok().map(|target| target.path)
        }
        _ => None,
    }
}

/// The status that stands for a refusal: its code is one of FTP's.
fn status_of(refusal: &Refusal) -> Status {
    match refusal.reply(550).code() {
        452 | 552 => Status::INSUFFICIENT_STORAGE,
        400..500 => Status::SERVICE_UNAVAILABLE,
        _ => Status::FORBIDDEN,
    }
}
