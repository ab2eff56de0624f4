//! The tables of a cluster in PostgreSQL. Each question is one call of a function there, and so one round trip.
//!
//! Nothing here keeps a session's state between questions, so a pooler that shares connections by transaction may stand
//! between.

mod audit;
mod browser_logins;
mod connections;
mod data_routes;
mod dav;
mod dav_schema;
mod errands;
mod error;
mod events;
mod events_schema;
mod failures;
mod logins;
mod migrating;
mod quotas;
mod rates;
mod schema;
mod secrets;
mod set_limits;
mod tokens;
mod traffic;
mod uploads;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use millrace_limits::{FailureTally, FamiliarNetwork, LoginTally, RateDemand, TrafficAnswer, TrafficTelling};
use millrace_storage::{PostgresServer, Telling, Wish};
use tokio_postgres::Row;
use tokio_postgres::types::{ToSql, Type};

pub use self::audit::PostgresAudit;
use self::connections::{Connections, Lane};
use self::error::ClusterError;
pub use self::events::PostgresEvents;
use crate::browser_logins::{BrowserLogin, LoginEnd, LoginLifetime, LoginUse};
use crate::data_route::DataRoute;
use crate::scope::{Claim, SharedScope};
use crate::table::{
    Asker, BanChange, Epoch, FailureEditions, Locking, NodeEntry, NodeReport, NodeState, Pulled,
    PulledFailures, Renewal, SharedBan, Table, TableError, Taking, Told, TrafficTurn,
};

/// A parameter of a function, and its type: the database need not be asked for that.
type Parameter<'a> = (&'a (dyn ToSql + Sync), Type);

/// The tables in one database.
#[derive(Debug)]
pub struct PostgresTable {
    connections: Connections,
}

impl PostgresTable {
    /// Makes it without connecting. An answer may take so long.
    pub fn new(server: Arc<dyn PostgresServer>, time: Duration) -> io::Result<Self> {
        Ok(Self { connections: Connections::new(server, time)? })
    }
}

impl Table for PostgresTable {
    fn register(
        &self,
        node: &NodeEntry,
        replaces: Option<Epoch>,
        places: &[(SharedScope, u64)],
    ) -> Result<Epoch, TableError> {
        const REGISTER: &str = "SELECT millrace_cluster.register($1, $2, $3, $4, $5, $6)";
        let replaces = replaces.map(|epoch| epoch.0);
        let (scopes, counts) = columns(places);
        if !self.connections.ask(Lane::Keeper, async |client| migrating::is_done(client).await)? {
            self.connections.ask(Lane::Migration, async |client| migrating::migrate(client).await)?;
        }
        self.connections.ask(Lane::Keeper, async |client| {
            let parameters: [Parameter<'_>; 6] = [
                (&replaces, Type::INT8),
                (&node.name, Type::TEXT),
                (&node.version, Type::TEXT),
                (&node.lease.as_secs_f64(), Type::FLOAT8),
                (&scopes, Type::BYTEA_ARRAY),
                (&counts, Type::INT8_ARRAY),
            ];
            let row = client.query_typed_one(REGISTER, &parameters).await?;
            Ok(Epoch(row.try_get(0)?))
        })
    }

    fn renew(
        &self,
        epoch: Epoch,
        state: NodeState,
        freed: &[(SharedScope, u64)],
    ) -> Result<Renewal, TableError> {
        const RENEW: &str = "SELECT millrace_cluster.renew($1, $2, $3, $4, $5)";
        let (scopes, counts) = columns(freed);
        let sessions = number(state.sessions);
        self.connections.ask(Lane::Keeper, async |client| {
            let parameters: [Parameter<'_>; 5] = [
                (&epoch.0, Type::INT8),
                (&sessions, Type::INT8),
                (&state.is_draining, Type::BOOL),
                (&scopes, Type::BYTEA_ARRAY),
                (&counts, Type::INT8_ARRAY),
            ];
            renewal(&client.query_typed_one(RENEW, &parameters).await?)
        })
    }

