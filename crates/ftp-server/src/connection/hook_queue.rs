//! The events of a session that hooks have before them, and will have next.

use std::collections::VecDeque;
use std::slice;
use std::sync::Arc;
use std::time::Instant;

use millrace_accounts::Account;
use millrace_blocking::Line;
use millrace_ftp::session::{Outcome, TransferError};
use millrace_hooks::{self as hooks, EventContext, Pending};
use millrace_process::Recall;
use millrace_runtime::hook_line::Naming;
use millrace_runtime::worker::Core;
use millrace_vfs::{Committed, FileError, Upload, VirtualPath};

use super::message::Message;
use super::scene::Identity;

/// What the hooks have before them, and what they will have next.
#[derive(Debug, Default)]
pub(super) struct HookQueue {
    /// The user who is logged in.
    pub(super) user: Option<Arc<[u8]>>,
    /// The command that runs, whose reply is to be told.
    pub(super) command: Option<EventContext>,
    /// How the last transfer ended, until the session hears of it.
    pub(super) ended: Option<(EventContext, Option<Unnamed>)>,
    /// When the upload began that they look at.
    pub(super) began: Option<Instant>,
    pub(super) current: Option<Current>,
    /// What they will have next, and what waits for the answer.
    pub(super) next: VecDeque<(EventContext, Option<Then>)>,
    /// Since when the client is known to be gone.
    pub(super) left: Option<Instant>,
    /// What was last asked to be written.
    pub(super) changing: Option<VirtualPath>,
    /// How they are called: also when the connection is gone, an event waits for the one before it.
    pub(super) line: Arc<Line>,
}

/// What the hooks have before them.
#[derive(Debug)]
pub(super) struct Current {
    pub(super) serial: u64,
    /// What waits for the answer.
    pub(super) then: Option<Then>,
    /// Which file or folder it is about.
    pub(super) about: Option<VirtualPath>,
    /// By which they hear that the answer is not waited for any more.
    pub(super) recall: Recall,
}

/// An upload that has no name yet, and what came of its commit.
#[derive(Debug)]
pub(super) struct Unnamed {
    pub(super) pending: Arc<Pending>,
    naming: Naming<Result<Committed, FileError>>,
}

impl Unnamed {
    pub(super) fn new(upload: Box<dyn Upload>) -> Self {
        let (pending, naming) = Naming::begin(upload, |upload| upload.commit(), FileError::to_string);
        Self { pending, naming }
    }

    /// Takes why it could not be named.
    pub(super) fn failure(&self) -> Option<FileError> {
        self.naming.take()?.err()
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

impl HookQueue {
    pub(super) fn all(&self) -> impl Iterator<Item = &Option<Then>> {
        self.current.iter().map(|current| &current.then).chain(self.next.iter().map(|(_, then)| then))
    }

    /// Takes out what waits for an answer and is meant; the answer then means nothing.
    pub(super) fn give_up_if(&mut self, is_meant: fn(&Then) -> bool) -> Option<Then> {
        let waits = |then: &Option<Then>| then.as_ref().is_some_and(is_meant);
        if let Some(current) = self.current.as_mut().filter(|current| waits(&current.then)) {
            current.recall.give();
            return current.then.replace(Then::GivenUp);
        }
        let at = self.next.iter().position(|(_, then)| waits(then))?;
        self.next.remove(at)?.1
    }

    /// Recalls the hooks of uploads that have no name yet.
    pub(super) fn recall_unnamed(&self) {
        let ends = |then: &Option<Then>| matches!(then, Some(Then::End(_, Some(_))));
        self.next.iter().filter(|(_, then)| ends(then)).for_each(|(context, _)| context.recall.give());
        if let Some(current) = self.current.as_ref().filter(|current| ends(&current.then)) {
            current.recall.give();
        }
    }

    /// Gives up an upload that hooks have before them and that has no name yet.
    pub(super) fn give_up_unnamed(&mut self, core: &Core) -> Option<Outcome> {
        let current = self.current.as_mut()?;
        let Some(Then::End(_, Some(unnamed))) = &current.then else { return None };
        core.discard(unnamed.pending.give_up()?);
        match current.then.replace(Then::GivenUp) {
            Some(Then::End(outcome, _)) => Some(Outcome { result: Err(TransferError::Aborted), ..outcome }),
            _ => None,
        }
    }

    /// Gives the hooks what is next.
    pub(super) fn call_next(&mut self, core: &mut Core, me: Identity<'_>) {
        let serial = core.next_serial();
        let Some((context, then)) = self.next.pop_front() else { return };
        let (about, recall) = (context.path.clone(), context.recall.clone());
        self.current = Some(Current { serial, then, about, recall });
        let hooks = core.services.hooks();
        let (key, post) = (me.key, me.door.post.clone());
        let pool = core.services.hook_pools.of_any(hooks.as_deref(), slice::from_ref(&context));
        self.line.put(pool, move || {
            let verdict = hooks::call_if_any(hooks.as_deref(), &context);
            post.send(key, Message::Ruled(serial, verdict));
        });
    }
}
