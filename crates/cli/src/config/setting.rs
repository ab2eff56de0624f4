//! The table of settings: each key is one row.
//!
//! [`settings!`] turns rows into a struct with a field for each key, and into [`Table::ROWS`]. From the rows come the
//! flags (`flags.rs`), the reader of files (`file.rs`), environment variables (`environment.rs`), the list of `millrace
//! check` and the reload report (`origins.rs`), the tables of `docs/configuration.md` and the example (`reference.rs`)
//! and the JSON Schema (`schema.rs`).

use std::fmt::Debug;

use millrace_server::Config;
use millrace_server::auth::Profile;

use super::slot::Slot;

/// A scope with keys of its own: the top level of the file, or one kind of `[[table]]`.
pub(crate) trait Table: Debug + Clone + Default + 'static {
    /// What stands between the brackets; empty for the top level.
    const SCOPE: &'static str;
    const ROWS: &'static [Row<Self>];

    /// Returns these values, with those of `below` for keys that have none.
    fn over(self, below: Self) -> Self;

    /// Returns where the keys go that accounts in files and in databases have in common.
    fn profile(&mut self) -> Option<&mut Profile>;

    /// Returns whether there is one of these tables at most, in single brackets.
    fn is_single() -> bool {
        matches!(Self::SCOPE, "cluster" | "admin-oidc" | "otlp")
    }

    /// Returns how such a table begins.
    fn heading() -> String {
        if Self::is_single() { format!("[{}]", Self::SCOPE) } else { format!("[[{}]]", Self::SCOPE) }
    }

    /// Returns the row of a key.
    fn row(name: &str) -> Option<&'static Row<Self>> {
        Self::ROWS.iter().find(|row| row.name == name)
    }
}

/// A key.
pub(crate) struct Row<T: 'static> {
    pub(crate) name: &'static str,
    /// The heading that it stands under, in the help and in the documentation.
    pub(crate) section: &'static str,
    /// Lines of Markdown. The first paragraph is a summary.
    pub(crate) help: &'static [&'static str],
    pub(crate) key: Key,
    pub(crate) get: fn(&T) -> &dyn Slot,
    pub(crate) slot: fn(&mut T) -> &mut dyn Slot,
    /// The field of the server's configuration that has the same value.
    pub(crate) field: Option<Field<T>>,
}

/// A field of the server's configuration.
pub(crate) struct Field<T: 'static> {
    pub(crate) set: fn(&T, &mut Config),
    pub(crate) shown: fn(&Config) -> String,
}

/// What a row says of its key.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Key {
    pub(crate) unset: Unset,
    pub(crate) flag: Option<Flag>,
    pub(crate) range: Range,
    /// Whether a changed value takes effect at a restart only, not at a reload.
    pub(crate) restarts: bool,
    /// Whether the value is not to be printed.
    pub(crate) is_secret: bool,
    /// The name, where it is not the field's.
    pub(crate) name: Option<&'static str>,
    /// Names that other servers have for it.
    pub(crate) aliases: &'static [&'static str],
}

/// What holds where a key is not written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unset {
    /// The same as with this value.
    Value(&'static str),
    /// Something else, in Markdown.
    Means(&'static str),
    /// Nothing: it has to be written.
    Required,
}

/// How a flag is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flag {
    /// `--name VALUE`
    Value(&'static str),
    /// `--name`
    Switch,
    /// `VALUE`
    Positional(&'static str),
}

/// The values that a number may have, and its unit.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Range {
    pub(crate) least: u64,
    pub(crate) most: u64,
    pub(crate) unit: &'static str,
}

impl Range {
    pub(crate) const ALL: Self = Self { least: 0, most: u64::MAX, unit: "" };
}

/// A key that counts as `value` where it is not written.
pub(crate) const fn default(value: &'static str) -> Key {
    Key::new(Unset::Value(value))
}

/// A key for which this holds where it is not written.
pub(crate) const fn unset(meaning: &'static str) -> Key {
    Key::new(Unset::Means(meaning))
}

/// A key that has to be written.
pub(crate) const fn required() -> Key {
    Key::new(Unset::Required)
}

impl Key {
    const fn new(unset: Unset) -> Self {
        let range = Range::ALL;
        Self { unset, flag: None, range, restarts: false, is_secret: false, name: None, aliases: &[] }
    }

    /// It is also the flag `--name VALUE`.
    pub(crate) const fn flag(self, value: &'static str) -> Self {
        Self { flag: Some(Flag::Value(value)), ..self }
    }

    /// It is also the flag `--name`.
    pub(crate) const fn switch(self) -> Self {
        Self { flag: Some(Flag::Switch), ..self }
    }

    /// It is also the argument `VALUE`.
    pub(crate) const fn positional(self, value: &'static str) -> Self {
        Self { flag: Some(Flag::Positional(value)), ..self }
    }

    /// Zero makes no sense.
    pub(crate) const fn positive(self) -> Self {
        Self { range: Range { least: 1, ..self.range }, ..self }
    }

    /// The largest number, and of what.
    pub(crate) const fn at_most(self, most: u64, unit: &'static str) -> Self {
        Self { range: Range { most, unit, ..self.range }, ..self }
    }

    /// A changed value takes effect at a restart only.
    pub(crate) const fn restart(self) -> Self {
        Self { restarts: true, ..self }
    }

    /// The value is not to be printed.
    pub(crate) const fn secret(self) -> Self {
        Self { is_secret: true, ..self }
    }

    /// The name, where the field cannot have it.
    pub(crate) const fn named(self, name: &'static str) -> Self {
        Self { name: Some(name), ..self }
    }

    /// Names that people try.
    pub(crate) const fn aliases(self, aliases: &'static [&'static str]) -> Self {
        Self { aliases, ..self }
    }
}

