//! Every call fails in turn: the error says why, the old file is intact, and nothing is left behind.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use millrace_vfs::{FileError, Storage};
use rustix::io::Errno;

use super::super::LocalStorage;
use super::super::disk::observed::{ALL as ALL_CALLS, Failure, WAITS, with_watch};
use super::operations::{ALL, Keeps, Operation, Pieces, key, path};
use super::recovery::left_over;
use super::sequences::{LEVELS, Scratch, Setup};

/// What disks, quotas and limits answer.
const ERRORS: [Errno; 4] = [Errno::IO, Errno::NOSPC, Errno::DQUOT, Errno::MFILE];

/// What is there before an operation that needs more than the tree has.
fn preparation(operation: Operation) -> Vec<Operation> {
    use Operation as Op;
    match operation {
        Op::Rename("b", _) | Op::Delete("b") | Op::Restart("b", _) => vec![Op::Store("b")],
        Op::RemoveDirectory("e") => vec![Op::MakeDirectory("e")],
        Op::RemoveDirectory("d") => vec![Op::Delete("d/c")],
        Op::Store("l") => vec![Op::Link("d/c", "l")],
        Op::Append("l") => vec![Op::Link("d/n", "l")],
        Op::Piece(..) | Op::WrongPiece(_) | Op::Finish(..) | Op::GiveUp(_) => vec![Op::Begin(1, b"pp1pp2p")],
        Op::Join(_) | Op::JoinCut(_) => vec![Op::Begin(1, b"pp1pp2p"), Op::Begin(2, b"qq1qq2")],
        _ => Vec::new(),
    }
}

/// What clients see, by path: content, or what a link says, or nothing of a directory.
type Tree = BTreeMap<String, Vec<u8>>;

/// What is there: the tree, and the sizes of the tus uploads.
#[derive(Debug, Clone, PartialEq, Eq)]
struct There {
    tree: Tree,
    uploads: BTreeMap<u8, u64>,
}

fn look(place: &Path, storage: &LocalStorage) -> There {
    let mut tree = Tree::new();
    let mut directories = vec![place.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(place).unwrap().to_str().unwrap().to_owned();
            if name.contains(".millrace-") {
                continue;
            }
            let content = match (path.is_symlink(), path.is_dir()) {
                (true, _) => fs::read_link(&path).unwrap().into_os_string().into_encoded_bytes(),
                (_, true) => {
                    directories.push(path);
                    Vec::new()
                }
                _ => fs::read(&path).unwrap(),
            };
            tree.insert(name, content);
        }
    }
    let size = |number: u8| Some((number, storage.find_partial(&path("a"), &key(number)).ok()?.size));
    There { tree, uploads: [1, 2].into_iter().filter_map(size).collect() }
}

/// An operation, one of whose calls fails.
struct Case {
    setup: Setup,
    operation: Operation,
    before: There,
    /// After it has succeeded.
    after: There,
}

impl Case {
    /// Runs it without a fault.
    fn new(scratch: &Scratch, setup: Setup, operation: Operation) -> Self {
        let (place, storage, mut pieces) = prepare(scratch, setup, operation);
        let before = look(&place, &storage);
        operation
            .run(&storage, 9, &mut pieces)
            .unwrap_or_else(|error| panic!("{operation:?}, {setup:?}: {error}"));
        let after = look(&place, &storage);
        Self { setup, operation, before, after }
    }

    /// Runs it with a fault; returns whether there are as many calls.
    fn fail(&self, scratch: &Scratch, failure: Failure) -> bool {
        let Self { setup, operation, before, after } = self;
        let (place, storage, mut pieces) = prepare(scratch, *setup, *operation);
        with_watch(|watch| {
            watch.made.clear();
            watch.failure = Some(failure);
        });
        let result = operation.run(&storage, 9, &mut pieces);
        let made = with_watch(|watch| {
            watch.failure = None;
            std::mem::take(&mut watch.made)
        });
        let Some(call) = made.get(failure.at - 1) else { return false };
        let what =
            format!("{operation:?}, {setup:?}, call {} of {made:?}: {failure:?}: {result:?}", failure.at);
        let is_wait = WAITS.contains(call);
        match &result {
            Ok(()) if operation.is_acknowledged() => {
                assert!(!is_wait, "a wait failed, and it is acknowledged: {what}")
            }
            Ok(()) => {}
            Err(error) => assert!(says(error, failure.errno), "{what}"),
        }
        let now = look(&place, &storage);
        let is_done = now.tree == after.tree;
        match &result {
            // A part that was joined and cannot be removed is swept with those that no client continues.
            Ok(()) if operation.is_acknowledged() => {
                assert!(is_done && (now.uploads == after.uploads || *call == "unlinkat"), "{now:?}: {what}");
            }
            _ => assert!(is_done || now.tree == before.tree || self.is_partly_done(&now), "{now:?}: {what}"),
        }
        if is_wait && operation.is_acknowledged() && !failure.for_ever {
            // A later wait would succeed without the bytes.
            let went_on = operation.keys().iter().any(|number| now.uploads.contains_key(number));
            assert!(
                !went_on || matches!(operation, Operation::Join(_)),
                "the upload goes on: {now:?}: {what}"
            );
        }
        self.check_recovery(&place, storage, &now, &what);
        true
    }

