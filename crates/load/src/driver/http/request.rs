//! The request that users repeat, prepared for the version of HTTP.

use millrace_http::h1::client::PreparedRequest;
use millrace_http::h2::hpack::FieldEncoder;
use millrace_http::{Version, base64};

use crate::plan::{HttpVersion, Settings};
use crate::target::Target;

/// The bytes of one request.
#[derive(Debug)]
pub(crate) enum Request {
    /// The head.
    Http1(PreparedRequest),
    /// Its HPACK block, which does not depend on earlier ones.
    Http2(Vec<u8>),
}

const AGENT: &str = concat!("millrace-bench/", env!("CARGO_PKG_VERSION"));

impl Request {
    /// A `GET` of a path, or of `--raw-target`.
    pub(super) fn new(target: &Target, settings: &Settings, path: &str) -> Self {
        let path = settings.raw_target.as_deref().unwrap_or(path);
        let (host, login) = (authority(target), authorization(target));
        let login = login.as_deref();
        let version = match settings.http {
            HttpVersion::Http10 => Version::Http10,
            HttpVersion::Http11 => Version::Http11,
            HttpVersion::Http2 => return Self::Http2(block(target, path, &host, login)),
        };
        let mut fields = vec![("User-Agent", AGENT)];
        match (version, settings.keep_alive) {
            (Version::Http10, true) => fields.push(("Connection", "Keep-Alive")),
            (Version::Http11, false) => fields.push(("Connection", "close")),
            _ => {}
        }
        fields.push(("Host", &host));
        fields.extend(login.map(|login| ("Authorization", login)));
        fields.push(("Accept", "*/*"));
        Self::Http1(PreparedRequest::new("GET", path, version, &fields))
    }
}

/// The fields of HTTP/2 (RFC 9113 section 8.3.1).
fn block(target: &Target, path: &str, host: &str, login: Option<&str>) -> Vec<u8> {
    let mut block = Vec::new();
    let mut fields = FieldEncoder::new(&mut block);
    let scheme: &[u8] = if target.scheme.is_secure() { b"https" } else { b"http" };
    fields.field(":method", b"GET").field(":scheme", scheme).field(":path", path.as_bytes());
    fields.field(":authority", host.as_bytes()).field("user-agent", AGENT.as_bytes());
    if let Some(login) = login {
        fields.field("authorization", login.as_bytes());
    }
    fields.field("accept", b"*/*");
    block
}

/// The host and port of the target, as a request names them.
fn authority(target: &Target) -> String {
    match target.host.contains(':') {
        true => format!("[{}]:{}", target.host, target.port),
        false => format!("{}:{}", target.host, target.port),
    }
}

/// The value of `Authorization`, if the target has an account.
fn authorization(target: &Target) -> Option<String> {
    let login = format!("{}:{}", target.user, target.password);
    (target.user != "anonymous").then(|| format!("Basic {}", base64::encode(login.as_bytes())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(target: &Target, settings: &Settings, path: &str) -> String {
        match Request::new(target, settings, path) {
            Request::Http1(request) => String::from_utf8(request.bytes().to_vec()).unwrap(),
            Request::Http2(block) => format!("{block:x?}"),
        }
    }

    #[test]
    fn a_request_says_what_was_asked_for() {
        let target = Target::parse("http://localhost:8080/").unwrap();
        let zb = Settings { http: HttpVersion::Http10, keep_alive: true, ..Settings::default() };
        let request = text(&target, &zb, "/index.html");
        assert!(request.starts_with("GET /index.html HTTP/1.0\r\n"), "{request}");
        assert!(
            request.contains("\r\nConnection: Keep-Alive\r\n") && request.ends_with("\r\n\r\n"),
            "{request}"
        );
        let raw = Settings {
            raw_target: Some("x?/index.html".to_owned()),
            keep_alive: false,
            ..Settings::default()
        };
        let request = text(&target, &raw, "/");
        assert!(request.starts_with("GET x?/index.html HTTP/1.1\r\n"), "{request}");
        assert!(request.contains("Connection: close"), "{request}");
        let http2 = Settings { http: HttpVersion::Http2, ..Settings::default() };
        assert!(text(&target, &http2, "/").starts_with("[82, 86, 84, 1,"));
    }
}
