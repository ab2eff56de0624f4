//! The flags of `millrace serve`, by the rows of the table of settings.

use std::ffi::OsString;

use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{Arg, ArgAction, ArgMatches, Args, Command, Error, FromArgMatches};

use super::error::ValueError;
use super::said::Place;
use super::setting::{Flag, Row, Table, Unset, plain};
use super::written::Written;

impl Args for Written {
    fn augment_args(command: Command) -> Command {
        command.args(Self::ROWS.iter().filter_map(argument))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for Written {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let mut written = Self::default();
        written.update_from_arg_matches(matches)?;
        Ok(written)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        for row in Self::ROWS.iter().filter(|row| row.key.flag.is_some()) {
            for text in matches.get_many::<String>(row.name).into_iter().flatten() {
                let read = (row.slot)(self).read_text(text, &Place::CommandLine, row.key.range);
                read.map_err(|error| Error::raw(clap::error::ErrorKind::ValueValidation, error))?;
            }
        }
        Ok(())
    }
}

fn argument(row: &'static Row<Written>) -> Option<Arg> {
    let flag = row.key.flag?;
    let is_list = (row.get)(&Written::default()).is_list();
    let [summary, rest] = row.paragraphs().map(|text| plain(&text));
    let summary = match shown_default(row.key.unset) {
        Some(default) => format!("{summary} [default: {default}]"),
        None => summary,
    };
    let argument = Arg::new(row.name)
        .action(if is_list { ArgAction::Append } else { ArgAction::Set })
        .value_parser(OsStringValueParser::new().try_map(move |text: OsString| check(row, text)));
    let argument = match rest.is_empty() {
        true => argument.help(summary),
        false => argument.long_help(format!("{summary}\n\n{rest}")).help(summary),
    };
    Some(match flag {
        Flag::Value(value) => argument.long(row.name).value_name(value).help_heading(row.section),
        Flag::Positional(value) => argument.value_name(value),
        Flag::Switch => {
            argument.long(row.name).num_args(0).default_missing_value("on").help_heading(row.section)
        }
    })
}

/// Returns the text of a flag that can be read.
fn check(row: &'static Row<Written>, text: OsString) -> Result<String, ValueError> {
    let text = text.into_string().map_err(|_| ValueError::Encoding)?;
    let mut written = Written::default();
    (row.slot)(&mut written).read_text(&text, &Place::CommandLine, row.key.range).map(|()| text)
}

fn shown_default(unset: Unset) -> Option<String> {
    match unset {
        Unset::Value("false" | "off" | "0") | Unset::Means("none" | "no users") | Unset::Required => None,
        Unset::Value(value) => Some(value.to_owned()),
        Unset::Means(meaning) => Some(plain(meaning)),
    }
}
