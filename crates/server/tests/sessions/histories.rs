//! What several clients write and read at once, as one history: each read is a whole version, and none is older than one
//! that was acknowledged before it began.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::kit::{Scratch, Served, pattern, serve};

const WRITERS: u64 = 3;
const VERSIONS: u64 = 40;

/// Something that was done between two moments, with a version of the file.
#[derive(Debug, Clone, Copy)]
struct Deed {
    version: u64,
    begun: u64,
    ended: u64,
}

/// A clock of moments: no two are the same, and what follows something has a later one.
#[derive(Debug, Default)]
struct Clock(AtomicU64);

impl Clock {
    fn now(&self) -> u64 {
        self.0.fetch_add(1, Ordering::SeqCst)
    }
}

/// It can be told from each other one, and from a mixture: its number, and as many bytes as belong to it.
fn content(version: u64) -> Vec<u8> {
    let length = [3, 5_000, 70_000, 300_000][version as usize % 4] + version as usize;
    [&version.to_be_bytes()[..], &pattern(length)].concat()
}

/// The version that this is all of.
#[track_caller]
fn version_of(file: &[u8]) -> u64 {
    let version = u64::from_be_bytes(file[..8].try_into().expect("a version begins with its number"));
    assert!(file == content(version), "{} bytes are no whole version {version}", file.len());
    version
}

fn write(served: &Served, clock: &Clock, writer: u64) -> Vec<Deed> {
    let mut client = served.login();
    let deed = |round: u64| {
        let (version, begun) = (1 + round * WRITERS + writer, clock.now());
        client.store("STOR f", &content(version));
        Deed { version, begun, ended: clock.now() }
    };
    (0..VERSIONS).map(deed).collect()
}

/// Reads until the end, by FTP or as a program of this machine does.
fn read(served: &Served, clock: &Clock, end: &AtomicBool, local: Option<&Scratch>) -> Vec<Deed> {
    let mut client = served.login();
    let mut reads = Vec::new();
    while !end.load(Ordering::SeqCst) {
        let begun = clock.now();
        let file = match local {
            Some(scratch) => scratch.read("f").expect("the name is never without a file"),
            None => client.fetch("RETR f"),
        };
        reads.push(Deed { version: version_of(&file), begun, ended: clock.now() });
    }
    reads
}

/// Asserts that a read could be so, if each write has happened at some moment between its beginning and its end.
fn check(read: Deed, writes: &[Deed]) {
    let write = writes.iter().find(|write| write.version == read.version).expect("the version was written");
    assert!(write.begun < read.ended, "{read:?} is of {write:?}, which was not begun");
    let newer = writes.iter().find(|newer| newer.begun > write.ended && newer.ended < read.begun);
    assert!(newer.is_none(), "{read:?} is of {write:?}, though {newer:?} was acknowledged");
}

#[test]
fn every_read_is_a_whole_version_and_none_is_older_than_one_acknowledged() {
    let scratch = Scratch::new();
    scratch.write("f", &content(0));
    let (served, clock, end) = (serve(scratch.storage()), Clock::default(), AtomicBool::new(false));
    let mut writes = vec![Deed { version: 0, begun: clock.now(), ended: clock.now() }];
    let reads: Vec<Deed> = std::thread::scope(|scope| {
        let (served, clock, end, scratch) = (&served, &clock, &end, &scratch);
        let readers = [None, None, Some(scratch)];
        let readers = readers.map(|local| scope.spawn(move || read(served, clock, end, local)));
        let writers: Vec<_> =
            (0..WRITERS).map(|writer| scope.spawn(move || write(served, clock, writer))).collect();
        let written: Vec<_> = writers.into_iter().map(|writer| writer.join()).collect();
        end.store(true, Ordering::SeqCst);
        writes.extend(written.into_iter().flat_map(|writer| writer.unwrap()));
        readers.into_iter().flat_map(|reader| reader.join().unwrap()).collect()
    });
    reads.iter().for_each(|read| check(*read, &writes));
    let (begun, file) = (clock.now(), served.login().fetch("RETR f"));
    check(Deed { version: version_of(&file), begun, ended: clock.now() }, &writes);
    assert!(!reads.is_empty(), "something was read meanwhile");
    assert_eq!(scratch.names(), ["f"]);
}
