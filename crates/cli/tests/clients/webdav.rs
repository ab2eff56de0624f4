//! WebDAV clients: litmus, which tries the whole of it, cadaver and rclone.

use std::fs;

use crate::server::{PASSWORD, Server, USER, read};
use crate::tool::tool;
use crate::tree::noise;

#[test]
fn litmus_finds_nothing() {
    let server = Server::start();
    let Some(tool) = tool("litmus") else { return };
    let said = tool.run(&server, &["-k", &server.http_url(""), USER, PASSWORD]);
    let summaries: Vec<&str> = said.lines().filter(|line| line.contains("summary for")).collect();
    assert_eq!(summaries.len(), 5, "{said}");
    assert!(summaries.iter().all(|line| line.contains(" 0 failed")), "{said}");
    assert!(!said.contains("WARNING"), "{said}");
}

#[test]
fn cadaver_edits_a_folder() {
    let server = Server::start();
    let Some(tool) = tool("cadaver") else { return };
    let contents = noise(5, 200_000);
    fs::write(server.local().join("f"), &contents).unwrap();
    let login = format!("machine 127.0.0.1\nlogin {USER}\npassword {PASSWORD}\n");
    fs::write(server.home().join(".netrc"), login).unwrap();
    let commands = "mkcol d\ncd d\nput f\ncopy f g\nmove g h\nlock h\npropset h colour blue\npropget h colour\n\
                    unlock h\nls\nget h back\ndelete f\nquit\n";
    let said = tool.run_with_input(&server, &[&server.http_url("")], commands);
    assert!(said.contains("Value of colour is: blue"), "{said}");
    assert!(read(server.served().join("d/h")) == contents, "{said}");
    assert!(read(server.local().join("back")) == contents, "{said}");
    assert!(!server.served().join("d/f").exists() && !server.served().join("d/g").exists(), "{said}");
}

#[test]
fn rclone_keeps_trees_the_same_by_webdav() {
    let server = Server::start();
    let Some(tool) = tool("rclone") else { return };
    let hidden = tool.run(&server, &["obscure", PASSWORD]);
    let prefix = "RCLONE_CONFIG_M";
    let tool = tool
        .variable(&format!("{prefix}_TYPE"), "webdav")
        .variable(&format!("{prefix}_URL"), server.http_url(""))
        .variable(&format!("{prefix}_VENDOR"), "other")
        .variable(&format!("{prefix}_USER"), USER)
        .variable(&format!("{prefix}_PASS"), hidden.trim());
    fs::create_dir_all(server.local().join("tree/a/b c")).unwrap();
    for (name, length) in [("tree/x", 10), ("tree/a/none", 0), ("tree/a/b c/\u{e4} & y", 300_000)] {
        fs::write(server.local().join(name), noise(length as u64, length)).unwrap();
    }
    let options = ["--config", "/dev/null", "--retries", "1"];
    let run = |arguments: &[&str]| tool.run(&server, &[&options[..], arguments].concat());
    run(&["sync", "tree", "M:copy"]);
    run(&["check", "--download", "tree", "M:copy"]);
    fs::remove_file(server.local().join("tree/x")).unwrap();
    run(&["sync", "tree", "M:copy"]);
    assert!(!server.served().join("copy/x").exists());
    run(&["moveto", "M:copy/a", "M:moved"]);
    run(&["copy", "M:moved", "back"]);
    assert!(read(server.local().join("back/b c/\u{e4} & y")) == noise(300_000, 300_000));
    run(&["purge", "M:moved"]);
    assert!(!server.served().join("moved").exists());
}
