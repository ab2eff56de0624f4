//! Symbolic links in listings, and a folder that is removed under its sessions.

use std::sync::Arc;

use millrace_storage::{Allowance, Quota, Tally};
use millrace_vfs::{QuotaScope, Storage};

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
    // A client that does not identify itself sees the targets of links, which are the same object.
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

#[test]
fn files_are_combined_behind_a_link_that_leads_to_nothing_yet() {
    let (staged, in_place) = (Scratch::new(), Scratch::new());
    for (scratch, storage) in [(&staged, staged.storage()), (&in_place, in_place.in_place())] {
        let storage: Arc<dyn Storage> = storage;
        let tally = Arc::new(Tally::new("test", Arc::clone(&storage)));
        let allowance = Allowance { bytes: Some(22), files: None };
        let served = serve(Arc::new(Quota::new(storage, tally, allowance, QuotaScope::Account)));
        let mut client = served.login();
        std::os::unix::fs::symlink("target", scratch.file("link")).unwrap();
        client.store("STOR a", b"aaaaaa");
        client.store("STOR b", b"bbbbbb");
        client.expect("COMB link a b", 552);
        assert_eq!(scratch.names(), ["a", "b", "link"], "nothing is left where it fails");
        client.store("STOR b", b"bb");
        client.expect("COMB link a b", 250);
        assert_eq!(scratch.read("target").unwrap(), b"aaaaaabb");
        assert_eq!(scratch.names(), ["link", "target"]);
        assert!(scratch.file("link").is_symlink());
    }
}

#[test]
fn a_link_into_the_staging_directory_shows_nothing_that_is_staged() {
    let scratch = Scratch::new();
    let served = serve(scratch.storage());
    std::fs::create_dir_all(scratch.file(".millrace-staging")).unwrap();
    let staged = ".millrace-1-2-3.part";
    scratch.write(&format!(".millrace-staging/{staged}"), b"half");
    std::os::unix::fs::symlink(".millrace-staging", scratch.file("peek")).unwrap();
    let mut client = served.login();
    for line in ["LIST peek", "NLST -a peek", "MLSD peek", "NLST p*/.*"] {
        assert!(!String::from_utf8_lossy(&client.fetch(line)).contains("millrace-1"), "{line}");
    }
    for path in [format!("peek/{staged}"), format!(".millrace-staging/{staged}")] {
        for verb in ["RETR", "SIZE", "DELE", "RNFR", "MDTM"] {
            assert_eq!(client.try_fetch(format!("{verb} {path}")).1.code, 550, "{verb} {path}");
        }
        assert_eq!(client.try_store(format!("STOR {path}"), b"x").code / 100, 5);
    }
    client.expect("SITE SYMLINK peek/../.millrace-staging mine", 553);
    assert_eq!(scratch.read(&format!(".millrace-staging/{staged}")).unwrap(), b"half");
}
