//! How much room the disks have that are watched: those of served folders, of logs and of what is kept.
//!
//! A disk may not answer, so each is asked on the pool, and told of as it was when it last answered. The invariant: a disk
//! that is stuck holds one thread of the pool, however often it is asked for.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use millrace_blocking::BlockingPool;
use millrace_metrics::{Metric, Reading};
use rustix::fs::statvfs;

/// What a disk said is told again for so long before it is asked anew.
const FRESH: Duration = Duration::from_secs(5);

/// What a disk said is forgotten after so long.
const STALE: Duration = Duration::from_secs(120);

/// The disks that are watched.
#[derive(Debug)]
pub(crate) struct Disks(Vec<Arc<Disk>>);

/// The disk of a folder.
#[derive(Debug)]
struct Disk {
    folder: PathBuf,
    /// A thread asks.
    is_asked: AtomicBool,
    /// What it said last. Locked for a look.
    answer: Mutex<Option<Answer>>,
}

/// What a disk has said.
#[derive(Debug, Clone, Copy)]
struct Answer {
    at: Instant,
    /// Its number, by which several folders of one disk are known.
    device: u64,
    free: u64,
    size: u64,
}

impl Disks {
    /// Watches the disks of these folders.
    pub(crate) fn new(folders: &[PathBuf]) -> Self {
        let disk = |folder: &PathBuf| {
            let (is_asked, answer) = Default::default();
            Arc::new(Disk { folder: folder.clone(), is_asked, answer })
        };
        Self(folders.iter().map(disk).collect())
    }

    /// Returns what the disks said last, one folder for each disk, and asks those again that said it long ago.
    pub(crate) fn readings(&self, pool: &BlockingPool) -> Vec<Reading> {
        let (mut devices, mut readings) = (Vec::new(), Vec::new());
        for disk in &self.0 {
            let answer = disk.answer();
            if answer.is_none_or(|answer| answer.at.elapsed() >= FRESH) {
                disk.ask(pool);
            }
            let Some(Answer { device, free, size, .. }) = answer.filter(|answer| answer.at.elapsed() < STALE)
            else {
                continue;
            };
            if !devices.contains(&device) {
                devices.push(device);
                let folder = disk.folder.display().to_string();
                readings.push(Reading::at(Metric::DiskFree, folder.clone(), free as f64));
                readings.push(Reading::at(Metric::DiskSize, folder, size as f64));
            }
        }
        readings
    }
}

impl Disk {
    fn answer(&self) -> Option<Answer> {
        *self.answer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has a thread ask the disk, unless one does.
    fn ask(self: &Arc<Self>, pool: &BlockingPool) {
        if self.is_asked.swap(true, Ordering::AcqRel) {
            return;
        }
        let disk = Arc::clone(self);
        pool.run(move || {
            // A folder that is gone, or not there yet, has no disk.
            let answer = look(&disk.folder).ok();
            *disk.answer.lock().unwrap_or_else(PoisonError::into_inner) = answer;
            disk.is_asked.store(false, Ordering::Release);
        });
    }
}

fn look(folder: &Path) -> io::Result<Answer> {
    let (device, room) = (fs::metadata(folder)?.dev(), statvfs(folder)?);
    let blocks = room.f_blocks.saturating_sub(room.f_bfree).saturating_add(room.f_bavail);
    let bytes = |blocks: u64| blocks.saturating_mul(room.f_frsize);
    Ok(Answer { at: Instant::now(), device, free: bytes(room.f_bavail), size: bytes(blocks) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_disk_is_told_of_once_and_asked_by_one_thread() {
        let folder = std::env::temp_dir();
        let disks = Disks::new(&[folder.clone(), folder.clone(), folder.join("no such folder")]);
        let pool = BlockingPool::without_threads();
        assert_eq!(disks.readings(&pool), []);
        assert_eq!(disks.readings(&pool), [], "nothing is known before a disk has answered");
        assert_eq!(pool.waiting(), 3, "one thread for each, however often they are asked for");
        while pool.run_waiting(0) {}
        let readings = disks.readings(&pool);
        assert_eq!(
            readings.iter().map(|one| one.metric).collect::<Vec<_>>(),
            [Metric::DiskFree, Metric::DiskSize]
        );
        assert!(readings[0].value <= readings[1].value && readings[1].value > 0.0, "{readings:?}");
        assert_eq!(readings[0].labels, [folder.display().to_string()]);
        assert_eq!(pool.waiting(), 1, "only the one that did not answer is asked again");
    }
}
