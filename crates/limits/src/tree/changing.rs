//! Limits that change while bytes are on their way: what an administrator sets, another configuration, the clock.
//!
//! Transfers notice it by the count of changes, and look up their buckets again.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use super::node::{Moment, Node};
use super::{Defaults, LimitHandle, Scope, Tree, lock, node};
use crate::{Limit, Limits, ServerLimits};

impl Tree {
    /// Sets limits until they are set again; a part that is `None` stays as it is. Answers whether there
    /// is such a scope. Sessions' limits are set where the sessions are: [`Tree::limit_member`].
    pub fn set(&self, scope: &Scope, limits: &Limits, now: Instant) -> bool {
        self.change(scope, now, |node, clock| node.set(limits, clock))
    }

    /// Forgets what was set: the configured limits hold again.
    pub fn restore(&self, scope: &Scope, now: Instant) -> bool {
        self.change(scope, now, Node::restore)
    }

    /// Has exactly these limits set, and no others: those that all nodes of a cluster hold to. Those of a listener hold once
    /// there is such a listener here; those of sessions stay as they are.
    pub fn set_all(&self, all: &[(Scope, Limits)], now: Instant) {
        let clock = self.moment(now);
        let of_listener = |(scope, limits): &(Scope, Limits)| match scope {
            Scope::Listener(address) => Some((*address, limits.clone())),
            _ => None,
        };
        *lock(&self.listeners_set) = all.iter().filter_map(of_listener).collect();
        let scopes: HashSet<&Scope> = all.iter().map(|(scope, _)| scope).collect();
        let mut nodes = self.shared_nodes();
        nodes.extend(lock(&self.listeners).values().cloned());
        let ended = nodes.iter().filter(|node| node.is_set() && !scopes.contains(node.scope()));
        let mut changed = false;
        ended.for_each(|node| changed |= node.restore(clock));
        self.note_change(changed);
        for (scope, limits) in all {
            self.change(scope, now, |node, clock| node.replace_set(limits, clock));
        }
    }

    fn change(&self, scope: &Scope, now: Instant, change: impl FnOnce(&Node, Moment) -> bool) -> bool {
        let clock = self.moment(now);
        let found = match scope {
            Scope::Server => Some(Arc::clone(&self.server)),
            Scope::Listener(address) => lock(&self.listeners).get(address).cloned(),
            // This includes users without sessions: the setting holds when they connect.
            Scope::Group(name) => {
                let of_group = lock(&self.defaults).of_group(name);
                let node = node(&self.groups, name, clock, |name| Scope::Group(Arc::clone(name)));
                // No login may have told it yet.
                if node.sessions() == 0 {
                    node.configure(of_group, clock);
                }
                Some(node)
            }
            Scope::User(name) => Some(node(&self.users, name, clock, |name| Scope::User(Arc::clone(name)))),
            Scope::Session(_) => None,
        };
        let Some(node) = found else { return false };
        self.note_change(change(&node, clock));
        true
    }

    /// Sets the limits of one session.
    pub fn limit_member(&self, member: &mut LimitHandle, number: u64, limits: &Limits, now: Instant) {
        self.note_schedule(limits);
        let clock = self.moment(now);
        let node =
            member.session.get_or_insert_with(|| Node::new(Scope::Session(number), Limits::default(), clock));
        self.note_change(node.set(limits, clock));
    }

    /// Forgets what was set for one session.
    pub fn restore_member(&self, member: &LimitHandle, now: Instant) {
        if let Some(node) = &member.session {
            self.note_change(node.restore(self.moment(now)));
        }
    }

    /// Takes over another configuration; what was set at run time stays set.
    pub fn configure(&self, limits: ServerLimits, now: Instant) {
        let clock = self.moment(now);
        let ServerLimits { server, listeners, groups, user, session } = limits;
        self.server.configure(server, clock);
        let (listeners, groups) = (listeners.into_iter().collect(), groups.into_iter().collect());
        let defaults = Defaults { user, session, listeners, groups };
        // A report includes settings of users without sessions.
        for name in defaults.groups.keys() {
            node(&self.groups, &**name, clock, |name| Scope::Group(Arc::clone(name)));
        }
        // A reload checks the accounts again, which sets their groups' limits again.
        for (name, node) in &*lock(&self.groups) {
            node.configure(defaults.of_group(name), clock);
        }
        let mut nodes = lock(&self.listeners);
        for address in defaults.listeners.keys() {
            nodes.entry(*address).or_insert_with(|| self.new_listener(*address, Limits::default(), clock));
        }
        for (address, node) in &*nodes {
            node.configure(defaults.listeners.get(address).cloned().unwrap_or_default(), clock);
        }
        drop(nodes);
        // Users with sessions are looked up in their accounts; of others nothing else is known.
        for node in lock(&self.users).values().filter(|node| !node.is_in_use()) {
            node.configure(defaults.user.clone(), clock);
        }
        *lock(&self.defaults) = defaults;
        self.note_change(true);
    }

    /// Schedules take effect. To be called on the minute.
    pub fn tick(&self, now: Instant) {
        let clock = self.moment(now);
        let mut changed = self.server.tick(clock);
        let mut all = |nodes: &mut dyn Iterator<Item = &Arc<Node>>| {
            nodes.for_each(|node| changed |= node.tick(clock));
        };
        all(&mut lock(&self.listeners).values());
        all(&mut lock(&self.groups).values());
        all(&mut lock(&self.users).values());
        self.note_change(changed);
    }

    /// Returns true if there is a session with a schedule of its own: [`Tree::tick`] does not see sessions.
    pub fn sessions_follow_the_clock(&self) -> bool {
        self.session_schedules.load(Relaxed)
    }

    /// A session's own schedule takes effect.
    pub fn tick_member(&self, member: &LimitHandle, now: Instant) {
        if let Some(node) = &member.session {
            self.note_change(node.tick(self.moment(now)));
        }
    }

    pub(super) fn note_schedule(&self, limits: &Limits) {
        let both = [&limits.download, &limits.upload];
        if both.into_iter().flatten().any(Limit::follows_the_clock) {
            self.session_schedules.store(true, Relaxed);
        }
    }

    /// If something changed, makes transfers notice it.
    pub(super) fn note_change(&self, changed: bool) {
        if changed {
            self.generation.fetch_add(1, Relaxed);
        }
    }
}
