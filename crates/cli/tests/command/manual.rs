//! Completion scripts and man pages follow the command line.

use std::fs;

use super::{run, text};

#[test]
fn completions_have_the_flags_and_no_hidden_command() {
    for shell in ["bash", "zsh", "fish"] {
        let output = run(&["completions", shell]);
        let script = text(&output.stdout);
        assert!(output.status.success() && script.contains("passive-ports"), "{shell}");
        assert!(!script.contains("privileged-helper"), "{shell}");
    }
}

#[test]
fn every_command_has_a_man_page_unless_it_is_hidden() {
    let folder = std::env::temp_dir().join(format!("millrace-man-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    assert!(run(&["man", folder.to_str().unwrap()]).status.success());
    for (page, content) in [
        ("millrace.1", "hash\\-password"),
        ("millrace-serve.1", "\\-\\-passive\\-ports"),
        ("millrace-ctl-kick.1", "\\-\\-session"),
    ] {
        let text = fs::read_to_string(folder.join(page)).unwrap();
        assert!(text.contains(content), "{page}: {text}");
    }
    assert!(!folder.join("millrace-privileged-helper.1").exists());
    fs::remove_dir_all(&folder).unwrap();
    let output = run(&["man", "/nonexistent"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).starts_with("millrace: /nonexistent cannot be written to: "));
}

#[test]
fn flags_of_other_programs_are_answered_by_what_is_meant() {
    for (arguments, said) in [
        (&["serve", "--port", "2121"][..], "tip: ports are part of addresses, as in '--ftp 127.0.0.1:2121'"),
        (
            &["serve", "--http-hsts", "365d"],
            "tip: http-hsts has no flag: it is a key of the configuration file, which --config names",
        ),
        (
            &["user", "add", "carl", "--groups", "staff"],
            "tip: what holds for a user follows its name as KEY=VALUE, as in 'groups=staff'",
        ),
    ] {
        let output = run(arguments);
        let told = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2));
        assert!(told.contains(said) && !told.contains("as a value"), "{told}");
    }
    let told = text(&run(&["ctl", "token", "add", "deploy", "--role", "viewer", "--for", "0s"]).stderr);
    assert!(told.contains("'--for <TIME>': it would be over at once"), "{told}");
}
