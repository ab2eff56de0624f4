//! Posts to a collector by HTTP, and what it answers (OTLP, "OTLP/HTTP Response").
//!
//! The invariant: the time and the size of an answer are limited, and redirects are not followed.

use std::io::Write;
use std::time::{Duration, SystemTime};

use flate2::write::GzEncoder;
use millrace_hooks::Webhook;
use millrace_http::date;
use serde_json::Value;
use ureq::http::Response;
use ureq::tls::{PemItem, RootCerts, TlsConfig, parse_pem};
use ureq::{Agent, Body, Proxy};

use super::attributes::INSTANCE;
use super::settings::{Compression, Settings, SetupError};

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long a connection is kept that nothing is sent on: longer than metrics wait by default, not as long as firewalls forget.
const IDLE: Duration = Duration::from_secs(60);

/// Bytes of an answer.
const LONGEST: u64 = 64 * 1024;

/// Characters of its message that are repeated.
const SHOWN: usize = 200;

/// Spans are so alike that the fastest level leaves a fifteenth of them; level 6 leaves a twenty-fifth, and takes twice as long
/// (bench-runs/metrics).
const LEVEL: flate2::Compression = flate2::Compression::fast();

/// What is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Signal {
    /// Readings and counts.
    Metrics,
    /// Spans.
    Traces,
}

impl Signal {
    /// Returns the word for it in the address and in messages.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Metrics => "metrics",
            Self::Traces => "traces",
        }
    }

    /// Returns the field of an answer that says how many things were refused.
    fn rejected(self) -> &'static str {
        match self {
            Self::Metrics => "rejectedDataPoints",
            Self::Traces => "rejectedSpans",
        }
    }
}

/// What became of a post.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Answer {
    /// All of it was taken.
    Taken,
    /// So many things were not, and why.
    Partly(u64, String),
    /// It may be taken later: why it was not, and after how long the collector wants to see it again.
    Later(String, Option<Duration>),
    /// It will not be taken.
    Refused(String),
}

/// A collector that was configured.
#[derive(Debug, Clone)]
pub struct Collector {
    pub(crate) settings: Settings,
    agent: Agent,
}

impl Collector {
    /// Checks the settings; nothing is sent yet.
    pub fn new(settings: Settings) -> Result<Self, SetupError> {
        Webhook::check(&settings.endpoint)?;
        if settings.endpoint.contains(['?', '#']) {
            return Err(SetupError::Query);
        }
        let of_pem = |item| match item {
            Ok(PemItem::Certificate(certificate)) => Some(certificate),
            _ => None,
        };
        let roots = settings.roots.as_deref();
        let trusted = match roots.map(|pem| parse_pem(pem).filter_map(of_pem).collect::<Vec<_>>()) {
            None => RootCerts::WebPki,
            Some(none) if none.is_empty() => return Err(SetupError::NoCertificate),
            Some(certificates) => RootCerts::new_with_certs(&certificates),
        };
        let tls = TlsConfig::builder().root_certs(trusted).build();
        // What goes in clear goes to a collector nearby, and by no proxy.
        let is_encrypted = settings.endpoint.starts_with("https:");
        let config = Agent::config_builder()
            .timeout_global(Some(PATIENCE))
            .max_idle_age(IDLE)
            .max_redirects(0)
            .http_status_as_error(false)
            .user_agent(concat!("millrace/", env!("CARGO_PKG_VERSION")))
            .proxy(if is_encrypted { Proxy::try_from_env() } else { None })
            .tls_config(tls);
        Ok(Self { agent: config.build().into(), settings })
    }

    /// Returns whether the metrics of each process have an identity of their own, as none is configured.
    pub fn tells_processes_apart(&self) -> bool {
        self.settings.attributes.iter().all(|(key, _)| key != INSTANCE)
    }

    /// Returns where a signal is posted to.
    pub(crate) fn url(&self, signal: Signal) -> String {
        format!("{}/v1/{}", self.settings.endpoint.trim_end_matches('/'), signal.word())
    }

