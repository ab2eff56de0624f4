//! A session's part in the hooks: it asks, tells, and waits.
//!
//! Its events go to the hooks one after the other, on threads of theirs. While one of them is asked, what
//! depends on the answer waits ([`Then`]); while one is told, replies are held back.
//!
//! The invariant: what waits for a hook's answer and has not begun can be given up at any moment: by `ABOR`, and by a client
//! that is gone. It is then not done, its program is killed, and the hook's thread is free for others. An upload has
//! come by then: one whose client is gone is as good as any other, and `ABOR` has it refused while it has no name.

use std::sync::Arc;
use std::time::{Instant, SystemTime};

use millrace_accounts::Account;
use millrace_ftp::reply::Replies;
use millrace_ftp::session::{Answer, Input, Named, Outcome, Progress, Request, TransferError};
use millrace_hooks::{self as hooks, Event, EventContext};
use millrace_limits::Reached;
use millrace_log::{self as log, Transferred, Undecided};
use millrace_runtime::hook_line::{LEFT_GRACE, end_of_transfer};
use millrace_runtime::worker::Core;
use millrace_vfs::{FileError, Upload, VirtualPath};

use super::hook_queue::{Current, HookQueue, Then, Unnamed};
use super::refusals::SECRET;
use super::scene::Identity;
use crate::files::{self, Changed};

/// A session's part in the hooks; empty where there are none, so that they cost nothing.
#[derive(Debug, Default)]
pub(super) struct SessionHooks(Option<Box<HookQueue>>);

/// What `ABOR` has given up.
pub(super) enum GivenUp {
    /// An upload that had come.
    Upload(Outcome),
    /// A login.
    Login,
}

impl SessionHooks {
    /// A session's part, where there are hooks.
    pub(super) fn new(core: &Core) -> Self {
        Self(core.services.hooks().map(|_| Box::default()))
    }

    /// A reload may have brought hooks: they are asked about what begins from then on. Returns whether there are any.
    pub(super) fn begin(&mut self, core: &Core, user: Option<&[u8]>) -> bool {
        if self.0.is_none() {
            *self = Self::new(core);
            if let Some(user) = user {
                self.note_login(user);
            }
        }
        self.0.is_some()
    }

    fn all(&self) -> impl Iterator<Item = &Option<Then>> {
        self.0.iter().flat_map(|queue| queue.all())
    }

    /// Returns true if a staged upload takes its name only when hooks have answered.
    pub(super) fn asks_beforehand(&self, core: &Core) -> bool {
        self.concerning(core, Event::Upload, "")
            && core.services.hooks().is_some_and(|hooks| hooks.asks_beforehand())
    }

    /// Returns true if no line can be taken before a hook has answered.
    pub(super) fn awaits_hook(&self) -> bool {
        let blocks = |then: &Option<Then>| matches!(then, Some(Then::Greet { .. } | Then::Line(..)));
        self.all().any(blocks)
    }

    /// Returns true if a hook has not yet heard of what the replies tell.
    pub(super) fn holds_replies(&self) -> bool {
        self.all().any(Option::is_none)
    }

    /// Returns true if a login or an upload waits for a hook's answer, which `ABOR` would end.
    pub(super) fn awaits_word(&self) -> bool {
        self.all().flatten().any(|then| matches!(then, Then::LogIn(..) | Then::End(..)))
    }

    /// Returns true if a line waits for a hook's answer. Before the greeting nothing is read: the first bytes may be TLS.
    pub(super) fn has_line(&self) -> bool {
        self.all().flatten().any(|then| matches!(then, Then::Line(..)))
    }

    /// Returns the verb of the command that waits last, and since when it waits.
    pub(super) fn last_line(&self) -> Option<(Vec<u8>, Instant)> {
        let lines = self.all().flatten().filter_map(|then| match then {
            Then::Line(line, since) => Some((verb_of(line), *since)),
            _ => None,
        });
        lines.last()
    }

    /// Returns true if hooks are asked about such an event, or told of it.
    pub(super) fn concerning(&self, core: &Core, event: Event, verb: &str) -> bool {
        self.0.is_some() && core.services.hooks().is_some_and(|hooks| hooks.concerns(event, verb))
    }

    /// Asks the hooks about a connection, where they want to be.
    pub(super) fn ask_about_connection(&mut self, core: &mut Core, me: Identity<'_>, implicit: bool) -> bool {
        let asks = self.concerning(core, Event::Connect, "");
        if asks {
            let context = self.context(core, me, Event::Connect);
            self.submit(core, me, context, Some(Then::Greet { implicit }));
        }
        asks
    }

