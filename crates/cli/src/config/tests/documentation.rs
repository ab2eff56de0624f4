//! `docs/configuration.md` and what else is made of the table of settings.

use std::os::unix::fs::PermissionsExt;

use super::*;
use crate::config::cluster::ClusterTable;
use crate::config::folders::FolderTable;
use crate::config::hooks::HookTable;
use crate::config::hosts::HostTable;
use crate::config::limits::{ClassTable, ListenerTable};
use crate::config::logins::{GroupTable, UserTable};
use crate::config::notices::NoticeTable;
use crate::config::oidc::OidcTable;
use crate::config::otlp::OtlpTable;
use crate::config::proxy_routes::ProxyTable;
use crate::config::setting::{Row, Unset};
use crate::config::sources::SourceTable;
use crate::config::web::{CorsTable, ErrorPageTable, HeaderTable};

const TEXT: &str = include_str!("../../../../../docs/configuration.md");

/// The tables of the page that the rows make, by the names in the comments before them.
fn tables() -> Vec<(String, String)> {
    fn scope<T: Table>() -> (String, String) {
        (T::heading(), reference::scope::<T>())
    }
    let mut sections: Vec<&str> = Written::ROWS.iter().map(|row| row.section).collect();
    sections.dedup();
    let of_top = sections.iter().map(|section| ((*section).to_owned(), reference::section(section)));
    of_top
        .chain([
            scope::<UserTable>(),
            scope::<GroupTable>(),
            scope::<SourceTable>(),
            scope::<FolderTable>(),
            scope::<HostTable>(),
            scope::<HeaderTable>(),
            scope::<CorsTable>(),
            scope::<ErrorPageTable>(),
            scope::<ProxyTable>(),
            scope::<ClassTable>(),
            scope::<ListenerTable>(),
            scope::<HookTable>(),
            scope::<NoticeTable>(),
            scope::<ClusterTable>(),
            scope::<OidcTable>(),
            scope::<OtlpTable>(),
        ])
        .collect()
}

#[test]
fn the_tables_of_keys_are_those_of_the_code() {
    let mut made = TEXT.to_owned();
    for (name, table) in tables() {
        let marker = format!("<!-- settings: {name} -->\n\n");
        let at = made.find(&marker).unwrap_or_else(|| panic!("the page lacks {marker}")) + marker.len();
        let old = made[at..].split_inclusive('\n').take_while(|line| line.starts_with('|'));
        let end = at + old.map(str::len).sum::<usize>();
        made.replace_range(at..end, &table);
    }
    if std::env::var_os("MILLRACE_GOLDEN").is_some_and(|what| what == "write") {
        fs::write(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/configuration.md"), made).unwrap();
    } else {
        let hint = "MILLRACE_GOLDEN=write cargo test -p millrace the_tables_of_keys writes it";
        assert!(made == TEXT, "docs/configuration.md differs from the table of settings: {hint}");
    }
}

/// The rows with a default that can be written, as lines of a file.
fn defaults() -> String {
    let line = |row: &Row<Written>| match row.key.unset {
        Unset::Value(value) => Some(format!("{} = {}\n", row.name, setting::toml(value))),
        _ => None,
    };
    Written::ROWS.iter().filter_map(line).collect()
}

#[test]
fn the_documented_defaults_are_the_defaults() {
    let folder = Folder::new();
    let default = folder.file("").unwrap();
    let documented = folder.file(&defaults()).unwrap_or_else(|failure| panic!("{failure}"));
    let accounts = |site: &Site| format!("{:?}", site.config.accounts);
    // A folder that is written lies beneath that of the file.
    let disks = |site: &Site| format!("{:?}", site.config.disks);
    let apart = |site: &Site| {
        let all = format!("{:?} {:?}", site.files, site.config);
        all.replace(&accounts(site), "").replace(&disks(site), "")
    };
    assert_eq!(apart(&documented), apart(&default));
}

#[test]
fn every_key_of_a_profile_has_a_row() {
    let all: Vec<&str> = profiles::names().collect();
    let unknown = serde_json::from_str::<millrace_server::auth::Profile>("{\"nonsense\":1}").unwrap_err();
    let unknown = unknown.to_string();
    let expected: Vec<&str> = unknown.split('`').skip(3).step_by(2).collect();
    assert_eq!(all, expected);
}

#[test]
fn names_of_rows_and_fields_are_no_traps() {
    let mut names: Vec<&str> = Written::ROWS.iter().map(|row| row.name).collect();
    let aliases = Written::ROWS.iter().flat_map(|row| row.key.aliases);
    names.extend(aliases);
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count, "a name or an alias is there twice");
    assert!(HookTable::row("move").is_some());
}

