//! Numbers of devices that all nodes of a cluster share.
//!
//! The kernel's own numbers differ from machine to machine: a tree of NFS gets the next one that is free. A node goes by where
//! the device is mounted instead, which the same configuration has at the same path everywhere. What is no device of the
//! kernel's, as a bucket, has a number by its name already.

use std::collections::HashMap;
use std::fs;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use millrace_storage::identity_of;
use rustix::fs::makedev;

/// How often it is looked for devices that are not known.
const PAUSE: Duration = Duration::from_secs(10);

/// The mounted devices, as far as they were looked up.
#[derive(Debug, Default)]
pub(crate) struct Devices(Mutex<Mounts>);

#[derive(Debug, Default)]
struct Mounts {
    numbers: HashMap<u64, u64>,
    read: Option<Instant>,
}

impl Devices {
    /// The number of a device that all nodes share. May wait.
    pub(crate) fn number(&self, device: u64) -> u64 {
        let mut mounts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !mounts.numbers.contains_key(&device) && mounts.read.is_none_or(|read| read.elapsed() >= PAUSE) {
            mounts.read = Some(Instant::now());
            mounts.numbers = numbers(&fs::read("/proc/self/mountinfo").unwrap_or_default());
        }
        mounts.numbers.get(&device).copied().unwrap_or(device)
    }
}

/// The number of each device: that of the shortest path at which it is mounted.
fn numbers(mountinfo: &[u8]) -> HashMap<u64, u64> {
    let mut paths: HashMap<u64, &[u8]> = HashMap::new();
    for (device, path) in mountinfo.split(|byte| *byte == b'\n').filter_map(mount) {
        let known = paths.entry(device).or_insert(path);
        if (path.len(), path) < (known.len(), known) {
            *known = path;
        }
    }
    paths.into_iter().map(|(device, path)| (device, identity_of(path))).collect()
}

/// A line of `mountinfo` (proc(5)): the device, and where it is mounted.
fn mount(line: &[u8]) -> Option<(u64, &[u8])> {
    let mut words = line.split(|byte| *byte == b' ').skip(2);
    let (device, path) = (std::str::from_utf8(words.next()?).ok()?, words.nth(1)?);
    let (major, minor) = device.split_once(':')?;
    Some((makedev(major.parse().ok()?, minor.parse().ok()?), path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_known_by_where_it_is_mounted() {
        let here = numbers(
            b"36 35 8:1 / / rw - ext4 /dev/sda1 rw\n37 36 0:52 / /srv/files rw - nfs4 nas:/f rw\n\
              38 36 0:52 /in /in rw - nfs4 nas:/f rw\nno line\n",
        );
        let there = numbers(b"40 1 0:47 / /in rw - nfs4 nas:/f rw\n41 1 0:48 / /srv/files rw - nfs4 x rw\n");
        assert_eq!(here[&makedev(0, 52)], there[&makedev(0, 47)], "the shortest path counts");
        assert_ne!(here[&makedev(0, 52)], there[&makedev(0, 48)]);
        assert_eq!(here.len(), 2);
    }

    #[test]
    fn what_is_not_mounted_keeps_its_number() {
        assert_eq!(Devices::default().number(u64::MAX), u64::MAX);
    }
}
