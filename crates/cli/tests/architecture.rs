//! What `ARCHITECTURE.md` names exists.

use std::fs;
use std::path::{Path, PathBuf};

/// A word in backticks that ends in `/` or `.rs` is a path from the root, or the end of a path beneath `crates/`.
#[test]
fn every_path_of_the_page_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = fs::read_to_string(root.join("ARCHITECTURE.md")).unwrap();
    let words = page.split("```").step_by(2).flat_map(|text| text.split('`').skip(1).step_by(2));
    let paths: Vec<_> =
        words.filter(|word| word.ends_with('/') || word.ends_with(".rs")).flat_map(alternatives).collect();
    assert!(paths.len() > 10, "{paths:?}");
    let mut there = Vec::new();
    find_all(&root.join("crates"), &mut there);
    for path in paths {
        let is_there = root.join(&path).exists() || there.iter().any(|found| found.ends_with(&path));
        assert!(is_there, "ARCHITECTURE.md: {path} is not there");
    }
}

fn find_all(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            find_all(&path, found);
        }
        found.push(path);
    }
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
