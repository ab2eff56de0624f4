//! The access log: one line a request, in the Combined format of NCSA and Apache, in the Extended format of the W3C, or as
//! JSON.
//!
//! `127.0.0.1 - alice [10/Oct/2000:13:55:36 +0000] "GET /a HTTP/1.1" 200 2326 "-" "curl/8.0"`. Text from clients is
//! escaped like Apache does, so that it can contain neither a line end nor a quote.
//!
//! `2000-10-10 13:55:36 127.0.0.1 alice GET /a - 200 2326 0.001 HTTP/1.1 files.example.com curl/8.0 -`. [`W3C_HEAD`] names the
//! fields. As by IIS, a blank in a field is `+`; what else could be mistaken is `%XX`.

use std::fmt::Write as _;
use std::io::Write as _;
use std::net::IpAddr;
use std::time::Duration;

use millrace_metrics::Waited;
use millrace_vfs::{Civil, Timestamp};

use super::Subject;
use super::within::RequestTrace;

/// An answered request.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// Empty where the request could not be understood; `target` is then the line that it begins with.
    pub method: &'a str,
    /// The requested target.
    pub target: &'a [u8],
    /// `HTTP/1.1`, or what else was spoken.
    pub protocol: &'static str,
    /// The host that was asked for.
    pub host: Option<&'a [u8]>,
    /// The status of the answer.
    pub status: u16,
    /// Bytes of the body that went out.
    pub bytes: u64,
    /// The field `Referer`.
    pub referer: Option<&'a [u8]>,
    /// The field `User-Agent`.
    pub agent: Option<&'a [u8]>,
    /// From the head of the request to the end of the answer.
    pub elapsed: Duration,
    /// What its body has waited for.
    pub waited: Waited,
    /// What traces tell of it besides, where there are any.
    pub trace: Option<RequestTrace>,
}

/// How lines of the access log are written, where they are not JSON.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum AccessFormat {
    /// That of NCSA and Apache.
    #[default]
    Combined,
    /// The Extended Log File Format.
    W3c,
    /// Records of one size in a ring, with transfers of FTP as well.
    Binary,
}

/// What stands at the top of a file in the Extended format.
pub(super) const W3C_HEAD: &str = "#Version: 1.0\n#Software: Millrace\n#Fields: date time c-ip cs-username cs-method \
     cs-uri-stem cs-uri-query sc-status sc-bytes time-taken cs-version cs-host cs(User-Agent) cs(Referer)\n";

impl AccessFormat {
    /// Returns what stands at the top of a file.
    pub(super) fn head(self) -> &'static str {
        match self {
            Self::Combined | Self::Binary => "",
            Self::W3c => W3C_HEAD,
        }
    }
}

const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// The second of the last line, written out: most lines of a busy server share it.
#[derive(Debug, Default)]
pub(super) struct Clock {
    second: Option<i64>,
    text: String,
}

impl Clock {
    fn text(&mut self, now: Timestamp) -> &str {
        if self.second != Some(now.seconds) {
            self.second = Some(now.seconds);
            self.text.clear();
            let civil = Civil::from_seconds(now.seconds);
            let month = MONTHS[usize::from(civil.month.clamp(1, 12)) - 1];
            let _ = write!(
                self.text,
                " [{:02}/{month}/{:04}:{:02}:{:02}:{:02} +0000] \"",
                civil.day, civil.year, civil.hour, civil.minute, civil.second
            );
        }
        &self.text
    }
}

/// Appends the line of a request in the Combined format.
pub(super) fn write_combined(
    clock: &mut Clock,
    now: Timestamp,
    subject: &Subject<'_>,
    request: &Request<'_>,
    out: &mut Vec<u8>,
) {
    write_address(subject.peer.ip(), out);
    out.extend_from_slice(b" - ");
    match subject.user {
        Some(user) => escape(user, true, out),
        None => out.push(b'-'),
    }
    out.extend_from_slice(clock.text(now).as_bytes());
    match request.method {
        "" if request.target.is_empty() => out.push(b'-'),
        "" => escape(request.target, false, out),
        method => {
            out.extend_from_slice(method.as_bytes());
            out.push(b' ');
            escape(request.target, false, out);
            out.push(b' ');
            out.extend_from_slice(request.protocol.as_bytes());
        }
    }
    out.extend_from_slice(b"\" ");
    out.extend_from_slice(itoa::Buffer::new().format(request.status).as_bytes());
    out.push(b' ');
    out.extend_from_slice(itoa::Buffer::new().format(request.bytes).as_bytes());
    for value in [request.referer, request.agent] {
        out.extend_from_slice(b" \"");
        match value {
            Some(value) => escape(value, false, out),
            None => out.push(b'-'),
        }
        out.push(b'"');
    }
    out.push(b'\n');
}

