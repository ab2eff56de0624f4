//! Reads a configuration file by the rows of the table of settings. All mistakes are reported at once, each with its place.

use std::fmt::Display;
use std::ops::Range;

use millrace_terminal::Failure;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::profiles;
use super::report::{Source, nearest};
use super::setting::{Row, Table, Unset, toml};

/// Mistakes that are reported at most; more would scroll the first away.
const MOST: usize = 10;

/// What is wrong with some bytes of a file.
#[derive(Debug)]
pub(super) struct Mistake {
    span: Range<usize>,
    message: String,
}

/// The mistakes of a file.
#[derive(Debug)]
pub(super) struct Mistakes {
    found: Vec<Mistake>,
    /// The keys of the top level, and whether they hold `[[tables]]`.
    top: Vec<(&'static str, bool)>,
}

impl Mistakes {
    pub(super) fn push(&mut self, mistake: Mistake) {
        self.found.push(mistake);
    }

    fn is_top(&self, name: &str) -> bool {
        self.top.iter().any(|(key, _)| *key == name)
    }

    fn has_tables(&self, name: &str) -> bool {
        self.top.contains(&(name, true))
    }
}

impl Mistake {
    pub(super) fn at(span: Range<usize>, what: &dyn Display) -> Self {
        Self { span, message: what.to_string() }
    }
}

/// Reads the values of a file.
pub(super) fn read<T: Table>(source: &Source) -> Result<T, Failure> {
    let empty = T::default();
    let top = T::ROWS.iter().map(|row| (row.name, (row.get)(&empty).has_tables())).collect();
    let mut wrong = Mistakes { found: Vec::new(), top };
    let written = match DeTable::parse(&source.text) {
        Ok(top) => table(top.get_ref(), top.span(), &mut wrong),
        Err(error) => {
            wrong.push(Mistake::at(error.span().unwrap_or(0..0), &error.message()));
            empty
        }
    };
    let mut wrong = wrong.found;
    if wrong.is_empty() {
        return Ok(written);
    }
    wrong.sort_by_key(|mistake| mistake.span.start);
    let shown = wrong.into_iter().take(MOST).map(|one| source.point(one.span, &one.message).to_string());
    Err(Failure::Configuration(shown.collect::<Vec<_>>().join("\n")))
}

/// Keys that still work by the name they had before.
const FORMER_NAMES: &[(&str, &str)] = &[("pass", "proxy"), ("most", "max-requests")];

/// Reads a table of the file, which begins with the bytes of `span`.
pub(super) fn table<T: Table>(table: &DeTable<'_>, span: Range<usize>, wrong: &mut Mistakes) -> T {
    let mut read = T::default();
    let mut of_profile = DeTable::new();
    for (key, value) in table {
        let name = key.get_ref().as_ref();
        let in_profile = read.profile().is_some() && profiles::has(name);
        let former = || FORMER_NAMES.iter().find_map(|(former, now)| (*former == name).then_some(*now));
        match T::row(name).or_else(|| T::row(former()?)) {
            Some(row) => match tables_instead(row, value, wrong) {
                Some(message) => wrong.push(Mistake::at(key.span(), &message)),
                None => (row.slot)(&mut read).read(value, row.key.range, wrong),
            },
            None if in_profile => {}
            None => {
                let message = unknown::<T>(name, value.get_ref(), wrong);
                wrong.push(Mistake::at(key.span(), &message));
            }
        }
        if in_profile {
            of_profile.insert(key.clone(), value.clone());
        }
    }
    for row in T::ROWS.iter().filter(|row| row.key.unset == Unset::Required) {
        if !table.contains_key(row.name) {
            wrong.push(Mistake::at(span.clone(), &format!("{} needs `{}`", scope::<T>(), row.name)));
        }
    }
    if let Some(profile) = read.profile() {
        *profile = profiles::read(of_profile, wrong);
    }
    read
}

/// What a value is, to follow the words "this is".
pub(super) fn kind(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a text",
        DeValue::Integer(_) => "a number",
        DeValue::Float(_) => "a number with a fraction",
        DeValue::Boolean(_) => "`true` or `false`",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "an array",
        DeValue::Table(_) => "a table",
    }
}

/// The keys that a scope has.
pub(super) fn names<T: Table>() -> Vec<&'static str> {
    let own: Vec<&str> = T::ROWS.iter().map(|row| row.name).collect();
    let of_profile = profiles::names().filter(|name| T::default().profile().is_some() && !own.contains(name));
    own.iter().copied().chain(of_profile).collect()
}

/// Returns the name of a table, and its keys.
pub(super) fn scope_and_names<T: Table>() -> (&'static str, Vec<&'static str>) {
    (T::SCOPE, names::<T>())
}

fn scope<T: Table>() -> String {
    match T::SCOPE {
        "" => "a configuration file".to_owned(),
        name if name.starts_with(['a', 'e', 'i', 'o']) => format!("an {} table", T::heading()),
        _ => format!("a {} table", T::heading()),
    }
}

/// `[[users]]`, where the key `users` has another meaning.
fn tables_instead<T: Table>(row: &Row<T>, value: &Spanned<DeValue<'_>>, wrong: &Mistakes) -> Option<String> {
    let singular = row.name.strip_suffix('s').filter(|name| wrong.has_tables(name))?;
    (T::SCOPE.is_empty() && holds_tables(value.get_ref())).then(|| of_tables(row.name, singular))
}

fn of_tables(name: &str, singular: &str) -> String {
    format!(
        "there are no [[{name}]]; each {singular} is a table of its own, which begins with [[{singular}]]"
    )
}

fn holds_tables(value: &DeValue<'_>) -> bool {
    match value {
        DeValue::Table(_) => true,
        DeValue::Array(all) => !all.is_empty() && all.iter().all(|one| one.get_ref().is_table()),
        _ => false,
    }
}

/// Says what a key that does not exist was meant to be.
fn unknown<T: Table>(name: &str, value: &DeValue<'_>, wrong: &Mistakes) -> String {
    let is_top = T::SCOPE.is_empty();
    let known = names::<T>();
    let spelt = name.replace('_', "-");
    let singular = spelt.strip_suffix('s').filter(|name| is_top && wrong.has_tables(name));
    if let Some(singular) = singular.filter(|_| holds_tables(value)) {
        return of_tables(name, singular);
    }
    let meant = T::ROWS.iter().find(|row| row.key.aliases.contains(&&*spelt));
    let near = nearest(name, &known);
    let hint = match (meant, near) {
        (Some(row), _) => match row.key.unset {
            Unset::Value(value) => {
                format!("did you mean `{0}`, such as {0} = {1}?", row.name, toml(value))
            }
            _ => format!("did you mean `{}`?", row.name),
        },
        (None, _) if !is_top && wrong.is_top(&spelt) && holds_tables(value) => {
            format!("`{spelt}` is of the top level: write [[{spelt}]]")
        }
        (None, _) if !is_top && wrong.is_top(&spelt) => {
            let or = near.map_or(String::new(), |near| format!("; or did you mean `{near}`?"));
            format!("`{spelt}` is a key of the top level: move it above the first table of the file{or}")
        }
        (None, Some(near)) => format!("did you mean `{near}`?"),
        (None, None) if is_top && holds_tables(value) => {
            "keys stand at the top level, without a table around them".to_owned()
        }
        (None, None) if is_top => "`millrace config example` shows all that there are".to_owned(),
        (None, None) => {
            let list: Vec<String> = known.iter().map(|key| format!("`{key}`")).collect();
            format!("there are {}", list.join(", "))
        }
    };
    format!("{} has no key `{name}`; {hint}", scope::<T>())
}
