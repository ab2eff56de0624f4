//! `docs/lessons.md` names tests; each of them exists.

use std::collections::HashSet;
use std::fs;
use std::path::Path;

#[test]
fn every_test_that_a_lesson_names_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut there = HashSet::new();
    find_tests(&root.join("crates"), &mut there);
    let lessons = fs::read_to_string(root.join("docs/lessons.md")).unwrap();
    let rows = lessons.lines().filter(|line| line.starts_with("| ") && line.contains('`'));
    // The last column: lessons name commands, too.
    let named = rows.flat_map(|row| row.trim_end_matches(" |").rsplit('|').next().unwrap().split(", "));
    let named: Vec<&str> = named.map(|test| test.trim().trim_matches('`')).collect();
    assert!(named.len() > 50, "{named:?}");
    let missing: Vec<_> = named.into_iter().filter(|&test| !there.contains(test)).collect();
    assert!(missing.is_empty(), "docs/lessons.md names tests that are not there: {missing:#?}");
}

/// The names of all tests in a folder's sources.
fn find_tests(folder: &Path, names: &mut HashSet<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            find_tests(&path, names);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let source = fs::read_to_string(&path).unwrap();
            let tests = source.split("#[test]").skip(1);
            let name = |test: &str| Some(test.split_once("fn ")?.1.split_once('(')?.0.to_owned());
            names.extend(tests.filter_map(name));
        }
    }
}
