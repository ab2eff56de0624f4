//! How large the test files are together, where that is said of a machine's memory: `--dataset-vs-ram 2`.
//!
//! Files that were read stay in memory while there is room. A larger set has to come from the disk each time; so users
//! then go round all of its files rather than have one each.

use std::fmt;
use std::fs;

use serde::{Deserialize, Serialize};

/// Test files that together are this many times as large as memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Dataset {
    /// How many times.
    pub times: f64,
    /// Of how many bytes.
    pub memory: u64,
}

/// Making more would take too long.
pub(crate) const MOST_FILES: u64 = 1_000_000;

impl Dataset {
    /// The size as a multiple of the memory that a process of this machine may have, or this one.
    pub(super) fn of(times: f64, process: Option<i32>) -> Self {
        let own = || Some(std::process::id() as i32);
        Self { times, memory: memory(process.or_else(own)) }
    }

    /// All of it.
    pub fn bytes(&self) -> u64 {
        (self.times * self.memory as f64) as u64
    }
}

impl fmt::Display for Dataset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        write!(f, "{:.1} MiB, {} x the {:.1} MiB of memory", mib(self.bytes()), self.times, mib(self.memory))
    }
}

/// The memory of this machine, or what control groups leave to a process of it.
fn memory(process: Option<i32>) -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let total = text.lines().find_map(|line| line.strip_prefix("MemTotal:")?.split_whitespace().next());
    let total = total.and_then(|kib| kib.parse::<u64>().ok()).map_or(u64::MAX, |kib| kib << 10);
    let groups = process.map(|pid| fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default());
    let limits = groups.iter().flat_map(|groups| groups.lines()).filter_map(limit_of);
    limits.min().map_or(total, |limit| limit.min(total))
}

/// The least limit of a control group and of those that it is in: a line of `/proc/PID/cgroup`, of version 2
/// (`0::/a/b`) or of version 1's memory controller.
fn limit_of(line: &str) -> Option<u64> {
    let (base, file) = match line.split(':').nth(1)? {
        "" => ("/sys/fs/cgroup", "memory.max"),
        controllers if controllers.split(',').any(|name| name == "memory") => {
            ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")
        }
        _ => return None,
    };
    let group = line.splitn(3, ':').nth(2)?;
    let ends = group.match_indices('/').map(|(at, _)| at).chain([group.len()]);
    let limits = ends.filter_map(|end| {
        let text = fs::read_to_string(format!("{base}{}/{file}", &group[..end])).ok()?;
        text.trim().parse().ok() // "max" is none
    });
    limits.min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_has_memory() {
        let all = Dataset::of(1.0, None);
        assert!((1 << 20..1 << 50).contains(&all.memory), "{all}");
        assert_eq!(Dataset { times: 0.5, ..all }.bytes(), all.memory / 2);
        // A process that is not there is in no group.
        assert!(Dataset::of(1.0, Some(i32::MAX)).memory >= all.memory);
    }
}
