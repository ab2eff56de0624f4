//! Row 18: what `check` and the start say.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::Stdio;

use super::site::{Folder, HASH};

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
    let folder = Folder::new("start");
    folder.configure("ftp = \"127.0.0.1:0\"\nhttp = \"off\"");
    let mut server = folder
        .command(&["serve", "--config", "millrace.toml"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let lines = BufReader::new(server.stdout.take().unwrap()).lines().map(Result::unwrap);
    let told: Vec<String> = lines.take_while(|line| !line.starts_with("Ready")).collect();
    server.kill().unwrap();
    server.wait().unwrap();
    let eve = told.iter().find(|line| line.contains("://eve@")).unwrap_or_else(|| panic!("{told:?}"));
    assert!(eve.ends_with("eve may list, read, write, and administer the server"), "{eve}");
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
}
