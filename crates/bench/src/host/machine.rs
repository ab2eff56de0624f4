//! What happens on the machine meanwhile: processors, ports, retransmissions, refused connections, disks.

use std::fs;
use std::time::Duration;

/// Counters of the whole machine, which only grow, and two gauges.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Counters {
    /// Of all processors: doing anything.
    pub(crate) busy: Duration,
    /// Of each processor: doing anything.
    pub(crate) busy_each: Vec<Duration>,
    /// Of all processors: nothing to do but wait for a disk.
    pub(crate) disk_wait: Duration,
    /// Taken by other virtual machines.
    pub(crate) stolen: Duration,
    /// Of the busiest disk: with a request in it.
    pub(crate) disk_busy: Duration,
    pub(crate) segments_sent: u64,
    pub(crate) retransmitted: u64,
    pub(crate) syn_retransmitted: u64,
    /// Connections that found a listener's queue full, and handshakes that were dropped.
    pub(crate) listen_overflows: u64,
    pub(crate) listen_drops: u64,
    /// Now: connections in TIME_WAIT.
    pub(crate) time_wait: u64,
}

impl Counters {
    /// Looks.
    pub(crate) fn read() -> Self {
        let text = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let processors = processors(&text("/proc/stat"));
        let [busy, disk_wait, stolen] = processors.first().copied().unwrap_or_default();
        let (tcp, extended) = (text("/proc/net/snmp"), text("/proc/net/netstat"));
        Self {
            busy,
            busy_each: processors.iter().skip(1).map(|one| one[0]).collect(),
            disk_wait,
            stolen,
            disk_busy: busiest_disk(&text("/proc/diskstats")),
            segments_sent: counter(&tcp, "Tcp:", "OutSegs"),
            retransmitted: counter(&tcp, "Tcp:", "RetransSegs"),
            syn_retransmitted: counter(&extended, "TcpExt:", "TCPSynRetrans"),
            listen_overflows: counter(&extended, "TcpExt:", "ListenOverflows"),
            listen_drops: counter(&extended, "TcpExt:", "ListenDrops"),
            time_wait: time_wait(&text("/proc/net/sockstat")),
        }
    }

    /// What has happened since `earlier`; gauges as they are.
    pub(crate) fn since(&self, earlier: &Self) -> Self {
        Self {
            busy: self.busy.saturating_sub(earlier.busy),
            busy_each: (self.busy_each.iter().zip(&earlier.busy_each))
                .map(|(now, then)| now.saturating_sub(*then))
                .collect(),
            disk_wait: self.disk_wait.saturating_sub(earlier.disk_wait),
            stolen: self.stolen.saturating_sub(earlier.stolen),
            disk_busy: self.disk_busy.saturating_sub(earlier.disk_busy),
            segments_sent: self.segments_sent.saturating_sub(earlier.segments_sent),
            retransmitted: self.retransmitted.saturating_sub(earlier.retransmitted),
            syn_retransmitted: self.syn_retransmitted.saturating_sub(earlier.syn_retransmitted),
            listen_overflows: self.listen_overflows.saturating_sub(earlier.listen_overflows),
            listen_drops: self.listen_drops.saturating_sub(earlier.listen_drops),
            time_wait: self.time_wait,
        }
    }
}

/// Busy, waiting for a disk, stolen: of all processors, and then of each, as `/proc/stat` has them.
fn processors(text: &str) -> Vec<[Duration; 3]> {
    let tick = Duration::from_secs(1) / rustix::param::clock_ticks_per_second().max(1) as u32;
    let of_line = |line: &str| {
        let fields = line.split_whitespace().skip(1);
        let ticks: Vec<u32> = fields.map(|field| field.parse().unwrap_or(0)).collect();
        // user nice system idle iowait irq softirq steal
        let sum = |fields: &[usize]| tick * fields.iter().filter_map(|&at| ticks.get(at)).sum::<u32>();
        [sum(&[0, 1, 2, 5, 6]), sum(&[4]), sum(&[7])]
    };
    text.lines().take_while(|line| line.starts_with("cpu")).map(of_line).collect()
}

/// The tenth number of a line counts milliseconds with a request in the disk.
fn busiest_disk(text: &str) -> Duration {
    let busy = text.lines().filter_map(|line| line.split_whitespace().nth(12)?.parse().ok());
    Duration::from_millis(busy.max().unwrap_or(0))
}

/// A number of a table whose names stand in one line and whose values in the next.
fn counter(text: &str, table: &str, name: &str) -> u64 {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix(table));
    let (Some(names), Some(values)) = (lines.next(), lines.next()) else { return 0 };
    let mut pairs = names.split_whitespace().zip(values.split_whitespace());
    pairs.find(|pair| pair.0 == name).and_then(|pair| pair.1.parse().ok()).unwrap_or(0)
}

fn time_wait(text: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix("TCP:")).unwrap_or_default();
    let mut words = line.split_whitespace();
    words.find(|&word| word == "tw");
    words.next().and_then(|number| number.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_tables_are_read() {
        let all = processors("cpu  100 0 50 900 30 5 5 7 0 0\ncpu0 1 1 0 900\ncpu1 99\nintr 7 8\n");
        let ms = |at: usize| all[at].map(|time: Duration| time.as_millis());
        assert_eq!((all.len(), ms(0), ms(1), ms(2)), (3, [1600, 300, 70], [20, 0, 0], [990, 0, 0]));
        let text = "TcpExt: SyncookiesSent ListenDrops TCPSynRetrans\nTcpExt: 1 22 3\n";
        assert_eq!(counter(text, "TcpExt:", "ListenDrops"), 22);
        assert_eq!(counter(text, "TcpExt:", "Unheard"), 0);
        assert_eq!(time_wait("sockets: used 9\nTCP: inuse 4 orphan 0 tw 77 alloc 5 mem 1\n"), 77);
        let disks = "8 0 sda 1 2 3 4 5 6 7 8 9 1234 11\n8 1 sda1 1 2 3 4 5 6 7 8 9 99 11\n";
        assert_eq!(busiest_disk(disks), Duration::from_millis(1234));
    }

    #[test]
    fn this_machine_does_something() {
        assert!(Counters::read().busy > Duration::ZERO);
    }
}