    /// Asks the hooks about a line, where they want to be, and remembers to tell them of its reply.
    pub(super) fn ask_about_line(
        &mut self,
        core: &mut Core,
        me: Identity<'_>,
        line: &[u8],
        named: Named,
    ) -> bool {
        let asks = self.concerning(core, Event::Command, named.verb);
        let tells = self.concerning(core, Event::Reply, named.verb);
        if !asks && !tells {
            return false;
        }
        let argument = line.get(named.verb.len() + 1..).unwrap_or_default();
        let mut paths = named.paths.into_iter();
        let verb = named.site.map_or(named.verb.to_owned(), |site| format!("{} {site}", named.verb));
        let context = EventContext {
            argument: if SECRET.contains(&&*verb) { Vec::new() } else { argument.to_vec() },
            verb,
            path: paths.next(),
            also: paths.collect(),
            searched: named.searched,
            ..self.context(core, me, Event::Command)
        };
        if let Some(queue) = &mut self.0 {
            queue.command =
                tells.then(|| EventContext { event: Event::Reply, storage: None, ..context.clone() });
        }
        if asks {
            self.submit(core, me, context, Some(Then::Line(line.to_vec(), core.now.instant)));
        }
        asks
    }

    /// Replies are about to be sent: perhaps the last of the command.
    pub(super) fn note_replies(&mut self, core: &mut Core, me: Identity<'_>, replies: &Replies) {
        if self.0.is_none() {
            return;
        }
        let Some(last) = replies.iter().filter(|reply| !reply.is_preliminary()).last() else { return };
        // Or of one that is answered while the command waits.
        if me.session.is_busy() || self.awaits_hook() {
            return;
        }
        if let Some(mut context) = self.0.as_mut().and_then(|queue| queue.command.take()) {
            (context.code, context.time) = (Some(last.code()), SystemTime::now());
            self.submit(core, me, context, None);
        }
    }

    /// The password is right: asks the hooks before the account is given, where they want to be.
    pub(super) fn ask_about_login(
        &mut self,
        core: &mut Core,
        me: Identity<'_>,
        user: &[u8],
        account: &Account,
        edition: u64,
    ) -> bool {
        if !self.concerning(core, Event::Login, "") {
            return false;
        }
        let storage = Some(account.for_hooks());
        let context =
            EventContext { user: Some(Arc::from(user)), storage, ..self.context(core, me, Event::Login) };
        self.submit(core, me, context, Some(Then::LogIn(Box::new(account.clone()), edition)));
        true
    }

    /// A user is logged in.
    pub(super) fn note_login(&mut self, user: &[u8]) {
        if let Some(queue) = &mut self.0 {
            queue.user = Some(Arc::from(user));
        }
    }

    /// The user is logged in no longer.
    pub(super) fn note_logout(&mut self, core: &mut Core, me: Identity<'_>) {
        if self.0.as_ref().is_some_and(|queue| queue.user.is_some()) {
            self.tell(core, me, Event::Logout, |context| context);
            if let Some(queue) = &mut self.0 {
                queue.user = None;
            }
        }
    }

    /// Failed logins have led to a ban.
    pub(super) fn note_ban(&mut self, core: &mut Core, me: Identity<'_>, user: Option<&[u8]>) {
        let user = user.map(Arc::from);
        self.tell(core, me, Event::Ban, |context| EventContext { user, ..context });
    }

    /// What is to be written: should a quota be in its way, that is what it is about.
    pub(super) fn note_request(&mut self, request: &Request) {
        if let Some(queue) = &mut self.0 {
            queue.changing = match request {
                Request::OpenWrite(path, ..) | Request::OpenUnique(path, _) => Some(path.clone()),
                request => files::change(request).map(|changed| changed.path),
            };
        }
    }

    /// The session is about to hear that a limit is in a file's way: the log says which, and where it is a quota
    /// hooks are told.
    pub(super) fn note_limit(&mut self, core: &mut Core, me: Identity<'_>, input: &Input<'_>) {
        let error = match input {
            Input::Answer(Answer::Failed(error) | Answer::FailedAt(_, error)) => error,
            Input::TransferEnded(Outcome { result: Err(TransferError::File(error)), .. }) => error,
            _ => return,
        };
        // 450 says only that it may be tried again.
        let Some(reached) = Reached::by(error).filter(|_| !matches!(error, FileError::Exhausted)) else {
            return;
        };
        me.log(core, log::Event::Limited { reached: &reached, reason: None });
        if let Some(reason) = reached.quota() {
            let path = self.0.as_ref().and_then(|queue| queue.changing.clone());
            self.tell(core, me, Event::Quota, |context| EventContext {
                path,
                reason: Some(reason),
                ..context
            });
        }
    }

