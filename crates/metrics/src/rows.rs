//! The table of metrics.

use super::waits::Cause;

/// What a metric is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// It only grows.
    Counter,
    /// It grows and falls.
    Gauge,
    /// Observations by size.
    Histogram,
}

/// The unit of a metric, which its name ends with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// A number of things.
    None,
    /// Bytes.
    Bytes,
    /// Seconds. A shard counts microseconds.
    Seconds,
}

/// Where the value of a metric comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// Shards count it.
    Counted,
    /// It is read from the server when it is scraped.
    Read,
}

/// A label of a metric.
#[derive(Debug, Clone, Copy)]
pub struct Label {
    /// Its name.
    pub name: &'static str,
    /// All of its values. Empty where a reading names them; then the configuration decides how many there are.
    pub values: &'static [&'static str],
}

/// A metric.
#[derive(Debug)]
pub struct Row {
    /// What the program calls it.
    pub metric: Metric,
    /// What Prometheus calls it.
    pub name: &'static str,
    /// What it is.
    pub kind: Kind,
    /// Its unit.
    pub unit: Unit,
    /// Where its value comes from.
    pub source: Source,
    /// Its labels.
    pub labels: &'static [Label],
    /// A sentence about it.
    pub help: &'static str,
}

/// The upper bounds of the buckets of every histogram, in microseconds; one bucket more has what is above.
pub const BUCKETS: [u64; 18] = [
    100,
    250,
    500,
    1_000,
    2_500,
    5_000,
    10_000,
    25_000,
    50_000,
    100_000,
    250_000,
    500_000,
    1_000_000,
    2_500_000,
    10_000_000,
    60_000_000,
    300_000_000,
    1_800_000_000,
];

/// The cells of a histogram: its buckets, the one above, and the sum.
pub(crate) const HISTOGRAM: usize = BUCKETS.len() + 2;

const DOOR: Label = Label { name: "door", values: &["ftp", "ftps", "http", "https"] };
const PROTOCOL: Label = Label { name: "protocol", values: &["ftp", "http"] };
const DIRECTION: Label = Label { name: "direction", values: &["download", "upload", "listing"] };
const LOGIN: Label = Label { name: "result", values: &["success", "failed", "refused"] };
const CAUSE: Label = Label { name: "cause", values: &Cause::WORDS };
const OUTCOME: Label = Label { name: "result", values: &["complete", "failed"] };
const HANDSHAKE: Label = Label { name: "result", values: &["full", "resumed", "failed"] };
const CODE: Label = Label { name: "code", values: &["1xx", "2xx", "3xx", "4xx", "5xx"] };
const METHOD: Label = Label { name: "method", values: &METHODS };
const VERB: Label = Label { name: "verb", values: &VERBS };
const REPLY: Label = Label { name: "code", values: &["2xx", "3xx", "4xx", "5xx"] };
const POOL: Label = Label { name: "pool", values: &[] };
const STATE: Label = Label { name: "state", values: &[] };
const WORKER: Label = Label { name: "worker", values: &[] };
const LOG: Label = Label { name: "log", values: &[] };
const FOLDER: Label = Label { name: "folder", values: &[] };
const FILE: Label = Label { name: "file", values: &[] };
const VERSION: Label = Label { name: "version", values: &[] };
const NODE: Label = Label { name: "node", values: &[] };
const TAKEN: Label = Label { name: "result", values: &[] };

/// The methods of HTTP that have a series each. The last is any other, and a request that is none.
pub const METHODS: [&str; 16] = [
    "GET",
    "HEAD",
    "PUT",
    "POST",
    "DELETE",
    "OPTIONS",
    "PATCH",
    "PROPFIND",
    "PROPPATCH",
    "MKCOL",
    "COPY",
    "MOVE",
    "LOCK",
    "UNLOCK",
    "REPORT",
    "other",
];

/// The commands of FTP that have a series each. The last is any other, `SITE` and its own among them.
pub(crate) const VERBS: [&str; 39] = [
    "USER", "PASS", "QUIT", "CWD", "CDUP", "PWD", "PASV", "EPSV", "PORT", "EPRT", "TYPE", "MODE", "REST",
    "RETR", "STOR", "STOU", "APPE", "DELE", "RMD", "MKD", "RNFR", "RNTO", "LIST", "NLST", "MLSD", "MLST",
    "SIZE", "MDTM", "MFMT", "STAT", "FEAT", "OPTS", "AUTH", "PBSZ", "PROT", "HASH", "NOOP", "ABOR", "other",
];

macro_rules! metrics {
    ($($metric:ident $name:literal $kind:ident $unit:ident $source:ident [$($label:ident),*] $help:literal;)*) => {
        /// What the program calls a metric: the place of its row.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[allow(missing_docs, reason = "the rows say what each is")]
        pub enum Metric {
            $($metric,)*
        }

        /// All metrics, in the order in which they are written.
        pub static ROWS: [Row; COUNT] = TABLE;

        const COUNT: usize = [$(Metric::$metric),*].len();

        const TABLE: [Row; COUNT] = [$(Row {
            metric: Metric::$metric,
            name: $name,
            kind: Kind::$kind,
            unit: Unit::$unit,
            source: Source::$source,
            labels: &[$($label),*],
            help: $help,
        }),*];
    };
}

