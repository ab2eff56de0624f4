//! `[[source]]` tables: accounts that are kept elsewhere, asked in the order of the tables.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use millrace_server::auth::{self, Asked, Chain, Ldap, Pam, Service, Source, Sql};
use millrace_terminal::Failure;

use super::error::ValueError;
use super::places::Places;
use super::said::{Place, Said};
use super::setting::{default, settings, unset};
use super::slot::{Many, One, is_on};
use super::value::{Period, Switch, Value};

/// How long an answer may take.
const TIMEOUT: Duration = Duration::from_secs(5);

/// How long a successful login is cached.
const CACHE: Duration = Duration::from_secs(60);

settings! {
    /// A `[[source]]` table: one of the keys that say where, and what that takes.
    SourceTable of "source" {
        /// A program and its arguments, run for each login: `["/usr/local/bin/logins", "--json"]`
        program: Many<String> = unset("none");
        /// The URL of a web service, `http://` or `https://`, that gets a POST for each login
        call: One<String> = unset("none");
        /// Headers that go with a call, one or an array: `"Authorization: Bearer 5e9f"`
        header: Many<String> = unset("none");
        /// The connection string of a PostgreSQL database: `"host=/run/postgresql user=millrace
        /// dbname=accounts"`, or a URL
        postgres: One<String> = unset("none");
        /// The URL of a MySQL or MariaDB database: `"mysql://millrace@db.example.org/accounts"`
        mysql: One<String> = unset("none");
        /// What to ask the database, with the name as its parameter. Without it: a table of Millrace's own.
        query: One<String> = unset("none");
        /// The URL of a directory, `ldap://`, `ldaps://` or `ldapi://`
        ldap: One<String> = unset("none");
        /// Whether an `ldap://` connection is encrypted before anything else is sent on it
        start_tls: One<Switch> = default("false");
        /// The entry that searches. Without it the search is anonymous.
        bind: One<String> = unset("none");
        /// Beneath which entry the users are. Required with `ldap`.
        base: One<String> = unset("none");
        /// The attribute that is the user's name
        name: One<String> = default("uid");
        /// A further condition for users: `"(objectClass=person)"`
        filter: One<String> = unset("none");
        /// A filter that finds the user's groups, with `{dn}` and `{user}`: `"(member={dn})"`. With `pam`, the
        /// groups of all its users: `"customers"`.
        groups: One<String> = unset("none");
        /// Beneath which entry the groups are; without it, where the users are
        group_base: One<String> = unset("none");
        /// Settings and the attributes that have them, an array: `["directory=homeDirectory"]`
        attributes: Many<String> = unset("none");
        /// A service of PAM: the name of a file in `/etc/pam.d`, or `true` for `"millrace"`
        pam: One<PamService> = unset("none");
        /// Whether the home, the groups and the rights to files that the system has for a user apply here
        passwd: One<Switch> = default("false");
        /// A file whose first line is the password with which the database or directory is asked
        password_file: One<PathBuf> = unset("none");
        /// A file of CA certificates in PEM, one of which has to have signed the certificate of the service,
        /// database or directory. Without it: those that browsers trust.
        ca: One<PathBuf> = unset("none");
        /// How long an answer may take. Then the login is refused with 421.
        timeout: One<Period> = default("5s").positive();
        /// How long a login that a program, call or service accepted is accepted again without asking, and a
        /// password that a directory accepted is not tried again. 0: always asks.
        cache: One<Period> = default("1m");
    }
}

impl SourceTable {
    /// The service of PAM that is asked, and whether files are used with the rights of its users.
    pub(super) fn pam_service(&self) -> Option<(&str, bool)> {
        let service = &self.pam.as_ref()?.value.0;
        Some((service, is_on(self.passwd.clone(), false)))
    }

    /// Files that are read for it.
    pub(super) fn files(&self) -> impl Iterator<Item = &Said<PathBuf>> {
        [&self.password_file, &self.ca].into_iter().flatten()
    }

