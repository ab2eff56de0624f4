//! The question about rates that nodes share.

use millrace_limits::{Direction, RateDemand, Scope, SharedRate};
use tokio_postgres::types::Type;

use super::connections::{Connections, Lane};
use super::{Parameter, number};
use crate::table::{Epoch, TableError};

/// Tells what is needed, and returns what may be had.
pub(super) fn share(
    connections: &Connections,
    epoch: Epoch,
    demands: &[RateDemand],
) -> Result<Option<Vec<u64>>, TableError> {
    const SHARE: &str = "SELECT millrace_cluster.share_rates($1, $2, $3, $4, $5)";
    let names: Vec<Vec<u8>> = demands.iter().map(|demand| name(&demand.rate)).collect();
    let column =
        |of: fn(&RateDemand) -> u64| demands.iter().map(|demand| number(of(demand))).collect::<Vec<_>>();
    let most = column(|demand| demand.most);
    let (wanted, weights) = (column(|demand| demand.wanted), column(|demand| demand.weight));
    connections.ask(Lane::Keeper, async |client| {
        let parameters: [Parameter<'_>; 5] = [
            (&epoch.0, Type::INT8),
            (&names, Type::BYTEA_ARRAY),
            (&most, Type::INT8_ARRAY),
            (&wanted, Type::INT8_ARRAY),
            (&weights, Type::INT8_ARRAY),
        ];
        let parts: Option<Vec<i64>> = client.query_typed_one(SHARE, &parameters).await?.try_get(0)?;
        Ok(parts.map(|parts| parts.into_iter().map(|part| u64::try_from(part).unwrap_or(0)).collect()))
    })
}

/// The name of a rate in the database: its direction, its kind, and whose it is.
fn name(rate: &SharedRate) -> Vec<u8> {
    let direction = match rate.direction {
        Direction::Download => b'd',
        Direction::Upload => b'u',
    };
    let (kind, name): (u8, &[u8]) = match &rate.scope {
        Scope::Group(name) => (b'g', name.as_bytes()),
        Scope::User(name) => (b'u', &**name),
        Scope::Server | Scope::Listener(_) | Scope::Session(_) => (b's', b""),
    };
    [&[direction, kind], name].concat()
}
