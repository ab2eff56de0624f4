//! The names of the keys, taken from the structs that hold them.

use std::ops::Range;

use millrace_server::auth::Profile;
use serde::Deserialize;
use serde::de::value::Error as Refusal;
use serde::de::{Deserializer, Error, Visitor};
use serde::forward_to_deserialize_any;
use toml::de::{DeTable, DeValue};

use super::folders::FolderTable;
use super::hooks::HookTable;
use super::hosts::HostTable;
use super::limits::ListenerTable;
use super::logins::{GroupTable, UserTable};
use super::passes::PassTable;
use super::report::{KnownKeys, Source, nearest};
use super::sources::SourceTable;
use super::web::{CorsTable, ErrorPageTable, HeaderTable};
use super::written::Written;
use crate::failure::Failure;

/// The keys of the file's top level.
pub(crate) fn of_file() -> &'static [&'static str] {
    fields_of::<Written>()
}

/// What an error may show of a line, which may hold a password.
pub(crate) fn known() -> KnownKeys {
    KnownKeys { file: of_file(), user: of_user() }
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

/// Points at every key that does not exist, and names the nearest that does.
///
/// `deny_unknown_fields` would refuse it too, with a list of all keys in the message.
pub(crate) fn refuse_unknown(source: &Source) -> Result<(), Failure> {
    let Ok(table) = DeTable::parse(&source.text) else {
        return Ok(()); // What is wrong with the syntax is told by the parser that comes next.
    };
    let mut wrong = Vec::new();
    find_unknown(source, table.get_ref(), of_file(), "a configuration file", &mut wrong);
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
        find_in_tables(source, table.get_ref(), name, &known, &mut wrong);
    }
    wrong.sort_by_key(|(start, _)| *start);
    let told: Vec<String> = wrong.into_iter().map(|(_, failure)| failure.to_string()).collect();
    if told.is_empty() { Ok(()) } else { Err(Failure::Configuration(told.join("\n"))) }
}

/// Mistakes, each with where it begins.
type Mistakes = Vec<(usize, Failure)>;

fn find_in_tables(source: &Source, table: &DeTable<'_>, name: &str, known: &[&str], wrong: &mut Mistakes) {
    let form = format!("each {name} is a table of its own, which begins with [[{name}]], in two brackets");
    let misformed = |span: Range<usize>| (span.start, source.point(span, &form));
    let Some(tables) = table.get(name) else { return };
    let DeValue::Array(all) = tables.get_ref() else { return wrong.push(misformed(tables.span())) };
    for one in all {
        match one.get_ref() {
            DeValue::Table(one) => find_unknown(source, one, known, &format!("a [[{name}]] table"), wrong),
            _ => wrong.push(misformed(one.span())),
        }
    }
}

fn find_unknown(source: &Source, table: &DeTable<'_>, known: &[&str], whose: &str, wrong: &mut Mistakes) {
    for key in table.keys().filter(|key| !known.contains(&key.get_ref().as_ref())) {
        let name = key.get_ref().as_ref();
        let hint = match nearest(name, known) {
            Some(nearest) => format!("did you mean `{nearest}`?"),
            None => format!("there are {}", list(known)),
        };
        let message = format!("{whose} has no key `{name}`; {hint}");
        wrong.push((key.span().start, source.point(key.span(), &message)));
    }
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
