//! Symbolic links in listings, and a folder that is removed under its sessions.

use std::sync::Arc;

use millrace_vfs::Storage;

use crate::kit::{Client, Scratch, serve};

#[test]
fn a_folder_that_is_gone_is_told_so() {
    let scratch = Scratch::new();
    for storage in [scratch.storage(), scratch.in_place()] {
        std::fs::create_dir_all(scratch.path()).unwrap();
        let storage: Arc<dyn Storage> = storage;
        let served = serve(storage);
        let mut client = served.login();
        std::fs::remove_dir_all(scratch.path()).unwrap();
        for line in ["LIST", "NLST", "MLSD"] {
            assert_eq!(client.try_fetch(line).1.code, 550, "{line}");
        }
        for line in ["STOR f", "APPE f", "STOU"] {
            let reply = client.try_store(line, b"x");
            assert!(
                reply.code == 550 && reply.text.contains("no such file or directory"),
                "{line}: {reply:?}"
            );
        }
        client.expect("MKD d", 550);
        client.expect("NOOP", 200);
    }
}

#[test]
fn links_are_one_story_in_every_listing() {
    let scratch = Scratch::new();
    std::fs::create_dir(scratch.file("d")).unwrap();
    scratch.write("f", b"content");
    for (target, link) in [("f", "lf"), ("d", "ld"), ("nowhere", "dangling"), (".", "back")] {
        std::os::unix::fs::symlink(target, scratch.file(link)).unwrap();
    }
    let served = serve(scratch.storage());
    let mut client = served.login();
    let facts = |client: &mut Client, name: &str| {
        let listing = String::from_utf8(client.fetch("MLSD")).unwrap();
        let line = listing.lines().find(|line| line.ends_with(&format!("; {name}"))).unwrap();
        let mlst = client.expect(format!("MLST {name}"), 250);
        let (facts, _) = line.split_once(' ').unwrap();
        assert!(mlst.text.contains(&format!(" {facts} /{name}")), "{line} {mlst:?}");
        facts.to_owned()
    };
    let unique = |facts: &str| facts.split(';').find(|fact| fact.starts_with("unique=")).unwrap().to_owned();
    // Who does not say who it is gets what links lead to, which is the same object.
    for (link, target, kind) in [("lf", "f", "type=file;"), ("ld", "d", "type=dir;")] {
        let (link, target) = (facts(&mut client, link), facts(&mut client, target));
        assert!(link.starts_with(kind) && unique(&link) == unique(&target), "{link} {target}");
    }
    for (link, text) in [("dangling", "nowhere"), ("back", ".")] {
        let facts = facts(&mut client, link);
        assert!(facts.starts_with(&format!("type=OS.unix=slink:{text};")), "{facts}");
    }
    client.expect("CLNT lftp/4.9.2", 200);
    for (link, target) in [("lf", "f"), ("ld", "d"), ("dangling", "nowhere"), ("back", ".")] {
        let facts = facts(&mut client, link);
        assert!(facts.starts_with(&format!("type=OS.unix=slink:{target};")), "{facts}");
        let metadata = std::fs::symlink_metadata(scratch.file(link)).unwrap();
        let inode = format!("g{:x}", std::os::unix::fs::MetadataExt::ino(&metadata));
        assert!(unique(&facts).ends_with(&inode), "{facts}");
    }
    // LIST shows the link's own owner, size, count and time in any case: here of a year that the target does not have.
    let old =
        std::process::Command::new("touch").args(["-h", "-d", "2001-02-03"]).arg(scratch.file("lf")).status();
    assert!(old.unwrap().success());
    let listing = String::from_utf8(client.fetch("LIST")).unwrap();
    let line = listing.lines().find(|line| line.ends_with(" lf -> f")).unwrap();
    assert!(line.starts_with("lrwxrwxrwx   1 ") && line.contains(" 1 Feb  3  2001 "), "{line}");
    // The same link again is there; another one is not made.
    client.expect("SITE SYMLINK f lf", 200);
    client.expect("SITE SYMLINK d lf", 550);
    client.expect("SITE SYMLINK f f", 550);
}
