//! The tree of buckets: the server's, those of its listeners, groups and users, and each session's.
//!
//! A node lives as long as it is used or has a reservation in the future: a user that connects anew for each file
//! continues with the reservations of the last session.

mod changing;
mod limit_handle;
mod node;
mod sharing;

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crossbeam_utils::CachePadded;

pub use self::limit_handle::LimitHandle;
use self::limit_handle::{Login, Part, Stay};
pub(super) use self::node::Node;
use self::node::{Guest, Moment};
pub use self::node::{Headcount, ScopeReport};
pub use self::sharing::{RateDemand, SharedRate};
use super::bucket::Nanos;
use super::{AccountLimits, GroupLimits, Limits, Refused, ServerLimits};

/// How many unused nodes are kept before those without reservations are removed.
const SPARE_NODES: usize = 1024;

/// Which way bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Direction {
    /// To the client.
    Download,
    /// From the client.
    Upload,
}

/// The scope of limits.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Scope {
    /// The whole server.
    Server,
    /// Those of all who came to this address.
    Listener(SocketAddr),
    /// Those of all members of this group together.
    Group(Arc<str>),
    /// Those of all sessions of this user together.
    User(Arc<[u8]>),
    /// Those of the session with this number.
    Session(u64),
}

/// All buckets of a server.
pub struct Tree {
    base: Instant,
    /// Seconds since 1970, as it was looked at last.
    wall: AtomicI64,
    /// Counts changes; a transfer that sees another number than before looks for its buckets anew.
    generation: CachePadded<AtomicU64>,
    /// Whether other servers hold to the same limits.
    is_divided: AtomicBool,
    /// Whether any session ever had a schedule of its own.
    session_schedules: AtomicBool,
    server: Arc<Node>,
    /// Each map is locked for one operation, or for a change of the limits.
    listeners: Mutex<HashMap<SocketAddr, Arc<Node>>>,
    groups: Mutex<HashMap<Arc<str>, Arc<Node>>>,
    users: Mutex<HashMap<Arc<[u8]>, Arc<Node>>>,
    defaults: Mutex<Defaults>,
    /// What is set for listeners of all nodes of a cluster, whether they are here or not.
    listeners_set: Mutex<HashMap<SocketAddr, Limits>>,
}

/// For users and sessions whose account says nothing.
#[derive(Debug, Default)]
struct Defaults {
    user: Limits,
    session: Limits,
    listeners: HashMap<SocketAddr, Limits>,
    groups: HashMap<Arc<str>, Limits>,
}

impl Defaults {
    fn of_group(&self, name: &str) -> Limits {
        self.groups.get(name).cloned().unwrap_or_default()
    }

    /// The limits of a user, of each of the user's sessions and of the user's groups, for this account.
    fn beneath(&self, said: &AccountLimits) -> (Limits, Limits, Vec<Limits>) {
        let of_group = |group: &GroupLimits| group.limits.clone().or(&self.of_group(&group.name));
        let of_groups = said.groups.iter().map(of_group).collect();
        (said.user.clone().or(&self.user), said.session.clone().or(&self.session), of_groups)
    }
}

impl fmt::Debug for Tree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tree").field("server", &self.server).finish_non_exhaustive()
    }
}

impl Tree {
    /// The buckets of a server that begins now; `wall` is in seconds since 1970.
    pub fn new(limits: ServerLimits, now: Instant, wall: i64) -> Self {
        let clock = Moment { nanos: 0, wall, is_divided: false };
        let tree = Self {
            base: now,
            wall: AtomicI64::new(wall),
            generation: AtomicU64::new(0).into(),
            is_divided: AtomicBool::new(false),
            session_schedules: AtomicBool::new(false),
            server: Node::new(Scope::Server, Limits::default(), clock),
            listeners: Mutex::default(),
            groups: Mutex::default(),
            users: Mutex::default(),
            defaults: Mutex::default(),
            listeners_set: Mutex::default(),
        };
        tree.configure(limits, now);
        tree
    }

    /// A moment as buckets count it.
    pub fn nanos(&self, moment: Instant) -> Nanos {
        u64::try_from(moment.saturating_duration_since(self.base).as_nanos()).unwrap_or(u64::MAX)
    }

    /// And back.
    pub fn instant(&self, nanos: Nanos) -> Instant {
        self.base + Duration::from_nanos(nanos)
    }

    /// The number of changes so far.
    pub fn generation(&self) -> u64 {
        self.generation.load(Relaxed)
    }

