//! Signatures of requests: AWS Signature Version 4, in headers, or in the query of a URL.

use std::fmt::Write as _;
use std::time::{SystemTime, UNIX_EPOCH};

use millrace_vfs::Civil;
use millrace_vfs::hex::Hex;
use ring::{digest, hmac};

/// Who asks. The secret is not shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// The access key.
    pub access_key: String,
    /// The secret key.
    pub secret_key: String,
    /// The token of temporary credentials.
    pub token: Option<String>,
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Credentials").field("access_key", &self.access_key).finish_non_exhaustive()
    }
}

/// Signs requests to a region.
#[derive(Debug, Clone)]
pub(crate) struct Signer {
    pub(crate) credentials: Credentials,
    pub(crate) region: String,
}

/// What of a request is signed.
#[derive(Debug)]
pub(crate) struct Signed<'a> {
    pub(crate) method: &'a str,
    pub(crate) host: &'a str,
    /// Encoded already.
    pub(crate) path: &'a str,
    pub(crate) query: &'a [(&'a str, String)],
    /// Names in lower case.
    pub(crate) headers: &'a [(&'static str, String)],
    pub(crate) body: &'a [u8],
    pub(crate) time: SystemTime,
}

impl Signer {
    /// Returns the headers that a request needs beside its own.
    pub(crate) fn headers(&self, request: &Signed<'_>) -> Vec<(&'static str, String)> {
        let (date, time) = stamps(request.time);
        let hash = sha256(request.body);
        let mut added = vec![("x-amz-content-sha256", hash.clone()), ("x-amz-date", time.clone())];
        if let Some(token) = &self.credentials.token {
            added.push(("x-amz-security-token", token.clone()));
        }
        let mut signed: Vec<_> = request.headers.iter().chain(&added).cloned().collect();
        signed.push(("host", request.host.to_owned()));
        signed.sort();
        let names: Vec<&str> = signed.iter().map(|(name, _)| *name).collect();
        let names = names.join(";");
        let mut query: Vec<_> = request.query.iter().map(|(key, value)| (*key, value.clone())).collect();
        query.sort();
        let mut canonical = format!("{}\n{}\n{}\n", request.method, request.path, query_text(&query));
        for (name, value) in &signed {
            writeln!(canonical, "{name}:{}", value.trim()).expect("text takes text");
        }
        write!(canonical, "\n{names}\n{hash}").expect("text takes text");
        let signature = self.signature(&date, &time, &canonical);
        let Credentials { access_key, .. } = &self.credentials;
        let scope = self.scope(&date);
        let authorization = format!(
            "AWS4-HMAC-SHA256 Credential={access_key}/{scope}, SignedHeaders={names}, Signature={signature}"
        );
        added.push(("authorization", authorization));
        added
    }

    /// Returns the query with which anyone may send this request for so many seconds.
    pub(crate) fn query(&self, request: &Signed<'_>, seconds: u64) -> String {
        let (date, time) = stamps(request.time);
        let mut query: Vec<_> = request.query.to_vec();
        query.extend([
            ("X-Amz-Algorithm", "AWS4-HMAC-SHA256".to_owned()),
            ("X-Amz-Credential", format!("{}/{}", self.credentials.access_key, self.scope(&date))),
            ("X-Amz-Date", time.clone()),
            ("X-Amz-Expires", seconds.to_string()),
            ("X-Amz-SignedHeaders", "host".to_owned()),
        ]);
        query.extend(self.credentials.token.clone().map(|token| ("X-Amz-Security-Token", token)));
        query.sort();
        let (method, path, host, text) = (request.method, request.path, request.host, query_text(&query));
        let canonical = format!("{method}\n{path}\n{text}\nhost:{host}\n\nhost\nUNSIGNED-PAYLOAD");
        format!("{text}&X-Amz-Signature={}", self.signature(&date, &time, &canonical))
    }

    fn scope(&self, date: &str) -> String {
        format!("{date}/{}/s3/aws4_request", self.region)
    }

    fn signature(&self, date: &str, time: &str, canonical: &str) -> String {
        let text =
            format!("AWS4-HMAC-SHA256\n{time}\n{}\n{}", self.scope(date), sha256(canonical.as_bytes()));
        let first = format!("AWS4{}", self.credentials.secret_key);
        let key = [date, &self.region, "s3", "aws4_request"]
            .into_iter()
            .fold(first.into_bytes(), |key, part| mac(&key, part.as_bytes()));
        Hex(&mac(&key, text.as_bytes())).to_string()
    }
}

fn mac(key: &[u8], text: &[u8]) -> Vec<u8> {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text).as_ref().to_vec()
}

fn sha256(bytes: &[u8]) -> String {
    Hex(digest::digest(&digest::SHA256, bytes).as_ref()).to_string()
}

/// The date, and the date and time, as signatures have them.
fn stamps(time: SystemTime) -> (String, String) {
    let seconds = time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let Civil { year, month, day, hour, minute, second } =
        Civil::from_seconds(i64::try_from(seconds).unwrap_or_default());
    let date = format!("{year:04}{month:02}{day:02}");
    let time = format!("{date}T{hour:02}{minute:02}{second:02}Z");
    (date, time)
}

/// A query, sorted already, as it is sent and signed.
pub(crate) fn query_text(query: &[(&str, String)]) -> String {
    let pairs: Vec<_> = query
        .iter()
        .map(|(key, value)| format!("{}={}", encoded(key, false), encoded(value, false)))
        .collect();
    pairs.join("&")
}

/// Percent-encodes all but what RFC 3986 calls unreserved, and slashes where they are kept.
pub(crate) fn encoded(text: &str, keeps_slashes: bool) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => encoded.push(byte.into()),
            b'/' if keeps_slashes => encoded.push('/'),
            _ => write!(encoded, "%{byte:02X}").expect("text takes text"),
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn signer() -> Signer {
        let credentials = Credentials {
            access_key: "AKIAIOSFODNN7EXAMPLE".to_owned(),
            secret_key: "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY".to_owned(),
            token: None,
        };
        Signer { credentials, region: "us-east-1".to_owned() }
    }

    fn request<'a>(path: &'a str, headers: &'a [(&'static str, String)]) -> Signed<'a> {
        Signed {
            method: "GET",
            host: "examplebucket.s3.amazonaws.com",
            path,
            query: &[],
            headers,
            body: b"",
            time: UNIX_EPOCH + Duration::from_secs(1_369_353_600),
        }
    }

    /// The example of "Signature Calculations for the Authorization Header" of the Amazon S3 API Reference.
    #[test]
    fn a_signature_is_that_of_the_example() {
        let range = [("range", "bytes=0-9".to_owned())];
        let headers = signer().headers(&request("/test.txt", &range));
        let authorization = &headers.iter().find(|(name, _)| *name == "authorization").unwrap().1;
        let expected = "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41";
        assert!(authorization.ends_with(&format!("Signature={expected}")), "{authorization}");
    }

    /// The example of "Authenticating Requests: Using Query Parameters" of the same reference.
    #[test]
    fn a_signed_query_is_that_of_the_example() {
        let query = signer().query(&request("/test.txt", &[]), 86_400);
        let expected = "X-Amz-Algorithm=AWS4-HMAC-SHA256\
            &X-Amz-Credential=AKIAIOSFODNN7EXAMPLE%2F20130524%2Fus-east-1%2Fs3%2Faws4_request\
            &X-Amz-Date=20130524T000000Z&X-Amz-Expires=86400&X-Amz-SignedHeaders=host\
            &X-Amz-Signature=aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404";
        assert_eq!(query, expected);
    }
}
