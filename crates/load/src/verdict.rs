//! The limit of a figure: one word, and the evidence for it.
//!
//! The rules are tried in order, and the first that holds decides: findings that invalidate all others (a client at its
//! limit, a machine used by other programs) come before those about the server.

use serde::{Deserialize, Serialize};

use crate::fault::is_behind;
use crate::host::Audit;
use crate::plan::Op;
use crate::units::counted;

/// The limit that a figure shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Bound {
    /// The server could do no more.
    Server,
    /// This client could do no more: the figure says nothing about the server.
    Client,
    /// Other programs, or other virtual machines, had most of the processors: it says nothing about the server either.
    Others,
    /// The machine could do no more, and which of its programs took it is not known.
    Unknown,
    /// Packets were lost.
    Network,
    /// The disk could do no more.
    Disk,
    /// Nothing was at its limit, and fewer users got as much: they wait for something that takes no processor.
    Waiting,
    /// Nothing was at its limit.
    Unsaturated,
}

impl Bound {
    /// As reports have it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Server => "server-bound",
            Self::Client => "client-bound",
            Self::Others => "others",
            Self::Unknown => "unknown",
            Self::Network => "network-bound",
            Self::Disk => "disk-bound",
            Self::Waiting => "waiting",
            Self::Unsaturated => "unsaturated",
        }
    }

    /// Returns true if the figure shows the limit of something else than the server, which may be faster.
    pub fn hides_the_server(self) -> bool {
        matches!(self, Self::Client | Self::Others | Self::Unknown)
    }
}

/// The limit of a figure, and the evidence.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// The limit.
    pub bound: Bound,
    /// Sentences, the deciding one first.
    pub evidence: Vec<String>,
}

/// The figures of the load for the verdict.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LoadSummary {
    pub(crate) op: Op,
    /// Operations that this machine could not begin.
    pub(crate) client_faults: u64,
    /// Operations of a fixed rate that found no free user.
    pub(crate) missed: u64,
    pub(crate) ops: u64,
    /// Operations that the server let fail.
    pub(crate) failed: u64,
    /// The slowest operation.
    pub(crate) slowest_ms: f64,
    /// Misbehaving users make the server connect to addresses that do not answer, so it retransmits SYNs.
    pub(crate) has_black_holes: bool,
}

#[cfg(test)]
impl LoadSummary {
    /// This many downloads that went well, the slowest in a second.
    pub(crate) const fn of_retr(ops: u64) -> Self {
        Self {
            op: Op::Retr,
            ops,
            failed: 0,
            slowest_ms: 1000.0,
            client_faults: 0,
            missed: 0,
            has_black_holes: false,
        }
    }
}

/// A thread that uses so much of a processor has no room left: the rest is switching.
const FULL_THREAD: f64 = 0.9;
/// A thread that was never idle, on whatever processor it could get.
const KEEN_THREAD: f64 = 0.95;
/// Processors that other programs may use without disturbing a figure: a share of the machine.
const OTHERS: f64 = 0.15;
/// So busy is a machine whose threads wait for each other; measured, 2 cores under closed loops show 0.96-1.0.
const FULL_MACHINE: f64 = 0.93;
/// A thread that wakes up so much too late was kept from running for a scheduler's whole slice, several times.
const LATE_MS: f64 = 25.0;
/// With this share of segments sent again, losses decide TCP's rate.
const LOSSY: f64 = 0.01;
/// The disk of the data had something to do in so much of the time...
const FULL_DISK: f64 = 0.8;
/// ...or in so much of it, and threads waited for it for so long. What they wait for the kernel does not tell: a disk that
/// does little is not it, and then it is an io_uring, which may wait for the network.
const BUSY_DISK: f64 = 0.5;
const DISK_WAIT: f64 = 0.25;
/// From here on, other virtual machines disturb the figure.
const STOLEN: f64 = 0.03;

