//! The crates stand in tiers: what a crate depends on is of its own tier or a lower one.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// The crates, by folder, from the lowest tier up.
const TIERS: &[&[&str]] = &[
    // Vocabulary: imports nothing of ours.
    &["vfs", "net", "process", "sandbox", "blocking", "uring", "stats", "payload", "terminal"],
    // Protocols and back ends.
    &["ftp", "http", "privsep", "storage", "s3", "indexed"],
    // Policy.
    &["limits", "cluster", "accounts", "metrics", "log", "hooks", "acme", "notices", "oidc", "telemetry"],
    // What sessions of every protocol run on.
    &["runtime"],
    // Drivers of the protocols on it.
    &["ftp-server", "gateway", "http-server"],
    // Programs.
    &["server", "load", "generators", "lab", "bench", "manual"],
    // The control interface of a server.
    &["admin", "admin-http"],
    // The binary.
    &["cli"],
];

/// The tier of a crate, by folder.
fn tier(folder: &str) -> Option<usize> {
    TIERS.iter().position(|tier| tier.contains(&folder))
}

#[test]
fn no_crate_depends_on_a_higher_tier() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut seen = 0;
    for entry in fs::read_dir(&crates).unwrap() {
        let folder = entry.unwrap().file_name().into_string().unwrap();
        let own = tier(&folder).unwrap_or_else(|| panic!("TIERS has no place for crates/{folder}"));
        for dependency in dependencies(&crates.join(&folder)) {
            let theirs = tier(&dependency).unwrap_or_else(|| panic!("TIERS has no place for {dependency}"));
            assert!(
                theirs <= own,
                "crates/{folder} depends on crates/{dependency}, which is of a higher tier"
            );
            assert!(own > 0, "crates/{folder} is of the lowest tier, and depends on crates/{dependency}");
        }
        seen += 1;
    }
    assert_eq!(seen, TIERS.iter().map(|tier| tier.len()).sum::<usize>(), "TIERS names a crate that is gone");
}

/// Folders of the crates of ours that a crate needs to be built, its tests aside.
fn dependencies(folder: &Path) -> Vec<String> {
    let manifest = fs::read_to_string(folder.join("Cargo.toml")).unwrap();
    let manifest: BTreeMap<String, toml::Value> = toml::from_str(&manifest).unwrap();
    let tables = ["dependencies", "build-dependencies"].into_iter().filter_map(|table| manifest.get(table));
    let names = tables.filter_map(toml::Value::as_table).flat_map(|table| table.keys());
    names.filter_map(|name| name.strip_prefix("millrace-")).map(str::to_owned).collect()
}

#[test]
fn errors_are_typed() {
    let found: Vec<_> = production_files()
        .into_iter()
        .filter(|(_, text)| has_text_error(text))
        .map(|(path, _)| path)
        .collect();
    assert!(found.is_empty(), "functions return Result<_, String>: {found:?}");
}

/// The archive of a crate, from which others build it, has no file from elsewhere.
#[test]
fn production_code_includes_files_of_its_own_crate_alone() {
    for (path, text) in production_files() {
        let depth = path.components().count() - 2;
        for named in production(&text).split("include_").skip(1).filter_map(|rest| rest.split('"').nth(1)) {
            let up = named.split('/').take_while(|part| *part == "..").count();
            assert!(up <= depth, "crates/{} includes {named}", path.display());
        }
    }
}

/// Returns the paths, beneath `crates`, and texts of the sources without those that are for tests alone.
fn production_files() -> Vec<(PathBuf, String)> {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut files = Vec::new();
    let mut folders = vec![crates.clone()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let relative = path.strip_prefix(&crates).unwrap();
            if path.is_dir() {
                let is_source = relative.components().nth(1).is_none_or(|part| part.as_os_str() == "src");
                folders.extend((is_source && !path.ends_with("tests")).then_some(path));
            } else if path.extension().is_some_and(|extension| extension == "rs")
                && !path.ends_with("tests.rs")
                && !path.parent().is_some_and(|folder| folder.ends_with("crash"))
            {
                files.push((relative.to_owned(), fs::read_to_string(&path).unwrap()));
            }
        }
    }
    files
}

/// Returns the text of a file without the tests at its end.
fn production(text: &str) -> &str {
    text.split("#[cfg(test)]\nmod ").next().unwrap_or_default()
}

/// Returns whether the production code of a file has a `Result` with a text as its error.
fn has_text_error(text: &str) -> bool {
    let code = production(text).lines().filter(|line| !line.trim_start().starts_with("//"));
    let words: String = code.flat_map(|line| line.split_whitespace()).collect();
    words.match_indices("Result<").any(|(at, head)| error_of(&words[at + head.len()..]) == Some("String"))
}

/// Returns the second argument of a generic type, given the text behind its `<`.
fn error_of(arguments: &str) -> Option<&str> {
    let (mut depth, mut comma) = (0, None);
    for (at, character) in arguments.char_indices() {
        match character {
            '<' | '(' | '[' => depth += 1,
            // The arrow of a function type.
            '>' if arguments[..at].ends_with('-') => {}
            '>' | ')' | ']' if depth == 0 => {
                return comma.map(|comma| arguments[comma..at].trim_end_matches(','));
            }
            '>' | ')' | ']' => depth -= 1,
            ',' if depth == 0 && comma.is_none() => comma = Some(at + 1),
            _ => {}
        }
    }
    None
}

#[test]
fn text_errors_are_found_behind_any_value() {
    for wrong in [
        "fn a() -> Result<(), String> {",
        "Result<\n    Vec<(u8, Box<dyn Fn() -> u8>)>,\n    String,\n>",
        "Option<Result<u8, String>>",
    ] {
        assert!(has_text_error(wrong), "{wrong}");
    }
    for right in [
        "Result<String, Error>",
        "// Result<(), String>",
        "io::Result<String>",
        "#[cfg(test)]\nmod tests {\nResult<(), String>",
    ] {
        assert!(!has_text_error(right), "{right}");
    }
}

/// A new crate on a hot path would be compiled without much optimisation, and nothing else would say so.
#[test]
fn every_crate_has_its_level_of_optimisation_in_a_release_build() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let manifest = fs::read_to_string(root.join("Cargo.toml")).unwrap();
    let manifest: toml::Value = toml::from_str(&manifest).unwrap();
    let levels = manifest["profile"]["release"]["package"].as_table().unwrap();
    for folder in TIERS.iter().copied().flatten() {
        let name = if *folder == "cli" { "millrace".to_owned() } else { format!("millrace-{folder}") };
        let level = levels.get(&name).and_then(|package| package.get("opt-level"));
        assert!(level.is_some(), "say in [profile.release.package.{name}] how far it is optimised");
    }
    for name in levels.keys().filter_map(|name| name.strip_prefix("millrace-")) {
        assert!(tier(name).is_some(), "[profile.release.package.millrace-{name}] is of a crate that is gone");
    }
}
