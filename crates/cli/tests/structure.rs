//! The crates stand in tiers: what a crate depends on is of its own tier or a lower one.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// The crates, by folder, from the lowest tier up.
const TIERS: &[&[&str]] = &[
    // Vocabulary: imports nothing of ours.
    &["vfs", "net", "process", "sandbox", "blocking", "uring"],
    // Protocols and back ends.
    &["ftp", "http", "storage"],
    // Policy.
    &["limits", "accounts", "log", "hooks", "acme"],
    // What sessions of every protocol run on.
    &["runtime"],
    // Drivers of the protocols on it.
    &["ftp-server", "gateway", "http-server"],
    // Programs.
    &["server", "load", "lab"],
    // The control interface of a server.
    &["admin"],
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