/// The share of the processors that other virtual machines left, 0 to 1: a thread that used all of it was never idle,
/// though its CPU time is less than the clock's. Which thread was held up is unknown, so every thread is compared with
/// the overall share.
fn left(audit: &Audit) -> f64 {
    1.0 - audit.stolen
}

fn is_machine_full(audit: &Audit) -> bool {
    audit.machine_busy >= FULL_MACHINE * left(audit)
}

/// Of less than this, in seconds, the machine's counters tell nothing.
const SHORTEST: f64 = 0.1;

/// Listening queues that overflow so seldom, or for so few of the operations, are no limit...
const FEW_OVERFLOWS: u64 = 10;
const SHARE_OF_OVERFLOWS: f64 = 0.01;
/// ...and none of this load's, where no operation waited for so long: a client repeats what a full queue dropped after
/// 200 ms at the earliest (`TCP_RTO_MIN`). The kernel counts every program's queues together.
const SENT_AGAIN_MS: f64 = 200.0;

/// A rule: the evidence if it holds.
type Rule = fn(&Audit, LoadSummary) -> Option<String>;

const RULES: [(Bound, Rule); 14] = [
    (Bound::Client, client_cannot),
    // A processor of which little is left makes every thread look as if it were full.
    (Bound::Others, other_machines_take_the_machine),
    (Bound::Client, client_thread_full),
    (Bound::Server, server_full),
    (Bound::Others, others_take_the_machine),
    (Bound::Client, client_takes_the_machine),
    (Bound::Server, server_takes_the_machine),
    (Bound::Unknown, an_unknown_process_takes_the_machine),
    (Bound::Client, client_never_idle),
    (Bound::Client, client_held_back),
    (Bound::Server, server_turns_connections_away),
    (Bound::Network, packets_lost),
    (Bound::Disk, disk_full),
    (Bound::Server, server_misses_the_rate),
];

/// Determines the limit of a figure.
pub(crate) fn judge(audit: &Audit, load: LoadSummary) -> Verdict {
    let nothing = match load {
        LoadSummary { op: Op::Idle, .. } => Some("nothing was asked of the server"),
        LoadSummary { ops: 0, client_faults: 0, .. } => Some("no operation ended well"),
        // The kernel counts the machine's time in ticks of 10 ms.
        _ if is_too_short(audit) => Some("it was too short to tell what was at its limit"),
        _ => None,
    };
    if let Some(reason) = nothing {
        return Verdict { bound: Bound::Unsaturated, evidence: vec![reason.to_owned()] };
    }
    let found = RULES.iter().find_map(|(bound, rule)| Some((*bound, rule(audit, load)?)));
    let (bound, reason) = found.unwrap_or_else(|| (Bound::Unsaturated, no_limit(load)));
    let mut evidence = cautions(audit, load, bound);
    evidence.retain(|caution| caution != UNKNOWN || !reason.contains(REMEDY));
    evidence.insert(0, reason);
    Verdict { bound, evidence }
}

/// More of a load under which operations fail would only have more of them fail.
fn no_limit(load: LoadSummary) -> String {
    match load.failed {
        0 => "nothing was at its limit: more users or a higher rate may get more".to_owned(),
        failed => format!("no limit of this machine was seen, and {} failed", counted(failed, "operation")),
    }
}

/// Returns true if a figure was over before the machine's counters could tell anything of it.
pub(crate) fn is_too_short(audit: &Audit) -> bool {
    audit.seconds < SHORTEST
}

fn client_cannot(_: &Audit, load: LoadSummary) -> Option<String> {
    let share = load.client_faults as f64 / (load.ops + load.client_faults).max(1) as f64;
    (share > 0.01)
        .then(|| format!("this machine could not begin {}", counted(load.client_faults, "operation")))
}

fn client_thread_full(audit: &Audit, _: LoadSummary) -> Option<String> {
    let used = audit.client.busiest_thread;
    (used >= FULL_THREAD * left(audit))
        .then(|| format!("a thread of this client used {:.0} % of a processor: try --threads", used * 100.0))
}

