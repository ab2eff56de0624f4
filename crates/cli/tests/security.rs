//! What `SECURITY.md` names as the tests of its promises exists.

use std::fs;
use std::path::{Path, PathBuf};

/// The third cells of the table of promises; a row of a heading has none.
fn cells(page: &str) -> Vec<String> {
    let table = page.split("| Promise | How it is kept | Test |").nth(1).expect("the table of promises");
    let rows = table.lines().skip(2).take_while(|line| line.starts_with('|'));
    let cells = rows.filter(|row| !row.starts_with("| **"));
    cells.map(|row| row.trim_matches('|').rsplit(" | ").next().unwrap_or_default().to_owned()).collect()
}

/// A word in backticks with a slash is the end of the path of a file with tests; another is a test in one of the files of its
/// row.
#[test]
fn every_promise_has_a_test_that_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = fs::read_to_string(root.join("SECURITY.md")).unwrap();
    let mut sources = Vec::new();
    find_sources(&root.join("crates"), &mut sources);
    let rows = cells(&page);
    assert!(rows.len() > 30, "{rows:?}");
    for row in rows {
        let words: Vec<&str> = row.split('`').skip(1).step_by(2).collect();
        let (files, tests): (Vec<&str>, Vec<&str>) = words.into_iter().partition(|word| word.contains('/'));
        assert!(!files.is_empty(), "no test is named: {row}");
        let mut texts = String::new();
        for file in files {
            let found = sources.iter().filter(|source| source.ends_with(file));
            let found: Vec<String> = found.map(|source| fs::read_to_string(source).unwrap()).collect();
            let with_tests: Vec<_> = found.iter().filter(|text| text.contains("#[test]")).collect();
            assert!(with_tests.len() == 1, "{file}: {} files, {} with tests", found.len(), with_tests.len());
            texts += with_tests[0];
        }
        for test in tests {
            assert!(texts.contains(&format!("fn {test}()")), "no test {test}: {row}");
        }
    }
}

fn find_sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => find_sources(&path, found),
            false => found.push(path),
        }
    }
}
