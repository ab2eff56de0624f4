//! What clients did to names at the same time, and whether each answer may have been given.
//!
//! Jepsen's question about a register, asked of each name alone. Moments are numbers that only grow. A write is *done by* the
//! moment of its acknowledgement, or of the first read that found it. A read is *stale* if what it found was done by the
//! time that another write began which, in turn, was done by the time that the read began. A write without an answer may be
//! done at any time after it began, or never.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The number of a content. 0 is no file.
pub(crate) type Version = u64;

/// No file.
pub(crate) const NONE: Version = 0;

#[derive(Debug, Clone, Copy)]
struct Write {
    /// [`NONE`] for a removal.
    version: Version,
    began: u64,
    /// `None` until it is known to be done.
    done_by: Option<u64>,
}

#[derive(Debug, Clone, Copy)]
struct Read {
    version: Version,
    began: u64,
    ended: u64,
}

#[derive(Debug, Default)]
struct Story {
    writes: Vec<Write>,
    reads: Vec<Read>,
}

/// All that happened.
#[derive(Debug, Default)]
pub(crate) struct History {
    moment: AtomicU64,
    names: Mutex<BTreeMap<String, Story>>,
}

/// A write that has begun.
#[derive(Debug)]
pub(crate) struct Begun<'a> {
    name: &'a str,
    at: usize,
}

impl History {
    fn now(&self) -> u64 {
        self.moment.fetch_add(1, Ordering::SeqCst) + 1
    }

    fn names(&self) -> MutexGuard<'_, BTreeMap<String, Story>> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A write begins.
    pub(crate) fn begin<'a>(&self, name: &'a str, version: Version) -> Begun<'a> {
        let mut names = self.names();
        let writes = &mut names.entry(name.to_owned()).or_default().writes;
        writes.push(Write { version, began: self.now(), done_by: None });
        Begun { name, at: writes.len() - 1 }
    }

    /// A write was acknowledged.
    pub(crate) fn acknowledge(&self, begun: &Begun<'_>) {
        let now = self.now();
        if let Some(story) = self.names().get_mut(begun.name) {
            story.writes[begun.at].done_by = Some(now);
        }
    }

    /// Reads, and keeps what was found, if anything is known to have been.
    pub(crate) fn read(&self, name: &str, find: impl FnOnce() -> Option<Version>) -> Option<Version> {
        let began = self.now();
        let version = find()?;
        let read = Read { version, began, ended: self.now() };
        self.names().entry(name.to_owned()).or_default().reads.push(read);
        Some(version)
    }

    /// How many writes of files were acknowledged, and how many had no answer, by name.
    pub(crate) fn uploads(&self) -> BTreeMap<String, (usize, usize)> {
        let count = |story: &Story| {
            let uploads = story.writes.iter().filter(|write| write.version != NONE);
            let (acknowledged, unanswered): (Vec<&Write>, Vec<&Write>) =
                uploads.partition(|write| write.done_by.is_some());
            (acknowledged.len(), unanswered.len())
        };
        self.names().iter().map(|(name, story)| (name.clone(), count(story))).collect()
    }

    /// How many reads there were.
    pub(crate) fn reads(&self) -> usize {
        self.names().values().map(|story| story.reads.len()).sum()
    }

    /// The reads that found what they may not have found.
    pub(crate) fn faults(&self) -> Vec<String> {
        let names = self.names();
        let of = |(name, story): (&String, &Story)| {
            story.faults().into_iter().map(|fault| format!("{name}: {fault}")).collect::<Vec<_>>()
        };
        names.iter().flat_map(of).collect()
    }
}

impl Story {
    fn faults(&self) -> Vec<String> {
        let before = Write { version: NONE, began: 0, done_by: Some(0) };
        let mut writes: Vec<Write> = std::iter::once(before).chain(self.writes.iter().copied()).collect();
        for read in self.reads.iter().filter(|read| read.version != NONE) {
            for write in writes.iter_mut().filter(|write| write.version == read.version) {
                write.done_by = Some(write.done_by.map_or(read.ended, |done_by| done_by.min(read.ended)));
            }
        }
        self.reads.iter().filter_map(|read| fault(read, &writes)).collect()
    }
}

fn fault(read: &Read, writes: &[Write]) -> Option<String> {
    let was_done = |write: &&Write| write.done_by.is_some_and(|done_by| done_by < read.began);
    let newest = writes.iter().filter(was_done).max_by_key(|write| write.began)?;
    let found = || writes.iter().filter(|write| write.version == read.version && write.began < read.ended);
    if found().any(|write| write.done_by.is_none_or(|done_by| done_by >= newest.began)) {
        return None;
    }
    Some(match found().next() {
        Some(_) => format!("{read:?} found what {newest:?} had replaced"),
        None => format!("{read:?} found what nothing had written"),
    })
}

#[test]
fn a_stale_read_is_noticed_and_one_beside_a_write_is_not() {
    let history = History::default();
    let first = history.begin("f", 1);
    assert_eq!(history.read("f", || Some(1)), Some(1), "it may be done");
    history.acknowledge(&first);
    let second = history.begin("f", 2);
    history.read("f", || Some(1));
    history.read("f", || Some(2));
    assert_eq!(history.faults(), [] as [&str; 0]);
    history.read("f", || Some(1));
    assert_eq!(history.faults().len(), 1, "another has found the second");
    history.acknowledge(&second);
    history.read("f", || Some(NONE));
    assert_eq!(history.faults().len(), 2, "nothing removed it");
    history.begin("f", NONE);
    history.read("f", || Some(NONE));
    history.read("f", || Some(3));
    assert_eq!(history.faults().len(), 3, "the removal had no answer; nothing wrote the third");
}
