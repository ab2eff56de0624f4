//! `docs/configuration.md`, held to the code.

use std::os::unix::fs::PermissionsExt;

use super::*;

const TEXT: &str = include_str!("../../../../../docs/configuration.md");

/// The cells of the rows whose first cell is a key, of the tables with so many columns.
fn rows(columns: usize) -> Vec<Vec<String>> {
    TEXT.lines()
        .filter(|line| line.starts_with("| `"))
        .map(|line| {
            let line = line.trim_matches('|').replace("\\|", "/");
            line.split('|').map(|cell| cell.trim().to_owned()).collect::<Vec<_>>()
        })
        .filter(|cells| cells.len() == columns)
        .collect()
}

/// What stands alone between backticks.
fn code(cell: &str) -> Option<&str> {
    cell.strip_prefix('`')?.strip_suffix('`').filter(|code| !code.contains('`'))
}

fn sorted(keys: impl IntoIterator<Item = String>) -> Vec<String> {
    let mut keys: Vec<String> = keys.into_iter().collect();
    keys.sort();
    keys
}

fn keys(columns: usize) -> Vec<String> {
    sorted(rows(columns).iter().map(|cells| code(&cells[0]).unwrap().to_owned()))
}

#[test]
fn every_key_is_documented_and_every_documented_key_exists() {
    assert_eq!(keys(4), sorted(keys::of_file().iter().map(|key| (*key).to_owned())));
    assert_eq!(keys(2), sorted(keys::of_source().iter().map(|key| (*key).to_owned())));
    let of_tables = [
        keys::of_folder(),
        keys::of_user(),
        keys::of_group().into_iter().filter(|key| key.starts_with("shared-")).collect(),
        keys::of_listener(),
        keys::of_hook(),
        keys::of_pass(),
        keys::of_header(),
        keys::of_host(),
        keys::of_cors(),
        keys::of_error_page(),
    ]
    .concat();
    assert_eq!(keys(3), sorted(of_tables.iter().map(|key| (*key).to_owned())));
}

#[test]
fn every_flag_is_documented_beside_its_key() {
    let command = Cli::command();
    let serve = command.find_subcommand("serve").unwrap();
    for cells in rows(4) {
        let key = code(&cells[0]).unwrap();
        let flag = serve.get_arguments().any(|argument| argument.get_long() == Some(key));
        let expected = match (key, flag) {
            ("directory", _) => "`DIR`".to_owned(),
            (_, true) => format!("`--{key}`"),
            (_, false) => String::new(),
        };
        assert_eq!(cells[1], expected, "{key}");
    }
    let documented = keys(4);
    let flags = serve.get_arguments().filter(|argument| !argument.is_hide_set());
    for flag in flags.filter_map(|argument| argument.get_long()) {
        let concerns_the_start = matches!(flag, "config" | "ready-file" | "ready-json");
        assert!(concerns_the_start || documented.iter().any(|key| key == flag), "--{flag} has no key");
    }
}

#[test]
fn the_documented_defaults_are_the_defaults() {
    let folder = Folder::new();
    let written: String = rows(4)
        .iter()
        .filter_map(|cells| Some(format!("{} = {}\n", code(&cells[0])?, code(&cells[2])?)))
        .collect();
    let default = folder.file("").unwrap();
    let documented = folder.file(&written).unwrap_or_else(|failure| panic!("{failure}"));
    let accounts = |site: &Site| format!("{:?}", site.config.accounts);
    let apart = |site: &Site| format!("{:?} {:?}", site.files, site.config).replace(&accounts(site), "");
    assert_eq!(apart(&documented), apart(&default));
}

#[test]
fn the_help_names_the_documented_defaults() {
    let mut command = Cli::command();
    let help = command.find_subcommand_mut("serve").unwrap().render_long_help().to_string();
    let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
    for cells in rows(4).iter().filter(|cells| cells[1].starts_with("`--")) {
        let Some(default) = code(&cells[2]).filter(|default| !matches!(*default, "true" | "false" | "0"))
        else {
            continue;
        };
        let expected = format!("[default: {}]", default.trim_matches('"'));
        assert!(help.contains(&expected), "the help lacks {expected} of {}", cells[1]);
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
    let is_linked = |example: &&str| cfg!(feature = "pam") || !example.contains("pam =");
    let said: Vec<String> = examples
        .into_iter()
        .filter(is_linked)
        .map(|example| {
            let here = [("/srv/files", "."), ("/home", "."), ("/usr/local/bin/", "./")];
            let local = here.iter().fold(example.to_owned(), |text, (there, here)| text.replace(there, here));
            let site = folder.file(&local);
            logins(&site.unwrap_or_else(|failure| panic!("{example}\n{failure}")))
        })
        .collect();
    let elsewhere = if cfg!(feature = "pam") { 9 } else { 7 };
    let first = "acme may list, read, write, mkdir, in customers/acme; from 203.0.113.0/24, 2001:db8::/32; mon-fri \
                 07:00-20:00 Europe/Paris, sat 07:00-12:00 Europe/Paris";
    let last = [
        "partner may read; at /incoming: write, mkdir; at /projects/*/drafts: read and write; at /internal: nothing; no \
         names .*, *.exe",
        "anonymous may read; at /incoming: write; no names .*",
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
    let mut local = example.replace("/srv/files", ".");
    for elsewhere in ["/mnt/", "/srv/", "/etc/millrace/", "/var/lib/millrace/"] {
        local = local.replace(elsewhere, "");
    }
    let site = folder.file(&local).unwrap_or_else(|failure| panic!("{failure}"));
    let paths: Vec<&str> = site.mounts.mounts().iter().map(|mount| mount.path.as_str()).collect();
    assert_eq!(paths, ["/archive", "/mail", "/vault", "/rows", "/shared"]);
    assert!(site.mounts.archives());
    assert!(!folder.path().join("files.db").exists(), "reading a configuration makes nothing");
}

#[test]
fn every_event_and_name_of_hooks_is_documented() {
    use millrace_server::hooks::{EVENTS, NAMES, Way};
    let text = include_str!("../../../../../docs/hooks.md");
    for (_, name, way, when) in EVENTS {
        let way = if *way == Way::Asked { "asked" } else { "told" };
        assert!(text.contains(&format!("| `{name}` | {way} | {when} |\n")), "{name}");
    }
    for (name, meaning) in NAMES {
        assert!(text.contains(&format!("| `{name}` | {meaning} |\n")), "{name}");
    }
}

/// The unit makes what it may not make itself, and what the pages put there.
#[test]
fn the_unit_of_the_guide_has_the_folders_that_the_pages_name() {
    let guide = include_str!("../../../../../docs/guide.md");
    for (folder, line) in [
        ("/run/millrace", "RuntimeDirectory=millrace\n"),
        ("/var/log/millrace", "LogsDirectory=millrace\n"),
        ("/var/lib/millrace", "StateDirectory=millrace\n"),
    ] {
        assert!(guide.contains(folder) && guide.contains(line), "{folder}");
    }
    assert!(guide.contains("useradd --system ") && guide.contains("\nUser=millrace\n"));
    let limits = include_str!("../../../../../docs/limits.md");
    let controls = limits.split("--control ").skip(1).filter(|rest| rest.starts_with('/'));
    assert!(
        controls.clone().count() > 0 && controls.clone().all(|rest| rest.starts_with("/run/millrace/ctl"))
    );
}