metrics! {
    Connections "millrace_connections_total" Counter None Counted [DOOR]
        "Connections that were let in, by the protocol of the address that they came to.";
    Refused "millrace_connections_refused_total" Counter None Counted []
        "Connections that a limit, a ban or a list of networks refused.";
    Sessions "millrace_sessions" Gauge None Read []
        "Connections of clients that are open.";
    Logins "millrace_logins_total" Counter None Counted [LOGIN]
        "Logins. Failed: a wrong name or password. Refused: by a ban, a hook, or the account itself.";
    Bans "millrace_bans_total" Counter None Counted []
        "Bans for failed logins.";
    Banned "millrace_bans_active" Gauge None Read []
        "Bans that hold now.";
    LimitsReached "millrace_limits_reached_total" Counter None Counted []
        "Clients and operations that a limit refused.";
    Transfers "millrace_transfers_total" Counter None Counted [PROTOCOL, DIRECTION, OUTCOME]
        "Transfers that have ended. By HTTP these are the bodies of files.";
    TransferBytes "millrace_transfer_bytes_total" Counter Bytes Counted [PROTOCOL, DIRECTION]
        "Bytes of the transfers that have ended, whole or not.";
    TransferFirstByte "millrace_transfer_first_byte_seconds" Histogram Seconds Counted [PROTOCOL, DIRECTION]
        "Time from the start of a transfer, as in the log, to the first byte of the file.";
    TransferDuration "millrace_transfer_duration_seconds" Histogram Seconds Counted [PROTOCOL, DIRECTION]
        "Time from the start of a transfer to its end, as in the log.";
    Commands "millrace_ftp_commands_total" Counter None Counted [VERB, REPLY]
        "Commands of FTP, by the first digit of the reply that ended each: that of a transfer comes at its end.";
    Declined "millrace_ftp_commands_declined_total" Counter None Counted []
        "Commands of FTP that were answered by an error.";
    Requests "millrace_http_requests_total" Counter None Counted [METHOD, CODE]
        "Requests of HTTP that were answered.";
    ResponseBytes "millrace_http_response_bytes_total" Counter Bytes Counted []
        "Bytes of the bodies of answers, as in the access log.";
    RequestDuration "millrace_http_request_duration_seconds" Histogram Seconds Counted []
        "Time from the head of a request to the end of its answer, as in the access log.";
    LimitWaits "millrace_limit_waits_total" Counter None Counted [PROTOCOL]
        "How often a transfer has waited for a limit on bandwidth.";
    TransferWaitSeconds "millrace_transfer_wait_seconds_total" Counter Seconds Counted [PROTOCOL, DIRECTION, CAUSE]
        "What the transfers that have ended have waited for, and for how long.";
    HookRefusals "millrace_hook_refusals_total" Counter None Counted []
        "Operations that a hook refused.";
    Handshakes "millrace_tls_handshakes_total" Counter None Counted [HANDSHAKE]
        "Handshakes of TLS, those of data connections included.";
    CertificateExpiry "millrace_certificate_expiry_timestamp_seconds" Gauge Seconds Read [FILE]
        "When a certificate that is in force expires, in seconds since 1970.";
    PendingData "millrace_data_connections_pending" Gauge None Read []
        "Passive ports that wait for the data connection of a client.";
    WaitingForPort "millrace_passive_port_waiters" Gauge None Read []
        "Sessions that wait for a passive port to become free.";
    PoolWaiting "millrace_pool_jobs_waiting" Gauge None Read [POOL]
        "Jobs that wait for a thread of a pool.";
    PoolThreads "millrace_pool_threads" Gauge None Read [POOL]
        "Threads of a pool.";
    PoolIdle "millrace_pool_threads_idle" Gauge None Read [POOL]
        "Threads of a pool that have nothing to do.";
    DeliveryQueue "millrace_delivery_queue_events" Gauge None Read [STATE]
        "Events in the queue of the hooks; with share-events those of all nodes, at each. Parked: given up until an administrator retries them.";
    WorkerTurn "millrace_worker_turn_seconds" Histogram Seconds Counted []
        "How long a turn of a worker takes from the first event to the last.";
    WorkerLag "millrace_worker_lag_seconds" Gauge Seconds Read [WORKER]
        "How long a worker took to answer when it was last asked, or has not answered yet.";
    Warnings "millrace_warnings_total" Counter None Counted []
        "Warnings in the log.";
    LogLinesLost "millrace_log_lines_lost_total" Counter None Read [LOG]
        "Lines that a log lacks, as its disk was full or its reader too slow.";
    SpansDropped "millrace_otlp_spans_dropped_total" Counter None Counted []
        "Spans that the collector of OpenTelemetry lacks: their queue was full, or it did not take them.";
    DiskFree "millrace_disk_free_bytes" Gauge Bytes Read [FOLDER]
        "Free bytes of the file system of a folder: one that is served, of logs, or of what is kept.";
    DiskSize "millrace_disk_size_bytes" Gauge Bytes Read [FOLDER]
        "Bytes of that file system, without those that only root may use.";
    Ready "millrace_ready" Gauge None Read []
        "1 where the server accepts clients, 0 where it drains or has handed over.";
    Build "millrace_build_info" Gauge None Read [VERSION]
        "The version of the server; the value is always 1.";
    ClusterNode "millrace_cluster_node" Gauge None Read [NODE]
        "1 where the server is registered in its cluster, 0 where it is not now, by the name of the node.";
    HandedOn "millrace_data_connections_handed_on_total" Counter None Read [TAKEN]
        "Data connections that came here for a session of another node, and whether a node took them.";
    OpenDescriptors "process_open_fds" Gauge None Read []
        "Descriptors that are open.";
    MostDescriptors "process_max_fds" Gauge None Read []
        "Descriptors that may be open.";
    Cpu "process_cpu_seconds_total" Counter Seconds Read []
        "Processor time that the process has taken.";
    Memory "process_resident_memory_bytes" Gauge Bytes Read []
        "Memory that the process has in RAM.";
    Start "process_start_time_seconds" Gauge Seconds Read []
        "When the server started, in seconds since 1970.";
}

