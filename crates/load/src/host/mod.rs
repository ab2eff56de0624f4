//! The self-audit: what server, client and machine did while a figure was taken, and what that says of it.
//!
//! `process` and `machine` read the kernel's counters; a `Watch` looks at them before, meanwhile and
//! afterwards; `listener` sees whether the process that is looked at is the server.

mod disks;
mod listener;
mod machine;
mod process;

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use self::disks::Device;
pub use self::listener::server_at;
pub(crate) use self::listener::stranger;
use self::machine::{Counters, load_average, reach};
use self::process::{Places, ThreadTime, Tree, Usage};
use crate::histogram::Latencies;

/// How often a watch looks. One look costs some 30 us and a server's tree of a hundred processes some ms.
pub(crate) const GLANCE: Duration = Duration::from_millis(20);

/// The activity of server, client and machine during a figure.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Audit {
    /// How long it took.
    pub seconds: f64,
    /// Processors of this machine that the server, where it is known, or this client may run on.
    pub cores: usize,
    /// The share of them that did anything, 0 to 1.
    pub machine_busy: f64,
    /// The same of each of this machine's.
    #[serde(default)]
    pub cores_busy: Vec<f64>,
    /// Processors that neither the server, where it is known, nor this client used.
    pub others: f64,
    /// The share of them that only waited for a disk, or for an io_uring: the kernel does not tell them apart.
    pub disk_wait: f64,
    /// The share of the time in which the busiest disk of the server's data had something to do: of all disks, where it
    /// is not known which holds the data.
    pub disk_busy: f64,
    /// That disk.
    #[serde(default)]
    pub disk: String,
    /// The share of the time in which a thread of the machine waited for input or output (pressure): an io_uring counts, too.
    #[serde(default)]
    pub io_stalled: f64,
    /// The share of them that other virtual machines took.
    pub stolen: f64,
    /// This client.
    pub client: ClientAudit,
    /// The server, where its process is known.
    pub server: Option<ServerAudit>,
    /// The network, as this machine's kernel counts it: other programs' too.
    pub network: NetworkAudit,
}

impl Audit {
    /// The part that the machine's counters have: all that its processors did counts as other programs'.
    fn of_machine(happened: &Counters, seconds: f64, reach: &[usize], devices: &[Device]) -> Self {
        let (cores, did) = happened.within(reach);
        let (disk, disk_busy) = happened.disks.busiest(devices).unwrap_or_default();
        let share = |time: Duration| (time.as_secs_f64() / seconds).min(1.0);
        let of_cores = |time: Duration| time.as_secs_f64() / seconds / cores as f64;
        Self {
            seconds,
            cores,
            machine_busy: of_cores(did.busy).min(1.0),
            cores_busy: happened.processors.iter().map(|one| share(one.busy)).collect(),
            others: did.busy.as_secs_f64() / seconds,
            disk_wait: of_cores(did.disk_wait).min(1.0),
            disk_busy: share(disk_busy),
            disk: disk.to_owned(),
            io_stalled: share(happened.stalled),
            stolen: of_cores(did.stolen).min(1.0),
            client: ClientAudit::default(),
            server: None,
            network: NetworkAudit {
                segments_sent: happened.segments_sent,
                retransmitted: happened.retransmitted,
                syn_retransmitted: happened.syn_retransmitted,
                listen_overflows: happened.listen_overflows,
                listen_drops: happened.listen_drops,
                time_wait: happened.time_wait,
                ephemeral_ports: crate::limits::ephemeral_ports(),
            },
        }
    }

    /// Leaves to other programs what neither server nor client used.
    fn without_ours(self) -> Self {
        let ours = self.client.cpu_seconds + self.server.as_ref().map_or(0.0, |server| server.cpu_seconds);
        // The kernel counts in hundredths: of a short time it would say more than there is.
        let others = (self.others - ours / self.seconds).clamp(0.0, self.cores as f64);
        Self { others, ..self }
    }
}

