//! Presets: plans that are written down, in TOML.
//!
//! ```toml
//! summary = "a line for --list"
//! duration = "5s"            # any setting of KEYS: it holds for every step
//! [[step]]
//! ops = "retr, stor"         # and here for this one
//! size = ["1k", "1m"]
//! ```
//!
//! `notes` and `[[table]]` are what the document says that a preset reproduces: see `published`.
//!
//! An unknown key is an error that names the file and the line.

use serde::Deserialize;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::PlanError;
use super::keys::Settings;
use super::published::Published;

/// The presets that come with the program: name and text.
pub const BUILT_IN: [(&str, &str); 8] = [
    ("default", include_str!("../../presets/default.toml")),
    ("iitk1996-loop-const", include_str!("../../presets/iitk1996-loop-const.toml")),
    ("iitk1996-net-conns", include_str!("../../presets/iitk1996-net-conns.toml")),
    ("iitk1996-net-sizes", include_str!("../../presets/iitk1996-net-sizes.toml")),
    ("waarp-conn", include_str!("../../presets/waarp-conn.toml")),
    ("waarp-1k", include_str!("../../presets/waarp-1k.toml")),
    ("waarp-10k", include_str!("../../presets/waarp-10k.toml")),
    ("waarp-size", include_str!("../../presets/waarp-size.toml")),
];

/// A plan without a target.
#[derive(Debug, Clone, PartialEq)]
pub struct Preset {
    /// Its name.
    pub name: String,
    /// What it is, in a line.
    pub summary: String,
    /// What a reader must know: ambiguities and how they were settled, what cannot be compared.
    pub notes: Vec<String>,
    /// The document's tables.
    pub tables: Vec<Published>,
    /// What holds for the whole run.
    pub base: Settings,
    /// One after the other.
    pub steps: Vec<Settings>,
}

impl Preset {
    /// A preset that comes with the program.
    pub fn built_in(name: &str) -> Result<Self, PlanError> {
        let found = BUILT_IN.iter().find(|row| row.0 == name);
        let (_, text) = found.ok_or_else(|| PlanError::NoPreset(name.to_owned()))?;
        Self::parse(name, &format!("presets/{name}.toml"), text)
    }

    /// Reads a preset; `file` is for errors.
    pub fn parse(name: &str, file: &str, text: &str) -> Result<Self, PlanError> {
        let source = Source { file, text };
        let table = DeTable::parse(text).map_err(|error| {
            source.error(error.span().map_or(0, |span| span.start), error.message().to_owned())
        })?;
        let Document { notes, table: tables } = toml::from_str(text).map_err(|error| {
            source.error(error.span().map_or(0, |span| span.start), error.message().to_owned())
        })?;
        let mut preset = Self {
            name: name.to_owned(),
            summary: String::new(),
            notes,
            tables,
            base: Settings::default(),
            steps: Vec::new(),
        };
        if let Some(table) = preset.tables.iter().find(|table| !table.is_complete()) {
            let wrong =
                format!("a row of {:?} has more or fewer numbers than there are columns", table.title);
            return Err(source.error(0, wrong));
        }
        let (steps, keys): (Vec<_>, Vec<_>) =
            table.get_ref().iter().partition(|(key, _)| key.get_ref().as_ref() == "step");
        for (key, value) in keys {
            match key.get_ref().as_ref() {
                "notes" | "table" => {} // the document's
                "summary" => preset.summary = source.words(value)?,
                _ => source.set(&mut preset.base, key, value)?,
            }
        }
        for (_, value) in steps {
            let DeValue::Array(tables) = value.get_ref() else {
                return Err(source.error(value.span().start, "a step is written [[step]]".to_owned()));
            };
            for table in tables.iter() {
                preset.steps.push(source.step(&preset.base, table)?);
            }
        }
        if preset.steps.is_empty() {
            preset.steps.push(preset.base.clone());
        }
        Ok(preset)
    }
}

/// What a preset says of the document that it reproduces.
#[derive(Deserialize)]
struct Document {
    #[serde(default)]
    notes: Vec<String>,
    #[serde(default)]
    table: Vec<Published>,
}

/// The text of a preset, for errors that say where.
struct Source<'a> {
    file: &'a str,
    text: &'a str,
}

impl Source<'_> {
    fn step(&self, base: &Settings, table: &Spanned<DeValue<'_>>) -> Result<Settings, PlanError> {
        let DeValue::Table(table) = table.get_ref() else {
            return Err(self.error(table.span().start, "a step is written [[step]]".to_owned()));
        };
        let mut step = base.clone();
        for (key, value) in table {
            self.set(&mut step, key, value)?;
        }
        Ok(step)
    }

    fn set(
        &self,
        settings: &mut Settings,
        key: &Spanned<std::borrow::Cow<'_, str>>,
        value: &Spanned<DeValue<'_>>,
    ) -> Result<(), PlanError> {
        let name = key.get_ref();
        let words = self.words(value)?;
        settings.set(name, &words).map_err(|wrong| self.error(key.span().start, format!("{name}: {wrong}")))
    }

    /// A value as a flag would have it: what is a list in TOML has commas there.
    fn words(&self, value: &Spanned<DeValue<'_>>) -> Result<String, PlanError> {
        Ok(match value.get_ref() {
            DeValue::String(text) => text.to_string(),
            DeValue::Integer(number) => number.as_str().replace('_', ""),
            DeValue::Float(number) => number.as_str().replace('_', ""),
            DeValue::Boolean(true) => "on".to_owned(),
            DeValue::Boolean(false) => "off".to_owned(),
            DeValue::Array(items) => {
                items.iter().map(|item| self.words(item)).collect::<Result<Vec<_>, _>>()?.join(",")
            }
            _ => {
                return Err(
                    self.error(value.span().start, "is neither a text, a number nor a list".to_owned())
                );
            }
        })
    }

    fn error(&self, at: usize, wrong: String) -> PlanError {
        let line = 1 + self.text[..at.min(self.text.len())].matches('\n').count();
        PlanError::Preset { file: self.file.to_owned(), line, wrong }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::plan::Op;

    #[test]
    fn the_built_in_presets_can_be_read() {
        for (name, _) in BUILT_IN {
            let preset = Preset::built_in(name).unwrap();
            assert!(!preset.summary.is_empty() && preset.summary.len() < 100, "{name}");
        }
    }

    #[test]
    fn steps_build_on_what_stands_above_them() {
        let text =
            "summary = 'x'\nduration = '2s'\nusers = [1, 2]\n[[step]]\nops = 'login'\n[[step]]\nusers = 9\n";
        let preset = Preset::parse("x", "x.toml", text).unwrap();
        assert_eq!(preset.steps.len(), 2);
        assert_eq!((&preset.steps[0].ops[..], &preset.steps[0].users[..]), (&[Op::Login][..], &[1, 2][..]));
        assert_eq!(
            (preset.steps[1].duration, &preset.steps[1].users[..]),
            (Duration::from_secs(2), &[9][..])
        );
    }

    #[test]
    fn errors_name_file_and_line() {
        let wrong = |text: &str| Preset::parse("x", "x.toml", text).unwrap_err().to_string();
        assert!(wrong("users = 1\nsise = 5\n").starts_with("x.toml:2: sise: there is no such setting"));
        assert!(wrong("[[step]]\nusers = 0\n").starts_with("x.toml:2: users: "));
        assert!(wrong("users = \n").starts_with("x.toml:1: "));
        assert!(wrong("\nstep = 3\n").starts_with("x.toml:2: a step is written"));
    }
}
