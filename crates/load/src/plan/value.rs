//! How values are written, in flags and in presets: `10k`, `30s`, `10..5000x2`, `127.0.0.0/8`.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::ops::RangeInclusive;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::script::ScriptError;
use crate::chaos::{Chaos, MISCHIEFS};

/// The operation that a user repeats.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Op {
    /// Downloads a file.
    Retr,
    /// Uploads a file.
    Stor,
    /// Lists a directory as `ls -l` does.
    List,
    /// Lists names.
    Nlst,
    /// Lists facts.
    Mlsd,
    /// Connects, logs in and leaves.
    Login,
    /// Says `NOOP`.
    Noop,
    /// Is logged in and does nothing.
    Idle,
    /// Says `QUIT`, once.
    Quit,
    /// Gets the target's document over HTTP.
    Get,
    /// Downloads and uploads what a log says, when it says.
    Replay,
}

/// Every [`Op`] by the name it has in flags, presets and reports.
pub const OPS: [(&str, Op); 11] = [
    ("retr", Op::Retr),
    ("stor", Op::Stor),
    ("list", Op::List),
    ("nlst", Op::Nlst),
    ("mlsd", Op::Mlsd),
    ("login", Op::Login),
    ("noop", Op::Noop),
    ("idle", Op::Idle),
    ("quit", Op::Quit),
    ("get", Op::Get),
    ("replay", Op::Replay),
];

impl Op {
    /// Returns true if it uses a data connection.
    pub fn has_data(self) -> bool {
        !matches!(self, Self::Login | Self::Noop | Self::Idle | Self::Quit | Self::Get)
    }

    /// Returns true if it has a size.
    pub fn has_size(self) -> bool {
        matches!(self, Self::Retr | Self::Stor)
    }
}

/// Which side connects the data connection, and by which command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Mode {
    /// The client connects; `PASV`.
    Pasv,
    /// The client connects; `EPSV`.
    Epsv,
    /// The server connects; `PORT`.
    Port,
    /// The server connects; `EPRT`.
    Eprt,
}

/// Every [`Mode`] by its name.
pub const MODES: [(&str, Mode); 4] =
    [("pasv", Mode::Pasv), ("epsv", Mode::Epsv), ("port", Mode::Port), ("eprt", Mode::Eprt)];

/// Which HTTP is spoken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum HttpVersion {
    /// 1.0, whose connections end with the response unless both sides say `Keep-Alive`.
    Http10,
    /// 1.1.
    Http11,
    /// 2: what ALPN agrees on, or by prior knowledge where nothing is encrypted.
    Http2,
}

/// Every [`HttpVersion`] by its name.
pub(super) const HTTP_VERSIONS: [(&str, HttpVersion); 3] =
    [("1.0", HttpVersion::Http10), ("1.1", HttpVersion::Http11), ("2", HttpVersion::Http2)];

/// Which TLS is spoken, where the target says FTP in TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum TlsVersion {
    /// As the target says.
    Off,
    /// 1.3, or 1.2 where the server has no other; an `ftp://` target is asked for `AUTH TLS`.
    On,
    /// 1.2 alone.
    Tls12,
    /// 1.3 alone.
    Tls13,
}

/// Every [`TlsVersion`] by its name.
pub(super) const TLS_VERSIONS: [(&str, TlsVersion); 4] = [
    ("off", TlsVersion::Off),
    ("on", TlsVersion::On),
    ("1.2", TlsVersion::Tls12),
    ("1.3", TlsVersion::Tls13),
];

/// Whether data connections are encrypted where control connections are (RFC 4217 section 9).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Prot {
    /// `PROT P`
    Private,
    /// `PROT C`
    Clear,
}

/// Every [`Prot`] by its name.
pub(super) const PROTS: [(&str, Prot); 2] = [("private", Prot::Private), ("clear", Prot::Clear)];

/// The receive buffer of data connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReceiveBuffer {
    /// One that holds a download of some size whose bytes are dropped; else the system's own.
    Auto,
    /// The system's own, which grows.
    System,
    /// So large.
    Bytes(u32),
}

