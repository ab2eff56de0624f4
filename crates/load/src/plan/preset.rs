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
//! A preset has two forms: corrected, and as published, where the table `as-published` overrides the settings. Either
//! can be `quick`, for a test in well under a minute. Both tables may stand at the top, for every step, or in a step;
//! and `only = "corrected"` or `"as-published"` leaves a step out of the other form.
//!
//! An unknown key is an error that names the file and the line.

use serde::Deserialize;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::PlanError;
use super::published::Published;
use super::settings::Settings;

/// The presets that come with the program: name and text.
pub const BUILT_IN: [(&str, &str); 19] = [
    ("default", include_str!("../../presets/default.toml")),
    ("dkftp-2000-01-13", include_str!("../../presets/dkftp-2000-01-13.toml")),
    ("dkftp-2000-01-24", include_str!("../../presets/dkftp-2000-01-24.toml")),
    ("dkftp-2001-09-14", include_str!("../../presets/dkftp-2001-09-14.toml")),
    ("dkftp-modern", include_str!("../../presets/dkftp-modern.toml")),
    ("http", include_str!("../../presets/http.toml")),
    ("iitk1996-loop-change", include_str!("../../presets/iitk1996-loop-change.toml")),
    ("iitk1996-loop-const", include_str!("../../presets/iitk1996-loop-const.toml")),
    ("iitk1996-net-conns", include_str!("../../presets/iitk1996-net-conns.toml")),
    ("iitk1996-net-sizes", include_str!("../../presets/iitk1996-net-sizes.toml")),
    ("pyftpdlib", include_str!("../../presets/pyftpdlib.toml")),
    ("race", include_str!("../../presets/race.toml")),
    ("waarp-conn", include_str!("../../presets/waarp-conn.toml")),
    ("waarp-1k", include_str!("../../presets/waarp-1k.toml")),
    ("waarp-10k", include_str!("../../presets/waarp-10k.toml")),
    ("waarp-exec", include_str!("../../presets/waarp-exec.toml")),
    ("waarp-size", include_str!("../../presets/waarp-size.toml")),
    ("zb-tux", include_str!("../../presets/zb-tux.toml")),
    ("zb-tux-cgi", include_str!("../../presets/zb-tux-cgi.toml")),
];

/// Which of its forms a preset is read in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Form {
    /// As the document was published, flaws and all, rather than corrected.
    pub as_published: bool,
    /// Shortened, for a test: it shows that all works, and its figures are worth little.
    pub quick: bool,
}

impl Form {
    /// The tables of a preset that hold in this form, the strongest last.
    fn overrides(self) -> impl Iterator<Item = &'static str> {
        let named = [(self.as_published, "as-published"), (self.quick, "quick")];
        named.into_iter().filter_map(|(applies, name)| applies.then_some(name))
    }

    fn name(self) -> &'static str {
        if self.as_published { "as-published" } else { "corrected" }
    }
}

/// Keys about a form rather than a setting.
const ABOUT_FORMS: [&str; 3] = ["as-published", "quick", "only"];

/// A plan without a target.
#[derive(Debug, Clone, PartialEq)]
pub struct Preset {
    /// Its name.
    pub name: String,
    /// A description in a line.
    pub summary: String,
    /// Notes for the reader: ambiguities and how they were settled, and limits of comparison.
    pub notes: Vec<String>,
    /// The document's tables.
    pub tables: Vec<Published>,
    /// The settings of the whole run.
    pub base: Settings,
    /// One after the other.
    pub steps: Vec<Settings>,
    /// Of a quick form: the same steps in full.
    pub full: Vec<Settings>,
    /// It is in the form that its document had, flaws and all.
    pub as_published: bool,
}

/// The plan of a run without a preset.
const OF_FLAGS: &str = "summary = 'what the flags say'
[quick]
users = 10
duration = '200ms'
warm-up = '0s'
";

impl Preset {
    /// The base of a plan that consists of flags only.
    pub(super) fn of_flags(form: Form) -> Self {
        Self::parse("custom", "custom", OF_FLAGS, form).expect("a test reads it in both forms")
    }

    /// A preset that comes with the program, corrected and in full.
    pub fn built_in(name: &str) -> Result<Self, PlanError> {
        Self::built_in_as(name, Form::default())
    }

    /// A preset that comes with the program, in a form.
    pub fn built_in_as(name: &str, form: Form) -> Result<Self, PlanError> {
        let found = BUILT_IN.iter().find(|row| row.0 == name);
        let (_, text) = found.ok_or_else(|| PlanError::NoPreset(name.to_owned()))?;
        Self::parse(name, &format!("presets/{name}.toml"), text, form)
    }

    /// Reads a preset; `file` is for errors.
    pub fn parse(name: &str, file: &str, text: &str, form: Form) -> Result<Self, PlanError> {
        let source = Source { file, text, form };
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
            full: Vec::new(),
            as_published: form.as_published,
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
                name if ABOUT_FORMS.contains(&name) => {} // for the steps
                _ => source.set(&mut preset.base, key, value)?,
            }
        }
        for (_, value) in steps {
            let DeValue::Array(tables) = value.get_ref() else {
                return Err(source.error(value.span().start, "a step is written [[step]]".to_owned()));
            };
            for step in tables.iter() {
                preset.steps.extend(source.step(&preset.base, table.get_ref(), step)?);
            }
        }
        let mut base = preset.base.clone();
        source.apply_forms(&mut base, [table.get_ref()])?;
        if preset.steps.is_empty() {
            preset.steps.push(base.clone());
        }
        preset.base = base;
        if form.quick {
            preset.full = Self::parse(name, file, text, Form { quick: false, ..form })?.steps;
        }
        Ok(preset)
    }
}

