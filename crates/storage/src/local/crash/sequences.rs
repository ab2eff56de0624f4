//! All sequences of a few operations, and the states that power cuts leave of them.

use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{Hash, Hasher};
use std::ops::AddAssign;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use millrace_vfs::PartialMode;
use millrace_vfs::hash::{Algorithm, Algorithms};
use std::{fmt, fs};

use super::super::disk::observed::with_watch;
use super::super::disk::recorder::{Entry, Kind, Node, Recorder};
use super::super::{Durability, LocalOptions, LocalStorage, Uploads};
use super::operations::{ALL, Operation, Pieces};
use super::promises::{Promises, Snapshot, is_hidden};
use super::recovery::{Recovered, recover};
use super::states::{Disk, State};

/// How the server is set up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Setup {
    pub(super) durability: Durability,
    pub(super) uploads: Uploads,
    /// Whether the file system knows files without a name.
    pub(super) unnamed: bool,
}

pub(super) const LEVELS: [Durability; 3] = [Durability::None, Durability::Whole, Durability::Full];

impl Setup {
    /// The ways to upload at a level.
    pub(super) fn at(durability: Durability) -> [Self; 3] {
        let staged = Self { durability, uploads: Uploads::Staged, unnamed: true };
        [staged, Self { unnamed: false, ..staged }, Self { uploads: Uploads::InPlace, ..staged }]
    }

    pub(super) fn open(self, place: &Path) -> LocalStorage {
        let Self { durability, uploads, unnamed } = self;
        // Also the calls that store hashes are counted, and fail.
        let hashes = Algorithms::NONE.with(Algorithm::Crc32c);
        let options = LocalOptions { durability, uploads, hashes, ..LocalOptions::default() };
        let mut storage = LocalStorage::open(place, options).unwrap();
        storage.staged.unnamed &= unnamed;
        storage
    }
}

/// A directory that vanishes with the test: in memory where there is a place for that, because nothing waits for a device
/// here, and thousands of trees are made.
pub(super) struct Scratch(pub(super) PathBuf);

impl Scratch {
    pub(super) fn new() -> Self {
        static COUNTER: AtomicUsize = AtomicUsize::new(0);
        let number = COUNTER.fetch_add(1, Ordering::Relaxed);
        let memory = Some(PathBuf::from("/dev/shm")).filter(|memory| memory.is_dir());
        let place = memory.unwrap_or_else(std::env::temp_dir);
        let place = place.join(format!("millrace-crash-{}-{number}", std::process::id()));
        fs::create_dir(&place).unwrap();
        Self(place)
    }

    /// An empty directory in it; the next one replaces it.
    pub(super) fn fresh(&self, name: &str) -> PathBuf {
        let place = self.0.join(name);
        let _ = fs::remove_dir_all(&place);
        fs::create_dir(&place).unwrap();
        place
    }