/// Where the server's CPU is known, the rules before this one weigh the two against each other.
fn client_never_idle(audit: &Audit, _: LoadSummary) -> Option<String> {
    let wanted = audit.client.keenest_thread;
    (audit.server.is_none() && wanted >= KEEN_THREAD * left(audit)).then(|| {
        format!("a thread of this client was busy or kept waiting for {:.0} % of the time", wanted * 100.0)
    })
}

/// Where the server's CPU is unknown, a full machine may be the server's doing or another program's.
fn an_unknown_process_takes_the_machine(audit: &Audit, _: LoadSummary) -> Option<String> {
    (audit.server.is_none() && is_machine_full(audit)).then(|| {
        let busy = audit.machine_busy * 100.0;
        format!(
            "this machine was {busy:.0} % busy, and whose doing that was cannot be told: give --server-pid"
        )
    })
}

/// The processors that server and client may run on, by user.
struct Shares {
    server: f64,
    client: f64,
    programs: f64,
    machines: f64,
}

impl Shares {
    /// Where the server's CPU is unknown, all that the client did not use may be the server's.
    fn of(audit: &Audit) -> Self {
        let (server, programs) = match &audit.server {
            Some(server) => (server.cpu_seconds / audit.seconds, audit.others),
            None => (audit.others, 0.0),
        };
        let machines = audit.stolen * audit.cores as f64;
        Self { server, client: audit.client.cpu_seconds / audit.seconds, programs, machines }
    }
}

/// Of a machine that is mostly elsewhere nothing can be told, however full what was left of it was.
fn other_machines_take_the_machine(audit: &Audit, _: LoadSummary) -> Option<String> {
    let had = Shares::of(audit);
    let takes_most = had.machines > had.server.max(had.client).max(had.programs);
    (is_machine_full(audit) && takes_most).then(|| {
        format!(
            "other virtual machines took {:.2} of the {} that server and client may run on: another machine, or another \
             hour, tells more",
            had.machines,
            counted(audit.cores as u64, "processor")
        )
    })
}

/// The rest is too small for server and client to tell the limit.
fn others_take_the_machine(audit: &Audit, _: LoadSummary) -> Option<String> {
    let had = Shares::of(audit);
    let takes_most = had.programs + had.machines > had.server.max(had.client);
    (audit.server.is_some() && is_machine_full(audit) && takes_most).then(|| {
        let stolen = match audit.stolen {
            stolen if stolen >= STOLEN => format!(", and other virtual machines took {:.2}", had.machines),
            _ => String::new(),
        };
        format!(
            "other programs used {:.2} of the {} that server and client may run on{stolen}: stop what else runs here",
            had.programs,
            counted(audit.cores as u64, "processor")
        )
    })
}

fn client_takes_the_machine(audit: &Audit, _: LoadSummary) -> Option<String> {
    let server = audit.server.as_ref()?.cpu_seconds;
    let client = audit.client.cpu_seconds;
    (is_machine_full(audit) && client > server).then(|| shared(audit, server))
}

fn server_takes_the_machine(audit: &Audit, _: LoadSummary) -> Option<String> {
    let server = audit.server.as_ref()?.cpu_seconds;
    let fills = is_machine_full(audit) && server >= audit.client.cpu_seconds;
    fills.then(|| shared(audit, server))
}

fn shared(audit: &Audit, server: f64) -> String {
    format!(
        "the machine was {:.0} % busy: server {:.2} processors, client {:.2} of {}",
        audit.machine_busy * 100.0,
        server / audit.seconds,
        audit.client.cpu_seconds / audit.seconds,
        audit.cores
    )
}

fn client_held_back(audit: &Audit, _: LoadSummary) -> Option<String> {
    let lag = audit.client.lag_p99_ms;
    (lag >= LATE_MS).then(|| format!("this client's threads woke up {lag:.0} ms too late (p99)"))
}

