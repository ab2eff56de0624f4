//! `millrace link`.

use std::fs;

use crate::{CHEAP, run, text_of_both};

/// What `millrace link` says of a configuration with these keys in it, with a folder `d` that is served.
fn link(keys: &str, arguments: &[&str]) -> (Option<i32>, String) {
    static COUNT: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
    let number = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let folder = std::env::temp_dir().join(format!("millrace-link-{}-{number}", std::process::id()));
    fs::create_dir_all(folder.join("served/d")).unwrap();
    fs::create_dir_all(folder.join("served/bin")).unwrap();
    fs::write(folder.join("served/f"), "content").unwrap();
    fs::write(folder.join("keys"), "0123456789abcdef0123456789abcdef").unwrap();
    let config = folder.join("m.toml");
    let text = format!("directory = \"served\"\nstate = \"state\"\nhttp-link-keys = \"keys\"\n{keys}");
    fs::write(&config, text).unwrap();
    let output = run(&[&["link", "--config", config.to_str().unwrap()], arguments].concat());
    fs::remove_dir_all(folder).unwrap();
    (output.status.code(), text_of_both(&output))
}

#[test]
fn a_link_begins_with_where_the_server_is_and_knows_a_folder() {
    for (keys, url) in [
        ("", "http://127.0.0.1:8080/f?expires="),
        ("http = \"192.0.2.1:80\"", "http://192.0.2.1/f?expires="),
        ("http = \"[::1]:81\"", "http://[::1]:81/f?expires="),
        ("https = \"192.0.2.1:443\"\ntls-self-signed = true", "https://192.0.2.1/f?expires="),
        (
            "https = \"0.0.0.0:8443\"\npublic-ip = \"203.0.113.7\"\ntls-self-signed = true",
            "https://203.0.113.7:8443/f?expires=",
        ),
        (
            "https = \"0.0.0.0:443\"\nacme = [\"files.example.org\"]\nacme-agree = true",
            "https://files.example.org/f?expires=",
        ),
    ] {
        let (code, said) = link(keys, &["/f"]);
        assert!(code == Some(0) && said.starts_with(url), "{keys}: {said}");
    }
    assert!(link("", &["/f", "--url", "https://a.example/"]).1.starts_with("https://a.example/f?"));
    for path in ["/d", "d/"] {
        let (_, said) = link("", &[path]);
        assert!(said.contains("/?expires=") && said.contains("&beneath=1&"), "{path}: {said}");
    }
    assert!(!link("", &["/f"]).1.contains("beneath"));
    let (code, said) = link("", &["/none", "--user", "typo", "--force"]);
    assert!(code == Some(0) && said.contains("warning: there is no user named typo."), "{said}");
    let named = format!("anonymous = \"off\"\n[[user]]\nname = \"a\"\npassword = \"{CHEAP}\"");
    let tree =
        "tree = [{ path = \"/f\", access = [\"list\", \"write\"] }, { path = \"/d\", access = [\"list\"] }]";
    let blind = format!("[[user]]\nname = \"a\"\npassword = \"{CHEAP}\"\n{tree}\n");
    let (code, said) = link(&blind, &["/f", "--put", "--user", "a"]);
    assert!(code == Some(0) && said.contains("&method=PUT&"), "{said}");
    for (keys, arguments, reason) in [
        ("http = \"off\"", &["/f"][..], "say it with --url"),
        ("http = \"127.0.0.1:0\"", &["/f"], "say it with --url"),
        ("cgi = \"bin\"", &["/bin/report"], "answered by a program (cgi)"),
        (
            "[[proxy]]\npath = \"/app\"\nto = \"http://127.0.0.1:3000\"",
            &["/app/x"],
            "answered by another server",
        ),
        ("", &["/d", "--put"], "is for one file"),
        ("", &["/none"], "/none cannot be linked to: no such file or directory"),
        ("", &["/none/"], "/none cannot be linked to: no such file"),
        ("", &["/none/f", "--put"], "/none cannot be linked to: no such file"),
        ("", &["/f", "--user", "typo"], "there is no user named typo"),
        (&named, &["/f"], "anonymous is off: name a user with --user"),
        ("", &["/new", "--put"], "anonymous may not write /new"),
        (&blind, &["/f", "--user", "a"], "a may not read /f"),
        (&blind, &["/d", "--user", "a"], "a may not read /d"),
        ("", &["/f", "--for", "0s"], "the link would have expired"),
    ] {
        let (code, said) = link(keys, arguments);
        assert!(code == Some(2) && said.contains(reason), "{keys}: {code:?} {said}");
    }
}
