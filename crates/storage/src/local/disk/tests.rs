//! No call goes past the list.

use std::fs;
use std::path::Path;

/// Every source of the back end but the list itself, and tests.
#[test]
fn only_the_list_names_system_calls() {
    let local = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/local");
    let mut folders = vec![local];
    let mut sources = 0;
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_stem().unwrap().to_str().unwrap();
            if ["disk", "tests", "crash"].contains(&name) {
                continue;
            }
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let text = fs::read_to_string(&path).unwrap();
            let production = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
            for (number, line) in production.lines().enumerate() {
                assert!(!calls_the_system(line), "{}:{}: {line}", path.display(), number + 1);
            }
            sources += 1;
        }
    }
    assert!(sources > 15, "{sources}");
}

/// What is no call: types, and pure functions of numbers.
fn calls_the_system(line: &str) -> bool {
    let direct = line.split("rustix::fs::").skip(1).any(|rest| {
        rest.starts_with(|first: char| first.is_ascii_lowercase()) && !rest.starts_with("makedev(")
    });
    direct
        || ["std::fs::remove", "std::fs::write", "std::fs::rename", "try_clone("]
            .iter()
            .any(|call| line.contains(call))
}

#[test]
fn a_call_past_the_list_is_seen() {
    assert!(calls_the_system("    rustix::fs::unlinkat(directory, name, flags)"));
    assert!(!calls_the_system("    use rustix::fs::AtFlags; disk::unlinkat(directory, name, flags)"));
}
