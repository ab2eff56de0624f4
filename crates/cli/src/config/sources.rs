//! `[[source]]` tables: accounts that are kept elsewhere, asked in the order of the tables.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use millrace_server::auth::{Asked, Chain, Service};
use serde::Deserialize;

use super::resolve::Places;
use super::said::{Said, one_or_more};
use super::value::Period;
use crate::failure::Failure;

/// How long an answer may take.
const TIMEOUT: Duration = Duration::from_secs(5);

/// How long a login that was let in is let in again unasked.
const CACHE: Duration = Duration::from_secs(60);

/// A `[[source]]` table: one of the keys that say where, and what that takes.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub(crate) struct SourceTable {
    /// A program and its arguments.
    #[serde(deserialize_with = "one_or_more")]
    program: Vec<Said<String>>,
    /// The URL of a web service.
    call: Option<Said<String>>,
    /// Headers that go with a call: `Name: value`.
    #[serde(deserialize_with = "one_or_more")]
    header: Vec<Said<String>>,
    /// Certificates that the service's has to be signed by.
    ca: Option<Said<PathBuf>>,
    timeout: Option<Said<Period>>,
    cache: Option<Said<Period>>,
}

/// Adds the sources to a chain; what they are is told as it is for logins.
pub(super) fn add(
    tables: Vec<SourceTable>,
    mut chain: Chain,
    places: &Places<'_>,
) -> Result<(Chain, Vec<String>), Failure> {
    let mut told = Vec::new();
    for table in tables {
        let (asked, what) = match (table.program.first(), &table.call) {
            (Some(program), None) => {
                let words = table.program.iter().map(|word| word.value.clone()).collect();
                let asked = Asked::program(words, timeout(&table, places)?, cache(&table));
                (asked, format!("whom {} knows", program.value))
            }
            (None, Some(url)) => {
                let service = service(&table, url, places)?;
                let asked = Asked::call(service, timeout(&table, places)?, cache(&table))
                    .map_err(|why| places.error(&url.place, "call", &why))?;
                (asked, format!("whom {} knows", url.value))
            }
            (Some(both), Some(_)) => {
                return Err(places.error(
                    &both.place,
                    "source",
                    "a [[source]] has either `program` or `call`",
                ));
            }
            (None, None) => {
                let message = "a [[source]] table has neither `program` nor `call`";
                return Err(Failure::Configuration(format!("{message}.")));
            }
        };
        chain = chain.source(asked);
        told.push(what);
    }
    Ok((chain, told))
}

fn timeout(table: &SourceTable, places: &Places<'_>) -> Result<Duration, Failure> {
    places.some_time(table.timeout.clone(), "timeout", TIMEOUT)
}

fn cache(table: &SourceTable) -> Duration {
    table.cache.as_ref().map_or(CACHE, |said| said.value.0)
}

fn service(table: &SourceTable, url: &Said<String>, places: &Places<'_>) -> Result<Service, Failure> {
    let header = |said: &Said<String>| match said.value.split_once(':') {
        Some((name, value)) => Ok((name.trim().to_owned(), value.trim().to_owned())),
        None => Err(places.error(&said.place, "header", "write a header as \"Name: value\"")),
    };
    let roots = |said: &Said<PathBuf>| {
        let path = places.path(said);
        fs::read(&path).map_err(|error| {
            places.error(&said.place, "ca", &format!("{} cannot be read: {error}", path.display()))
        })
    };
    Ok(Service {
        url: url.value.clone(),
        headers: table.header.iter().map(header).collect::<Result<_, _>>()?,
        roots: table.ca.as_ref().map(roots).transpose()?,
    })
}
