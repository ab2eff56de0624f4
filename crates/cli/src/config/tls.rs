//! The keys about TLS, as the server takes them: certificates, and what has to be encrypted.

use std::env;
use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;

use millrace_load::units::counted;
use millrace_server::config::{
    Authorities, Clients, CloseNotify, KeyPair, LoadError, Plan, Resumption, Tls, self_signed,
};
use millrace_terminal::Failure;

use super::acme::Wanted;
use super::places::Places;
use super::said::{Place, Said};
use super::slot::is_on;
use super::value::{Listen, Switch, TlsRequired};
use super::written::Written;

/// What was said about TLS.
#[derive(Debug)]
pub(super) struct Encryption {
    pub(super) ftps: Vec<SocketAddr>,
    pub(super) https: Vec<SocketAddr>,
    pub(super) tls: Option<Tls>,
    pub(super) self_signed: Option<SelfSigned>,
    pub(super) acme: Option<Wanted>,
}

/// A certificate that is made when it is first needed, and kept.
#[derive(Debug, Clone)]
pub(crate) struct SelfSigned {
    /// Where it is kept.
    pub(crate) folder: PathBuf,
    names: Vec<String>,
}

impl SelfSigned {
    /// Where it is, once it is made.
    pub(super) fn pair(&self) -> KeyPair {
        KeyPair::self_signed(&self.folder)
    }

    /// Makes it, unless it is there.
    pub(crate) fn make(&self) -> Result<(), Failure> {
        self_signed(&self.folder, &self.names).map(drop).map_err(|error| {
            Failure::Running(format!(
                "cannot keep a certificate in {}: {error}; name another folder with --state.",
                self.folder.display()
            ))
        })
    }
}

/// Resolves the keys about TLS.
pub(super) fn encryption(written: &Written, places: &Places<'_>) -> Result<Encryption, Failure> {
    let acme = super::acme::acme(written, places)?;
    let (plan, self_signed) = plan(written, acme.as_ref().map(Wanted::identity), places)?;
    let plan = with_hosts(plan, written, places)?;
    let ftps = listens(&written.ftps, "--ftps", plan.is_some(), places)?;
    let https = listens(&written.https, "--https", plan.is_some(), places)?;
    let required = written.tls_required.as_ref().map_or(TlsRequired::Off, |said| said.value);
    let Some(plan) = plan else {
        return match &written.tls_required {
            Some(said) if required != TlsRequired::Off => Err(places.error(
                &said.place,
                "--tls-required",
                "no login is possible: TLS is required, and there is no certificate; name one with --tls-cert",
            )),
            _ => match idle(written) {
                Some((place, key)) => {
                    let message = "there is no certificate, and so no TLS that this could be about; name one with \
                                   tls-cert, or leave it out";
                    Err(places.error(place, key, message))
                }
                None => Ok(Encryption { ftps, https, tls: None, self_signed: None, acme: None }),
            },
        };
    };
    let default = CloseNotify::default();
    let tls = Tls {
        login_required: required != TlsRequired::Off,
        data_required: required == TlsRequired::Data,
        resumption: written.tls_resumption.as_ref().map_or(Resumption::Prefer, |said| said.value),
        close_notify: CloseNotify {
            required: written.tls_close_notify.as_ref().map_or(default.required, |said| said.value.0),
            excused: written.tls_close_notify_excused.iter().map(|said| said.value.clone()).collect(),
        },
        clear_command_channel: written.tls_ccc.as_ref().is_some_and(|said| said.value.0),
        ..Tls::new(plan)
    };
    let checked = match self_signed.is_none() && acme.is_none() {
        true => tls.plan.check(),
        // The server's own are yet to be made.
        false => tls.plan.check_clients(),
    };
    checked.map_err(|error| mistake(&error, written, places))?;
    Ok(Encryption { ftps, https, tls: Some(tls), self_signed, acme })
}

