//! The thread of the relay: listens at the ports of other nodes and at the data address of this one, and moves what has come there.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use millrace_cluster::DataRoute;
use millrace_net::inbox::{Inbox, Sender, inbox};
use millrace_net::relay::Pipes;
use millrace_net::{listener, stream};
use millrace_runtime::proxies::Proxies;
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};

use super::foreign_ports::ForeignPorts;
use super::handing_on::{Places, Relay, Scene, Step};
use super::taking_in::{Arrival, Incoming};
use super::{RelayCounts, RelayParts, TAKEN, Warn};
use crate::passive::PassivePool;

/// How often it looks what has waited for too long.
const TICK: Duration = Duration::from_secs(1);

/// Connections at the data address whose header has not come. The oldest makes room for a new one.
const INCOMING: usize = 256;

/// How long a trouble is told of once, as there may be one with each connection.
const QUIET: Duration = Duration::from_secs(60);

/// What another thread wants.
#[derive(Debug)]
pub(super) enum Order {
    /// These are the other nodes.
    Follow(Vec<DataRoute>),
    /// Listen for others no more.
    Retire,
    /// End what is handed on at that time.
    EndBy(Instant),
    /// End, when all that is handed on has ended.
    Finish,
}

/// What a token is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// 0: the inbox; 1: the data address.
    Own = 0,
    Foreign = 1,
    Relay = 2,
    Incoming = 3,
}

/// The token of this number among its kind.
pub(super) fn token(kind: Kind, number: usize) -> Token {
    Token(number << 2 | kind as usize)
}

/// What the operator is told about.
#[derive(Debug, Clone, Copy)]
pub(super) enum About {
    Nodes = 0,
    Strangers = 1,
    Clients = 2,
}

/// The data address among the tokens.
const ENTRANCE: usize = 1;

/// The thread's state.
pub(super) struct Reactor {
    poll: Poll,
    inbox: Inbox<Order>,
    entrance: OwnedFd,
    own: DataRoute,
    foreign: ForeignPorts,
    relays: HashMap<usize, Relay>,
    incoming: BTreeMap<usize, Incoming>,
    /// Relays that have more to do.
    line: VecDeque<usize>,
    /// The number of the next connection of either kind.
    next: usize,
    pipes: Pipes,
    pool: PassivePool,
    proxies: Arc<Proxies>,
    warn: Warn,
    /// How many connections may be handed on at once.
    most: usize,
    counts: Arc<RelayCounts>,
    /// When what is handed on ends; `None`: with its transfers.
    end: Option<Instant>,
    is_finishing: bool,
    /// Until when a trouble of each kind is not told of.
    quiet_until: [Instant; 3],
}

impl Reactor {
    pub(super) fn new(
        entrance: OwnedFd,
        own: DataRoute,
        parts: RelayParts,
    ) -> io::Result<(Sender<Order>, Self)> {
        let poll = Poll::new()?;
        let (sender, inbox) = inbox(poll.registry(), token(Kind::Own, 0))?;
        let source = entrance.as_raw_fd();
        poll.registry().register(&mut SourceFd(&source), token(Kind::Own, ENTRANCE), Interest::READABLE)?;
        let RelayParts { places, doors, pool, proxies, warn, limits, .. } = parts;
        let foreign = ForeignPorts::new(places, doors, &own, limits.ports);
        let (relays, incoming, line, pipes) = Default::default();
        let reactor = Self {
            poll,
            inbox,
            entrance,
            own,
            foreign,
            relays,
            incoming,
            line,
            next: 0,
            pipes,
            pool,
            proxies,
            warn,
            most: limits.connections,
            counts: Arc::default(),
            end: None,
            is_finishing: false,
            quiet_until: [Instant::now(); 3],
        };
        Ok((sender, reactor))
    }

    pub(super) fn counts(&self) -> Arc<RelayCounts> {
        Arc::clone(&self.counts)
    }

    /// Serves until it is finished.
    pub(super) fn run(mut self) {
        let mut events = Events::with_capacity(256);
        let mut tick = Instant::now();
        while !self.is_over(Instant::now()) {
            let is_idle = self.relays.is_empty() && self.incoming.is_empty();
            let pause = match self.line.is_empty() {
                false => Some(Duration::ZERO),
                true => Some(TICK).filter(|_| !is_idle),
            };
            if let Err(error) = self.poll.poll(&mut events, pause)
                && error.kind() != io::ErrorKind::Interrupted
            {
                (self.warn)(&format!("data connections are no longer handed on: {error}"));
                return;
            }
            for event in &events {
                self.event(event.token());
            }
            for _ in 0..self.line.len() {
                self.line.pop_front().into_iter().for_each(|number| self.advance(number));
            }
            let now = Instant::now();
            if now.saturating_duration_since(tick) >= TICK {
                tick = now;
                self.end_overdue(now);
            }
        }
        self.relays.values_mut().for_each(|relay| {
            relay.break_off();
        });
    }

    fn is_over(&self, now: Instant) -> bool {
        self.is_finishing && (self.relays.is_empty() || self.end.is_some_and(|end| now >= end))
    }

    fn event(&mut self, Token(token): Token) {
        let number = token >> 2;
        match token & 3 {
            0 if number == ENTRANCE => self.take_in(),
            0 => self.perform_orders(),
            1 => self.accept_for_another(number),
            2 => self.advance(number),
            _ => self.advance_incoming(number),
        }
    }

