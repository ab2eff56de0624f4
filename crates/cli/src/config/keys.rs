//! The names of the keys, taken from the structs that hold them.

use millrace_server::auth::Profile;
use serde::Deserialize;
use serde::de::value::Error as Refusal;
use serde::de::{Deserializer, Error, Visitor};
use serde::forward_to_deserialize_any;
use toml::de::{DeTable, DeValue};

use super::hosts::HostTable;
use super::limits::ListenerTable;
use super::report::Source;
use super::sources::SourceTable;
use super::web::{CorsTable, ErrorPageTable, HeaderTable};
use super::written::{FolderTable, GroupTable, HookTable, PassTable, UserTable, Written};
use crate::failure::Failure;

/// The keys of the file's top level.
pub(crate) fn of_file() -> &'static [&'static str] {
    fields_of::<Written>()
}

/// The keys of a `[[user]]` table.
pub(crate) fn of_user() -> Vec<&'static str> {
    with_profile(fields_of::<UserTable>())
}

/// The keys of a `[[group]]` table.
pub(crate) fn of_group() -> Vec<&'static str> {
    with_profile(fields_of::<GroupTable>())
}

/// The keys of a `[[folder]]` table.
pub(crate) fn of_folder() -> Vec<&'static str> {
    fields_of::<FolderTable>().to_vec()
}

/// The keys of a `[[hook]]` table.
pub(crate) fn of_hook() -> Vec<&'static str> {
    fields_of::<HookTable>().to_vec()
}

/// The keys of a `[[pass]]` table.
pub(crate) fn of_pass() -> Vec<&'static str> {
    fields_of::<PassTable>().to_vec()
}

/// The keys of a `[[source]]` table.
pub(crate) fn of_source() -> Vec<&'static str> {
    fields_of::<SourceTable>().to_vec()
}

/// The keys of a `[[header]]` table.
pub(crate) fn of_header() -> Vec<&'static str> {
    fields_of::<HeaderTable>().to_vec()
}

/// The keys of a `[[cors]]` table.
pub(crate) fn of_cors() -> Vec<&'static str> {
    fields_of::<CorsTable>().to_vec()
}

/// The keys of an `[[error-page]]` table.
pub(crate) fn of_error_page() -> Vec<&'static str> {
    fields_of::<ErrorPageTable>().to_vec()
}

/// The keys of a `[[host]]` table.
pub(crate) fn of_host() -> Vec<&'static str> {
    fields_of::<HostTable>().to_vec()
}

/// The keys of a `[[listener]]` table.
pub(crate) fn of_listener() -> Vec<&'static str> {
    fields_of::<ListenerTable>().to_vec()
}

fn with_profile(own: &[&'static str]) -> Vec<&'static str> {
    let of_profile = fields_of::<Profile>().iter().filter(|key| !own.contains(key));
    own.iter().chain(of_profile).copied().collect()
}

/// Points at the first key that does not exist, and names the nearest that does.
///
/// `deny_unknown_fields` would refuse it too, with a list of all keys in the message.
pub(crate) fn refuse_unknown(source: &Source) -> Result<(), Failure> {
    let Ok(table) = DeTable::parse(&source.text) else {
        return Ok(()); // What is wrong with the syntax is told by the parser that comes next.
    };
    refuse(source, table.get_ref(), of_file(), "a configuration file")?;
    let tables = [
        ("user", of_user()),
        ("group", of_group()),
        ("folder", of_folder()),
        ("hook", of_hook()),
        ("pass", of_pass()),
        ("source", of_source()),
        ("header", of_header()),
        ("cors", of_cors()),
        ("listener", of_listener()),
        ("host", of_host()),
        ("error-page", of_error_page()),
    ];
    for (name, known) in tables {
        refuse_in_tables(source, table.get_ref(), name, &known)?;
    }
    Ok(())
}

fn refuse_in_tables(source: &Source, table: &DeTable<'_>, name: &str, known: &[&str]) -> Result<(), Failure> {
    let form = format!("each {name} is a table of its own, which begins with [[{name}]], in two brackets");
    let Some(tables) = table.get(name) else { return Ok(()) };
    match tables.get_ref() {
        DeValue::Array(tables) => tables.iter().try_for_each(|one| match one.get_ref() {
            DeValue::Table(one) => refuse(source, one, known, &format!("a [[{name}]] table")),
            _ => Err(source.point(one.span(), &form)),
        }),
        _ => Err(source.point(tables.span(), &form)),
    }
}

fn refuse(source: &Source, table: &DeTable<'_>, known: &[&str], whose: &str) -> Result<(), Failure> {
    let unknown = table.keys().filter(|key| !known.contains(&key.get_ref().as_ref()));
    match unknown.min_by_key(|key| key.span().start) {
        None => Ok(()),
        Some(key) => {
            let name = key.get_ref().as_ref();
            let hint = match nearest(name, known) {
                Some(nearest) => format!("did you mean `{nearest}`?"),
                None => format!("there are {}", list(known)),
            };
            Err(source.point(key.span(), &format!("{whose} has no key `{name}`; {hint}")))
        }
    }
}

fn nearest<'a>(name: &str, known: &[&'a str]) -> Option<&'a str> {
    let name = name.replace('_', "-");
    let likeness = |known: &str| strsim::jaro_winkler(&name, known);
    known
        .iter()
        .copied()
        .filter(|known| likeness(known) > 0.8)
        .max_by(|left, right| likeness(left).total_cmp(&likeness(right)))
}

fn list(known: &[&str]) -> String {
    known.iter().map(|key| format!("`{key}`")).collect::<Vec<_>>().join(", ")
}

/// Asks a struct's `Deserialize` which fields it would take.
fn fields_of<'de, T: Deserialize<'de>>() -> &'static [&'static str] {
    let mut fields: &[&str] = &[];
    let _ = T::deserialize(FieldNames(&mut fields));
    fields
}

struct FieldNames<'a>(&'a mut &'static [&'static str]);

impl<'de> Deserializer<'de> for FieldNames<'_> {
    type Error = Refusal;

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, Refusal> {
        *self.0 = fields;
        Err(Refusal::custom("only the names were wanted"))
    }

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Refusal> {
        Err(Refusal::custom("not a struct"))
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit
        unit_struct newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}
