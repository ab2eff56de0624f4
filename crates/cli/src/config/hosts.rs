//! `[[host]]` tables: names and addresses at which other trees are served, by HTTP and FTP alike.

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::Arc;

use millrace_server::auth::{Chain, Database, Homes, HostAddress, HostName, KnownBy, Listed, VirtualHost};
use millrace_server::config::FtpHost;
use millrace_server::limits::Limit;
use millrace_storage::LocalOptions;
use millrace_terminal::Failure;

use super::error::ValueError;
use super::places::Places;
use super::said::Said;
use super::setting::{required, settings, unset};
use super::slot::{Many, One};
use super::texts::text_file;
use super::value::{Line, Switch, Value};

settings! {
    /// A `[[host]]` table.
    HostTable of "host" {
        /// The name, or an array of names: `"files.example.org"`, `"*.example.org"`
        names: Many<String> = unset("none");
        /// Addresses of this computer, one or an array, each with or without a port: `"192.0.2.7"`,
        /// `"192.0.2.8:2121"`, `"[2001:db8::7]:990"`. A client that says none of the `names` of any host belongs to the
        /// host of the address that it came to; one with the port goes before one without. A proxy's header
        /// (`proxy-from`) says which address that is.
        addresses: Many<HostAddress> = unset("none");
        /// The folder that is served there; users' folders lie in it
        directory: Said<PathBuf> = required();
        /// A database of users that log in there, and nowhere else; other users do not log in there. `[[user]]` tables with
        /// this `host` are such users, too.
        users: One<PathBuf> = unset("those of the top level");
        /// Whether `anonymous` may log in there; by what `anonymous` of the top level lets it do, or else to read
        anonymous: One<Switch> = unset("as at the top level");
        /// Sessions there, of users that are logged in: `"100; mon-fri 08:00-18:00 20"`
        sessions: One<Limit> = unset("none");
        /// Bytes a second to all of them together
        download: One<Limit> = unset("none");
        /// The same from them
        upload: One<Limit> = unset("none");
        /// The text of the first reply of FTP, one line, to clients that come to the address, or name the host by SNI
        /// at a port of `ftps`
        greeting: One<Line> = unset("that of the top level");
        /// A file whose lines come before that
        greeting_file: One<PathBuf> = unset("that of the top level");
        /// A file whose lines are told behind a login by FTP
        welcome_file: One<PathBuf> = unset("that of the top level");
        /// A file whose lines are told to a client that a limit on sessions turns away at its login
        limit_file: One<PathBuf> = unset("that of the top level");
        /// Its certificate in PEM: for clients that ask for one of the names in it, or come to one of `addresses` and name
        /// no server
        tls_cert: One<PathBuf> = unset("those of the top level");
        /// Its private key in PEM
        tls_key: One<PathBuf> = unset("in the same file");
        /// A file for its transfers alone, in the format of wu-ftpd; those of other hosts go to `xferlog` of the top level.
        /// A change takes effect at the next start
        xferlog: One<PathBuf> = unset("that of the top level");
        /// The IPv4 address that `PASV` tells its clients
        public_ip: One<Ipv4Addr> = unset("that of the top level");
    }
}

/// A host as written: its part of the accounts, what FTP says there, and its own users.
#[derive(Debug)]
pub(crate) struct Host {
    pub(crate) tree: VirtualHost,
    pub(crate) ftp: FtpHost,
    users: Option<Database>,
    /// Those of `[[user]]` tables that name it.
    pub(crate) listed: Option<Listed>,
}

impl Host {
    /// Returns whether one of its names or addresses is this.
    pub(crate) fn is_called(&self, text: &str) -> bool {
        let KnownBy { names, addresses } = &self.tree.known_by;
        HostName::parse(text).is_ok_and(|name| names.contains(&name))
            || text.parse().is_ok_and(|address| addresses.contains(&address))
    }

    /// Returns its first name, or else its first address.
    pub(crate) fn first(&self) -> String {
        self.tree.known_by.first()
    }

    /// Returns its folders.
    pub(crate) fn homes(&self) -> &Arc<Homes> {
        &self.tree.homes
    }

    /// Returns whether it has users that no other host has.
    pub(crate) fn has_own_users(&self) -> bool {
        self.users.is_some() || self.listed.is_some()
    }

    /// Adds it to the accounts.
    pub(crate) fn add_to(self, accounts: Chain) -> Chain {
        let accounts = accounts.host(self.tree);
        let accounts = match self.listed {
            Some(listed) => accounts.source_of_host(listed),
            None => accounts,
        };
        match self.users {
            Some(users) => accounts.source_of_host(users),
            None => accounts,
        }
    }
}

impl Value for HostAddress {
    const EXPECTED: &'static str = "an address, such as \"192.0.2.7\" or \"192.0.2.7:2121\"";

    fn from_text(text: &str) -> Result<Self, ValueError> {
        Ok(text.parse()?)
    }
}