fn server_full(audit: &Audit, _: LoadSummary) -> Option<String> {
    let server = audit.server.as_ref()?;
    let used = server.cpu_seconds / audit.seconds;
    let most = (audit.cores as u64).min(server.threads).max(1);
    (used >= FULL_THREAD * most as f64 * left(audit))
        .then(|| format!("the server used {used:.2} of the {most} processors that its threads can use"))
}

fn server_turns_connections_away(audit: &Audit, load: LoadSummary) -> Option<String> {
    let dropped = overflows(audit);
    let is_much = dropped >= FEW_OVERFLOWS && dropped as f64 > load.ops as f64 * SHARE_OF_OVERFLOWS;
    (is_much && load.slowest_ms >= SENT_AGAIN_MS)
        .then(|| format!("listening queues on this machine overflowed {dropped} times"))
}

fn overflows(audit: &Audit) -> u64 {
    audit.network.listen_drops.max(audit.network.listen_overflows)
}

fn packets_lost(audit: &Audit, load: LoadSummary) -> Option<String> {
    let network = &audit.network;
    let asked_for = if load.has_black_holes { network.syn_retransmitted } else { 0 };
    let lost = network.retransmitted.saturating_sub(asked_for);
    let share = lost as f64 / network.segments_sent.max(1) as f64;
    (share >= LOSSY).then(|| format!("{:.1} % of the segments had to be sent again", share * 100.0))
}

fn disk_full(audit: &Audit, _: LoadSummary) -> Option<String> {
    let wait = audit.disk_wait.max(audit.io_stalled);
    (audit.disk_busy >= FULL_DISK || (audit.disk_busy >= BUSY_DISK && wait >= DISK_WAIT)).then(|| {
        let (disk, busy, wait) = (&audit.disk, audit.disk_busy * 100.0, wait * 100.0);
        format!(
            "the disk {disk} was busy for {busy:.0} % of the time, and threads waited for it for {wait:.0} %"
        )
    })
}

fn server_misses_the_rate(_: &Audit, load: LoadSummary) -> Option<String> {
    is_behind(load.missed, load.ops).then(|| {
        format!("the asked rate was not reached: {} operations found every user still waiting", load.missed)
    })
}

/// Said once: some reasons say it themselves.
const UNKNOWN: &str = "the server's CPU is not known: give --server-pid";
const REMEDY: &str = "give --server-pid";

