//! A simulated world: the server without its threads, its clients, and a clock that only the scheduler moves.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use millrace_ftp::session::Now;
use millrace_runtime::clock::Clock;
use millrace_runtime::worker::Turns;

use super::accounts::SimulatedAccounts;
use super::client::{LEASE, Manners, SimulatedClient, Surroundings};
use super::draw::Draw;
use super::files::SimulatedFiles;
use super::hooks::SimulatedHooks;
use super::invariants::Invariants;
use super::panics;
use super::sockets::SimulatedPorts;
use super::strangers::Strangers;
use super::violation::Violation;
use super::visitor::Visitor;
use crate::auth::Account;
use crate::blocking::BlockingPool;
use crate::config::Config;
use crate::limits::{AccountLimits, Limit, Limits, ServerLimits};
use crate::log::LogFormat;
use crate::running::assembling::{Machine, state};
use crate::state::ServerState;
use crate::vfs::{Permissions, Timestamp};
use crate::worker::{Core, Door, Worker, worker};

/// The address that clients connect to.
const SERVER: SocketAddr = SocketAddr::new(IpAddr::V4(std::net::Ipv4Addr::new(198, 51, 100, 1)), 21);

/// The same for HTTP.
const WEB_SERVER: SocketAddr = SocketAddr::new(SERVER.ip(), 80);

/// 2026-01-01
const BEGIN: i64 = 1_767_225_600;

/// Everything of one seed.
pub(super) struct World {
    pub(super) draw: Draw,
    now: Arc<Mutex<Now>>,
    worker: Worker,
    turns: Turns<Core>,
    pub(super) state: ServerState,
    pools: Arc<Mutex<Vec<BlockingPool>>>,
    pub(super) ports: Arc<SimulatedPorts>,
    pub(super) hooks: Arc<SimulatedHooks>,
    pub(super) clients: Vec<SimulatedClient>,
    pub(super) visitors: Vec<Visitor>,
    strangers: Strangers,
    pub(super) settings: Drawn,
    invariants: Invariants,
    /// Nothing new is begun.
    ends: bool,
    /// The server accepts no more clients.
    is_closing: bool,
    /// What happened, if that is wanted.
    trace: Option<Vec<String>>,
}

/// The limits of a server, as they were drawn.
#[derive(Debug, Clone, Copy)]
pub(super) struct Drawn {
    pub(super) ports: u16,
    pub(super) sessions: u64,
    pub(super) sessions_per_address: u64,
    pub(super) sessions_per_user: u64,
    /// Bytes a second to all clients together, and from them; 0 for no limit.
    pub(super) rate: u64,
}

impl Drawn {
    fn new(draw: &Draw) -> Self {
        Self {
            ports: draw.one_of(&[1, 2, 3, 8]),
            sessions: draw.one_of(&[2, 4, 10, 10]),
            sessions_per_address: draw.one_of(&[1, 2, 10, 10]),
            sessions_per_user: draw.one_of(&[1, 2, 10, 10]),
            rate: draw.one_of(&[0, 0, 20_000, 100_000]),
        }
    }

    fn config(self, accounts: SimulatedAccounts, draw: &Draw) -> Config {
        let rate = (self.rate > 0).then(|| Limit::of(self.rate));
        let server = Limits { download: rate.clone(), upload: rate, sessions: None };
        let user = Limits { sessions: Some(Limit::of(self.sessions_per_user)), ..Limits::default() };
        Config {
            ftp: vec![SERVER],
            http: vec![WEB_SERVER],
            passive_ports: 50_000..=50_000 + self.ports - 1,
            workers: 1,
            sessions: Limit::of(self.sessions),
            sessions_per_address: Some(Limit::of(self.sessions_per_address)),
            limits: ServerLimits { server, user, ..ServerLimits::default() },
            login_timeout: Duration::from_secs(20),
            idle_timeout: Duration::from_secs(30),
            connect_timeout: LEASE,
            stall_timeout: Duration::from_secs(10),
            coalesce: draw.chance(50),
            log: LogFormat::Off,
            ..Config::new(Arc::new(accounts))
        }
    }
}

