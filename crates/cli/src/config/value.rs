//! The kinds of values that settings have, and how each is written.
//!
//! A flag is always text; a key of the file may also be a number or `true` and `false`, where that is how
//! one would write it.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use millrace_server::Permissions;
use millrace_server::config::{Challenge, Resumption};
use millrace_server::web::HttpsRedirect;

/// A value that a person writes.
pub(crate) trait Value: Sized + Clone + Send + Sync + 'static {
    /// What is expected, to follow the word "expected".
    const EXPECTED: &'static str;

    /// Reads it; the error says what was expected instead.
    fn from_text(text: &str) -> Result<Self, String>;

    /// Reads it from a number without quotes.
    fn from_integer(_: i64) -> Option<Result<Self, String>> {
        None
    }

    /// Reads it from `true` or `false` without quotes.
    fn from_bool(_: bool) -> Option<Self> {
        None
    }
}

impl Value for String {
    const EXPECTED: &'static str = "a text in quotes";

    fn from_text(text: &str) -> Result<Self, String> {
        Ok(text.to_owned())
    }
}

impl Value for PathBuf {
    const EXPECTED: &'static str = "a path in quotes";

    fn from_text(text: &str) -> Result<Self, String> {
        match text {
            "" => Err("a path cannot be empty; write . for the current folder".to_owned()),
            _ => Ok(text.into()),
        }
    }
}

/// `on` or `off`; `true` or `false` in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Switch(pub(crate) bool);

impl Value for Switch {
    const EXPECTED: &'static str = "`true` or `false`";

    fn from_text(text: &str) -> Result<Self, String> {
        choose(text, &[("on", Self(true)), ("off", Self(false))])
    }

    fn from_bool(value: bool) -> Option<Self> {
        Some(Self(value))
    }
}

/// Whether requests in clear are sent on to HTTPS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Redirect(pub(crate) HttpsRedirect);

impl Value for Redirect {
    const EXPECTED: &'static str = "`true`, `false`, or the port of HTTPS as clients know it";

    fn from_text(text: &str) -> Result<Self, String> {
        let port = text.parse().ok().filter(|port: &u16| *port > 0);
        match (text, port) {
            ("on", _) => Ok(Self(HttpsRedirect::ToOwn)),
            ("off", _) => Ok(Self(HttpsRedirect::Off)),
            (_, Some(port)) => Ok(Self(HttpsRedirect::To(port))),
            _ => Err(format!("{text:?} is no port; expected {}", Self::EXPECTED)),
        }
    }

    fn from_integer(number: i64) -> Option<Result<Self, String>> {
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

    fn from_text(text: &str) -> Result<Self, String> {
        choose(text, &[("ro", Self::ReadOnly), ("rw", Self::ReadWrite)])
    }
}

/// What the anonymous user may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Anonymous(pub(crate) Option<Access>);

impl Value for Anonymous {
    const EXPECTED: &'static str = "\"ro\", \"rw\" or \"off\"";

    fn from_text(text: &str) -> Result<Self, String> {
        let (read_only, read_write) = (Some(Access::ReadOnly), Some(Access::ReadWrite));
        choose(text, &[("ro", Self(read_only)), ("rw", Self(read_write)), ("off", Self(None))])
    }

    fn from_bool(value: bool) -> Option<Self> {
        (!value).then_some(Self(None))
    }
}

/// How uploads reach their names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Uploads(pub(crate) millrace_storage::Uploads);

impl Value for Uploads {
    const EXPECTED: &'static str = "\"staged\" or \"in-place\"";

    fn from_text(text: &str) -> Result<Self, String> {
        use millrace_storage::Uploads::{InPlace, Staged};
        choose(text, &[("staged", Self(Staged)), ("in-place", Self(InPlace))])
    }
}

/// What an acknowledged change survives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Durability(pub(crate) millrace_storage::Durability);

impl Value for Durability {
    const EXPECTED: &'static str = "\"none\", \"whole\" or \"full\"";

    fn from_text(text: &str) -> Result<Self, String> {
        use millrace_storage::Durability::{Full, None, Whole};
        choose(text, &[("none", Self(None)), ("whole", Self(Whole)), ("full", Self(Full))])
    }
}

/// What follows where a hook's program or receiver does not work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OnFailure {
    Refuse,
    Pass,
}

impl Value for OnFailure {
    const EXPECTED: &'static str = "\"refuse\" or \"pass\"";

    fn from_text(text: &str) -> Result<Self, String> {
        choose(text, &[("refuse", Self::Refuse), ("pass", Self::Pass)])
    }
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

    fn from_text(text: &str) -> Result<Self, String> {
        choose(text, &[("off", Self::Off), ("login", Self::Login), ("data", Self::Data)])
    }
}

impl Value for Resumption {
    const EXPECTED: &'static str = "\"require\", \"prefer\" or \"off\"";

    fn from_text(text: &str) -> Result<Self, String> {
        text.parse().map_err(|error: millrace_server::config::ResumptionError| error.to_string())
    }
}

impl Value for Challenge {
    const EXPECTED: &'static str = "\"http-01\" or \"tls-alpn-01\"";

    fn from_text(text: &str) -> Result<Self, String> {
        text.parse().map_err(|error: millrace_server::config::ChallengeError| error.to_string())
    }
}

/// How events are written to standard error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LogFormat {
    Text,
    Json,
}

impl Value for LogFormat {
    const EXPECTED: &'static str = "\"text\" or \"json\"";

