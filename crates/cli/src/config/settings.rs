//! Single settings: what each may be, and what it is where nothing is said.

use std::path::PathBuf;
use std::time::Duration;

use millrace_server::auth::Password;
use millrace_server::config;
use millrace_server::limits::{Limit, NetworkBits};

use super::obstacles;
use super::places::Places;
use super::said::Said;
use super::value::{Count, LogFormat, Period, Switch};
use crate::failure::Failure;

pub(super) fn workers(said: Option<Said<Count>>, places: &Places<'_>) -> Result<usize, Failure> {
    const MOST: usize = 1024;
    match said {
        Some(said) if said.value.0 > MOST => {
            let message = format!("expected at most {MOST}; one for each core is best, and the default");
            Err(places.error(&said.place, "--workers", &message))
        }
        said => Ok(count(said, 0)),
    }
}

pub(super) fn login_attempts(
    said: Option<Said<Count>>,
    default: u32,
    places: &Places<'_>,
) -> Result<u32, Failure> {
    let attempts = places.at_least_one(said, "login-attempts", default as usize)?;
    Ok(u32::try_from(attempts).unwrap_or(u32::MAX))
}

/// How large the networks are of which sessions are counted.
pub(super) fn network_bits(
    ipv4: Option<Said<Count>>,
    ipv6: Option<Said<Count>>,
    default: NetworkBits,
    places: &Places<'_>,
) -> Result<NetworkBits, Failure> {
    let bits = |said: Option<Said<Count>>, key: &str, default: u8, most: u8| match said {
        None => Ok(default),
        Some(said) => {
            u8::try_from(said.value.0).ok().filter(|bits| (1..=most).contains(bits)).ok_or_else(|| {
                places.error(
                    &said.place,
                    key,
                    &format!("expected 1 to {most}: how many bits are the network's"),
                )
            })
        }
    };
    Ok(NetworkBits {
        ipv4: bits(ipv4, "network-bits-ipv4", default.ipv4, 32)?,
        ipv6: bits(ipv6, "network-bits-ipv6", default.ipv6, 128)?,
    })
}

/// None where nothing is said.
pub(super) fn any_limit(said: Option<Said<Limit>>) -> Limit {
    said.map(|said| said.value).unwrap_or_default()
}

pub(super) fn cpu_limit(said: Option<Said<Limit>>, places: &Places<'_>) -> Result<Limit, Failure> {
    match said {
        Some(said) if said.value.most() > 100 => {
            Err(places.error(&said.place, "cpu-limit", "expected at most 100: percent of all processors"))
        }
        said => Ok(any_limit(said)),
    }
}

pub(super) fn shutdown_password(
    said: Option<Said<String>>,
    places: &Places<'_>,
) -> Result<Option<Password>, Failure> {
    said.map(|said| {
        Password::hashed(&said.value).map_err(|error| {
            let message = format!("{error}. Run `millrace hash-password` and write here what it prints");
            places.error(&said.place, "shutdown-password", &message)
        })
    })
    .transpose()
}

pub(super) fn greeting(
    said: Option<Said<String>>,
    default: String,
    places: &Places<'_>,
) -> Result<String, Failure> {
    match said {
        None => Ok(default),
        Some(said) if said.value.contains(char::is_control) => Err(places.error(
            &said.place,
            "greeting",
            "expected one line of text, without control characters",
        )),
        Some(said) => Ok(said.value),
    }
}

/// A transfer log that could be written to now, without touching it.
pub(super) fn xferlog(said: Option<Said<PathBuf>>, places: &Places<'_>) -> Result<Option<PathBuf>, Failure> {
    let Some(said) = said else { return Ok(None) };
    let path = places.path(&said);
    match obstacles::file(&path) {
        Ok(()) => Ok(Some(path)),
        Err(message) => Err(places.error(&said.place, "--xferlog", &message)),
    }
}

pub(super) fn log(quiet: Option<Said<Switch>>, format: Option<Said<LogFormat>>) -> config::LogFormat {
    match (is_on(quiet, false), format.map(|said| said.value)) {
        (true, Some(LogFormat::Json)) => config::LogFormat::JsonWarnings,
        (true, _) => config::LogFormat::Warnings,
        (false, Some(LogFormat::Json)) => config::LogFormat::Json,
        (false, Some(LogFormat::Text) | None) => config::LogFormat::Text,
    }
}

pub(super) fn is_on(said: Option<Said<Switch>>, default: bool) -> bool {
    said.map_or(default, |said| said.value.0)
}

pub(super) fn count(said: Option<Said<Count>>, default: usize) -> usize {
    said.map_or(default, |said| said.value.0)
}

pub(super) fn period(said: Option<Said<Period>>, default: Duration) -> Duration {
    said.map_or(default, |said| said.value.0)
}
