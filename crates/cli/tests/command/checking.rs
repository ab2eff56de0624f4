//! `millrace check`: what a file means, and what a start would fail on.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use crate::{GOLDEN, Scratch, compare, millrace, run, text};

#[test]
fn check_says_what_a_file_means() {
    let mut files: Vec<PathBuf> = fs::read_dir(GOLDEN).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "toml"));
    assert!(files.len() >= 3, "the golden files are in {GOLDEN}");
    // Git does not store such modes.
    fs::set_permissions(format!("{GOLDEN}/vault.key"), fs::Permissions::from_mode(0o600)).unwrap();
    for file in files {
        // Where this is kept without a word depends on who runs the tests.
        let mut check = millrace(&["check", file.to_str().unwrap()]);
        let output = check.env("STATE_DIRECTORY", format!("{GOLDEN}/state")).output().unwrap();
        let told = format!("{}{}", text(&output.stdout), text(&output.stderr)).replace(GOLDEN, "GOLDEN");
        let told = crate::without_word_of_root(&crate::on_any_kernel(&told));
        let told = format!("{told}exit code {}\n", output.status.code().unwrap());
        compare(&file.with_extension("txt"), &told);
    }
}

/// What a server would fail on at its start is a mistake in the file, and nothing is made to find that out.
#[test]
fn check_finds_what_a_start_would_fail_on() {
    let scratch = Scratch::new("obstacles");
    let file = scratch.path("m.toml");
    let hook = "[[hook]]\non = \"login\"\nrun = [\"/bin/true\"]\n";
    for (toml, told) in [
        ("control = \"missing/ctl\"", "missing/ctl cannot be made in "),
        ("control = \"m.toml\"", "is there and no socket"),
        (&format!("hooks-queue = \"missing/q.db\"\n{hook}"), "missing/q.db cannot be made in "),
        ("access-log = \"missing/log\"", "missing/log cannot be made in "),
        ("tls-self-signed = true\nstate = \"/proc/x\"", "the server's own certificate cannot be kept in "),
        ("tls-self-signed = true\nstate = \"m.toml\"", "the server's own certificate cannot be kept in "),
        ("http = \"127.0.0.1:2121\"", "127.0.0.1:2121 cannot be had, as FTP is served at 127.0.0.1:2121"),
        (
            "ftp = [\"0.0.0.0:21\", \"127.0.0.1:21\"]",
            "127.0.0.1:21 cannot be had, as FTP is served at 0.0.0.0:21",
        ),
    ] {
        let toml = format!("directory = \"{GOLDEN}/inside\"\n{toml}\n");
        fs::write(&file, toml).unwrap();
        let before = fs::read_dir(&scratch.0).unwrap().count();
        for arguments in [&["check"][..], &["serve", "--config"]] {
            let output = run(&[arguments, &[file.to_str().unwrap()]].concat());
            let error = text(&output.stderr);
            assert_eq!(output.status.code(), Some(2), "{error}");
            assert!(error.to_lowercase().contains(&told.to_lowercase()), "{error}");
        }
        assert_eq!(fs::read_dir(&scratch.0).unwrap().count(), before);
    }
    let several =
        format!("directory = \"{GOLDEN}/inside\"\ncontrol = \"missing/ctl\"\naccess-log = \"missing/log\"\n");
    fs::write(&file, several).unwrap();
    let error = text(&run(&["check", file.to_str().unwrap()]).stderr);
    assert!(error.contains(":2:11: ") && error.contains(":3:14: "), "{error}");
    for toml in ["ftp = [\"0.0.0.0:2121\", \"[::]:2121\"]", "ftp = \"127.0.0.1:0\"\nhttp = \"127.0.0.1:0\""] {
        fs::write(&file, toml).unwrap();
        let output = run(&["check", file.to_str().unwrap()]);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    }
}

#[test]
fn keys_that_others_may_read_are_warned_of() {
    let scratch = Scratch::new("modes");
    let (file, key) = (scratch.path("m.toml"), scratch.path("links"));
    fs::write(&file, format!("directory = \"{GOLDEN}/inside\"\nhttp-link-keys = \"links\"\n")).unwrap();
    fs::write(&key, "0123456789abcdef0123456789abcdef").unwrap();
    for (mode, told) in [(0o600, false), (0o640, true), (0o604, true), (0o400, false)] {
        fs::set_permissions(&key, fs::Permissions::from_mode(mode)).unwrap();
        let output = text(&run(&["check", file.to_str().unwrap()]).stdout);
        let warning = format!("links (http-link-keys), of mode {mode:04o}: chmod 600 ");
        assert_eq!(output.contains(&warning), told, "{output}");
    }
}

#[test]
fn sockets_of_applications_that_are_not_there_are_warned_of() {
    let scratch = Scratch::new("applications");
    let (file, socket) = (scratch.path("m.toml"), scratch.path("socket"));
    let pass = format!("[[proxy]]\npath = \"/app\"\nto = \"fastcgi:{}\"\n", socket.display());
    fs::write(&file, format!("directory = \"{GOLDEN}/inside\"\n{pass}")).unwrap();
    let warns = || {
        text(&run(&["check", file.to_str().unwrap()]).stdout).contains("warning: [[proxy]] /app to fastcgi:")
    };
    assert!(warns());
    let _there = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    assert!(!warns());
}
