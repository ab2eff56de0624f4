//! A collector of OpenTelemetry: it takes posts by HTTP, and looks at each letter of them.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use flate2::read::GzDecoder;
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::Value;

/// A message, and what it came with.
#[derive(Debug, Clone)]
pub(crate) struct Post {
    pub(crate) path: String,
    /// The fields of its head, in small letters.
    pub(crate) head: String,
    pub(crate) body: Value,
}

/// What a collector answers to posts at a path, a response with its head; or nothing, for ever.
pub(crate) type Answers = fn(&str) -> Option<&'static str>;

/// What the head of a compressed post has.
pub(crate) const GZIP: &str = "\ncontent-encoding: gzip\r";

pub(crate) const TAKEN: &str =
    "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 21\r\n\r\n{\"partialSuccess\":{}}";

#[derive(Clone)]
pub(crate) struct Collector {
    pub(crate) address: String,
    posts: Arc<Mutex<Vec<Post>>>,
    /// Connections that came, whatever became of them.
    connections: Arc<AtomicUsize>,
}

impl Collector {
    /// Takes posts at a listener, until the test ends.
    pub(crate) fn start(listener: TcpListener, answers: Answers) -> Self {
        Self::start_with(&listener, move |collector, stream| collector.serve(stream, answers))
    }

    /// The same by TLS.
    pub(crate) fn start_tls(listener: TcpListener, tls: Arc<ServerConfig>, answers: Answers) -> Self {
        Self::start_with(&listener, move |collector, stream| {
            let connection = ServerConnection::new(Arc::clone(&tls)).unwrap();
            collector.serve(StreamOwned::new(connection, stream), answers);
        })
    }

    fn start_with(listener: &TcpListener, serve: impl Fn(&Self, TcpStream) + Clone + Send + 'static) -> Self {
        let (posts, connections) = Default::default();
        let address = listener.local_addr().unwrap().to_string();
        let collector = Self { address, posts, connections };
        let (taking, listener) = (collector.clone(), listener.try_clone().unwrap());
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                taking.connections.fetch_add(1, Ordering::Relaxed);
                let (taking, serve) = (taking.clone(), serve.clone());
                thread::spawn(move || serve(&taking, stream));
            }
        });
        collector
    }

    /// Returns how many connections came.
    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    /// Returns the spans of this name that have come.
    pub(crate) fn named(&self, name: &str) -> Vec<Value> {
        self.spans().into_iter().filter(|span| span["name"] == name).collect()
    }

    /// Returns the posts to a path so far.
    pub(crate) fn posts(&self, path: &str) -> Vec<Post> {
        self.posts.lock().unwrap().iter().filter(|post| post.path == path).cloned().collect()
    }

    /// Returns all spans that have come.
    pub(crate) fn spans(&self) -> Vec<Value> {
        let of =
            |post: Post| post.body["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().unwrap().clone();
        self.posts("/v1/traces").into_iter().flat_map(of).collect()
    }

    fn serve(&self, stream: impl Read + Write, answers: Answers) {
        let mut stream = BufReader::new(stream);
        while let Some((path, head, body)) = read_post(&mut stream) {
            let body = serde_json::from_slice(&body).unwrap();
            self.posts.lock().unwrap().push(Post { path: path.clone(), head, body });
            match answers(&path) {
                Some(answer) => {
                    let stream = stream.get_mut();
                    let _ = stream.write_all(answer.as_bytes()).and_then(|()| stream.flush());
                }
                None => thread::park(),
            }
        }
    }
}

fn read_post(stream: &mut impl BufRead) -> Option<(String, String, Vec<u8>)> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        (stream.read_line(&mut head).ok()? > 0).then_some(())?;
    }
    let head = head.to_lowercase();
    let length = head.split("\ncontent-length:").nth(1)?.lines().next()?.trim().parse().ok()?;
    let mut body = vec![0; length];
    stream.read_exact(&mut body).ok()?;
    if head.contains(GZIP) {
        let packed = std::mem::take(&mut body);
        GzDecoder::new(&*packed).read_to_end(&mut body).unwrap();
    }
    Some((head.strip_prefix("post ")?.split(' ').next()?.to_owned(), head, body))
}

