//! The server as a node of a cluster: what it tells of itself, and where its bans are.

use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Instant;

use millrace_cluster::{DataRoute, Member, NodeState, SetLimits, SharedSecret, TableError, TokenTable};
use millrace_net::tls::TicketSecret;

use crate::limits::{BanReport, Bans, Logins, Quotas, RateDemand, SharedRate};
use crate::log::{Event, Log, Subject};
use crate::state::ServerState;

/// A server that is a node, which the cluster does not keep alive.
struct ServerNode {
    state: Weak<ServerState>,
    bans: Arc<Bans>,
    logins: Arc<Logins>,
    log: Log,
}

/// Has the server join its cluster, if it has one.
pub(crate) fn join(state: &Arc<ServerState>) -> std::io::Result<()> {
    let Some(cluster) = &state.cluster else { return Ok(()) };
    state.limits.divide(Instant::now());
    let (bans, logins) = (Arc::clone(&state.bans), Arc::clone(&state.logins_rated));
    cluster.begin(Arc::new(ServerNode { state: Arc::downgrade(state), bans, logins, log: state.log.clone() }))
}

/// Has it leave, once all sessions have ended.
pub(crate) fn leave(state: &ServerState) {
    state.cluster.iter().for_each(|cluster| cluster.leave());
}

impl Member for ServerNode {
    fn state(&self) -> NodeState {
        self.state.upgrade().map_or(NodeState { sessions: 0, is_draining: true }, |state| NodeState {
            sessions: state.sessions.count() as u64,
            is_draining: [&state.is_ending, &state.is_handing_over]
                .iter()
                .any(|is| is.load(Ordering::Acquire)),
        })
    }

    fn bans(&self) -> &Bans {
        &self.bans
    }

    fn logins(&self) -> &Logins {
        &self.logins
    }

    fn quotas(&self) -> Option<Arc<Quotas>> {
        self.state.upgrade()?.config.quotas.clone()
    }

    fn use_secrets(&self, secrets: &[SharedSecret]) {
        let Some(state) = self.state.upgrade() else { return };
        let secret = |secret: &SharedSecret| TicketSecret { bytes: secret.bytes, made: secret.made };
        let secrets: Vec<_> = secrets.iter().map(secret).collect();
        state.tls.iter().for_each(|security| security.acceptor.share_tickets(&secrets));
    }

    fn note_ban(&self, ban: &BanReport) {
        // The clients that failed are other nodes'; the ban is of this one as well.
        let peer = SocketAddr::new(ban.network.address(), 0);
        let subject = Subject { session: 0, peer, user: None };
        self.log.note_of(&subject, Event::Banned { user: ban.user.as_deref() });
    }

    fn warn(&self, text: &str) {
        self.log.warn(text);
    }

    fn demands(&self) -> Vec<RateDemand> {
        self.state.upgrade().map_or(Vec::new(), |state| state.limits.demands(Instant::now()))
    }

    fn grant(&self, parts: &[(SharedRate, u64)]) {
        self.state.upgrade().iter().for_each(|state| state.limits.grant(parts, Instant::now()));
    }

    fn data_route(&self) -> Option<DataRoute> {
        self.state.upgrade()?.data_relay.get().map(|relay| relay.route().clone())
    }

    fn use_data_routes(&self, routes: Vec<DataRoute>) {
        let Some(state) = self.state.upgrade() else { return };
        if let Some(relay) = state.data_relay.get() {
            relay.follow(routes);
        }
    }

    fn exchange_tokens(&self, table: &dyn TokenTable) -> Result<(), TableError> {
        let Some(state) = self.state.upgrade() else { return Ok(()) };
        let Some(tokens) = state.tokens.get() else { return Ok(()) };
        tokens.exchange(table)?.iter().for_each(|text| self.log.warn(text));
        Ok(())
    }

    fn use_limits(&self, set: &SetLimits) {
        self.state.upgrade().iter().for_each(|state| state.use_limits(set));
    }

    fn perform(&self, errand: &str) -> String {
        let state = self.state.upgrade();
        let errands = state.as_ref().and_then(|state| state.errands.get());
        errands.map_or(String::new(), |perform| perform(errand))
    }
}
