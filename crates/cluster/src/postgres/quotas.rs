//! The questions about trees with a quota.

use millrace_storage::{Telling, TreeState, Wish};
use millrace_vfs::Counted;
use tokio_postgres::types::Type;

use super::connections::{Connections, Lane};
use super::error::ClusterError;
use super::{Parameter, number};
use crate::table::{Epoch, Locking, TableError, Told};

/// Tells a share of a tree.
pub(super) fn tell(
    connections: &Connections,
    epoch: Epoch,
    tree: &str,
    telling: Telling,
    wish: Option<Wish>,
) -> Result<Told, TableError> {
    const TELL: &str = "SELECT millrace_cluster.tell_share($1, $2, $3, $4, $5)";
    let share = &telling.share;
    let own = [
        share.bytes,
        share.files,
        number(share.reserved_bytes),
        number(share.reserved_files),
        number(share.changes),
    ];
    let flags = [telling.is_new, telling.is_last, telling.is_doubtful];
    let wish = wish.map(|wish| {
        let most = [wish.most.bytes, wish.most.files].map(|most| most.map(number));
        [Some(number(wish.bytes)), Some(number(wish.files)), most[0], most[1], Some(number(wish.ahead))]
    });
    let (own, flags, wish) = (&own[..], &flags[..], wish.as_ref().map(|wish| &wish[..]));
    connections.ask(Lane::Transfer, async |client| {
        let parameters: [Parameter<'_>; 5] = [
            (&epoch.0, Type::INT8),
            (&tree, Type::TEXT),
            (&own, Type::INT8_ARRAY),
            (&flags, Type::BOOL_ARRAY),
            (&wish, Type::INT8_ARRAY),
        ];
        let answer: Vec<i64> = client.query_typed_one(TELL, &parameters).await?.try_get(0)?;
        told(&answer).ok_or_else(|| ClusterError::Answer(format!("{answer:?}")))
    })
}

/// Reads the answer; `None` if it is none.
fn told(answer: &[i64]) -> Option<Told> {
    let (state, rest) = answer.split_first()?;
    let over = match state {
        -2 => return Some(Told::Ended),
        -1 => return Some(Told::Fenced),
        1 => Some(Counted::Bytes),
        2 => Some(Counted::Files),
        _ => None,
    };
    let &[
        granted_bytes,
        granted_files,
        bytes,
        files,
        others_bytes,
        others_files,
        changes,
        others,
        counted,
        doubts,
    ] = rest
    else {
        return None;
    };
    let amount = |count: i64| u64::try_from(count).unwrap_or(0);
    Some(Told::Known(TreeState {
        granted_bytes: amount(granted_bytes),
        granted_files: amount(granted_files),
        over,
        bytes,
        files,
        others_bytes: amount(others_bytes),
        others_files: amount(others_files),
        changes: amount(changes),
        has_others: others > 0,
        is_counted: counted != 0,
        is_doubtful: doubts != 0,
    }))
}

/// Locks a name of a tree.
pub(super) fn lock(
    connections: &Connections,
    epoch: Epoch,
    tree: &str,
    name: &[u8],
    lock: u64,
) -> Result<Locking, TableError> {
    const LOCK: &str = "SELECT millrace_cluster.lock_name($1, $2, $3, $4)";
    let lock = number(lock);
    connections.ask(Lane::Transfer, async |client| {
        let parameters: [Parameter<'_>; 4] =
            [(&epoch.0, Type::INT8), (&tree, Type::TEXT), (&name, Type::BYTEA), (&lock, Type::INT8)];
        let answer = client.query_typed_one(LOCK, &parameters).await?.try_get::<_, i32>(0)?;
        Ok(match answer {
            -1 => Locking::Fenced,
            0 => Locking::Busy,
            _ => Locking::Locked,
        })
    })
}

/// Ends locks of names.
pub(super) fn unlock(connections: &Connections, epoch: Epoch, locks: &[u64]) -> Result<(), TableError> {
    const UNLOCK: &str = "DELETE FROM millrace_cluster.name_lock WHERE epoch = $1 AND number = ANY ($2)";
    let locks: Vec<i64> = locks.iter().map(|lock| number(*lock)).collect();
    connections.ask(Lane::Keeper, async |client| {
        client.query_typed(UNLOCK, &[(&epoch.0, Type::INT8), (&locks, Type::INT8_ARRAY)]).await?;
        Ok(())
    })
}

/// Tells what a walk has found.
pub(super) fn count(
    connections: &Connections,
    epoch: Epoch,
    tree: &str,
    (bytes, files): (u64, u64),
    changes: u64,
) -> Result<bool, TableError> {
    const COUNT: &str = "SELECT millrace_cluster.count_tree($1, $2, $3, $4, $5)";
    let [bytes, files, changes] = [bytes, files, changes].map(number);
    connections.ask(Lane::Transfer, async |client| {
        let parameters: [Parameter<'_>; 5] = [
            (&epoch.0, Type::INT8),
            (&tree, Type::TEXT),
            (&bytes, Type::INT8),
            (&files, Type::INT8),
            (&changes, Type::INT8),
        ];
        Ok(client.query_typed_one(COUNT, &parameters).await?.try_get(0)?)
    })
}

/// Lists trees that are counted.
pub(super) fn trees(connections: &Connections, since: i64) -> Result<(Vec<String>, i64), TableError> {
    // The rest is asked for a second later.
    const TREES: &str =
        "SELECT tree, number FROM millrace_cluster.tree WHERE number > $1 ORDER BY number LIMIT 4096";
    connections.ask(Lane::Keeper, async |client| {
        let rows = client.query_typed(TREES, &[(&since, Type::INT8)]).await?;
        let last = rows.last().map_or(Ok(since), |row| row.try_get(1))?;
        let trees = rows.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>()?;
        Ok((trees, last))
    })
}