fn plan(
    written: &Written,
    fetched: Option<KeyPair>,
    places: &Places<'_>,
) -> Result<(Option<Plan>, Option<SelfSigned>), Failure> {
    let makes_one = written.tls_self_signed.as_ref().filter(|said| said.value.0);
    let clients = clients(written, places)?;
    if let Some(pair) = fetched {
        let others = written.tls_cert.iter().chain(&written.tls_key).map(|said| (&said.place, "--tls-cert"));
        let mut others = others.chain(makes_one.map(|said| (&said.place, "--tls-self-signed")));
        return match others.next() {
            None => Ok((Some(Plan { identities: vec![pair], clients, ..Plan::default() }), None)),
            Some((place, flag)) => {
                let message = "there is a certificate already, by --acme; leave one of the two out";
                Err(places.error(place, flag, message))
            }
        };
    }
    match (&written.tls_cert[..], &written.tls_key[..], makes_one) {
        ([], [], None) => Ok((None, None)),
        ([], [], Some(said)) => {
            let folder = state_folder(written, &said.place, places)?.join("tls");
            let pair = KeyPair::self_signed(&folder);
            let made = SelfSigned { folder, names: names(written) };
            Ok((Some(Plan { identities: vec![pair], clients, ..Plan::default() }), Some(made)))
        }
        ([], [key, ..], _) => {
            let message = "a key alone is of no use; name its certificate with --tls-cert";
            Err(places.error(&key.place, "--tls-key", message))
        }
        (_, _, Some(said)) => {
            let message = "there is a certificate already, by --tls-cert; leave one of the two out";
            Err(places.error(&said.place, "--tls-self-signed", message))
        }
        (certificates, keys, None) => {
            let identities = pairs(certificates, keys, places)?;
            Ok((Some(Plan { identities, clients, ..Plan::default() }), None))
        }
    }
}

/// Adds the certificates of hosts, which may be the only ones.
fn with_hosts(plan: Option<Plan>, written: &Written, places: &Places<'_>) -> Result<Option<Plan>, Failure> {
    if written.host.iter().all(|host| host.tls_cert.is_none()) {
        return Ok(plan);
    }
    let mut plan = match plan {
        Some(plan) => plan,
        None => Plan { clients: clients(written, places)?, ..Plan::default() },
    };
    for host in &written.host {
        for pair in pairs(host.tls_cert.as_slice(), host.tls_key.as_slice(), places)? {
            plan.add(pair, host.addresses());
        }
    }
    Ok(Some(plan))
}

/// Certificates with the keys that stand at the same place of their list; without any, each file has its own.
fn pairs(
    certificates: &[Said<PathBuf>],
    keys: &[Said<PathBuf>],
    places: &Places<'_>,
) -> Result<Vec<KeyPair>, Failure> {
    let keys = match keys {
        [] => certificates,
        keys if keys.len() == certificates.len() => keys,
        keys => {
            let message = format!(
                "expected a key for each certificate, in the same order: there are {} and {}",
                counted(keys.len() as u64, "key"),
                counted(certificates.len() as u64, "certificate")
            );
            return Err(places.error(&keys[0].place, "--tls-key", &message));
        }
    };
    let pair = |(certificate, key): (&Said<PathBuf>, &Said<PathBuf>)| KeyPair {
        certificate: places.path(certificate),
        key: places.path(key),
    };
    Ok(certificates.iter().zip(keys).map(pair).collect())
}

fn clients(written: &Written, places: &Places<'_>) -> Result<Clients, Failure> {
    let requires = written.tls_client_cert.as_ref().is_some_and(|said| said.value.0);
    let Some(authorities) = &written.tls_client_ca else {
        let needs_one =
            written.tls_client_crl.first().map(|said| (&said.place, "tls-client-crl")).or_else(|| {
                written
                    .tls_client_cert
                    .as_ref()
                    .filter(|_| requires)
                    .map(|said| (&said.place, "tls-client-cert"))
            });
        return match needs_one {
            Some((place, key)) => {
                let message =
                    "who vouches for clients is not said; name their certificates with tls-client-ca";
                Err(places.error(place, key, message))
            }
            None => Ok(Clients::Anybody),
        };
    };
    let authorities = Authorities {
        certificates: places.path(authorities),
        revoked: written.tls_client_crl.iter().map(|said| places.path(said)).collect(),
    };
    Ok(if requires { Clients::Require(authorities) } else { Clients::Accept(authorities) })
}

/// A mistake in the files is told at once, where they were named.
fn mistake(error: &LoadError, written: &Written, places: &Places<'_>) -> Failure {
    let client_ca = written.tls_client_ca.as_slice();
    let keys = [
        (&written.tls_key[..], "--tls-key"),
        (&written.tls_cert, "--tls-cert"),
        (&written.tls_client_crl, "tls-client-crl"),
        (client_ca, "tls-client-ca"),
    ];
    let of_hosts = written
        .host
        .iter()
        .flat_map(|host| [(host.tls_key.as_slice(), "tls-key"), (host.tls_cert.as_slice(), "tls-cert")]);
    let named = keys.into_iter().chain(of_hosts).find_map(|(files, flag)| {
        let file = files.iter().find(|said| error.file() == Some(&places.path(said)))?;
        Some((&file.place, flag))
    });
    let (place, flag) = match (named, client_ca) {
        (Some(named), _) => named,
        (None, [said]) if matches!(error, LoadError::Verifier(_)) => (&said.place, "tls-client-ca"),
        _ => (written.tls_cert.first().map_or(&Place::CommandLine, |said| &said.place), "--tls-cert"),
    };
    places.error(place, flag, &error.to_string())
}

