//! The states of a disk after a power cut, as far as the file systems allow them (the rules are in `mod.rs`).

use std::collections::{BTreeMap, BTreeSet};

use super::super::disk::recorder::{Entry, Event, Kind, Node};

/// What is written as a whole. Files of these tests have a few of them; a device's is larger than a record of ours, so
/// that these states are more than there are.
pub(super) const BLOCK: usize = 4;

/// Up to this many blocks of a file are lost in all combinations; of more, one is lost or one is kept.
const COMBINED: usize = 4;

/// This many sets of names that arrived are looked at in one place.
const SETS: usize = 512;

/// A disk, and what is on its way there.
#[derive(Debug, Clone, Default)]
pub(super) struct Disk {
    kinds: Vec<Kind>,
    files: Vec<Content>,
    /// On the device.
    names: BTreeMap<Entry, Node>,
    /// As programs see it.
    seen: BTreeMap<Entry, Node>,
    changes: Vec<Change>,
    /// Whether waits are believed.
    is_deaf: bool,
}

#[derive(Debug, Clone, Default)]
struct Content {
    /// What programs have seen since the last wait, from what is on the device to the present.
    versions: Vec<Vec<u8>>,
}

#[derive(Debug, Clone)]
struct Change {
    names: Vec<(Entry, Option<Node>)>,
    /// Directories that it removed.
    emptied: Vec<Node>,
    is_durable: bool,
    /// Whether what it named was waited for afterwards: then the name may have arrived before others of its directory.
    may_overtake: bool,
}

/// What a power cut left.
#[derive(Debug)]
pub(super) struct State<'a> {
    /// Every path that leads from the root to something.
    pub(super) names: &'a BTreeMap<Vec<u8>, Node>,
    contents: &'a [Vec<u8>],
    /// The file that has another content than in `contents`.
    torn: Option<(Node, &'a [u8])>,
}

impl State<'_> {
    pub(super) fn content(&self, node: Node) -> &[u8] {
        match self.torn {
            Some((torn, content)) if torn == node => content,
            _ => &self.contents[node],
        }
    }
}

impl Disk {
    /// A disk with these names and contents on it; `is_deaf`: waits for the device do nothing.
    pub(super) fn new(names: BTreeMap<Entry, Node>, contents: Vec<(Kind, Vec<u8>)>, is_deaf: bool) -> Self {
        let (kinds, files) =
            contents.into_iter().map(|(kind, bytes)| (kind, Content { versions: vec![bytes] })).unzip();
        Self { kinds, files, seen: names.clone(), names, changes: Vec::new(), is_deaf }
    }

    /// A file that was made since.
    pub(super) fn add(&mut self, kind: Kind) {
        self.kinds.push(kind);
        self.files.push(Content { versions: vec![Vec::new()] });
    }

    /// How many files it has had.
    pub(super) fn size(&self) -> usize {
        self.kinds.len()
    }

    pub(super) fn kind(&self, node: Node) -> Kind {
        self.kinds[node]
    }

    pub(super) fn apply(&mut self, event: &Event) {
        match event {
            Event::Names(names) => self.rename(names),
            Event::Written(node, offset, bytes) => self.files[*node].change(|content| {
                let end = offset + bytes.len();
                content.resize(content.len().max(end), 0);
                content[*offset..end].copy_from_slice(bytes);
            }),
            Event::Truncated(node, length) => self.files[*node].change(|content| content.resize(*length, 0)),
            Event::Synchronised(node) if !self.is_deaf => self.synchronise(*node),
            Event::Synchronised(_) => {}
        }
    }

    fn rename(&mut self, names: &[(Entry, Option<Node>)]) {
        let mut emptied = Vec::new();
        for (entry, node) in names {
            let before = match node {
                Some(node) => self.seen.insert(entry.clone(), *node),
                None => self.seen.remove(entry),
            };
            let is_moved = before.is_some_and(|before| names.iter().any(|(_, node)| *node == Some(before)));
            emptied.extend(before.filter(|&node| self.kinds[node] == Kind::Directory && !is_moved));
        }
        let names = names.to_vec();
        self.changes.push(Change { names, emptied, is_durable: false, may_overtake: false });
    }

