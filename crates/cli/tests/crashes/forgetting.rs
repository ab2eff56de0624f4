//! The real server on a disk that forgets what was not synchronised.
//!
//! Everything lies on that disk: files, ledger, queue. After each crash the files are compared with what was
//! acknowledged, and the server that starts again must count what is there. The file system is known to the server as
//! FUSE, on which it synchronises bytes at every level; what bytes alone lose is tried by a disk that lies.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fuser::BackgroundSession;

use crate::clients::{Ftp, Http};
use crate::disk::Disk;
use crate::generations::Generations;
use crate::mount::{Shared, lock, mount};
use crate::noise::Noise;
use crate::rounds;
use crate::site::{Scratch, Site};
use crate::tree;
use crate::writer::{Lost, Writer, filename_field};

const WRITERS: usize = 6;

/// The longest that a server lives.
const LIFE: usize = 120;

const GROUP: &str = "[[group]]\nname = \"all\"\nquota-bytes = \"100M\"\nquota-files = 1000\n";

/// What files are compared with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Promise {
    /// No half files.
    Whole,
    /// Nothing is lost.
    Full,
}

/// A mount that is taken away also when a test fails.
struct Mounted {
    session: Option<BackgroundSession>,
    at: PathBuf,
}

impl Mounted {
    fn new(disk: &Shared, at: &Path) -> Option<Self> {
        Some(Self { session: Some(mount(disk, at)?), at: at.to_owned() })
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let ended = self.session.take().map(BackgroundSession::umount_and_join);
        if !matches!(ended, Some(Ok(()))) {
            let _ = Command::new("umount").args(["-l".as_ref(), self.at.as_os_str()]).status();
        }
    }
}

/// What came of a number of crashes.
#[derive(Debug, Default)]
struct Outcome {
    operations: usize,
    cut: usize,
    refused: usize,
    forgotten: crate::disk::Forgotten,
    violations: Vec<String>,
}

/// The server and its clients on one disk.
struct Trial {
    scratch: Scratch,
    disk: Shared,
    writers: Vec<Writer>,
    noise: Noise,
    promise: Promise,
    outcome: Outcome,
}

impl Trial {
    fn new(name: &str, seed: u64, promise: Promise) -> Self {
        let scratch = Scratch::new(name);
        fs::create_dir(scratch.0.join("disk")).unwrap();
        Self {
            scratch,
            disk: Arc::new(Mutex::new(Disk::new())),
            writers: (0..WRITERS).map(|number| Writer::new(seed, number)).collect(),
            noise: Noise::new(seed),
            promise,
            outcome: Outcome::default(),
        }
    }

    /// `None` where nothing can be mounted.
    fn run(mut self, durability: &str, crashes: usize) -> Option<Outcome> {
        let at = self.scratch.0.join("disk");
        let mounted = Mounted::new(&self.disk, &at)?;
        let keys = format!("durability = \"{durability}\"\nquotas = \"{}/state/quotas.db\"\n", at.display());
        let site = Site::make(&at, &keys, GROUP, WRITERS);
        drop(mounted);
        lock(&self.disk).synchronise_all();
        for crash in 0..crashes {
            let mounted = Mounted::new(&self.disk, &at)?;
            self.serve_and_kill(&site, crash);
            drop(mounted);
            lock(&self.disk).crash(&mut self.noise);
            let mounted = Mounted::new(&self.disk, &at)?;
            self.check(&site, crash);
            drop(mounted);
        }
        self.outcome.forgotten = lock(&self.disk).forgotten;
        Some(self.outcome)
    }

    fn serve_and_kill(&mut self, site: &Site, crash: usize) {
        let mut server = site.start_in_boot(crash);
        if let Err(error) = server.check_ledgers(site) {
            self.outcome.violations.push(format!("before crash {crash}: {error}"));
        }
        let (addresses, stop) = (server.addresses(), AtomicBool::new(false));
        let life = Duration::from_millis(self.noise.below(LIFE) as u64);
        std::thread::scope(|scope| {
            for writer in &mut self.writers {
                let stop = &stop;
                scope.spawn(move || writer.run(addresses, stop, &|| 0));
            }
            std::thread::sleep(life);
            server.kill();
        });
    }

    fn check(&mut self, site: &Site, crash: usize) {
        for writer in &mut self.writers {
            let folder = site.home(writer.user).join(&writer.folder);
            let found = if folder.is_dir() { tree::read(&folder) } else { tree::Tree::new() };
            let broken = match self.promise {
                Promise::Full => tree::check(&found, &writer.acknowledged, writer.unanswered.as_ref()).err(),
                Promise::Whole => Some(Generations::of(&writer.begun_with, &writer.history).broken(&found)),
            };
            if let Some(broken) = broken.filter(|broken| !broken.is_empty()) {
                let Writer { folder, trail, .. } = &writer;
                self.outcome
                    .violations
                    .push(format!("crash {crash}, {folder}: {broken:#?} after {trail:#?}"));
            }
            self.outcome.operations += writer.history.len();
            self.outcome.cut += writer.history.iter().filter(|record| record.acknowledged.is_none()).count();
            self.outcome.refused += std::mem::take(&mut writer.refused);
            // Where names may be lost, an upload may be; what there is of it is not shorter.
            let is_broken = |lost: &Lost| self.promise == Promise::Full || lost.offset.is_some();
            let lost = writer.lost.drain(..).filter(is_broken);
            self.outcome
                .violations
                .extend(lost.map(|lost| format!("before crash {crash}: {}", lost.describe())));
            writer.history.clear();
            writer.recover(found);
        }
    }
}