    /// A transfer has ended; the session is to hear of it only now. Returns whether hooks are asked first: then they tell
    /// the log.
    pub(super) fn note_transfer(
        &mut self,
        core: &Core,
        me: Identity<'_>,
        transferred: &Transferred<'_>,
        whole: Option<Box<dyn Upload>>,
    ) -> bool {
        if self.0.is_none() {
            return false;
        }
        let Some(event) = end_of_transfer(transferred.direction, transferred.failure) else { return false };
        let is_asked = whole.is_some() || (event == Event::Upload && self.concerning(core, event, ""));
        let context = EventContext {
            path: Some(transferred.path.clone()),
            bytes: Some(transferred.bytes),
            elapsed: Some(transferred.elapsed),
            waited: transferred.waited,
            hash: transferred.hash.map(str::to_owned),
            reason: transferred.failure.map(str::to_owned),
            undecided: is_asked.then(|| {
                let (log, guest) = (core.services.log.clone(), transferred.guest.map(Box::from));
                let Transferred { ascii, first_byte, waited, .. } = *transferred;
                let transfer_log = transferred.log.map(Arc::from);
                let since = Instant::now();
                Box::new(Undecided {
                    log,
                    by_http: false,
                    ascii,
                    first_byte,
                    waited,
                    since,
                    guest,
                    transfer_log,
                })
            }),
            ..self.context(core, me, event)
        };
        let whole = whole.map(Unnamed::new);
        let context =
            EventContext { pending: whole.as_ref().map(|whole| Arc::clone(&whole.pending)), ..context };
        if let Some(queue) = &mut self.0 {
            queue.ended = Some((context, whole));
        }
        is_asked
    }

    /// How a transfer ended, for the session, unless a hook is asked first.
    pub(super) fn transfer_over(
        &mut self,
        core: &mut Core,
        me: Identity<'_>,
        outcome: Outcome,
    ) -> Option<Outcome> {
        let Some((context, whole)) = self.0.as_mut().and_then(|queue| queue.ended.take()) else {
            return Some(outcome);
        };
        if context.undecided.is_some() {
            let spent = context.elapsed.unwrap_or_default();
            if let Some(queue) = &mut self.0 {
                queue.began = core.now.instant.checked_sub(spent);
            }
            // The client may be waiting for the 150.
            self.submit(core, me, context, Some(Then::End(outcome, whole)));
            return None;
        }
        self.submit_if_concerned(core, me, context);
        Some(outcome)
    }

    /// A question was answered that was to change something.
    pub(super) fn note_answer(
        &mut self,
        core: &mut Core,
        me: Identity<'_>,
        changed: &Changed,
        answer: &Answer,
    ) {
        let event = match (changed.verb, answer) {
            (_, Answer::Failed(_) | Answer::FailedAt(..)) => return,
            ("remove", _) => Event::Delete,
            ("rename-to", _) => Event::Rename,
            ("copy-to", _) => Event::Copy,
            ("make-directory", _) => Event::MakeDirectory,
            ("remove-directory" | "remove-tree", _) => Event::RemoveDirectory,
            _ => return,
        };
        self.tell(core, me, event, |context| {
            let (path, to) = match &changed.from {
                Some(from) => (from.clone(), Some(changed.path.clone())),
                None => (changed.path.clone(), None),
            };
            let bytes = match answer {
                Answer::Count(bytes) if event == Event::Copy => Some(*bytes),
                _ => None,
            };
            EventContext { path: Some(path), to, bytes, ..context }
        });
    }

    /// A hook has answered. Returns what goes on, and what it is about; nothing where the answer is not waited for.
    pub(super) fn answered(
        &mut self,
        core: &mut Core,
        me: Identity<'_>,
        serial: u64,
    ) -> Option<(Option<Then>, Option<VirtualPath>)> {
        let queue = self.0.as_mut()?;
        let Current { then, about, .. } = queue.current.take_if(|current| current.serial == serial)?;
        queue.call_next(core, me);
        Some((then, about))
    }

