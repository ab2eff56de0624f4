//! A data connection that came here and belongs to a session of another node: finds the node that has the session, and passes
//! bytes on.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use millrace_cluster::DataRoute;
use millrace_net::proxy::{self, Ends};
use millrace_net::relay::{Direction, Pipes};
use millrace_net::stream;
use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};

use super::reactor::About;
use super::taking_in::sealed_text;
use super::{TAKEN, read_whole};
use crate::limits::Network;

/// How long a node may take to answer, and the balancer to say whose connection it is.
const PATIENCE: Duration = Duration::from_secs(5);

/// How long nothing may move. The node that has the session ends a stalled transfer much earlier; this is for one that is gone.
const IDLE: Duration = Duration::from_secs(3600);

/// After how long a silence a peer is asked whether it is still there.
const SILENCE: Duration = Duration::from_secs(60);

/// Bytes that are passed on in one turn.
const TURN: usize = 1 << 20;

/// What a connection needs of the reactor.
pub(super) struct Scene<'a> {
    pub(super) registry: &'a Registry,
    pub(super) pipes: &'a mut Pipes,
    pub(super) now: Instant,
    /// From where nodes are connected to.
    pub(super) source: IpAddr,
    /// What else is handed on.
    pub(super) places: Places<'a>,
    /// What went wrong.
    pub(super) trouble: Option<(About, String)>,
}

impl Scene<'_> {
    fn note(&mut self, about: About, text: String) {
        self.trouble.get_or_insert((about, text));
    }
}

/// The places for connections that are handed on.
pub(super) struct Places<'a> {
    /// Those that are taken by others than the one that asks.
    pub(super) others: &'a HashMap<usize, Relay>,
    pub(super) most: usize,
}

impl Places<'_> {
    /// Returns whether another connection of this client may wait for its session. No client has more such connections than
    /// there are places left, so that the next client always finds one.
    fn has_one_for(&self, client: IpAddr) -> bool {
        let network = Network::of_client(client);
        let waiting = self.others.values().filter(|relay| relay.has_no_session_and_is_of(&network)).count();
        waiting < self.most.saturating_sub(self.others.len())
    }
}

/// A data connection, and what has become of it.
#[derive(Debug)]
pub(super) struct Relay {
    token: Token,
    client: OwnedFd,
    /// Its ends; `None` until the balancer has said whose it is.
    ends: Option<Ends>,
    peer: SocketAddr,
    local: SocketAddr,
    /// Nodes that may have the session, and were not asked yet.
    owners: std::vec::IntoIter<DataRoute>,
    stage: Stage,
    pub(super) until: Instant,
}

#[derive(Debug)]
enum Stage {
    /// The header of the balancer has not come, or no node was asked yet.
    Begun,
    /// A node is asked whether it has the session.
    Asking { owner: OwnedFd, route: DataRoute, is_told: bool },
    /// It has.
    Open { owner: OwnedFd, up: Direction, down: Direction },
}

/// How a turn ends.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// The reactor tells when it goes on.
    Waits,
    /// There is more to do.
    Again,
    /// The connection has ended.
    Over,
}

impl Relay {
    /// A connection that was accepted. With `is_named` the peer sends the header of a proxy first.
    pub(super) fn new(
        token: Token,
        (client, peer, local): (OwnedFd, SocketAddr, SocketAddr),
        is_named: bool,
        owners: Vec<DataRoute>,
        scene: &Scene<'_>,
    ) -> io::Result<Self> {
        // Until a direction has ended, the end of this process is none of the transfer: to a server it would look like a whole
        // upload, to a client like a whole file.
        stream::reset_on_close(&client);
        watch(&client, token, scene.registry)?;
        let ends = (!is_named).then_some(Ends { client: peer, server: local });
        let until = scene.now + PATIENCE;
        Ok(Self { token, client, ends, peer, local, owners: owners.into_iter(), stage: Stage::Begun, until })
    }

    /// Returns whether a session of another node has it.
    pub(super) fn is_taken(&self) -> bool {
        matches!(self.stage, Stage::Open { .. })
    }

    /// Returns whether it is of a client in this network, and holds a place without a session: none has taken it yet, or the session
    /// is done with it.
    fn has_no_session_and_is_of(&self, network: &Network) -> bool {
        let has_session = matches!(&self.stage, Stage::Open { down, .. } if !down.has_ended());
        !has_session && self.ends.is_some_and(|ends| network.contains(ends.client.ip()))
    }

    /// Does what can be done now.
    pub(super) fn advance(&mut self, scene: &mut Scene<'_>) -> Step {
        loop {
            let done = match &mut self.stage {
                Stage::Begun => self.begin(scene),
                Stage::Asking { .. } => self.ask(scene),
                Stage::Open { .. } => return self.pass_on(scene),
            };
            match done {
                Some(step) => return step,
                None => continue,
            }
        }
    }

    /// It has waited long enough.
    pub(super) fn overdue(&mut self, scene: &mut Scene<'_>) -> Step {
        match &self.stage {
            Stage::Asking { .. } => match self.ask_next(scene, &io::ErrorKind::TimedOut.into()) {
                Some(step) => step,
                None => self.advance(scene),
            },
            Stage::Begun | Stage::Open { .. } => self.break_off(),
        }
    }