impl fmt::Display for ReceiveBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::System => f.write_str("off"),
            Self::Bytes(size) => size.fmt(f),
        }
    }
}

/// The receive buffer of data connections: `auto`, `off` or a size.
pub(super) fn receive_buffer(text: &str) -> Result<ReceiveBuffer, ValueError> {
    match text {
        "auto" => Ok(ReceiveBuffer::Auto),
        "off" => Ok(ReceiveBuffer::System),
        size => number(size, 1..=1 << 30).map(ReceiveBuffer::Bytes),
    }
}

/// A number of threads, or `auto`.
pub(super) fn threads(text: &str) -> Result<Option<u32>, ValueError> {
    if text == "auto" { Ok(None) } else { number(text, 1..=256).map(Some) }
}

/// How uploads are named.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Names {
    /// One name a user, written over again and again.
    Same,
    /// A new name each time.
    Fresh,
    /// One name that all users write over at once, as pyftpdlib's script does.
    One,
}

/// Every [`Names`] by its name.
pub(super) const NAMES: [(&str, Names); 3] =
    [("same", Names::Same), ("fresh", Names::Fresh), ("one", Names::One)];

/// The file to download.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Download {
    /// Test files of the cell's size.
    Made,
    /// The uploads of an earlier step's users, of any size.
    Uploaded,
}

/// Every [`Download`] by its name.
pub(super) const DOWNLOADS: [(&str, Download); 2] =
    [("made", Download::Made), ("uploaded", Download::Uploaded)];

/// From when the rate of a download counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Clock {
    /// From its first byte, as dkftpbench has it: `PASV` and the server's start are free.
    FirstByte,
    /// From its command.
    Command,
}

/// Every [`Clock`] by its name.
pub(super) const CLOCKS: [(&str, Clock); 2] = [("first-byte", Clock::FirstByte), ("command", Clock::Command)];

/// What happens to a user that fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum OnDeath {
    /// It goes on, and the failure is counted.
    Off,
    /// It is out; all others begin nevertheless (dkftpbench 0.4 and 0.7).
    DropOut,
    /// It is out, and no further user begins (dkftpbench from 2001 on).
    StopGrowth,
}

/// Every [`OnDeath`] by its name.
pub(super) const DEATHS: [(&str, OnDeath); 3] =
    [("off", OnDeath::Off), ("drop-out", OnDeath::DropOut), ("stop-growth", OnDeath::StopGrowth)];

/// The state of the server's page cache for the files when a cell begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Cache {
    /// Whatever it holds: files are made once a run.
    Any,
    /// The files were made just before.
    Created,
    /// They were read once.
    Warm,
    /// Nothing of them: needs the server's folder.
    Cold,
}

/// Every [`Cache`] by its name.
pub(super) const CACHES: [(&str, Cache); 4] =
    [("any", Cache::Any), ("created", Cache::Created), ("warm", Cache::Warm), ("cold", Cache::Cold)];

impl fmt::Display for Cache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(name_of(&CACHES, self))
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(name_of(&OPS, self))
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(name_of(&MODES, self))
    }
}