/// A key that asks for something of TLS where there is none.
fn idle(written: &Written) -> Option<(&Place, &'static str)> {
    let requires = written.tls_resumption.as_ref().filter(|said| said.value == Resumption::Require);
    let excuses = written.tls_close_notify.as_ref().filter(|said| !said.value.0);
    let clears = written.tls_ccc.as_ref().filter(|said| said.value.0);
    None.or(written.tls_names.first().map(|said| (&said.place, "tls-names")))
        .or(requires.map(|said| (&said.place, "tls-resumption")))
        .or(excuses.map(|said| (&said.place, "tls-close-notify")))
        .or(written.tls_close_notify_excused.first().map(|said| (&said.place, "tls-close-notify-excused")))
        .or(clears.map(|said| (&said.place, "tls-ccc")))
        .or(written.tls_client_ca.as_ref().map(|said| (&said.place, "tls-client-ca")))
}

fn listens(
    said: &[Said<Listen>],
    flag: &str,
    has_tls: bool,
    places: &Places<'_>,
) -> Result<Vec<SocketAddr>, Failure> {
    let mut addresses = Vec::new();
    for one in said {
        match one.value {
            Listen::Off if said.len() == 1 => {}
            Listen::Off => {
                return Err(places.error(&one.place, flag, "\"off\" cannot stand beside an address"));
            }
            Listen::On(_) if !has_tls => {
                let door = flag.trim_start_matches('-').to_uppercase();
                let message = format!(
                    "{door} needs a certificate: name one with --tls-cert and --tls-key, or have one made for a \
                     first try with --tls-self-signed"
                );
                return Err(places.error(&one.place, flag, &message));
            }
            Listen::On(address) if address.port() != 0 && addresses.contains(&address) => {
                return Err(places.error(&one.place, flag, &format!("{address} is named twice")));
            }
            Listen::On(address) => addresses.push(address),
        }
    }
    Ok(addresses)
}

/// Returns whether a switch wants TLS, which needs a certificate.
pub(super) fn encrypts(
    said: Option<Said<Switch>>,
    name: &str,
    has_tls: bool,
    places: &Places<'_>,
) -> Result<bool, Failure> {
    match said {
        Some(said) if is_on(Some(said.clone()), false) && !has_tls => {
            let message = "there is no certificate: name one with tls-cert and tls-key, or have one made for a first try \
                           with tls-self-signed";
            Err(places.error(&said.place, name, message))
        }
        said => Ok(is_on(said, false)),
    }
}

/// The state folder.
pub(super) fn state_folder(
    written: &Written,
    asker: &Place,
    places: &Places<'_>,
) -> Result<PathBuf, Failure> {
    if let Some(said) = &written.state {
        return Ok(places.path(said));
    }
    let from = |name: &str| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    // What systemd gives to a unit with StateDirectory=, else what the XDG base directories say.
    from("STATE_DIRECTORY")
        .or_else(|| from("XDG_STATE_HOME").map(|folder| folder.join("millrace")))
        .or_else(|| from("HOME").map(|folder| folder.join(".local/state/millrace")))
        .ok_or_else(|| {
            let message =
                "there is no folder to keep the certificate in, as HOME is not set; name one with --state";
            places.error(asker, "--tls-self-signed", message)
        })
}

/// The names that clients know the server by.
fn names(written: &Written) -> Vec<String> {
    if !written.tls_names.is_empty() {
        return written.tls_names.iter().map(|said| said.value.clone()).collect();
    }
    let mut names = vec!["localhost".to_owned(), "127.0.0.1".to_owned(), "::1".to_owned()];
    let own = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().to_owned();
    let is_name = |name: &str| {
        !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-.".contains(&byte))
    };
    names.extend(Some(own).filter(|own| is_name(own) && own != "localhost"));
    names.extend(written.public_ip.as_ref().map(|said| said.value.to_string()));
    names
}
