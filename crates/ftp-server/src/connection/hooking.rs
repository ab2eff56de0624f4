//! What a session does about hooks: it asks, tells, and waits.
//!
//! Its events go to the hooks one after the other, on threads of theirs. While one of them is asked, what
//! depends on the answer waits ([`Then`]); while one is told, replies are held back. What the session hears of its
//! client meanwhile is in `hook_wait.rs`.

use std::collections::VecDeque;
use std::slice;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Instant, SystemTime};

use millrace_accounts::Account;
use millrace_blocking::Line;
use millrace_ftp::reply::{Replies, code};
use millrace_ftp::session::{Answer, Input, Outcome, Request, TransferError, Verdict, rewritten};
use millrace_hooks::{self as hooks, Event, Moment, Pending, Refusal, Ruling};
use millrace_limits::Reached;
use millrace_log::{self as log, Direction, Transferred, Undecided};
use millrace_process::Recall;
use millrace_runtime::transfer::Link;
use millrace_runtime::worker::Core;
use millrace_vfs::{FileError, Upload, VirtualPath};

use super::Connection;
use super::message::Message;
use crate::files::{self, Changed};

/// Commands whose arguments are nobody's business.
pub(super) const SECRET: [&str; 4] = ["PASS", "ACCT", "INTERNALSHUTDOWN", "SITE GPASS"];

/// A session's part in it; there is none where there are no hooks.
#[derive(Debug, Default)]
pub(super) struct Hooked {
    /// Who is logged in.
    user: Option<Arc<[u8]>>,
    /// The command that runs, whose reply is to be told.
    command: Option<Moment>,
    /// How the last transfer ended, until the session hears of it.
    ended: Option<(Moment, Option<Unnamed>)>,
    /// When the upload began that they look at.
    pub(super) began: Option<Instant>,
    /// What the hooks have before them.
    pub(super) current: Option<Current>,
    /// What they will have next, and what waits for the answer.
    pub(super) next: VecDeque<(Moment, Option<Then>)>,
    /// Since when the client is known to be gone.
    pub(super) left: Option<Instant>,
    /// What was last asked to be written.
    changing: Option<VirtualPath>,
    /// How they are called: also when the connection is gone, an event waits for the one before it.
    line: Arc<Line>,
}

/// What the hooks have before them.
#[derive(Debug)]
pub(super) struct Current {
    serial: u64,
    /// What waits for the answer.
    pub(super) then: Option<Then>,
    /// Which file or folder it is about.
    about: Option<VirtualPath>,
    /// By which they hear that nobody does any more.
    pub(super) recall: Recall,
}

/// An upload that has no name yet, and why it could not take it.
#[derive(Debug)]
pub(super) struct Unnamed {
    pub(super) pending: Arc<Pending>,
    failure: Arc<Mutex<Option<FileError>>>,
}

impl Unnamed {
    fn new(upload: Box<dyn Upload>) -> Self {
        let failure = Arc::new(Mutex::new(None));
        let told = Arc::clone(&failure);
        let pending = Pending::new(upload, move |upload| {
            let error = match upload.commit() {
                Ok(_) => return Ok(()),
                Err(error) => error,
            };
            let why = error.to_string();
            *told.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
            Err(why)
        });
        Self { pending, failure }
    }

    fn failure(&self) -> Option<FileError> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// What goes on with the answer.
#[derive(Debug)]
pub(super) enum Then {
    /// The greeting.
    Greet { implicit: bool },
    /// The command, which has waited since then.
    Line(Vec<u8>, Instant),
    /// The login, granted by this edition of the accounts.
    LogIn(Box<Account>, u64),
    /// The reply to an upload, which may have no name yet.
    End(Outcome, Option<Unnamed>),
    /// Nothing any more.
    GivenUp,
}

impl Hooked {
    /// Remembers what is to be written: should a quota be in its way, that is what it is about.
    pub(super) fn note_request(&mut self, request: &Request) {
        self.changing = match request {
            Request::OpenWrite(path, ..) | Request::OpenUnique(path, _) => Some(path.clone()),
            request => files::change(request).map(|changed| changed.path),
        };
    }