    fn compression(&self, signal: Signal) -> Compression {
        match signal {
            Signal::Metrics => self.settings.metrics_compression,
            Signal::Traces => self.settings.traces_compression,
        }
    }

    /// Makes the body of a post from a message.
    pub(crate) fn body(&self, signal: Signal, message: Vec<u8>) -> Vec<u8> {
        match self.compression(signal) {
            Compression::None => message,
            Compression::Gzip => {
                let mut encoder = GzEncoder::new(Vec::new(), LEVEL);
                let written = encoder.write_all(&message).and_then(|()| encoder.finish());
                written.expect("a Vec takes all")
            }
        }
    }

    /// Posts such a body. Waits for the collector.
    pub(crate) fn post(&self, signal: Signal, body: &[u8]) -> Answer {
        let request = self.agent.post(self.url(signal)).header("content-type", "application/json");
        let request = match self.compression(signal) {
            Compression::None => request,
            Compression::Gzip => request.header("content-encoding", "gzip"),
        };
        let fields = self.settings.headers.fields();
        let request = fields.fold(request, |request, (name, value)| request.header(name, value));
        match request.send(body) {
            Ok(response) => understand(signal, response),
            Err(error) => Answer::Later(error.to_string(), None),
        }
    }
}

fn understand(signal: Signal, mut response: Response<Body>) -> Answer {
    let status = response.status().as_u16();
    let after = response
        .headers()
        .get("retry-after")
        .and_then(|value| retry_after(value.as_bytes(), SystemTime::now()));
    // Read to its end also where it means nothing: the connection can then be used again.
    let body = response.body_mut().with_config().limit(LONGEST).read_to_vec().unwrap_or_default();
    let answer: Value = serde_json::from_slice(&body).unwrap_or_default();
    let told = |message: &Value| {
        let message: String = message.as_str().unwrap_or_default().chars().take(SHOWN).collect();
        if message.is_empty() { message } else { format!(": {message}") }
    };
    match status {
        200..300 => {
            let partial = &answer["partialSuccess"];
            let rejected = &partial[signal.rejected()];
            // A number of 64 bits is a text in JSON, but for those who write it otherwise.
            let rejected = rejected.as_str().map_or(rejected.as_u64(), |text| text.parse().ok()).unwrap_or(0);
            match rejected {
                0 => Answer::Taken,
                some => Answer::Partly(some, format!("it rejects {some}{}", told(&partial["errorMessage"]))),
            }
        }
        408 | 429 | 502..=504 => {
            Answer::Later(format!("it answers {status}{}", told(&answer["message"])), after)
        }
        _ => Answer::Refused(format!("it answers {status}{}", told(&answer["message"]))),
    }
}