/// The activity of this client.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ClientAudit {
    /// Its memory before anyone had connected.
    pub pss_kib_before: u64,
    /// And with everyone logged in, before the load.
    pub pss_kib_logged_in: u64,
    /// CPU of all its threads, in seconds.
    pub cpu_seconds: f64,
    /// The share of a processor that each of its threads which load the server used, 0 to 1.
    #[serde(default)]
    pub threads: Vec<f64>,
    /// The share of each processor that these used, by where they were seen to run every 20 ms.
    #[serde(default)]
    pub cores: Vec<f64>,
    /// The share of a processor that its busiest thread used, 0 to 1.
    pub busiest_thread: f64,
    /// The processors that all of them used in a quiet second (nine of ten used more), and in the busiest.
    #[serde(default)]
    pub quiet_second: f64,
    /// See there.
    #[serde(default)]
    pub busiest_second: f64,
    /// The share of the time in which its keenest thread ran, or waited for a processor: 1 is never idle.
    pub keenest_thread: f64,
    /// By how much a thread that slept for 20 ms woke up too late, at the 99th percentile, in milliseconds.
    pub lag_p99_ms: f64,
}

/// The activity of the server.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs)] // The names are the documentation.
pub struct ServerAudit {
    pub cpu_seconds: f64,
    pub processes: u64,
    pub threads: u64,
    pub descriptors: u64,
    pub context_switches: u64,
    /// Before anyone had connected.
    pub pss_kib_before: u64,
    /// With everyone logged in, before the load.
    pub pss_kib_logged_in: u64,
    /// At the end.
    pub pss_kib_after: u64,
    /// At the end; pages that processes share count for each of them.
    pub rss_kib: u64,
    /// At the end; pages that processes share do not count.
    pub uss_kib: u64,
    /// The most that was seen during the load.
    pub rss_kib_peak: u64,
    /// Of the whole machine at the end, over the last minute.
    #[serde(default)]
    pub load_average: f64,
    /// None of these processes listens where the server does, or one of them is this client.
    #[serde(default)]
    pub is_stranger: bool,
}

/// The activity of the network.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs)] // The names are the documentation.
pub struct NetworkAudit {
    pub segments_sent: u64,
    pub retransmitted: u64,
    pub syn_retransmitted: u64,
    pub listen_overflows: u64,
    pub listen_drops: u64,
    /// At the end.
    pub time_wait: u64,
    /// Ports that a client may take towards one address and port of a server.
    pub ephemeral_ports: u64,
}

/// Looks at the machine around one figure.
#[derive(Debug)]
pub(crate) struct Watch {
    server_pid: Option<i32>,
    /// The served folder, where it is given.
    root: Option<String>,
    devices: Vec<Device>,
    threads: Vec<u64>,
    /// Of the server and of this client, in KiB, before anyone had connected and with everyone logged in.
    memory_before: [u64; 2],
    memory_logged_in: [u64; 2],
    begun: Instant,
    counters: Counters,
    thread_times: Vec<ThreadTime>,
    places: Places,
    usage: Usage,
    lag: Latencies,
    glances: u32,
    rss_kib_peak: u64,
    /// The processors that this client used in each second, and what it had used when the last one began.
    seconds: Vec<f64>,
    second: (Instant, Duration),
}

/// Over how long the client's CPU is looked at where it changes.
const SECOND: Duration = Duration::from_secs(1);

/// The server's memory is looked at once in this many glances.
const MEMORY_GLANCES: u32 = 10;

impl Watch {
    /// The state before any user connects.
    pub(crate) fn new(server_pid: Option<i32>, root: Option<&str>) -> Self {
        Self {
            server_pid,
            root: root.map(str::to_owned),
            devices: Vec::new(),
            threads: Vec::new(),
            memory_before: memory(server_pid),
            memory_logged_in: [0; 2],
            begun: Instant::now(),
            counters: Counters::default(),
            thread_times: Vec::new(),
            places: Places::default(),
            usage: Usage::default(),
            lag: Latencies::default(),
            glances: 0,
            rss_kib_peak: 0,
            seconds: Vec::new(),
            second: (Instant::now(), Duration::ZERO),
        }
    }