    /// A client came to a listener: counted in, or refused.
    pub fn connect(&self, listener: SocketAddr, now: Instant) -> Result<LimitHandle, Refused> {
        let server = self.server.enter()?;
        let listener = self.listener(listener, now).enter()?;
        Ok(LimitHandle { stay: Stay::Session(server, listener), login: None, session: None })
    }

    /// A part of a connection that has its place: what it moves counts, and it takes none.
    pub fn accompany(&self, listener: SocketAddr, now: Instant) -> LimitHandle {
        let (server, listener) = (Guest::of(&self.server), Guest::of(&self.listener(listener, now)));
        LimitHandle { stay: Stay::Guest(server, listener), login: None, session: None }
    }

    fn listener(&self, listener: SocketAddr, now: Instant) -> Arc<Node> {
        let clock = self.moment(now);
        let mut listeners = lock(&self.listeners);
        let node = listeners.entry(listener).or_insert_with(|| {
            let limits = lock(&self.defaults).listeners.get(&listener).cloned().unwrap_or_default();
            self.new_listener(listener, limits, clock)
        });
        Arc::clone(node)
    }

    fn new_listener(&self, listener: SocketAddr, configured: Limits, clock: Moment) -> Arc<Node> {
        let node = Node::new(Scope::Listener(listener), configured, clock);
        if let Some(set) = lock(&self.listeners_set).get(&listener) {
            node.replace_set(set, clock);
        }
        node
    }

    /// A member logged in, or its account was looked at again: takes its place among its groups' and its user's sessions,
    /// or is refused. A place that it has it keeps meanwhile, and what was set for the session holds.
    pub fn log_in(
        &self,
        member: &mut LimitHandle,
        user: &[u8],
        limits: &AccountLimits,
        now: Instant,
    ) -> Result<(), Refused> {
        self.join(member, user, limits, now, false)
    }

    /// Has a member act in a user's name without a session: its bytes count as the user's, but it does not count
    /// against the limit on sessions.
    pub fn visit(&self, member: &mut LimitHandle, user: &[u8], limits: &AccountLimits, now: Instant) {
        let joined = self.join(member, user, limits, now, true);
        debug_assert!(joined.is_ok(), "no guest is refused");
    }

    fn join(
        &self,
        member: &mut LimitHandle,
        user: &[u8],
        limits: &AccountLimits,
        now: Instant,
        as_guest: bool,
    ) -> Result<(), Refused> {
        let user = &*limits.counted_by(user);
        let mut held = member.parts_as(user, as_guest);
        let is_new = held.is_empty();
        let clock = self.moment(now);
        let (user_limits, session_limits, group_limits) = lock(&self.defaults).beneath(limits);
        // Running transfers must notice it: other members' in any case, the member's own if it existed.
        let mut changed = false;
        let mut enter = |node: &Arc<Node>, limits: Limits| {
            let differs = node.configure(limits, clock);
            let place = held.iter().position(|part| Arc::ptr_eq(part.node(), node));
            let part = match place {
                Some(at) => held.swap_remove(at).stay()?,
                None if as_guest => Part::Guest(Guest::of(node)),
                None => Part::Session(node.enter()?),
            };
            changed |= differs && node.is_shared() || !is_new && (differs || place.is_none());
            Ok(part)
        };
        let mut groups = Vec::with_capacity(limits.groups.len());
        for (group, shared) in limits.groups.iter().zip(group_limits) {
            let node = node(&self.groups, &group.name, clock, |name| Scope::Group(Arc::clone(name)));
            groups.push(enter(&node, shared)?);
        }
        let node = node(&self.users, user, clock, |name| Scope::User(Arc::clone(name)));
        let user = enter(&node, user_limits).map_err(|refused: Refused| Refused {
            is_default: limits.user.sessions.is_none() && !node.has_sessions_set(),
            ..refused
        })?;
        self.note_schedule(&session_limits);
        let session_differs = match &member.session {
            Some(node) => node.configure(session_limits, clock),
            None if session_limits.is_empty() => false,
            None => {
                member.session = Some(Node::new(Scope::Session(0), session_limits, clock));
                true
            }
        };
        changed |= !is_new && (session_differs || !held.is_empty());
        member.login = Some(Box::new(Login { groups, user, moved: limits.moved.clone() }));
        self.note_change(changed);
        Ok(())
    }

