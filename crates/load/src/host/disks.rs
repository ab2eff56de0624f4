//! Disks: which of them hold the server's files, and for how long each had something to do.
//!
//! A disk's own counter decides, since the kernel's other counters of waiting (`iowait` of a processor, the pressure of
//! `/proc/pressure/io`) also count each thread that waits for an io_uring, whatever the ring waits for.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::Duration;

use rustix::fs::{major, minor};

use super::process::{Tree, numbers};

/// A block device's major and minor number.
pub(super) type Device = (u32, u32);

/// The time that each disk had a request in it, with the disk's name.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct DiskTimes(BTreeMap<Device, (String, Duration)>);

impl DiskTimes {
    /// Parses `/proc/diskstats`: `254 0 vda` and then numbers, the tenth of which counts milliseconds with a request.
    pub(super) fn parse(text: &str) -> Self {
        let of_line = |line: &str| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            let device = (fields.first()?.parse().ok()?, fields.get(1)?.parse().ok()?);
            let busy = Duration::from_millis(fields.get(12)?.parse().ok()?);
            Some((device, ((*fields.get(2)?).to_owned(), busy)))
        };
        Self(text.lines().filter_map(of_line).collect())
    }

    /// Returns the difference from `earlier`.
    pub(super) fn since(&self, earlier: &Self) -> Self {
        let before = |device| earlier.0.get(device).map_or(Duration::ZERO, |disk| disk.1);
        let disks = self.0.iter();
        Self(
            disks
                .map(|(device, (name, busy))| (*device, (name.clone(), busy.saturating_sub(before(device)))))
                .collect(),
        )
    }

    /// Returns the busiest of these devices, and of all where none of them is known as a disk.
    pub(super) fn busiest(&self, of: &[Device]) -> Option<(&str, Duration)> {
        let is_known = of.iter().any(|device| self.0.contains_key(device));
        let chosen = self.0.iter().filter(|(device, _)| !is_known || of.contains(device));
        chosen.max_by_key(|(_, disk)| disk.1).map(|(_, (name, busy))| (name.as_str(), *busy))
    }
}

/// Returns the devices of the served folder, or else of what the server has open.
pub(super) fn devices(root: Option<&str>, server: Option<i32>) -> Vec<Device> {
    let paths: Vec<PathBuf> = match (root, server) {
        (Some(root), _) => vec![root.into()],
        (None, Some(server)) => Tree::of(server).map_or_else(Vec::new, open_files),
        (None, None) => Vec::new(),
    };
    let holds_files = |path: PathBuf| {
        let metadata = fs::metadata(path).ok()?;
        (metadata.is_dir() || metadata.is_file()).then(|| (major(metadata.dev()), minor(metadata.dev())))
    };
    let mut found: Vec<Device> = paths.into_iter().filter_map(holds_files).collect();
    found.sort_unstable();
    found.dedup();
    found
}

/// Returns where the open descriptors of processes are found.
fn open_files(tree: Tree) -> Vec<PathBuf> {
    let of_process = |pid: i32| {
        numbers(&format!("/proc/{pid}/fd")).map(move |number| format!("/proc/{pid}/fd/{number}").into())
    };
    tree.pids().into_iter().flat_map(of_process).collect()
}

/// Parses `/proc/pressure/io`: returns for how long at least one thread waited for input or output.
pub(super) fn stalled(text: &str) -> Duration {
    let total =
        text.lines().find_map(|line| line.strip_prefix("some ")?.split_once("total=")?.1.parse().ok());
    Duration::from_micros(total.unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DISKS: &str = "8 0 sda 1 2 3 4 5 6 7 8 9 1234 11\n8 1 sda1 1 2 3 4 5 6 7 8 9 99 11\n9 0 md0 x\n";

    #[test]
    fn the_disk_of_the_data_decides_where_it_is_known() {
        let disks = DiskTimes::parse(DISKS);
        let ms = Duration::from_millis;
        assert_eq!(disks.busiest(&[]), Some(("sda", ms(1234))));
        assert_eq!(disks.busiest(&[(8, 1)]), Some(("sda1", ms(99))));
        assert_eq!(
            disks.busiest(&[(0, 51)]),
            Some(("sda", ms(1234))),
            "a file system without a disk of its own"
        );
        // The one that was busy long ago is not the busiest now.
        let later = DiskTimes::parse(&DISKS.replace(" 99 ", " 199 "));
        assert_eq!(later.since(&disks).busiest(&[]), Some(("sda1", ms(100))));
    }

    #[test]
    fn a_folder_and_what_this_process_has_open_are_on_devices() {
        let (folder, _open) = (std::env::temp_dir(), fs::File::open(std::env::temp_dir()).unwrap());
        let of_folder = devices(folder.to_str(), None);
        assert_eq!(of_folder.len(), 1);
        assert!(devices(None, Some(std::process::id() as i32)).contains(&of_folder[0]));
        assert_eq!(devices(None, None), []);
    }

    #[test]
    fn pressure_is_read() {
        let text = "some avg10=7.74 avg60=8.36 avg300=4.96 total=363267569\nfull avg10=0.00 total=5\n";
        assert_eq!(stalled(text), Duration::from_micros(363_267_569));
        assert_eq!(stalled(""), Duration::ZERO, "a kernel without it");
    }
}
