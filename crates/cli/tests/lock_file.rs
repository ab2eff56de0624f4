//! `Cargo.lock` keeps to `deny.toml`, as far as it shows: sources, banned crates and duplicate versions. Licences and
//! advisories take cargo-deny.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use serde::Deserialize;

const CRATES_IO: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// Duplicates that no build for Linux compiles; the lock file covers all systems.
const OTHER_SYSTEMS: [&str; 3] = ["r-efi", "wasi", "windows-sys"];

#[derive(Deserialize)]
struct Lock {
    package: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    version: String,
    source: Option<String>,
    checksum: Option<String>,
}

#[derive(Deserialize)]
struct Deny {
    bans: Bans,
}

#[derive(Deserialize)]
struct Bans {
    deny: Vec<Listed>,
    skip: Vec<Listed>,
}

/// A crate as `deny.toml` names it: `base64@0.22` is every 0.22.
#[derive(Deserialize)]
struct Listed {
    #[serde(rename = "crate")]
    spec: String,
}

fn read<T: for<'de> Deserialize<'de>>(name: &str) -> T {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(name);
    toml::from_str(&fs::read_to_string(&path).unwrap()).unwrap()
}

#[test]
fn every_dependency_is_from_crates_io() {
    let Lock { package } = read("Cargo.lock");
    for Package { name, version, source, checksum } in &package {
        match source {
            Some(source) => assert!(
                source == CRATES_IO && checksum.is_some(),
                "{name} {version} is from {source}, and only crates.io is allowed"
            ),
            None => assert!(
                name == "millrace" || name.starts_with("millrace-"),
                "{name} {version} is a path outside of the workspace"
            ),
        }
    }
}

#[test]
fn no_banned_crate_is_a_dependency() {
    let (Lock { package }, Deny { bans }) = (read("Cargo.lock"), read("deny.toml"));
    let names: BTreeSet<&str> = package.iter().map(|package| package.name.as_str()).collect();
    for Listed { spec } in &bans.deny {
        assert!(!names.contains(spec.as_str()), "{spec} is a dependency; deny.toml says why it must not be");
    }
}

#[test]
fn only_the_duplicates_of_deny_toml_are_compiled_twice() {
    let (Lock { package }, Deny { bans }) = (read("Cargo.lock"), read("deny.toml"));
    let mut versions = BTreeMap::<&str, Vec<&str>>::new();
    for package in package.iter().filter(|package| !OTHER_SYSTEMS.contains(&package.name.as_str())) {
        versions.entry(&package.name).or_default().push(&package.version);
    }
    let is_skipped = |name: &str, version: &str| {
        bans.skip.iter().any(|Listed { spec }| {
            let (known, of) = spec.split_once('@').unwrap_or((spec, ""));
            known == name && version.strip_prefix(of).is_some_and(|rest| rest.starts_with('.'))
        })
    };
    for (name, versions) in &versions {
        let counted = versions.iter().filter(|version| !is_skipped(name, version)).count();
        assert!(
            counted == 1,
            "{name} has versions {versions:?}: update what needs the old one, or name it in deny.toml"
        );
    }
    for Listed { spec } in &bans.skip {
        let name = spec.split('@').next().unwrap_or(spec);
        assert!(
            versions.get(name).is_some_and(|versions| versions.len() > 1),
            "{spec} is no duplicate any more"
        );
    }
}