    fn perform_orders(&mut self) {
        let mut orders = Vec::new();
        self.inbox.take(&mut orders);
        for order in orders {
            match order {
                Order::Follow(routes) => {
                    let trouble = self.foreign.follow(routes, Instant::now(), self.poll.registry());
                    trouble.iter().for_each(|text| (self.warn)(text));
                }
                Order::Retire => self.leave_to_others(),
                Order::EndBy(end) => self.end = Some(end),
                Order::Finish => {
                    self.leave_to_others();
                    self.is_finishing = true;
                }
            }
        }
    }

    /// Listens for other nodes no more. What has come by now is handed on.
    fn leave_to_others(&mut self) {
        self.foreign.numbers().into_iter().for_each(|number| self.accept_for_another(number));
        self.foreign.close();
    }

    /// Accepts what clients have connected to a port of another node.
    fn accept_for_another(&mut self, number: usize) {
        let mut accepted = Vec::new();
        let Some((port, listener)) = self.foreign.listener(number) else { return };
        while let Ok(connection) = listener::accept(listener) {
            accepted.push(connection);
        }
        for (client, peer) in accepted {
            let owners = self.foreign.owners(port);
            self.hand_on(client, peer, owners);
        }
    }

    fn hand_on(&mut self, client: OwnedFd, peer: SocketAddr, owners: Vec<DataRoute>) {
        let local = listener::local_address(&client);
        let (Ok(local), false) = (local, self.relays.len() >= self.most) else {
            stream::reset_on_close(&client);
            self.counts.refused.fetch_add(1, Relaxed);
            self.tell(
                About::Clients,
                &format!("more than {} data connections of other nodes have come", self.most),
            );
            return;
        };
        let is_named = self.proxies.include(peer.ip());
        let number = self.next_number();
        let relay = self.with_scene(|scene| {
            Relay::new(token(Kind::Relay, number), (client, peer, local), is_named, owners, scene)
        });
        if let Ok(relay) = relay {
            self.relays.insert(number, relay);
            self.advance(number);
        }
    }

    /// Moves on a connection that is handed on.
    fn advance(&mut self, number: usize) {
        self.step(number, Relay::advance);
    }

    fn step(&mut self, number: usize, act: impl FnOnce(&mut Relay, &mut Scene<'_>) -> Step) {
        let Some(mut relay) = self.relays.remove(&number) else { return };
        let was_taken = relay.is_taken();
        let step = self.with_scene(|scene| act(&mut relay, scene));
        if relay.is_taken() && !was_taken {
            self.counts.taken.fetch_add(1, Relaxed);
        } else if step == Step::Over && !relay.is_taken() {
            self.counts.refused.fetch_add(1, Relaxed);
        }
        match step {
            Step::Over => return,
            Step::Again => self.line.push_back(number),
            Step::Waits => {}
        }
        self.relays.insert(number, relay);
    }

    /// Takes connections of other nodes.
    fn take_in(&mut self) {
        while let Ok((socket, _)) = listener::accept(&self.entrance) {
            let number = self.next_number();
            let source = socket.as_raw_fd();
            let token = token(Kind::Incoming, number);
            if self.poll.registry().register(&mut SourceFd(&source), token, Interest::READABLE).is_err() {
                continue;
            }
            if self.incoming.len() >= INCOMING {
                self.incoming.pop_first();
            }
            let Some(incoming) = Incoming::greet(socket, Instant::now()) else { continue };
            self.incoming.insert(number, incoming);
            self.advance_incoming(number);
        }
    }

    /// Gives a connection of another node to its session, once it has said which that is.
    fn advance_incoming(&mut self, number: usize) {
        let Some(mut incoming) = self.incoming.remove(&number) else { return };
        match incoming.advance(&self.own) {
            Arrival::Waits => {
                self.incoming.insert(number, incoming);
            }
            Arrival::Stranger => {
                let text = "a connection to data-address was closed: no node of the cluster has made it";
                self.tell(About::Strangers, text);
            }
            Arrival::Sealed(ends) => {
                let source = incoming.socket.as_raw_fd();
                // The session's worker watches it from now on.
                if self.poll.registry().deregister(&mut SourceFd(&source)).is_ok() {
                    // Where that fails the error is read with it, and the session would see an end.
                    let greet =
                        |socket: &OwnedFd| stream::write(socket, &[TAKEN]).is_ok_and(|count| count == 1);
                    self.pool.hand_in(incoming.socket, ends.server, ends.client.ip(), greet);
                }
            }
        }
    }

    fn end_overdue(&mut self, now: Instant) {
        self.incoming.retain(|_, incoming| now < incoming.until);
        let overdue = self.relays.iter().filter(|(_, relay)| now >= relay.until);
        let overdue: Vec<usize> = overdue.map(|(number, _)| *number).collect();
        overdue.into_iter().for_each(|number| self.step(number, Relay::overdue));
    }

    fn with_scene<T>(&mut self, act: impl FnOnce(&mut Scene<'_>) -> T) -> T {
        let mut scene = Scene {
            registry: self.poll.registry(),
            pipes: &mut self.pipes,
            now: Instant::now(),
            source: self.own.address.ip(),
            places: Places { others: &self.relays, most: self.most },
            trouble: None,
        };
        let done = act(&mut scene);
        let trouble = scene.trouble;
        trouble.iter().for_each(|(about, text)| self.tell(*about, text));
        done
    }

    /// Tells the operator, but not with each connection.
    fn tell(&mut self, about: About, text: &str) {
        let (now, quiet_until) = (Instant::now(), &mut self.quiet_until[about as usize]);
        if now >= *quiet_until {
            *quiet_until = now + QUIET;
            (self.warn)(text);
        }
    }

    fn next_number(&mut self) -> usize {
        self.next += 1;
        self.next
    }
}