    /// Another server starts, and does it.
    fn check_recovery(&self, place: &Path, storage: LocalStorage, now: &There, what: &str) {
        drop(storage);
        let storage = self.setup.open(place);
        let report = storage.sweep();
        assert!(report.failed == 0 && report.living == 0, "{report:?}: {what}");
        assert_eq!(left_over(place), None, "{what}");
        if *now == self.before {
            let result = self.operation.run(&storage, 9, &mut Pieces::new());
            assert!(result.is_ok() && look(place, &storage) == self.after, "again: {result:?}: {what}");
        }
    }

    /// Returns whether an upload in place has left part of its file, and all else is as it was.
    fn is_partly_done(&self, now: &There) -> bool {
        let Some(keeps) = self.operation.in_place(self.setup.uploads) else { return false };
        let names = self.operation.names();
        let others = |tree: &Tree| -> Tree {
            tree.iter()
                .filter(|(name, _)| !names.contains(&&***name))
                .map(|(name, bytes)| (name.clone(), bytes.clone()))
                .collect()
        };
        let is_kept = |name: &&str| {
            let old = self.before.tree.get(*name).map_or(&[][..], |bytes| &bytes[..]);
            let start = match keeps {
                Keeps::All => old,
                Keeps::Before(offset) => &old[..offset.min(old.len())],
            };
            now.tree.get(*name).map_or(old.is_empty(), |bytes| bytes.starts_with(start))
        };
        others(&now.tree) == others(&self.before.tree) && names.iter().all(is_kept)
    }
}

fn prepare(
    scratch: &Scratch,
    setup: Setup,
    operation: Operation,
) -> (std::path::PathBuf, LocalStorage, Pieces) {
    let place = scratch.tree();
    let storage = setup.open(&place);
    let mut pieces = Pieces::new();
    for (number, step) in preparation(operation).into_iter().enumerate() {
        step.run(&storage, number + 1, &mut pieces).unwrap();
    }
    (place, storage, pieces)
}

/// Returns whether an error names the cause.
fn says(error: &FileError, errno: Errno) -> bool {
    match errno {
        Errno::IO => matches!(error, FileError::Io(_)),
        Errno::NOSPC => matches!(error, FileError::NoSpace),
        Errno::DQUOT => matches!(error, FileError::QuotaExceeded),
        _ => matches!(error, FileError::Exhausted),
    }
}

/// Fails each call of each operation, with the errors that `choose` names for its number; returns how many runs there were.
fn fail_all(choose: impl Fn(usize) -> Vec<(Errno, bool)>) -> usize {
    with_watch(|watch| watch.skips_waits = true);
    let scratch = Scratch::new();
    let mut runs = 0;
    for setup in LEVELS.into_iter().flat_map(Setup::at) {
        for (turn, &operation) in ALL.iter().enumerate() {
            let case = Case::new(&scratch, setup, operation);
            for at in 1.. {
                let mut is_over = false;
                for (errno, for_ever) in choose(turn + at) {
                    is_over = !case.fail(&scratch, Failure { among: ALL_CALLS, at, for_ever, errno });
                    runs += usize::from(!is_over);
                }
                if is_over {
                    break;
                }
            }
        }
    }
    with_watch(|watch| watch.skips_waits = false);
    runs
}

#[test]
fn whichever_call_fails_the_error_says_why_and_nothing_is_left() {
    let runs = fail_all(|turn| vec![(ERRORS[turn % ERRORS.len()], false)]);
    println!("{runs} calls failed");
    assert!(runs > 3_000, "{runs}");
}

/// Also where all calls after it fail: a disk that is gone.
#[test]
#[ignore = "takes minutes: see bench-runs"]
fn whichever_call_fails_once_or_for_ever_in_all_ways() {
    let all = || ERRORS.into_iter().flat_map(|errno| [(errno, false), (errno, true)]).collect();
    println!("{} calls failed", fail_all(|_| all()));
}
