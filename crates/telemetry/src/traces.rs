//! The message of spans (`ExportTraceServiceRequest`). Attributes have the names of OpenTelemetry's semantic conventions, where
//! they have one.

use std::time::Duration;

use millrace_log::{Direction, Operation, Span, Within};
use millrace_metrics::{Cause, LoginResult, METHODS};
use serde::{Serialize, Serializer};
use serde_json::Value;

use super::attributes::{Attributes, long, scope};
use super::ids::{Ids, Numbering};

/// `SPAN_KIND_INTERNAL`
const INTERNAL: u8 = 1;

/// `SPAN_KIND_SERVER`
const SERVER: u8 = 2;

/// `STATUS_CODE_ERROR`
const ERROR: u8 = 2;

/// Bytes of a span without its texts, as JSON: so much room is made at once.
const USUAL: usize = 1024;

/// Attributes of a span that waited for one cause.
const ATTRIBUTES: usize = 18;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ExportTraceServiceRequest<'a> {
    resource_spans: [ResourceSpans<'a>; 1],
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ResourceSpans<'a> {
    resource: &'a Value,
    scope_spans: [ScopeSpans<'a>; 1],
}

#[derive(Serialize)]
struct ScopeSpans<'a> {
    scope: Value,
    spans: Batch<'a>,
}

/// Spans, each of which is only made when it is written.
struct Batch<'a>(&'a Numbering, &'a [Span]);

impl Serialize for Batch<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(numbering, spans) = *self;
        serializer.collect_seq(spans.iter().map(|span| SpanMessage::of(span, numbering.ids(span))))
    }
}

/// A span as OTLP has it.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct SpanMessage<'a> {
    trace_id: Hex<16>,
    span_id: Hex<8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    parent_span_id: Option<Hex<8>>,
    name: &'a str,
    kind: u8,
    #[serde(serialize_with = "long")]
    start_time_unix_nano: u64,
    #[serde(serialize_with = "long")]
    end_time_unix_nano: u64,
    attributes: Attributes<'a>,
    status: Status<'a>,
}

#[derive(Default, Serialize)]
struct Status<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<&'a str>,
}

impl Status<'_> {
    fn of(is_error: bool) -> Self {
        Self { code: is_error.then_some(ERROR), message: None }
    }
}

/// Writes these spans.
pub(crate) fn message(resource: &Value, numbering: &Numbering, spans: &[Span]) -> Vec<u8> {
    let mut message = Vec::with_capacity(USUAL * (spans.len() + 1));
    let scope_spans = [ScopeSpans { scope: scope(), spans: Batch(numbering, spans) }];
    let request = ExportTraceServiceRequest { resource_spans: [ResourceSpans { resource, scope_spans }] };
    serde_json::to_writer(&mut message, &request).expect("a Vec takes all, and keys are texts");
    message
}

impl<'a> SpanMessage<'a> {
    fn of(span: &'a Span, ids: Ids) -> Self {
        let (name, kind, attributes, status) = told(span);
        Self {
            trace_id: Hex(ids.trace),
            span_id: Hex(ids.span),
            parent_span_id: ids.parent.map(Hex),
            name,
            kind,
            start_time_unix_nano: span.started.saturating_mul(1000),
            end_time_unix_nano: span.ended.saturating_mul(1000),
            attributes,
            status,
        }
    }
}

/// Returns what spans of one operation have and others have not: the name, the kind, attributes and the status.
fn told(span: &Span) -> (&str, u8, Attributes<'_>, Status<'_>) {
    match &span.operation {
        Operation::Session { reason } => {
            let attributes = common(span, "ftp").text("millrace.session.end", reason);
            ("FTP session", SERVER, attributes, Status::default())
        }
        Operation::Login { result, reason } => {
            let (name, protocol) = match span.within {
                Within::Session => ("FTP login", "ftp"),
                Within::Request(_) | Within::Nothing => ("HTTP login", "http"),
            };
            let attributes = common(span, protocol)
                .text("millrace.login.result", word(*result))
                .maybe("millrace.login.reason", reason.as_deref());
            (name, INTERNAL, attributes, Status::default())
        }
        Operation::Transfer { path, failure } => {
            let name = match span.transfer.map(|transfer| transfer.direction) {
                None => "FTP transfer",
                Some(Direction::Download) => "FTP download",
                Some(Direction::Upload) => "FTP upload",
                Some(Direction::Listing) => "FTP listing",
            };
            let attributes = common(span, "ftp").text("file.path", path);
            let status = Status { message: failure.as_deref(), ..Status::of(failure.is_some()) };
            (name, SERVER, attributes, status)
        }
        Operation::Request { method, .. } => {
            let (attributes, is_error) = of_request(span);
            let name = if is_known(method) { method.as_str() } else { "HTTP" };
            (name, SERVER, attributes, Status::of(is_error))
        }
    }
}

