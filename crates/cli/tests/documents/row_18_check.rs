//! Row 18: what `check` and the start say.

use std::fs;

use super::site::{Folder, HASH, Site};

#[test]
fn check_tells_admin_and_no_folder_for_all_of_the_tree() {
    let folder = Folder::new("check");
    folder.configure("");
    let text = fs::read_to_string(folder.0.join("millrace.toml")).unwrap();
    fs::write(folder.0.join("millrace.toml"), format!("{text}directory = \".\"\n")).unwrap();
    let told = folder.tell(&["check", "millrace.toml"]);
    assert!(told.contains("eve may list, read, write, and administer the server"), "{told}");
    assert!(told.contains("bob may read and write.") && !told.contains(", in ."), "{told}");
}

#[test]
fn the_start_tells_admin_too() {
    let site = Site::start("start", "");
    let output = site.folder.run(&["explain", "eve", "--config", "millrace.toml"]);
    assert!(String::from_utf8_lossy(&output.stdout).contains("admin"), "{output:?}");
}

#[test]
fn flags_of_other_programs_keep_their_dashes() {
    let folder = Folder::new("dashes");
    let config = |source: &str| {
        let text =
            format!("directory = \"files\"\n[[user]]\nname = \"bob\"\npassword = \"{HASH}\"\n{source}");
        fs::write(folder.0.join("millrace.toml"), text).unwrap();
        let output = folder.run(&["check", "millrace.toml"]);
        (output.status.success(), String::from_utf8(output.stderr).unwrap())
    };
    // Where it is built in, there is nothing to say.
    let (is_built, error) = config("[[source]]\npam = \"millrace\"\n");
    assert!(is_built || error.contains("cargo build --release --features pam"), "{error}");
    let (_, error) = config("ftps = \"127.0.0.1:0\"\n");
    assert!(!error.contains("--ftps"), "{error}");
}
