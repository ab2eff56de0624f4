//! The keys about certificates that the server fetches itself (ACME), as the server takes them.

use std::net::SocketAddr;
use std::path::PathBuf;

use millrace_server::config::{Acme, Challenge, KeyPair, LETS_ENCRYPT};
use millrace_terminal::Failure;

use super::places::Places;
use super::said::{Place, Said};
use super::slot::is_on;
use super::tls;
use super::written::Written;

/// What was written about it; where the CA is to ask is not settled yet.
#[derive(Debug)]
pub(super) struct Wanted {
    settings: Acme,
    challenge: Option<Said<Challenge>>,
    place: Place,
}

/// What was written about it.
pub(super) fn acme(written: &Written, places: &Places<'_>) -> Result<Option<Wanted>, Failure> {
    let directory = directory(written, places)?;
    let Some(first) = written.acme.first() else { return Ok(None) };
    Acme::built().map_err(|error| places.error(&first.place, "--acme", &error.to_string()))?;
    let host = directory.trim_start_matches("https://").split('/').next().unwrap_or_default();
    if !is_on(written.acme_agree.clone(), false) {
        let message = format!(
            "the CA {host} gives certificates to those who agree to its terms of service; say so with --acme-agree"
        );
        return Err(places.error(&first.place, "--acme", &message));
    }
    let folder = tls::state_folder(written, &first.place, places)?.join("acme").join(folder_name(&directory));
    let domains = written.acme.iter().map(|said| domain(said, places)).collect::<Result<_, _>>()?;
    let contacts = written.acme_contact.iter().map(|said| contact(said, places)).collect::<Result<_, _>>()?;
    let authorities = written.acme_ca.as_ref().map(|said| authorities(said, places)).transpose()?;
    let settings = Acme { contacts, directory, authorities, ..Acme::new(domains, folder) };
    Ok(Some(Wanted { settings, challenge: written.acme_challenge.clone(), place: first.place.clone() }))
}

impl Wanted {
    /// The certificate: key and chain in one file.
    pub(super) fn identity(&self) -> KeyPair {
        self.settings.identity()
    }

    /// For a server that is at these addresses: a CA comes to port 80, or to port 443.
    pub(super) fn at(
        self,
        http: &[SocketAddr],
        https: &[SocketAddr],
        places: &Places<'_>,
    ) -> Result<Acme, Failure> {
        let Self { settings, challenge: said, place } = self;
        let has = |addresses: &[SocketAddr], port| addresses.iter().any(|address| address.port() == port);
        let challenge = match &said {
            Some(said) => said.value,
            None if has(http, 80) || (!has(https, 443) && !http.is_empty()) => Challenge::Http,
            None => Challenge::TlsAlpn,
        };
        let missing = match challenge {
            Challenge::Http if http.is_empty() => "HTTP, and have port 80 lead there",
            Challenge::TlsAlpn if https.is_empty() => "HTTPS, and have port 443 lead there",
            _ => return Ok(Acme { challenge, ..settings }),
        };
        let place = said.as_ref().map_or(&place, |said| &said.place);
        let message = format!("the CA cannot validate the name by {challenge}: serve {missing}");
        Err(places.error(place, "--acme", &message))
    }
}

/// Each CA has a folder of its own, because accounts and certificates of one are useless to another.
fn folder_name(directory: &str) -> String {
    let plain = |character: char| match character {
        '.' | 'a'..='z' | 'A'..='Z' | '0'..='9' => character,
        _ => '-',
    };
    directory.trim_start_matches("https://").chars().map(plain).collect()
}

fn directory(written: &Written, places: &Places<'_>) -> Result<String, Failure> {
    let Some(said) = &written.acme_directory else { return Ok(LETS_ENCRYPT.to_owned()) };
    let host = said.value.strip_prefix("https://").and_then(|rest| rest.split(['/', ':']).next());
    let is_url = |url: &str| url.bytes().all(|byte| byte.is_ascii_graphic());
    match host {
        Some(host) if !host.is_empty() && is_url(&said.value) => Ok(said.value.clone()),
        _ => {
            let message = format!("{:?} is no URL of a CA's directory, such as {LETS_ENCRYPT:?}", said.value);
            Err(places.error(&said.place, "acme-directory", &message))
        }
    }
}

/// A name that a CA could ask for.
fn domain(said: &Said<String>, places: &Places<'_>) -> Result<String, Failure> {
    let wrong = |why: &str| {
        let message = format!("{:?} {why}", said.value);
        Err(places.error(&said.place, "--acme", &message))
    };
    let is_label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    let name = said.value.to_ascii_lowercase();
    let is_address =
        name.split('.').next_back().is_some_and(|last| last.bytes().all(|byte| byte.is_ascii_digit()));
    match () {
        () if name.starts_with("*.") => wrong(
            "is a wildcard, for which a CA asks by DNS alone: name each host, or fetch it with another program",
        ),
        () if name.len() > 253 || is_address || !name.split('.').all(is_label) => {
            wrong("is no name that a CA could ask for; expected one such as files.example.org")
        }
        () => Ok(name),
    }
}

fn contact(said: &Said<String>, places: &Places<'_>) -> Result<String, Failure> {
    let address = said.value.strip_prefix("mailto:").unwrap_or(&said.value);
    let is_address = address.split_once('@').is_some_and(|(user, host)| !user.is_empty() && !host.is_empty())
        && address.bytes().all(|byte| byte.is_ascii_graphic() && !matches!(byte, b',' | b'?'));
    match is_address {
        true => Ok(address.to_owned()),
        false => {
            let message = format!("{:?} is no mail address", said.value);
            Err(places.error(&said.place, "acme-contact", &message))
        }
    }
}

/// They are read at each order; a mistake is told at once.
fn authorities(said: &Said<PathBuf>, places: &Places<'_>) -> Result<PathBuf, Failure> {
    let path = places.path(said);
    match std::fs::read_to_string(&path) {
        Ok(text) if text.contains("-----BEGIN CERTIFICATE-----") => Ok(path),
        Ok(_) => {
            let message = format!("{}: there is no certificate in it, in PEM", path.display());
            Err(places.error(&said.place, "acme-ca", &message))
        }
        Err(error) => Err(places.error(&said.place, "acme-ca", &format!("{}: {error}", path.display()))),
    }
}
