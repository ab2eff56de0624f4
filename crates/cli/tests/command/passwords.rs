//! `millrace hash-password`, and the accounts that its hashes are for.

use std::fs;
use std::io::Write;
use std::process::Stdio;

use crate::{Serving, millrace, reply, text};

#[test]
fn a_hashed_password_logs_in() {
    let mut child =
        millrace(&["hash-password"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"s3cr:et\n").unwrap();
    let hash = text(&child.wait_with_output().unwrap().stdout);
    let file = std::env::temp_dir().join(format!("millrace-command-{}.toml", std::process::id()));
    let users = format!("[[user]]\nname = \"dora\"\npassword = \"{}\"\n", hash.trim_end());
    fs::write(&file, users).unwrap();

    let serving = Serving::start(&["--config", file.to_str().unwrap()]);
    let mut client = serving.connect();
    write!(client.get_mut(), "USER dora\r\nPASS s3cr:et\r\n").unwrap();
    assert!(reply(&mut client).starts_with("331 "));
    assert!(reply(&mut client).starts_with("230 "));
    fs::remove_file(file).unwrap();
}

#[test]
fn further_lines_after_the_password_and_short_ones_are_reported() {
    for (input, told) in [
        (
            "twelve chars\nmore\n",
            "warning: only the first line was taken for the password; more followed it\n",
        ),
        ("twelve chars\n", ""),
        ("eleven char\n", "warning: the password has fewer than 12 characters, and may be guessed\n"),
    ] {
        let mut child = millrace(&["hash-password"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(text(&output.stdout).starts_with("$argon2id$"));
        assert_eq!(text(&output.stderr), told);
    }
}

#[test]
fn a_hash_on_the_command_line_is_a_hash_there_too() {
    // The hash of `password`, from the tests of the reference implementation in C.
    let user = "dora:$argon2id$v=19$m=256,t=2,p=1$c29tZXNhbHQ$nf65EOgLrQMR/uIPnA4rEsF5h7TKyQwu9U1bMCHGi/4:ro";
    let serving = Serving::start(&["--user", user]);
    let mut client = serving.connect();
    write!(client.get_mut(), "USER dora\r\nPASS password\r\n").unwrap();
    assert!(reply(&mut client).starts_with("331 "));
    assert!(reply(&mut client).starts_with("230 "));
}

#[test]
fn passwords_that_cannot_be_sent_are_not_hashed() {
    for password in [&b""[..], b"\n", b"a\0b\n", b"a\tb\n"] {
        let mut child = millrace(&["hash-password"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(password).unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{}", password.escape_ascii());
        assert!(output.stdout.is_empty());
    }
}