impl Outcome {
    fn print(&self, what: &str, crashes: usize) {
        let Self { operations, cut, refused, forgotten, violations } = self;
        // What is refused is not compared.
        assert!(*refused * 100 <= *operations, "{what}: {refused} of {operations} operations were refused");
        println!(
            "{what}: {crashes} crashes, {operations} operations, {cut} of them cut, {refused} refused; {} names and {} writes forgotten; {} \
             violations",
            forgotten.names,
            forgotten.writes,
            violations.len()
        );
    }
}

#[test]
fn a_disk_that_forgets_loses_nothing_acknowledged_at_full() {
    let crashes = rounds("MILLRACE_FORGETS", 12);
    let Some(outcome) = Trial::new("full", 11, Promise::Full).run("full", crashes) else { return };
    outcome.print("full", crashes);
    assert!(outcome.violations.is_empty(), "{}", outcome.violations.join("\n"));
    assert!(outcome.operations > crashes && outcome.forgotten.writes > 0, "{outcome:?}");
}

#[test]
fn a_disk_that_forgets_leaves_no_half_files_at_whole() {
    let crashes = rounds("MILLRACE_FORGETS", 12);
    let Some(outcome) = Trial::new("whole", 12, Promise::Whole).run("whole", crashes) else { return };
    outcome.print("whole", crashes);
    assert!(outcome.violations.is_empty(), "{}", outcome.violations.join("\n"));
    assert!(outcome.forgotten.names > 0, "{outcome:?}");
}

/// Else the tests above would see nothing.
#[test]
fn a_disk_that_forgets_loses_names_at_none_and_bytes_where_it_lies() {
    let crashes = rounds("MILLRACE_FORGETS", 8).min(50);
    let Some(outcome) = Trial::new("none", 13, Promise::Full).run("none", crashes) else { return };
    outcome.print("none", crashes);
    assert!(outcome.violations.iter().any(|broken| broken.contains("nothing for ")), "{outcome:?}");
    let trial = Trial::new("lies", 14, Promise::Whole);
    lock(&trial.disk).forgets_bytes = true;
    let Some(outcome) = trial.run("full", crashes) else { return };
    outcome.print("full, on a disk that lies", crashes);
    assert!(outcome.violations.iter().any(|broken| broken.contains("which is none of")), "{outcome:?}");
}

/// A count that was stored while all was quiet must not be believed after a change that came later.
#[test]
fn a_ledger_is_right_again_after_a_crash() {
    let mut trial = Trial::new("ledger", 15, Promise::Full);
    let at = trial.scratch.0.join("disk");
    let Some(mounted) = Mounted::new(&trial.disk, &at) else { return };
    let keys = format!("durability = \"full\"\nquotas = \"{}/state/quotas.db\"\n", at.display());
    let site = Site::make(&at, &keys, GROUP, WRITERS);
    let mut server = site.start_in_boot(0);
    let mut ftp = Ftp::log_in(server.addresses().ftp, "alice").unwrap();
    assert_eq!(ftp.upload("STOR /w0/first", b"first").unwrap(), 226);
    site.wait_for_ledger("alice", "1 of 1000");
    lock(&trial.disk).synchronise_all();
    assert_eq!(ftp.upload("STOR /w0/second", b"second").unwrap(), 226);
    server.kill();
    drop(mounted);
    lock(&trial.disk).crash(&mut trial.noise);
    let _mounted = Mounted::new(&trial.disk, &at).unwrap();
    let server = site.start_in_boot(1);
    assert!(site.home("alice").join("w0/second").exists());
    assert_eq!(server.check_ledgers(&site), Ok(()));
}

/// The key of the addresses of resumable uploads is made by the first server.
#[test]
fn a_resumable_upload_goes_on_after_the_first_crash() {
    let mut trial = Trial::new("resumable", 16, Promise::Full);
    let at = trial.scratch.0.join("disk");
    let Some(mounted) = Mounted::new(&trial.disk, &at) else { return };
    let site = Site::make(&at, "durability = \"full\"\nquotas = \"off\"\n", GROUP, WRITERS);
    lock(&trial.disk).synchronise_all();
    let mut server = site.start_in_boot(0);
    let mut http = Http::connect(server.addresses().http, "alice").unwrap();
    const VERSION: &str = "Tus-Resumable: 1.0.0\r\n";
    let made =
        http.request("POST /w0/", &format!("{VERSION}Upload-Length: 9\r\n{}", filename_field("f")), b"");
    let location = made.unwrap().field("location").unwrap().to_owned();
    let fields = format!("{VERSION}Content-Type: application/offset+octet-stream\r\nUpload-Offset: 0\r\n");
    assert_eq!(http.request(&format!("PATCH {location}"), &fields, b"piece").unwrap().status, 204);
    server.kill();
    drop(mounted);
    lock(&trial.disk).crash(&mut trial.noise);
    let _mounted = Mounted::new(&trial.disk, &at).unwrap();
    let server = site.start_in_boot(1);
    let mut http = Http::connect(server.addresses().http, "alice").unwrap();
    let told = http.request(&format!("HEAD {location}"), VERSION, b"").unwrap();
    assert_eq!((told.status, told.field("upload-offset")), (200, Some("5")));
}
