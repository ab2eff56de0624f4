//! Other nodes that serve under the name of this one. Each registration looks for them once a second, until all nodes of its
//! name that had registered before have been heard again, drain or are gone; from then on nothing is asked.

use crate::member::Member;
use crate::table::{Asker, Epoch, NodeReport, Table, TableError};

/// Whether this node was looked for others of its name.
#[derive(Debug, Default)]
pub(crate) struct NamesakeWatch {
    /// The registration of which the answer is known.
    settled: Option<Epoch>,
}

impl NamesakeWatch {
    /// Looks, where the answer is not known, and has the operator warned.
    pub(crate) fn turn(
        &mut self,
        table: &dyn Table,
        member: &dyn Member,
        epoch: Epoch,
    ) -> Result<(), TableError> {
        if self.settled == Some(epoch) {
            return Ok(());
        }
        let nodes = table.nodes(Asker::Keeper)?;
        let Some(own) = nodes.iter().find(|node| node.epoch == epoch) else { return Ok(()) };
        let may_serve =
            |node: &&NodeReport| node.epoch != epoch && node.name == own.name && !node.state.is_draining;
        let mut others = nodes.iter().filter(may_serve).peekable();
        if let Some(other) = others.clone().find(|node| node.is_namesake_of(own)) {
            member.warn(&format!(
                "another node that serves is called {}, too (epochs {} and {}): orders to the node of this name are \
                 refused; give each node a name of its own, by node in [cluster]",
                own.name, other.epoch.0, epoch.0,
            ));
        } else if others.peek().is_some() {
            return Ok(());
        }
        self.settled = Some(epoch);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::table::NodeState;

    /// A node that has registered, and was heard, so many seconds ago.
    fn node(epoch: i64, age: u64, silent: u64) -> NodeReport {
        let [silent, age, lease] = [silent, age, 6].map(Duration::from_secs);
        let (name, version, state) = ("a".to_owned(), "1".to_owned(), NodeState::default());
        NodeReport { epoch: Epoch(epoch), name, version, silent, lease, age, state }
    }

    #[test]
    fn two_nodes_are_namesakes_where_each_was_heard_after_the_other_has_registered() {
        let (first, second) = (node(1, 60, 1), node(2, 4, 0));
        assert!(first.is_namesake_of(&second) && second.is_namesake_of(&first));
        assert!(!first.is_namesake_of(&first));
        assert!(!first.is_namesake_of(&NodeReport { name: "b".to_owned(), ..second.clone() }));
        let has_crashed = node(1, 60, 5);
        assert!(has_crashed.is_alive() && !has_crashed.is_namesake_of(&second), "its lease holds");
        let has_stalled = node(2, 30, 20);
        assert!(!has_stalled.is_namesake_of(&first), "it may come back");
        let drains = NodeReport { state: NodeState { is_draining: true, sessions: 3 }, ..first };
        assert!(!drains.is_namesake_of(&second) && !second.is_namesake_of(&drains), "it has a successor");
    }
}
