//! `kill -9` at random moments under mixed load.
//!
//! A kill keeps what the kernel has, so this attacks what a change does in several steps: a name that shows half a
//! file, a ledger that was not told, an event that was not stored, leftovers that hold up the next start.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use crate::noise::Noise;
use crate::receiver::{Receiver, Subject};
use crate::rounds;
use crate::site::{Scratch, Site};
use crate::tree;
use crate::writer::Writer;

const WRITERS: usize = 6;

/// The longest that a server lives.
const LIFE: usize = 150;

/// How long the events of the last server may be on their way.
const PATIENCE: Duration = Duration::from_secs(60);

const HOOK: &str = "[[hook]]\non = [\"upload\", \"delete\", \"rename\", \"make-directory\", \"remove-directory\", \
                    \"interrupted\"]\nwait = false\nbatch = 100\n";

/// What happened to the files of all rounds, by kind, user and path.
#[derive(Default)]
struct Story {
    acknowledged: BTreeMap<Subject, usize>,
    /// Without an answer, and done.
    done: BTreeMap<Subject, usize>,
    /// Without an answer.
    unanswered: BTreeMap<Subject, usize>,
    operations: usize,
    cut: usize,
    refused: usize,
}

impl Story {
    fn count(counts: &mut BTreeMap<Subject, usize>, writer: &Writer, op: &tree::Op) {
        let path = format!("/{}/{}", writer.folder, op.path());
        *counts.entry((op.event().to_owned(), writer.user.to_owned(), path)).or_insert(0) += 1;
    }

    /// Checks what a writer's folder holds after a kill, and goes on from there.
    fn take(&mut self, site: &Site, writer: &mut Writer) -> Result<(), Vec<String>> {
        let found = tree::read(&site.home(writer.user).join(&writer.folder));
        let is_done = tree::check(&found, &writer.acknowledged, writer.unanswered.as_ref())?;
        for record in std::mem::take(&mut writer.history) {
            match record.acknowledged {
                Some(_) => Self::count(&mut self.acknowledged, writer, &record.op),
                None => {
                    Self::count(&mut self.unanswered, writer, &record.op);
                    self.cut += 1;
                    if is_done {
                        Self::count(&mut self.done, writer, &record.op);
                    }
                }
            }
            self.operations += 1;
        }
        self.refused += std::mem::take(&mut writer.refused);
        writer.recover(found);
        let lost = writer.lost.drain(..).map(|lost| lost.describe()).collect::<Vec<_>>();
        if lost.is_empty() { Ok(()) } else { Err(lost) }
    }

    /// The promises about events that have not been kept yet.
    fn missing_events(&self, counts: &BTreeMap<Subject, usize>) -> Vec<String> {
        let came = |subject: &Subject| counts.get(subject).copied().unwrap_or(0);
        let lost = self.acknowledged.iter().filter(|(subject, count)| came(subject) < **count);
        let lost = lost.map(|(subject, count)| format!("{subject:?}: {} of {count} events", came(subject)));
        // What was done without an answer has its event, or one that says that it may have been done.
        let unsaid = self.done.iter().filter(|(subject, count)| {
            let told =
                came(subject) - came(subject).min(self.acknowledged.get(*subject).copied().unwrap_or(0));
            let interrupted = ("interrupted".to_owned(), subject.1.clone(), subject.2.clone());
            told + came(&interrupted) < **count
        });
        let unsaid =
            unsaid.map(|(subject, _)| format!("{subject:?}: done, and neither told nor interrupted"));
        lost.chain(unsaid).collect()
    }

    /// Events of what was never asked for.
    fn invented_events(&self, counts: &BTreeMap<Subject, usize>) -> Vec<String> {
        let asked = |subject: &Subject| {
            let count = |counts: &BTreeMap<Subject, usize>| counts.get(subject).copied().unwrap_or(0);
            count(&self.acknowledged) + count(&self.unanswered)
        };
        let told = counts.iter().filter(|(subject, _)| subject.0 != "interrupted");
        let invented = told.filter(|(subject, count)| asked(subject) < **count);
        invented
            .map(|(subject, count)| format!("{subject:?}: {count} events of {}", asked(subject)))
            .collect()
    }
}