    /// The command that runs is to be told of no more.
    pub(super) fn forget_command(&mut self) {
        self.command = None;
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Option<Then>> {
        self.current.iter().map(|current| &current.then).chain(self.next.iter().map(|(_, then)| then))
    }
}

impl Connection {
    /// A session's part in the hooks, where there are any.
    pub(super) fn hooked(core: &Core) -> Option<Box<Hooked>> {
        core.services.hooks().map(|_| Box::default())
    }

    /// A reload may have brought hooks: they are asked about what begins from then on.
    fn begin_hooks(&mut self, core: &Core) {
        if self.hooked.is_none() {
            self.hooked = Self::hooked(core);
            if let Some(user) = self.session.user() {
                let user = user.to_vec();
                self.note_login(&user);
            }
        }
    }

    /// Claims that a staged upload takes its name only when hooks have had their word.
    pub(super) fn asks_beforehand(&self, core: &Core) -> bool {
        self.concerning(core, Event::Upload, "")
            && core.services.hooks().is_some_and(|hooks| hooks.asks_beforehand())
    }

    /// Claims that no line can be taken before a hook has answered.
    pub(super) fn awaits_hook(&self) -> bool {
        let blocks = |then: &Option<Then>| matches!(then, Some(Then::Greet { .. } | Then::Line(..)));
        self.hooked.as_ref().is_some_and(|hooked| hooked.all().any(blocks))
    }

    /// Claims that a hook has not yet heard of what the replies tell.
    pub(super) fn holds_replies(&self) -> bool {
        self.hooked.as_ref().is_some_and(|hooked| hooked.all().any(Option::is_none))
    }

    /// A new connection: the greeting, or where TLS is `implicit` the handshake, if nobody objects.
    pub(super) fn greet_or_ask(&mut self, core: &mut Core, implicit: bool) {
        match self.concerning(core, Event::Connect, "") {
            true => self.submit(core, self.moment(core, Event::Connect), Some(Then::Greet { implicit })),
            false => self.begin(core, implicit),
        }
    }

    fn begin(&mut self, core: &mut Core, implicit: bool) {
        match implicit {
            true => {
                let companion = self.companion();
                self.begin_tls(core, true, companion);
            }
            false => self.feed(core, Input::Connected),
        }
    }

    /// A line for the session, if nobody objects.
    pub(super) fn line(&mut self, core: &mut Core, line: &[u8]) {
        if self.session.is_busy() {
            return self.feed(core, Input::Line(line));
        }
        self.begin_hooks(core);
        if self.hooked.is_none() {
            return self.feed(core, Input::Line(line));
        }
        let Some(named) = self.session.named(line) else { return self.feed(core, Input::Line(line)) };
        let (asks, tells) = (
            self.concerning(core, Event::Command, named.verb),
            self.concerning(core, Event::Reply, named.verb),
        );
        if !asks && !tells {
            return self.feed(core, Input::Line(line));
        }
        let argument = line.get(named.verb.len() + 1..).unwrap_or_default();
        let mut paths = named.paths.into_iter();
        let verb = named.site.map_or(named.verb.to_owned(), |site| format!("{} {site}", named.verb));
        let moment = Moment {
            argument: if SECRET.contains(&&*verb) { Vec::new() } else { argument.to_vec() },
            verb,
            path: paths.next(),
            also: paths.collect(),
            searched: named.searched,
            ..self.moment(core, Event::Command)
        };
        if let Some(hooked) = &mut self.hooked {
            hooked.command = tells.then(|| Moment { event: Event::Reply, storage: None, ..moment.clone() });
        }
        match asks {
            true => self.submit(core, moment, Some(Then::Line(line.to_vec(), core.now.instant))),
            false => self.feed(core, Input::Line(line)),
        }
    }

    /// Replies are about to be sent: perhaps the last of the command.
    pub(super) fn note_replies(&mut self, core: &mut Core, replies: &Replies) {
        let Some(last) = replies.iter().filter(|reply| !reply.is_preliminary()).last() else { return };
        // Or of one that is answered while the command waits.
        if self.session.is_busy() || self.awaits_hook() {
            return;
        }
        if let Some(mut moment) = self.hooked.as_mut().and_then(|hooked| hooked.command.take()) {
            (moment.code, moment.time) = (Some(last.code()), SystemTime::now());
            self.submit(core, moment, None);
        }
    }

