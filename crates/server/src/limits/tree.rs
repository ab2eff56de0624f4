//! Who shares what: the server's buckets, those of its listeners, groups and users, and each session's.
//!
//! A node lives as long as somebody uses it or owes it something: a user who connects anew for each file
//! finds the line in which the last session stood.

use std::collections::HashMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use millrace_vfs::OverQuota;

use super::bucket::{Bucket, Nanos};
use super::meter::Meter;
use super::{AccountLimits, GroupLimits, Limit, Limits, Moved, Refused, ServerLimits};

/// Nodes without anybody in them that are kept before those that owe nothing are swept away.
const SPARE_NODES: usize = 1024;

/// Which way bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Direction {
    /// To the client.
    Download,
    /// From the client.
    Upload,
}

/// Whose limits are meant.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Scope {
    /// Everybody's together.
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

/// One bucket in each direction, how many share them, and what was said about them.
#[derive(Debug)]
pub(super) struct Node {
    scope: Scope,
    download: Bucket,
    upload: Bucket,
    sessions: AtomicUsize,
    /// Members that are in it and count for no limit of sessions.
    guests: AtomicUsize,
    /// 0 for no limit.
    most_sessions: AtomicU64,
    wanted: Mutex<Wanted>,
}

/// What was configured, and what was set since.
#[derive(Debug, Default)]
struct Wanted {
    configured: Limits,
    set: Limits,
}

impl Node {
    fn new(scope: Scope, configured: Limits, clock: Moment) -> Arc<Self> {
        let node = Arc::new(Self {
            scope,
            download: Bucket::default(),
            upload: Bucket::default(),
            sessions: AtomicUsize::new(0),
            guests: AtomicUsize::new(0),
            most_sessions: AtomicU64::new(0),
            wanted: Mutex::default(),
        });
        node.configure(configured, clock);
        node
    }

    pub(super) fn bucket(&self, direction: Direction) -> &Bucket {
        match direction {
            Direction::Download => &self.download,
            Direction::Upload => &self.upload,
        }
    }

    fn wanted(&self) -> MutexGuard<'_, Wanted> {
        self.wanted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the configuration says; what was set since stays. Answers whether anything changed.
    fn configure(&self, configured: Limits, clock: Moment) -> bool {
        let mut wanted = self.wanted();
        if wanted.configured != configured {
            wanted.configured = configured;
        }
        self.apply(&wanted, clock)
    }

    /// Puts in force what is wanted at this moment; answers whether that is anything new.
    fn apply(&self, wanted: &Wanted, clock: Moment) -> bool {
        let at = |set: &Option<Limit>, configured: &Option<Limit>| {
            set.as_ref().or(configured.as_ref()).map_or(0, |limit| limit.at(clock.wall))
        };
        let (set, configured) = (&wanted.set, &wanted.configured);
        let sessions = at(&set.sessions, &configured.sessions);
        let down = self.download.set_rate(at(&set.download, &configured.download), clock.nanos);
        let up = self.upload.set_rate(at(&set.upload, &configured.upload), clock.nanos);
        self.most_sessions.swap(sessions, Relaxed) != sessions || down || up
    }

    fn enter(self: &Arc<Self>) -> Result<Seat, Refused> {
        let (most, before) = (self.most_sessions.load(Relaxed), self.sessions.fetch_add(1, Relaxed));
        // Counted out again by the drop.
        let seat = Seat(Some(Arc::clone(self)));
        match most > 0 && before as u64 >= most {
            true => Err(Refused { scope: self.scope.clone(), value: most, is_default: false }),
            false => Ok(seat),
        }
    }

    /// Claims that others than one are in it.
    fn is_shared(&self) -> bool {
        self.sessions.load(Relaxed) + self.guests.load(Relaxed) > 1
    }

    fn is_in_use(&self) -> bool {
        self.sessions.load(Relaxed) + self.guests.load(Relaxed) > 0
    }

    fn is_idle(&self, now: Nanos) -> bool {
        !self.is_in_use()
            && self.download.is_settled(now)
            && self.upload.is_settled(now)
            && self.wanted().set == Limits::default()
    }
}

/// A session's part in a node.
#[derive(Debug)]
struct Seat(Option<Arc<Node>>);

impl Seat {
    fn node(&self) -> &Arc<Node> {
        self.0.as_ref().expect("a seat that was given back is dropped")
    }

