//! The promises of `docs/guide.md`'s table of durability, and whether a state keeps them.

use std::collections::{BTreeMap, BTreeSet};

use super::super::disk::recorder::{Kind, Node};
use super::super::durability::Durability;
use super::super::staging::is_reserved;
use super::operations::{Keeps, Operation, Pieces};
use super::recovery::Recovered;
use super::states::{Disk, State};

/// The tree as programs see it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Snapshot {
    /// What clients see.
    pub(super) names: BTreeMap<Vec<u8>, Node>,
    pub(super) contents: BTreeMap<Node, Vec<u8>>,
}

/// What a power cut may leave after some operations.
#[derive(Debug, Clone)]
pub(super) struct Promises {
    level: Durability,
    snapshot: Snapshot,
    /// What each name may lead to.
    names: BTreeMap<Vec<u8>, BTreeSet<Option<Node>>>,
    /// What has had a name all the time.
    steady: BTreeSet<Node>,
    contents: BTreeMap<Node, Promised>,
    /// Files that were written to.
    written: BTreeSet<Node>,
    /// What each tus upload may have.
    pieces: BTreeMap<u8, BTreeSet<Option<Vec<u8>>>>,
    /// Those that have become files: nothing is promised of what is left of them.
    finished: BTreeSet<u8>,
}

/// What a file has.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Promised {
    All(Vec<u8>),
    /// These bytes, and any after them.
    Start(Vec<u8>),
}

impl Promises {
    /// Of a tree that was there before.
    pub(super) fn new(level: Durability, snapshot: Snapshot) -> Self {
        Self {
            level,
            names: snapshot.names.iter().map(|(path, node)| (path.clone(), [Some(*node)].into())).collect(),
            steady: snapshot.names.values().copied().collect(),
            contents: snapshot
                .contents
                .iter()
                .map(|(node, bytes)| (*node, Promised::All(bytes.clone())))
                .collect(),
            snapshot,
            written: BTreeSet::new(),
            pieces: BTreeMap::new(),
            finished: BTreeSet::new(),
        }
    }

    /// After one more operation that has been acknowledged, or was cut.
    pub(super) fn after(
        &self,
        operation: Operation,
        keeps: Option<Keeps>,
        now: Snapshot,
        pieces: &Pieces,
    ) -> Self {
        let mut next = self.clone();
        let is_promised = operation.is_acknowledged();
        let paths: BTreeSet<_> =
            self.snapshot.names.keys().chain(now.names.keys()).chain(self.names.keys()).cloned().collect();
        for path in paths {
            let is_touched = self.names_of(operation).iter().any(|name| is_beneath(&path, name.as_bytes()));
            let allowed = next.names.entry(path.clone()).or_insert_with(|| [None].into());
            if is_touched && is_promised && self.level == Durability::Full {
                allowed.clear();
            }
            allowed.insert(now.names.get(&path).copied());
        }
        if let Operation::Rename("d", "e") = operation {
            // The directory may have arrived there before what was changed in it.
            for (path, allowed) in &self.names {
                if let Some(rest) = path.strip_prefix(b"d/")
                    && self.level != Durability::Full
                {
                    next.names.entry([b"e/", rest].concat()).or_default().extend(allowed);
                }
            }
        }
        next.steady.retain(|node| now.names.values().any(|named| named == node));
        if operation.writes() {
            for node in self.names_of(operation).iter().filter_map(|name| now.names.get(name.as_bytes())) {
                let Some(content) = now.contents.get(node) else { continue };
                let promised = match keeps {
                    Some(keeps) if !is_promised => self.start(*node, keeps),
                    None if !is_promised => continue,
                    _ => Promised::All(content.clone()),
                };
                next.contents.insert(*node, promised);
                next.written.insert(*node);
            }
        }
        next.pieces.retain(|number, _| !self.finished.contains(number));
        for number in operation.keys() {
            if is_promised && !pieces.contains_key(number) {
                next.finished.insert(*number);
            }
            next.promise_piece(*number, operation, pieces.get(number));
        }
        next.snapshot = now;
        next
    }

