//! Where generators run: `local:3`, `ssh://user@host:port`.

use std::fmt;
use std::io;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::str::FromStr;

use thiserror::Error;

use crate::protocol::COMMAND;
pub use crate::ssh::StartError;
use crate::ssh::{self, Ssh};

/// More local generators than these are a mistake.
const MOST_LOCAL: u32 = 64;

/// A value of `--from`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// This many processes of this machine.
    Local(u32),
    /// A process on another machine.
    Ssh {
        /// The user there, where it is not as here.
        user: Option<String>,
        /// The machine, as OpenSSH's client takes it.
        host: String,
        /// The port, where it is not the usual one.
        port: Option<u16>,
    },
}

/// A value of `--from` that names no place.
#[derive(Debug, Error)]
#[error("{text:?} {fault}; a generator is written ssh://[user@]host[:port] or local:N")]
pub struct SourceError {
    text: String,
    fault: &'static str,
}

impl FromStr for Source {
    type Err = SourceError;

    fn from_str(text: &str) -> Result<Self, SourceError> {
        let wrong = |fault| SourceError { text: text.to_owned(), fault };
        if let Some(count) = text.strip_prefix("local:") {
            let count = count.parse().ok().filter(|count| (1..=MOST_LOCAL).contains(count));
            return count.map(Self::Local).ok_or_else(|| wrong("has no number from 1 to 64"));
        }
        let place =
            text.strip_prefix("ssh://").ok_or_else(|| wrong("begins with neither ssh:// nor local:"))?;
        let place = place.strip_suffix('/').unwrap_or(place);
        let (user, place) = match place.rsplit_once('@') {
            Some((user, place)) => (Some(user.to_owned()), place),
            None => (None, place),
        };
        let (host, port) = split_port(place).ok_or_else(|| wrong("has no valid port"))?;
        // What begins with a dash would be an option of the client.
        let is_name = |name: &str| !name.is_empty() && !name.starts_with('-') && !name.contains(['/', ' ']);
        if !is_name(host) || !user.as_deref().is_none_or(is_name) {
            return Err(wrong("names no host"));
        }
        Ok(Self::Ssh { user, host: host.to_owned(), port })
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Local(count) => write!(f, "local:{count}"),
            Self::Ssh { user, host, port } => {
                let user = user.as_ref().map_or_else(String::new, |user| format!("{user}@"));
                let host = if host.contains(':') { format!("[{host}]") } else { host.clone() };
                write!(f, "ssh://{user}{host}")?;
                port.map_or(Ok(()), |port| write!(f, ":{port}"))
            }
        }
    }
}

/// Divides `host:port` and `[address]:port`.
fn split_port(place: &str) -> Option<(&str, Option<u16>)> {
    let (host, port) = match place.strip_prefix('[') {
        Some(rest) => rest.split_once(']')?,
        None => place.split_at(place.find(':').unwrap_or(place.len())),
    };
    match port.strip_prefix(':') {
        Some(port) => Some((host, Some(port.parse().ok()?))),
        None => port.is_empty().then_some((host, None)),
    }
}

impl Source {
    /// Starts its generators: processes whose streams lead to them.
    ///
    /// `program` is the program that they run; `client` is OpenSSH's client, with options.
    pub fn start(&self, program: &Path, client: &str) -> Result<Vec<Child>, StartError> {
        match self {
            Self::Local(count) => {
                (0..*count).map(|_| Ok(start(Command::new(program).arg(COMMAND))?)).collect()
            }
            Self::Ssh { user, host, port } => {
                let user = user.as_ref().map_or_else(String::new, |user| format!("{user}@"));
                let ssh = Ssh { client, login: format!("{user}{host}"), port: *port };
                let remote = ssh::install(&ssh, program)?;
                let child = start(&mut ssh.command(&format!("exec {remote} {COMMAND}")))?;
                Ok(vec![child])
            }
        }
    }
}

/// Starts a process with a group of its own: Ctrl-C in the terminal is the leading process's, which asks generators to end.
fn start(command: &mut Command) -> io::Result<Child> {
    use std::os::unix::process::CommandExt;
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0).spawn()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ssh(user: Option<&str>, host: &str, port: Option<u16>) -> Source {
        Source::Ssh { user: user.map(str::to_owned), host: host.to_owned(), port }
    }

    #[test]
    fn places_are_read() {
        let cases = [
            ("local:3", Source::Local(3)),
            ("ssh://a", ssh(None, "a", None)),
            ("ssh://me@a.example:2222/", ssh(Some("me"), "a.example", Some(2222))),
            ("ssh://[::1]:22", ssh(None, "::1", Some(22))),
            ("ssh://me@[fe80::1]", ssh(Some("me"), "fe80::1", None)),
        ];
        for (text, source) in cases {
            assert_eq!(text.parse::<Source>().unwrap(), source, "{text}");
            assert_eq!(source.to_string(), text.trim_end_matches('/'));
        }
    }

    #[test]
    fn what_is_no_place_is_refused() {
        let bad = [
            "a",
            "local:",
            "local:0",
            "local:65",
            "ssh://",
            "ssh://@a",
            "ssh://-oProxyCommand=x",
            "ssh://a:b",
            "ssh://a b",
            "ssh://-x@a",
            "ssh://[::1",
            "http://a",
        ];
        for text in bad {
            let error = text.parse::<Source>().unwrap_err().to_string();
            assert!(error.contains("local:N"), "{text}: {error}");
        }
    }
}