    /// Everyone has logged in.
    pub(crate) fn logged_in(&mut self) {
        self.memory_logged_in = memory(self.server_pid);
    }

    /// The measured phase begins; `threads` are the client's.
    pub(crate) fn begin(&mut self, threads: Vec<u64>) {
        self.threads = threads;
        self.devices = disks::devices(self.root.as_deref(), self.server_pid);
        self.counters = Counters::read();
        self.thread_times = self.thread_times();
        self.places = Places::begin(&self.thread_times);
        self.usage = self.usage(false);
        self.begun = Instant::now();
        self.second = (self.begun, self.thread_times.iter().map(|time| time.ran).sum());
    }

    /// Sleeps for a moment, and notes by how much too long.
    pub(crate) fn glance(&mut self) {
        let asleep = Instant::now();
        std::thread::sleep(GLANCE);
        self.lag.record(asleep.elapsed().saturating_sub(GLANCE));
        self.places.look(&self.threads);
        if self.second.0.elapsed() >= SECOND {
            let (begun, before) = std::mem::replace(&mut self.second, (Instant::now(), self.places.all()));
            let used = self.second.1.saturating_sub(before).as_secs_f64();
            self.seconds.push(used / (self.second.0 - begun).as_secs_f64());
        }
        if self.glances.is_multiple_of(MEMORY_GLANCES) {
            let rss_kib = self.server_pid.and_then(Tree::of).map_or(0, |tree| tree.rss_kib());
            self.rss_kib_peak = self.rss_kib_peak.max(rss_kib);
        }
        self.glances += 1;
    }

    /// The measured phase has ended.
    pub(crate) fn end(&mut self) -> Audit {
        self.places.look(&self.threads);
        let seconds = self.begun.elapsed().as_secs_f64().max(1e-9);
        let happened = Counters::read().since(&self.counters);
        // Processors that either of them cannot use are not shared.
        let reach = reach([std::process::id() as i32].into_iter().chain(self.server_pid));
        let (client, server) = (self.client(seconds), self.server_pid.and_then(|_| self.server()));
        let machine = Audit::of_machine(&happened, seconds, &reach, &self.devices);
        Audit { client, server, ..machine }.without_ours()
    }

    fn client(&self, seconds: f64) -> ClientAudit {
        let now = self.thread_times();
        let spans = || now.iter().zip(&self.thread_times);
        let ran = || spans().map(|(now, then)| now.ran.saturating_sub(then.ran).as_secs_f64());
        let wanted = spans()
            .map(|(now, then)| (now.ran + now.waited).saturating_sub(then.ran + then.waited).as_secs_f64());
        let cpu_seconds = ran().sum::<f64>();
        let mut each = self.seconds.clone();
        each.sort_by(f64::total_cmp);
        // Of less than a second there is only the whole.
        let second = |share: usize| each.get((each.len() * share / 100).min(each.len().max(1) - 1)).copied();
        let second = |share| second(share).unwrap_or(cpu_seconds / seconds);
        ClientAudit {
            pss_kib_before: self.memory_before[1],
            pss_kib_logged_in: self.memory_logged_in[1],
            cpu_seconds,
            quiet_second: second(10),
            busiest_second: second(100),
            threads: ran().map(|ran| ran / seconds).collect(),
            cores: self.places.ran.iter().map(|ran| ran.as_secs_f64() / seconds).collect(),
            busiest_thread: ran().fold(0.0, f64::max) / seconds,
            keenest_thread: wanted.fold(0.0, f64::max) / seconds,
            lag_p99_ms: self.lag.quantile_ms(0.99),
        }
    }

