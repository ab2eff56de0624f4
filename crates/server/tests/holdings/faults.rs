//! Every call that a session makes of its storage fails once, in every way: the reply is of the right class,
//! nothing that is not whole is told to be, the session goes on, and nothing is left open.

use std::sync::Arc;

use millrace_storage::{Fault, FaultStorage, Faults, LocalStorage, MemoryStorage};
use millrace_vfs::Storage;

use crate::kit::{Client, Reply, Scratch, Served, config, pattern, serve_with};
use crate::{alone, expect_descriptors};

/// A step, and what it does to the tree when it is done.
const SCRIPT: [&str; 20] = [
    "RETR old",
    "STOR old",
    "STOR new",
    "APPE old",
    "LIST",
    "NLST d",
    "MLSD d",
    "LIST -R",
    "STAT d",
    "SIZE old",
    "MDTM old",
    "MLST old",
    "RNFR old",
    "MKD e",
    "RMD empty",
    "XSHA256 old",
    "SITE CPFR old",
    "STOU",
    "DSIZ /",
    "DELE gone",
];

/// The content before each step, in the real directory.
const KEPT: [&str; 5] = ["old", "gone", "d", "d/a", "empty"];

fn size() -> usize {
    150_000
}

fn run(client: &mut Client, line: &str) -> (Vec<u8>, Reply) {
    match line.split(' ').next().unwrap() {
        "RETR" | "LIST" | "NLST" | "MLSD" => client.try_fetch(line),
        "STOR" | "APPE" | "STOU" => (Vec::new(), client.try_store(line, &pattern(size()))),
        "RNFR" => {
            let first = client.command(line);
            let reply = if first.code == 350 { client.command("RNTO other") } else { first };
            client.command("RNFR other");
            client.command("RNTO old");
            (Vec::new(), reply)
        }
        "SITE" => {
            let first = client.command(line);
            let reply = if first.code == 350 { client.command("SITE CPTO copy") } else { first };
            (Vec::new(), reply)
        }
        _ => (Vec::new(), client.command(line)),
    }
}

fn served<S: Storage + 'static>(storage: S) -> (Served, Faults, Arc<FaultStorage<S>>) {
    let storage = Arc::new(FaultStorage::new(storage));
    let faults = storage.faults();
    (serve_with(config(storage.clone())), faults, storage)
}

/// Runs the script with each call of each step failing in each way; `content` reads the tree behind the
/// server's back, `restore` brings it back.
fn fail_everything(
    served: &Served,
    faults: &Faults,
    content: impl Fn(&str) -> Option<Vec<u8>>,
    restore: impl Fn(),
) {
    let mut client = served.login();
    let mut tried = 0;
    for line in SCRIPT {
        faults.reset();
        restore();
        faults.reset();
        let (whole, good) = run(&mut client, line);
        let calls = faults.calls();
        assert!(good.code < 400 || line == "DELE gone", "{line}: {good:?}");
        for fault in Fault::ERRORS {
            for n in 1..=calls {
                faults.reset();
                restore();
                let before = content("old");
                faults.reset();
                faults.once(n, fault);
                let (got, reply) = run(&mut client, line);
                faults.reset();
                tried += 1;
                let what = format!("{line}, call {n} of {calls} {fault:?}: {reply:?}");
                if (200..300).contains(&reply.code) {
                    // A fault that may be passed over: only where what was asked for is whole.
                    match line.split(' ').next().unwrap() {
                        "RETR" => assert!(got == pattern(size()), "{what}"),
                        "STOR" => assert!(content(&line[5..]).unwrap() == pattern(size()), "{what}"),
                        "APPE" => assert!(content("old").unwrap().len() == 2 * size(), "{what}"),
                        "NLST" | "MLSD" => assert!(got == whole, "{what}"),
                        _ => {}
                    }
                } else {
                    assert!((400..600).contains(&reply.code), "{what}");
                    if line.starts_with("STOR") {
                        assert!(content("old") == before && content("new").is_none(), "{what}");
                    }
                }
                assert_eq!(client.command("NOOP").code, 200, "{what}");
            }
        }
    }
    assert!(tried > 200, "{tried}");
    faults.reset();
    restore();
    assert!(client.fetch("RETR old") == pattern(size()));
    // Every port has come back: as many sessions at once as there are ports.
    let mut crowd: Vec<_> = served.ports.clone().map(|_| served.login()).collect();
    crowd.iter_mut().for_each(|client| _ = client.expect("PASV", 227));
}

#[test]
fn every_call_of_a_memory_tree_may_fail() {
    let _alone = alone();
    let descriptors = crate::kit::descriptors();
    let (served, faults, storage) = served(MemoryStorage::new());
    let tree = storage.inner().clone();
    let restore = || {
        tree.insert("/old", pattern(size())).insert("/d/a", "a").insert("/d/b", "b").insert("/gone", "");
        for name in ["/new", "/other", "/copy", "/e"] {
            remove(&tree, name);
        }
        let _ = tree.make_directory(&millrace_vfs::VirtualPath::parse(b"/empty").unwrap());
    };
    fail_everything(&served, &faults, |name| tree.read(&format!("/{name}")), restore);
    drop((served, storage, tree));
    expect_descriptors(descriptors);
}

