//! `ARCHITECTURE.md` says where everything is: what it names exists, and no source file of some size is missing.

use std::fs;
use std::path::{Path, PathBuf};

/// Up to here a file is one that is found beside another.
const SMALL: usize = 100;

#[test]
fn every_source_file_is_found_from_the_table() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let named = named(&root);
    assert!(named.len() > 100, "{named:?}");
    let mut sources = Vec::new();
    for entry in fs::read_dir(root.join("crates")).unwrap() {
        find_sources(&entry.unwrap().path().join("src"), &mut sources);
    }
    let missing: Vec<_> = sources
        .iter()
        .map(|path| path.strip_prefix(&root).unwrap())
        .filter(|path| !path.ends_with("tests.rs") && !named.iter().any(|named| leads_to(named, path)))
        .filter(|path| fs::read_to_string(root.join(path)).unwrap().lines().count() > SMALL)
        .collect();
    assert!(missing.is_empty(), "ARCHITECTURE.md, \"Where is ...\", does not lead to {missing:#?}");
}

/// A folder leads to all that is in it, a module to those beneath it.
fn leads_to(named: &Path, path: &Path) -> bool {
    path.starts_with(named) || path.starts_with(named.with_extension(""))
}

/// Everything that the table says is somewhere. It is there.
fn named(root: &Path) -> Vec<PathBuf> {
    let page = fs::read_to_string(root.join("ARCHITECTURE.md")).unwrap();
    let (_, table) = page.split_once("## Where is ...").expect("the page has its table");
    let rows = table.lines().filter(|line| line.starts_with("| ")).skip(1);
    rows.flat_map(|row| {
        let cell = row.trim_end_matches(" |").rsplit(" | ").next().unwrap();
        let mut of_row: Vec<PathBuf> = Vec::new();
        let words = cell.split('`').skip(1).step_by(2);
        for path in words.filter(|word| word.contains('/') || word.ends_with(".rs")).flat_map(alternatives) {
            let found = if path.starts_with("crates/") {
                Some(PathBuf::from(&path)).filter(|path| root.join(path).exists())
            } else {
                // "there": beside or beneath what was named before.
                let above = of_row.iter().rev().flat_map(|named| named.ancestors());
                above.map(|folder| folder.join(&path)).find(|path| root.join(path).exists())
            };
            of_row.push(found.unwrap_or_else(|| panic!("ARCHITECTURE.md: {path} is not there: {row}")));
        }
        of_row
    })
    .collect()
}

/// `a/{b,c}.rs` is `a/b.rs` and `a/c.rs`.
fn alternatives(path: &str) -> Vec<String> {
    let Some((before, (inside, after))) =
        path.split_once('{').and_then(|(before, rest)| Some((before, rest.split_once('}')?)))
    else {
        return vec![path.to_owned()];
    };
    inside.split(',').flat_map(|one| alternatives(&format!("{before}{one}{after}"))).collect()
}

fn find_sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            find_sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}
