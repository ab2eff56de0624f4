//! WebDAV clients: litmus, which tries the whole of it, cadaver, rclone, and Linux by davfs2.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::server::{PASSWORD, Server, USER, read};
use crate::tool::{Tool, skip, skip_anyway, tool};
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

/// A mount point of a tree; it is unmounted when this is dropped.
struct Mount(PathBuf);

impl Mount {
    /// The tree of a server; `None` where this machine does not permit mounts.
    fn new(server: &Server) -> Option<Self> {
        let Some(davfs) = Tool::at("/usr/sbin/mount.davfs") else {
            skip("davfs2 is not installed");
            return None;
        };
        if fs::File::open("/dev/fuse").is_err() || !rustix::process::geteuid().is_root() {
            skip_anyway("only root can mount a tree by davfs2, where there is /dev/fuse");
            return None;
        }
        let [mount, cache, secrets, settings] =
            ["mount", "cache", "secrets", "davfs2.conf"].map(|name| server.home().join(name));
        fs::create_dir_all(&mount).unwrap();
        fs::create_dir_all(&cache).unwrap();
        // Its daemon runs as another user.
        fs::set_permissions(&cache, fs::Permissions::from_mode(0o777)).unwrap();
        let url = server.http_url("");
        fs::write(&secrets, format!("{url} {USER} {PASSWORD}\n")).unwrap();
        fs::set_permissions(&secrets, fs::Permissions::from_mode(0o600)).unwrap();
        let text = format!("cache_dir {}\nsecrets {}\n", cache.display(), secrets.display());
        fs::write(&settings, text).unwrap();
        let options = format!("conf={}", settings.display());
        // The daemon keeps what it was given to write to: no pipe of ours.
        let status = Command::new("timeout")
            .arg("60")
            .arg(davfs.program())
            .args(["-o", &options, &url])
            .arg(&mount)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .status()
            .unwrap();
        assert!(status.success(), "{status}");
        Some(Self(mount))
    }

    /// Everything that was written is with the server then.
    fn unmount(&self) -> bool {
        let mut umount = Command::new("timeout");
        umount.args(["120", "umount"]).arg(&self.0).stdin(Stdio::null()).stdout(Stdio::null());
        umount.status().is_ok_and(|status| status.success())
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if fs::metadata(self.0.join("lost+found")).is_ok() {
            self.unmount();
        }
    }
}

/// `lost+found` is a folder of its own that davfs2 shows in every tree.
#[test]
fn linux_mounts_the_tree_by_davfs2() {
    let server = Server::start();
    fs::create_dir(server.served().join("d")).unwrap();
    let contents = noise(7, 300_000);
    fs::write(server.served().join("d/f"), &contents).unwrap();
    let Some(mount) = Mount::new(&server) else { return };
    let at = |name: &str| mount.0.join(name);
    assert!(read(at("d/f")) == contents);
    fs::write(at("d/new"), noise(8, 100_000)).unwrap();
    fs::write(at("d/f"), b"shorter").unwrap();
    fs::create_dir(at("made")).unwrap();
    fs::write(at("made/gone"), b"x").unwrap();
    fs::rename(at("d/new"), at("made/moved")).unwrap();
    fs::remove_file(at("made/gone")).unwrap();
    match fs::read_dir(at("d")).unwrap().next() {
        Some(Ok(entry)) => assert_eq!(entry.file_name(), "f"),
        // davfs2 1.6.1 on Linux 6.18, with every server: its records of a directory are not what the kernel takes.
        Some(Err(error)) => assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput, "{error}"),
        None => panic!("the folder is empty"),
    }
    assert!(mount.unmount(), "what was written is sent");
    assert!(read(server.served().join("made/moved")) == noise(8, 100_000));
    assert_eq!(read(server.served().join("d/f")), b"shorter");
    assert!(!server.served().join("made/gone").exists() && !server.served().join("d/new").exists());
}
