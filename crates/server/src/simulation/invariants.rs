//! What must be true of the server after each step, and when all clients have gone.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use super::client::{LEASE, SimulatedClient};
use super::violation::Violation;
use super::world::{Drawn, World};
use crate::hooks::Event;
use crate::limits::Scope;
use crate::passive::{Guest, Leasing};
use crate::state::ServerState;

/// What transfers may be ahead of the rate, in seconds: half a second for one that was held up by its limit alone, and a
/// slice each: a fifth of a second's bytes for the first, half of it for the second, and so on, for seven of them.
const AHEAD: f64 = 0.5 + 0.2 * 2.6;

/// A slice has a kilobyte at least.
const SMALLEST_SLICES: f64 = 7.0 * 1024.0;

/// What was seen so far.
pub(super) struct Invariants {
    pub(super) begin: Instant,
    rate: u64,
    /// How much was sent to each client by now, and how full the bucket is.
    sent: BTreeMap<usize, u64>,
    level: f64,
    last: Instant,
}

impl Invariants {
    pub(super) fn new(rate: u64, now: Instant) -> Self {
        Self { begin: now, rate, sent: BTreeMap::new(), level: 0.0, last: now }
    }

    /// Holds after each step.
    pub(super) fn check(
        &mut self,
        state: &ServerState,
        clients: &[SimulatedClient],
        settings: &Drawn,
        now: Instant,
    ) -> Result<(), Violation> {
        let sessions = state.sessions.count() as u64;
        if sessions > settings.sessions {
            return Err(Violation(format!("{sessions} sessions, of {} at most", settings.sessions)));
        }
        for report in state.limits.report() {
            let is_user = matches!(report.scope, Scope::User(_));
            if is_user && report.sessions as u64 > settings.sessions_per_user {
                return Err(Violation(format!("{} sessions of {}", report.sessions, report.scope)));
            }
        }
        self.downloads_keep_their_rate(clients, now)
    }

    /// What was sent leaks out of a bucket at the rate that is set; the bucket holds no more than its slices.
    fn downloads_keep_their_rate(
        &mut self,
        clients: &[SimulatedClient],
        now: Instant,
    ) -> Result<(), Violation> {
        if self.rate == 0 {
            return Ok(());
        }
        let passed = now.saturating_duration_since(self.last).as_secs_f64();
        self.last = now;
        self.level = (self.level - passed * self.rate as f64).max(0.0);
        for client in clients {
            let Some(errand) = client.errand.as_ref().filter(|errand| errand.is_download()) else {
                self.sent.remove(&client.name);
                continue;
            };
            let sent = errand.moved.len() as u64 + errand.unread();
            let before = self.sent.insert(client.name, sent).unwrap_or(0);
            self.level += sent.saturating_sub(before) as f64;
        }
        match self.level > SMALLEST_SLICES + self.rate as f64 * AHEAD {
            true => Err(Violation(format!("{:.0} bytes ahead of {} a second", self.level, self.rate))),
            false => Ok(()),
        }
    }

    /// A client was given a port: no other one of its address can have it now.
    pub(super) fn port_was_given(
        &self,
        clients: &[SimulatedClient],
        to: usize,
        now: Instant,
    ) -> Result<(), Violation> {
        let own = &clients[to];
        // It may read late of a port that it has given back since.
        let Some(port) = own.port.filter(|port| own.surely_has(*port, now)) else { return Ok(()) };
        let others = clients.iter().filter(|other| other.name != own.name);
        let mut others = others.filter(|other| other.address.ip() == own.address.ip());
        match others.find(|other| other.surely_has(port, now)) {
            Some(other) => {
                Err(Violation(format!("port {port} is client {}'s and client {to}'s", other.name)))
            }
            None => Ok(()),
        }
    }

    /// Holds when all clients have gone.
    pub(super) fn nothing_is_left(&self, world: &World) -> Result<(), Violation> {
        let state = &world.state;
        let sessions = state.sessions.count();
        if sessions > 0 {
            return Err(Violation(format!("{sessions} sessions are counted, of none")));
        }
        if let Some(report) = state.limits.report().into_iter().find(|report| report.sessions > 0) {
            return Err(Violation(format!("{} sessions of {} are counted", report.sessions, report.scope)));
        }
        all_ports_are_free(world)?;
        no_file_is_half(world)?;
        events_are_told(world)
    }
}

/// Every port can be leased to one address at once, whichever that is: a lease that was never given back would keep its
/// own address from one of them.
fn all_ports_are_free(world: &World) -> Result<(), Violation> {
    for client in &world.clients {
        let from = client.address.ip();
        let leases: Vec<_> = (0..world.settings.ports).map(|_| lease(world, from)).collect();
        let granted = leases.iter().filter(|lease| matches!(lease, Leasing::Granted(_))).count();
        if granted < leases.len() {
            return Err(Violation(format!("{from} can have {granted} ports of {}", leases.len())));
        }
    }
    Ok(())
}

fn lease(world: &World, client: IpAddr) -> Leasing {
    let (pool, local) = (&world.state.shared.ftp.passive, IpAddr::from([198, 51, 100, 1]));
    pool.lease(local, Guest { client, badge: None, wake: Arc::new(|| {}) }, Box::new(drop))
}

/// By HTTP a file is whole or not there: of no upload only a part was ever committed.
fn no_file_is_half(world: &World) -> Result<(), Violation> {
    for visitor in &world.visitors {
        for (path, content) in &visitor.begun {
            let head = &content[..content.len().min(40)];
            if visitor.files.journal.any(path, |version| version.starts_with(head) && version != content) {
                return Err(Violation(format!("visitor {}: {path} once was half an upload", visitor.name)));
            }
        }
    }
    Ok(())
}

/// Hooks have heard of everything that they are to hear of.
fn events_are_told(world: &World) -> Result<(), Violation> {
    let hooks = &world.hooks;
    // Of a client that has left already nothing is asked, but its end is told.
    let (connected, disconnected) = (hooks.count(Event::Connect), hooks.count(Event::Disconnect));
    if connected > disconnected {
        return Err(Violation(format!("{connected} clients have come, and {disconnected} gone")));
    }
    if world.state.hooks().is_none() {
        return Ok(());
    }
    let mut acknowledged: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for client in &world.clients {
        for path in &client.acknowledged {
            *acknowledged.entry((client.user, path)).or_default() += 1;
        }
    }
    for visitor in &world.visitors {
        for path in &visitor.acknowledged {
            *acknowledged.entry((visitor.user, path)).or_default() += 1;
        }
    }
    for ((user, path), count) in acknowledged {
        let told = hooks.uploads(user, path);
        if told < count {
            return Err(Violation(format!("{count} uploads of {user} to {path}, and hooks heard of {told}")));
        }
    }
    Ok(())
}

impl SimulatedClient {
    /// Returns whether a port cannot be another's of its address: it was given, and nothing that gives it back was done.
    fn surely_has(&self, port: u16, now: Instant) -> bool {
        self.control.is_some()
            && self.port == Some(port)
            && self.port_is_untouched
            && now < self.asked_for_port + LEASE
    }
}
