//! `[[host]]` tables: names under which other trees are served, by HTTP and FTP alike.

use std::path::PathBuf;
use std::sync::Arc;

use millrace_server::auth::{Homes, HostName, VirtualHost};
use millrace_storage::LocalOptions;

use super::places::Places;
use super::said::Said;
use super::setting::{required, settings};
use super::slot::Many;
use crate::failure::Failure;

settings! {
    /// A `[[host]]` table.
    HostTable of "host" {
        /// The name, or an array of names: `"files.example.org"`, `"*.example.org"`
        names: Many<String> = required();
        /// The folder that is served under these names; users' folders lie in it
        directory: Said<PathBuf> = required();
    }
}

/// Hosts as written; no name may be two hosts'.
pub(crate) fn hosts(
    tables: &[HostTable],
    options: LocalOptions,
    places: &Places<'_>,
) -> Result<Vec<VirtualHost>, Failure> {
    let mut hosts: Vec<VirtualHost> = Vec::new();
    for table in tables {
        let names = names(&table.names, "names", places)?;
        let twice = names
            .iter()
            .zip(&table.names)
            .find(|(name, _)| hosts.iter().any(|host| host.names.contains(name)));
        if let Some((name, said)) = twice {
            return Err(places.error(
                &said.place,
                "names",
                &format!("there are two hosts of the name {name}"),
            ));
        }
        hosts.push(VirtualHost { names, homes: Arc::new(homes(table, options, places)?) });
    }
    Ok(hosts)
}

/// Names as written.
pub(crate) fn names(said: &[Said<String>], key: &str, places: &Places<'_>) -> Result<Vec<HostName>, Failure> {
    let name = |said: &Said<String>| {
        HostName::parse(&said.value).map_err(|error| places.error(&said.place, key, &error.to_string()))
    };
    said.iter().map(name).collect()
}

fn homes(table: &HostTable, options: LocalOptions, places: &Places<'_>) -> Result<Homes, Failure> {
    let path = places.path(&table.directory);
    match path.canonicalize() {
        Ok(found) if found.is_dir() => Ok(Homes::new(found, options)),
        found => {
            let why = found.err().map_or("it is no folder".to_owned(), |error| error.to_string());
            let name = table.names.first().map_or("", |said| &said.value);
            let message = format!("the folder {} of {name} cannot be served: {why}", path.display());
            Err(places.error(&table.directory.place, "directory", &message))
        }
    }
}