    /// Gives itself back if there are more than this; answers whether it did. Of several that look at once no more do
    /// than are too many.
    fn yields(&mut self, most: u64) -> bool {
        let one_less = |sessions: usize| (sessions as u64 > most).then(|| sessions - 1);
        let yields = self.node().sessions.fetch_update(Relaxed, Relaxed, one_less).is_ok();
        if yields {
            // It counts no more.
            self.0 = None;
        }
        yields
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        if let Some(node) = &self.0 {
            node.sessions.fetch_sub(1, Relaxed);
        }
    }
}

/// The part of a member that is none of the node's sessions.
#[derive(Debug)]
struct Guest(Arc<Node>);

impl Guest {
    fn of(node: &Arc<Node>) -> Self {
        node.guests.fetch_add(1, Relaxed);
        Self(Arc::clone(node))
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.0.guests.fetch_sub(1, Relaxed);
    }
}

/// A member's part in the server's node and its listener's.
#[derive(Debug)]
enum Stay {
    Session(Seat, Seat),
    Guest(Guest, Guest),
}

impl Stay {
    fn nodes(&self) -> [&Arc<Node>; 2] {
        match self {
            Self::Session(server, listener) => [server.node(), listener.node()],
            Self::Guest(server, listener) => [&server.0, &listener.0],
        }
    }
}

/// A member's part in the node of a group or a user.
#[derive(Debug)]
enum Part {
    Session(Seat),
    Guest(Guest),
}

impl Part {
    fn node(&self) -> &Arc<Node> {
        match self {
            Self::Session(seat) => seat.node(),
            Self::Guest(Guest(node)) => node,
        }
    }

    /// The same, unless there may be fewer now.
    fn stay(mut self) -> Result<Self, Refused> {
        let node = Arc::clone(self.node());
        let most = node.most_sessions.load(Relaxed);
        match &mut self {
            Self::Session(seat) if most > 0 => match seat.yields(most) {
                true => Err(Refused { scope: node.scope.clone(), value: most, is_default: false }),
                false => Ok(self),
            },
            Self::Session(_) | Self::Guest(_) => Ok(self),
        }
    }
}

/// The same moment for deadlines and for schedules.
#[derive(Debug, Clone, Copy)]
struct Moment {
    nanos: Nanos,
    wall: i64,
}

/// All buckets of a server.
pub(crate) struct Tree {
    base: Instant,
    /// Seconds since 1970, as it was looked at last.
    wall: AtomicI64,
    /// Counts changes; a transfer that sees another number than before looks for its buckets anew.
    generation: AtomicU64,
    /// Whether any session ever had a schedule of its own.
    session_schedules: AtomicBool,
    server: Arc<Node>,
    /// Each map is locked for one operation, or for a change of the limits.
    listeners: Mutex<HashMap<SocketAddr, Arc<Node>>>,
    groups: Mutex<HashMap<Arc<str>, Arc<Node>>>,
    users: Mutex<HashMap<Arc<[u8]>, Arc<Node>>>,
    defaults: Mutex<Defaults>,
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
}

impl fmt::Debug for Tree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tree").field("server", &self.server).finish_non_exhaustive()
    }
}

impl Tree {
    /// The buckets of a server that begins now; `wall` is in seconds since 1970.
    pub(crate) fn new(limits: ServerLimits, now: Instant, wall: i64) -> Self {
        let clock = Moment { nanos: 0, wall };
        let tree = Self {
            base: now,
            wall: AtomicI64::new(wall),
            generation: AtomicU64::new(0),
            session_schedules: AtomicBool::new(false),
            server: Node::new(Scope::Server, Limits::default(), clock),
            listeners: Mutex::default(),
            groups: Mutex::default(),
            users: Mutex::default(),
            defaults: Mutex::default(),
        };
        tree.configure(limits, now);
        tree
    }

    /// A moment as buckets count it.
    pub(crate) fn nanos(&self, moment: Instant) -> Nanos {
        u64::try_from(moment.saturating_duration_since(self.base).as_nanos()).unwrap_or(u64::MAX)
    }

    /// And back.
    pub(crate) fn instant(&self, nanos: Nanos) -> Instant {
        self.base + Duration::from_nanos(nanos)
    }