/// Returns how long to wait by a field `Retry-After`: seconds, or a date.
fn retry_after(value: &[u8], now: SystemTime) -> Option<Duration> {
    let now = now.duration_since(SystemTime::UNIX_EPOCH).ok()?;
    match str::from_utf8(value).ok()?.trim().parse() {
        Ok(seconds) => Some(Duration::from_secs(seconds)),
        Err(_) => {
            let at = u64::try_from(date::parse(value)?).ok()?;
            Some(Duration::from_secs(at).saturating_sub(now))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use flate2::read::GzDecoder;
    use millrace_hooks::Credentials;

    use super::*;

    fn settings(endpoint: &str) -> Settings {
        Settings {
            endpoint: endpoint.to_owned(),
            headers: Credentials::default().header("Authorization", "Bearer secret").unwrap(),
            attributes: Vec::new(),
            metrics_compression: Compression::None,
            traces_compression: Compression::Gzip,
            interval: Duration::from_secs(15),
            one_in: 1,
            roots: None,
        }
    }

    fn answer(status: u16, body: &str) -> Answer {
        let body = Body::builder().data(body.to_owned());
        let response = Response::builder().status(status).header("Retry-After", "7");
        understand(Signal::Traces, response.body(body).unwrap())
    }

    #[test]
    fn signals_go_to_addresses_beneath_the_endpoint() {
        for endpoint in ["http://127.0.0.1:4318", "http://127.0.0.1:4318/"] {
            let collector = Collector::new(settings(endpoint)).unwrap();
            assert_eq!(collector.url(Signal::Metrics), "http://127.0.0.1:4318/v1/metrics");
            assert!(!format!("{collector:?}").contains("secret"));
        }
        let beneath = Collector::new(settings("https://otel.example.net/otlp")).unwrap();
        assert_eq!(beneath.url(Signal::Traces), "https://otel.example.net/otlp/v1/traces");
    }

    #[test]
    fn each_signal_is_compressed_as_its_setting_says() {
        let collector = Collector::new(settings("http://127.0.0.1:4318")).unwrap();
        let message = b"{\"resourceSpans\":[]}".repeat(100);
        assert_eq!(collector.body(Signal::Metrics, message.clone()), message);
        let body = collector.body(Signal::Traces, message.clone());
        assert!(body.len() < message.len() / 10, "{}", body.len());
        let mut unpacked = Vec::new();
        GzDecoder::new(&*body).read_to_end(&mut unpacked).unwrap();
        assert_eq!(unpacked, message);
    }

    #[test]
    fn settings_that_cannot_be_right_are_refused() {
        for (endpoint, why) in [
            ("127.0.0.1:4318", "is no address of a receiver"),
            ("grpc://127.0.0.1:4317", "is no address of a receiver"),
            ("http://u:secret@127.0.0.1:4318", "write an Authorization"),
            ("http://127.0.0.1:4318?a=b", "has a query"),
        ] {
            let error = Collector::new(settings(endpoint)).unwrap_err().to_string();
            assert!(error.contains(why) && !error.contains("secret"), "{endpoint}: {error}");
        }
        let roots = Some(b"no certificate".to_vec());
        let error = Collector::new(Settings { roots, ..settings("https://a") }).unwrap_err();
        assert!(matches!(error, SetupError::NoCertificate));
    }

    #[test]
    fn an_answer_says_whether_to_try_again() {
        let seven = Some(Duration::from_secs(7));
        for (status, body, expected) in [
            (200, "{}", Answer::Taken),
            (200, "", Answer::Taken),
            (200, "{\"partialSuccess\":{}}", Answer::Taken),
            (200, "{\"partialSuccess\":{\"rejectedSpans\":\"0\"}}", Answer::Taken),
            (
                200,
                "{\"partialSuccess\":{\"rejectedSpans\":\"2\",\"errorMessage\":\"old\"}}",
                Answer::Partly(2, "it rejects 2: old".to_owned()),
            ),
            (202, "{\"partialSuccess\":{\"rejectedSpans\":3}}", Answer::Partly(3, "it rejects 3".to_owned())),
            (400, "{\"message\":\"bad\"}", Answer::Refused("it answers 400: bad".to_owned())),
            (302, "moved", Answer::Refused("it answers 302".to_owned())),
            (500, "[1", Answer::Refused("it answers 500".to_owned())),
            (429, "{}", Answer::Later("it answers 429".to_owned(), seven)),
            (503, "\"text\"", Answer::Later("it answers 503".to_owned(), seven)),
        ] {
            assert_eq!(answer(status, body), expected, "{status} {body}");
        }
    }

    #[test]
    fn when_to_come_again_is_seconds_or_a_date() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_770);
        for (value, seconds) in [
            ("120", Some(120)),
            ("Sun, 06 Nov 1994 08:49:37 GMT", Some(7)),
            ("Sat, 06 Nov 1993 08:49:37 GMT", Some(0)),
            ("-1", None),
            ("soon", None),
            ("99999999999999999999", None),
        ] {
            assert_eq!(retry_after(value.as_bytes(), now), seconds.map(Duration::from_secs), "{value}");
        }
    }
}