impl World {
    pub(super) fn new(seed: u64, is_traced: bool) -> Self {
        let draw = Draw::new(seed);
        // Far ahead of the system's clock, so that what looks at that sees no time pass.
        let instant = Instant::now() + Duration::from_secs(86_400);
        let wall = Timestamp { seconds: BEGIN, nanoseconds: 0 };
        let now = Arc::new(Mutex::new(Now { instant, wall }));
        let ports = Arc::new(SimulatedPorts::new(draw.clone()));
        let pools = Arc::new(Mutex::new(Vec::new()));
        let made = Arc::clone(&pools);
        let machine = Machine {
            clock: Clock::Set(Arc::clone(&now)),
            pool: Box::new(move |_| {
                let pool = BlockingPool::without_threads();
                made.lock().unwrap_or_else(PoisonError::into_inner).push(pool.clone());
                pool
            }),
            data_sockets: Arc::clone(&ports) as _,
        };
        let settings = Drawn::new(&draw);
        let users = ["ann", "bob"].map(|name| (name, files(name, &draw)));
        let accounts = users.clone().map(|(name, files)| (name, account(files)));
        let accounts = SimulatedAccounts { users: accounts.into(), draw: draw.clone() };
        let config = settings.config(accounts, &draw);
        let bound = [vec![SERVER], Vec::new(), vec![WEB_SERVER], Vec::new()];
        let state = state(config, &bound, 1 << 16, &machine).expect("nothing of the system is needed");
        let hooks = Arc::new(SimulatedHooks::new(&draw));
        if draw.chance(60) {
            state.policy.replace_hooks(Some(Arc::clone(&hooks) as _));
        }
        let (worker, _) = worker(&state.shared, Vec::new()).expect("descriptors are left");
        let (clients, visitors) = (clients(&draw, &users, instant), visitors(&draw, &users));
        Self {
            draw,
            now,
            worker,
            turns: Turns::default(),
            state,
            pools,
            ports,
            hooks,
            clients,
            visitors,
            strangers: Strangers::default(),
            settings,
            invariants: Invariants::new(settings.rate, instant),
            ends: false,
            is_closing: false,
            trace: is_traced.then(Vec::new),
        }
    }

    /// Runs the world to its end.
    pub(super) fn run(&mut self) -> Result<(), Violation> {
        self.note(|world| format!("{:?}", world.settings));
        let steps = self.draw.between(60, 400);
        let shutdown = self.draw.chance(15).then(|| self.draw.below(steps));
        for step in 0..steps {
            if shutdown == Some(step) {
                self.shut_down();
            }
            self.step()?;
            self.check()?;
        }
        self.end()
    }

    /// The server begins to close: what is under way has ten seconds.
    fn shut_down(&mut self) {
        self.note(|_| "the server begins to close".to_owned());
        self.worker.shut_down(self.now() + Duration::from_secs(10));
        self.is_closing = true;
    }

    /// Returns what happened.
    pub(super) fn trace(&self) -> String {
        self.trace.iter().flatten().fold(String::new(), |text, line| text + line + "\n")
    }

    fn note(&mut self, text: impl FnOnce(&Self) -> String) {
        if self.trace.is_some() {
            let text = text(self);
            let passed = self.now().saturating_duration_since(self.invariants.begin);
            let line = format!("{:>10.3} s  {text}", passed.as_secs_f64());
            self.trace.get_or_insert_default().push(line);
        }
    }

    pub(super) fn now(&self) -> Instant {
        self.now.lock().unwrap_or_else(PoisonError::into_inner).instant
    }

    /// One thing happens.
    fn step(&mut self) -> Result<(), Violation> {
        match self.draw.below(20) {
            0..=10 => self.let_client_act(),
            11..=15 => self.turn(),
            16..=18 => {
                self.run_job();
                Ok(())
            }
            _ => {
                self.pass_time();
                Ok(())
            }
        }
    }

    fn let_client_act(&mut self) -> Result<(), Violation> {
        if self.draw.chance(2) {
            let done = self.strangers.act(&self.draw, &self.ports, self.settings.ports)?;
            self.note(|_| format!("a stranger {done}"));
            return Ok(());
        }
        match self.draw.below(self.clients.len() + self.visitors.len()) {
            visitor if visitor >= self.clients.len() => self.visit(visitor - self.clients.len()),
            client => self.act(client),
        }
    }

    fn visit(&mut self, chosen: usize) -> Result<(), Violation> {
        let around = self.surroundings();
        let visitor = &mut self.visitors[chosen];
        if visitor.socket.is_none() {
            if visitor.visits > 0 && !self.ends && !self.is_closing {
                let (socket, address) = (visitor.connect(), visitor.address);
                self.note(|_| format!("visitor {chosen} connects from {address}"));
                self.worker.serve_accepted(socket, address, WEB_SERVER, Door::Http);
            }
            return Ok(());
        }
        let done = visitor.act(&around)?;
        self.note(|_| format!("visitor {chosen} {done}"));
        Ok(())
    }

    fn surroundings(&self) -> Surroundings {
        let has_hooks = self.state.hooks().is_some();
        Surroundings {
            draw: self.draw.clone(),
            ports: Arc::clone(&self.ports),
            now: self.now(),
            ends_politely: self.ends,
            refusals_undo: !has_hooks || self.hooks.looks_first(),
            may_be_cut: has_hooks && self.is_closing,
        }
    }

