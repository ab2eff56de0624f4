//! What the table of settings says for people: the tables of `docs/configuration.md`, and the example of a file.

use std::fmt::Write;

use super::cluster::ClusterTable;
use super::folders::FolderTable;
use super::hooks::HookTable;
use super::hosts::HostTable;
use super::limits::{ClassTable, ListenerTable};
use super::logins::{GroupTable, UserTable};
use super::notices::NoticeTable;
use super::oidc::OidcTable;
use super::otlp::OtlpTable;
use super::profiles;
use super::proxy_routes::ProxyTable;
#[cfg(test)]
use super::setting::Flag;
use super::setting::{Table, Unset, plain, toml};
use super::sources::SourceTable;
use super::web::{CorsTable, ErrorPageTable, HeaderTable};
use super::written::Written;

/// An example of each kind of `[[table]]`.
const TABLES: [fn(&mut String); 16] = [
    example_of::<UserTable>,
    example_of::<GroupTable>,
    example_of::<SourceTable>,
    example_of::<FolderTable>,
    example_of::<HostTable>,
    example_of::<HeaderTable>,
    example_of::<CorsTable>,
    example_of::<ErrorPageTable>,
    example_of::<ProxyTable>,
    example_of::<ClassTable>,
    example_of::<ListenerTable>,
    example_of::<HookTable>,
    example_of::<NoticeTable>,
    example_of::<ClusterTable>,
    example_of::<OidcTable>,
    example_of::<OtlpTable>,
];

/// The table of a section of the top level, in Markdown.
#[cfg(test)]
pub(crate) fn section(section: &str) -> String {
    let mut text = "| Key | Flag | Default | Meaning |\n|---|---|---|---|\n".to_owned();
    for row in Written::ROWS.iter().filter(|row| row.section == section) {
        let flag = match row.key.flag {
            None => String::new(),
            Some(Flag::Positional(name)) => format!("`{name}`"),
            Some(Flag::Value(_) | Flag::Switch) => format!("`--{}`", row.name),
        };
        let space = if flag.is_empty() { "" } else { " " };
        let restart = if row.key.restarts { " *Restart.*" } else { "" };
        let meaning = row.text().replace('|', "\\|");
        let _ = writeln!(
            text,
            "| `{}` |{space}{flag} | {} | {meaning}{restart} |",
            row.name,
            cell(row.key.unset)
        );
    }
    text
}

/// The table of the keys of a scope, in Markdown.
#[cfg(test)]
pub(crate) fn scope<T: Table>() -> String {
    let mut text = "| Key | Default | Meaning |\n|---|---|---|\n".to_owned();
    for (name, unset, meaning) in keys::<T>() {
        let _ = writeln!(text, "| `{name}` | {} | {} |", cell(unset), meaning.replace('|', "\\|"));
    }
    text
}

#[cfg(test)]
fn cell(unset: Unset) -> String {
    match unset {
        Unset::Value(value) => format!("`{}`", toml(value)),
        Unset::Means(meaning) => meaning.to_owned(),
        Unset::Required => "required".to_owned(),
    }
}

/// A file that has every key, as a comment with its default.
pub(crate) fn example() -> String {
    let mut text = "# Every key that a configuration file of `millrace serve` may have. Remove the # before a key to set \
                    it.\n# `millrace check FILE` says what a file means.\n"
        .to_owned();
    let mut section = "";
    for row in Written::ROWS.iter().filter(|row| !(row.get)(&Written::default()).has_tables()) {
        if row.section != section {
            section = row.section;
            let _ = write!(text, "\n## {section}\n");
        }
        line(row.name, row.key.unset, &row.text(), &mut text);
    }
    TABLES.iter().for_each(|table| table(&mut text));
    text
}

/// The keys of a `[[table]]`, as comments.
fn example_of<T: Table>(text: &mut String) {
    let _ = write!(text, "\n#{}\n", T::heading());
    keys::<T>().iter().for_each(|(name, unset, help)| line(name, *unset, help, text));
}

/// The keys of a scope: name, default, help. What all accounts have in common is with those of `[[user]]`.
fn keys<T: Table>() -> Vec<(&'static str, Unset, String)> {
    let own = T::ROWS.iter().map(|row| (row.name, row.key.unset, row.text()));
    let of_profile = profiles::rows::<T>().filter(|_| T::SCOPE == "user");
    own.chain(of_profile.map(|row| (row.name, row.unset, row.text()))).collect()
}

/// A key with its help and its default, as comments.
fn line(name: &str, unset: Unset, help: &str, text: &mut String) {
    let value = match unset {
        Unset::Value(value) => toml(value),
        Unset::Means(meaning) => format!("   # default: {}", plain(meaning)),
        Unset::Required => "   # required".to_owned(),
    };
    let _ = write!(text, "\n{}#{name} = {value}\n", comment(&plain(help)));
}

/// Lines of a comment.
fn comment(text: &str) -> String {
    const WIDTH: usize = 98;
    let mut lines = vec!["#".to_owned()];
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.len() + word.len() < WIDTH => *line += &format!(" {word}"),
            _ => lines.push(format!("# {word}")),
        }
    }
    lines.join("\n") + "\n"
}
