//! Folders in buckets of S3-compatible stores.

use std::env;
use std::time::Duration;

use millrace_s3::{Credentials, Settings};
use millrace_server::auth::{MountedBucket, MountedFiles, SetupError, Sql};
use millrace_terminal::Failure;
use millrace_vfs::hash::Algorithms;

use super::folders::{FolderTable, TIMEOUT, sql};
use super::places::Places;
use super::said::Said;
use super::sources;
use super::value::Value;

/// How long the objects of files that were replaced or removed are kept.
const KEEP: Duration = Duration::from_secs(3600);

/// Where the names of a bucket's files are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Layout {
    /// In the bucket: keys are paths.
    Mapped,
    /// In a database.
    Indexed,
}

impl Value for Layout {
    const EXPECTED: &'static str = "\"mapped\" or \"indexed\"";

    const CHOICES: &'static [(&'static str, Self)] = &[("mapped", Self::Mapped), ("indexed", Self::Indexed)];
}

/// The folder of a table that names this bucket.
pub(super) fn bucket(
    table: &FolderTable,
    said: &Said<String>,
    hashes: Algorithms,
    places: &Places<'_>,
) -> Result<MountedFiles, Failure> {
    let text = |said: &Option<Said<String>>| said.as_ref().map(|said| said.value.clone());
    let region = text(&table.region).unwrap_or_else(|| "us-east-1".to_owned());
    let settings = Settings {
        endpoint: text(&table.endpoint).unwrap_or_else(|| format!("https://s3.{region}.amazonaws.com")),
        region,
        bucket: said.value.clone(),
        prefix: text(&table.prefix).unwrap_or_default(),
        credentials: credentials(table, said, places)?,
        path_style: table.path_style.as_ref().is_none_or(|said| said.value.0),
        redirect: text(&table.redirect_downloads),
        roots: sources::read(table.ca.as_ref(), "ca", places)?,
        time: table.timeout.as_ref().map_or(TIMEOUT, |said| said.value.0),
    };
    let mounted = match database(table, places)? {
        None => MountedBucket::mapped(&settings, hashes),
        Some(database) => {
            let keep = table.keep_replaced.as_ref().map_or(KEEP, |said| said.value.0);
            MountedBucket::indexed(&settings, &database, keep, hashes)
        }
    };
    mounted.map(MountedFiles::Bucket).map_err(|error| match (&error, &table.postgres) {
        (SetupError::Store(_), _) | (_, None) => places.error(&said.place, "bucket", &error.to_string()),
        (_, Some(database)) => places.error(&database.place, "postgres", &error),
    })
}

/// The database that has the names, where one does.
fn database(table: &FolderTable, places: &Places<'_>) -> Result<Option<Sql>, Failure> {
    if let Some(layout) = table.layout.as_ref().filter(|_| is_indexed(table)) {
        let Some(said) = &table.postgres else {
            let message =
                "the names of an indexed bucket are in a database: write `postgres`, its connection string";
            return Err(places.error(&layout.place, "layout", message));
        };
        let roots = sources::read(table.database_ca.as_ref(), "database-ca", places)?;
        return sql(table, said, roots, places).map(Some);
    }
    let needless = [
        ("database-ca", table.database_ca.as_ref().map(|said| &said.place)),
        ("keep-replaced", table.keep_replaced.as_ref().map(|said| &said.place)),
    ];
    match needless.into_iter().find_map(|(key, place)| Some((key, place?))) {
        Some((key, place)) => {
            let message = format!("`{key}` means nothing to a bucket without `layout = \"indexed\"`");
            Err(places.error(place, key, &message))
        }
        None => Ok(None),
    }
}

/// Returns whether the names of a bucket are in a database.
pub(super) fn is_indexed(table: &FolderTable) -> bool {
    table.layout.as_ref().is_some_and(|said| said.value == Layout::Indexed)
}

/// The credentials of the file, or of the environment.
fn credentials(
    table: &FolderTable,
    bucket: &Said<String>,
    places: &Places<'_>,
) -> Result<Credentials, Failure> {
    let Some(said) = &table.credentials_file else {
        let of = |name| env::var(name).ok().filter(|value| !value.is_empty());
        return match (of("AWS_ACCESS_KEY_ID"), of("AWS_SECRET_ACCESS_KEY")) {
            (Some(access_key), Some(secret_key)) => {
                Ok(Credentials { access_key, secret_key, token: of("AWS_SESSION_TOKEN") })
            }
            _ => {
                let message = "there are no credentials: write `credentials-file`, or set AWS_ACCESS_KEY_ID and \
                               AWS_SECRET_ACCESS_KEY";
                Err(places.error(&bucket.place, "bucket", message))
            }
        };
    };
    let bytes = sources::read(Some(said), "credentials-file", places)?.unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let value = |key: &str| {
        let pairs = text.lines().filter_map(|line| line.split_once('='));
        pairs.into_iter().find_map(|(name, value)| (name.trim() == key).then(|| value.trim().to_owned()))
    };
    match (value("aws_access_key_id"), value("aws_secret_access_key")) {
        (Some(access_key), Some(secret_key)) => {
            Ok(Credentials { access_key, secret_key, token: value("aws_session_token") })
        }
        _ => {
            let message =
                "the file has to have lines `aws_access_key_id = ...` and `aws_secret_access_key = ...`";
            Err(places.error(&said.place, "credentials-file", message))
        }
    }
}
