//! tnftp, the `ftp` of NetBSD and Debian: what people type.

use std::fs;

use crate::server::{PASSWORD, Server, USER, read};
use crate::tool::{Tool, tool};
use crate::tree::noise;

/// Runs what a person types after logging in; answers what the client said.
fn session(tool: &Tool, server: &Server, options: &[&str], commands: &str) -> String {
    let port = server.address.port().to_string();
    let input = format!("user {USER} {PASSWORD}\n{commands}\nquit\n");
    let host = server.address.ip().to_string();
    tool.run_with_input(server, &[options, &["-n", "-i", "-v", &host, &port]].concat(), &input)
}

fn assert_session(options: &[&str], listen: &str) {
    let Some(tool) = tool("tnftp") else { return };
    let server = Server::on(listen);
    let contents = noise(71, 200_000);
    fs::write(server.local().join("f"), &contents).unwrap();
    fs::write(server.local().join("g h"), "blank").unwrap();
    let commands = "mkdir d\ncd d\nput f\nput \"g h\"\nappend f f\nls\nmls . listing\nrename f g\nmodtime g\n\
                    chmod 600 g\nget g back\nget \"g h\" -\npwd\nmget *\nascii\nget \"g h\" text\nbinary\ndelete g\n\
                    cd ..\nfeatures\nrhelp\nsystem";
    let said = session(&tool, &server, options, commands);
    let twice = [&contents[..], &contents[..]].concat();
    assert!(read(server.local().join("back")) == twice, "{said}");
    assert!(read(server.local().join("g")) == twice, "mget: {said}");
    assert_eq!(read(server.local().join("text")), b"blank", "{said}");
    assert_eq!(read(server.served().join("d/g h")), b"blank", "{said}");
    assert!(!server.served().join("d/g").exists(), "{said}");
    assert!(said.contains("257 \"/d\""), "{said}");
    assert!(!said.lines().any(|line| line.starts_with("5") && line.get(3..4) == Some(" ")), "{said}");
}

#[test]
fn tnftp_works_as_people_type() {
    assert_session(&[], "127.0.0.1:0");
}

#[test]
fn tnftp_works_in_active_mode() {
    assert_session(&["-A"], "127.0.0.1:0");
}

#[test]
fn tnftp_works_over_ipv6() {
    assert_session(&[], "[::1]:0");
}

#[test]
fn tnftp_fetches_uploads_and_resumes_by_url() {
    let Some(tool) = tool("tnftp") else { return };
    let server = Server::start();
    let contents = noise(72, 300_000);
    fs::write(server.local().join("f"), &contents).unwrap();
    tool.run(&server, &["-V", "-u", &server.url("up"), "f"]);
    assert!(read(server.served().join("up")) == contents);
    fs::write(server.local().join("back"), &contents[..100_001]).unwrap();
    tool.run(&server, &["-V", "-R", "-o", "back", &server.url("up")]);
    assert!(read(server.local().join("back")) == contents);
}
