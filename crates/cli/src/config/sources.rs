//! `[[source]]` tables: accounts that are kept elsewhere, asked in the order of the tables.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use millrace_server::auth::{self, Asked, Chain, Service, Source, Sql};
use serde::Deserialize;

use super::resolve::Places;
use super::said::{Place, Said, one_or_more};
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
    /// The connection string of a PostgreSQL database.
    postgres: Option<Said<String>>,
    /// What to ask a database.
    query: Option<Said<String>>,
    /// Holds the password with which a database is asked.
    password_file: Option<Said<PathBuf>>,
    /// Certificates that the server's has to be signed by.
    ca: Option<Said<PathBuf>>,
    timeout: Option<Said<Period>>,
    cache: Option<Said<Period>>,
}

/// A key that was written.
type Written<'a> = (&'static str, &'a Place);

/// Beside `timeout`, what goes with which key that says where.
const KINDS: [(&str, &[&str]); 3] = [
    ("program", &["cache"]),
    ("call", &["header", "ca", "cache"]),
    ("postgres", &["query", "password-file", "ca"]),
];

impl SourceTable {
    /// The keys that were written, but `timeout`.
    fn written(&self) -> Vec<Written<'_>> {
        fn place<T>(said: Option<&Said<T>>) -> Option<&Place> {
            said.map(|said| &said.place)
        }
        let all = [
            ("program", place(self.program.first())),
            ("call", place(self.call.as_ref())),
            ("header", place(self.header.first())),
            ("postgres", place(self.postgres.as_ref())),
            ("query", place(self.query.as_ref())),
            ("password-file", place(self.password_file.as_ref())),
            ("ca", place(self.ca.as_ref())),
            ("cache", place(self.cache.as_ref())),
        ];
        all.into_iter().filter_map(|(key, place)| Some((key, place?))).collect()
    }

    /// Refuses a table that says where twice, or never, or something that has no meaning there.
    fn check(&self, places: &Places<'_>) -> Result<(), Failure> {
        let written = self.written();
        let kind_of = |key: &str| KINDS.iter().find(|(kind, _)| *kind == key);
        let mut kinds = written.iter().filter_map(|(key, place)| Some((kind_of(key)?, *place)));
        let Some(((kind, keys), _)) = kinds.next() else {
            let kinds: Vec<String> = KINDS.iter().map(|(kind, _)| format!("`{kind}`")).collect();
            let message = format!("A [[source]] table needs one of {}", kinds.join(", "));
            return Err(match written.first() {
                Some((_, place)) => places.error(place, "source", &message),
                None => Failure::Configuration(format!("{message}.")),
            });
        };
        if let Some(((other, _), place)) = kinds.next() {
            let message = format!("a [[source]] has either `{kind}` or `{other}`");
            return Err(places.error(place, "source", &message));
        }
        match written.iter().find(|(key, _)| key != kind && !keys.contains(key)) {
            Some((key, place)) => Err(places.error(
                place,
                "source",
                &format!("`{key}` means nothing to a source with `{kind}`"),
            )),
            None => Ok(()),
        }
    }
}

/// Adds the sources to a chain; what they are is told as it is for logins.
pub(super) fn add(
    tables: Vec<SourceTable>,
    mut chain: Chain,
    places: &Places<'_>,
) -> Result<(Chain, Vec<String>), Failure> {
    let mut told = Vec::new();
    for table in tables {
        table.check(places)?;
        let time = places.some_time(table.timeout.clone(), "timeout", TIMEOUT)?;
        let what;
        (chain, what) = if let Some(program) = table.program.first() {
            let words = table.program.iter().map(|word| word.value.clone()).collect();
            (chain.source(Asked::program(words, time, cache(&table))), program.value.clone())
        } else if let Some(url) = &table.call {
            let service = service(&table, url, places)?;
            let asked = Asked::call(service, time, cache(&table))
                .map_err(|why| places.error(&url.place, "call", &why))?;
            (chain.source(asked), url.value.clone())
        } else if let Some(postgres) = &table.postgres {
            let source = auth::postgres(&sql(&table, postgres, time, places)?)
                .map_err(|why| places.error(&postgres.place, "postgres", &why))?;
            let name = source.name().to_owned();
            (chain.source(source), name)
        } else {
            unreachable!("it was checked that there is one of them")
        };
        told.push(format!("whom {what} knows"));
    }
    Ok((chain, told))
}

fn cache(table: &SourceTable) -> Duration {
    table.cache.as_ref().map_or(CACHE, |said| said.value.0)
}

fn service(table: &SourceTable, url: &Said<String>, places: &Places<'_>) -> Result<Service, Failure> {
    let header = |said: &Said<String>| match said.value.split_once(':') {
        Some((name, value)) => Ok((name.trim().to_owned(), value.trim().to_owned())),
        None => Err(places.error(&said.place, "header", "write a header as \"Name: value\"")),
    };
    Ok(Service {
        url: url.value.clone(),
        headers: table.header.iter().map(header).collect::<Result<_, _>>()?,
        roots: read(table.ca.as_ref(), "ca", places)?,
    })
}

fn sql(
    table: &SourceTable,
    connection: &Said<String>,
    time: Duration,
    places: &Places<'_>,
) -> Result<Sql, Failure> {
    Ok(Sql {
        connection: connection.value.clone(),
        password: password(table, places)?,
        roots: read(table.ca.as_ref(), "ca", places)?,
        query: table.query.as_ref().map(|said| said.value.clone()),
        time,
    })
}

/// The first line of the file.
fn password(table: &SourceTable, places: &Places<'_>) -> Result<Option<String>, Failure> {
    let Some(said) = &table.password_file else { return Ok(None) };
    let wrong = |message| places.error(&said.place, "password-file", message);
    let bytes = read(Some(said), "password-file", places)?.unwrap_or_default();
    let text = String::from_utf8(bytes).map_err(|_| wrong("the password is not UTF-8"))?;
    match text.lines().next() {
        None | Some("") => Err(wrong("there is no password in its first line")),
        Some(password) => Ok(Some(password.to_owned())),
    }
}

fn read(said: Option<&Said<PathBuf>>, key: &str, places: &Places<'_>) -> Result<Option<Vec<u8>>, Failure> {
    let Some(said) = said else { return Ok(None) };
    let path = places.path(said);
    fs::read(&path).map(Some).map_err(|error| {
        places.error(&said.place, key, &format!("{} cannot be read: {error}", path.display()))
    })
}
