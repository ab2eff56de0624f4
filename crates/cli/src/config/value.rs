//! The kinds of values that settings have, and how each is written.
//!
//! A flag is always text; a key of the file may also be a number or `true` and `false`, where that is how
//! one would write it.

use std::fmt::Debug;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use millrace_notices::MailEncryption;
use millrace_server::Permissions;
use millrace_server::config::{AccessFormat, Challenge, ForwardingField, Resumption};
use millrace_server::limits::period;
use millrace_server::web::HttpsRedirect;
use millrace_telemetry::Compression;
use millrace_vfs::hash::Algorithm;
use serde_json::{Value as Json, json};

use super::error::{Outside, ValueError};
use super::setting::Range;

/// A value that a person writes.
pub(crate) trait Value: Sized + Clone + Debug + Send + Sync + 'static {
    /// The expected form, to follow the word "expected".
    const EXPECTED: &'static str;

    /// The words that there are for it, where it is one of a few.
    const CHOICES: &'static [(&'static str, Self)] = &[];

    /// Reads it; the error says what was expected instead.
    fn from_text(text: &str) -> Result<Self, ValueError> {
        let found = Self::CHOICES.iter().find(|(name, _)| *name == text);
        found.map(|(_, value)| value.clone()).ok_or_else(|| {
            let names: Vec<&str> = Self::CHOICES.iter().map(|(name, _)| *name).collect();
            ValueError::Choice { text: text.to_owned(), choices: names.join(" or ") }
        })
    }

    /// Reads it from a number without quotes.
    fn from_integer(_: i64) -> Option<Result<Self, ValueError>> {
        None
    }

    /// Reads it from `true` or `false` without quotes.
    fn from_bool(_: bool) -> Option<Self> {
        None
    }

    /// Returns the number that a range is about.
    fn magnitude(&self) -> Option<u64> {
        None
    }

    /// Says what was expected of a number outside of this range.
    fn outside(range: Range) -> Outside {
        let Range { least, most, unit } = range;
        match (least, most) {
            (least, u64::MAX) => Outside::Least { least, unit },
            (0, most) => Outside::Most { most, unit },
            _ => Outside::Both(range),
        }
    }

    /// Returns the JSON Schema of such a value.
    fn schema(range: Range) -> Json {
        let text = match Self::CHOICES {
            [] => json!({ "type": "string" }),
            choices => json!({ "enum": choices.iter().map(|(name, _)| *name).collect::<Vec<_>>() }),
        };
        let mut forms = vec![text];
        if matches!(Self::from_integer(1), Some(Ok(_))) {
            let mut number = json!({ "type": "integer", "minimum": range.least });
            if range.most < u64::MAX {
                number["maximum"] = range.most.into();
            }
            forms.push(number);
        }
        let switches: Vec<bool> =
            [true, false].into_iter().filter(|value| Self::from_bool(*value).is_some()).collect();
        if !switches.is_empty() {
            forms.push(json!({ "enum": switches }));
        }
        if forms.len() == 1 { forms.remove(0) } else { json!({ "anyOf": forms }) }
    }
}

impl Value for String {
    const EXPECTED: &'static str = "a text in quotes";

    fn from_text(text: &str) -> Result<Self, ValueError> {
        Ok(text.to_owned())
    }
}

impl Value for PathBuf {
    const EXPECTED: &'static str = "a path in quotes";

    fn from_text(text: &str) -> Result<Self, ValueError> {
        match text {
            "" => Err(ValueError::EmptyPath),
            _ => Ok(text.into()),
        }
    }
}

/// A line of text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Line(String);

impl Value for Line {
    const EXPECTED: &'static str = "a text in quotes";

    fn from_text(text: &str) -> Result<Self, ValueError> {
        match text.contains(char::is_control) {
            true => Err(ValueError::ControlCharacter),
            false => Ok(Self(text.to_owned())),
        }
    }
}

impl From<Line> for String {
    fn from(line: Line) -> Self {
        line.0
    }
}

/// `on` or `off`; `true` or `false` in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Switch(pub(crate) bool);

impl From<Switch> for bool {
    fn from(switch: Switch) -> Self {
        switch.0
    }
}

impl Value for Switch {
    const EXPECTED: &'static str = "`true` or `false`";

    const CHOICES: &'static [(&'static str, Self)] = &[("on", Self(true)), ("off", Self(false))];

    fn from_bool(value: bool) -> Option<Self> {
        Some(Self(value))
    }
}

/// Whether requests in clear are sent on to HTTPS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Redirect(pub(crate) HttpsRedirect);

impl Value for Redirect {
    const EXPECTED: &'static str = "`true`, `false`, or the port of HTTPS as clients know it";

