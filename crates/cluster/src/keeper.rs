//! The keeper: a thread that keeps the lease, gives places back and exchanges bans and failed logins. It alone waits for the
//! database without a client that waits for it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::ban_sync::BanSync;
use crate::errands::Errands;
use crate::failures::FailureSync;
use crate::lease::Duty;
use crate::lock::lock;
use crate::login_rates::LoginSync;
use crate::member::Member;
use crate::namesakes::NamesakeWatch;
use crate::places::{Call, Shared};
use crate::secrets::SecretSync;
use crate::table::{Epoch, Renewal, TableError};
use crate::transfers::TransferSync;

/// How often it looks whether bans have changed here.
const TICK: Duration = Duration::from_millis(250);

/// How often a node that leaves tells what users have moved, at most.
const LAST_TELLINGS: usize = 64;

/// The keeper's part of a node.
pub(crate) struct Keeper {
    shared: Arc<Shared>,
    member: Arc<dyn Member>,
    bans: BanSync,
    failures: FailureSync,
    logins: LoginSync,
    secrets: SecretSync,
    namesakes: NamesakeWatch,
    transfers: TransferSync,
    /// When places are given back next, and bans of others are looked for.
    exchange: Instant,
    /// For which registration bans were exchanged: another one looks at all of them.
    synced: Option<Epoch>,
    /// The last registration, whose shares of trees the next one has.
    last: Option<Epoch>,
    /// Whether the database may have parts of rates for this node.
    has_parts: bool,
    errands: Errands,
    /// What of the steps the operator was told that the database does not do.
    refused: Option<String>,
}

/// When a step is done.
#[derive(Debug, Clone, Copy)]
struct Moment {
    now: Instant,
    /// Whether it is one of exchange.
    is_time: bool,
}

/// One thing that the keeper does.
type Step = fn(&mut Keeper, Moment) -> Result<(), TableError>;

/// What is done besides keeping the lease. The last is the largest question, which may take too long: it comes behind the others.
const STEPS: [Step; 12] = [
    Keeper::exchange_bans,
    Keeper::exchange_trees,
    Keeper::exchange_failures,
    Keeper::exchange_logins,
    Keeper::share_secrets,
    Keeper::exchange_tokens,
    Keeper::learn_limits,
    Keeper::share_rates,
    Keeper::share_data_routes,
    Keeper::perform_errands,
    Keeper::look_for_namesakes,
    Keeper::exchange_transfers,
];

impl Keeper {
    pub(crate) fn new(shared: Arc<Shared>, member: Arc<dyn Member>) -> Self {
        let exchange = Instant::now();
        member.bans().begin_sharing();
        member.logins().share();
        let transfers = TransferSync::new(member.quotas(), &shared);
        Self {
            shared,
            member,
            transfers,
            bans: BanSync::default(),
            failures: FailureSync::default(),
            logins: LoginSync::default(),
            secrets: SecretSync::default(),
            namesakes: NamesakeWatch::default(),
            exchange,
            synced: None,
            last: None,
            has_parts: false,
            errands: Errands::default(),
            refused: None,
        }
    }

    /// Keeps the node a member until it is told to end; then it leaves.
    pub(crate) fn run(mut self) {
        while !self.rest().is_end {
            self.turn(Instant::now());
        }
        let epoch = lock(&self.shared.book).lease.epoch();
        if let Some(epoch) = epoch {
            self.tell_last_transfers(epoch);
            // Otherwise the lease ends by itself.
            let _ = self.shared.table.leave(epoch);
        }
    }

    /// Tells all that users have moved here, as long as there are answers.
    fn tell_last_transfers(&mut self, epoch: Epoch) {
        // The first may be what has had no answer yet.
        for round in 0..LAST_TELLINGS {
            let is_told =
                self.tell_transfers(epoch).is_ok() && lock(&self.shared.book).lease.epoch() == Some(epoch);
            if !is_told || round > 0 && !self.transfers.has_more() {
                return;
            }
        }
    }

    /// Waits for the next tick, or a call.
    fn rest(&self) -> Call {
        let call = lock(&self.shared.call);
        let waits = |call: &mut Call| !call.is_urgent && !call.is_end;
        let waited = self.shared.called.wait_timeout_while(call, TICK, waits);
        let (mut call, _) = waited.unwrap_or_else(std::sync::PoisonError::into_inner);
        let now = *call;
        call.is_urgent = false;
        now
    }

