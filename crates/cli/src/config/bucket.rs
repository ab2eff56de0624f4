//! Folders in buckets of S3-compatible stores.

use std::env;

use millrace_s3::{Credentials, Settings};
use millrace_server::auth::{MountedBucket, MountedFiles};
use millrace_vfs::hash::Algorithms;

use super::folders::{FolderTable, TIMEOUT};
use super::places::Places;
use super::said::Said;
use super::sources;
use crate::failure::Failure;

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
        roots: sources::read(table.ca.as_ref(), "ca", places)?,
        time: table.timeout.as_ref().map_or(TIMEOUT, |said| said.value.0),
    };
    let mounted = MountedBucket::new(&settings, hashes);
    mounted.map(MountedFiles::Bucket).map_err(|error| places.error(&said.place, "bucket", &error.to_string()))
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
