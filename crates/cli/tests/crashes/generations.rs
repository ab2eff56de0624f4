//! What `durability = "whole"` promises: a name may show an older file, or none, but never half of one.
//!
//! A generation is a file as one upload made it. Appends change it, renames carry it to other names. After a power cut a
//! name may show any generation that it ever had, with all that was acknowledged of it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::tree::{Node, Op, Tree};
use crate::writer::Record;

#[derive(Debug, Default)]
pub(crate) struct Generations {
    /// The acknowledged contents, and of one in the midst of an upload in place what precedes that.
    contents: Vec<Node>,
    /// Each with the one that it shows, as far as was acknowledged.
    current: BTreeMap<String, usize>,
    ever: BTreeMap<String, BTreeSet<usize>>,
}

impl Generations {
    /// Those of a tree and of what was done to it.
    pub(crate) fn of<'a>(tree: &Tree, history: impl IntoIterator<Item = &'a Record>) -> Self {
        let mut generations = Self::default();
        for (path, node) in tree.iter().filter(|(_, node)| **node != Node::Directory) {
            generations.begin(path, node.clone());
        }
        history.into_iter().for_each(|record| generations.apply(&record.op, record.acknowledged.is_some()));
        generations
    }

    fn begin(&mut self, path: &str, node: Node) {
        self.contents.push(node);
        self.show(path, self.contents.len() - 1);
    }

    fn show(&mut self, path: &str, generation: usize) {
        self.current.insert(path.to_owned(), generation);
        self.ever.entry(path.to_owned()).or_default().insert(generation);
    }

    fn apply(&mut self, op: &Op, is_acknowledged: bool) {
        match op {
            Op::Store { path, contents } => self.begin(path, Node::File(Arc::clone(contents))),
            Op::Continue { path, .. } => {
                let old = self.current.get(path).copied();
                let mut tree: Tree =
                    old.map(|old| (path.clone(), self.contents[old].clone())).into_iter().collect();
                if is_acknowledged {
                    op.apply(&mut tree);
                } else {
                    op.tear(&mut tree);
                }
                let Some(node) = tree.remove(path) else { return };
                match old {
                    Some(old) => self.contents[old] = node,
                    None => self.begin(path, node),
                }
            }
            Op::Rename { from, to } => {
                if let Some(generation) = self.current.remove(from) {
                    self.show(to, generation);
                }
            }
            Op::Delete { path } => drop(self.current.remove(path)),
            Op::MakeDirectory { .. } | Op::RemoveDirectory { .. } => {}
        }
    }

    /// The files that are none of what their names may show.
    pub(crate) fn broken(&self, found: &Tree) -> Vec<String> {
        let files = found.iter().filter(|(_, node)| matches!(node, Node::File(_)));
        let broken = files.filter(|(path, node)| {
            let ever = self.ever.get(*path);
            !ever.into_iter().flatten().any(|&generation| node.keeps(&self.contents[generation]))
        });
        let broken = broken.map(|(path, node)| {
            let ever: Vec<String> = (self.ever.get(path).into_iter().flatten())
                .map(|&generation| self.contents[generation].describe())
                .collect();
            format!("{path}: {}, which is none of {ever:?}", node.describe())
        });
        broken.collect()
    }
}

#[test]
fn older_files_are_allowed_and_halves_are_not() {
    let bytes = |text: &str| Arc::new(text.as_bytes().to_vec());
    let store = |text: &str| Op::Store { path: "a".to_owned(), contents: bytes(text) };
    let append = Op::Continue { path: "a".to_owned(), offset: 5, contents: bytes("-more") };
    let record = |op, acknowledged| Record { op, begun: 0, acknowledged };
    let history =
        [record(store("first"), Some(1)), record(append, Some(2)), record(store("second"), Some(3))];
    let generations = Generations::of(&Tree::new(), &history);
    let is_broken = |text: &str| {
        let found = Tree::from([("a".to_owned(), Node::File(bytes(text)))]);
        !generations.broken(&found).is_empty()
    };
    assert!(!is_broken("second") && !is_broken("first-more"));
    assert!(is_broken("first"), "the append was acknowledged");
    assert!(is_broken("") && is_broken("sec") && is_broken("second\0"));
    assert!(Generations::of(&Tree::new(), &history).broken(&Tree::new()).is_empty(), "a name may be lost");
}
