//! A file whose values are read, and all that is wrong with them told at once: a value that cannot be read is left out,
//! and the rest read again.

use std::ops::Range;

use serde::de::DeserializeOwned;
use toml::de::{DeTable, DeValue, Error};

use super::profiles::{Beside, Profiles};
use super::report::Source;
use super::written::Written;
use crate::failure::Failure;

/// Mistakes that are told at once; more would scroll the first away.
const MOST: usize = 10;

/// What is written in the file.
pub(super) fn read(source: &Source) -> Result<Written, Failure> {
    let mut error = match values(&source.text) {
        Ok(written) => return Ok(written),
        Err(error) => error,
    };
    let mut told = vec![told(source, &error)];
    let mut text = source.text.clone();
    while let Some(range) = error.span().and_then(|span| said_at(&text, span.start))
        && told.len() < MOST
    {
        leave_out(&mut text, range);
        error = match values(&text) {
            Err(error) => error,
            Ok(_) => break,
        };
        // Of what is missing now, nobody is to hear.
        if error.span().is_some_and(|span| said_at(&text, span.start).is_some()) {
            told.push(self::told(source, &error));
        }
    }
    told.sort_by_key(|(at, _)| *at);
    let told: Vec<String> = told.into_iter().map(|(_, text)| text).collect();
    Err(Failure::Configuration(told.join("\n")))
}

/// A mistake, and where it begins.
fn told(source: &Source, error: &Error) -> (usize, String) {
    let span = error.span().unwrap_or(0..0);
    (span.start, source.point(span, error.message()).to_string())
}

fn values(text: &str) -> Result<Written, Error> {
    fn of<T: DeserializeOwned>(text: &str) -> Result<T, Error> {
        toml::from_str(text)
    }
    let (mut written, profiles): (Written, Profiles) = (of(text)?, of(text)?);
    for (table, Beside(profile)) in written.user_tables.iter_mut().zip(profiles.user) {
        table.profile = profile;
    }
    for (table, Beside(profile)) in written.group_tables.iter_mut().zip(profiles.group) {
        table.profile = profile;
    }
    Ok(written)
}

/// The key and value that a mistake at this byte is in. `None` where it is one of a whole table, or of the syntax.
fn said_at(text: &str, at: usize) -> Option<Range<usize>> {
    let table = DeTable::parse(text).ok()?;
    said_in(table.get_ref(), at)
}

fn said_in(table: &DeTable<'_>, at: usize) -> Option<Range<usize>> {
    table.iter().find_map(|(key, value)| match value.get_ref() {
        DeValue::Table(inner) => said_in(inner, at),
        DeValue::Array(all) if all.iter().any(|one| matches!(one.get_ref(), DeValue::Table(_))) => {
            all.iter().find_map(|one| match one.get_ref() {
                DeValue::Table(inner) => said_in(inner, at),
                _ => None,
            })
        }
        _ => value.span().contains(&at).then(|| key.span().start..value.span().end),
    })
}

/// Puts blanks in the place of bytes, so that all else stays where it is.
fn leave_out(text: &mut String, range: Range<usize>) {
    let blank = |byte: u8| if byte == b'\n' { '\n' } else { ' ' };
    let blanks: String = text[range.clone()].bytes().map(blank).collect();
    text.replace_range(range, &blanks);
}
