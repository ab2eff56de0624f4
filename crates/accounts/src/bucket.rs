//! Folders in buckets of S3-compatible stores, whose files have their names there or in a database.

use std::sync::Arc;
#[cfg(feature = "postgres")]
use std::time::Duration;

#[cfg(feature = "postgres")]
use millrace_indexed::{IndexSettings, IndexedStorage};
use millrace_s3::{S3Storage, Settings};
use millrace_vfs::Storage;
use millrace_vfs::hash::Algorithms;

#[cfg(not(feature = "postgres"))]
use crate::absent::absent;
#[cfg(feature = "postgres")]
use crate::postgres;
use crate::source_error::SetupError;
use crate::sql::Sql;

/// A bucket of an S3-compatible store, which has files as objects.
#[derive(Debug)]
pub struct MountedBucket {
    name: String,
    /// The database that has the names of its files.
    names: Option<String>,
    layout: Layout,
}

/// Where the names of the files are.
#[derive(Debug)]
enum Layout {
    /// Keys are paths.
    Mapped(S3Storage),
    /// Rows of a database lead to keys.
    #[cfg(feature = "postgres")]
    Indexed(IndexedStorage),
}

impl MountedBucket {
    /// A bucket whose keys are the paths of files. It does not connect yet.
    pub fn mapped(settings: &Settings, hashes: Algorithms) -> Result<Self, SetupError> {
        let layout = Layout::Mapped(S3Storage::new(settings)?.hashing(hashes));
        Ok(Self { name: settings.name(), names: None, layout })
    }

    /// A bucket whose files have their names in a PostgreSQL database. Objects of files that were replaced or removed are
    /// kept for so long. It does not connect yet.
    #[cfg(feature = "postgres")]
    pub fn indexed(
        settings: &Settings,
        database: &Sql,
        keep: Duration,
        hashes: Algorithms,
    ) -> Result<Self, SetupError> {
        let server = postgres::Server::new(database)?;
        let (names, server) = (Some(server.name()), Arc::new(server));
        let index = IndexSettings { store: settings.clone(), time: database.time, keep };
        let layout = Layout::Indexed(IndexedStorage::new(server, &index)?.hashing(hashes));
        Ok(Self { name: settings.name(), names, layout })
    }

    /// Names in PostgreSQL, which is not in this build.
    #[cfg(not(feature = "postgres"))]
    pub fn indexed(_: &Settings, _: &Sql, _: std::time::Duration, _: Algorithms) -> Result<Self, SetupError> {
        absent("PostgreSQL", "postgres")
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Where files and their names are, in words.
    pub(crate) fn shown(&self) -> String {
        let names = self.names.as_ref().map(|names| format!(", with names in {names}"));
        format!("{}{}", self.name, names.unwrap_or_default())
    }

    pub(crate) fn storage(&self) -> Arc<dyn Storage> {
        match &self.layout {
            Layout::Mapped(storage) => Arc::new(storage.clone()),
            #[cfg(feature = "postgres")]
            Layout::Indexed(storage) => Arc::new(storage.clone()),
        }
    }

    /// Has uploads not hashed from now on.
    pub(crate) fn leave_unhashed(&mut self) {
        match &mut self.layout {
            Layout::Mapped(storage) => *storage = storage.clone().hashing(Algorithms::NONE),
            #[cfg(feature = "postgres")]
            Layout::Indexed(storage) => *storage = storage.clone().hashing(Algorithms::NONE),
        }
    }

    /// Begins to use it. Returns what the operator should know of it.
    pub(crate) fn start(&self) -> Vec<String> {
        let messages = match &self.layout {
            Layout::Mapped(storage) => storage.start(),
            #[cfg(feature = "postgres")]
            Layout::Indexed(storage) => storage.start(),
        };
        messages.into_iter().map(|message| format!("{} {message}", self.name)).collect()
    }
}
