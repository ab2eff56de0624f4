//! What lies in a writer's folder: as the acknowledged operations say, and as it is found on the disk.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::sync::Arc;

/// A file's contents.
pub(crate) type Bytes = Arc<Vec<u8>>;

/// The paths in a folder, such as `d0/f3`.
pub(crate) type Tree = BTreeMap<String, Node>;

/// What has a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Node {
    Directory,
    File(Bytes),
    /// A file in the midst of an upload in place: its first bytes are known.
    Torn(Bytes),
}

impl Node {
    /// Returns whether this, which was found, is what another promises.
    pub(crate) fn keeps(&self, promised: &Self) -> bool {
        match (self, promised) {
            (Self::File(found), Self::Torn(known)) => found.starts_with(known),
            _ => self == promised,
        }
    }

    pub(crate) fn describe(&self) -> String {
        match self {
            Self::Directory => "a directory".to_owned(),
            Self::File(bytes) => {
                let zeros = bytes.iter().filter(|&&byte| byte == 0).count();
                format!("{} bytes ({zeros} of them zero, sum {:x})", bytes.len(), checksum(bytes))
            }
            Self::Torn(known) => format!("at least {} bytes", known.len()),
        }
    }
}

fn checksum(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0, |sum: u32, &byte| sum.rotate_left(5) ^ u32::from(byte))
}

/// One operation of a writer.
#[derive(Debug, Clone)]
pub(crate) enum Op {
    /// `STOR`, `PUT`, the last piece of tus: staged, so whole or not at all.
    Store {
        path: String,
        contents: Bytes,
    },
    /// `APPE`, and `REST` with `STOR`: in place, from an offset on.
    Continue {
        path: String,
        offset: usize,
        contents: Bytes,
    },
    Rename {
        from: String,
        to: String,
    },
    Delete {
        path: String,
    },
    MakeDirectory {
        path: String,
    },
    RemoveDirectory {
        path: String,
    },
}

impl Op {
    /// Applies it whole.
    pub(crate) fn apply(&self, tree: &mut Tree) {
        match self {
            Self::Store { path, contents } => {
                tree.insert(path.clone(), Node::File(Arc::clone(contents)));
            }
            Self::Continue { path, offset, contents } => {
                let mut bytes = kept_bytes(tree, path, usize::MAX);
                let end = offset + contents.len();
                bytes.resize(bytes.len().max(end), 0);
                bytes[*offset..end].copy_from_slice(contents);
                tree.insert(path.clone(), Node::File(Arc::new(bytes)));
            }
            Self::Rename { from, to } => {
                if let Some(node) = tree.remove(from) {
                    tree.insert(to.clone(), node);
                }
            }
            Self::Delete { path } | Self::RemoveDirectory { path } => {
                tree.remove(path);
            }
            Self::MakeDirectory { path } => {
                tree.insert(path.clone(), Node::Directory);
            }
        }
    }

    /// Applies it as far as an operation that was cut may have come, where that is not all or nothing.
    pub(crate) fn tear(&self, tree: &mut Tree) -> bool {
        let Self::Continue { path, offset, .. } = self else { return false };
        let known = kept_bytes(tree, path, *offset);
        tree.insert(path.clone(), Node::Torn(Arc::new(known)));
        true
    }

    /// Returns whether it is a rename of which the old name and the new one are found.
    pub(crate) fn is_half_moved(&self, found: &Tree, acknowledged: &Tree) -> bool {
        let Self::Rename { from, to } = self else { return false };
        let mut both = acknowledged.clone();
        both.extend(acknowledged.get(from).map(|node| (to.clone(), node.clone())));
        differences(found, &both).is_empty()
    }

    pub(crate) fn describe(&self) -> String {
        let event = self.event();
        match self {
            Self::Store { path, contents } => format!("{event} of {} bytes to {path}", contents.len()),
            Self::Continue { path, offset, contents } => {
                format!("{event} of {} bytes to {path} from {offset} on", contents.len())
            }
            Self::Rename { from, to } => format!("{event} of {from} to {to}"),
            op => format!("{event} of {}", op.path()),
        }
    }

    /// The path that is in the event of this operation.
    pub(crate) fn path(&self) -> &str {
        match self {
            Self::Rename { from, .. } => from,
            Self::Store { path, .. }
            | Self::Continue { path, .. }
            | Self::Delete { path }
            | Self::MakeDirectory { path }
            | Self::RemoveDirectory { path } => path,
        }
    }

    /// The kind of its event.
    pub(crate) fn event(&self) -> &'static str {
        match self {
            Self::Store { .. } | Self::Continue { .. } => "upload",
            Self::Rename { .. } => "rename",
            Self::Delete { .. } => "delete",
            Self::MakeDirectory { .. } => "make-directory",
            Self::RemoveDirectory { .. } => "remove-directory",
        }
    }
}