/// The parts of a preset about the document that it reproduces.
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
    form: Form,
}

impl Source<'_> {
    /// A step; `None` where it is only of the other form.
    fn step(
        &self,
        base: &Settings,
        document: &DeTable<'_>,
        table: &Spanned<DeValue<'_>>,
    ) -> Result<Option<Settings>, PlanError> {
        let DeValue::Table(keys) = table.get_ref() else {
            return Err(self.error(table.span().start, "a step is written [[step]]".to_owned()));
        };
        if let Some(only) = keys.get("only")
            && self.words(only)? != self.form.name()
        {
            return Ok(None);
        }
        let mut step = base.clone();
        for (key, value) in keys.iter().filter(|(key, _)| !ABOUT_FORMS.contains(&key.get_ref().as_ref())) {
            self.set(&mut step, key, value)?;
        }
        self.apply_forms(&mut step, [document, keys])?;
        Ok(Some(step))
    }

    /// Applies the tables of the form: the preset's own, and then a step's.
    fn apply_forms<'t>(
        &self,
        settings: &mut Settings,
        tables: impl IntoIterator<Item = &'t DeTable<'t>> + Clone,
    ) -> Result<(), PlanError> {
        for name in self.form.overrides() {
            for value in tables.clone().into_iter().filter_map(|table| table.get(name)) {
                let DeValue::Table(keys) = value.get_ref() else {
                    return Err(self.error(value.span().start, format!("{name} is a table of settings")));
                };
                for (key, value) in keys {
                    self.set(settings, key, value)?;
                }
            }
        }
        Ok(())
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

    /// A value in the form of a flag: a TOML list becomes a list with commas.
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
    use crate::plan::{Op, Plan};

    #[test]
    fn the_built_in_presets_can_be_read_in_every_form() {
        for (name, _) in BUILT_IN {
            for as_published in [false, true] {
                for quick in [false, true] {
                    let preset = Preset::built_in_as(name, Form { as_published, quick }).unwrap();
                    // Beside its name it is a line of `--list`.
                    let line = format!("{name:<20} {}", preset.summary);
                    assert!(!preset.summary.is_empty() && line.len() <= 100, "{line}");
                }
            }
        }
    }

    #[test]
    fn a_plan_of_flags_has_a_quick_form() {
        let [full, quick] = [false, true].map(|quick| Preset::of_flags(Form { quick, as_published: false }));
        assert_eq!((&full.base, &full.steps[..]), (&Settings::default(), &[Settings::default()][..]));
        let plan = |flags: &[(&str, &str)]| Plan::new("ftp://127.0.0.1:2121/", Some(&quick), flags).unwrap();
        let shortened = plan(&[("ops", "noop"), ("duration", "300ms")]);
        assert_eq!(shortened.quick, ["users: 10 for 100", "warm-up seconds: 0 for 0.5"]);
        let cell = &shortened.cells()[0];
        assert_eq!((cell.op, cell.users, cell.settings.duration), (Op::Noop, 10, Duration::from_millis(300)));
    }

    #[test]
    fn forms_override_from_the_document_to_the_step() {
        let text = "users = 9\n[quick]\nusers = 1\n[as-published]\nfiles = 7\n\
            [[step]]\nusers = 5\nquick = { files = 3 }\n[[step]]\nonly = 'as-published'\n";
        let read = |as_published, quick| {
            let steps = Preset::parse("x", "x", text, Form { as_published, quick }).unwrap().steps;
            steps.iter().map(|step| (step.users[0], step.files)).collect::<Vec<_>>()
        };
        assert_eq!(read(false, false), [(5, None)]);
        assert_eq!(read(false, true), [(1, Some(3))]);
        assert_eq!(read(true, false), [(5, Some(7)), (9, Some(7))]);
        assert_eq!(read(true, true), [(1, Some(3)), (1, Some(7))]);
    }

    #[test]
    fn steps_build_on_what_stands_above_them() {
        let text =
            "summary = 'x'\nduration = '2s'\nusers = [1, 2]\n[[step]]\nops = 'login'\n[[step]]\nusers = 9\n";
        let preset = Preset::parse("x", "x.toml", text, Form::default()).unwrap();
        assert_eq!(preset.steps.len(), 2);
        assert_eq!((&preset.steps[0].ops[..], &preset.steps[0].users[..]), (&[Op::Login][..], &[1, 2][..]));
        assert_eq!(
            (preset.steps[1].duration, &preset.steps[1].users[..]),
            (Duration::from_secs(2), &[9][..])
        );
    }

    #[test]
    fn errors_name_file_and_line() {
        let wrong = |text: &str| Preset::parse("x", "x.toml", text, Form::default()).unwrap_err().to_string();
        assert!(wrong("users = 1\nsise = 5\n").starts_with("x.toml:2: sise: there is no such setting"));
        assert!(wrong("[[step]]\nusers = 0\n").starts_with("x.toml:2: users: "));
        assert!(wrong("users = \n").starts_with("x.toml:1: "));
        assert!(wrong("\nstep = 3\n").starts_with("x.toml:2: a step is written"));
    }
}