/// What a field of a message holds, as JSON has it.
#[derive(Clone, Copy)]
enum Kind {
    Text,
    /// This many bytes, as hexadecimal digits.
    Bytes(usize),
    /// A number of 64 bits, as a text.
    Long,
    Double,
    Bool,
    /// One of the numbers of an enum.
    Enum(&'static [u64]),
    Message(&'static str),
    Messages(&'static str),
    Longs,
    Doubles,
}

use Kind::{Bool, Bytes, Double, Doubles, Enum, Long, Longs, Message, Messages, Text};

/// The fields of each message of `opentelemetry/proto` that this server writes.
const MESSAGES: &[(&str, &[(&str, Kind)])] = &[
    ("ExportMetricsServiceRequest", &[("resourceMetrics", Messages("ResourceMetrics"))]),
    ("ResourceMetrics", &[("resource", Message("Resource")), ("scopeMetrics", Messages("ScopeMetrics"))]),
    ("ScopeMetrics", &[("scope", Message("Scope")), ("metrics", Messages("Metric"))]),
    ("ExportTraceServiceRequest", &[("resourceSpans", Messages("ResourceSpans"))]),
    ("ResourceSpans", &[("resource", Message("Resource")), ("scopeSpans", Messages("ScopeSpans"))]),
    ("ScopeSpans", &[("scope", Message("Scope")), ("spans", Messages("Span"))]),
    ("Resource", &[("attributes", Messages("KeyValue"))]),
    ("Scope", &[("name", Text), ("version", Text)]),
    ("KeyValue", &[("key", Text), ("value", Message("AnyValue"))]),
    ("AnyValue", &[("stringValue", Text), ("intValue", Long), ("doubleValue", Double)]),
    (
        "Metric",
        &[
            ("name", Text),
            ("description", Text),
            ("unit", Text),
            ("gauge", Message("Gauge")),
            ("sum", Message("Sum")),
            ("histogram", Message("Histogram")),
        ],
    ),
    ("Gauge", &[("dataPoints", Messages("NumberDataPoint"))]),
    (
        "Sum",
        &[
            ("dataPoints", Messages("NumberDataPoint")),
            ("aggregationTemporality", Enum(&[2])),
            ("isMonotonic", Bool),
        ],
    ),
    ("Histogram", &[("dataPoints", Messages("HistogramDataPoint")), ("aggregationTemporality", Enum(&[2]))]),
    (
        "NumberDataPoint",
        &[
            ("attributes", Messages("KeyValue")),
            ("startTimeUnixNano", Long),
            ("timeUnixNano", Long),
            ("asInt", Long),
            ("asDouble", Double),
        ],
    ),
    (
        "HistogramDataPoint",
        &[
            ("attributes", Messages("KeyValue")),
            ("startTimeUnixNano", Long),
            ("timeUnixNano", Long),
            ("count", Long),
            ("sum", Double),
            ("bucketCounts", Longs),
            ("explicitBounds", Doubles),
        ],
    ),
    (
        "Span",
        &[
            ("traceId", Bytes(16)),
            ("spanId", Bytes(8)),
            ("parentSpanId", Bytes(8)),
            ("name", Text),
            ("kind", Enum(&[1, 2])),
            ("startTimeUnixNano", Long),
            ("endTimeUnixNano", Long),
            ("attributes", Messages("KeyValue")),
            ("status", Message("Status")),
        ],
    ),
    ("Status", &[("code", Enum(&[2])), ("message", Text)]),
];

/// Checks that a value is a message of this type: that it has no fields but those, and that each is written as OTLP says.
#[track_caller]
pub(crate) fn check(message: &str, value: &Value) {
    let (_, fields) = MESSAGES.iter().find(|(name, _)| *name == message).unwrap();
    for (key, value) in value.as_object().unwrap_or_else(|| panic!("{message} is {value}")) {
        let kind =
            fields.iter().find(|(name, _)| name == key).unwrap_or_else(|| panic!("{message} has {key}")).1;
        assert!(is_of(kind, value), "{message}.{key} is {value}");
    }
}

fn is_of(kind: Kind, value: &Value) -> bool {
    let is_long = |value: &Value| value.as_str().is_some_and(|text| text.parse::<u64>().is_ok());
    match kind {
        Text => value.is_string(),
        Bytes(count) => value.as_str().is_some_and(|text| {
            let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
            text.len() == 2 * count && text.bytes().all(is_digit) && text.bytes().any(|byte| byte != b'0')
        }),
        Long => is_long(value),
        Double => value.is_number(),
        Bool => value.is_boolean(),
        Enum(numbers) => value.as_u64().is_some_and(|number| numbers.contains(&number)),
        Message(of) => {
            check(of, value);
            true
        }
        Messages(of) => value.as_array().is_some_and(|all| all.iter().all(|one| is_of(Message(of), one))),
        Longs => value.as_array().is_some_and(|all| all.iter().all(is_long)),
        Doubles => value.as_array().is_some_and(|all| all.iter().all(Value::is_number)),
    }
}
