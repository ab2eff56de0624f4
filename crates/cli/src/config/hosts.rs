//! `[[host]]` tables: names under which other trees are served, by HTTP and FTP alike.

use std::path::PathBuf;
use std::sync::Arc;

use millrace_server::auth::{Homes, HostName, VirtualHost};
use millrace_storage::LocalOptions;
use serde::Deserialize;

use super::places::Places;
use super::said::{Place, Said, one_or_more};
use crate::failure::Failure;

/// A `[[host]]` table. That it has both is told when it is resolved.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub(crate) struct HostTable {
    #[serde(deserialize_with = "one_or_more")]
    pub(crate) names: Vec<Said<String>>,
    pub(crate) directory: Option<Said<PathBuf>>,
}

/// Hosts as written; no name may be two hosts'.
pub(crate) fn hosts(
    tables: &[HostTable],
    options: LocalOptions,
    places: &Places<'_>,
) -> Result<Vec<VirtualHost>, Failure> {
    let mut hosts: Vec<VirtualHost> = Vec::new();
    for table in tables {
        let names = names(&table.names, places)?;
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
pub(crate) fn names(said: &[Said<String>], places: &Places<'_>) -> Result<Vec<HostName>, Failure> {
    let name = |said: &Said<String>| {
        HostName::parse(&said.value).map_err(|message| places.error(&said.place, "names", &message))
    };
    said.iter().map(name).collect()
}

fn homes(table: &HostTable, options: LocalOptions, places: &Places<'_>) -> Result<Homes, Failure> {
    let lacks = |place: Option<&Place>, what: &str| {
        let message = format!(
            "a [[host]] table says with `names` who it is, and with `directory` what it serves; {what}"
        );
        Err(places.error(place.unwrap_or(&Place::CommandLine), "[[host]]", &message))
    };
    let (name, directory) = match (table.names.first(), &table.directory) {
        (None, directory) => return lacks(directory.as_ref().map(|said| &said.place), "there are no names"),
        (Some(name), None) => return lacks(Some(&name.place), "there is no directory"),
        (Some(name), Some(directory)) => (name, directory),
    };
    let path = places.path(directory);
    match path.canonicalize() {
        Ok(found) if found.is_dir() => Ok(Homes::new(found, options)),
        found => {
            let why = found.err().map_or("it is no folder".to_owned(), |error| error.to_string());
            let message = format!("the folder {} of {} cannot be served: {why}", path.display(), name.value);
            Err(places.error(&directory.place, "directory", &message))
        }
    }
}
