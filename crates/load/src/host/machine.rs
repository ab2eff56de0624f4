//! The state of the machine during a measurement: processors, ports, retransmissions, refused connections, disks.

use std::fs;
use std::time::Duration;

use super::disks::{self, DiskTimes};

/// Counters of the whole machine, which only grow, and two gauges.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Counters {
    /// In the order of their numbers.
    pub(crate) processors: Vec<Processor>,
    /// Of each disk: with a request in it.
    pub(crate) disks: DiskTimes,
    /// With a thread that waited for input or output; nothing where the kernel does not count it.
    pub(crate) stalled: Duration,
    pub(crate) segments_sent: u64,
    pub(crate) retransmitted: u64,
    pub(crate) syn_retransmitted: u64,
    /// Connections that found a listener's queue full, and handshakes that were dropped.
    pub(crate) listen_overflows: u64,
    pub(crate) listen_drops: u64,
    /// Now: connections in TIME_WAIT.
    pub(crate) time_wait: u64,
}

/// The time of one processor, or of several.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Processor {
    /// The kernel's number for it.
    pub(crate) number: usize,
    /// Doing anything.
    pub(crate) busy: Duration,
    /// Nothing to do but wait for a disk, or for an io_uring.
    pub(crate) disk_wait: Duration,
    /// Taken by other virtual machines.
    pub(crate) stolen: Duration,
}

impl Processor {
    fn with(self, other: &Self) -> Self {
        let number = self.number;
        let (busy, disk_wait, stolen) =
            (self.busy + other.busy, self.disk_wait + other.disk_wait, self.stolen + other.stolen);
        Self { number, busy, disk_wait, stolen }
    }

    fn since(&self, earlier: &Self) -> Self {
        Self {
            number: self.number,
            busy: self.busy.saturating_sub(earlier.busy),
            disk_wait: self.disk_wait.saturating_sub(earlier.disk_wait),
            stolen: self.stolen.saturating_sub(earlier.stolen),
        }
    }
}