    /// Does what is due.
    pub(crate) fn turn(&mut self, now: Instant) {
        let is_time = now >= self.exchange;
        let duty = lock(&self.shared.book).duty(now, is_time);
        let kept = match duty {
            Duty::Rest => Ok(()),
            Duty::Register(replaces) => self.register(replaces, now),
            Duty::Renew(epoch) => self.renew(epoch, now),
        };
        let trouble = self.take_steps(Moment { now, is_time }, kept.err());
        if is_time {
            SecretSync::forget_old(&self.shared, &*self.member, now);
            self.exchange = now + self.shared.timing.exchange;
        }
        if trouble.is_some() {
            lock(&self.shared.book).lease.put_off(Instant::now());
        }
        let (refusal, silence): (Option<_>, Option<_>) = match trouble {
            Some(error) if error.is_of_one_question() => (Some(error.to_string()), None),
            other => (None, other.map(|error| error.to_string().into())),
        };
        if silence.is_some() || duty != Duty::Rest || refusal.is_some() {
            self.note(silence);
        }
        if refusal.is_some() || is_time {
            self.note_refusal(refusal);
        }
    }

    /// Takes all steps, as long as there are answers: what the database refuses of one is no reason to leave out another.
    fn take_steps(&mut self, moment: Moment, mut trouble: Option<TableError>) -> Option<TableError> {
        let goes_on =
            |trouble: &Option<TableError>| trouble.as_ref().is_none_or(TableError::is_of_one_question);
        for step in STEPS {
            if !goes_on(&trouble) {
                break;
            }
            trouble = step(self, moment).err().or(trouble);
        }
        if !goes_on(&trouble) {
            self.transfers.go_alone();
        }
        trouble
    }

    fn register(&mut self, replaces: Option<Epoch>, now: Instant) -> Result<(), TableError> {
        let places = lock(&self.shared.book).places_to_register();
        let epoch = self.shared.table.register(&self.shared.entry, replaces.or(self.last), &places)?;
        self.last = Some(epoch);
        lock(&self.shared.book).lease.hold(epoch, now);
        Ok(())
    }

    fn renew(&mut self, epoch: Epoch, now: Instant) -> Result<(), TableError> {
        let freed = lock(&self.shared.book).take_freed();
        let renewed = self.shared.table.renew(epoch, self.member.state(), &freed);
        lock(&self.shared.book).renewed(epoch, now, renewed.as_ref().ok().copied());
        if renewed? == Renewal::Kept {
            return Ok(());
        }
        self.member.warn(
            "the registration of this node in the cluster has ended: it was silent for longer than its lease, or the \
             database has crashed; it registers anew, with the sessions that it has",
        );
        self.register(None, Instant::now())
    }

    /// Writes the bans that have changed here, and at the times of exchange takes over those of others.
    fn exchange_bans(&mut self, Moment { is_time, .. }: Moment) -> Result<(), TableError> {
        let Some(epoch) = lock(&self.shared.book).lease.epoch() else { return Ok(()) };
        let bans = self.member.bans();
        // What was lifted elsewhere while this node was away is not to come back by it.
        if is_time || self.synced != Some(epoch) {
            let pulled = self.shared.table.pull_bans(self.bans.edition())?;
            self.bans.adopt(pulled, bans, Instant::now());
            self.synced = Some(epoch);
        }
        let changes = self.bans.changes(bans, Instant::now());
        if changes.is_empty() {
            return Ok(());
        }
        match self.shared.table.push_bans(epoch, &changes)? {
            Renewal::Kept => self.bans.written(&changes, Instant::now()),
            Renewal::Fenced => lock(&self.shared.book).lease.fence(epoch),
        }
        Ok(())
    }

    /// Tells what users have moved here, and learns what they may; at once where a transfer waits for it.
    fn exchange_transfers(&mut self, Moment { is_time, .. }: Moment) -> Result<(), TableError> {
        if !is_time && !self.transfers.is_urgent() {
            return Ok(());
        }
        let epoch = lock(&self.shared.book).lease.epoch();
        match epoch {
            Some(epoch) => self.tell_transfers(epoch).inspect_err(|_| self.transfers.go_alone()),
            None => {
                self.transfers.go_alone();
                Ok(())
            }
        }
    }

    fn tell_transfers(&mut self, epoch: Epoch) -> Result<(), TableError> {
        if self.transfers.exchange(&*self.shared.table, epoch)? == Renewal::Fenced {
            self.transfers.go_alone();
            lock(&self.shared.book).lease.fence(epoch);
        }
        Ok(())
    }

    /// Returns the registration under which something is told, where it is time for that.
    fn tells_under(&self, Moment { is_time, .. }: Moment) -> Option<Epoch> {
        lock(&self.shared.book).lease.epoch().filter(|_| is_time)
    }