impl Row {
    /// Returns how many cells of a shard it has.
    const fn cells(&self) -> usize {
        if matches!(self.source, Source::Read) {
            return 0;
        }
        self.series() * self.width()
    }

    /// Returns how many series it has, where its labels say that.
    pub(crate) const fn series(&self) -> usize {
        let (mut series, mut label) = (1, 0);
        while label < self.labels.len() {
            series *= self.labels[label].values.len();
            label += 1;
        }
        series
    }

    /// Returns how many cells a series has.
    pub(crate) const fn width(&self) -> usize {
        if matches!(self.kind, Kind::Histogram) { HISTOGRAM } else { 1 }
    }
}

impl Metric {
    /// Returns its row.
    pub fn row(self) -> &'static Row {
        &ROWS[self as usize]
    }

    /// Returns the first cell of a series, by the places of the values of its labels. Returns nothing where there is no
    /// such series.
    pub(crate) fn cell(self, labels: &[usize]) -> Option<usize> {
        let row = self.row();
        if row.labels.len() != labels.len() || row.source == Source::Read {
            return None;
        }
        let mut series = 0;
        for (label, place) in row.labels.iter().zip(labels) {
            if *place >= label.values.len() {
                return None;
            }
            series = series * label.values.len() + place;
        }
        Some(FIRST[self as usize] + series * row.width())
    }
}

/// The first cell of each metric, and behind them how many cells there are.
const FIRST: [usize; COUNT + 1] = {
    let mut first = [0; COUNT + 1];
    let mut index = 0;
    while index < COUNT {
        first[index + 1] = first[index] + TABLE[index].cells();
        index += 1;
    }
    first
};

/// How many cells a shard has.
pub(crate) const CELLS: usize = FIRST[COUNT];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_series_share_a_cell() {
        let mut seen = vec![false; CELLS];
        for row in &ROWS {
            assert_eq!(row.metric.row().name, row.name);
            if row.source == Source::Read {
                continue;
            }
            let sizes: Vec<usize> = row.labels.iter().map(|label| label.values.len()).collect();
            for series in 0..row.series() {
                let (mut rest, mut places) = (series, vec![0; sizes.len()]);
                for (place, size) in places.iter_mut().zip(&sizes).rev() {
                    (*place, rest) = (rest % size, rest / size);
                }
                let first = row.metric.cell(&places).unwrap();
                for cell in &mut seen[first..first + row.width()] {
                    assert!(!std::mem::replace(cell, true), "{}", row.name);
                }
            }
        }
        assert!(seen.iter().all(|seen| *seen));
    }

    #[test]
    fn labels_that_no_row_has_lead_to_no_cell() {
        assert_eq!(Metric::Logins.cell(&[3]), None);
        assert_eq!(Metric::Logins.cell(&[]), None);
        assert_eq!(Metric::Sessions.cell(&[]), None);
    }

    #[test]
    fn a_name_says_its_kind_and_unit() {
        for Row { name, kind, unit, help, .. } in &ROWS {
            assert_eq!(name.ends_with("_total"), *kind == Kind::Counter, "{name}");
            let unit = match unit {
                Unit::None => "",
                Unit::Bytes => "_bytes",
                Unit::Seconds => "_seconds",
            };
            assert!(name.trim_end_matches("_total").ends_with(unit), "{name}");
            assert!(help.ends_with('.') && !help.contains(['\n', '\\', '"']), "{name}");
        }
    }
}