fn name_of<T: PartialEq>(table: &[(&'static str, T)], value: &T) -> &'static str {
    table.iter().find(|row| row.1 == *value).map_or("", |row| row.0)
}

/// Why a text is no value of a setting.
#[derive(Debug, Error)]
pub enum ValueError {
    /// The text has another form than this, or is out of range.
    #[error("{0:?} {1}")]
    Malformed(String, &'static str),
    /// The text is none of these names.
    #[error("{0:?} is none of {1}")]
    NoName(String, String),
    /// The number is less than this.
    #[error("{0} is too few: at least {1}")]
    TooFew(String, u64),
    /// The number is more than this.
    #[error("{0} is more than {1}")]
    TooMany(String, u32),
    /// There is no setting of this name.
    #[error("there is no such setting")]
    NoSetting,
    /// The log to replay cannot be used.
    #[error(transparent)]
    Script(#[from] ScriptError),
}

pub(crate) fn wrong(value: &str, fault: &'static str) -> ValueError {
    ValueError::Malformed(value.to_owned(), fault)
}

/// One of the names of a table.
pub(super) fn one_of<T: Copy>(table: &[(&str, T)], text: &str) -> Result<T, ValueError> {
    table.iter().find(|row| row.0.eq_ignore_ascii_case(text)).map(|row| row.1).ok_or_else(|| {
        let names: Vec<_> = table.iter().map(|row| row.0).collect();
        ValueError::NoName(text.to_owned(), names.join(", "))
    })
}

/// The number of a process.
pub(super) fn process(text: &str) -> Result<i32, ValueError> {
    let number = text.parse().ok().filter(|&number| number > 0);
    number.ok_or_else(|| wrong(text, "is no process's number"))
}

/// The number of a port.
pub(super) fn port(text: &str) -> Result<u16, ValueError> {
    text.parse().ok().filter(|&port| port > 0).ok_or_else(|| wrong(text, "is no port"))
}

/// Several values with commas between them, at least one.
pub(super) fn list<T>(text: &str, one: impl Fn(&str) -> Result<T, ValueError>) -> Result<Vec<T>, ValueError> {
    text.split(',').map(|item| one(item.trim())).collect()
}

/// The share of misbehaving users: `10%`, or `10%:unread,abor`.
pub(super) fn chaos(text: &str) -> Result<Chaos, ValueError> {
    let (share, kinds) = text.split_once(':').unwrap_or((text, ""));
    let percent = share.trim_end_matches('%').parse().ok().filter(|percent| (1..=1000).contains(percent));
    let percent = percent.ok_or_else(|| wrong(share, "is no share: write 10% or 10%:unread,abor"))?;
    let kinds = match kinds {
        "" => MISCHIEFS.map(|row| row.1).to_vec(),
        kinds => list(kinds, |kind| one_of(&MISCHIEFS, kind))?,
    };
    Ok(Chaos { percent, kinds })
}

/// `on` or `off`; also `true`, `false`, `yes`, `no`, and nothing for a flag without a value.
pub(super) fn switch(text: &str) -> Result<bool, ValueError> {
    match text {
        "" | "on" | "true" | "yes" => Ok(true),
        "off" | "false" | "no" => Ok(false),
        _ => Err(wrong(text, "is neither on nor off")),
    }
}

/// A whole number of at least `least`: `500`, or `10k` for 10,240.
pub(super) fn count(text: &str, least: u64) -> Result<u64, ValueError> {
    let count = size(text).map_err(|_| wrong(text, "is no number: write 500 or 10k"))?;
    if count >= least { Ok(count) } else { Err(ValueError::TooFew(text.to_owned(), least)) }
}

/// A size that is not nothing.
pub(super) fn some_bytes(text: &str) -> Result<u64, ValueError> {
    match size(text)? {
        0 => Err(ValueError::TooFew(text.to_owned(), 1)),
        bytes => Ok(bytes),
    }
}

/// A whole number within a range.
pub(super) fn number(text: &str, range: RangeInclusive<u32>) -> Result<u32, ValueError> {
    let number = u32::try_from(count(text, u64::from(*range.start()))?).ok().filter(|n| range.contains(n));
    number.ok_or_else(|| ValueError::TooMany(text.to_owned(), *range.end()))
}

/// Bytes: `1024`, `10k`, `1.5m`, `64MiB`; `k` is 1024, `kB` is 1000.
pub fn size(text: &str) -> Result<u64, ValueError> {
    let (number, unit) = split_unit(text);
    let factor: u64 = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kib" => 1 << 10,
        "m" | "mib" => 1 << 20,
        "g" | "gib" => 1 << 30,
        "t" | "tib" => 1 << 40,
        "kb" => 1000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        "tb" => 1_000_000_000_000,
        _ => return Err(wrong(text, "is no size: write 10k, 64MiB or a number of bytes")),
    };
    match number.parse::<f64>() {
        Ok(number) if number >= 0.0 && number * (factor as f64) < 9e15 => Ok((number * factor as f64) as u64),
        Ok(number) if number >= 9e15 / factor as f64 => Err(wrong(text, "is more than 9 PB")),
        _ => Err(wrong(text, "is no number")),
    }
}

/// No figure takes longer: a load is bounded.
pub(super) const LONGEST: Duration = Duration::from_secs(24 * 3600);

/// A time: `30s`, `500ms`, `2m`, `1h`; a bare number counts seconds.
pub(super) fn duration(text: &str) -> Result<Duration, ValueError> {
    let (number, unit) = split_unit(text);
    let seconds = match unit {
        "" | "s" => 1.0,
        "us" => 1e-6,
        "ms" => 1e-3,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        _ => return Err(wrong(text, "is no time: write 30s, 500ms, 2m or 1h")),
    };
    let number: f64 = number.parse().map_err(|_| wrong(text, "is no number"))?;
    match number * seconds {
        time if (0.0..=LONGEST.as_secs_f64()).contains(&time) => Ok(Duration::from_secs_f64(time)),
        _ => Err(wrong(text, "is not between 0 and 24h")),
    }
}

/// A time in which something can happen.
pub fn some_time(text: &str) -> Result<Duration, ValueError> {
    let time = duration(text)?;
    if time.is_zero() { Err(wrong(text, "is no time at all: nothing would be begun")) } else { Ok(time) }
}

/// A rate per second, more than none.
pub(super) fn rate(text: &str) -> Result<f64, ValueError> {
    let (number, unit) = split_unit(text.trim_end_matches("/s"));
    let factor = match unit {
        "" => 1.0,
        "k" => 1e3,
        _ => return Err(wrong(text, "is no rate: write 500, 2k or 500/s")),
    };
    match number.parse::<f64>() {
        Ok(number) if number * factor > 0.0 && number * factor <= 1e6 => Ok(number * factor),
        _ => Err(wrong(text, "is no rate between 0 and 1,000,000 a second")),
    }
}

/// How many times: `10`, `2.5x`.
pub(super) fn factor(text: &str) -> Result<f64, ValueError> {
    match text.trim_end_matches('x').parse::<f64>() {
        Ok(factor) if (1e-3..=1e6).contains(&factor) => Ok(factor),
        _ => Err(wrong(text, "is no number of times: write 10 or 2.5x")),
    }
}

/// A share, or more than once: `0.5`, `2`, `1.5x`.
pub(super) fn share(text: &str) -> Result<f64, ValueError> {
    match text.trim_end_matches('x').parse::<f64>() {
        Ok(share) if (1e-6..=100.0).contains(&share) => Ok(share),
        _ => Err(wrong(text, "is no share from 0.000001 to 100: write 0.5 or 2")),
    }
}

fn split_unit(text: &str) -> (&str, &str) {
    let text = text.trim();
    let end = text.find(|letter: char| letter.is_ascii_alphabetic()).unwrap_or(text.len());
    (text[..end].trim_end(), &text[end..])
}

/// More users than any machine has ports for: a load is bounded.
const MOST_USERS: u32 = 1_000_000;

/// Numbers of users: `5`, `1..1000` (each ten times the last), `10..5000x2`, `10..100+10`.
pub(super) fn users(text: &str) -> Result<Vec<u32>, ValueError> {
    let number = |text: &str| match size(text) {
        Ok(_) => number(text, 1..=MOST_USERS),
        Err(_) => {
            Err(wrong(text, "is no number of users: write 100, a list, 1..1000, 10..5000x2 or 10..100+10"))
        }
    };
    let Some((first, rest)) = text.split_once("..") else { return Ok(vec![number(text)?]) };
    let (last, factor, summand) = if let Some((last, factor)) = rest.split_once('x') {
        (last, number(factor)?, 0)
    } else if let Some((last, summand)) = rest.split_once('+') {
        (last, 1, number(summand)?)
    } else {
        (rest, 10, 0)
    };
    let (mut at, last) = (number(first)?, number(last)?);
    if factor == 1 && summand == 0 || at > last {
        return Err(wrong(text, "does not rise"));
    }
    let mut steps = Vec::new();
    while at < last {
        steps.push(at);
        at = at.saturating_mul(factor).saturating_add(summand);
    }
    steps.push(last);
    Ok(steps)
}

/// Addresses that users connect from: user `i` from the `i`-th, and round again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceRange {
    first: Ipv4Addr,
    count: u32,
}

impl SourceRange {
    /// `127.0.0.0/8`, or one address.
    pub fn parse(text: &str) -> Result<Self, ValueError> {
        let wrong = || wrong(text, "is no range of IPv4 addresses: write 127.0.0.0/8");
        let (address, prefix) = text.split_once('/').unwrap_or((text, "32"));
        let address: Ipv4Addr = address.parse().map_err(|_| wrong())?;
        let prefix: u32 = prefix.parse().ok().filter(|prefix| (8..=32).contains(prefix)).ok_or_else(wrong)?;
        let hosts = 1u64 << (32 - prefix);
        let network = u32::from(address) & !((hosts - 1) as u32);
        Ok(match hosts {
            1 => Self { first: address, count: 1 },
            2 => Self { first: network.into(), count: 2 },
            // Neither the network's own address nor the broadcast's.
            _ => Self { first: (network + 1).into(), count: (hosts - 2) as u32 },
        })
    }

    /// How many there are.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Where a user connects from.
    pub fn address(&self, user: u32) -> IpAddr {
        Ipv4Addr::from(u32::from(self.first) + user % self.count).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_units() {
        assert_eq!(size("10k").ok(), Some(10_240));
        assert_eq!(size("64MiB").ok(), Some(64 << 20));
        assert_eq!(size("1.5m").ok(), Some(3 << 19));
        assert_eq!(size("100kB").ok(), Some(100_000));
        assert_eq!(size("2T").ok(), Some(2 << 40));
        assert_eq!(size("9000TiB").unwrap_err().to_string(), "\"9000TiB\" is more than 9 PB");
        assert_eq!(duration("500ms").ok(), Some(Duration::from_millis(500)));
        assert_eq!(duration("2").ok(), Some(Duration::from_secs(2)));
        assert_eq!(duration("24h").ok(), Some(LONGEST));
        assert_eq!(duration("1000h").unwrap_err().to_string(), "\"1000h\" is not between 0 and 24h");
        assert!(some_time("0").is_err() && some_time("0ms").is_err() && some_time("1ms").is_ok());
        assert_eq!(rate("2k").ok(), Some(2000.0));
        for bad in ["", "k", "-1", "1x", "1e99", "nan"] {
            assert!(size(bad).is_err() && duration(bad).is_err() && rate(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_share_of_bad_users_has_all_kinds_unless_some_are_named() {
        let all = chaos("10%").unwrap();
        assert_eq!((all.percent, all.kinds.len()), (10, MISCHIEFS.len()));
        let some = chaos("5:unread,abor").unwrap();
        assert_eq!(some.kinds.iter().map(|kind| kind.name()).collect::<Vec<_>>(), ["unread", "abor"]);
        for bad in ["", "0%", "x", "10%:worse", "2000%"] {
            assert!(chaos(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn users_are_numbers_or_ramps() {
        assert_eq!(users("7").ok(), Some(vec![7]));
        assert_eq!(users("1..1000").ok(), Some(vec![1, 10, 100, 1000]));
        assert_eq!(users("10..50x2").ok(), Some(vec![10, 20, 40, 50]));
        assert_eq!(users("10..30+10").ok(), Some(vec![10, 20, 30]));
        for bad in ["0", "5..1", "1..9x1", "1..9+0", "a", "1..", "5000000000"] {
            assert!(users(bad).is_err(), "{bad}");
        }
        assert!(users("abc").unwrap_err().to_string().starts_with("\"abc\" is no number of users"));
    }

    #[test]
    fn sources_leave_out_the_network_and_go_round() {
        let range = SourceRange::parse("127.0.1.0/30").unwrap();
        let taken: Vec<_> = (0..3).map(|user| range.address(user).to_string()).collect();
        assert_eq!(taken, ["127.0.1.1", "127.0.1.2", "127.0.1.1"]);
        assert_eq!(SourceRange::parse("127.0.0.9").unwrap().address(5).to_string(), "127.0.0.9");
        assert!(SourceRange::parse("::1/64").is_err() && SourceRange::parse("127.0.0.0/40").is_err());
    }
}
