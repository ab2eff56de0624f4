//! Why something that was written is not the value of a key. Messages follow the place, and so begin in lower case.

use std::io;
use std::net::Ipv4Addr;
use std::path::PathBuf;

use millrace_server::NetworkError;
use millrace_server::auth::HostAddressError;
use millrace_server::limits::LimitError;

use super::setting::Range;

/// Why something that was written is not the value of a key.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ValueError {
    #[error("expected {expected}, but this is {found}")]
    Kind { expected: &'static str, found: String },
    #[error("{text:?} is none of the choices; write {choices}")]
    Choice { text: String, choices: String },
    #[error("{text:?} is not {expected}")]
    Form { text: String, expected: &'static str },
    #[error("{number} is below zero; write {expected}")]
    Negative { number: i64, expected: &'static str },
    #[error("the number {0} is too large")]
    Large(String),
    #[error("{0}")]
    Range(Outside),
    #[error("{0:?} is longer than a year")]
    Long(String),
    #[error(
        "{0} is a port without an address; write \"127.0.0.1:{0}\" for this computer only, \"0.0.0.0:{0}\" or \"[::]:{0}\" \
         for the network"
    )]
    PortAlone(i64),
    #[error("the name {name} cannot be resolved: {error}; write an address, such as 127.0.0.1")]
    Unresolved { name: String, error: io::Error },
    #[error("port 0 cannot be part of the range; clients could not be told it")]
    PortZero,
    #[error("the range ends before it begins; write the smaller port first: {last}-{first}")]
    Reversed { first: u16, last: u16 },
    #[error("{0} is not an address that a client could connect to")]
    Unreachable(Ipv4Addr),
    #[error(
        "{0} is an IPv6 address, but PASV can name only an IPv4 one; clients on IPv6 use EPSV, which names none"
    )]
    OverIpv6(String),
    #[error("a path cannot be empty; write . for the current folder")]
    EmptyPath,
    #[error("this list is empty; write \"off\" for none, or leave the key out")]
    EmptyList,
    #[error("expected one line of text, without control characters")]
    ControlCharacter,
    #[error("the name of a service is empty")]
    EmptyService,
    #[error("the value is not UTF-8")]
    Encoding,
    #[error("{0} can be written in a configuration file only")]
    FileOnly(String),
    #[error("{0} is set too; leave one of the two out")]
    BothSet(String),
    #[error("{} cannot be read: {error}", path.display())]
    Unreadable { path: PathBuf, error: io::Error },
    #[error("{} is empty; write the value into it, or leave the variable out", path.display())]
    EmptyFile { path: PathBuf },
    #[error(transparent)]
    Limit(#[from] LimitError),
    #[error(transparent)]
    Network(#[from] NetworkError),
    #[error(transparent)]
    HostAddress(#[from] HostAddressError),
}

/// A value that is smaller or larger than its key can have.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Outside {
    #[error("expected more than no time at all, such as 30s")]
    NoTime,
    #[error("expected at least {least}{}", in_unit(.unit))]
    Least { least: u64, unit: &'static str },
    #[error("expected at most {most}{}", in_unit(.unit))]
    Most { most: u64, unit: &'static str },
    #[error("expected {} to {}{}", .0.least, .0.most, in_unit(.0.unit))]
    Both(Range),
}

fn in_unit(unit: &str) -> String {
    if unit.is_empty() { String::new() } else { format!(": {unit}") }
}
