//! Requests to a provider: JSON by HTTPS.
//!
//! The invariant: the time and the size of an answer are limited, redirects are not followed, and nothing goes in clear to another
//! computer: a proxy that the environment names is asked for HTTPS alone, which it passes on by `CONNECT`.

use std::time::Duration;

use millrace_http::base64;
use millrace_http::target::encode;
use serde::de::DeserializeOwned;
use ureq::http::{Response, Uri};
use ureq::tls::{PemItem, RootCerts, TlsConfig, parse_pem};
use ureq::{Agent, Body, Proxy, RequestBuilder};

use super::error::{LoginError, SetupError};

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// Bytes of an answer.
const LONGEST: u64 = 256 * 1024;

/// What asks a provider.
#[derive(Debug)]
pub(super) struct Client(Agent);

impl Client {
    /// Trusts these roots, in PEM; without them, those that browsers trust. HTTPS goes by the proxy of the environment.
    pub(super) fn new(roots: Option<&[u8]>) -> Result<Self, SetupError> {
        Self::with_proxy(roots, Proxy::try_from_env())
    }

    fn with_proxy(roots: Option<&[u8]>, proxy: Option<Proxy>) -> Result<Self, SetupError> {
        let of_pem = |item| match item {
            Ok(PemItem::Certificate(certificate)) => Some(certificate),
            _ => None,
        };
        let trusted = match roots.map(|pem| parse_pem(pem).filter_map(of_pem).collect::<Vec<_>>()) {
            None => RootCerts::WebPki,
            Some(none) if none.is_empty() => return Err(SetupError::NoCertificate),
            Some(certificates) => RootCerts::new_with_certs(&certificates),
        };
        let tls = TlsConfig::builder().root_certs(trusted).build();
        let config = Agent::config_builder().timeout_global(Some(PATIENCE)).max_redirects(0).proxy(proxy);
        let config = config.http_status_as_error(false).user_agent("millrace").tls_config(tls);
        Ok(Self(config.build().into()))
    }

    /// Reads a document, which an access token may be needed for.
    pub(super) fn get<T: DeserializeOwned>(&self, url: &str, token: Option<&str>) -> Result<T, LoginError> {
        let request = direct(url, self.0.get(url)).header("accept", "application/json");
        let authorization = token.map(|token| format!("Bearer {token}"));
        let request =
            authorization.iter().fold(request, |request, value| request.header("authorization", value));
        let (status, body) = read(url, request.call())?;
        match status {
            200 => parse(url, &body),
            status => Err(unreachable(url, ureq::Error::StatusCode(status))),
        }
    }

    /// Posts a form, as the user of a password if there is one. Returns the answer, which may be a refusal (RFC 6749, section 5.2).
    pub(super) fn post<T: DeserializeOwned>(
        &self,
        url: &str,
        form: &[(&str, &str)],
        basic: Option<(&str, &str)>,
    ) -> Result<T, LoginError> {
        let request = direct(url, self.0.post(url)).header("accept", "application/json");
        let basic = basic.map(|(user, password)| {
            let pair = format!("{}:{}", encoded(user), encoded(password));
            format!("Basic {}", base64::encode(pair.as_bytes()))
        });
        let request = basic.iter().fold(request, |request, value| request.header("authorization", value));
        match read(url, request.send_form(form.iter().copied()))? {
            (200 | 400 | 401, body) => parse(url, &body),
            (status, _) => Err(unreachable(url, ureq::Error::StatusCode(status))),
        }
    }
}

/// Has a request to this computer go by no proxy, to which it would go in clear.
fn direct<B>(url: &str, request: RequestBuilder<B>) -> RequestBuilder<B> {
    let is_encrypted = url.parse::<Uri>().is_ok_and(|url| url.scheme_str() == Some("https"));
    if is_encrypted { request } else { request.config().proxy(None).build() }
}