#[test]
fn the_example_has_every_key_and_is_accepted() {
    let folder = Folder::new();
    let example = reference::example();
    folder.file(&example).unwrap_or_else(|failure| panic!("{failure}"));
    for row in Written::ROWS {
        let is_there = |start: &str| example.lines().any(|line| line.starts_with(start));
        let forms = [format!("#{} = ", row.name), format!("#[[{}]]", row.name), format!("#[{}]", row.name)];
        assert!(forms.iter().any(|form| is_there(form)), "{}", row.name);
    }
    let set: String = defaults().lines().map(|line| format!("#{line}\n")).collect();
    for line in set.lines() {
        assert!(example.contains(line), "{line}");
    }
}

/// Says what a value has against a schema; of the words of JSON Schema it knows those that ours has.
fn faults(value: &serde_json::Value, schema: &serde_json::Value, at: &str) -> Vec<String> {
    use serde_json::Value as Json;
    let mut found = Vec::new();
    for (word, rule) in schema.as_object().unwrap() {
        let is_right = match (word.as_str(), rule) {
            ("description" | "default" | "title" | "$schema", _) => true,
            ("type", kind) => match kind.as_str().unwrap() {
                "string" => value.is_string(),
                "integer" => value.is_i64() || value.is_u64(),
                "boolean" => value.is_boolean(),
                "array" => value.is_array(),
                "object" => value.is_object(),
                other => panic!("{other}"),
            },
            ("enum", Json::Array(all)) => all.contains(value),
            ("anyOf", Json::Array(all)) => all.iter().any(|one| faults(value, one, at).is_empty()),
            ("minimum", least) => value.as_u64().is_none_or(|number| number >= least.as_u64().unwrap()),
            ("maximum", most) => value.as_u64().is_none_or(|number| number <= most.as_u64().unwrap()),
            ("minItems", least) => {
                value.as_array().is_none_or(|all| all.len() as u64 >= least.as_u64().unwrap())
            }
            ("items", rule) => {
                let items = value.as_array().into_iter().flatten();
                found.extend(items.flat_map(|item| faults(item, rule, at)));
                true
            }
            ("required", Json::Array(keys)) => {
                keys.iter().all(|key| value.get(key.as_str().unwrap()).is_some())
            }
            ("properties", Json::Object(keys)) => {
                for (key, value) in value.as_object().into_iter().flatten() {
                    found.extend(keys.get(key).into_iter().flat_map(|rule| faults(value, rule, key)));
                }
                true
            }
            ("additionalProperties", Json::Bool(false)) => value
                .as_object()
                .is_none_or(|all| all.keys().all(|key| schema["properties"].get(key).is_some())),
            ("additionalProperties", rule) => {
                found.extend(
                    value.as_object().into_iter().flatten().flat_map(|(_, one)| faults(one, rule, at)),
                );
                true
            }
            other => panic!("{other:?}"),
        };
        if !is_right {
            found.push(format!("{at}: {word}"));
        }
    }
    found
}

#[test]
fn the_schema_accepts_what_is_documented() {
    let schema = schema::schema::<Written>();
    let accepts = |text: &str| {
        let value: serde_json::Value = toml::from_str(text).unwrap_or_else(|error| panic!("{text}\n{error}"));
        faults(&value, &schema, "")
    };
    let none: [String; 0] = [];
    let pages = [
        TEXT,
        include_str!("../../../../../docs/accounts.md"),
        include_str!("../../../../../docs/folders.md"),
        include_str!("../../../tests/golden/most.toml"),
    ];
    let examples = pages.iter().flat_map(|page| match page.contains("```toml") {
        true => page.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next()).collect(),
        false => vec![*page],
    });
    let mut count = 0;
    for example in examples.chain([&*defaults(), &reference::example()]) {
        assert_eq!(accepts(example), none, "{example}");
        count += 1;
    }
    assert!(count > 10);
    for (text, fault) in [
        ("grace = true", "grace: anyOf"),
        ("workers = 5000", "workers: anyOf"),
        ("uploads = \"fast\"", "uploads: enum"),
        ("port = 2121", ": additionalProperties"),
        ("[[listener]]\nsessions = 3", "listener: required"),
        ("[[user]]\nname = \"a\"\nacess = \"ro\"", "user: additionalProperties"),
        ("ftp = []", "ftp: anyOf"),
    ] {
        assert_eq!(accepts(text), [fault], "{text}");
    }
}