    /// `ABOR`: what waits for an answer is not waited for. An upload in place has its name, and was perhaps part of a file
    /// before: its answer is waited for, since without it nothing says whether it may stay.
    pub(super) fn abort(&mut self, core: &Core) -> Option<GivenUp> {
        let queue = self.0.as_mut()?;
        queue.recall_unnamed();
        if let Some(outcome) = queue.give_up_unnamed(core) {
            return Some(GivenUp::Upload(outcome));
        }
        queue.give_up_if(|then| matches!(then, Then::LogIn(..)))?;
        Some(GivenUp::Login)
    }

    /// `ABOR`, while hooks are asked about a line: gives it up.
    pub(super) fn give_up_line(&mut self) -> Option<Vec<u8>> {
        let queue = self.0.as_mut()?;
        let Some(Then::Line(line, _)) = queue.give_up_if(|then| matches!(then, Then::Line(..))) else {
            return None;
        };
        // It was never run.
        queue.command = None;
        Some(line)
    }

    /// Returns how far the upload is that they look at: all of it has come.
    pub(super) fn looked_at(&self, now: Instant) -> Option<Progress> {
        let queue = self.0.as_ref()?;
        let bytes = queue.all().flatten().find_map(|then| match then {
            Then::End(outcome, _) => Some(outcome.bytes),
            _ => None,
        })?;
        let elapsed = now.saturating_duration_since(queue.began?);
        Some(Progress { bytes, total: None, elapsed, is_checked: true })
    }

    /// The client has gone: from then on what it asked for has only so long.
    pub(super) fn note_hang_up(&mut self, now: Instant) {
        if let Some(queue) = &mut self.0 {
            queue.left.get_or_insert(now);
        }
    }

    /// Returns when a hook is not waited for any longer.
    pub(super) fn due(&self) -> Option<Instant> {
        let queue = self.0.as_ref()?;
        let is_asking = queue.all().flatten().any(|then| !matches!(then, Then::GivenUp));
        Some(queue.left.filter(|_| is_asking)? + LEFT_GRACE)
    }

    /// The connection has ended: what the hooks have not heard of, they hear all the same.
    pub(super) fn close(&mut self, core: &mut Core, me: Identity<'_>) {
        if self.0.is_none() {
            return;
        }
        if let Some((context, _)) = self.0.as_mut().and_then(|queue| queue.ended.take()) {
            match context.undecided.is_some() {
                true => self.submit(core, me, context, None),
                false => self.submit_if_concerned(core, me, context),
            }
        }
        self.note_logout(core, me);
        self.tell(core, me, Event::Disconnect, |context| context);
        let Some(mut queue) = self.0.take() else { return };
        let hooks = core.services.hooks();
        // The answers are not waited for any more, and what has not begun never will.
        let has_not_begun =
            |then: &Then| matches!(then, Then::Greet { .. } | Then::Line(..) | Then::LogIn(..));
        while queue.give_up_if(has_not_begun).is_some() {}
        let contexts: Vec<EventContext> = queue.next.into_iter().map(|(context, _)| context).collect();
        if !contexts.is_empty() {
            let pool = core.services.hook_pools.of_any(hooks.as_deref(), &contexts);
            queue.line.put(pool, move || {
                contexts.iter().for_each(|context| drop(hooks::call_if_any(hooks.as_deref(), context)));
            });
        }
    }

    /// Tells the hooks of an event, where they want to be.
    fn tell(
        &mut self,
        core: &mut Core,
        me: Identity<'_>,
        event: Event,
        fill: impl FnOnce(EventContext) -> EventContext,
    ) {
        if self.concerning(core, event, "") {
            let context = fill(self.context(core, me, event));
            self.submit(core, me, context, None);
        }
    }

    fn submit_if_concerned(&mut self, core: &mut Core, me: Identity<'_>, context: EventContext) {
        if self.concerning(core, context.event, &context.verb) {
            self.submit(core, me, context, None);
        }
    }

    fn submit(&mut self, core: &mut Core, me: Identity<'_>, context: EventContext, then: Option<Then>) {
        let Some(queue) = &mut self.0 else { return };
        queue.next.push_back((context, then));
        if queue.current.is_none() {
            queue.call_next(core, me);
        }
    }

    fn context(&self, core: &Core, me: Identity<'_>, event: Event) -> EventContext {
        EventContext {
            user: self.0.as_ref().and_then(|queue| queue.user.clone()),
            storage: me.account.map(Account::for_hooks),
            ..core.context(event, me.number, me.session.peer(), me.session.local())
        }
    }
}

/// What a line says first; the rest may be a password.
fn verb_of(line: &[u8]) -> Vec<u8> {
    line.split(|byte| *byte == b' ').next().unwrap_or_default().to_ascii_uppercase()
}