fn kept_bytes(tree: &Tree, path: &str, offset: usize) -> Vec<u8> {
    match tree.get(path) {
        Some(Node::File(bytes)) => bytes[..offset.min(bytes.len())].to_vec(),
        _ => Vec::new(),
    }
}

/// Reads a folder. Hidden names of the server are no part of it.
pub(crate) fn read(folder: &Path) -> Tree {
    let mut tree = Tree::new();
    read_into(folder, "", &mut tree);
    tree
}

fn read_into(folder: &Path, prefix: &str, tree: &mut Tree) {
    for entry in fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display())) {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        if name.starts_with(".millrace-") {
            continue;
        }
        let path = format!("{prefix}{name}");
        if entry.file_type().unwrap().is_dir() {
            read_into(&entry.path(), &format!("{path}/"), tree);
            tree.insert(path, Node::Directory);
        } else {
            let bytes = fs::read(entry.path()).unwrap();
            tree.insert(path, Node::File(Arc::new(bytes)));
        }
    }
}

/// The differences of what was found from what is promised.
pub(crate) fn differences(found: &Tree, promised: &Tree) -> Vec<String> {
    let paths: BTreeSet<&String> = found.keys().chain(promised.keys()).collect();
    let differ = |path: &&String| match (found.get(*path), promised.get(*path)) {
        (Some(found), Some(promised)) => !found.keeps(promised),
        // Where nothing came, there need be no file.
        (None, Some(Node::Torn(known))) => !known.is_empty(),
        (found, promised) => found.is_some() != promised.is_some(),
    };
    let describe = |node: Option<&Node>| node.map_or("nothing".to_owned(), Node::describe);
    let differing = paths.into_iter().filter(differ);
    let describe = |path: &String| {
        let (found, promised) = (found.get(path), promised.get(path));
        let alike = match (found, promised) {
            (Some(Node::File(found)), Some(Node::File(promised) | Node::Torn(promised))) => {
                let alike = found.iter().zip(&**promised).take_while(|(one, other)| one == other).count();
                format!(", of which the first {alike} are alike")
            }
            _ => String::new(),
        };
        format!("{path}: {} for {}{alike}", describe(found), describe(promised))
    };
    differing.map(describe).collect()
}

/// Asserts that a folder holds what was acknowledged; of an operation that was not, all or nothing. The tree as it is
/// then, and whether that operation was done; or the differences.
pub(crate) fn check(found: &Tree, acknowledged: &Tree, unanswered: Option<&Op>) -> Result<bool, Vec<String>> {
    let without = differences(found, acknowledged);
    if without.is_empty() {
        return Ok(false);
    }
    let Some(op) = unanswered else { return Err(without) };
    let mut with = acknowledged.clone();
    op.apply(&mut with);
    let mut torn = acknowledged.clone();
    let is_torn = op.tear(&mut torn) && differences(found, &torn).is_empty();
    match is_torn || differences(found, &with).is_empty() {
        true => Ok(true),
        false => Err([without, vec![format!("while this was under way: {}", op.describe())]].concat()),
    }
}

#[test]
fn half_files_lost_names_and_renames_that_are_half_done_are_found() {
    let file = |text: &str| Node::File(Arc::new(text.as_bytes().to_vec()));
    let tree = |entries: &[(&str, &str)]| -> Tree {
        entries.iter().map(|(path, text)| ((*path).to_owned(), file(text))).collect()
    };
    let acknowledged = tree(&[("a", "alpha"), ("b", "beta")]);
    let rename = Op::Rename { from: "a".to_owned(), to: "c".to_owned() };
    let append = Op::Continue { path: "b".to_owned(), offset: 4, contents: Arc::new(b"more".to_vec()) };
    let is_well = |found: &[(&str, &str)], op| check(&tree(found), &acknowledged, op).is_ok();
    assert!(is_well(&[("a", "alpha"), ("b", "beta")], None));
    assert!(!is_well(&[("a", "alp"), ("b", "beta")], None), "half a file");
    assert!(!is_well(&[("a", "alpha")], None), "a lost name");
    assert!(!is_well(&[("a", "alpha"), ("b", "beta"), ("x", "")], None), "a new name");
    assert!(is_well(&[("c", "alpha"), ("b", "beta")], Some(&rename)));
    assert!(!is_well(&[("b", "beta")], Some(&rename)), "neither name");
    assert!(!is_well(&[("a", "alpha"), ("c", "alpha"), ("b", "beta")], Some(&rename)), "both names");
    assert!(is_well(&[("a", "alpha"), ("b", "betamo")], Some(&append)));
    assert!(!is_well(&[("a", "alpha"), ("b", "bet")], Some(&append)), "what was there before");
}