    /// The program and its arguments, where there is one.
    pub(super) fn words(&self, places: &Places<'_>) -> Vec<String> {
        let mut words: Vec<String> = self.program.iter().map(|word| word.value.clone()).collect();
        if let Some(folder) = self.program.first().and_then(|program| places.folder_of_program(program)) {
            // It runs in another folder than the server does, from which a relative name would not find it.
            let path = folder.join(&words[0]);
            words[0] = std::path::absolute(&path).unwrap_or(path).display().to_string();
        }
        words
    }
}

/// A key that was written.
type Written<'a> = (&'static str, &'a Place);

/// Beside `timeout`, what goes with which key that says where.
const KINDS: [(&str, &[&str]); 6] = [
    ("program", &["cache"]),
    ("call", &["header", "ca", "cache"]),
    ("postgres", &["query", "password-file", "ca"]),
    ("mysql", &["query", "password-file", "ca"]),
    (
        "ldap",
        &[
            "start-tls",
            "bind",
            "base",
            "name",
            "filter",
            "groups",
            "group-base",
            "attributes",
            "password-file",
            "ca",
            "cache",
        ],
    ),
    ("pam", &["groups", "passwd", "cache"]),
];

/// The name of a service of PAM.
#[derive(Debug, Clone)]
pub(crate) struct PamService(String);

impl Value for PamService {
    const EXPECTED: &'static str = "the name of a service, such as \"millrace\"";

    fn from_text(text: &str) -> Result<Self, ValueError> {
        match text {
            // The library would take the rest of a path for the name.
            "" => Err(ValueError::EmptyService),
            _ if text.contains(['/', '\0']) => Err(ValueError::Form {
                text: text.to_owned(),
                expected: "the name of a service, which is that of a file in /etc/pam.d",
            }),
            _ => Ok(Self(text.to_owned())),
        }
    }

    fn from_bool(value: bool) -> Option<Self> {
        value.then(|| Self("millrace".to_owned()))
    }
}

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
            ("mysql", place(self.mysql.as_ref())),
            ("ldap", place(self.ldap.as_ref())),
            ("pam", place(self.pam.as_ref())),
            ("passwd", place(self.passwd.as_ref())),
            ("query", place(self.query.as_ref())),
            ("start-tls", place(self.start_tls.as_ref())),
            ("bind", place(self.bind.as_ref())),
            ("base", place(self.base.as_ref())),
            ("name", place(self.name.as_ref())),
            ("filter", place(self.filter.as_ref())),
            ("groups", place(self.groups.as_ref())),
            ("group-base", place(self.group_base.as_ref())),
            ("attributes", place(self.attributes.first())),
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

/// Adds the sources to a chain, for the served folder and the known groups, with their descriptions.
pub(super) fn add(
    tables: Vec<SourceTable>,
    mut chain: Chain,
    directory: &Path,
    known: &HashSet<String>,
    places: &Places<'_>,
) -> Result<(Chain, Vec<String>), Failure> {
    let mut told = Vec::new();
    for table in tables {
        table.check(places)?;
        let time = table.timeout.as_ref().map_or(TIMEOUT, |said| said.value.0);
        let what;
        (chain, what) = if let Some(program) = table.program.first() {
            places.find_program(program, "program")?;
            let words = table.words(places);
            (chain.source(Asked::program(words, time, cache(&table))), program.value.clone())
        } else if let Some(url) = &table.call {
            let service = service(&table, url, places)?;
            let asked = Asked::call(service, time, cache(&table))
                .map_err(|why| places.error(&url.place, "call", &why))?;
            (chain.source(asked), url.value.clone())
        } else if let Some(said) = &table.postgres {
            named(chain, auth::postgres(&sql(&table, said, time, places)?), said, places)?
        } else if let Some(said) = &table.mysql {
            named(chain, auth::mysql(&sql(&table, said, time, places)?), said, places)?
        } else if let Some(said) = &table.ldap {
            named(chain, auth::ldap(&ldap(&table, said, time, places)?), said, places)?
        } else if let Some(said) = &table.pam {
            let source = auth::pam(&pam(&table, said, time, directory, known, places)?);
            let name = source.name().to_owned();
            (chain.source(source), name)
        } else {
            unreachable!("it was checked that there is one of them")
        };
        told.push(format!("whom {what} knows"));
    }
    Ok((chain, told))
}