    /// Returns how a user with this account is refused who has all sessions that there may be; `None` where there is no limit.
    pub fn user_refusal(&self, user: &[u8], said: &AccountLimits) -> Option<Refused> {
        let user = &*said.counted_by(user);
        let set = lock(&self.users).get(user).and_then(|node| node.sessions_set());
        let is_default = said.user.sessions.is_none() && set.is_none();
        let limit = set.or_else(|| said.user.sessions.clone());
        let limit = limit.or_else(|| lock(&self.defaults).user.sessions.clone())?;
        let value = limit.at(self.wall());
        (value > 0).then(|| Refused { scope: Scope::User(user.into()), value, is_default })
    }

    /// Returns how a member of these groups is refused where one of them has all sessions that there may be; of each group with a
    /// limit, in the order of their names.
    pub fn group_refusals(&self, said: &AccountLimits) -> Vec<Refused> {
        let wall = self.wall();
        let refusal = |group: &GroupLimits| {
            let set = lock(&self.groups).get(&group.name).and_then(|node| node.sessions_set());
            let limit = set.or_else(|| group.limits.sessions.clone());
            let limit = limit.or_else(|| lock(&self.defaults).of_group(&group.name).sessions)?;
            let (scope, value) = (Scope::Group(Arc::clone(&group.name)), limit.at(wall));
            (value > 0).then_some(Refused { scope, value, is_default: false })
        };
        let groups: BTreeMap<_, _> = said.groups.iter().map(|group| (&group.name, group)).collect();
        groups.into_values().filter_map(refusal).collect()
    }

    /// Returns how many sessions an administrator lets the server have, where that was said.
    pub fn most_sessions(&self) -> Option<u64> {
        Some(self.server.report().most_sessions).filter(|most| *most > 0)
    }

    /// Returns how a client of a listener is refused that has all sessions that there may be; `None` where there is no limit.
    pub fn listener_refusal(&self, listener: SocketAddr) -> Option<Refused> {
        let value = lock(&self.listeners).get(&listener)?.report().most_sessions;
        (value > 0).then_some(Refused { scope: Scope::Listener(listener), value, is_default: false })
    }

    /// The names of the users with sessions. A user that only a host has stands there without the host, too.
    pub fn users_present(&self) -> Vec<Vec<u8>> {
        let users = lock(&self.users);
        let present = users.iter().filter(|(_, node)| node.sessions() > 0);
        let plain =
            |name: &[u8]| name.iter().position(|&byte| byte == b'/').map(|at| name[at + 1..].to_vec());
        present.flat_map(|(name, _)| [Some(name.to_vec()), plain(name)].into_iter().flatten()).collect()
    }

    /// The time of day, in seconds since 1970, to about a second.
    pub fn wall(&self) -> i64 {
        self.wall.load(Relaxed)
    }

    /// The time of day, in seconds since 1970, for whatever looks at a schedule from now on.
    pub fn set_clock(&self, wall: i64) {
        self.wall.store(wall, Relaxed);
    }

    /// The effective limits of every scope with a limit or with sessions.
    pub fn report(&self) -> Vec<ScopeReport> {
        let mut nodes = vec![Arc::clone(&self.server)];
        nodes.extend(lock(&self.listeners).values().cloned());
        nodes.extend(lock(&self.groups).values().cloned());
        nodes.extend(lock(&self.users).values().cloned());
        nodes.iter().map(|node| node.report()).collect()
    }

    fn moment(&self, now: Instant) -> Moment {
        let is_divided = self.is_divided.load(Relaxed);
        Moment { nanos: self.nanos(now), wall: self.wall.load(Relaxed), is_divided }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The node of a name, created if missing.
fn node<K: ?Sized + std::hash::Hash + Eq>(
    nodes: &Mutex<HashMap<Arc<K>, Arc<Node>>>,
    name: &K,
    clock: Moment,
    scope: impl FnOnce(&Arc<K>) -> Scope,
) -> Arc<Node>
where
    Arc<K>: for<'a> From<&'a K>,
{
    let mut nodes = lock(nodes);
    if let Some(node) = nodes.get(name) {
        return Arc::clone(node);
    }
    if nodes.len() >= SPARE_NODES && nodes.len() == nodes.capacity() {
        // Before the map grows: at most every other time that it would.
        nodes.retain(|_, node| !node.is_idle(clock.nanos));
    }
    let name: Arc<K> = name.into();
    let node = Node::new(scope(&name), Limits::default(), clock);
    nodes.insert(name, Arc::clone(&node));
    node
}