    /// Reads whose it is, and asks the first node.
    fn begin(&mut self, scene: &mut Scene<'_>) -> Option<Step> {
        if self.ends.is_none() {
            let header = match proxy::take(&self.client) {
                Ok(Ok(Some(header))) => header,
                Ok(Ok(None)) => return Some(Step::Waits),
                Ok(Err(_)) | Err(_) => return Some(self.break_off()),
            };
            // The port is the same where a proxy passes it on.
            let client = header.ends.map_or(self.peer, |ends| ends.client);
            self.ends = Some(Ends { client, server: self.local });
        }
        let client = self.ends.map_or(self.peer, |ends| ends.client).ip();
        if !scene.places.has_one_for(client) {
            let text = format!(
                "{client} has as many data connections that wait for sessions at other nodes as there are places left: others are refused"
            );
            scene.note(About::Clients, text);
            return Some(self.break_off());
        }
        self.look_further(scene)
    }

    /// Asks the next node; the last one did not answer, for this reason. `None`: one is asked.
    fn ask_next(&mut self, scene: &mut Scene<'_>, why: &io::Error) -> Option<Step> {
        if let Stage::Asking { route, .. } = &self.stage {
            let (node, address) = (&route.node, route.address);
            let text = format!("a data connection cannot be handed on to node {node} at {address}: {why}");
            scene.note(About::Nodes, text);
        }
        self.look_further(scene)
    }

    fn look_further(&mut self, scene: &mut Scene<'_>) -> Option<Step> {
        for route in self.owners.by_ref() {
            let begun = stream::begin_connect(SocketAddr::new(scene.source, 0), route.address)
                .and_then(|owner| watch(&owner, self.token, scene.registry).map(|()| owner));
            match begun {
                Ok(owner) => {
                    stream::reset_on_close(&owner);
                    self.stage = Stage::Asking { owner, route, is_told: false };
                    self.until = scene.now + PATIENCE;
                    return None;
                }
                Err(error) => {
                    let text = format!("node {} at {} cannot be reached: {error}", route.node, route.address);
                    scene.note(About::Nodes, text);
                }
            }
        }
        Some(self.break_off())
    }

    /// Tells a node what has come for it, and hears whether it takes it.
    fn ask(&mut self, scene: &mut Scene<'_>) -> Option<Step> {
        let (Stage::Asking { owner, route, is_told }, Some(ends)) = (&mut self.stage, &self.ends) else {
            return Some(Step::Over);
        };
        if !*is_told {
            match introduce(owner, route, ends) {
                Ok(true) => *is_told = true,
                Ok(false) => return Some(Step::Waits),
                Err(error) => return self.ask_next(scene, &error),
            }
        }
        let mut answer = [0];
        match stream::read(&*owner, &mut answer) {
            Ok(1) if answer == [TAKEN] => self.open(scene),
            // No session there waits for this client: another process of the node may have it.
            Ok(_) => self.look_further(scene),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Some(Step::Waits),
            Err(error) => self.ask_next(scene, &error),
        }
    }

    fn open(&mut self, scene: &Scene<'_>) -> Option<Step> {
        if let Stage::Asking { owner, .. } = std::mem::replace(&mut self.stage, Stage::Begun) {
            // Without it a peer that has vanished is noticed later.
            let _ =
                stream::keep_alive(&owner, SILENCE).and_then(|()| stream::keep_alive(&self.client, SILENCE));
            self.stage = Stage::Open { owner, up: Direction::default(), down: Direction::default() };
            self.until = scene.now + IDLE;
        }
        None
    }

    fn pass_on(&mut self, scene: &mut Scene<'_>) -> Step {
        let Stage::Open { owner, up, down } = &mut self.stage else { return Step::Over };
        let moved = up
            .advance(&self.client, &*owner, scene.pipes, TURN)
            .and_then(|up| Ok(up.max(down.advance(&*owner, &self.client, scene.pipes, TURN)?)));
        match moved {
            Err(_) => self.break_off(),
            Ok(_) if up.has_ended() && down.has_ended() => {
                stream::end_on_close(owner);
                stream::end_on_close(&self.client);
                Step::Over
            }
            Ok(moved) => {
                if down.has_ended() {
                    // The server is done, and the client has no reason to stay.
                    self.until = self.until.min(scene.now + PATIENCE);
                } else if moved > 0 {
                    self.until = scene.now + IDLE;
                }
                if moved >= TURN { Step::Again } else { Step::Waits }
            }
        }
    }

    /// Ends it so that neither side takes what it got for the whole; but a side that was sent everything, and the end, gets all of it.
    pub(super) fn break_off(&mut self) -> Step {
        let has_all = match &self.stage {
            Stage::Open { owner, up, down } => {
                if up.has_ended() {
                    stream::end_on_close(owner);
                }
                down.has_ended()
            }
            Stage::Begun | Stage::Asking { .. } => false,
        };
        if has_all {
            stream::end_on_close(&self.client);
        }
        Step::Over
    }
}

/// Says to a node whose connection it is, once it has sent its nonce. Returns whether that is said.
fn introduce(owner: &OwnedFd, route: &DataRoute, ends: &Ends) -> io::Result<bool> {
    stream::connected(owner)?;
    if !stream::is_connected(owner) {
        return Ok(false);
    }
    let Some(nonce) = read_whole(owner)? else { return Ok(false) };
    let message = [&proxy::header(ends)[..], &route.seal(&nonce, &sealed_text(ends))].concat();
    // A new connection has room for it.
    if stream::write(owner, &message)? == message.len() {
        Ok(true)
    } else {
        Err(io::ErrorKind::WriteZero.into())
    }
}

fn watch(socket: &OwnedFd, token: Token, registry: &Registry) -> io::Result<()> {
    registry.register(&mut SourceFd(&socket.as_raw_fd()), token, Interest::READABLE | Interest::WRITABLE)
}
