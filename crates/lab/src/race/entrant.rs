//! The participants of a race: a server known by name, or one that is running already.

use std::path::{Path, PathBuf};

use super::RaceError;
use crate::peers::{Installed, Peer, PeerError, Ports, Running};
use millrace_load::plan::{Cell, Op};
use millrace_load::stop::Stop;
use millrace_load::target::Target;

/// The folder that listings are made of, and how many files it has.
const LISTED: &str = "listing";
const ENTRIES: u32 = 1000;

/// One who takes part.
#[derive(Debug, Clone)]
pub struct Entrant {
    /// As reports call it; no two are alike.
    pub label: String,
    pub(super) server: Server,
}

#[derive(Debug, Clone)]
pub(super) enum Server {
    /// It runs already.
    Url(String),
    /// It is started, with more words behind its command line.
    Known { installed: Installed, more: Vec<String> },
}

impl Entrant {
    /// Reads a URL, a known server's name, or the path of its program; flags for it may follow in the same words:
    /// `millrace --uploads in-place`.
    pub fn parse(words: &str) -> Result<Self, RaceError> {
        if words.contains("://") {
            let target = Target::parse(words).map_err(RaceError::Target)?;
            return Ok(Self { label: target.to_string(), server: Server::Url(words.to_owned()) });
        }
        let mut split = words.split_whitespace().map(str::to_owned);
        let first = split.next().ok_or_else(|| PeerError::Unknown(String::new()))?;
        let path = first.contains('/').then(|| PathBuf::from(&first));
        let peer = path.as_deref().map_or_else(|| Peer::named(&first), Peer::at)?;
        let installed = peer.installed(path)?;
        Ok(Self { label: words.to_owned(), server: Server::Known { installed, more: split.collect() } })
    }

    /// Tells those apart that are called alike: an A/A race has a server twice.
    pub(super) fn tell_apart(entrants: &mut [Self]) {
        let labels: Vec<String> = entrants.iter().map(|entrant| entrant.label.clone()).collect();
        for (at, entrant) in entrants.iter_mut().enumerate() {
            let before = labels[..at].iter().filter(|label| **label == entrant.label).count();
            if before > 0 {
                entrant.label += &format!(" #{}", before + 1);
            }
        }
    }

    /// Returns true if the race may look into it and fill its folder.
    pub(super) fn is_started(&self) -> bool {
        matches!(self.server, Server::Known { .. })
    }

    /// Where it is, if it runs already.
    pub(super) fn url(&self) -> Option<&str> {
        match &self.server {
            Server::Url(url) => Some(url),
            Server::Known { .. } => None,
        }
    }

    /// Returns true if it is spoken to by TLS.
    pub(super) fn is_over_tls(&self) -> bool {
        match &self.server {
            Server::Url(url) => Target::parse(url).is_ok_and(|target| target.scheme.is_secure()),
            Server::Known { installed, .. } => installed.peer.is_over_tls(),
        }
    }

    /// A target of the right kind, to plan with before anyone runs.
    pub(super) fn anyone(entrants: &[Self]) -> &'static str {
        match entrants {
            [first, ..] if first.is_over_http() => match entrants.iter().any(Self::is_over_tls) {
                true => "https://127.0.0.1:443/",
                false => "http://127.0.0.1:80/",
            },
            all if all.iter().any(Self::is_over_tls) => "ftpes://127.0.0.1:21/",
            _ => "ftp://127.0.0.1:21/",
        }
    }

    /// Returns true if it is spoken to by HTTP.
    pub(super) fn is_over_http(&self) -> bool {
        match &self.server {
            Server::Url(url) => Target::parse(url).is_ok_and(|target| target.scheme.is_http()),
            Server::Known { installed, .. } => installed.peer.is_over_http(),
        }
    }

    /// A race is over one protocol: where anyone speaks HTTP, all must.
    pub(super) fn agree(entrants: &mut [Self]) -> Result<(), RaceError> {
        let Some(http) = entrants.iter().find(|one| one.is_over_http()).map(|one| one.label.clone()) else {
            return Ok(());
        };
        for entrant in entrants.iter_mut().filter(|one| !one.is_over_http()) {
            let over_http = match &entrant.server {
                Server::Url(_) => None,
                Server::Known { installed, .. } => installed.peer.over_http(),
            };
            match (&mut entrant.server, over_http) {
                (Server::Known { installed, .. }, Some(peer)) => installed.peer = peer,
                _ => {
                    let label = &entrant.label;
                    return Err(RaceError::Usage(format!(
                        "{http} speaks HTTP, and {label} does not: leave one of them out"
                    )));
                }
            }
        }
        Ok(())
    }

    /// In a race that is in TLS, every server that is started for it speaks that, too.
    pub(super) fn encrypt(entrants: &mut [Self]) -> Result<(), RaceError> {
        for Self { label, server } in entrants {
            let Server::Known { installed, .. } = server else { continue };
            installed.peer = installed.peer.encrypted().ok_or_else(|| {
                RaceError::Usage(format!(
                    "{label} cannot be started with TLS; name a running server by its URL"
                ))
            })?;
        }
        Ok(())
    }

    /// Starts it, where it does not run.
    pub(super) fn start(
        &self,
        ports: Ports,
        place: &Path,
        cells: &[Cell],
        stop: &Stop,
    ) -> Result<Started, PeerError> {
        match &self.server {
            Server::Url(url) => Ok(Started { url: url.clone(), process: None }),
            Server::Known { installed, more } => {
                let fill = |root: &Path| fill(root, cells);
                let process = Running::start(installed, ports, more, place, &fill, stop)?;
                Ok(Started { url: process.url.clone(), process: Some(process) })
            }
        }
    }
}