    fn from_text(text: &str) -> Result<Self, ValueError> {
        let port = text.parse().ok().filter(|port: &u16| *port > 0);
        match (text, port) {
            ("on", _) => Ok(Self(HttpsRedirect::ToOwn)),
            ("off", _) => Ok(Self(HttpsRedirect::Off)),
            (_, Some(port)) => Ok(Self(HttpsRedirect::To(port))),
            _ => Err(ValueError::Form {
                text: text.to_owned(),
                expected: "a port; expected `true`, `false`, or the port of HTTPS as clients know it",
            }),
        }
    }

    fn from_integer(number: i64) -> Option<Result<Self, ValueError>> {
        Some(Self::from_text(&number.to_string()))
    }

    fn from_bool(value: bool) -> Option<Self> {
        Some(Self(if value { HttpsRedirect::ToOwn } else { HttpsRedirect::Off }))
    }
}

/// What an account may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Access {
    ReadOnly,
    ReadWrite,
}

impl Access {
    pub(crate) fn permissions(self) -> Permissions {
        match self {
            Self::ReadOnly => Permissions::READ_ONLY,
            Self::ReadWrite => Permissions::READ_WRITE,
        }
    }
}

impl Value for Access {
    const EXPECTED: &'static str = "\"ro\" or \"rw\"";

    const CHOICES: &'static [(&'static str, Self)] = &[("ro", Self::ReadOnly), ("rw", Self::ReadWrite)];
}

/// What the anonymous user may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Anonymous(pub(crate) Option<Access>);

impl Value for Anonymous {
    const EXPECTED: &'static str = "\"ro\", \"rw\" or \"off\"";

    const CHOICES: &'static [(&'static str, Self)] =
        &[("ro", Self(Some(Access::ReadOnly))), ("rw", Self(Some(Access::ReadWrite))), ("off", Self(None))];

    fn from_bool(value: bool) -> Option<Self> {
        (!value).then_some(Self(None))
    }
}

/// How uploads reach their names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Uploads(pub(crate) millrace_storage::Uploads);

impl Value for Uploads {
    const EXPECTED: &'static str = "\"staged\" or \"in-place\"";

    const CHOICES: &'static [(&'static str, Self)] = &[
        ("staged", Self(millrace_storage::Uploads::Staged)),
        ("in-place", Self(millrace_storage::Uploads::InPlace)),
    ];
}

/// What an acknowledged change survives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Durability(pub(crate) millrace_storage::Durability);

impl Value for Durability {
    const EXPECTED: &'static str = "\"none\", \"whole\" or \"full\"";

    const CHOICES: &'static [(&'static str, Self)] = &[
        ("none", Self(millrace_storage::Durability::None)),
        ("whole", Self(millrace_storage::Durability::Whole)),
        ("full", Self(millrace_storage::Durability::Full)),
    ];
}

/// What uploads are hashed by on their way; `None`: by nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct UploadHash(pub(crate) Option<Algorithm>);

impl Value for UploadHash {
    const EXPECTED: &'static str =
        "\"none\", \"crc32\", \"crc32c\", \"md5\", \"sha1\", \"sha256\", \"sha512\" or \"blake3\"";

    const CHOICES: &'static [(&'static str, Self)] = &[
        ("none", Self(None)),
        ("crc32", Self(Some(Algorithm::Crc32))),
        ("crc32c", Self(Some(Algorithm::Crc32c))),
        ("md5", Self(Some(Algorithm::Md5))),
        ("sha1", Self(Some(Algorithm::Sha1))),
        ("sha256", Self(Some(Algorithm::Sha256))),
        ("sha512", Self(Some(Algorithm::Sha512))),
        ("blake3", Self(Some(Algorithm::Blake3))),
    ];
}

/// What follows where a hook's program or receiver does not work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OnFailure {
    Refuse,
    Pass,
}

impl Value for OnFailure {
    const EXPECTED: &'static str = "\"refuse\" or \"pass\"";

    const CHOICES: &'static [(&'static str, Self)] = &[("refuse", Self::Refuse), ("pass", Self::Pass)];
}

/// What has to be encrypted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TlsRequired {
    Off,
    Login,
    Data,
}

impl Value for TlsRequired {
    const EXPECTED: &'static str = "\"off\", \"login\" or \"data\"";

    const CHOICES: &'static [(&'static str, Self)] =
        &[("off", Self::Off), ("login", Self::Login), ("data", Self::Data)];
}

/// Whether a server is confined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sandbox {
    /// As far as the kernel can.
    On,
    Off,
    /// In full, or it is not started.
    Required,
}

impl Value for Sandbox {
    const EXPECTED: &'static str = "\"on\", \"off\" or \"required\"";

    const CHOICES: &'static [(&'static str, Self)] =
        &[("on", Self::On), ("off", Self::Off), ("required", Self::Required)];

    fn from_bool(value: bool) -> Option<Self> {
        Some(if value { Self::On } else { Self::Off })
    }
}