    /// The number of changes so far.
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Relaxed)
    }

    /// A client came to a listener: counted in, or refused.
    pub(crate) fn connect(&self, listener: SocketAddr, now: Instant) -> Result<Member, Refused> {
        let server = self.server.enter()?;
        let listener = self.listener(listener, now).enter()?;
        Ok(Member { stay: Stay::Session(server, listener), login: None, session: None })
    }

    /// A part of a connection that has its place: what it moves counts, and it takes none.
    pub(crate) fn accompany(&self, listener: SocketAddr, now: Instant) -> Member {
        let (server, listener) = (Guest::of(&self.server), Guest::of(&self.listener(listener, now)));
        Member { stay: Stay::Guest(server, listener), login: None, session: None }
    }

    fn listener(&self, listener: SocketAddr, now: Instant) -> Arc<Node> {
        let clock = self.moment(now);
        let mut listeners = lock(&self.listeners);
        let node = listeners.entry(listener).or_insert_with(|| {
            let limits = lock(&self.defaults).listeners.get(&listener).cloned().unwrap_or_default();
            Node::new(Scope::Listener(listener), limits, clock)
        });
        Arc::clone(node)
    }

    /// A member logged in, or its account was looked at again: takes its place among its groups' and its user's sessions,
    /// or is refused. A place that it has it keeps meanwhile, and what was set for the session holds.
    pub(crate) fn log_in(
        &self,
        member: &mut Member,
        user: &[u8],
        limits: &AccountLimits,
        now: Instant,
    ) -> Result<(), Refused> {
        self.join(member, user, limits, now, false)
    }

    /// A member comes in a user's name and is not the user: what it moves counts as the user's, and it takes no place
    /// among the sessions, so that it keeps nobody out.
    pub(crate) fn visit(&self, member: &mut Member, user: &[u8], limits: &AccountLimits, now: Instant) {
        let joined = self.join(member, user, limits, now, true);
        debug_assert!(joined.is_ok(), "no guest is refused");
    }

    fn join(
        &self,
        member: &mut Member,
        user: &[u8],
        limits: &AccountLimits,
        now: Instant,
        as_guest: bool,
    ) -> Result<(), Refused> {
        let mut held = member.parts_as(user, as_guest);
        let is_new = held.is_empty();
        let clock = self.moment(now);
        let (user_limits, session_limits, group_limits) = {
            let defaults = lock(&self.defaults);
            let of_group = |group: &GroupLimits| group.limits.clone().or(&defaults.of_group(&group.name));
            let of_groups: Vec<Limits> = limits.groups.iter().map(of_group).collect();
            (limits.user.clone().or(&defaults.user), limits.session.clone().or(&defaults.session), of_groups)
        };
        // Transfers are to hear of it, where there can be any: others' in any case, the member's own if it was there.
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
            is_default: limits.user.sessions.is_none() && node.wanted().set.sessions.is_none(),
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
        if changed {
            self.generation.fetch_add(1, Relaxed);
        }
        Ok(())
    }

    /// The names of those who are logged in.
    pub(crate) fn users_present(&self) -> Vec<Vec<u8>> {
        let users = lock(&self.users);
        let present = users.iter().filter(|(_, node)| node.sessions.load(Relaxed) > 0);
        present.map(|(name, _)| name.to_vec()).collect()
    }

    /// The meter for a transfer that begins; `None` where nothing on its way is limited.
    pub(crate) fn meter(&self, member: &Member, direction: Direction) -> Option<Box<Meter>> {
        Meter::new(direction, member.way()).map(Box::new)
    }

    /// Claims that something on a transfer's way is limited, or counted.
    pub(crate) fn is_limited(&self, member: &Member, direction: Direction) -> bool {
        member.moved().is_some() || self.meter(member, direction).is_some()
    }

    /// Sets limits until they are set again; a part that is `None` stays as it is. Answers whether there
    /// is such a scope. Sessions' limits are set where the sessions are: [`Tree::limit_member`].
    pub(crate) fn set(&self, scope: &Scope, limits: &Limits, now: Instant) -> bool {
        self.change(scope, now, |wanted| wanted.set = limits.clone().or(&wanted.set))
    }

    /// Forgets what was set: the configured limits hold again.
    pub(crate) fn restore(&self, scope: &Scope, now: Instant) -> bool {
        self.change(scope, now, |wanted| wanted.set = Limits::default())
    }

    fn change(&self, scope: &Scope, now: Instant, change: impl FnOnce(&mut Wanted)) -> bool {
        let clock = self.moment(now);
        let found = match scope {
            Scope::Server => Some(Arc::clone(&self.server)),
            Scope::Listener(address) => lock(&self.listeners).get(address).cloned(),
            // Also of one who is not there: what is set holds when they come.
            Scope::Group(name) => {
                let of_group = lock(&self.defaults).of_group(name);
                let node = node(&self.groups, name, clock, |name| Scope::Group(Arc::clone(name)));
                // Nobody's login may have told it yet.
                if node.sessions.load(Relaxed) == 0 {
                    node.configure(of_group, clock);
                }
                Some(node)
            }
            Scope::User(name) => Some(node(&self.users, name, clock, |name| Scope::User(Arc::clone(name)))),
            Scope::Session(_) => None,
        };
        let Some(node) = found else { return false };
        self.change_node(&node, clock, change);
        true
    }

    fn change_node(&self, node: &Node, clock: Moment, change: impl FnOnce(&mut Wanted)) {
        let mut wanted = node.wanted();
        change(&mut wanted);
        if node.apply(&wanted, clock) {
            self.generation.fetch_add(1, Relaxed);
        }
    }

    /// Sets the limits of one session.
    pub(crate) fn limit_member(&self, member: &mut Member, number: u64, limits: &Limits, now: Instant) {
        self.note_schedule(limits);
        let clock = self.moment(now);
        let node =
            member.session.get_or_insert_with(|| Node::new(Scope::Session(number), Limits::default(), clock));
        self.change_node(node, clock, |wanted| wanted.set = limits.clone().or(&wanted.set));
    }

    /// Forgets what was set for one session.
    pub(crate) fn restore_member(&self, member: &Member, now: Instant) {
        if let Some(node) = &member.session {
            self.change_node(node, self.moment(now), |wanted| wanted.set = Limits::default());
        }
    }

    /// Takes over another configuration; what was set at run time stays set.
    pub(crate) fn configure(&self, limits: ServerLimits, now: Instant) {
        let clock = self.moment(now);
        let ServerLimits { server, listeners, groups, user, session } = limits;
        self.server.configure(server, clock);
        let (listeners, groups) = (listeners.into_iter().collect(), groups.into_iter().collect());
        let defaults = Defaults { user, session, listeners, groups };
        // Whoever asks sees what is said also of those where nobody is yet.
        for name in defaults.groups.keys() {
            node(&self.groups, &**name, clock, |name| Scope::Group(Arc::clone(name)));
        }
        // What an account says of a group is said again when it is looked at, which a reload leads to.
        for (name, node) in &*lock(&self.groups) {
            node.configure(defaults.of_group(name), clock);
        }
        let mut nodes = lock(&self.listeners);
        for address in defaults.listeners.keys() {
            nodes
                .entry(*address)
                .or_insert_with(|| Node::new(Scope::Listener(*address), Limits::default(), clock));
        }
        for (address, node) in &*nodes {
            node.configure(defaults.listeners.get(address).cloned().unwrap_or_default(), clock);
        }
        drop(nodes);
        // Of those who are there their accounts are looked at, and of others nothing else is known.
        for node in lock(&self.users).values().filter(|node| !node.is_in_use()) {
            node.configure(defaults.user.clone(), clock);
        }
        *lock(&self.defaults) = defaults;
        self.generation.fetch_add(1, Relaxed);
    }

    /// The time of day, in seconds since 1970, to about a second.
    pub(crate) fn wall(&self) -> i64 {
        self.wall.load(Relaxed)
    }

    /// The time of day, in seconds since 1970, for whatever looks at a schedule from now on.
    pub(crate) fn set_clock(&self, wall: i64) {
        self.wall.store(wall, Relaxed);
    }

    /// Schedules take effect. To be called on the minute.
    pub(crate) fn tick(&self, now: Instant) {
        let clock = self.moment(now);
        let mut changed = self.server.apply(&self.server.wanted(), clock);
        let mut all = |nodes: &mut dyn Iterator<Item = &Arc<Node>>| {
            nodes.for_each(|node| changed |= node.apply(&node.wanted(), clock));
        };
        all(&mut lock(&self.listeners).values());
        all(&mut lock(&self.groups).values());
        all(&mut lock(&self.users).values());
        if changed {
            self.generation.fetch_add(1, Relaxed);
        }
    }

    /// Claims that there is a session with a schedule of its own: [`Tree::tick`] does not see sessions.
    pub(crate) fn sessions_follow_the_clock(&self) -> bool {
        self.session_schedules.load(Relaxed)
    }

    /// A session's own schedule takes effect.
    pub(crate) fn tick_member(&self, member: &Member, now: Instant) {
        if let Some(node) = &member.session {
            self.change_node(node, self.moment(now), |_| {});
        }
    }

    /// What is in force, for every scope with a limit or with sessions.
    pub(crate) fn report(&self) -> Vec<ScopeReport> {
        let mut nodes = vec![Arc::clone(&self.server)];
        nodes.extend(lock(&self.listeners).values().cloned());
        nodes.extend(lock(&self.groups).values().cloned());
        nodes.extend(lock(&self.users).values().cloned());
        nodes.iter().map(|node| node.report()).collect()
    }

    fn note_schedule(&self, limits: &Limits) {
        let both = [&limits.download, &limits.upload];
        if both.into_iter().flatten().any(Limit::follows_the_clock) {
            self.session_schedules.store(true, Relaxed);
        }
    }

    fn moment(&self, now: Instant) -> Moment {
        Moment { nanos: self.nanos(now), wall: self.wall.load(Relaxed) }
    }
}

