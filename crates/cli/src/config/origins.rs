//! Where settings come from, and which of them a reload does not change.

use std::hash::{DefaultHasher, Hash, Hasher};

use millrace_server::Config;
use toml::de::DeTable;

use super::report::Source;
use super::said::Place;
use super::setting::{Row, Table, Unset, plain, toml};
use super::written::Written;

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
pub(crate) struct Snapshot(Vec<u64>);

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
        Self(Written::ROWS.iter().map(hash).collect())
    }

    /// Returns the keys whose values are others in `now`: those that take effect at a restart only, or the rest.
    pub(crate) fn changed(&self, now: &Self, restarts: bool) -> Vec<&'static str> {
        let hashes = self.0.iter().zip(&now.0);
        let changed = Written::ROWS.iter().zip(hashes).filter(|(_, (before, now))| before != now);
        changed.filter(|(row, _)| row.key.restarts == restarts).map(|(row, _)| row.name).collect()
    }
}