impl Value for Resumption {
    const EXPECTED: &'static str = "\"require\", \"prefer\" or \"off\"";

    const CHOICES: &'static [(&'static str, Self)] =
        &[("require", Self::Require), ("prefer", Self::Prefer), ("off", Self::Off)];
}

impl Value for ForwardingField {
    const EXPECTED: &'static str = "\"x-forwarded-for\" or \"forwarded\"";

    const CHOICES: &'static [(&'static str, Self)] =
        &[("x-forwarded-for", Self::XForwardedFor), ("forwarded", Self::Forwarded)];
}

impl Value for Challenge {
    const EXPECTED: &'static str = "\"http-01\" or \"tls-alpn-01\"";

    const CHOICES: &'static [(&'static str, Self)] =
        &[("http-01", Self::Http), ("tls-alpn-01", Self::TlsAlpn)];
}

impl Value for MailEncryption {
    const EXPECTED: &'static str = "\"starttls\", \"tls\" or \"off\"";

    const CHOICES: &'static [(&'static str, Self)] =
        &[("starttls", Self::StartTls), ("tls", Self::Tls), ("off", Self::Off)];
}

impl Value for AccessFormat {
    const EXPECTED: &'static str = "\"combined\", \"w3c\" or \"binary\"";

    const CHOICES: &'static [(&'static str, Self)] =
        &[("combined", Self::Combined), ("w3c", Self::W3c), ("binary", Self::Binary)];
}

impl Value for Compression {
    const EXPECTED: &'static str = "\"none\" or \"gzip\"";

    const CHOICES: &'static [(&'static str, Self)] = &[("none", Self::None), ("gzip", Self::Gzip)];
}

/// How events are written to standard error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LogFormat {
    Text,
    Json,
    /// As JSON, and not to standard error but to systemd's journal.
    Journal,
}

impl Value for LogFormat {
    const EXPECTED: &'static str = "\"text\", \"json\" or \"journal\"";

    const CHOICES: &'static [(&'static str, Self)] =
        &[("text", Self::Text), ("json", Self::Json), ("journal", Self::Journal)];
}

/// Where a service is open.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Listen {
    #[default]
    Off,
    On(SocketAddr),
}

impl Value for Listen {
    const EXPECTED: &'static str = "an address with a port, such as \"127.0.0.1:2121\", or \"off\"";

    fn from_text(text: &str) -> Result<Self, ValueError> {
        match text {
            "off" => Ok(Self::Off),
            _ => text.parse().or_else(|_| resolved(text)).map(Self::On),
        }
    }

    fn from_integer(port: i64) -> Option<Result<Self, ValueError>> {
        Some(Err(ValueError::PortAlone(port)))
    }
}

/// The address of a name with a port, as the system resolves it: the first of IPv4, if there is one.
fn resolved(text: &str) -> Result<SocketAddr, ValueError> {
    let form = || ValueError::Form {
        text: text.to_owned(),
        expected: "an address with a port; write 127.0.0.1:2121 for this computer only, 0.0.0.0:2121 or \
                   [::]:2121 for the network, or off",
    };
    let (name, port) = text.rsplit_once(':').ok_or_else(form)?;
    // The system would take numbers for addresses of a form that is seldom meant.
    if !name.starts_with(|char: char| char.is_ascii_alphabetic()) || name.contains([':', '/']) {
        return Err(form());
    }
    let port: u16 = port.parse().map_err(|_| form())?;
    let unresolved = |error| ValueError::Unresolved { name: name.to_owned(), error };
    let addresses: Vec<SocketAddr> = (name, port).to_socket_addrs().map_err(unresolved)?.collect();
    let of_ipv4 = addresses.iter().find(|address| address.is_ipv4());
    of_ipv4.or(addresses.first()).copied().ok_or_else(form)
}

/// A range of ports, of which one is enough.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ports(pub(crate) RangeInclusive<u16>);

impl Value for Ports {
    const EXPECTED: &'static str = "a range of ports, such as \"50000-50999\"";

    fn from_text(text: &str) -> Result<Self, ValueError> {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let port = |text: &str| text.trim().parse::<u16>();
        let (Ok(first), Ok(last)) = (port(first), port(last)) else {
            return Err(ValueError::Form {
                text: text.to_owned(),
                expected: "a range of ports; write two numbers up to 65535, such as 50000-50999",
            });
        };
        match (first, last) {
            (0, _) | (_, 0) => Err(ValueError::PortZero),
            _ if first > last => Err(ValueError::Reversed { first, last }),
            _ => Ok(Self(first..=last)),
        }
    }

    fn from_integer(port: i64) -> Option<Result<Self, ValueError>> {
        Some(Self::from_text(&port.to_string()))
    }
}

impl Value for Ipv4Addr {
    const EXPECTED: &'static str = "an IPv4 address, such as \"203.0.113.7\"";