impl Member {
    /// What is in force for the session of this number, where that was set.
    pub(crate) fn report(&self, number: u64) -> Option<ScopeReport> {
        let node = self.session.as_ref().filter(|node| node.wanted().set != Limits::default())?;
        Some(ScopeReport { scope: Scope::Session(number), sessions: 1, ..node.report() })
    }
}

/// What is in force for a scope.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScopeReport {
    /// Whose limits.
    pub scope: Scope,
    /// Sessions now.
    pub sessions: usize,
    /// Bytes a second to clients; 0 for no limit.
    pub download: u64,
    /// Bytes a second from clients; 0 for no limit.
    pub upload: u64,
    /// Sessions at most; 0 for no limit.
    pub most_sessions: u64,
}

impl Node {
    fn report(&self) -> ScopeReport {
        ScopeReport {
            scope: self.scope.clone(),
            sessions: self.sessions.load(Relaxed),
            download: self.download.rate(),
            upload: self.upload.rate(),
            most_sessions: self.most_sessions.load(Relaxed),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The node of a name, made where there is none.
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

/// One session's part in the tree; it is counted out when this is dropped.
#[derive(Debug)]
pub(crate) struct Member {
    stay: Stay,
    login: Option<Box<Login>>,
    /// The session's own buckets, where it has limits of its own.
    session: Option<Arc<Node>>,
}

#[derive(Debug)]
struct Login {
    groups: Vec<Part>,
    user: Part,
    moved: Option<Moved>,
}

/// A part of what an idle session costs, of which a thousand are to be a megabyte at most.
const _: () = assert!(size_of::<Login>() <= 56);

impl Member {
    /// The user is gone, the client is still there.
    pub(crate) fn log_out(&mut self) {
        self.login = None;
        self.session = None;
    }

    /// Takes out the places that it has as this user, or as a guest of this user; those of somebody else are free.
    fn parts_as(&mut self, user: &[u8], as_guest: bool) -> Vec<Part> {
        let Some(login) = self.login.take() else { return Vec::new() };
        let is_same = matches!(&login.user.node().scope, Scope::User(name) if **name == *user)
            && matches!(&login.user, Part::Guest(_)) == as_guest;
        let Login { mut groups, user, .. } = *login;
        groups.push(user);
        if is_same { groups } else { Vec::new() }
    }

    /// The address that the listener is bound to which it came to.
    pub(crate) fn listener(&self) -> Option<SocketAddr> {
        match self.stay.nodes()[1].scope {
            Scope::Listener(address) => Some(address),
            _ => None,
        }
    }

    /// What the user may move, where that is bounded.
    pub(super) fn moved(&self) -> Option<&Moved> {
        self.login.as_ref()?.moved.as_ref()
    }

    /// Claims that a transfer this way may begin, or says which quota forbids it.
    pub(crate) fn may_move(&self, tree: &Tree, direction: Direction) -> Result<(), OverQuota> {
        self.moved().map_or(Ok(()), |moved| moved.check(direction, tree.wall()))
    }

    /// From the server's buckets to the session's.
    fn way(&self) -> impl Iterator<Item = &Arc<Node>> {
        let login = self.login.iter().flat_map(|login| login.groups.iter().chain([&login.user]));
        self.stay.nodes().into_iter().chain(login.map(Part::node)).chain(&self.session)
    }
}