    /// Counts failed logins of other nodes here, and tells those of this node.
    fn exchange_failures(&mut self, moment: Moment) -> Result<(), TableError> {
        let Some(epoch) = self.tells_under(moment) else { return Ok(()) };
        let renewal = self.failures.exchange(&*self.shared.table, &*self.member, epoch, Instant::now())?;
        if renewal == Renewal::Fenced {
            lock(&self.shared.book).lease.fence(epoch);
        }
        Ok(())
    }

    /// Tells of logins here, and counts those of other nodes.
    fn exchange_logins(&mut self, moment: Moment) -> Result<(), TableError> {
        let Some(epoch) = self.tells_under(moment) else { return Ok(()) };
        if self.logins.exchange(&*self.shared.table, &*self.member, epoch)? == Renewal::Fenced {
            lock(&self.shared.book).lease.fence(epoch);
        }
        Ok(())
    }

    /// Has the server use the secrets that all nodes have.
    fn share_secrets(&mut self, moment: Moment) -> Result<(), TableError> {
        let Some(epoch) = self.tells_under(moment) else { return Ok(()) };
        self.secrets.turn(&self.shared, &*self.member, epoch, moment.now)
    }

    /// Takes over the tokens of the admin API that all nodes take, and tells those of this node.
    fn exchange_tokens(&mut self, moment: Moment) -> Result<(), TableError> {
        match self.tells_under(moment) {
            Some(_) => self.member.exchange_tokens(&*self.shared.table),
            None => Ok(()),
        }
    }

    /// Has the server use the limits that are set for all nodes.
    fn learn_limits(&mut self, moment: Moment) -> Result<(), TableError> {
        match self.tells_under(moment) {
            Some(_) => self.shared.learn_limits(&*self.member),
            None => Ok(()),
        }
    }

    /// Tells which rates the node needs, all of them, and has it keep to its parts. Without an answer it keeps those that it
    /// has.
    fn share_rates(&mut self, moment: Moment) -> Result<(), TableError> {
        let Some(epoch) = self.tells_under(moment) else { return Ok(()) };
        let demands = self.member.demands();
        if demands.is_empty() && !self.has_parts {
            return Ok(());
        }
        self.has_parts = true;
        if let Some(parts) = self.shared.table.share_rates(epoch, &demands)? {
            self.has_parts = demands.iter().any(|demand| demand.weight > 0);
            let rates = demands.into_iter().map(|demand| demand.rate);
            self.member.grant(&rates.zip(parts).collect::<Vec<_>>());
        }
        Ok(())
    }

    /// Tells where the node takes data connections of its sessions, where it does, and learns where the others do.
    fn share_data_routes(&mut self, moment: Moment) -> Result<(), TableError> {
        let Some(epoch) = self.tells_under(moment) else { return Ok(()) };
        let Some(own) = self.member.data_route() else { return Ok(()) };
        self.member.use_data_routes(self.shared.table.share_data_route(epoch, &own)?);
        Ok(())
    }

    /// Gives locks of names back, tells what came of uploads, and learns of new trees with a quota and of locks of WebDAV.
    fn exchange_trees(&mut self, Moment { is_time, .. }: Moment) -> Result<(), TableError> {
        self.shared.give_locks_back()?;
        if lock(&self.shared.book).lease.epoch().is_some() {
            self.shared.tell_verdicts()?;
        }
        if is_time && self.synced.is_some() {
            self.shared.learn_trees()?;
            self.shared.learn_locks()?;
            self.shared.learn_secret()?;
        }
        Ok(())
    }

    /// Does what other nodes ask for.
    fn perform_errands(&mut self, Moment { is_time, .. }: Moment) -> Result<(), TableError> {
        self.errands.turn(&self.shared, &self.member, is_time)
    }

    /// Tells the operator of another node that serves under the name of this one.
    fn look_for_namesakes(&mut self, moment: Moment) -> Result<(), TableError> {
        let Some(epoch) = self.tells_under(moment) else { return Ok(()) };
        self.namesakes.turn(&*self.shared.table, &*self.member, epoch)
    }

    /// Tells the operator of a step that the database does not do, though it answers.
    fn note_refusal(&mut self, refusal: Option<String>) {
        if let Some(why) = refusal.as_ref().filter(|_| refusal != self.refused) {
            self.member.warn(&format!("{why}; it is tried again, and what does not need it goes on"));
        }
        self.refused = refusal;
    }

    /// Tells the operator when the database goes, and when it is back.
    fn note(&self, trouble: Option<Arc<str>>) {
        let before = std::mem::replace(&mut *lock(&self.shared.trouble), trouble.clone());
        match (before, trouble) {
            (None, Some(why)) => self.member.warn(&format!(
                "{why}; until it answers, logins that need a place in the cluster are refused"
            )),
            (Some(_), None) => self.member.warn("the database of the cluster answers again"),
            _ => {}
        }
    }
}