fn read(url: &str, answer: Result<Response<Body>, ureq::Error>) -> Result<(u16, Vec<u8>), LoginError> {
    let mut answer = answer.map_err(|error| unreachable(url, error))?;
    let body = answer.body_mut().with_config().limit(LONGEST).read_to_vec();
    Ok((answer.status().as_u16(), body.map_err(|error| unreachable(url, error))?))
}

fn parse<T: DeserializeOwned>(url: &str, body: &[u8]) -> Result<T, LoginError> {
    serde_json::from_slice(body).map_err(|source| LoginError::Malformed { url: url.to_owned(), source })
}

fn unreachable(url: &str, error: ureq::Error) -> LoginError {
    LoginError::Unreachable { url: url.to_owned(), source: Box::new(error) }
}

/// Refuses addresses that are neither HTTPS nor of this computer.
pub(super) fn check(url: &str) -> Result<(), SetupError> {
    let parsed = url.parse::<Uri>().ok();
    let is_safe = parsed.as_ref().is_some_and(|parsed| match (parsed.scheme_str(), parsed.host()) {
        (Some("https"), Some(host)) => !host.is_empty(),
        (Some("http"), Some(host)) => matches!(host, "localhost" | "127.0.0.1" | "[::1]"),
        _ => false,
    });
    if is_safe { Ok(()) } else { Err(SetupError::Url(url.to_owned())) }
}

/// Returns a URL with these parameters added to its query.
pub(super) fn with_query(url: &str, parameters: &[(&str, &str)]) -> String {
    let pairs = parameters.iter().map(|(name, value)| format!("{name}={}", encoded(value)));
    let separator = if url.contains('?') { '&' } else { '?' };
    format!("{url}{separator}{}", pairs.collect::<Vec<_>>().join("&"))
}

/// Encodes a value of a query or a form.
fn encoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    encode(text.as_bytes(), &mut bytes);
    bytes.into_iter().map(char::from).collect()
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::net::{SocketAddr, TcpListener};
    use std::thread::{self, JoinHandle};

    use serde_json::Value;

    use super::*;

    /// Answers one request with a document. Returns the request's first line.
    fn answer_once() -> (SocketAddr, JoinHandle<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let answer = move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut lines = BufReader::new(stream.try_clone().unwrap()).lines().map(Result::unwrap);
            let first = lines.next().unwrap();
            let _ = lines.find(String::is_empty);
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}").unwrap();
            first
        };
        (address, thread::spawn(answer))
    }

    #[test]
    fn a_proxy_is_asked_for_https_alone() {
        let ((proxy, of_proxy), (provider, of_provider)) = (answer_once(), answer_once());
        let proxy = Proxy::new(&format!("http://{proxy}")).unwrap();
        let client = Client::with_proxy(None, Some(proxy)).unwrap();
        client.get::<Value>(&format!("http://{provider}/keys"), None).unwrap();
        assert_eq!(of_provider.join().unwrap(), "GET /keys HTTP/1.1");
        // The proxy has answered, but speaks no TLS.
        assert!(client.get::<Value>("https://id.example.net/keys", None).is_err());
        assert_eq!(of_proxy.join().unwrap(), "CONNECT id.example.net:443 HTTP/1.1");
    }

    #[test]
    fn addresses_are_encrypted_or_of_this_computer() {
        for good in ["https://id.example.net/a", "http://127.0.0.1:1/", "http://[::1]:1", "http://localhost"]
        {
            assert!(check(good).is_ok(), "{good}");
        }
        for wrong in
            ["http://id.example.net", "javascript:alert(1)", "https://", "", "http://localhost.example.net"]
        {
            assert!(check(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn parameters_are_encoded() {
        let url = with_query("https://a/b?c=d", &[("scope", "openid profile"), ("x", "é&=+")]);
        assert_eq!(url, "https://a/b?c=d&scope=openid%20profile&x=%C3%A9%26%3D%2B");
    }
}