    /// The password is right: answers whether a hook has to be asked before the account is given.
    pub(super) fn asks_about_login(
        &mut self,
        core: &mut Core,
        user: &[u8],
        account: &Account,
        edition: u64,
    ) -> bool {
        if !self.concerning(core, Event::Login, "") {
            return false;
        }
        let storage = Some(account.for_hooks());
        let moment = Moment { user: Some(Arc::from(user)), storage, ..self.moment(core, Event::Login) };
        self.submit(core, moment, Some(Then::LogIn(Box::new(account.clone()), edition)));
        true
    }

    /// Somebody is logged in.
    pub(super) fn note_login(&mut self, user: &[u8]) {
        if let Some(hooked) = &mut self.hooked {
            hooked.user = Some(Arc::from(user));
        }
    }

    /// Somebody no longer is.
    pub(super) fn note_logout(&mut self, core: &mut Core) {
        if self.hooked.as_ref().is_some_and(|hooked| hooked.user.is_some()) {
            self.tell(core, self.moment(core, Event::Logout));
            if let Some(hooked) = &mut self.hooked {
                hooked.user = None;
            }
        }
    }

    /// Failed logins have led to a ban.
    pub(super) fn note_ban(&mut self, core: &mut Core, user: Option<&[u8]>) {
        if self.hooked.is_some() {
            let user = user.map(Arc::from);
            self.tell(core, Moment { user, ..self.moment(core, Event::Ban) });
        }
    }

    /// A transfer has ended; the session is to hear of it only now. Answers whether hooks have their word on it first:
    /// then they tell the log.
    pub(super) fn note_transfer(
        &mut self,
        core: &Core,
        transferred: &Transferred<'_>,
        whole: Option<Box<dyn Upload>>,
    ) -> bool {
        let event = match (transferred.direction, transferred.failure) {
            (Direction::Listing, _) => return false,
            (Direction::Upload, None) => Event::Upload,
            (Direction::Upload, Some(_)) => Event::UploadFailed,
            (Direction::Download, None) => Event::Download,
            (Direction::Download, Some(_)) => Event::DownloadFailed,
        };
        if self.hooked.is_none() {
            return false;
        }
        let is_asked = whole.is_some() || (event == Event::Upload && self.concerning(core, event, ""));
        let moment = Moment {
            path: Some(transferred.path.clone()),
            bytes: Some(transferred.bytes),
            elapsed: Some(transferred.elapsed),
            reason: transferred.failure.map(str::to_owned),
            undecided: is_asked.then(|| {
                let (log, guest) = (core.services.log.clone(), transferred.guest.map(Box::from));
                Box::new(Undecided { log, by_http: false, ascii: transferred.ascii, guest })
            }),
            ..self.moment(core, event)
        };
        let whole = whole.map(Unnamed::new);
        let moment = Moment { pending: whole.as_ref().map(|whole| Arc::clone(&whole.pending)), ..moment };
        if let Some(hooked) = &mut self.hooked {
            hooked.ended = Some((moment, whole));
        }
        is_asked
    }

    /// How a transfer ended, for the session, unless a hook is asked first.
    pub(super) fn transfer_over(&mut self, core: &mut Core, outcome: Outcome) -> Option<Outcome> {
        let Some((moment, whole)) = self.hooked.as_mut().and_then(|hooked| hooked.ended.take()) else {
            return Some(outcome);
        };
        if moment.undecided.is_some() {
            let spent = moment.elapsed.unwrap_or_default();
            if let Some(hooked) = &mut self.hooked {
                hooked.began = core.now.instant.checked_sub(spent);
            }
            // The client may be waiting for the 150.
            self.submit(core, moment, Some(Then::End(outcome, whole)));
            return None;
        }
        self.tell(core, moment);
        Some(outcome)
    }

    /// A question was answered that was to change something.
    pub(super) fn note_answer(&mut self, core: &mut Core, changed: &Changed, answer: &Answer) {
        if self.hooked.is_none() {
            return;
        }
        let event = match (changed.verb, answer) {
            (_, Answer::Failed(_) | Answer::FailedAt(..)) => return,
            ("remove", _) => Event::Delete,
            ("rename-to", _) => Event::Rename,
            ("copy-to", _) => Event::Copy,
            ("make-directory", _) => Event::MakeDirectory,
            ("remove-directory" | "remove-tree", _) => Event::RemoveDirectory,
            _ => return,
        };
        let (path, to) = match &changed.from {
            Some(from) => (from.clone(), Some(changed.path.clone())),
            None => (changed.path.clone(), None),
        };
        let bytes = match answer {
            Answer::Count(bytes) if event == Event::Copy => Some(*bytes),
            _ => None,
        };
        self.tell(core, Moment { path: Some(path), to, bytes, ..self.moment(core, event) });
    }