/// The processors that these processes may run on, by number: empty where unknown.
pub(crate) fn reach(pids: impl IntoIterator<Item = i32>) -> Vec<usize> {
    let status = |pid: i32| std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let mut all: Vec<usize> = pids.into_iter().flat_map(|pid| allowed(&status(pid))).collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// `Cpus_allowed_list: 0-2,5`.
fn allowed(status: &str) -> Vec<usize> {
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap_or_default();
    let spans = list.trim().split(',').filter_map(|span| {
        let (first, last) = span.split_once('-').unwrap_or((span, span));
        Some(first.parse().ok()?..=last.parse().ok()?)
    });
    spans.flatten().collect()
}

impl Counters {
    /// How many of these processors there are, and what they did together; of all, where `reach` is empty.
    pub(crate) fn within(&self, reach: &[usize]) -> (usize, Processor) {
        let is_within = |one: &&Processor| reach.is_empty() || reach.contains(&one.number);
        let some = || self.processors.iter().filter(is_within);
        (some().count().max(1), some().fold(Processor::default(), Processor::with))
    }

    /// Looks.
    pub(crate) fn read() -> Self {
        Self::of(|path| fs::read_to_string(path).unwrap_or_default())
    }

    /// The counters that these texts of `/proc` have.
    pub(super) fn of(text: impl Fn(&str) -> String) -> Self {
        let (tcp, extended) = (text("/proc/net/snmp"), text("/proc/net/netstat"));
        Self {
            processors: processors(&text("/proc/stat")),
            disks: DiskTimes::parse(&text("/proc/diskstats")),
            stalled: disks::stalled(&text("/proc/pressure/io")),
            segments_sent: counter(&tcp, "Tcp:", "OutSegs"),
            retransmitted: counter(&tcp, "Tcp:", "RetransSegs"),
            syn_retransmitted: counter(&extended, "TcpExt:", "TCPSynRetrans"),
            listen_overflows: counter(&extended, "TcpExt:", "ListenOverflows"),
            listen_drops: counter(&extended, "TcpExt:", "ListenDrops"),
            time_wait: time_wait(&text("/proc/net/sockstat")),
        }
    }

    /// The difference from `earlier`; gauges as they are.
    pub(crate) fn since(&self, earlier: &Self) -> Self {
        Self {
            processors: (self.processors.iter().zip(&earlier.processors))
                .map(|(now, then)| now.since(then))
                .collect(),
            disks: self.disks.since(&earlier.disks),
            stalled: self.stalled.saturating_sub(earlier.stalled),
            segments_sent: self.segments_sent.saturating_sub(earlier.segments_sent),
            retransmitted: self.retransmitted.saturating_sub(earlier.retransmitted),
            syn_retransmitted: self.syn_retransmitted.saturating_sub(earlier.syn_retransmitted),
            listen_overflows: self.listen_overflows.saturating_sub(earlier.listen_overflows),
            listen_drops: self.listen_drops.saturating_sub(earlier.listen_drops),
            time_wait: self.time_wait,
        }
    }
}

/// Each processor, as `/proc/stat` has it: `cpu1 user nice system idle iowait irq softirq steal`.
fn processors(text: &str) -> Vec<Processor> {
    let tick = Duration::from_secs(1) / rustix::param::clock_ticks_per_second().max(1) as u32;
    let of_line = |line: &str| {
        let mut fields = line.strip_prefix("cpu")?.split_whitespace();
        let number = fields.next()?.parse().ok()?;
        let ticks: Vec<u32> = fields.map(|field| field.parse().unwrap_or(0)).collect();
        let sum = |fields: &[usize]| tick * fields.iter().filter_map(|&at| ticks.get(at)).sum::<u32>();
        Some(Processor { number, busy: sum(&[0, 1, 2, 5, 6]), disk_wait: sum(&[4]), stolen: sum(&[7]) })
    };
    // The first line is of all together, and its name has no number.
    text.lines()
        .take_while(|line| line.starts_with("cpu"))
        .filter(|line| !line.starts_with("cpu "))
        .filter_map(of_line)
        .collect()
}

/// A number of a table whose names stand in one line and whose values in the next.
fn counter(text: &str, table: &str, name: &str) -> u64 {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix(table));
    let (Some(names), Some(values)) = (lines.next(), lines.next()) else { return 0 };
    let mut pairs = names.split_whitespace().zip(values.split_whitespace());
    pairs.find(|pair| pair.0 == name).and_then(|pair| pair.1.parse().ok()).unwrap_or(0)
}

fn time_wait(text: &str) -> u64 {
    let number = text.split_once(" tw ").and_then(|(_, rest)| rest.split(' ').next()?.parse().ok());
    number.unwrap_or(0)
}

/// Processes that ran or waited for a processor or a disk, on average of the last minute.
pub(crate) fn load_average() -> f64 {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().and_then(|first| first.parse().ok()).unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_tables_are_read() {
        let text = "cpu  199 1 50 900 30 5 5 7 0 0\ncpu0 100 0 50 900 30 5 5 7 0 0\ncpu2 99 1\nintr 7 8\n";
        let counters = Counters { processors: processors(text), ..Counters::default() };
        let ms = |reach: &[usize]| {
            let (count, all) = counters.within(reach);
            (count, [all.busy, all.disk_wait, all.stolen].map(|time| time.as_millis()))
        };
        assert_eq!(ms(&[]), (2, [2600, 300, 70]));
        assert_eq!((ms(&[2]), ms(&[0, 1])), ((1, [1000, 0, 0]), (1, [1600, 300, 70])));
        assert_eq!(allowed("Name:\tx\nCpus_allowed_list:\t0-2,5\n"), [0, 1, 2, 5]);
        let text = "TcpExt: SyncookiesSent ListenDrops TCPSynRetrans\nTcpExt: 1 22 3\n";
        assert_eq!(counter(text, "TcpExt:", "ListenDrops"), 22);
        assert_eq!(counter(text, "TcpExt:", "Unheard"), 0);
        assert_eq!(time_wait("sockets: used 9\nTCP: inuse 4 orphan 0 tw 77 alloc 5 mem 1\n"), 77);
    }

    #[test]
    fn this_machine_does_something() {
        assert!(Counters::read().within(&[]).1.busy > Duration::ZERO);
        assert!(!reach([std::process::id() as i32]).is_empty());
    }
}
