//! Power cuts: what ext4, XFS and btrfs make of a disk that has lost its power.
//!
//! Clients on the host load a server in a guest, whose disk records writes and flushes. The length of that record is the
//! clock: an operation that was acknowledged at some length is on every disk that has at least so much of it. Each cut
//! keeps the record up to a flush, and any part of what came behind; the host mounts that, compares the files with what
//! was acknowledged by then, and now and then starts the server to compare its ledgers.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::block_log::BlockLog;
use crate::generations::Generations;
use crate::guest::{Parts, passive_ports, run};
use crate::noise::Noise;
use crate::site::{Scratch, Site};
use crate::tree;
use crate::writer::Writer;

const WRITERS: usize = 6;

/// XFS is not made smaller.
const SIZE: u64 = 320 << 20;

/// This many cuts, and the server is started on one of them.
const STARTS: usize = 10;

const GROUP: &str = "[[group]]\nname = \"all\"\nquota-bytes = \"100M\"\nquota-files = 1000\n";

/// A file system in a file, mounted until it is dropped.
struct Mounted<'a>(&'a Path);

impl<'a> Mounted<'a> {
    fn new(image: &Path, at: &'a Path) -> Result<Self, String> {
        let mount = Command::new("mount").args(["-o", "loop"]).args([image, at]).output().unwrap();
        match mount.status.success() {
            true => Ok(Self(at)),
            false => Err(String::from_utf8_lossy(&mount.stderr).into_owned()),
        }
    }
}

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        let at = self.0;
        if !Command::new("umount").arg(at).status().is_ok_and(|status| status.success()) {
            let _ = Command::new("umount").arg("-l").arg(at).status();
        }
    }
}

/// The image of a disk, a folder to mount it at, and what clients know about it.
struct Trial {
    scratch: Scratch,
    site: Site,
    writers: Vec<Writer>,
    log: BlockLog,
    /// The length of the log when the load began.
    begun: u64,
    durability: &'static str,
    file_system: String,
}

impl Trial {
    fn image(&self) -> PathBuf {
        self.scratch.0.join("before.img")
    }

    /// Loads a server in a guest for a while.
    fn record(parts: &Parts, file_system: &str, durability: &'static str, load: Duration) -> Self {
        let scratch = Scratch::new(&format!("{file_system}-{durability}"));
        let (image, before) = (scratch.0.join("disk.img"), scratch.0.join("before.img"));
        let (disk, log) = (scratch.0.join("disk"), scratch.0.join("log"));
        fs::create_dir(&disk).unwrap();
        File::create(&image).unwrap().set_len(SIZE).unwrap();
        run(Command::new(format!("mkfs.{file_system}")).arg("-q").arg(&image));
        let mounted = Mounted::new(&image, &disk).unwrap_or_else(|error| panic!("{error}"));
        let keys = format!(
            "durability = \"{durability}\"\nquotas = \"{}/state/quotas.db\"\n{}",
            disk.display(),
            passive_ports()
        );
        let site = Site::make(&disk, &keys, GROUP, WRITERS);
        drop(mounted);
        run(Command::new("cp").arg("--sparse=always").args([&image, &before]));
        let initrd = parts.build(&scratch.0, file_system, &disk);
        let guest = parts.start(&initrd, &image, &log);
        let mut writers: Vec<Writer> = (0..WRITERS).map(|number| Writer::new(21, number)).collect();
        let clock = || fs::metadata(&log).map_or(0, |metadata| metadata.len());
        let (addresses, stop, begun) = (guest.addresses(), AtomicBool::new(false), clock());
        std::thread::scope(|scope| {
            for writer in &mut writers {
                let (stop, clock) = (&stop, &clock);
                scope.spawn(move || writer.run(addresses, stop, clock));
            }
            let end = Instant::now() + load;
            while Instant::now() < end {
                std::thread::sleep(Duration::from_millis(100));
            }
            stop.store(true, Ordering::Relaxed);
        });
        drop(guest);
        let log = BlockLog::read(&log).unwrap();
        let file_system = file_system.to_owned();
        Self { scratch, site, writers, log, begun, durability, file_system }
    }

