//! What the thread that posts spans costs: one half are requests of HTTP, the other downloads by FTP.
//!
//! `cargo run --release -p millrace-telemetry --example span_cost -- [SPANS] [none|gzip]`
//!
//! A collector in the same process takes each post. A line says, of the thread `otlp-traces`, the processor time of a span and
//! the bytes of it that are sent. Under callgrind the instructions of each thread are counted apart:
//!
//! `valgrind --tool=callgrind --separate-threads=yes target/release/examples/span_cost 51200`

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;
use std::{env, fs, thread};

use millrace_log::{
    AccessFormat, Direction, Event, Log, LogFormat, LogSettings, Request, RequestTrace, Rotation, Subject,
    Transferred,
};
use millrace_metrics::{Cause, Reading, Snapshot, Waited};
use millrace_telemetry::{Collector, Compression, Observed, Settings, Telemetry};
use millrace_vfs::{Conversion, Timestamp, VirtualPath};

/// Spans that are posted at a time.
const BATCH: u64 = 512;

const NOW: Timestamp = Timestamp { seconds: 1_790_000_000, nanoseconds: 123_456_789 };

/// A server that is never read, as metrics are first sent after seconds.
struct Unread;

impl Observed for Unread {
    fn read(&self) -> Option<(Snapshot, Vec<Reading>)> {
        None
    }

    fn warn(&self, text: &str) {
        panic!("{text}");
    }

    fn count_dropped(&self, spans: u64) {
        panic!("{spans} spans are lost");
    }
}

fn main() {
    let mut arguments = env::args().skip(1);
    let spans: u64 = arguments.next().map_or(51_200, |text| text.parse().expect("SPANS is a number"));
    let compression = match arguments.next().as_deref() {
        None | Some("none") => Compression::None,
        Some("gzip") => Compression::Gzip,
        Some(other) => panic!("{other:?} is neither none nor gzip"),
    };
    let (address, posts) = collector();
    let settings = LogSettings {
        format: LogFormat::Off,
        journal: false,
        xferlog: None,
        transfers_have_times: false,
        access: None,
        access_format: AccessFormat::default(),
        access_size: 0,
        hosts: &[],
        rotation: Rotation { size: 0, age: Duration::ZERO, keep: 0 },
        audit: None,
        syslog: None,
    };
    let log = Log::open(&settings).expect("it has no files");
    let settings = Settings {
        endpoint: format!("http://{address}"),
        headers: Default::default(),
        attributes: Vec::new(),
        metrics_compression: Compression::None,
        traces_compression: compression,
        interval: Duration::from_secs(3600),
        one_in: 1,
        roots: None,
    };
    let collector = Collector::new(settings).expect("these settings are right");
    let telemetry =
        Telemetry::start(collector, Arc::new(Unread), Arc::clone(log.spans())).expect("there are threads");
    let mut bytes = 0;
    for batch in 0..spans / BATCH {
        note(&log, batch * BATCH);
        bytes += posts.recv().expect("the collector runs");
    }
    let sent = (spans / BATCH * BATCH) as f64;
    let micros = spent("otlp-traces") as f64 / 1000.0;
    println!("{sent} spans, each: {:.2} us, {:.1} bytes sent", micros / sent, bytes as f64 / sent);
    telemetry.finish(Duration::from_secs(10));
}

/// Notes a batch of spans in one turn.
fn note(log: &Log, first: u64) {
    let mut lines = Default::default();
    let path = VirtualPath::parse(b"/pub/releases/2026/archive-17.tar.gz").expect("it is a path");
    let waited: Waited = [(Cause::Client, Duration::from_millis(3))].into_iter().collect();
    for number in first..first + BATCH {
        let peer = "192.0.2.17:49152".parse().expect("it is an address");
        let subject = Subject { session: number / 8, peer, user: Some(b"alice") };
        if number % 2 == 0 {
            let transfer = Transferred {
                direction: Direction::Download,
                path: &path,
                bytes: 1_048_576,
                elapsed: Duration::from_millis(12),
                first_byte: Some(Duration::from_micros(750)),
                lag: Duration::ZERO,
                waited,
                failure: None,
                hash: None,
                ascii: false,
                conversion: Conversion::default(),
                guest: None,
                log: None,
            };
            log.record(&mut lines, NOW, &subject, Event::Transferred(&transfer));
        } else {
            let trace = Some(RequestTrace { number, age: Duration::from_millis(2), caller: None });
            let request = Request {
                method: "GET",
                target: b"/pub/releases/2026/archive-17.tar.gz?part=3",
                protocol: "HTTP/1.1",
                host: Some(b"files.example.net"),
                status: 200,
                bytes: 1_048_576,
                referer: None,
                agent: Some(b"Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"),
                elapsed: Duration::from_millis(12),
                waited,
                trace,
            };
            log.request(&mut lines, NOW, &subject, &request);
        }
    }
    log.flush(&mut lines);
}

/// Takes posts. Returns where, and what tells of the bytes of each body.
fn collector() -> (String, Receiver<usize>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("there is a free port");
    let address = listener.local_addr().expect("it is bound").to_string();
    let (taken, posts) = channel();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let taken = taken.clone();
            thread::spawn(move || serve(stream, &taken));
        }
    });
    (address, posts)
}

fn serve(stream: TcpStream, taken: &Sender<usize>) -> Option<()> {
    let mut stream = BufReader::new(stream);
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            (stream.read_line(&mut head).ok()? > 0).then_some(())?;
        }
        let head = head.to_lowercase();
        let length: usize = head.split("content-length:").nth(1)?.lines().next()?.trim().parse().ok()?;
        stream.read_exact(&mut vec![0; length]).ok()?;
        stream.get_mut().write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}").ok()?;
        taken.send(length).ok()?;
    }
}

/// Returns the nanoseconds that a thread of this process has run.
fn spent(name: &str) -> u64 {
    let tasks = fs::read_dir("/proc/self/task").expect("there is /proc").flatten();
    let task = tasks
        .map(|task| task.path())
        .find(|path| fs::read_to_string(path.join("comm")).is_ok_and(|found| found.trim() == name));
    let times = fs::read_to_string(task.expect("the thread runs").join("schedstat")).expect("it has times");
    times.split(' ').next().and_then(|nanos| nanos.parse().ok()).expect("it is a number")
}