impl<T> Row<T> {
    /// Returns the help as one paragraph of Markdown.
    pub(crate) fn text(&self) -> String {
        let [summary, rest] = self.paragraphs();
        let stop = if summary.ends_with(['.', '?', '!']) { "" } else { "." };
        format!("{summary}{stop} {rest}").trim_end().to_owned()
    }

    /// Returns the summary, and what follows it.
    pub(crate) fn paragraphs(&self) -> [String; 2] {
        let end = self.help.iter().position(|line| line.trim().is_empty()).unwrap_or(self.help.len());
        let join = |lines: &[&str]| lines.iter().map(|line| line.trim()).collect::<Vec<_>>().join(" ");
        [join(&self.help[..end]), join(&self.help[end..]).trim().to_owned()]
    }
}

/// A value as it is written in a file.
pub(crate) fn toml(value: &str) -> String {
    let is_bare = value.parse::<i64>().is_ok() || matches!(value, "true" | "false") || value.starts_with('[');
    if is_bare { value.to_owned() } else { format!("{value:?}") }
}

/// Markdown without links and backticks.
pub(crate) fn plain(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, inner)) = rest.split_once('[') {
        match inner.split_once("](").and_then(|(name, rest)| Some((name, rest.split_once(')')?.1))) {
            Some((name, after)) if !name.contains('[') => {
                out += before;
                out += name;
                rest = after;
            }
            _ => {
                out += before;
                out.push('[');
                rest = inner;
            }
        }
    }
    (out + rest).replace('`', "")
}

/// Returns the name of a key by the name of its field: `list_sort` is `list-sort`.
pub(crate) const fn kebab<const N: usize>(name: &str) -> [u8; N] {
    let (mut bytes, mut at) = ([0; N], 0);
    while at < N {
        bytes[at] = if name.as_bytes()[at] == b'_' { b'-' } else { name.as_bytes()[at] };
        at += 1;
    }
    bytes
}

/// Declares a table of settings. A row is its help, `field: Type = key`, and, where a field of the server's
/// configuration has the same value, `=> field`.
macro_rules! settings {
    (
        $(#[$attribute:meta])*
        $name:ident of $scope:literal $(with $extra:ident: $of:ty)? {
            $($section:literal {
                $($(#[doc = $help:literal])+ $field:ident: $type:ty = $key:expr $(=> $($to:ident).+)?;)+
            })+
        }
    ) => {
        $(#[$attribute])*
        #[derive(Debug, Clone, Default)]
        pub(crate) struct $name {
            $($($(#[doc = $help])+ pub(crate) $field: $type,)+)+
            $(pub(crate) $extra: $of,)?
        }

        impl $crate::config::setting::Table for $name {
            const SCOPE: &'static str = $scope;
            const ROWS: &'static [$crate::config::setting::Row<Self>] = &[$($($crate::config::setting::Row {
                name: {
                    const FIELD: &str = stringify!($field);
                    const NAME: [u8; FIELD.len()] = $crate::config::setting::kebab(FIELD);
                    const KEY: $crate::config::setting::Key = $key;
                    match (KEY.name, ::std::str::from_utf8(&NAME)) {
                        (Some(name), _) | (None, Ok(name)) => name,
                        (None, Err(_)) => FIELD,
                    }
                },
                section: $section,
                help: &[$($help),+],
                key: $key,
                get: |table| &table.$field,
                slot: |table| &mut table.$field,
                field: $crate::config::setting::settings!(@field $field $($($to).+)?),
            },)+)+];

            fn over(self, below: Self) -> Self {
                use $crate::config::slot::Slot as _;
                Self {
                    $($($field: self.$field.over(below.$field),)+)+
                    $($extra: self.$extra,)?
                }
            }

            #[allow(unused_mut, unused_assignments)]
            fn profile(&mut self) -> Option<&mut millrace_server::auth::Profile> {
                let mut profile = None;
                $(profile = Some(&mut self.$extra);)?
                profile
            }
        }
    };
    (@field $field:ident) => { None };
    (@field $field:ident $($to:ident).+) => {
        Some($crate::config::setting::Field {
            set: |table, config| $crate::config::slot::Assign::assign(&table.$field, &mut config.$($to).+),
            shown: |config| format!("{:?}", config.$($to).+),
        })
    };
    ($(#[$attribute:meta])* $name:ident of $scope:literal $(with $extra:ident: $of:ty)? { $($rows:tt)+ }) => {
        $crate::config::setting::settings! {
            $(#[$attribute])* $name of $scope $(with $extra: $of)? { "" { $($rows)+ } }
        }
    };
}

pub(crate) use settings;
