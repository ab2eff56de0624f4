//! `[[host]]` tables: names and addresses at which other trees are served, by HTTP and FTP alike.

use std::path::PathBuf;
use std::sync::Arc;

use millrace_server::auth::{Homes, HostAddress, HostName, KnownBy, VirtualHost};
use millrace_storage::LocalOptions;

use super::error::ValueError;
use super::places::Places;
use super::said::Said;
use super::setting::{required, settings, unset};
use super::slot::Many;
use super::value::Value;
use crate::failure::Failure;

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
) -> Result<Vec<VirtualHost>, Failure> {
    let mut hosts: Vec<VirtualHost> = Vec::new();
    for table in tables {
        let known_by = known_by(table, places)?;
        refuse_shared(&hosts, table, &known_by, places)?;
        hosts.push(VirtualHost { homes: Arc::new(homes(table, options, places)?), known_by });
    }
    Ok(hosts)
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
    hosts: &[VirtualHost],
    table: &HostTable,
    known_by: &KnownBy,
    places: &Places<'_>,
) -> Result<(), Failure> {
    let others = || hosts.iter().map(|host| &host.known_by);
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

    /// The names and addresses, as they are told.
    pub(crate) fn shown(&self) -> String {
        let names = self.names.iter().map(|said| said.value.clone());
        let all: Vec<String> = names.chain(self.addresses.iter().map(|said| said.value.to_string())).collect();
        all.join(", ")
    }
}

fn homes(table: &HostTable, options: LocalOptions, places: &Places<'_>) -> Result<Homes, Failure> {
    let path = places.path(&table.directory);
    match path.canonicalize() {
        Ok(found) if found.is_dir() => Ok(Homes::new(found, options)),
        found => {
            let why = found.err().map_or("it is no folder".to_owned(), |error| error.to_string());
            let message = format!("the folder {} of {} cannot be served: {why}", path.display(), table.shown());
            Err(places.error(&table.directory.place, "directory", &message))
        }
    }
}