/// Hosts as written; no name or address may be two hosts'.
pub(crate) fn hosts(
    tables: &[HostTable],
    options: LocalOptions,
    places: &Places<'_>,
) -> Result<Vec<Host>, Failure> {
    let mut hosts: Vec<Host> = Vec::new();
    for table in tables {
        let known_by = known_by(table, places)?;
        refuse_shared(&hosts, table, &known_by, places)?;
        let anonymous = table.anonymous.as_ref().map(|said| said.value.0);
        let lines = |said: &One<PathBuf>, key| {
            said.as_ref().map(|said| text_file(Some(said), key, places)).transpose()
        };
        let ftp = FtpHost {
            known_by: known_by.clone(),
            greeting: table.greeting.as_ref().map(|said| said.value.clone().into()),
            greeting_lines: lines(&table.greeting_file, "greeting-file")?,
            welcome_lines: lines(&table.welcome_file, "welcome-file")?,
            limit_lines: lines(&table.limit_file, "limit-file")?,
            public_ip: table.public_ip.as_ref().map(|said| said.value),
            anonymous,
            transfer_log: table.xferlog.as_ref().map(|said| places.path(said).into()),
        };
        let users = users(table.users.as_ref(), places)?;
        let homes = Arc::new(homes(table, options, places)?);
        let limits = super::limits::both(&table.download, &table.upload, &table.sessions);
        hosts.push(Host {
            tree: VirtualHost { known_by, homes, anonymous, limits },
            ftp,
            users,
            listed: None,
        });
    }
    Ok(hosts)
}

/// The users of a host alone; `None` where it has those of the top level.
fn users(said: Option<&Said<PathBuf>>, places: &Places<'_>) -> Result<Option<Database>, Failure> {
    let Some(said) = said else { return Ok(None) };
    match super::database::open(Some(said), places)? {
        Some((users, _)) => Ok(Some(users)),
        None => {
            let message = "a host has the users of a database, or those of the top level: name a file, or write `host` into [[user]] tables";
            Err(places.error(&said.place, "users", message))
        }
    }
}

/// What a host is known by: at least one name or address.
fn known_by(table: &HostTable, places: &Places<'_>) -> Result<KnownBy, Failure> {
    let names = names(&table.names, "names", places)?;
    let addresses: Vec<_> = table.addresses().collect();
    if names.is_empty() && addresses.is_empty() {
        let message = "no client could reach this host: write `names` or `addresses` into its table";
        return Err(places.error(&table.directory.place, "host", message));
    }
    Ok(KnownBy { names, addresses })
}

/// Refuses a name or an address that an earlier host has.
fn refuse_shared(
    hosts: &[Host],
    table: &HostTable,
    known_by: &KnownBy,
    places: &Places<'_>,
) -> Result<(), Failure> {
    let others = || hosts.iter().map(|host| &host.tree.known_by);
    let has_name = |name: &HostName| others().any(|other| other.names.contains(name));
    if let Some((name, said)) = known_by.names.iter().zip(&table.names).find(|(name, _)| has_name(name)) {
        let message = format!("there are two hosts of the name {name}");
        return Err(places.error(&said.place, "names", &message));
    }
    let has_address = |said: &&Said<HostAddress>| others().any(|other| other.addresses.contains(&said.value));
    match table.addresses.iter().find(has_address) {
        Some(said) => {
            let message = format!("there are two hosts at the address {}", said.value);
            Err(places.error(&said.place, "addresses", &message))
        }
        None => Ok(()),
    }
}

/// Names as written.
pub(crate) fn names(said: &[Said<String>], key: &str, places: &Places<'_>) -> Result<Vec<HostName>, Failure> {
    let name = |said: &Said<String>| {
        HostName::parse(&said.value).map_err(|error| places.error(&said.place, key, &error.to_string()))
    };
    said.iter().map(name).collect()
}

impl HostTable {
    /// The addresses.
    pub(crate) fn addresses(&self) -> impl Iterator<Item = HostAddress> {
        self.addresses.iter().map(|said| said.value)
    }

    /// Returns whether one of the names and addresses is written like this.
    pub(crate) fn is_written_as(&self, text: &str) -> bool {
        self.names.iter().any(|said| said.value.eq_ignore_ascii_case(text))
            || self.addresses().any(|address| text.parse() == Ok(address))
    }

    /// The names and addresses, as they are told.
    pub(crate) fn shown(&self) -> String {
        let names = self.names.iter().map(|said| said.value.clone());
        let all: Vec<String> =
            names.chain(self.addresses.iter().map(|said| said.value.to_string())).collect();
        all.join(", ")
    }
}

fn homes(table: &HostTable, options: LocalOptions, places: &Places<'_>) -> Result<Homes, Failure> {
    let path = places.path(&table.directory);
    match path.canonicalize() {
        Ok(found) if found.is_dir() => Ok(Homes::new(found, options)),
        found => {
            let why = found.err().map_or("it is no folder".to_owned(), |error| error.to_string());
            let message =
                format!("the folder {} of {} cannot be served: {why}", path.display(), table.shown());
            Err(places.error(&table.directory.place, "directory", &message))
        }
    }
}