    /// The session is about to hear that a limit is in a file's way: the log says which, and where it is a quota
    /// hooks are told.
    pub(super) fn note_limit(&mut self, core: &mut Core, input: &Input<'_>) {
        let error = match input {
            Input::Answer(Answer::Failed(error) | Answer::FailedAt(_, error)) => error,
            Input::TransferEnded(Outcome { result: Err(TransferError::File(error)), .. }) => error,
            _ => return,
        };
        // 450 says only that it may be tried again.
        let Some(reached) = Reached::by(error).filter(|_| !matches!(error, FileError::Exhausted)) else {
            return;
        };
        self.log(core, log::Event::Limited { reached: &reached, reason: None });
        if let (Some(hooked), Some(reason)) = (&self.hooked, reached.quota()) {
            let path = hooked.changing.clone();
            self.tell(core, Moment { path, reason: Some(reason), ..self.moment(core, Event::Quota) });
        }
    }

    /// The connection has ended: what the hooks have not heard of, they hear all the same.
    pub(super) fn tell_the_rest(&mut self, core: &mut Core) {
        if self.hooked.is_none() {
            return;
        }
        if let Some((moment, _)) = self.hooked.as_mut().and_then(|hooked| hooked.ended.take()) {
            match moment.undecided.is_some() {
                true => self.submit(core, moment, None),
                false => self.tell(core, moment),
            }
        }
        self.note_logout(core);
        self.tell(core, self.moment(core, Event::Disconnect));
        let Some(mut hooked) = self.hooked.take() else { return };
        let hooks = core.services.hooks();
        // Nobody waits for an answer any more, and what has not begun never will.
        while hooked.give_up().is_some() {}
        let moments: Vec<Moment> = hooked.next.into_iter().map(|(moment, _)| moment).collect();
        if !moments.is_empty() {
            let pool = core.services.hook_pools.of_any(hooks.as_deref(), &moments);
            hooked.line.put(pool, move || {
                moments.iter().for_each(|moment| drop(hooks::call_if_any(hooks.as_deref(), moment)));
            });
        }
    }

    /// A hook has answered.
    pub(super) fn ruled(&mut self, core: &mut Core, serial: u64, ruling: Ruling) {
        let Some(hooked) = &mut self.hooked else { return };
        let Some(Current { then, about, .. }) = hooked.current.take_if(|current| current.serial == serial)
        else {
            return;
        };
        self.call_next(core);
        match then {
            Some(then) => self.go_on(core, then, about.as_ref(), ruling),
            None if self.holds_replies() => {}
            None => self.release(core),
        }
    }

    /// An upload that came whole has not become a file.
    fn could_not_be_named(&mut self, core: &mut Core, then: Then, error: FileError) {
        let Then::End(outcome, _) = then else { return };
        let text = format!("an upload that had come could not take its name: {error}");
        self.log(core, log::Event::Warning { text: &text });
        let result = Err(TransferError::File(error));
        self.feed(core, Input::TransferEnded(Outcome { result, ..outcome }));
    }