/// Appends the line of a request in the Extended format.
pub(super) fn write_w3c(now: Timestamp, subject: &Subject<'_>, request: &Request<'_>, out: &mut Vec<u8>) {
    let civil = Civil::from_seconds(now.seconds);
    let _ = write!(out, "{:04}-{:02}-{:02} ", civil.year, civil.month, civil.day);
    let _ = write!(out, "{:02}:{:02}:{:02} ", civil.hour, civil.minute, civil.second);
    write_address(subject.peer.ip(), out);
    let (stem, query) = match request.target.iter().position(|byte| *byte == b'?') {
        Some(at) => (&request.target[..at], Some(&request.target[at + 1..])),
        None => (request.target, None),
    };
    let method = Some(request.method.as_bytes());
    [subject.user, method, Some(stem), query].into_iter().for_each(|field| write_field(field, out));
    let _ = write!(out, " {} {} {:.3}", request.status, request.bytes, request.elapsed.as_secs_f64());
    let version = Some(request.protocol.as_bytes());
    let rest = [version, request.host, request.agent, request.referer];
    rest.into_iter().for_each(|field| write_field(field, out));
    out.push(b'\n');
}

/// Appends a blank and a field of the Extended format; `-` where there is none.
fn write_field(field: Option<&[u8]>, out: &mut Vec<u8>) {
    out.push(b' ');
    let field = field.unwrap_or_default();
    match field {
        b"" => out.push(b'-'),
        // Alone it would be no field.
        b"-" => out.extend_from_slice(b"%2D"),
        _ => {}
    }
    for &byte in field.iter().filter(|_| field != b"-") {
        match byte {
            b' ' => out.push(b'+'),
            b'+' | b'"' | 0x7f.. | 0..0x20 => _ = write!(out, "%{byte:02X}"),
            byte => out.push(byte),
        }
    }
}

fn write_address(address: IpAddr, out: &mut Vec<u8>) {
    let IpAddr::V4(address) = address else {
        let _ = write!(out, "{address}");
        return;
    };
    for (index, octet) in address.octets().into_iter().enumerate() {
        if index > 0 {
            out.push(b'.');
        }
        out.extend_from_slice(itoa::Buffer::new().format(octet).as_bytes());
    }
}

/// Writes bytes outside plain ASCII, quotes and backslashes as `\xHH`; in names, which are not quoted, spaces too.
fn escape(text: &[u8], name: bool, out: &mut Vec<u8>) {
    for &byte in text {
        match byte {
            b'"' | b'\\' | 0x7f.. | 0..0x20 => _ = write!(out, "\\x{byte:02x}"),
            b' ' if name => out.extend_from_slice(b"\\x20"),
            byte => out.push(byte),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_that_is_none_shows_its_line() {
        let subject = Subject { session: 1, peer: "127.0.0.1:9".parse().unwrap(), user: None };
        for (line, written) in [(&b"GET \x16\"/a b"[..], "\"GET \\x16\\x22/a b\""), (b"", "\"-\"")] {
            let request = Request {
                method: "",
                target: line,
                protocol: "HTTP/1.1",
                host: None,
                status: 400,
                bytes: 0,
                referer: None,
                agent: None,
                elapsed: Duration::ZERO,
                waited: Waited::default(),
                trace: None,
            };
            let (mut out, now) = (Vec::new(), Timestamp::default());
            write_combined(&mut Clock::default(), now, &subject, &request, &mut out);
            let text = String::from_utf8(out).unwrap();
            assert!(text.contains(&format!("{written} 400 0")), "{text}");
        }
    }

    #[test]
    fn a_line_of_the_extended_format_has_as_many_fields_as_its_head_names() {
        let subject = Subject { session: 1, peer: "[::1]:9".parse().unwrap(), user: Some(b"al ice") };
        let request = Request {
            method: "GET",
            target: b"/a\nb?c=d+e",
            protocol: "HTTP/2",
            host: Some(b"example.com"),
            status: 206,
            bytes: 2326,
            referer: None,
            agent: Some(b"-"),
            elapsed: Duration::from_micros(1500),
            waited: Waited::default(),
            trace: None,
        };
        let (mut out, now) = (Vec::new(), Timestamp { seconds: 971_186_136, nanoseconds: 0 });
        write_w3c(now, &subject, &request, &mut out);
        let line = String::from_utf8(out).unwrap();
        assert_eq!(
            line,
            "2000-10-10 13:55:36 ::1 al+ice GET /a%0Ab c=d%2Be 206 2326 0.002 HTTP/2 example.com %2D -\n"
        );
        let fields = W3C_HEAD.lines().last().unwrap().strip_prefix("#Fields: ").unwrap();
        assert_eq!(line.split(' ').count(), fields.split(' ').count());
    }

    #[test]
    fn a_line_is_as_apache_writes_it() {
        let subject = Subject { session: 1, peer: "127.0.0.1:9".parse().unwrap(), user: Some(b"al ice") };
        let request = Request {
            method: "GET",
            target: b"/a\"b\xff",
            protocol: "HTTP/1.0",
            host: None,
            status: 200,
            bytes: 2326,
            referer: None,
            agent: Some(b"x\ny"),
            elapsed: Duration::ZERO,
            waited: Waited::default(),
            trace: None,
        };
        let (mut out, mut clock) = (Vec::new(), Clock::default());
        write_combined(
            &mut clock,
            Timestamp { seconds: 971_186_136, nanoseconds: 0 },
            &subject,
            &request,
            &mut out,
        );
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "127.0.0.1 - al\\x20ice [10/Oct/2000:13:55:36 +0000] \"GET /a\\x22b\\xff HTTP/1.0\" 200 2326 \"-\" \
             \"x\\x0ay\"\n"
        );
    }
}