    fn server(&self) -> Option<ServerAudit> {
        let usage = Tree::of(self.server_pid?)?.usage(true);
        Some(ServerAudit {
            cpu_seconds: usage.cpu.saturating_sub(self.usage.cpu).as_secs_f64(),
            processes: usage.processes,
            threads: usage.threads,
            descriptors: usage.descriptors,
            context_switches: usage.switches.saturating_sub(self.usage.switches),
            pss_kib_before: self.memory_before[0],
            pss_kib_logged_in: self.memory_logged_in[0],
            pss_kib_after: usage.pss_kib,
            rss_kib: usage.rss_kib,
            uss_kib: usage.uss_kib,
            rss_kib_peak: self.rss_kib_peak.max(usage.rss_kib),
            load_average: load_average(),
            is_stranger: false, // who knows where the server is sees to that
        })
    }

    fn usage(&self, with_memory: bool) -> Usage {
        self.server_pid.and_then(Tree::of).map(|tree| tree.usage(with_memory)).unwrap_or_default()
    }

    fn thread_times(&self) -> Vec<ThreadTime> {
        self.threads.iter().map(|&thread| ThreadTime::of(thread)).collect()
    }
}

/// The resources of a server at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs)] // The names are the documentation.
pub struct Holdings {
    pub processes: u64,
    pub threads: u64,
    pub descriptors: u64,
    /// Those of them that listen.
    #[serde(default)]
    pub listeners: u64,
    pub pss_kib: u64,
}

/// The resources of a process and its descendants.
pub(crate) fn holdings(pid: i32) -> Option<Holdings> {
    let tree = Tree::of(pid)?;
    let Usage { processes, threads, descriptors, pss_kib, .. } = tree.usage(true);
    Some(Holdings { processes, threads, descriptors, listeners: listener::listeners(&tree.pids()), pss_kib })
}

/// The processes that descend from one, itself included.
pub fn descendants(pid: i32) -> Vec<i32> {
    Tree::of(pid).map(Tree::pids).unwrap_or_default()
}

/// Of a server and of this client.
fn memory(server: Option<i32>) -> [u64; 2] {
    [server, Some(std::process::id() as i32)]
        .map(|pid| pid.and_then(Tree::of).map_or(0, |tree| tree.usage(true).pss_kib))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::verdict::{Bound, LoadSummary, judge};

    /// What the kernel's counters in `tests/disk` say happened between two looks.
    fn recorded(name: &str) -> Audit {
        let read = |when: &str| {
            let path = format!("{}/tests/disk/{name}/{when}", env!("CARGO_MANIFEST_DIR"));
            let text = fs::read_to_string(path).unwrap();
            let (time, tables) = text.split_once('\n').unwrap();
            let seconds: f64 = time.trim_start_matches("time ").parse().unwrap();
            (seconds, Counters::of(|_| tables.to_owned()))
        };
        let ((before, then), (after, now)) = (read("before"), read("after"));
        Audit::of_machine(&now.since(&then), after - before, &[], &[(254, 0)])
    }

    #[test]
    fn the_waits_of_a_ring_are_no_waits_for_a_disk() {
        // Four users at a fixed rate, heard by io_uring, from memory.
        let ring = recorded("ring");
        assert!(ring.disk_wait > 0.3 && ring.io_stalled > 0.4, "both counters say that it waits: {ring:?}");
        assert!(ring.disk == "vda" && ring.disk_busy < 0.1, "{ring:?}");
        // A file written past the page cache, while other programs had the processors.
        let full = recorded("full");
        assert!(full.disk_busy > 0.8 && full.disk_wait < 0.2, "{full:?}");
        for (audit, bound) in [(ring, Bound::Unsaturated), (full, Bound::Disk)] {
            let audit = Audit { machine_busy: 0.5, ..audit };
            assert_eq!(judge(&audit, LoadSummary::of_retr(1000)).bound, bound, "{audit:?}");
        }
    }
}