    fn go_on(&mut self, core: &mut Core, then: Then, about: Option<&VirtualPath>, ruling: Ruling) {
        if let Then::End(_, Some(whole)) = &then
            && let Some(error) = whole.failure()
        {
            return self.could_not_be_named(core, then, error);
        }
        match (then, ruling) {
            (Then::Greet { .. }, Ruling::Refuse(refusal)) => {
                self.log_refusal(core, Event::Connect, None, &refusal);
                self.feed(core, Input::Dismissed(refusal.farewell()));
            }
            (Then::Greet { implicit }, _) => self.begin(core, implicit),
            (Then::Line(line, _), Ruling::Refuse(refusal)) => {
                self.log_refusal(core, Event::Command, about, &refusal);
                self.feed(core, Input::Refused(&line, refusal.reply(code::FILE_UNAVAILABLE)));
            }
            (Then::Line(line, since), Ruling::Rewrite(path)) => match rewritten(&line, &path) {
                Some(line) => self.feed(core, Input::Line(&line)),
                None => {
                    self.go_on(core, Then::Line(line, since), about, Ruling::Refuse(Refusal::of_rewriting()));
                }
            },
            (Then::Line(line, _), Ruling::Pass) => self.feed(core, Input::Line(&line)),
            (Then::LogIn(..), Ruling::Refuse(refusal)) => {
                self.log_refusal(core, Event::Login, None, &refusal);
                let verdict = Verdict::Refused(refusal.text().to_owned());
                self.feed(core, Input::Answer(Answer::Login(verdict)));
            }
            (Then::LogIn(account, edition), _) => {
                let Some(user) = self.session.claimed_user().map(<[u8]>::to_vec) else { return };
                self.let_in(core, user, *account, edition);
            }
            (Then::End(outcome, _), Ruling::Refuse(refusal)) if refusal == Refusal::of_giving_up() => {
                let result = Err(TransferError::Aborted);
                self.feed(core, Input::TransferEnded(Outcome { result, ..outcome }));
            }
            (Then::End(outcome, _), Ruling::Refuse(refusal)) => {
                self.log_refusal(core, Event::Upload, about, &refusal);
                let result = Err(TransferError::Refused(refusal.reply(code::FILE_UNAVAILABLE)));
                self.feed(core, Input::TransferEnded(Outcome { result, ..outcome }));
            }
            (Then::End(outcome, _), _) => self.feed(core, Input::TransferEnded(outcome)),
            (Then::GivenUp, _) => {}
        }
    }

    /// Everything has been heard: the replies may go.
    fn release(&mut self, core: &mut Core) {
        if self.state.closing.is_some() {
            self.give_time_to_leave(core);
        }
        self.send(core);
        if self.running.as_deref().is_some_and(|running| matches!(running.link, Link::Control)) {
            self.continue_transfer(core);
        }
    }

    fn log_refusal(&self, core: &mut Core, event: Event, path: Option<&VirtualPath>, refusal: &Refusal) {
        self.log(core, log::Event::HookRefused { on: event.name(), path, reason: refusal.text() });
    }

    fn concerning(&self, core: &Core, event: Event, verb: &str) -> bool {
        self.hooked.is_some() && core.services.hooks().is_some_and(|hooks| hooks.concerns(event, verb))
    }

    fn tell(&mut self, core: &mut Core, moment: Moment) {
        if self.concerning(core, moment.event, &moment.verb) {
            self.submit(core, moment, None);
        }
    }

    fn submit(&mut self, core: &mut Core, moment: Moment, then: Option<Then>) {
        let Some(hooked) = &mut self.hooked else { return };
        hooked.next.push_back((moment, then));
        if hooked.current.is_none() {
            self.call_next(core);
        }
    }

    fn call_next(&mut self, core: &mut Core) {
        let serial = core.next_serial();
        let Some(hooked) = &mut self.hooked else { return };
        let Some((moment, then)) = hooked.next.pop_front() else { return };
        let (about, recall) = (moment.path.clone(), moment.recall.clone());
        hooked.current = Some(Current { serial, then, about, recall });
        let hooks = core.services.hooks();
        let (key, post) = (self.key, self.door.post.clone());
        let pool = core.services.hook_pools.of_any(hooks.as_deref(), slice::from_ref(&moment));
        hooked.line.put(pool, move || {
            let ruling = hooks::call_if_any(hooks.as_deref(), &moment);
            post.send(key, Message::Ruled(serial, ruling));
        });
    }

    fn moment(&self, core: &Core, event: Event) -> Moment {
        let (seconds, nanos) = (core.now.wall.seconds.max(0) as u64, core.now.wall.nanoseconds);
        Moment {
            event,
            time: SystemTime::UNIX_EPOCH + std::time::Duration::new(seconds, nanos),
            session: self.number,
            peer: self.session.peer(),
            local: self.session.local(),
            user: self.hooked.as_ref().and_then(|hooked| hooked.user.clone()),
            verb: String::new(),
            argument: Vec::new(),
            path: None,
            is_directory: false,
            to: None,
            also: Vec::new(),
            searched: None,
            bytes: None,
            elapsed: None,
            code: None,
            reason: None,
            storage: self.account.as_ref().map(Account::for_hooks),
            recall: Recall::default(),
            pending: None,
            undecided: None,
        }
    }
}