/// A server that is running.
#[derive(Debug)]
pub(super) struct Started {
    pub(super) url: String,
    pub(super) process: Option<Running>,
}

/// Puts there what listings are made of.
fn fill(root: &Path, cells: &[Cell]) -> std::io::Result<()> {
    if !cells.iter().any(is_of_listed) {
        return Ok(());
    }
    let folder = root.join(LISTED);
    std::fs::create_dir(&folder)?;
    for number in 0..ENTRIES {
        std::fs::write(folder.join(format!("entry-{number:04}.txt")), [])?;
    }
    Ok(())
}

/// Returns true if a cell lists the folder that only a race's own servers have.
pub(super) fn is_of_listed(cell: &Cell) -> bool {
    matches!(cell.op, Op::List | Op::Nlst | Op::Mlsd) && cell.settings.file.as_deref() == Some(LISTED)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_takes_part_twice_has_two_names() {
        let url = "ftp://a:b@127.0.0.1:2121/";
        let mut entrants = [url, url, "ftp://127.0.0.1/"].map(|words| Entrant::parse(words).unwrap());
        Entrant::tell_apart(&mut entrants);
        let labels = entrants.map(|entrant| entrant.label);
        assert_eq!(labels[0], "ftp://a@127.0.0.1:2121/");
        assert_eq!(labels[1], "ftp://a@127.0.0.1:2121/ #2");
        assert_ne!(labels[2], labels[0]);
    }

    #[test]
    fn a_race_is_over_one_protocol() {
        let parse = |words: [&str; 2]| words.map(|words| Entrant::parse(words).unwrap());
        let mut both = parse(["HTTP://127.0.0.1:81/", "http://127.0.0.1:80/"]);
        Entrant::agree(&mut both).unwrap();
        assert!(both.iter().all(Entrant::is_over_http));
        let error = Entrant::agree(&mut parse(["ftp://127.0.0.1/", "http://127.0.0.1/"])).unwrap_err();
        assert!(error.is_usage() && error.to_string().contains("does not"), "{error}");
        Entrant::agree(&mut parse(["ftp://127.0.0.1:21/", "ftp://127.0.0.1/"])).unwrap();
        let over_http = |name| Peer::named(name).unwrap().over_http().map(|peer| peer.scheme);
        assert_eq!(
            [over_http("millrace"), over_http("nginx"), over_http("vsftpd")],
            [Some("http"), Some("http"), None]
        );
    }

    #[test]
    fn a_race_may_be_in_tls() {
        let encrypted = |peer: &Peer| peer.encrypted().map(|peer| peer.scheme);
        let named = |name| encrypted(Peer::named(name).unwrap());
        assert_eq!(["nginx", "lighttpd"].map(named), [Some("https"); 2]);
        let daemons = ["millrace", "vsftpd", "pure-ftpd", "proftpd", "pyftpdlib"];
        assert_eq!(daemons.map(named), [Some("ftpes"); 5]);
        assert_eq!(encrypted(Peer::named("millrace").unwrap().over_http().unwrap()), Some("https"));
        assert_eq!(["unftp", "floor"].map(named), [None; 2]);
        let all = ["https://127.0.0.1:81/", "HTTPS://127.0.0.1/"].map(|words| Entrant::parse(words).unwrap());
        assert!(all.iter().all(|one| one.is_over_http() && one.is_over_tls()));
        assert_eq!(Entrant::anyone(&all), "https://127.0.0.1:443/");
    }

    #[test]
    fn a_path_that_leads_nowhere_is_no_server() {
        let error = Entrant::parse("/nowhere/vsftpd --flag").unwrap_err();
        assert_eq!((error.is_usage(), &error.to_string()[..]), (true, "there is no program /nowhere/vsftpd"));
        assert!(Entrant::parse("").unwrap_err().is_usage());
    }
}