/// Adds a source that has a name to be told by.
fn named(
    chain: Chain,
    source: Result<impl Source + 'static, auth::SetupError>,
    said: &Said<String>,
    places: &Places<'_>,
) -> Result<(Chain, String), Failure> {
    let source = source.map_err(|why| places.error(&said.place, "source", &why))?;
    let name = source.name().to_owned();
    Ok((chain.source(source), name))
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
        password: password(table.password_file.as_ref(), places)?,
        roots: read(table.ca.as_ref(), "ca", places)?,
        query: table.query.as_ref().map(|said| said.value.clone()),
        time,
    })
}

fn ldap(
    table: &SourceTable,
    url: &Said<String>,
    time: Duration,
    places: &Places<'_>,
) -> Result<Ldap, Failure> {
    let text = |said: &Option<Said<String>>| said.as_ref().map(|said| said.value.clone());
    let base = text(&table.base).ok_or_else(|| {
        places.error(
            &url.place,
            "base",
            "`base` is missing: beneath what the users are, \"ou=people,dc=example,dc=org\"",
        )
    })?;
    let bind = match (&table.bind, password(table.password_file.as_ref(), places)?) {
        (None, None) => None,
        (Some(dn), Some(password)) => Some((dn.value.clone(), password)),
        (dn, _) => {
            let place = dn.as_ref().map_or(&url.place, |dn| &dn.place);
            return Err(places.error(place, "bind", "`bind` and `password-file` go together"));
        }
    };
    let attribute = |said: &Said<String>| match said.value.split_once('=') {
        Some((key, attribute)) => Ok((key.trim().to_owned(), attribute.trim().to_owned())),
        None => Err(places.error(
            &said.place,
            "attributes",
            "write \"SETTING=ATTRIBUTE\", such as \"directory=homeDirectory\"",
        )),
    };
    Ok(Ldap {
        url: url.value.clone(),
        start_tls: is_on(table.start_tls.clone(), false),
        roots: read(table.ca.as_ref(), "ca", places)?,
        bind,
        base,
        name: text(&table.name).unwrap_or_else(|| "uid".to_owned()),
        filter: text(&table.filter),
        groups: text(&table.groups),
        group_base: text(&table.group_base),
        attributes: table.attributes.iter().map(attribute).collect::<Result<_, _>>()?,
        time,
        cache: cache(table),
    })
}

fn pam(
    table: &SourceTable,
    service: &Said<PamService>,
    time: Duration,
    directory: &Path,
    known: &HashSet<String>,
    places: &Places<'_>,
) -> Result<Pam, Failure> {
    let named =
        table.groups.iter().flat_map(|said| said.value.split(',').map(move |name| (name.trim(), said)));
    if let Some((unknown, said)) = named.clone().find(|(name, _)| !known.contains(*name)) {
        let message = format!("there is no group {unknown}; write a [[group]] table of that name");
        return Err(places.error(&said.place, "groups", &message));
    }
    let groups = named.map(|(name, _)| name.to_owned()).collect();
    let passwd = is_on(table.passwd.clone(), false).then(|| directory.to_owned());
    Ok(Pam { service: service.value.0.clone(), groups, passwd, time, cache: cache(table) })
}

/// The first line of the file.
pub(super) fn password(file: Option<&Said<PathBuf>>, places: &Places<'_>) -> Result<Option<String>, Failure> {
    let Some(said) = file else { return Ok(None) };
    let wrong = |message| places.error(&said.place, "password-file", message);
    let bytes = read(Some(said), "password-file", places)?.unwrap_or_default();
    let text = String::from_utf8(bytes).map_err(|_| wrong("the password is not UTF-8"))?;
    match text.lines().next() {
        None | Some("") => Err(wrong("there is no password in its first line")),
        Some(password) => Ok(Some(password.to_owned())),
    }
}

pub(super) fn read(
    said: Option<&Said<PathBuf>>,
    key: &str,
    places: &Places<'_>,
) -> Result<Option<Vec<u8>>, Failure> {
    let Some(said) = said else { return Ok(None) };
    let path = places.path(said);
    fs::read(&path).map(Some).map_err(|error| {
        places.error(&said.place, key, &format!("{} cannot be read: {error}", path.display()))
    })
}