    fn act(&mut self, chosen: usize) -> Result<(), Violation> {
        let around = self.surroundings();
        let client = &mut self.clients[chosen];
        if client.control.is_none() {
            if client.visits > 0 && !self.ends && !self.is_closing {
                let (socket, address) = (client.connect(), client.address);
                self.note(|_| format!("client {chosen} connects from {address}"));
                self.worker.serve_accepted(socket, address, SERVER, Door::Ftp);
            }
            return Ok(());
        }
        let (before, was_connected) = (client.port, client.is_connected_for_data());
        let done = client.act(&around)?;
        let connects = client.port.is_some() && !was_connected && client.is_connected_for_data();
        let address = client.address.ip();
        if connects {
            let others = self.clients.iter_mut().filter(|other| other.name != chosen);
            for other in others.filter(|other| other.address.ip() == address) {
                other.errand.iter_mut().for_each(|errand| errand.may_be_taken |= !errand.is_connected());
            }
        }
        let client = &self.clients[chosen];
        if client.port != before {
            self.invariants.port_was_given(&self.clients, chosen, around.now)?;
        }
        self.note(|_| format!("client {chosen} {done}"));
        Ok(())
    }

    /// The worker serves what has come.
    fn turn(&mut self) -> Result<(), Violation> {
        self.note(|_| "the worker has a turn".to_owned());
        let goes_on = self.worker.turn(&mut self.turns, Some(Duration::ZERO));
        match goes_on {
            // It has no connection any more, or its time is over.
            Ok(false) if self.is_closing => {
                self.worker.end_clients();
                Ok(())
            }
            Ok(true) => panics::taken().map_or(Ok(()), |panic| Err(Violation(panic))),
            ended => Err(Violation(format!("the worker has ended: {ended:?}"))),
        }
    }

    /// Runs a job of a pool. Returns whether there was one.
    fn run_job(&mut self) -> bool {
        let pools = self.pools.lock().unwrap_or_else(PoisonError::into_inner);
        let busy: Vec<_> = pools.iter().filter(|pool| pool.waiting() > 0).cloned().collect();
        drop(pools);
        let Some(pool) = busy.get(self.draw.below(busy.len())) else { return false };
        let place = self.draw.below(pool.waiting());
        self.note(|_| format!("a pool does its job {place}"));
        pool.run_waiting(place)
    }

    fn pass_time(&mut self) {
        let short = Duration::from_millis(self.draw.below(300) as u64);
        let (chance, now) = (self.draw.below(50), self.now());
        let passes = match (chance, self.worker.due()) {
            (0, _) => Duration::from_secs(self.draw.below(40) as u64),
            (1..=4, Some(due)) => due.saturating_duration_since(now),
            _ => short,
        };
        self.advance(passes);
    }

    fn advance(&mut self, by: Duration) {
        let mut now = self.now.lock().unwrap_or_else(PoisonError::into_inner);
        now.instant += by;
        let wall = Duration::new(now.wall.seconds as u64, now.wall.nanoseconds) + by;
        now.wall = Timestamp { seconds: wall.as_secs() as i64, nanoseconds: wall.subsec_nanos() };
        drop(now);
        self.note(|_| format!("{} ms pass", by.as_millis()));
    }

    fn check(&mut self) -> Result<(), Violation> {
        let now = self.now();
        if self.ports.has_bounced() {
            return Err(Violation(
                "the server has connected to an address that no client may name".to_owned(),
            ));
        }
        self.invariants.check(&self.state, &self.clients, &self.settings, now)
    }

    /// Lets everything come to its end, and looks whether nothing is left.
    fn end(&mut self) -> Result<(), Violation> {
        self.draw.end_faults();
        self.ends = true;
        self.note(|_| "the end begins: nothing fails any more, and clients leave".to_owned());
        if self.draw.chance(30) {
            return self.fall_silent();
        }
        for _ in 0..3000 {
            let mut sockets = self.clients.iter().map(|client| &client.control);
            if sockets.all(Option::is_none) && self.visitors.iter().all(|visitor| visitor.socket.is_none()) {
                return self.end_connections();
            }
            for client in 0..self.clients.len() {
                self.act(client)?;
            }
            for visitor in 0..self.visitors.len() {
                self.visit(visitor)?;
            }
            self.settle()?;
        }
        let left = self.clients.iter().find(|client| client.control.is_some());
        let left = left.map_or_else(
            || "a visitor".to_owned(),
            |client| format!("client {}: {:?}", client.name, client.conversation),
        );
        Err(Violation(format!("{left} never came to its end")))
    }