    /// Cuts the power at many moments of the record; the broken promises. `is_full`: nothing may be lost.
    fn cut(&self, count: usize, is_full: bool) -> Vec<String> {
        let mut noise = Noise::new(22);
        let (mut broken, mut applied) = (Vec::new(), 0);
        let image = File::options().write(true).open(self.image()).unwrap();
        let copy = self.scratch.0.join("cut.img");
        for (number, cut) in self.log.cuts(self.begun, count, &mut noise).into_iter().enumerate() {
            let durable = self.log.durable(cut);
            self.log.apply(applied..durable, &image).unwrap();
            applied = durable;
            run(Command::new("cp").args(["--sparse=always", "--reflink=auto"]).args([&self.image(), &copy]));
            let cut_image = File::options().write(true).open(&copy).unwrap();
            self.log.apply_some(durable..cut, &cut_image, &mut noise).unwrap();
            drop(cut_image);
            let mounted = match Mounted::new(&copy, &self.site.folder) {
                Ok(mounted) => mounted,
                Err(error) => {
                    broken.push(format!("cut {cut}: cannot be mounted: {error}"));
                    continue;
                }
            };
            broken.extend(self.check(cut, is_full));
            if number % STARTS == 0 && is_full {
                let (server, _) = self.site.start();
                broken.extend(server.check_ledgers(&self.site).err());
            }
            drop(mounted);
            fs::remove_file(&copy).unwrap();
        }
        broken
    }

    fn check(&self, cut: usize, is_full: bool) -> Vec<String> {
        let now = self.log.entries[cut - 1].end;
        let mut broken = Vec::new();
        for writer in &self.writers {
            let mut acknowledged = tree::Tree::new();
            let mut begun =
                writer.history.iter().filter(|record| record.begun < now).cloned().collect::<Vec<_>>();
            for record in &mut begun {
                record.acknowledged = record.acknowledged.filter(|&when| when <= now);
                if record.acknowledged.is_some() {
                    record.op.apply(&mut acknowledged);
                }
            }
            let unanswered = begun.last().filter(|record| record.acknowledged.is_none());
            let found = tree::read(&self.site.home(writer.user).join(&writer.folder));
            let differences = match is_full {
                // btrfs may show a file by both names while it moves to another directory.
                true if self.file_system == "btrfs"
                    && unanswered.is_some_and(|record| record.op.is_half_moved(&found, &acknowledged)) =>
                {
                    Vec::new()
                }
                true => tree::check(&found, &acknowledged, unanswered.map(|record| &record.op))
                    .err()
                    .unwrap_or_default(),
                false => Generations::of(&tree::Tree::new(), &begun).broken(&found),
            };
            if !differences.is_empty() {
                broken.push(format!("cut {cut}, {}: {differences:#?}", writer.folder));
            }
        }
        broken
    }

    fn print(&self, cuts: usize, broken: usize) {
        let operations: usize = self.writers.iter().map(|writer| writer.history.len()).sum();
        let refused: usize = self.writers.iter().map(|writer| writer.refused).sum();
        let flushes = self.log.entries.iter().filter(|entry| entry.is_flush()).count();
        println!(
            "{} at {}: {operations} operations, {refused} refused; {} requests of the device, {flushes} of them \
             flushes; {cuts} cuts, {broken} broken promises",
            self.file_system,
            self.durability,
            self.log.entries.len()
        );
        assert!(operations > 20 && refused == 0, "there was load");
    }
}

#[test]
fn power_cuts_lose_nothing_acknowledged_on_ext4_xfs_and_btrfs() {
    let Ok(cuts) = std::env::var("MILLRACE_POWER_CUTS") else {
        return println!("SKIPPED: power cuts take minutes; MILLRACE_POWER_CUTS=500 runs them");
    };
    let cuts: usize = cuts.parse().expect("a number of cuts");
    let parts = match Parts::find() {
        Ok(parts) => parts,
        Err(missing) => return println!("SKIPPED: there can be no guest: {missing}"),
    };
    let load = std::env::var("MILLRACE_LOAD_SECONDS").map_or(60, |seconds| seconds.parse().expect("seconds"));
    let load = Duration::from_secs(load);
    let file_systems = std::env::var("MILLRACE_FILE_SYSTEMS").unwrap_or_else(|_| "ext4 xfs btrfs".to_owned());
    for file_system in file_systems.split(' ') {
        for (durability, cuts) in [("full", cuts), ("whole", cuts.div_ceil(5)), ("none", cuts.div_ceil(20))] {
            let trial = Trial::record(&parts, file_system, durability, load);
            let broken = trial.cut(cuts, durability != "whole");
            trial.print(cuts, broken.len());
            match durability {
                "none" => assert!(!broken.is_empty(), "nothing was lost at none: the test is blind"),
                _ => assert!(broken.is_empty(), "{}", broken.join("\n")),
            }
        }
    }
}
