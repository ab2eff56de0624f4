//! Where settings come from, and which of them a reload does not change.

use std::hash::{DefaultHasher, Hash, Hasher};

use millrace_server::Config;
use toml::de::DeTable;

use super::report::Source;
use super::said::Place;
use super::setting::{Row, Table, Unset, plain, toml};
use super::written::Written;

/// The keys of the server's certificates. They have an effect at once where it has one, and else at the next start.
const CERTIFICATES: [&str; 6] =
    ["tls-cert", "tls-key", "tls-self-signed", "acme", "acme-agree", "acme-contact"];

/// The place of a value that was not written.
pub(crate) const DEFAULT: &str = "default";

/// A setting.
#[derive(Debug)]
pub(crate) struct Origin {
    pub(crate) key: &'static str,
    /// The text, on one line; not of a secret.
    pub(crate) value: String,
    /// `line 3`, `MILLRACE_FTP`, `flag` or [`DEFAULT`].
    pub(crate) place: String,
}

/// Returns all settings, in the order of the table; not `[[tables]]`, which are shown apart.
pub(super) fn origins(written: &Written, file: Option<&Source>) -> Vec<Origin> {
    let table = file.and_then(|source| DeTable::parse(&source.text).ok());
    let origin = |row: &'static Row<Written>| {
        let slot = (row.get)(written);
        let (value, place) = match (slot.place(), file) {
            (None | Some(Place::File(_)), _) if slot.has_tables() => return None,
            (None, _) => (unset(row.key.unset), DEFAULT.to_owned()),
            (Some(Place::CommandLine), _) => (String::new(), "flag".to_owned()),
            (Some(Place::Environment(name)), _) => (std::env::var(name).unwrap_or_default(), name.clone()),
            (Some(Place::File(span)), source) => {
                let text = source.map_or("", |source| &source.text);
                let line = text[..span.start].matches('\n').count() + 1;
                let value = table.as_ref().and_then(|table| text.get(table.get_ref().get(row.name)?.span()));
                (
                    value.unwrap_or_default().split_whitespace().collect::<Vec<_>>().join(" "),
                    format!("line {line}"),
                )
            }
        };
        let value = if row.key.is_secret && place != DEFAULT { "...".to_owned() } else { value };
        Some(Origin { key: row.name, value, place })
    };
    Written::ROWS.iter().filter_map(origin).collect()
}

fn unset(unset: Unset) -> String {
    match unset {
        Unset::Value(value) => toml(value),
        Unset::Means(meaning) => plain(meaning),
        Unset::Required => String::new(),
    }
}

/// The settings as hashes, in the order of the rows, to be compared by a reload: nothing secret is kept.
#[derive(Debug, Clone)]
pub(crate) struct Snapshot {
    hashes: Vec<u64>,
    /// Whether there is a certificate.
    has_tls: bool,
}

/// What a reload has changed.
#[derive(Debug)]
pub(crate) struct Changed {
    /// Keys that have another effect from now on.
    pub(crate) now: Vec<&'static str>,
    /// Keys that count from the next start on.
    pub(crate) at_next_start: Vec<&'static str>,
}

impl Snapshot {
    pub(super) fn of(written: &Written, config: &Config) -> Self {
        let hash = |row: &'static Row<Written>| {
            let value = match &row.field {
                Some(field) => (field.shown)(config),
                None => (row.get)(written).shown(),
            };
            let mut hasher = DefaultHasher::new();
            value.hash(&mut hasher);
            hasher.finish()
        };
        Self { hashes: Written::ROWS.iter().map(hash).collect(), has_tls: config.tls.is_some() }
    }

    /// Compares the settings of the start with those of `now`, and with those that were in force `before` where they have an
    /// effect at once.
    pub(crate) fn compare(&self, before: &Self, now: &Self) -> Changed {
        let begins_or_ends = [before, now].iter().any(|other| self.has_tls != other.has_tls);
        let waits =
            |row: &Row<Written>| row.key.restarts || (begins_or_ends && CERTIFICATES.contains(&row.name));
        let differs = |from: &Self, at: usize| from.hashes[at] != now.hashes[at];
        let rows = || Written::ROWS.iter().enumerate();
        Changed {
            now: rows()
                .filter(|(at, row)| !waits(row) && differs(before, *at))
                .map(|(_, row)| row.name)
                .collect(),
            at_next_start: rows()
                .filter(|(at, row)| waits(row) && differs(self, *at))
                .map(|(_, row)| row.name)
                .collect(),
        }
    }
}