/// As the label `result` of metrics has it.
fn word(result: LoginResult) -> &'static str {
    match result {
        LoginResult::Success => "success",
        LoginResult::Failed => "failed",
        LoginResult::Refused => "refused",
    }
}

/// The attributes of every span.
fn common<'a>(span: &'a Span, protocol: &'a str) -> Attributes<'a> {
    let attributes = Attributes::with_capacity(ATTRIBUTES)
        .text("network.protocol.name", protocol)
        .text("session.id", span.session.to_string())
        .address("client.address", span.peer.ip().to_canonical())
        .number("client.port", span.peer.port().into())
        .maybe("user.name", span.user.as_deref());
    let waits = span.waited.spent();
    let attributes =
        waits.fold(attributes, |all, (cause, time)| all.double(waited(cause), time.as_secs_f64()));
    let Some(transfer) = &span.transfer else { return attributes };
    let result = if transfer.has_failed { "failed" } else { "complete" };
    let attributes = attributes
        .text("millrace.transfer.direction", transfer.direction.word())
        .text("millrace.transfer.result", result)
        .number("millrace.transfer.bytes", transfer.bytes);
    let first = transfer.first_byte.as_ref().map(Duration::as_secs_f64);
    first.into_iter().fold(attributes, |all, first| all.double("millrace.transfer.first_byte", first))
}

/// The attributes of a request, and whether it has failed here: what a client did wrong is no error of a server.
fn of_request(span: &Span) -> (Attributes<'_>, bool) {
    let attributes = common(span, "http");
    let Operation::Request { method, target, protocol, host, agent, status, bytes } = &span.operation else {
        return (attributes, false);
    };
    let attributes = match is_known(method) {
        true => attributes.text("http.request.method", method),
        false => {
            attributes.text("http.request.method", "_OTHER").text("http.request.method_original", method)
        }
    };
    let (path, query) = match target.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (&**target, None),
    };
    let is_error = *status >= 500;
    let error = is_error.then(|| status.to_string());
    let attributes = attributes
        .text("url.path", path)
        .maybe("url.query", query)
        .text("network.protocol.version", protocol.trim_start_matches("HTTP/"))
        .maybe("server.address", host.as_deref())
        .maybe("user_agent.original", agent.as_deref())
        .number("http.response.status_code", (*status).into())
        .number("http.response.body.size", *bytes)
        .maybe("error.type", error);
    (attributes, is_error || span.transfer.is_some_and(|transfer| transfer.has_failed))
}

/// Returns whether a method has a name that clients cannot make up.
fn is_known(method: &str) -> bool {
    METHODS[..METHODS.len() - 1].contains(&method)
}

/// Returns the attribute that says how long it has waited for something.
fn waited(cause: Cause) -> &'static str {
    match cause {
        Cause::Connection => "millrace.waited.connection",
        Cause::Handshake => "millrace.waited.handshake",
        Cause::Client => "millrace.waited.client",
        Cause::Network => "millrace.waited.network",
        Cause::Limit => "millrace.waited.limit",
        Cause::Storage => "millrace.waited.storage",
        Cause::Processor => "millrace.waited.processor",
        Cause::Hook => "millrace.waited.hook",
    }
}

/// The number of a trace or a span.
struct Hex<const BYTES: usize>([u8; BYTES]);