    /// The tree that every sequence begins with.
    pub(super) fn tree(&self) -> PathBuf {
        let place = self.fresh("tree");
        fs::create_dir(place.join("d")).unwrap();
        fs::write(place.join("a"), "0.a 0.b 0.c 0.d ").unwrap();
        fs::write(place.join("d/c"), "0c.a0c.b").unwrap();
        place
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// What was tried, and what was found.
#[derive(Debug, Default)]
pub(super) struct Report {
    pub(super) sequences: usize,
    pub(super) cuts: usize,
    pub(super) states: usize,
    /// Servers that were started.
    pub(super) recoveries: usize,
    pub(super) broken: usize,
    /// The first of them, in words.
    pub(super) examples: Vec<String>,
    last_broken: Vec<Operation>,
}

impl Report {
    /// Counts a broken promise; of each sequence the first is told.
    fn add(&mut self, sequence: &[Operation], problem: impl FnOnce() -> String) {
        self.broken += 1;
        if self.examples.len() < 20 && self.last_broken != sequence {
            self.last_broken = sequence.to_vec();
            self.examples.push(problem());
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { sequences, cuts, states, recoveries, broken, .. } = self;
        write!(
            f,
            "{sequences} sequences, {cuts} cuts, {states} states, {recoveries} recoveries, {broken} broken"
        )
    }
}

impl AddAssign for Report {
    fn add_assign(&mut self, other: Self) {
        self.sequences += other.sequences;
        self.cuts += other.cuts;
        self.states += other.states;
        self.recoveries += other.recoveries;
        self.broken += other.broken;
        self.examples.extend(other.examples);
    }
}

/// Tries sequences.
pub(super) struct Explorer {
    pub(super) report: Report,
    setup: Setup,
    /// Whether waits for the device are believed.
    is_deaf: bool,
    stride: usize,
    counted: usize,
    scratch: Scratch,
    /// What servers made of states, by a hash of these.
    recovered: HashMap<u64, Recovered>,
}

impl Explorer {
    fn new(setup: Setup, is_deaf: bool, stride: usize) -> Self {
        let (report, scratch, recovered) = (Report::default(), Scratch::new(), HashMap::new());
        Self { report, setup, is_deaf, stride, counted: 0, scratch, recovered }
    }

    /// Tries what begins like this, up to this many operations.
    pub(super) fn explore(&mut self, begin: &mut Vec<Operation>, most: usize) {
        for &operation in ALL {
            self.counted += 1;
            if !begin.is_empty() && !self.counted.is_multiple_of(self.stride) {
                continue;
            }
            begin.push(operation);
            if self.run(begin) && begin.len() < most {
                self.explore(begin, most);
            }
            begin.pop();
        }
    }

    /// Runs a sequence, and cuts the power in its last operation: shorter sequences have the cuts before. Returns
    /// whether that could be done.
    pub(super) fn run(&mut self, sequence: &[Operation]) -> bool {
        let place = self.scratch.tree();
        let mut run = Run::begin(self.setup, &place);
        let (last, first) = sequence.split_last().expect("there is an operation");
        let is_done = first.iter().all(|&operation| run.step(operation)) && {
            run.before = run.promises.clone();
            run.begun = run.events();
            run.step(*last)
        };
        drop(run.storage);
        let recorder = with_watch(|watch| {
            watch.skips_waits = false;
            watch.recorder.take()
        });
        let recorder = recorder.expect("it was set at the beginning");
        if is_done {
            self.report.sequences += 1;
            let Run { initial, before, promises, begun, ended, links, .. } = run;
            let disk = Disk::new(initial.0, initial.1, self.is_deaf);
            Cuts {
                explorer: self,
                sequence,
                recorder: &recorder,
                links: &links,
                before: &before,
                after: &promises,
            }
            .make(disk, begun, ended);
        }
        is_done
    }
}

/// The names that were on the disk at first, and what they led to.
type Initial = (BTreeMap<Entry, Node>, Vec<(Kind, Vec<u8>)>);

/// A sequence that is being run.
struct Run {
    storage: LocalStorage,
    setup: Setup,
    place: PathBuf,
    initial: Initial,
    links: BTreeMap<Node, Vec<u8>>,
    pieces: Pieces,
    promises: Promises,
    /// The promises before the last operation.
    before: Promises,
    /// The events before it, and after it.
    begun: usize,
    ended: usize,
    turn: usize,
    begun_keys: BTreeSet<u8>,
}

impl Run {
    fn begin(setup: Setup, place: &Path) -> Self {
        let storage = setup.open(place);
        let mut recorder = Recorder::new(storage.tree.root());
        let mut links = BTreeMap::new();
        let (snapshot, names) = look(&mut recorder, &mut links, place);
        let contents = (0..recorder.nodes.len())
            .map(|node| (recorder.nodes[node], snapshot.contents.get(&node).cloned().unwrap_or_default()))
            .collect();
        with_watch(|watch| {
            watch.skips_waits = true;
            watch.recorder = Some(recorder);
        });
        let promises = Promises::new(setup.durability, snapshot);
        let (before, pieces) = (promises.clone(), Pieces::new());
        let place = place.to_owned();
        Self {
            storage,
            setup,
            place,
            initial: (names, contents),
            links,
            pieces,
            promises,
            before,
            begun: 0,
            ended: 0,
            turn: 0,
            begun_keys: BTreeSet::new(),
        }
    }

    fn events(&self) -> usize {
        with_watch(|watch| watch.recorder.as_ref().map_or(0, |recorder| recorder.events.len()))
    }

    /// Does an operation; returns whether it could be done.
    fn step(&mut self, operation: Operation) -> bool {
        // Keys are random, so that none is used twice.
        if let Operation::Begin(number, _) | Operation::BeginAndFinish(number, _) = operation
            && !self.begun_keys.insert(number)
        {
            return false;
        }
        self.turn += 1;
        let result = operation.run(&self.storage, self.turn, &mut self.pieces);
        with_watch(|watch| watch.made.clear());
        self.ended = self.events();
        if result.is_err() {
            return false;
        }
        let mut recorder = with_watch(|watch| watch.recorder.take()).expect("it was set at the beginning");
        let (snapshot, _) = look(&mut recorder, &mut self.links, &self.place);
        with_watch(|watch| watch.recorder = Some(recorder));
        let keeps = operation.in_place(self.setup.uploads);
        self.promises = self.promises.after(operation, keeps, snapshot, &self.pieces);
        true
    }
}

/// Power cuts within the last operation of a sequence.
struct Cuts<'a> {
    explorer: &'a mut Explorer,
    sequence: &'a [Operation],
    recorder: &'a Recorder,
    links: &'a BTreeMap<Node, Vec<u8>>,
    before: &'a Promises,
    after: &'a Promises,
}

impl Cuts<'_> {
    fn make(&mut self, mut disk: Disk, begun: usize, ended: usize) {
        for &kind in &self.recorder.nodes[disk.size()..] {
            disk.add(kind);
        }
        for event in &self.recorder.events[..begun] {
            disk.apply(event);
        }
        for (number, event) in self.recorder.events[begun..ended].iter().enumerate() {
            disk.apply(event);
            self.explorer.report.cuts += 1;
            let has_ended = begun + number + 1 == ended;
            disk.visit_states(&mut |state| self.check(&disk, state, has_ended, number));
        }
    }

    fn check(&mut self, disk: &Disk, state: &State<'_>, has_ended: bool, number: usize) {
        self.explorer.report.states += 1;
        let operation = *self.sequence.last().expect("there is an operation");
        let keeps = operation.in_place(self.explorer.setup.uploads);
        let broken = self.before.broken(self.after, operation, keeps, has_ended, disk, state);
        let broken = broken.or_else(|| {
            let found = self.recover(disk, state);
            self.before.broken_by(self.after, operation, has_ended, &found)
        });
        if let Some(problem) = broken {
            let (setup, sequence) = (self.explorer.setup, self.sequence);
            let names: Vec<_> = state
                .names
                .iter()
                .map(|(path, node)| {
                    format!(
                        "{}={node}:{:?}",
                        path.escape_ascii(),
                        state.content(*node).escape_ascii().to_string()
                    )
                })
                .collect();
            self.explorer.report.add(sequence, || {
                format!("{sequence:?} by {setup:?}, cut after call {number} (ended: {has_ended}): {problem}; there is {names:?}")
            });
        }
    }

    /// What a server makes of it.
    fn recover(&mut self, disk: &Disk, state: &State<'_>) -> Recovered {
        // The server looks at its own files alone, and of hidden ones at the names; these differ from run to run.
        let mut hasher = DefaultHasher::new();
        for (path, &node) in state.names.iter().filter(|(path, _)| is_hidden(path)) {
            match path.strip_suffix(b".part") {
                Some(hidden) => {
                    hidden.split(|&byte| byte == b'/').rev().skip(1).for_each(|name| name.hash(&mut hasher))
                }
                None => (path, state.content(node)).hash(&mut hasher),
            }
        }
        let Explorer { recovered, scratch, report, .. } = &mut *self.explorer;
        let found = recovered.entry(hasher.finish()).or_insert_with(|| {
            report.recoveries += 1;
            recover(&scratch.fresh("recovery"), disk, self.links, state)
        });
        found.clone()
    }
}

/// The tree as it is now, and all its entries.
fn look(
    recorder: &mut Recorder,
    links: &mut BTreeMap<Node, Vec<u8>>,
    place: &Path,
) -> (Snapshot, BTreeMap<Entry, Node>) {
    let (mut snapshot, mut names) = (Snapshot::default(), BTreeMap::new());
    let mut directories = vec![(place.to_owned(), Vec::new())];
    while let Some((directory, prefix)) = directories.pop() {
        let opened = fs::File::open(&directory).unwrap();
        let holder = recorder.node(&opened);
        for entry in fs::read_dir(&directory).unwrap() {
            let (name, path) =
                entry.map(|entry| (entry.file_name().as_bytes().to_vec(), entry.path())).unwrap();
            let node = recorder.at(std::os::fd::AsFd::as_fd(&opened), &name);
            names.insert((holder, name.clone()), node);
            let full = [&prefix[..], &name].concat();
            if is_hidden(&full) {
                continue;
            }
            match recorder.nodes[node] {
                Kind::Directory => directories.push((path, [&full[..], b"/"].concat())),
                Kind::File => drop(snapshot.contents.insert(node, fs::read(path).unwrap())),
                Kind::Link => {
                    let text = fs::read_link(path).unwrap();
                    drop(links.insert(node, text.as_os_str().as_bytes().to_vec()));
                }
            }
            snapshot.names.insert(full, node);
        }
    }
    (snapshot, names)
}

/// Tries sequences of this many operations at each level in each setup: all, or of those of two and more each
/// `stride`th.
fn explore(most: usize, stride: usize, is_deaf: bool, levels: &[Durability]) -> Report {
    let setups = levels.iter().flat_map(|&level| Setup::at(level));
    let mut total = Report::default();
    std::thread::scope(|scope| {
        let explore = |setup| {
            let mut explorer = Explorer::new(setup, is_deaf, stride);
            explorer.explore(&mut Vec::new(), most);
            println!("{setup:?}: {}", explorer.report);
            std::mem::take(&mut explorer.report)
        };
        let threads: Vec<_> = setups.map(|setup| scope.spawn(move || explore(setup))).collect();
        threads.into_iter().for_each(|thread| total += thread.join().unwrap());
    });
    println!("in all {total}");
    total
}

fn assert_kept(report: &Report) {
    assert!(report.broken == 0, "{} broken promises, such as\n{}", report.broken, report.examples.join("\n"));
}

#[test]
fn no_power_cut_breaks_a_promise() {
    let report = explore(2, 24, false, &LEVELS);
    assert_kept(&report);
    assert!(report.states > 20_000, "{report}");
}

/// What each has shown: a name made by an upload that was cut; the folder behind a link; bytes of tus that did not arrive,
/// and parts that were being joined.
#[test]
fn sequences_that_broke_a_promise_once_break_none() {
    use Operation::{Append, Begin, Join, JoinCut, Link, Piece, Restart, StoreCut, WrongPiece};
    let once: [&[Operation]; 7] = [
        &[StoreCut("b"), Append("b")],
        &[StoreCut("b"), Restart("b", 4)],
        &[Link("d/n", "l"), Append("l")],
        &[Begin(1, b"pp1pp2p"), Piece(1, PartialMode::Resume)],
        &[Begin(1, b"pp1pp2p"), WrongPiece(1)],
        &[Begin(1, b"pp1pp2p"), Begin(2, b"qq1qq2"), JoinCut("b")],
        &[Begin(1, b"pp1pp2p"), Begin(2, b"qq1qq2"), Join("b")],
    ];
    for setup in LEVELS.into_iter().flat_map(Setup::at) {
        let mut explorer = Explorer::new(setup, false, 1);
        // A staged upload that is cut leaves no file to go on with.
        let could_be_done = once.iter().filter(|sequence| explorer.run(sequence)).count();
        assert!(could_be_done >= once.len() - 1, "{setup:?}");
        assert_kept(&explorer.report);
    }
}

/// A test that finds nothing without them would be blind.
#[test]
fn without_waits_for_the_device_promises_are_broken() {
    for level in [Durability::Whole, Durability::Full] {
        let report = explore(1, 1, true, &[level]);
        assert!(report.broken > 100, "{level:?}: {report}");
    }
}

#[test]
#[ignore = "takes a quarter of an hour: see bench-runs"]
fn no_power_cut_in_any_sequence_of_three_breaks_a_promise() {
    let most = std::env::var("MILLRACE_OPERATIONS").map_or(3, |most| most.parse().unwrap());
    let report = explore(most, 1, false, &LEVELS);
    assert_kept(&report);
    let blind = explore(2, 1, true, &[Durability::Whole, Durability::Full]);
    println!("without waits: {blind}");
    assert!(report.states > 1_000_000 && blind.broken > 1_000);
}
