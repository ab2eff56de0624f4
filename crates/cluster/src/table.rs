//! What a node asks of the database. The functions wait for its answer.

use std::fmt::Debug;
use std::time::Duration;

use millrace_limits::{
    FailureTally, FamiliarNetwork, LoginTally, Network, RateDemand, TrafficAnswer, TrafficTelling,
};
use millrace_storage::{Telling, TreeState, Wish};

use crate::browser_logins::{BrowserLogin, LoginEnd, LoginLifetime, LoginUse};
use crate::data_route::DataRoute;
use crate::dav_table::DavTable;
use crate::scope::{Claim, SharedScope};
use crate::set_limits::LimitTable;
use crate::tokens::TokenTable;
use crate::upload_table::UploadTable;

pub use crate::question::{Asker, Epoch, TableError};

/// A node, as it registers.
#[derive(Debug, Clone)]
pub struct NodeEntry {
    /// Its name, for people. Two processes may have one name: the old and the new one of an upgrade.
    pub name: String,
    /// The program's version.
    pub version: String,
    /// How long it may be silent before others take its places.
    pub lease: Duration,
}

/// What a node tells of itself with each renewal.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NodeState {
    /// Its connections.
    pub sessions: u64,
    /// Whether it accepts no more clients, or starts the process that accepts them in its place.
    pub is_draining: bool,
}

/// A node as the database has it.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeReport {
    /// Its registration.
    pub epoch: Epoch,
    /// Its name.
    pub name: String,
    /// The program's version.
    pub version: String,
    /// How long ago it has renewed its lease, by the database's clock.
    pub silent: Duration,
    /// The length of its lease.
    pub lease: Duration,
    /// How long ago it has registered.
    pub age: Duration,
    /// What it told last.
    pub state: NodeState,
}

impl NodeReport {
    /// Returns whether its lease holds.
    pub fn is_alive(&self) -> bool {
        self.silent < self.lease
    }

    /// Returns whether both serve under one name: each was heard after the other has registered. A process that had ended
    /// before another took its name was not, though its lease may hold; and one that hands over to its successor drains.
    pub fn is_namesake_of(&self, other: &Self) -> bool {
        let serves = |node: &Self| node.is_alive() && !node.state.is_draining;
        let is_other = self.epoch != other.epoch && self.name == other.name;
        is_other && serves(self) && serves(other) && self.silent < other.age && other.silent < self.age
    }
}

/// What becomes of a claim to places.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Taking {
    /// The places are taken.
    Taken,
    /// None is taken: the claim of this index finds all places taken.
    Full(usize),
    /// The epoch holds no more, and nothing was written.
    Fenced,
    /// The database has crashed, and nodes register with the sessions that they have; nothing was written.
    Closed,
}

/// What becomes of a write under an epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Renewal {
    /// It is done.
    Kept,
    /// The epoch holds no more, and nothing was written.
    Fenced,
}

/// What becomes of a share of a tree that is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Told {
    /// It is known; and how the tree is.
    Known(TreeState),
    /// It had ended, as the node was taken for dead; nothing was written.
    Ended,
    /// The epoch holds no more, and nothing was written.
    Fenced,
}

/// What becomes of a lock of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Locking {
    /// The node has it.
    Locked,
    /// Another has it.
    Busy,
    /// The epoch holds no more, and nothing was written.
    Fenced,
}

/// A ban that nodes share: of a network, or of one user there.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SharedBan {
    /// Where it holds.
    pub network: Network,
    /// The user; `None` where the whole network is banned.
    pub user: Option<Vec<u8>>,
}

/// A change of bans.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BanChange {
    /// It holds for so long, or until it is lifted.
    Banned(SharedBan, Option<Duration>),
    /// It was lifted.
    Lifted(SharedBan),
}

/// Changes of bans since an edition.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pulled {
    /// In their order.
    pub changes: Vec<BanChange>,
    /// The edition after them.
    pub edition: i64,
}

/// Up to where a node has read what others have told of failed logins, and of familiar networks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FailureEditions {
    /// Of tallies.
    pub tallies: i64,
    /// Of familiar networks.
    pub familiar: i64,
}

/// What other nodes have told of failed logins.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PulledFailures {
    /// In their order. What has faded since they were told is no longer in them.
    pub tallies: Vec<FailureTally>,
    /// Networks from which users have logged in.
    pub familiar: Vec<FamiliarNetwork>,
    /// The editions after them.
    pub editions: FailureEditions,
}

/// Which of what a process tells of its users' transfers it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TrafficTurn {
    /// Under which it is told.
    pub epoch: Epoch,
    /// The number of the process, drawn at random.
    pub origin: i64,
    /// Its number, which grows by one.
    pub number: i64,
}

/// The tables of a cluster.
pub trait Table: DavTable + LimitTable + TokenTable + UploadTable + Debug + Send + Sync {
    /// Registers a node with the places that it has, whatever the limits are, and returns its epoch. The registration that
    /// it `replaces` ends in the same step.
    fn register(
        &self,
        node: &NodeEntry,
        replaces: Option<Epoch>,
        places: &[(SharedScope, u64)],
    ) -> Result<Epoch, TableError>;

    /// Renews the lease, tells how the node is, gives `freed` places back, and ends the registrations of nodes that have
    /// been silent for longer than their leases.
    fn renew(
        &self,
        epoch: Epoch,
        state: NodeState,
        freed: &[(SharedScope, u64)],
    ) -> Result<Renewal, TableError>;