impl<const BYTES: usize> Serialize for Hex<BYTES> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut text = [[0; 2]; BYTES];
        for (pair, byte) in text.iter_mut().zip(self.0) {
            *pair = [DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]];
        }
        serializer.serialize_str(str::from_utf8(text.as_flattened()).expect("digits are ASCII"))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use millrace_http::traceparent::TraceParent;
    use millrace_log::{Direction, Measured, RequestTrace};
    use millrace_metrics::Waited;
    use serde_json::json;

    use super::*;

    fn span(operation: Operation, transfer: Option<Measured>) -> Span {
        Span {
            operation,
            within: Within::Session,
            session: 7,
            peer: "[::ffff:192.0.2.1]:1025".parse().unwrap(),
            user: Some("ann".to_owned()),
            started: 1_000_000_000_000_001,
            ended: 1_000_000_000_000_002,
            waited: [(Cause::Client, Duration::from_millis(1500))].into_iter().collect(),
            transfer,
        }
    }

    fn moved(direction: Direction, has_failed: bool) -> Option<Measured> {
        let first_byte = Some(Duration::from_millis(500));
        let (elapsed, waited) = (Duration::from_secs(2), Waited::default());
        Some(Measured { direction, bytes: 42, elapsed, first_byte, waited, has_failed })
    }

    fn request(method: &str, status: u16, transfer: Option<Measured>) -> Span {
        let operation = Operation::Request {
            method: method.to_owned(),
            target: "/a b?c=d".to_owned(),
            protocol: "HTTP/1.1",
            host: Some("files.example.net".to_owned()),
            agent: None,
            status,
            bytes: 3,
        };
        Span { within: numbered(u64::from(status), None), ..span(operation, transfer) }
    }

    fn numbered(number: u64, caller: Option<TraceParent>) -> Within {
        Within::Request(RequestTrace { number, age: Duration::ZERO, caller })
    }

    fn login(within: Within, result: LoginResult) -> Span {
        let reason = (result == LoginResult::Refused).then(|| "banned".to_owned());
        Span { within, ..span(Operation::Login { result, reason }, None) }
    }

    fn written(spans: &[Span]) -> Vec<Value> {
        let message: Value = serde_json::from_slice(&message(&json!({}), &Numbering::new(), spans)).unwrap();
        message["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().unwrap().clone()
    }

    fn attributes(span: &Value) -> BTreeMap<String, Value> {
        let all = span["attributes"].as_array().unwrap().iter();
        let value = |one: &Value| one["value"].as_object().unwrap().values().next().unwrap().clone();
        all.map(|one| (one["key"].as_str().unwrap().to_owned(), value(one))).collect()
    }

    #[test]
    fn a_transfer_says_what_it_moved_and_waited_for() {
        let (path, failure) = ("/a".to_owned(), Some("the client has gone".to_owned()));
        let failed = span(Operation::Transfer { path, failure }, moved(Direction::Upload, true));
        let span = &written(&[failed])[0];
        assert_eq!(span["name"], "FTP upload");
        assert_eq!(span["status"], json!({ "code": 2, "message": "the client has gone" }));
        assert_eq!(span["startTimeUnixNano"], "1000000000000001000");
        assert_eq!(span["endTimeUnixNano"], "1000000000000002000");
        let told = attributes(span);
        for (key, value) in [
            ("file.path", json!("/a")),
            ("session.id", json!("7")),
            ("client.address", json!("192.0.2.1")),
            ("client.port", json!("1025")),
            ("user.name", json!("ann")),
            ("millrace.waited.client", json!(1.5)),
            ("millrace.transfer.bytes", json!("42")),
            ("millrace.transfer.result", json!("failed")),
            ("millrace.transfer.first_byte", json!(0.5)),
        ] {
            assert_eq!(told.get(key), Some(&value), "{key}");
        }
    }

    #[test]
    fn a_request_fails_by_a_status_of_the_server_or_a_transfer_that_was_cut() {
        let spans = written(&[
            request("GET", 200, moved(Direction::Download, false)),
            request("GET", 404, None),
            request("GET", 503, None),
            request("GET", 200, moved(Direction::Download, true)),
        ]);
        let codes: Vec<_> = spans.iter().map(|span| span["status"]["code"].as_u64().unwrap_or(0)).collect();
        assert_eq!(codes, [0, 0, 2, 2]);
        let told = attributes(&spans[0]);
        assert_eq!((&told["url.path"], &told["url.query"]), (&"/a b".into(), &"c=d".into()));
        assert_eq!(told["network.protocol.version"], "1.1");
        assert_eq!(told["http.response.status_code"], "200");
        assert!(!told.contains_key("error.type") && !told.contains_key("user_agent.original"));
        assert_eq!(attributes(&spans[2])["error.type"], "503");
        assert!(!attributes(&spans[1]).contains_key("millrace.transfer.bytes"));
    }

    #[test]
    fn clients_make_up_no_names_and_no_two_spans_have_one_number() {
        let spans =
            written(&[request("BREW", 501, None), request("", 400, None), request("PROPFIND", 207, None)]);
        let names: Vec<_> = spans.iter().map(|span| span["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["HTTP", "HTTP", "PROPFIND"]);
        assert_eq!(attributes(&spans[0])["http.request.method"], "_OTHER");
        assert_eq!(attributes(&spans[0])["http.request.method_original"], "BREW");
        let ids = |key: &str| -> BTreeSet<String> {
            spans.iter().map(|span| span[key].as_str().unwrap().to_owned()).collect()
        };
        let (traces, spans) = (ids("traceId"), ids("spanId"));
        assert!(traces.len() == 3 && traces.iter().all(|id| id.len() == 32), "{traces:?}");
        assert!(spans.len() == 3 && spans.iter().all(|id| id.len() == 16), "{spans:?}");
    }

    #[test]
    fn logins_and_transfers_are_parts_of_their_session() {
        let transfer = || Operation::Transfer { path: "/a".to_owned(), failure: None };
        let mut spans = vec![
            login(Within::Session, LoginResult::Failed),
            span(transfer(), moved(Direction::Download, false)),
            span(Operation::Session { reason: "closed".to_owned() }, None),
        ];
        spans.push(Span { session: 8, ..spans[1].clone() });
        let written = written(&spans);
        let root = &written[2];
        assert_eq!(
            (&root["name"], &root["kind"], &root["parentSpanId"]),
            (&"FTP session".into(), &2.into(), &Value::Null)
        );
        assert_eq!(attributes(root)["millrace.session.end"], "closed");
        for part in &written[..2] {
            assert_eq!(
                (&part["traceId"], &part["parentSpanId"]),
                (&root["traceId"], &root["spanId"]),
                "{part}"
            );
            assert_ne!(part["spanId"], root["spanId"]);
        }
        assert_ne!(written[0]["spanId"], written[1]["spanId"]);
        assert_ne!(written[3]["traceId"], root["traceId"], "another session");
        assert_ne!(written[3]["parentSpanId"], root["spanId"]);
        assert_eq!((&written[0]["name"], &written[0]["kind"]), (&"FTP login".into(), &1.into()));
        assert_eq!(attributes(&written[0])["millrace.login.result"], "failed");
    }

    #[test]
    fn a_login_by_http_is_a_part_of_its_request_and_that_of_its_caller() {
        let caller = TraceParent { trace: [0xab; 16], span: [0xcd; 8], is_sampled: true };
        let of = |within| [login(within, LoginResult::Refused), Span { within, ..request("GET", 200, None) }];
        let spans = written(&[of(numbered(1, None)), of(numbered(2, Some(caller)))].concat());
        for pair in spans.chunks(2) {
            let (login, request) = (&pair[0], &pair[1]);
            assert_eq!(
                (&login["traceId"], &login["parentSpanId"]),
                (&request["traceId"], &request["spanId"])
            );
            assert_eq!((&login["name"], &login["status"]), (&"HTTP login".into(), &json!({})));
            assert_eq!(attributes(login)["millrace.login.reason"], "banned");
        }
        assert_eq!(
            (&spans[1]["parentSpanId"], &spans[3]["parentSpanId"]),
            (&Value::Null, &"cd".repeat(8).into())
        );
        assert_eq!(spans[3]["traceId"], "ab".repeat(16));
        assert_ne!(spans[1]["spanId"], spans[3]["spanId"]);
        let alone = &written(&[login(Within::Nothing, LoginResult::Success)])[0];
        assert_eq!((&alone["name"], &alone["parentSpanId"]), (&"HTTP login".into(), &Value::Null));
    }
}