fn remove(storage: &dyn Storage, name: &str) {
    let path = millrace_vfs::VirtualPath::parse(name.as_bytes()).unwrap();
    let _ = storage.remove_file(&path);
    let _ = storage.remove_directory(&path);
}

#[test]
fn every_call_of_a_real_directory_may_fail() {
    let _alone = alone();
    let scratch = Scratch::new();
    let descriptors = crate::kit::descriptors();
    let storage = LocalStorage::open(scratch.path(), millrace_storage::LocalOptions::default()).unwrap();
    let (served, faults, storage) = served(storage);
    let restore = || {
        scratch.write("old", &pattern(size()));
        scratch.write("gone", b"");
        let _ = std::fs::create_dir(scratch.file("d"));
        scratch.write("d/a", b"a");
        let _ = std::fs::remove_dir(scratch.file("e"));
        let _ = std::fs::create_dir(scratch.file("empty"));
        for name in scratch.names() {
            if !KEPT.contains(&name.as_str()) {
                let _ = std::fs::remove_file(scratch.file(&name));
            }
        }
    };
    fail_everything(&served, &faults, |name| scratch.read(name), restore);
    drop((served, storage));
    expect_descriptors(descriptors);
    let left = scratch.names();
    assert!(left.iter().all(|name| KEPT.contains(&name.as_str())), "{left:?}");
}

/// `COMB` onto a file that is there, and onto a new one: each call fails in each way.
fn fail_combinations(
    served: &Served,
    faults: &Faults,
    write: impl Fn(&str, &[u8]),
    remove: impl Fn(&str),
    content: impl Fn(&str) -> Option<Vec<u8>>,
) {
    let mut client = served.login();
    let (parts, old) = ([pattern(300_000), pattern(700)], b"what was there before");
    for is_old in [true, false] {
        let restore = || {
            write("a", &parts[0]);
            write("b", &parts[1]);
            if is_old { write("q", old) } else { remove("q") }
        };
        let before = is_old.then(|| old.to_vec());
        let whole = [before.clone().unwrap_or_default(), parts.concat()].concat();
        restore();
        faults.reset();
        client.expect("COMB q a b", 250);
        assert!(content("q").unwrap() == whole);
        let calls = faults.calls();
        for fault in Fault::ERRORS {
            for n in 1..=calls {
                restore();
                faults.reset();
                faults.once(n, fault);
                let reply = client.command("COMB q a b");
                faults.reset();
                let what = format!("call {n} of {calls} {fault:?}, {is_old}: {reply:?}");
                let (left, has_parts) = (content("q"), [content("a").is_some(), content("b").is_some()]);
                // Everything, where only the parts could not be removed, or the result of the commit was unknown.
                let is_whole = left.as_ref() == Some(&whole);
                assert!(is_whole || (left == before && has_parts == [true, true]), "{what}");
                assert!(is_whole || (400..600).contains(&reply.code), "{what}");
            }
        }
    }
}

#[test]
fn a_combination_that_fails_leaves_its_target_as_it_was() {
    let _alone = alone();
    for uploads in [millrace_storage::Uploads::Staged, millrace_storage::Uploads::InPlace] {
        let scratch = Scratch::new();
        let options = millrace_storage::LocalOptions { uploads, ..Default::default() };
        let (served, faults, _storage) = served(LocalStorage::open(scratch.path(), options).unwrap());
        let remove = |name: &str| _ = std::fs::remove_file(scratch.file(name));
        let write = |name: &str, content: &[u8]| scratch.write(name, content);
        fail_combinations(&served, &faults, write, remove, |name| scratch.read(name));
        drop(served);
    }
    let (served, faults, storage) = served(MemoryStorage::new());
    let tree = storage.inner().clone();
    let at = |name: &str| format!("/{name}");
    fail_combinations(
        &served,
        &faults,
        |name, content| _ = tree.insert(&at(name), content),
        |name| remove(&tree, &at(name)),
        |name| tree.read(&at(name)),
    );
}

/// From one call on for ever: a device that is gone.
#[test]
fn a_device_that_is_gone_is_reported_to_all_clients_and_ends_no_session() {
    let _alone = alone();
    let (served, faults, storage) = served(MemoryStorage::new());
    storage.inner().insert("/old", pattern(size())).insert("/d/a", "a");
    let mut client = served.login();
    for fault in Fault::ERRORS {
        faults.reset();
        faults.from(1, fault);
        for line in SCRIPT {
            let (_, reply) = run(&mut client, line);
            assert!((400..600).contains(&reply.code), "{line} {fault:?}: {reply:?}");
        }
    }
    faults.reset();
    assert!(client.fetch("RETR old") == pattern(size()));
}