    fn from_text(text: &str) -> Result<Self, String> {
        choose(text, &[("text", Self::Text), ("json", Self::Json)])
    }
}

/// Where a service is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Listen {
    Off,
    On(SocketAddr),
}

impl Value for Listen {
    const EXPECTED: &'static str = "an address with a port, such as \"127.0.0.1:2121\", or \"off\"";

    fn from_text(text: &str) -> Result<Self, String> {
        match text {
            "off" => Ok(Self::Off),
            _ => text.parse().map(Self::On).map_err(|_| {
                format!(
                    "{text:?} is not an address with a port; write 127.0.0.1:2121 for this computer only, \
                     0.0.0.0:2121 or [::]:2121 for the network, or off"
                )
            }),
        }
    }
}

/// A range of ports, of which one is enough.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ports(pub(crate) RangeInclusive<u16>);

impl Value for Ports {
    const EXPECTED: &'static str = "a range of ports, such as \"50000-50999\"";

    fn from_text(text: &str) -> Result<Self, String> {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let port = |text: &str| text.trim().parse::<u16>();
        let (Ok(first), Ok(last)) = (port(first), port(last)) else {
            return Err(format!(
                "{text:?} is not a range of ports; write two numbers up to 65535, such as 50000-50999"
            ));
        };
        match (first, last) {
            (0, _) | (_, 0) => {
                Err("port 0 cannot be part of the range; clients could not be told it".to_owned())
            }
            _ if first > last => {
                Err(format!("the range ends before it begins; write the smaller port first: {last}-{first}"))
            }
            _ => Ok(Self(first..=last)),
        }
    }

    fn from_integer(port: i64) -> Option<Result<Self, String>> {
        Some(Self::from_text(&port.to_string()))
    }
}

impl Value for Ipv4Addr {
    const EXPECTED: &'static str = "an IPv4 address, such as \"203.0.113.7\"";

    fn from_text(text: &str) -> Result<Self, String> {
        match text.parse() {
            Ok(IpAddr::V4(address)) if is_reachable(address) => Ok(address),
            Ok(IpAddr::V4(address)) => {
                Err(format!("{address} is not an address that a client could connect to"))
            }
            Ok(IpAddr::V6(_)) => Err(format!(
                "{text} is an IPv6 address, but PASV can name only an IPv4 one; clients on IPv6 use EPSV, \
                 which names none"
            )),
            Err(_) => Err(format!("{text:?} is not an IPv4 address, such as 203.0.113.7")),
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

    fn from_text(text: &str) -> Result<Self, String> {
        number(text)
            .and_then(|number| usize::try_from(number).ok())
            .map(Self)
            .ok_or_else(|| format!("{text:?} is not a number; write one such as 100, 10k or 64Ki"))
    }

    fn from_integer(number: i64) -> Option<Result<Self, String>> {
        let count = usize::try_from(number).map(Self);
        Some(count.map_err(|_| format!("{number} is below zero; write a number such as 100")))
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
    /// A year: nobody waits longer, and sums of times stay representable.
    const MAX: Duration = Duration::from_secs(366 * 24 * 3600);
}

impl Value for Period {
    const EXPECTED: &'static str = "a length of time, such as \"30s\" or \"5m\"";

    fn from_text(text: &str) -> Result<Self, String> {
        match period(text) {
            Some(period) if period <= Self::MAX => Ok(Self(period)),
            Some(_) => Err(format!("{text:?} is longer than a year")),
            None => Err(format!(
                "{text:?} is not a length of time; write a number with ms, s, m, h or d, such as 30s or 5m"
            )),
        }
    }

    fn from_integer(seconds: i64) -> Option<Result<Self, String>> {
        Some(match u64::try_from(seconds) {
            Ok(seconds) => Self::from_text(&seconds.to_string()),
            Err(_) => Err(format!("{seconds} is below zero; write a number of seconds, or \"5m\"")),
        })
    }
}

fn period(text: &str) -> Option<Duration> {
    let (digits, unit) = split_unit(text);
    let milliseconds = match unit {
        "ms" => 1,
        "" | "s" => 1000,
        "m" | "min" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(milliseconds).map(Duration::from_millis)
}

fn split_unit(text: &str) -> (&str, &str) {
    let end = text.find(|char: char| !char.is_ascii_digit()).unwrap_or(text.len());
    let (digits, unit) = text.split_at(end);
    (digits, unit.trim_start())
}

fn choose<T: Copy>(text: &str, choices: &[(&str, T)]) -> Result<T, String> {
    let found = choices.iter().find(|(name, _)| *name == text);
    found.map(|(_, value)| *value).ok_or_else(|| {
        let names: Vec<&str> = choices.iter().map(|(name, _)| *name).collect();
        format!("{text:?} is none of the choices; write {}", names.join(" or "))
    })
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

    #[test]
    fn periods_take_units() {
        let seconds = |seconds| Some(Duration::from_secs(seconds));
        let table = [
            ("30", seconds(30)),
            ("30s", seconds(30)),
            ("5m", seconds(300)),
            ("5 min", seconds(300)),
            ("2h", seconds(7200)),
            ("1d", seconds(86_400)),
            ("0", seconds(0)),
            ("250ms", Some(Duration::from_millis(250))),
            ("", None),
            ("s", None),
            ("half an hour", None),
            ("1h30m", None),
            ("-5s", None),
            ("99999999999999999d", None),
        ];
        for (text, expected) in table {
            assert_eq!(period(text), expected, "{text:?}");
        }
    }
}
