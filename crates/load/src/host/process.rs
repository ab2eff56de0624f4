//! The cost of a server: a process and all its descendants, read from `/proc`.

use std::collections::HashSet;
use std::fs;
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};
use nix::unistd::Pid;

/// A process and its descendants at one moment.
#[derive(Debug, Clone)]
pub(crate) struct Tree {
    pids: Vec<i32>,
}

/// The use of resources by a tree since its start, and the memory that it holds now.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Usage {
    pub(crate) processes: u64,
    pub(crate) threads: u64,
    /// Children that ended count once their parent has waited for them, to a clock tick (10 ms).
    pub(crate) cpu: Duration,
    pub(crate) switches: u64,
    pub(crate) descriptors: u64,
    /// Shared pages are divided among those who share them.
    pub(crate) pss_kib: u64,
    /// They count for each who shares them: what `ps` shows, and too much for a process a session.
    pub(crate) rss_kib: u64,
    /// They do not count at all.
    pub(crate) uss_kib: u64,
}

impl Tree {
    /// The processes that descend from `root`, itself included; `None` if it does not exist, or is not readable.
    pub(crate) fn of(root: i32) -> Option<Self> {
        Stat::read(root)?;
        let mut all: Vec<(i32, i32)> =
            numbers("/proc").filter_map(|pid| Some((pid, Stat::read(pid)?.parent))).collect();
        all.sort_unstable();
        let mut found = HashSet::from([root]);
        loop {
            let before = found.len();
            for &(pid, parent) in &all {
                if found.contains(&parent) {
                    found.insert(pid);
                }
            }
            if found.len() == before {
                break;
            }
        }
        Some(Self { pids: found.into_iter().collect() })
    }

    pub(crate) fn pids(self) -> Vec<i32> {
        self.pids
    }

    /// Their use of resources. Memory is costly to query: the kernel walks every page.
    pub(crate) fn usage(&self, with_memory: bool) -> Usage {
        let tick = Duration::from_secs(1) / rustix::param::clock_ticks_per_second().max(1) as u32;
        let mut sum = Usage::default();
        for &pid in &self.pids {
            let Some(stat) = Stat::read(pid) else { continue };
            sum.processes += 1;
            sum.cpu += own_cpu(pid) + tick * stat.children_ticks;
            sum.descriptors += numbers(&format!("/proc/{pid}/fd")).count() as u64;
            for thread in numbers(&format!("/proc/{pid}/task")) {
                sum.threads += 1;
                let status =
                    fs::read_to_string(format!("/proc/{pid}/task/{thread}/status")).unwrap_or_default();
                sum.switches += field(&status, "voluntary_ctxt_switches:")
                    + field(&status, "nonvoluntary_ctxt_switches:");
            }
            if with_memory {
                let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
                sum.pss_kib += field(&rollup, "Pss:");
                sum.rss_kib += field(&rollup, "Rss:");
                sum.uss_kib += field(&rollup, "Private_Clean:") + field(&rollup, "Private_Dirty:");
            }
        }
        sum
    }

    /// The resident memory of all, which is cheap to ask for.
    pub(crate) fn rss_kib(&self) -> u64 {
        let page_kib = rustix::param::page_size() as u64 / 1024;
        let pages = |pid: &i32| {
            let text = fs::read_to_string(format!("/proc/{pid}/statm")).unwrap_or_default();
            text.split_whitespace().nth(1).and_then(|field| field.parse::<u64>().ok()).unwrap_or(0)
        };
        self.pids.iter().map(pages).sum::<u64>() * page_kib
    }
}

/// The process's own clock, which counts nanoseconds. `/proc/PID/stat` counts ticks: a hundred processes
/// that each worked for less than one would seem to have done nothing.
fn own_cpu(pid: i32) -> Duration {
    ClockId::pid_cpu_clock_id(Pid::from_raw(pid))
        .and_then(clock_gettime)
        .map_or(Duration::ZERO, Duration::from)
}

/// The fields needed of `/proc/PID/stat`.
struct Stat {
    parent: i32,
    children_ticks: u32,
}