    /// The names that an operation changes: behind `l` only where that is a link.
    fn names_of(&self, operation: Operation) -> &'static [&'static str] {
        let names = operation.names();
        let leads_on = |node| !self.snapshot.contents.contains_key(node);
        match names.first() {
            Some(&"l") if !self.snapshot.names.get(&b"l"[..]).is_some_and(leads_on) => &names[..1],
            _ => names,
        }
    }

    fn start(&self, node: Node, keeps: Keeps) -> Promised {
        let mut start = match self.contents.get(&node) {
            Some(Promised::All(bytes) | Promised::Start(bytes)) => bytes.clone(),
            None => Vec::new(),
        };
        if let Keeps::Before(offset) = keeps {
            start.truncate(offset);
        }
        Promised::Start(start)
    }

    fn promise_piece(&mut self, number: u8, operation: Operation, now: Option<&Vec<u8>>) {
        let level = self.level;
        let allowed = self.pieces.entry(number).or_insert_with(|| [None].into());
        match (operation, now) {
            (_, Some(bytes)) if !operation.is_acknowledged() => {
                allowed.insert(Some(bytes.clone()));
            }
            (_, Some(bytes)) if level == Durability::Full || !bytes.is_empty() => {
                *allowed = [Some(bytes.clone())].into();
            }
            // An upload that has nothing yet loses nothing.
            (_, Some(_)) => *allowed = [None, Some(Vec::new())].into(),
            // That an upload is given up is not promised; nothing of it is needed then.
            (Operation::GiveUp(_), None) => {
                allowed.extend([None, Some(Vec::new())]);
            }
            (Operation::Join(_), None) if number > 1 => {
                allowed.insert(None);
            }
            (_, None) if level == Durability::Full => *allowed = [None].into(),
            // Its first name may still be there, with no byte that is sure.
            (Operation::BeginAndFinish(..), None) => {
                allowed.extend([None, Some(Vec::new())]);
            }
            (_, None) => {
                allowed.insert(None);
            }
        }
    }

    /// The promise that a state breaks, if any, between this and `next`: while the operation runs, or once it
    /// `has_ended`.
    pub(super) fn broken(
        &self,
        next: &Self,
        operation: Operation,
        keeps: Option<Keeps>,
        has_ended: bool,
        disk: &Disk,
        state: &State<'_>,
    ) -> Option<String> {
        let visible: BTreeMap<_, _> = state.names.iter().filter(|(path, _)| !is_hidden(path)).collect();
        let none = BTreeSet::from([None]);
        let paths: BTreeSet<_> = next.names.keys().chain(visible.keys().copied()).collect();
        for path in paths {
            let found = visible.get(path).map(|node| **node);
            let before = self.names.get(path).unwrap_or(&none);
            let after = next.names.get(path).unwrap_or(&none);
            if !(after.contains(&found) || !has_ended && before.contains(&found)) {
                return Some(format!(
                    "{} leads to {found:?}, not to one of {before:?} or {after:?}",
                    text(path)
                ));
            }
        }
        let steady = if self.level == Durability::Full { next.steady_now(self) } else { next.steady.clone() };
        for node in steady {
            let names = visible.values().filter(|named| ***named == node).count();
            if names != 1 {
                return Some(format!("node {node} has {names} names"));
            }
        }
        visible.iter().find_map(|(path, node)| {
            let node = **node;
            if disk.kind(node) != Kind::File || self.level == Durability::None && next.written.contains(&node)
            {
                return None;
            }
            let is_being_written = !has_ended
                && operation.writes()
                && self.names_of(operation).iter().any(|name| {
                    let names = [&self.snapshot.names, &next.snapshot.names];
                    names.iter().any(|names| names.get(name.as_bytes()) == Some(&node))
                });
            let promised = match (keeps, is_being_written) {
                (Some(keeps), true) => Some(self.start(node, keeps)),
                _ if has_ended => next.contents.get(&node).cloned(),
                _ => self.contents.get(&node).or(next.contents.get(&node)).cloned(),
            };
            let content = state.content(node);
            let is_kept = match &promised {
                Some(Promised::All(bytes)) => content == bytes,
                Some(Promised::Start(bytes)) => content.starts_with(bytes),
                None => false,
            };
            (!is_kept).then(|| format!("{} has {:?}, not {promised:?}", text(path), text(content)))
        })
    }

    /// What has one name before and after, for sure.
    fn steady_now(&self, before: &Self) -> BTreeSet<Node> {
        let is_sure = |promises: &Self, node: Node| {
            promises.names.values().filter(|allowed| allowed.contains(&Some(node))).count() == 1
                && promises.names.values().any(|allowed| allowed.len() == 1 && allowed.contains(&Some(node)))
        };
        let nodes = self.snapshot.names.values().copied();
        nodes.filter(|&node| is_sure(self, node) && is_sure(before, node)).collect()
    }

    /// The promise that the restarted server breaks.
    pub(super) fn broken_by(
        &self,
        next: &Self,
        operation: Operation,
        has_ended: bool,
        found: &Recovered,
    ) -> Option<String> {
        if let Some(problem) = &found.problem {
            return Some(problem.clone());
        }
        if self.level == Durability::None {
            return None;
        }
        let none = BTreeSet::from([None]);
        next.pieces.iter().find_map(|(number, after)| {
            let before = self.pieces.get(number).unwrap_or(&none);
            let found = found.pieces.get(number).cloned();
            // Nothing of it is acknowledged before the end, and nothing is wrong.
            let is_begun = matches!(operation, Operation::Begin(..) | Operation::BeginAndFinish(..))
                && found.as_ref().is_some_and(Vec::is_empty);
            let is_kept = after.contains(&found) || !has_ended && (before.contains(&found) || is_begun);
            (!is_kept).then(|| format!("upload {number} has {found:?}, not one of {before:?} or {after:?}"))
        })
    }
}

/// Whether a path is reserved, or beneath one that is.
pub(super) fn is_hidden(path: &[u8]) -> bool {
    path.split(|&byte| byte == b'/').any(is_reserved)
}

fn is_beneath(path: &[u8], name: &[u8]) -> bool {
    path.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
}

fn text(bytes: &[u8]) -> String {
    bytes.escape_ascii().to_string()
}