    fn from_text(text: &str) -> Result<Self, ValueError> {
        match text.parse() {
            Ok(IpAddr::V4(address)) if is_reachable(address) => Ok(address),
            Ok(IpAddr::V4(address)) => Err(ValueError::Unreachable(address)),
            Ok(IpAddr::V6(_)) => Err(ValueError::OverIpv6(text.to_owned())),
            Err(_) => Err(ValueError::Form {
                text: text.to_owned(),
                expected: "an IPv4 address, such as 203.0.113.7",
            }),
        }
    }
}

fn is_reachable(address: Ipv4Addr) -> bool {
    !address.is_unspecified() && !address.is_multicast() && !address.is_broadcast()
}

/// A number of things.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Count(pub(crate) usize);

impl Value for Count {
    const EXPECTED: &'static str = "a number, such as 100 or \"10k\"";

    fn from_text(text: &str) -> Result<Self, ValueError> {
        number(text).and_then(|number| usize::try_from(number).ok()).map(Self).ok_or_else(|| {
            ValueError::Form {
                text: text.to_owned(),
                expected: "a number; write one such as 100, 10k or 64Ki",
            }
        })
    }

    fn from_integer(number: i64) -> Option<Result<Self, ValueError>> {
        let count = usize::try_from(number).map(Self);
        Some(count.map_err(|_| ValueError::Negative { number, expected: "a number such as 100" }))
    }

    fn magnitude(&self) -> Option<u64> {
        Some(self.0 as u64)
    }
}

impl From<Count> for usize {
    fn from(count: Count) -> Self {
        count.0
    }
}

impl From<Count> for u64 {
    fn from(count: Count) -> Self {
        count.0 as Self
    }
}

impl From<Count> for u32 {
    fn from(count: Count) -> Self {
        Self::try_from(count.0).unwrap_or(Self::MAX)
    }
}

impl From<Count> for u8 {
    fn from(count: Count) -> Self {
        Self::try_from(count.0).unwrap_or(Self::MAX)
    }
}

/// A whole number with an optional unit: `10k` and `10kB` are 10,000, `64Ki` and `64KiB` are 65,536.
fn number(text: &str) -> Option<u64> {
    let (digits, unit) = split_unit(text);
    let unit = unit.strip_suffix('B').unwrap_or(unit);
    let factor = match unit {
        "" => 1,
        "k" | "K" => 1000,
        "M" => 1_000_000,
        "G" => 1_000_000_000,
        "Ki" => 1 << 10,
        "Mi" => 1 << 20,
        "Gi" => 1 << 30,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(factor)
}

/// A length of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Period(pub(crate) Duration);

impl Period {
    /// A year: longer than any sensible time, and sums of times stay representable.
    const MAX: Duration = Duration::from_secs(366 * 24 * 3600);
}

impl Value for Period {
    const EXPECTED: &'static str = "a length of time, such as \"30s\" or \"5m\"";

    fn from_text(text: &str) -> Result<Self, ValueError> {
        match period::parse(text) {
            Some(period) if period <= Self::MAX => Ok(Self(period)),
            Some(_) => Err(ValueError::Long(text.to_owned())),
            None => Err(ValueError::Form {
                text: text.to_owned(),
                expected: "a length of time; write a number with ms, s, m, h or d, such as 30s or 5m",
            }),
        }
    }

    fn from_integer(seconds: i64) -> Option<Result<Self, ValueError>> {
        Some(match u64::try_from(seconds) {
            Ok(seconds) => Self::from_text(&seconds.to_string()),
            Err(_) => {
                Err(ValueError::Negative { number: seconds, expected: "a number of seconds, or \"5m\"" })
            }
        })
    }

    fn magnitude(&self) -> Option<u64> {
        Some(self.0.as_millis() as u64)
    }

    fn outside(_: Range) -> Outside {
        Outside::NoTime
    }
}

impl From<Period> for Duration {
    fn from(period: Period) -> Self {
        period.0
    }
}

fn split_unit(text: &str) -> (&str, &str) {
    let end = text.find(|char: char| !char.is_ascii_digit()).unwrap_or(text.len());
    let (digits, unit) = text.split_at(end);
    (digits, unit.trim_start())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_take_units() {
        let table = [
            ("0", Some(0)),
            ("10k", Some(10_000)),
            ("10K", Some(10_000)),
            ("10kB", Some(10_000)),
            ("64Ki", Some(65_536)),
            ("64MiB", Some(67_108_864)),
            ("2 G", Some(2_000_000_000)),
            ("", None),
            ("k", None),
            ("-1", None),
            ("1.5k", None),
            ("10x", None),
            ("99999999999999999999", None),
            ("99999999999G", None),
        ];
        for (text, expected) in table {
            assert_eq!(number(text), expected, "{text:?}");
        }
    }
}
