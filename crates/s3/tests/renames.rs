//! Renames beside uploads: what was acknowledged is lost to none.

mod common;

use std::thread;

use common::proxy::Proxy;
use common::{Server, names, path, read, write};
use millrace_s3::S3Storage;
use millrace_vfs::hash::{Algorithm, Algorithms};
use millrace_vfs::{Change, FileError, Storage, Wait};

/// A store, a proxy before it, and the storage that asks by way of that.
fn site() -> Option<(Server, Proxy, S3Storage)> {
    let server = Server::seaweed()?;
    server.storage("");
    let proxy = Proxy::before(server.port);
    let slow = S3Storage::new(&common::settings(proxy.port, "")).unwrap();
    Some((server, proxy, slow))
}

#[test]
fn what_comes_into_a_folder_while_it_is_renamed_stays_there() {
    let Some((server, proxy, slow)) = site() else { return };
    let direct = server.storage("");
    direct.make_directory(&path("/old")).unwrap();
    for name in ["/old/a", "/old/b", "/old/c"] {
        write(&direct, name, b"before");
    }
    proxy.hold_after(2);
    thread::scope(|scope| {
        let renaming = scope.spawn(|| slow.rename(&path("/old"), &path("/new")));
        proxy.wait_until_held();
        for name in ["/old/a", "/old/b", "/old/late"] {
            write(&direct, name, b"meanwhile");
        }
        proxy.hold_after(usize::MAX);
        renaming.join().unwrap().unwrap();
    });
    for (name, content) in [("/new/a", "before"), ("/new/b", "before"), ("/new/c", "before")] {
        // Which of them were copied before they were replaced is up to the order of copies.
        let found = read(&direct, name);
        assert!(found == content.as_bytes() || found == b"meanwhile" && name != "/new/c", "{name}");
    }
    assert_eq!(names(&direct, "/old"), ["a", "b", "late"]);
    for name in ["/old/a", "/old/b", "/old/late"] {
        assert_eq!(read(&direct, name), b"meanwhile", "{name}");
    }
}

#[test]
fn an_upload_that_comes_while_its_file_is_renamed_stays() {
    let Some((server, proxy, slow)) = site() else { return };
    let direct = server.storage("");
    write(&direct, "/old", b"before");
    proxy.hold_after(0);
    thread::scope(|scope| {
        let renaming = scope.spawn(|| slow.rename(&path("/old"), &path("/new")));
        proxy.wait_until_held();
        write(&direct, "/old", b"meanwhile");
        proxy.hold_after(usize::MAX);
        assert!(matches!(renaming.join().unwrap(), Err(FileError::Busy)));
    });
    assert_eq!(read(&direct, "/old"), b"meanwhile");
    assert_eq!(names(&direct, "/"), ["old"]);
}

#[test]
fn a_change_does_not_give_an_upload_the_hash_of_the_file_before() {
    let Some((server, proxy, slow)) = site() else { return };
    let direct = server.storage("").hashing(Algorithms::NONE.with(Algorithm::Sha256));
    let hash = || direct.stored_hashes(&path("/f"), Wait::Allowed).unwrap();
    write(&direct, "/f", b"meanwhile");
    let expected = hash();
    write(&direct, "/f", b"before");
    proxy.hold_after(0);
    thread::scope(|scope| {
        let change = Change { mode: Some(0o600), ..Change::default() };
        let changing = scope.spawn(move || slow.change(&path("/f"), change));
        proxy.wait_until_held();
        write(&direct, "/f", b"meanwhile");
        proxy.hold_after(usize::MAX);
        assert!(matches!(changing.join().unwrap(), Err(FileError::Busy)));
    });
    assert_eq!(read(&direct, "/f"), b"meanwhile");
    assert!(expected.is_some());
    assert_eq!(hash(), expected);
}