impl Stat {
    fn read(pid: i32) -> Option<Self> {
        Self::parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    fn parse(text: &str) -> Option<Self> {
        // The name may hold spaces and parentheses.
        let (_, after_name) = text.rsplit_once(") ")?;
        let fields: Vec<&str> = after_name.split(' ').collect();
        let ticks = |at: usize| fields.get(at).and_then(|field| field.parse::<u32>().ok());
        Some(Self { parent: fields.get(1)?.parse().ok()?, children_ticks: ticks(13)? + ticks(14)? })
    }
}

/// The entries of a directory that are numbers.
pub(super) fn numbers(directory: &str) -> impl Iterator<Item = i32> + use<> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// The number behind a name at the beginning of a line.
pub(super) fn field(text: &str, name: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

/// The time of one thread of this process, or of a worker process.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct ThreadTime {
    /// On a processor.
    pub(crate) ran: Duration,
    /// Able to run and not running: others had the processor.
    pub(crate) waited: Duration,
}

impl ThreadTime {
    /// Of a thread, by the kernel's number for it, which is as unique as a process's.
    pub(crate) fn of(thread: u64) -> Self {
        let text = fs::read_to_string(format!("/proc/{thread}/schedstat")).unwrap_or_default();
        let mut fields =
            text.split_whitespace().map(|field| Duration::from_nanos(field.parse().unwrap_or(0)));
        Self { ran: fields.next().unwrap_or_default(), waited: fields.next().unwrap_or_default() }
    }
}

/// On which processors threads ran: what one has used since the last look counts for the one that
/// it is seen on, as threads seldom move.
#[derive(Debug, Clone, Default)]
pub(crate) struct Places {
    /// Of each processor, by the kernel's number for it.
    pub(crate) ran: Vec<Duration>,
    before: Vec<Duration>,
}

impl Places {
    /// From what the threads have used so far.
    pub(crate) fn begin(times: &[ThreadTime]) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Self { ran: vec![Duration::ZERO; cores], before: times.iter().map(|time| time.ran).collect() }
    }

    /// The threads' total at the last look.
    pub(crate) fn all(&self) -> Duration {
        self.before.iter().sum()
    }

    /// Looks at the same threads again.
    pub(crate) fn look(&mut self, threads: &[u64]) {
        for (&thread, before) in threads.iter().zip(&mut self.before) {
            let now = ThreadTime::of(thread).ran;
            let ran = now.saturating_sub(std::mem::replace(before, now));
            let Some(core) = last_processor(thread).filter(|_| !ran.is_zero()) else { continue };
            // More than there seemed to be, where this process may not run on all of them.
            if core >= self.ran.len() {
                self.ran.resize(core + 1, Duration::ZERO);
            }
            self.ran[core] += ran;
        }
    }
}

/// The 39th field of `/proc/TID/stat`: the processor that a thread last ran on.
fn last_processor(thread: u64) -> Option<usize> {
    let text = fs::read_to_string(format!("/proc/{thread}/stat")).ok()?;
    let (_, after_name) = text.rsplit_once(") ")?;
    after_name.split(' ').nth(36)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_confuse() {
        let stat = Stat::parse("7 (a) b (c) S 42 1 1 0 -1 0 1 2 3 4 5 6 70 80 20 0 1 0").unwrap();
        assert_eq!((stat.parent, stat.children_ticks), (42, 150));
    }

    #[test]
    fn this_process_uses_something() {
        let usage = Tree::of(std::process::id() as i32).unwrap().usage(true);
        assert!(usage.processes >= 1 && usage.threads >= 1 && usage.descriptors > 2, "{usage:?}");
        assert!(usage.cpu > Duration::ZERO && usage.pss_kib > 100, "{usage:?}");
        assert!(Tree::of(i32::MAX).is_none());
    }

    #[test]
    fn a_threads_time_counts_for_its_processor() {
        let thread = rustix::thread::gettid().as_raw_nonzero().get() as u64;
        // The kernel counts a thread's time when it looks at it, which it does at every tick.
        while ThreadTime::of(thread).ran.is_zero() {}
        let mut places = Places::begin(&[ThreadTime::default()]);
        places.look(&[thread]);
        let sum: Duration = places.ran.iter().sum();
        assert!(sum > Duration::ZERO && sum == places.before[0], "{places:?}");
    }
}