    fn take(&self, epoch: Epoch, claims: &[Claim]) -> Result<Taking, TableError> {
        const TAKE: &str = "SELECT millrace_cluster.take($1, $2, $3)";
        let scopes: Vec<&[u8]> = claims.iter().map(|claim| claim.scope.as_bytes()).collect();
        let most: Vec<i64> = claims.iter().map(|claim| number(claim.most)).collect();
        self.connections.ask(Lane::Login, async |client| {
            let parameters: [Parameter<'_>; 3] =
                [(&epoch.0, Type::INT8), (&scopes, Type::BYTEA_ARRAY), (&most, Type::INT8_ARRAY)];
            let row = client.query_typed_one(TAKE, &parameters).await?;
            match row.try_get::<_, i32>(0)? {
                -2 => Ok(Taking::Closed),
                -1 => Ok(Taking::Fenced),
                0 => Ok(Taking::Taken),
                full => match usize::try_from(full) {
                    Ok(full) if full <= claims.len() => Ok(Taking::Full(full - 1)),
                    _ => Err(ClusterError::Answer(full.to_string())),
                },
            }
        })
    }

    fn leave(&self, epoch: Epoch) -> Result<(), TableError> {
        const LEAVE: &str = "DELETE FROM millrace_cluster.node WHERE epoch = $1";
        self.connections.ask(Lane::Keeper, async |client| {
            client.query_typed(LEAVE, &[(&epoch.0, Type::INT8)]).await?;
            Ok(())
        })
    }

    fn nodes(&self, by: Asker) -> Result<Vec<NodeReport>, TableError> {
        const NODES: &str = "
            SELECT epoch, name, version, extract(epoch FROM now() - renewed)::float8, extract(epoch FROM lease)::float8,
                   extract(epoch FROM now() - began)::float8, sessions, draining
            FROM millrace_cluster.node ORDER BY epoch";
        self.connections
            .ask(by.into(), async |client| client.query_typed(NODES, &[]).await?.iter().map(node).collect())
    }

    fn pull_bans(&self, since: i64) -> Result<Pulled, TableError> {
        const BANS: &str = r#"
            SELECT network, "user", extract(epoch FROM until - now())::float8, lifted, edition
            FROM millrace_cluster.ban WHERE edition > $1 ORDER BY edition"#;
        self.connections.ask(Lane::Keeper, async |client| {
            let rows = client.query_typed(BANS, &[(&since, Type::INT8)]).await?;
            let edition = rows.last().map_or(Ok(since), |row| row.try_get(4))?;
            let changes = rows.iter().map(ban_change).collect::<Result<Vec<_>, _>>()?;
            Ok(Pulled { changes: changes.into_iter().flatten().collect(), edition })
        })
    }

    fn push_bans(&self, epoch: Epoch, changes: &[BanChange]) -> Result<Renewal, TableError> {
        const CHANGE: &str = "SELECT millrace_cluster.change_bans($1, $2, $3, $4, $5)";
        let of = |change: &BanChange| match change {
            BanChange::Banned(ban, left) => (ban.clone(), left.map(|left| left.as_secs_f64()), false),
            BanChange::Lifted(ban) => (ban.clone(), None, true),
        };
        let all: Vec<(SharedBan, Option<f64>, bool)> = changes.iter().map(of).collect();
        let networks: Vec<String> = all.iter().map(|(ban, ..)| ban.network.to_string()).collect();
        let users: Vec<&[u8]> = all.iter().map(|(ban, ..)| ban.user.as_deref().unwrap_or_default()).collect();
        let seconds: Vec<Option<f64>> = all.iter().map(|(_, left, _)| *left).collect();
        let lifts: Vec<bool> = all.iter().map(|(.., lifts)| *lifts).collect();
        self.connections.ask(Lane::Keeper, async |client| {
            let parameters: [Parameter<'_>; 5] = [
                (&epoch.0, Type::INT8),
                (&networks, Type::TEXT_ARRAY),
                (&users, Type::BYTEA_ARRAY),
                (&seconds, Type::FLOAT8_ARRAY),
                (&lifts, Type::BOOL_ARRAY),
            ];
            renewal(&client.query_typed_one(CHANGE, &parameters).await?)
        })
    }

    fn pull_failures(&self, origin: Epoch, since: FailureEditions) -> Result<PulledFailures, TableError> {
        failures::pull(&self.connections, origin, since)
    }

    fn push_failures(
        &self,
        epoch: Epoch,
        origin: Epoch,
        tallies: &[FailureTally],
        familiar: &[FamiliarNetwork],
    ) -> Result<Renewal, TableError> {
        failures::push(&self.connections, epoch, origin, tallies, familiar)
    }

    fn push_logins(&self, epoch: Epoch, tallies: &[LoginTally]) -> Result<Renewal, TableError> {
        logins::push(&self.connections, epoch, tallies)
    }

    fn pull_logins(&self, since: i64) -> Result<(Vec<LoginTally>, i64), TableError> {
        logins::pull(&self.connections, since)
    }

    fn secrets(
        &self,
        epoch: Epoch,
        fresh: Option<&[u8; 32]>,
    ) -> Result<Vec<([u8; 32], Duration)>, TableError> {
        secrets::secrets(&self.connections, epoch, fresh)
    }

    fn keep_login(
        &self,
        hash: &str,
        login: &BrowserLogin,
        lifetime: LoginLifetime,
    ) -> Result<bool, TableError> {
        browser_logins::keep(&self.connections, hash, login, lifetime)
    }

    fn find_login(
        &self,
        hash: &str,
        lifetime: LoginLifetime,
        usage: LoginUse,
    ) -> Result<Option<BrowserLogin>, TableError> {
        browser_logins::find(&self.connections, hash, lifetime, usage)
    }

    fn end_logins(&self, end: &LoginEnd, ago: Duration, lifetime: LoginLifetime) -> Result<(), TableError> {
        browser_logins::end(&self.connections, end, ago, lifetime)
    }

    fn tell_share(
        &self,
        epoch: Epoch,
        tree: &str,
        telling: Telling,
        wish: Option<Wish>,
    ) -> Result<Told, TableError> {
        quotas::tell(&self.connections, epoch, tree, telling, wish)
    }

    fn lock_name(&self, epoch: Epoch, tree: &str, name: &[u8], number: u64) -> Result<Locking, TableError> {
        quotas::lock(&self.connections, epoch, tree, name, number)
    }

    fn unlock_names(&self, epoch: Epoch, numbers: &[u64]) -> Result<(), TableError> {
        quotas::unlock(&self.connections, epoch, numbers)
    }

    fn count_tree(
        &self,
        epoch: Epoch,
        tree: &str,
        found: (u64, u64),
        changes: u64,
    ) -> Result<bool, TableError> {
        quotas::count(&self.connections, epoch, tree, found, changes)
    }

    fn share_rates(&self, epoch: Epoch, demands: &[RateDemand]) -> Result<Option<Vec<u64>>, TableError> {
        rates::share(&self.connections, epoch, demands)
    }

    fn share_traffic(
        &self,
        turn: TrafficTurn,
        told: &[TrafficTelling],
    ) -> Result<Option<Vec<TrafficAnswer>>, TableError> {
        traffic::share(&self.connections, turn, told)
    }

    fn share_data_route(&self, epoch: Epoch, own: &DataRoute) -> Result<Vec<DataRoute>, TableError> {
        data_routes::share(&self.connections, epoch, own)
    }

    fn send_errand(
        &self,
        epoch: Epoch,
        errand: &str,
        only: Option<Epoch>,
    ) -> Result<Vec<(i64, Epoch, String)>, TableError> {
        errands::send(&self.connections, epoch, errand, only)
    }

    fn take_errands(&self, epoch: Epoch) -> Result<Vec<(i64, String)>, TableError> {
        errands::take(&self.connections, epoch)
    }

    fn answer_errand(&self, number: i64, answer: &str) -> Result<(), TableError> {
        errands::answer(&self.connections, number, answer)
    }

    fn answers(&self, numbers: &[i64]) -> Result<Vec<(i64, String)>, TableError> {
        errands::answers(&self.connections, numbers)
    }

    fn end_errands(&self, numbers: &[i64]) -> Result<(), TableError> {
        errands::end(&self.connections, numbers)
    }

    fn pull_trees(&self, since: i64) -> Result<(Vec<String>, i64), TableError> {
        quotas::trees(&self.connections, since)
    }
}

fn columns(places: &[(SharedScope, u64)]) -> (Vec<&[u8]>, Vec<i64>) {
    places.iter().map(|(scope, count)| (scope.as_bytes(), number(*count))).unzip()
}

fn number(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

fn renewal(row: &Row) -> Result<Renewal, ClusterError> {
    Ok(if row.try_get(0)? { Renewal::Kept } else { Renewal::Fenced })
}

fn node(row: &Row) -> Result<NodeReport, ClusterError> {
    let time = |index| row.try_get::<_, f64>(index).map(seconds);
    let state = NodeState {
        sessions: u64::try_from(row.try_get::<_, i64>(6)?).unwrap_or(0),
        is_draining: row.try_get(7)?,
    };
    Ok(NodeReport {
        epoch: Epoch(row.try_get(0)?),
        name: row.try_get(1)?,
        version: row.try_get(2)?,
        silent: time(3)?,
        lease: time(4)?,
        age: time(5)?,
        state,
    })
}

fn seconds(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or_default()
}

/// A change of bans; `None` for a ban that has ended by itself, or whose network cannot be read.
fn ban_change(row: &Row) -> Result<Option<BanChange>, ClusterError> {
    let Ok(network) = row.try_get::<_, String>(0)?.parse() else { return Ok(None) };
    let user: Vec<u8> = row.try_get(1)?;
    let ban = SharedBan { network, user: Some(user).filter(|user| !user.is_empty()) };
    let left: Option<f64> = row.try_get(2)?;
    Ok(match (row.try_get(3)?, left) {
        (true, _) => Some(BanChange::Lifted(ban)),
        (false, Some(left)) if left <= 0.0 => None,
        (false, left) => Some(BanChange::Banned(ban, left.map(seconds))),
    })
}