    fn synchronise(&mut self, node: Node) {
        match self.kinds[node] {
            Kind::Directory => {
                for number in 0..self.changes.len() {
                    if self.changes[number].touches(node) {
                        self.force(number);
                    }
                }
                self.settle();
            }
            _ => {
                self.files[node].synchronise();
                for change in &mut self.changes {
                    change.may_overtake |= change.names.iter().any(|(_, named)| *named == Some(node));
                }
            }
        }
    }

    /// A change is on the device, and what it rests on.
    fn force(&mut self, number: usize) {
        if !self.changes[number].is_durable {
            self.changes[number].is_durable = true;
            (0..number)
                .filter(|&earlier| self.rests_on(number, earlier))
                .collect::<Vec<_>>()
                .into_iter()
                .for_each(|earlier| self.force(earlier));
        }
    }

    /// Returns whether a change cannot arrive without an earlier one.
    fn rests_on(&self, later: usize, earlier: usize) -> bool {
        let (later, earlier) = (&self.changes[later], &self.changes[earlier]);
        let same_name =
            || earlier.names.iter().any(|(entry, _)| later.names.iter().any(|(other, _)| other == entry));
        let same_directory = || {
            !later.may_overtake && later.names.iter().any(|((directory, _), _)| earlier.touches(*directory))
        };
        let was_emptied = || later.emptied.iter().any(|directory| earlier.touches(*directory));
        same_name() || same_directory() || was_emptied()
    }

    /// Forgets changes that are on the device, from the first on.
    fn settle(&mut self) {
        let settled = self.changes.iter().take_while(|change| change.is_durable).count();
        for change in self.changes.drain(..settled) {
            change.arrive(&mut self.names);
        }
    }

    /// Visits every state that a power cut may leave now.
    pub(super) fn visit_states(&self, visit: &mut dyn FnMut(&State<'_>)) {
        let mut sets = Vec::new();
        self.choose(&mut Vec::new(), &mut sets);
        let variants: Vec<Vec<Vec<u8>>> = self.files.iter().map(Content::variants).collect();
        let newest: Vec<_> = self.files.iter().map(|file| file.newest().clone()).collect();
        let oldest: Vec<_> = self.files.iter().map(|file| file.versions[0].clone()).collect();
        let mut seen = BTreeSet::new();
        for set in sets {
            let mut entries = self.names.clone();
            for (change, _) in self.changes.iter().zip(set).filter(|(_, arrived)| *arrived) {
                change.arrive(&mut entries);
            }
            let names = paths(&entries);
            // Other sets of names lead to the same paths, where a directory did not arrive.
            if !seen.insert(names.clone()) {
                continue;
            }
            let mut pending: Vec<_> =
                names.values().copied().filter(|&node| variants[node].len() > 1).collect();
            pending.dedup();
            visit(&State { names: &names, contents: &newest, torn: None });
            if pending.len() > 1 {
                visit(&State { names: &names, contents: &oldest, torn: None });
            }
            for &node in &pending {
                for content in variants[node].iter().filter(|content| **content != newest[node]) {
                    visit(&State { names: &names, contents: &newest, torn: Some((node, content)) });
                }
            }
        }
    }

    /// Every set of changes in which none lacks what it rests on.
    fn choose(&self, chosen: &mut Vec<bool>, sets: &mut Vec<Vec<bool>>) {
        if sets.len() >= SETS {
            return;
        }
        let number = chosen.len();
        let Some(change) = self.changes.get(number) else {
            sets.push(chosen.clone());
            return;
        };
        let is_possible = (0..number).all(|earlier| chosen[earlier] || !self.rests_on(number, earlier));
        for arrives in [true, false] {
            if if arrives { is_possible } else { !change.is_durable } {
                chosen.push(arrives);
                self.choose(chosen, sets);
                chosen.pop();
            }
        }
    }
}

impl Change {
    fn touches(&self, directory: Node) -> bool {
        self.names.iter().any(|((holder, _), _)| *holder == directory)
    }