    /// No client does anything any more: deadlines end every session.
    fn fall_silent(&mut self) -> Result<(), Violation> {
        self.note(|_| "all clients fall silent".to_owned());
        for _ in 0..1000 {
            self.settle()?;
            if self.worker.keys().is_empty() {
                self.clients.iter_mut().for_each(SimulatedClient::leave);
                self.visitors.iter_mut().for_each(|visitor| visitor.socket = None);
                return self.end_connections();
            }
            let due = self.worker.due().map(|due| due.saturating_duration_since(self.now()));
            self.advance(due.unwrap_or(Duration::from_secs(1)));
        }
        Err(Violation(format!("{} sessions of silent clients never end", self.worker.keys().len())))
    }

    /// Jobs are done, the worker has its turn, and a little time passes.
    fn settle(&mut self) -> Result<(), Violation> {
        if (0..1000).all(|_| self.run_job()) {
            return Err(Violation("jobs of the pools never end".to_owned()));
        }
        self.turn()?;
        self.check()?;
        self.advance(Duration::from_millis(100));
        Ok(())
    }

    fn end_connections(&mut self) -> Result<(), Violation> {
        for _ in 0..1000 {
            if self.worker.keys().is_empty() && !self.run_job() {
                return self.look_for_rests();
            }
            self.settle()?;
        }
        Err(Violation(format!("{} connections never ended", self.worker.keys().len())))
    }

    /// All clients have gone: whatever they held is free.
    fn look_for_rests(&mut self) -> Result<(), Violation> {
        self.turn()?;
        self.invariants.nothing_is_left(self)?;
        if self.is_closing { Ok(()) } else { self.every_place_is_free() }
    }

    /// As many clients as may connect do, and are greeted.
    fn every_place_is_free(&mut self) -> Result<(), Violation> {
        self.state.policy.replace_hooks(None);
        let visitors = self.visitors.iter().map(|visitor| visitor.address.ip());
        let mut addresses: Vec<_> =
            self.clients.iter().map(|client| client.address.ip()).chain(visitors).collect();
        addresses.sort_unstable();
        addresses.dedup();
        let each = self.settings.sessions_per_address.min(self.settings.sessions);
        for address in addresses {
            let mut sockets: Vec<OwnedFd> = Vec::new();
            for port in 0..each {
                let (client, server) = super::sockets::control_connection().expect("descriptors are left");
                let from = SocketAddr::new(address, 1000 + port as u16);
                self.worker.serve_accepted(server, from, SERVER, Door::Ftp);
                sockets.push(client);
            }
            self.turn()?;
            for socket in &sockets {
                let mut reply = [0; 3];
                let heard = millrace_net::stream::read(socket, &mut reply);
                if heard.is_err() || reply != *b"220" {
                    let code = String::from_utf8_lossy(&reply).into_owned();
                    return Err(Violation(format!("a place of {address} is not free again: {code}")));
                }
            }
            drop(sockets);
            for _ in 0..3 {
                self.turn()?;
            }
        }
        Ok(())
    }
}

fn account(files: SimulatedFiles) -> Account {
    let limits = Some(Arc::new(AccountLimits::default()));
    Account { limits, ..Account::new(Arc::new(files), Permissions::READ_WRITE) }
}

fn files(user: &str, draw: &Draw) -> SimulatedFiles {
    let files = SimulatedFiles::new(draw);
    for (path, length) in [("/small", 900), ("/large", 60_000)] {
        let line = format!("{path} of {user};");
        files.insert(path, line.bytes().cycle().take(length).collect());
    }
    files
}

fn clients(draw: &Draw, users: &[(&'static str, SimulatedFiles)], now: Instant) -> Vec<SimulatedClient> {
    let shares_addresses = draw.chance(40);
    let client = |name: usize| {
        let host = if shares_addresses { draw.between(1, 2) } else { name + 1 };
        let address = SocketAddr::from(([192, 0, 2, host as u8], 40_000 + name as u16));
        let user = users[draw.below(users.len())].clone();
        SimulatedClient::new(name, address, user, manners(draw), now)
    };
    (0..draw.between(2, 5)).map(client).collect()
}

fn visitors(draw: &Draw, users: &[(&'static str, SimulatedFiles)]) -> Vec<Visitor> {
    let visitor = |name: usize| {
        // Passwords in clear are taken by HTTP from this machine only.
        let address = SocketAddr::from(([127, 0, 0, 1 + name as u8], 45_000 + name as u16));
        let user = users[draw.below(users.len())].clone();
        Visitor::new(name, address, user, manners(draw))
    };
    (0..draw.below(3)).map(visitor).collect()
}

fn manners(draw: &Draw) -> Manners {
    match draw.below(3) {
        0 => Manners { pipelines: 0, cuts: 0, dawdles: 0, interrupts: 3 },
        1 => Manners { pipelines: 30, cuts: 1, dawdles: 20, interrupts: 15 },
        _ => Manners { pipelines: 60, cuts: 3, dawdles: 60, interrupts: 30 },
    }
}