fn cautions(audit: &Audit, load: LoadSummary, bound: Bound) -> Vec<String> {
    let others_decide = bound == Bound::Others;
    let mut found = Vec::new();
    if audit.server.as_ref().is_some_and(|server| server.is_stranger) {
        found.push(
            "--server-pid is not of the server, or not of that alone: its CPU and memory are of others"
                .to_owned(),
        );
    }
    if audit.stolen >= STOLEN && !others_decide {
        found.push(format!("other virtual machines took {:.0} % of the processors", audit.stolen * 100.0));
    }
    if audit.server.is_some() && audit.others >= OTHERS * audit.cores as f64 && !others_decide {
        found.push(format!("other programs used {:.2} processors, which disturbs it", audit.others));
    }
    // Data connections come from a port of their own each; logins all go to one.
    if load.op == Op::Login && audit.network.time_wait > audit.network.ephemeral_ports / 2 {
        found.push(format!(
            "{} connections in TIME_WAIT, of {} ports towards each address and port",
            audit.network.time_wait, audit.network.ephemeral_ports
        ));
    }
    if audit.network.syn_retransmitted > 0 && !load.has_black_holes {
        let count = audit.network.syn_retransmitted;
        found.push(format!("{count} connection attempts were repeated, each after a second or more"));
    }
    let (dropped, decides) = (overflows(audit), server_turns_connections_away(audit, load).is_some());
    if dropped > 0 && !decides {
        found.push(format!(
            "listening queues on this machine, of whichever program, overflowed {dropped} times"
        ));
    }
    if audit.server.is_none() {
        found.push(UNKNOWN.to_owned());
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::{ClientAudit, NetworkAudit, ServerAudit};

    const LOAD: LoadSummary = LoadSummary::of_retr(1000);

    /// Ten seconds on two processors, half of each used.
    fn calm() -> Audit {
        Audit {
            seconds: 10.0,
            cores: 2,
            machine_busy: 0.5,
            client: ClientAudit { cpu_seconds: 4.0, busiest_thread: 0.4, ..ClientAudit::default() },
            server: Some(ServerAudit { cpu_seconds: 6.0, threads: 2, ..ServerAudit::default() }),
            network: NetworkAudit { segments_sent: 1000, ..NetworkAudit::default() },
            ..Audit::default()
        }
    }

    fn bound(change: impl FnOnce(&mut Audit)) -> Bound {
        let mut audit = calm();
        change(&mut audit);
        judge(&audit, LOAD).bound
    }

    #[test]
    fn each_limit_is_seen() {
        assert_eq!(bound(|_| {}), Bound::Unsaturated);
        assert_eq!(bound(|audit| audit.client.busiest_thread = 0.95), Bound::Client);
        assert_eq!(bound(|audit| audit.client.lag_p99_ms = 50.0), Bound::Client);
        let unknown = |audit: &mut Audit| (audit.server, audit.client.keenest_thread) = (None, 0.99);
        assert_eq!(bound(unknown), Bound::Client);
        let full = |audit: &mut Audit| (audit.server, audit.machine_busy) = (None, 0.98);
        assert_eq!(bound(full), Bound::Unknown);
        let keen = |audit: &mut Audit| (full(audit), audit.client.keenest_thread = 0.99);
        assert_eq!(
            bound(|audit| _ = keen(audit)),
            Bound::Unknown,
            "it waits for the processor that another has"
        );
        assert_eq!(bound(|audit| audit.server = None), Bound::Unsaturated);
        for busy in [0.5, 0.98] {
            let said = judge(&Audit { server: None, machine_busy: busy, ..calm() }, LOAD).evidence.join("; ");
            assert_eq!(said.matches(REMEDY).count(), 1, "{said}");
        }
        assert_eq!(bound(|audit| audit.server.as_mut().unwrap().cpu_seconds = 19.0), Bound::Server);
        assert_eq!(bound(|audit| audit.machine_busy = 0.98), Bound::Server);
        assert_eq!(bound(|audit| audit.network.retransmitted = 20), Bound::Network);
        assert_eq!(bound(|audit| audit.disk_busy = 0.9), Bound::Disk);
        assert_eq!(bound(|audit| audit.network.listen_drops = 30), Bound::Server);
    }

    #[test]
    fn waits_are_a_disks_only_where_it_is_busy() {
        let disk = |busy: f64, wait: f64, stalled: f64| {
            bound(|audit| (audit.disk_busy, audit.disk_wait, audit.io_stalled) = (busy, wait, stalled))
        };
        assert_eq!(disk(0.0, 0.33, 0.42), Bound::Unsaturated, "as rings wait");
        assert_eq!(disk(0.6, 0.0, 0.3), Bound::Disk, "an upload at a time, each of which is synchronised");
        assert_eq!(disk(0.6, 0.3, 0.0), Bound::Disk, "a kernel that does not count pressure");
        assert_eq!(disk(0.6, 0.1, 0.1), Bound::Unsaturated);
        assert_eq!(disk(0.85, 0.0, 0.0), Bound::Disk);
    }

    #[test]
    fn rare_overflows_of_queues_or_those_without_delay_are_no_limit_of_the_server() {
        let verdict = |drops: u64, ops: u64, slowest_ms: f64| {
            let mut audit = calm();
            audit.network.listen_drops = drops;
            judge(&audit, LoadSummary { ops, slowest_ms, ..LOAD })
        };
        // Twelve transfers, while some other program's queue overflowed twice.
        for (drops, ops, slowest_ms) in [(2, 12, 1000.0), (30, 1000, 150.0), (30, 30_000, 1000.0)] {
            let found = verdict(drops, ops, slowest_ms);
            assert_eq!(found.bound, Bound::Unsaturated, "{found:?}");
            assert!(found.evidence[1].contains(&format!("overflowed {drops} times")), "{found:?}");
        }
        assert_eq!(verdict(30, 1000, 200.0).bound, Bound::Server);
    }

    #[test]
    fn more_load_is_no_advice_where_operations_fail() {
        let reason = |failed: u64| judge(&calm(), LoadSummary { failed, ..LOAD }).evidence[0].clone();
        assert!(reason(0).contains("more users or a higher rate"));
        assert_eq!(reason(40), "no limit of this machine was seen, and 40 operations failed");
    }

    #[test]
    fn a_server_of_one_thread_is_full_with_one_processor() {
        let full = |audit: &mut Audit| {
            *audit.server.as_mut().unwrap() =
                ServerAudit { cpu_seconds: 9.5, threads: 1, ..ServerAudit::default() };
        };
        assert_eq!(bound(full), Bound::Server);
    }

    /// Ten seconds of two processors; the server's CPU is known unless it is `None`.
    #[test]
    fn the_process_with_most_of_a_full_machine_bounds_it() {
        let cases = [
            // server, client, other programs, other virtual machines: processors
            ((Some(1.0), 0.9, 0.0, 0.0), Bound::Server, "server 1.00 processors, client 0.90 of 2"),
            ((Some(0.8), 1.1, 0.0, 0.0), Bound::Client, "server 0.80 processors, client 1.10 of 2"),
            ((Some(0.2), 0.1, 1.7, 0.0), Bound::Others, "other programs used 1.70 of the 2 processors"),
            ((Some(0.2), 0.1, 0.0, 1.7), Bound::Others, "other virtual machines took 1.70 of the 2"),
            ((Some(0.6), 0.5, 0.9, 0.0), Bound::Others, "other programs used 0.90 of the 2"),
            ((Some(0.5), 0.6, 0.9, 0.0), Bound::Others, "other programs used 0.90 of the 2"),
            ((Some(0.9), 0.4, 0.7, 0.0), Bound::Server, "server 0.90 processors"),
            ((Some(0.4), 0.9, 0.7, 0.0), Bound::Client, "client 0.90 of 2"),
            ((Some(0.7), 0.6, 0.0, 0.64), Bound::Server, "server 0.70 processors"),
            ((Some(0.6), 0.7, 0.0, 0.64), Bound::Client, "client 0.70 of 2"),
            ((Some(0.6), 0.3, 0.5, 0.6), Bound::Others, "used 0.50 of the 2 processors that server and"),
            ((Some(0.6), 0.3, 0.5, 0.6), Bound::Others, "and other virtual machines took 0.60"),
            ((Some(0.1), 0.2, 1.7, 0.0), Bound::Others, "may run on: stop what else runs here"),
            ((Some(0.1), 0.2, 0.0, 1.7), Bound::Others, "another machine, or another hour, tells more"),
            // All CPU time besides the client's may be the server's, except time that other virtual machines took.
            ((None, 0.3, 1.6, 0.0), Bound::Unknown, "whose doing that was cannot be told: give --server-pid"),
            ((None, 0.3, 0.5, 1.2), Bound::Others, "other virtual machines took 1.20 of the 2"),
        ];
        for ((server, client, others, stolen), expected, reason) in cases {
            let threads = 8; // none of them, and none of the client's, has a whole processor
            let ran = |had: f64| ServerAudit { cpu_seconds: had * 10.0, threads, ..ServerAudit::default() };
            let busy: f64 = (server.unwrap_or(0.0) + client + others) / 2.0;
            let audit = Audit {
                machine_busy: busy.min(1.0 - stolen / 2.0),
                stolen: stolen / 2.0,
                others,
                client: ClientAudit { cpu_seconds: client * 10.0, ..ClientAudit::default() },
                server: server.map(ran),
                ..calm()
            };
            let verdict = judge(&audit, LOAD);
            let whose = format!("{server:?} {client} {others} {stolen}: {verdict:?}");
            assert_eq!(verdict.bound, expected, "{whose}");
            assert!(verdict.evidence[0].contains(reason), "{whose}");
            let twice = |words: &str| verdict.evidence.iter().filter(|one| one.contains(words)).count() > 1;
            assert!(!twice("other programs") && !twice("other virtual machines"), "{whose}");
        }
    }

    #[test]
    fn a_server_of_one_thread_that_had_its_processor_is_full_whatever_used_the_other() {
        let one_thread = |audit: &mut Audit| {
            (audit.machine_busy, audit.others) = (1.0, 1.0);
            audit.client = ClientAudit { cpu_seconds: 0.5, ..ClientAudit::default() };
            audit.server = Some(ServerAudit { cpu_seconds: 9.4, threads: 1, ..ServerAudit::default() });
        };
        assert_eq!(bound(one_thread), Bound::Server);
    }

    #[test]
    fn a_thread_on_a_machine_that_is_elsewhere_is_not_the_limit() {
        let elsewhere = |audit: &mut Audit| {
            (audit.machine_busy, audit.stolen) = (0.3, 0.7);
            audit.client.busiest_thread = 0.29;
        };
        assert_eq!(bound(elsewhere), Bound::Others);
    }

    #[test]
    fn limits_are_held_against_what_other_virtual_machines_left() {
        let stolen = |change: fn(&mut Audit)| {
            bound(|audit| {
                audit.stolen = 0.32;
                audit.server.as_mut().unwrap().cpu_seconds = 7.0;
                change(audit);
            })
        };
        assert_eq!(stolen(|_| {}), Bound::Unsaturated);
        assert_eq!(stolen(|audit| audit.client.busiest_thread = 0.65), Bound::Client);
        assert_eq!(stolen(|audit| audit.machine_busy = 0.66), Bound::Server);
        assert_eq!(stolen(|audit| audit.server.as_mut().unwrap().cpu_seconds = 13.0), Bound::Server);
        let unknown = |audit: &mut Audit| (audit.server, audit.client.keenest_thread) = (None, 0.66);
        assert_eq!(stolen(unknown), Bound::Client);
    }

    #[test]
    fn nothing_bounds_those_who_ask_nothing() {
        let mut audit = calm();
        audit.machine_busy = 1.0;
        assert_eq!(judge(&audit, LoadSummary { op: Op::Idle, ..LOAD }).bound, Bound::Unsaturated);
    }

    #[test]
    fn cautions_follow_the_reason() {
        let mut audit = calm();
        (audit.others, audit.stolen, audit.network.syn_retransmitted) = (0.9, 0.1, 3);
        let verdict = judge(&audit, LoadSummary { missed: 50, ..LOAD });
        assert_eq!((verdict.bound, verdict.evidence.len()), (Bound::Server, 4));
        let verdict = judge(&audit, LoadSummary { missed: 50, has_black_holes: true, ..LOAD });
        assert_eq!(verdict.evidence.len(), 3, "SYNs to a black hole are no news: {verdict:?}");
        audit.server.as_mut().unwrap().is_stranger = true;
        assert!(judge(&audit, LOAD).evidence[1].starts_with("--server-pid is not of the server"));
    }

    #[test]
    fn retransmissions_into_a_black_hole_are_not_losses() {
        let mut audit = calm();
        (audit.network.retransmitted, audit.network.syn_retransmitted) = (30, 25);
        assert_eq!(judge(&audit, LOAD).bound, Bound::Network);
        assert_eq!(judge(&audit, LoadSummary { has_black_holes: true, ..LOAD }).bound, Bound::Unsaturated);
    }
}