    fn arrive(&self, names: &mut BTreeMap<Entry, Node>) {
        for (entry, node) in &self.names {
            match node {
                Some(node) => names.insert(entry.clone(), *node),
                None => names.remove(entry),
            };
        }
    }
}

impl Content {
    fn newest(&self) -> &Vec<u8> {
        self.versions.last().expect("there is always one")
    }

    fn change(&mut self, act: impl FnOnce(&mut Vec<u8>)) {
        let mut content = self.newest().clone();
        act(&mut content);
        self.versions.push(content);
    }

    fn synchronise(&mut self) {
        self.versions.drain(..self.versions.len() - 1);
    }

    /// Every content that the device may have: each block and the length of any version. A block that was never
    /// written is zeros.
    fn variants(&self) -> Vec<Vec<u8>> {
        if self.versions.len() == 1 {
            return self.versions.clone();
        }
        let longest = self.versions.iter().map(Vec::len).max().unwrap_or(0);
        let mut lengths: BTreeSet<_> = self.versions.iter().map(Vec::len).collect();
        let shortest = lengths.first().copied().unwrap_or(0);
        lengths.extend((shortest..longest).filter(|length| length % BLOCK == 0));
        let blocks: Vec<Vec<Vec<u8>>> =
            (0..longest.div_ceil(BLOCK)).map(|number| self.blocks(number)).collect();
        let mut contents = BTreeSet::new();
        for choice in choices(&blocks) {
            let whole: Vec<u8> = choice.concat();
            contents.extend(lengths.iter().map(|&length| whole[..length].to_vec()));
        }
        contents.into_iter().collect()
    }

    /// The versions of a block, the newest first.
    fn blocks(&self, number: usize) -> Vec<Vec<u8>> {
        let mut blocks: Vec<Vec<u8>> = Vec::new();
        for version in self.versions.iter().rev() {
            let from = version.len().min(number * BLOCK);
            let to = version.len().min((number + 1) * BLOCK);
            let mut block = version[from..to].to_vec();
            block.resize(BLOCK, 0);
            if !blocks.contains(&block) {
                blocks.push(block);
            }
        }
        blocks
    }
}

fn choices(blocks: &[Vec<Vec<u8>>]) -> Vec<Vec<Vec<u8>>> {
    if blocks.len() <= COMBINED {
        return blocks.iter().fold(vec![Vec::new()], |choices, versions| {
            let add = |choice: &Vec<Vec<u8>>, version: &Vec<u8>| {
                [&choice[..], std::slice::from_ref(version)].concat()
            };
            choices
                .iter()
                .flat_map(|choice| versions.iter().map(move |version| add(choice, version)))
                .collect()
        });
    }
    let all =
        |pick: fn(&Vec<Vec<u8>>) -> &Vec<u8>| blocks.iter().map(|versions| pick(versions).clone()).collect();
    let newest: Vec<_> = all(|versions| &versions[0]);
    let oldest: Vec<_> = all(|versions| &versions[versions.len() - 1]);
    let mut choices = vec![newest.clone(), oldest.clone()];
    for (number, versions) in blocks.iter().enumerate() {
        for version in versions {
            for base in [&newest, &oldest] {
                let mut choice = base.clone();
                choice[number].clone_from(version);
                choices.push(choice);
            }
        }
    }
    choices
}

/// The paths from the root, which is node 0.
fn paths(entries: &BTreeMap<Entry, Node>) -> BTreeMap<Vec<u8>, Node> {
    let mut paths = BTreeMap::new();
    let mut directories = vec![(0, Vec::new())];
    while let Some((directory, prefix)) = directories.pop() {
        for ((_, name), &node) in entries.range((directory, Vec::new())..(directory + 1, Vec::new())) {
            let path = [&prefix[..], name].concat();
            // Only directories have entries; and none holds itself.
            directories.push((node, [&path[..], b"/"].concat()));
            paths.insert(path, node);
        }
    }
    paths
}