    /// Takes a place in each scope, or in none. One question.
    fn take(&self, epoch: Epoch, claims: &[Claim]) -> Result<Taking, TableError>;

    /// Ends a registration.
    fn leave(&self, epoch: Epoch) -> Result<(), TableError>;

    /// Lists the nodes, in the order in which they have registered.
    fn nodes(&self, by: Asker) -> Result<Vec<NodeReport>, TableError>;

    /// Returns the changes of bans since an edition; all that hold, and what was lifted lately, since edition 0.
    fn pull_bans(&self, since: i64) -> Result<Pulled, TableError>;

    /// Writes changes of bans.
    fn push_bans(&self, epoch: Epoch, changes: &[BanChange]) -> Result<Renewal, TableError>;

    /// Returns what other processes than this one have told of failed logins since then, in part where it is much. `origin` is the
    /// first registration of this process.
    fn pull_failures(&self, origin: Epoch, since: FailureEditions) -> Result<PulledFailures, TableError>;

    /// Tells of failed logins, and of networks from which users have logged in.
    fn push_failures(
        &self,
        epoch: Epoch,
        origin: Epoch,
        tallies: &[FailureTally],
        familiar: &[FamiliarNetwork],
    ) -> Result<Renewal, TableError>;

    /// Tells of logins for their rates.
    fn push_logins(&self, epoch: Epoch, tallies: &[LoginTally]) -> Result<Renewal, TableError>;

    /// Returns of what logins all nodes have told since this edition, in part where it is much, and the edition after it.
    fn pull_logins(&self, since: i64) -> Result<(Vec<LoginTally>, i64), TableError>;

    /// Returns the secrets that all nodes share, and how old they are; before that, makes `fresh` one of them if it is time.
    fn secrets(
        &self,
        epoch: Epoch,
        fresh: Option<&[u8; 32]>,
    ) -> Result<Vec<([u8; 32], Duration)>, TableError>;

    /// Keeps the login of a browser, by a hash of what the browser shows. False: it has ended since it has begun.
    fn keep_login(
        &self,
        hash: &str,
        login: &BrowserLogin,
        lifetime: LoginLifetime,
    ) -> Result<bool, TableError>;

    /// Returns the login of a hash that has not ended, and notes its use.
    fn find_login(
        &self,
        hash: &str,
        lifetime: LoginLifetime,
        usage: LoginUse,
    ) -> Result<Option<BrowserLogin>, TableError>;

    /// Ends logins of browsers that had begun so long ago, also those that are told later.
    fn end_logins(&self, end: &LoginEnd, ago: Duration, lifetime: LoginLifetime) -> Result<(), TableError>;

    /// Tells this node's share of a tree, and asks for more room. Telling it twice is telling it once.
    fn tell_share(
        &self,
        epoch: Epoch,
        tree: &str,
        telling: Telling,
        wish: Option<Wish>,
    ) -> Result<Told, TableError>;

    /// Locks a name of a tree, by this number, which no other lock of the node has.
    fn lock_name(&self, epoch: Epoch, tree: &str, name: &[u8], number: u64) -> Result<Locking, TableError>;

    /// Ends locks of names.
    fn unlock_names(&self, epoch: Epoch, numbers: &[u64]) -> Result<(), TableError>;

    /// A walk has found so many bytes and files, which began after so many changes of the tree. Returns whether it counts:
    /// not where the tree has been changed since, or may have been.
    fn count_tree(
        &self,
        epoch: Epoch,
        tree: &str,
        found: (u64, u64),
        changes: u64,
    ) -> Result<bool, TableError>;

    /// Tells how much of each rate this node needs, and returns the part of each that it has from now on: no more than what the
    /// other nodes have left. `None` where the epoch holds no more.
    fn share_rates(&self, epoch: Epoch, demands: &[RateDemand]) -> Result<Option<Vec<u64>>, TableError>;

    /// Tells what users have moved, in the order of their names, and returns what was told of each by all nodes, with the room that
    /// this one has from now on. Telling it twice is telling it once. `None` where the epoch holds no more.
    fn share_traffic(
        &self,
        turn: TrafficTurn,
        told: &[TrafficTelling],
    ) -> Result<Option<Vec<TrafficAnswer>>, TableError>;

    /// Tells where this node takes data connections of its sessions, and returns where the others do, the newest node first.
    fn share_data_route(&self, epoch: Epoch, own: &DataRoute) -> Result<Vec<DataRoute>, TableError>;

    /// Sends an errand to the other nodes that are alive, or to one of them. Returns its number for each, with whose it is.
    fn send_errand(
        &self,
        epoch: Epoch,
        errand: &str,
        only: Option<Epoch>,
    ) -> Result<Vec<(i64, Epoch, String)>, TableError>;

    /// Takes the errands of this node, each once.
    fn take_errands(&self, epoch: Epoch) -> Result<Vec<(i64, String)>, TableError>;

    /// Answers an errand.
    fn answer_errand(&self, number: i64, answer: &str) -> Result<(), TableError>;

    /// Returns the answers to these errands, as far as they are there.
    fn answers(&self, numbers: &[i64]) -> Result<Vec<(i64, String)>, TableError>;

    /// Forgets errands, and those that nodes have forgotten to.
    fn end_errands(&self, numbers: &[i64]) -> Result<(), TableError>;

    /// Returns the trees that were first counted since this edition, and the edition after them.
    fn pull_trees(&self, since: i64) -> Result<(Vec<String>, i64), TableError>;
}