#[test]
fn the_example_can_be_used() {
    let folder = Folder::new();
    fs::create_dir(folder.path().join("scans")).unwrap();
    let example = TEXT.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let site = folder
        .file(&example.replace("/srv/files", ".").replace("/var/log/millrace/", ""))
        .unwrap_or_else(|failure| panic!("{failure}"));
    assert_eq!(logins(&site), "alice may read and write; scanner may read and write, in scans");
}

#[test]
fn the_examples_of_accounts_can_be_used() {
    let folder = Folder::new();
    for name in ["mysql.password", "ldap.password"] {
        fs::write(folder.path().join(name), "secret\n").unwrap();
    }
    fs::create_dir(folder.path().join("customers")).unwrap();
    let program = folder.path().join("logins");
    fs::write(&program, "#!/bin/sh\n").unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let text = include_str!("../../../../../docs/accounts.md");
    let examples: Vec<&str> =
        text.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    let said: Vec<String> = examples
        .into_iter()
        .map(|example| {
            let here = [("/srv/files", "."), ("/home", "."), ("/usr/local/bin/", "./")];
            let local = here.iter().fold(example.to_owned(), |text, (there, here)| text.replace(there, here));
            let site = folder.file(&local);
            logins(&site.unwrap_or_else(|failure| panic!("{example}\n{failure}")))
        })
        .collect();
    let elsewhere = 9;
    let first = "acme may list, read, write, mkdir, in customers/acme; from 203.0.113.0/24, 2001:db8::/32; mon-fri \
                 07:00-20:00 Europe/Paris, sat 07:00-12:00 Europe/Paris";
    let last = [
        "partner may read; at /incoming: write, mkdir; at /projects/*/drafts: read and write; at /internal: nothing; no \
         names .*, *.exe",
        "anonymous may read; at /incoming: write; no names *.bak",
    ];
    assert_eq!(said, [&[first][..], &vec![""; elsewhere], &last].concat());
}

#[test]
fn the_example_of_folders_can_be_used() {
    let folder = Folder::new();
    let text = include_str!("../../../../../docs/folders.md");
    let example = text.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    for place in ["archive", "mail", "vault"] {
        fs::create_dir(folder.path().join(place)).unwrap();
    }
    fs::write(folder.path().join("vault.key"), "5a".repeat(32)).unwrap();
    let keys = text.split("```ini\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    fs::write(folder.path().join("s3.credentials"), keys).unwrap();
    let mut local = example.replace("/srv/files", ".");
    for elsewhere in ["/mnt/", "/srv/", "/etc/millrace/", "/var/lib/millrace/"] {
        local = local.replace(elsewhere, "");
    }
    let site = folder.file(&local).unwrap_or_else(|failure| panic!("{failure}"));
    let paths: Vec<&str> = site.mounts.mounts().iter().map(|mount| mount.path.as_str()).collect();
    assert_eq!(paths, ["/archive", "/mail", "/vault", "/rows", "/shared", "/objects", "/indexed"]);
    assert!(site.mounts.archives());
    assert!(!folder.path().join("files.db").exists(), "reading a configuration makes nothing");
}

#[test]
fn every_event_and_name_of_hooks_is_documented() {
    use millrace_server::hooks::{EVENTS, NAMES, Way};
    let text = include_str!("../../../../../docs/hooks.md");
    for (_, name, way, when) in EVENTS {
        let way = if *way == Way::Asked { "asked" } else { "notified" };
        assert!(text.contains(&format!("| `{name}` | {way} | {when} |\n")), "{name}");
    }
    for (name, meaning) in NAMES {
        assert!(text.contains(&format!("| `{name}` | {meaning} |\n")), "{name}");
    }
}

/// The unit makes what it may not make itself, and what the pages put there.
#[test]
fn the_unit_has_the_folders_that_the_pages_name() {
    let unit = include_str!("../../../../../packaging/systemd/millrace.service");
    for (folder, line) in [
        ("/run/millrace", "RuntimeDirectory=millrace\n"),
        ("/var/log/millrace", "LogsDirectory=millrace\n"),
        ("/var/lib/millrace", "StateDirectory=millrace\n"),
    ] {
        assert!(unit.contains(folder) && unit.contains(line), "{folder}");
    }
    assert!(unit.contains("\nUser=millrace\n"));
    assert!(include_str!("../../../../../docs/guide.md").contains("systemd-sysusers"));
}