#[test]
fn a_kill_at_any_moment_loses_nothing_that_was_acknowledged() {
    let rounds = rounds("MILLRACE_KILLS", 20);
    let scratch = Scratch::new("kills");
    let receiver = Receiver::start();
    let hook = format!("{HOOK}webhook = \"http://127.0.0.1:{}/\"\n", receiver.port);
    let here = scratch.0.display();
    let keys = format!("quotas = \"{here}/state/quotas.db\"\nhooks-queue = \"{here}/state/events.db\"\n");
    let group = "[[group]]\nname = \"all\"\nquota-bytes = \"80k\"\nquota-files = 24\n";
    let site = Site::make(&scratch.0, &keys, &format!("{group}{hook}"), WRITERS);
    let seed = 0x5eed;
    let mut noise = Noise::new(seed);
    let mut writers: Vec<Writer> = (0..WRITERS).map(|number| Writer::new(seed, number)).collect();
    let mut story = Story::default();
    let mut starts = Vec::new();
    for round in 0..rounds {
        let (mut server, took) = site.start();
        starts.push(took);
        if let Err(error) = server.check_ledgers(&site) {
            panic!("before kill {round}: {error}");
        }
        run_and_kill(&mut writers, &mut server, noise.below(LIFE));
        for writer in &mut writers {
            if let Err(differences) = story.take(&site, writer) {
                let Writer { user, folder, trail, .. } = writer;
                panic!("kill {round}, {user}'s {folder}: {differences:#?} after {trail:#?}");
            }
        }
    }
    let (server, _) = site.start();
    assert_eq!(server.check_ledgers(&site), Ok(()));
    let end = Instant::now() + PATIENCE;
    while !story.missing_events(&receiver.counts()).is_empty() && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(10));
    }
    let counts = receiver.counts();
    assert_eq!(story.missing_events(&counts), [] as [&str; 0]);
    assert_eq!(story.invented_events(&counts), [] as [&str; 0]);
    check_leftovers(&site);
    starts.sort();
    let Story { operations, cut, refused, .. } = story;
    let interrupted: usize =
        counts.iter().filter(|(subject, _)| subject.0 == "interrupted").map(|(_, count)| count).sum();
    println!(
        "{rounds} kills: {operations} operations, {cut} of them cut, {refused} refused; {} events, {interrupted} of \
         them interrupted; started in {:?}, at most {:?}",
        counts.values().sum::<usize>(),
        starts[starts.len() / 2],
        starts[starts.len() - 1],
    );
    assert!(operations > rounds && cut > 0 && refused > 0, "there was load");
}

fn run_and_kill(writers: &mut [Writer], server: &mut crate::site::Server, life: usize) {
    let (addresses, stop) = (server.addresses(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for writer in writers {
            let stop = &stop;
            scope.spawn(move || writer.run(addresses, stop, &|| 0));
        }
        std::thread::sleep(Duration::from_millis(life as u64));
        server.kill();
    });
}

/// After a start nothing hidden is left but waiting uploads of tus.
fn check_leftovers(site: &Site) {
    let mut folders = vec![site.folder.join("served")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
            let name = entry.file_name().into_string().unwrap();
            assert!(!name.ends_with(".part"), "{name} was not swept");
            if entry.file_type().unwrap().is_dir() {
                folders.push(entry.path());
            }
        }
    }
}

/// A million names take about a minute.
const SWEEP: Duration = Duration::from_secs(300);

/// A start is timed this often; the quickest counts, because other programs use the machine as well.
const STARTS: usize = 5;

#[test]
fn a_million_leftovers_do_not_hold_up_the_start() {
    let leftovers = rounds("MILLRACE_LEFTOVERS", 20_000);
    let scratch = Scratch::new("leftovers");
    let site = Site::make(&scratch.0, "", "[[group]]\nname = \"all\"\n", 1);
    let start = || {
        let times = (0..STARTS).map(|_| {
            let (mut server, took) = site.start();
            server.kill();
            took
        });
        times.min().unwrap()
    };
    let without = start();
    make_leftovers(&site.folder.join("served/alice/.millrace-staging"), leftovers);
    let with = start();
    println!("{leftovers} leftovers: started in {with:?} beside them and in {without:?} without");
    assert!(
        with < Duration::from_millis(100).max(without * 3),
        "{with:?} beside leftovers, {without:?} without"
    );
    let (_server, _) = site.start();
    let begun = Instant::now();
    let left = || match fs::read_dir(site.folder.join("served/alice/.millrace-staging")) {
        Ok(entries) => entries.count(),
        Err(_) => 0,
    };
    let at_first = left();
    while left() > 1 {
        assert!(begun.elapsed() < SWEEP, "{} leftovers are not swept", left());
        std::thread::sleep(Duration::from_millis(20));
    }
    println!("{at_first} of {leftovers} leftovers were swept in {:?} behind the start", begun.elapsed());
}

/// Names of few files: what a sweep meets, without the cost of an inode for each.
fn make_leftovers(directory: &Path, count: usize) {
    const LINKS: usize = 30_000;
    fs::create_dir_all(directory).unwrap();
    let name = |number: usize| directory.join(format!(".millrace-1-1-{number}.part"));
    for number in 0..count {
        match number % LINKS {
            0 => fs::write(name(number), "left").unwrap(),
            within => fs::hard_link(name(number - within), name(number)).unwrap(),
        }
    }
}
