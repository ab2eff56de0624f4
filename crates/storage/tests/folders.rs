//! Virtual folders: what belongs to which back end, and what a client may not do to them.

mod common;

use std::sync::Arc;

use common::{Scratch, path, upload};
use millrace_storage::{Folders, LocalOptions, LocalStorage, MemoryStorage, ReadOnly};
use millrace_vfs::{DirEntry, FileError, PartialKey, PartialMode, Storage, Wait, WriteMode, conformance};

/// A base with `/f` and a covered `/media/covered`; folders at `/media` and `/in/bank`.
fn mounted() -> (Folders, MemoryStorage, MemoryStorage) {
    let (base, media, bank) = (MemoryStorage::new(), MemoryStorage::new(), MemoryStorage::new());
    base.insert("/f", "base").insert("/media/covered", "never seen");
    media.insert("/film", "media").insert("/sub/film", "deeper");
    bank.insert("/order", "bank");
    let folders = Folders::new(Arc::new(base))
        .mount(path("/media"), Arc::new(ReadOnly::new(media.clone())))
        .mount(path("/in/bank"), Arc::new(bank.clone()));
    (folders, media, bank)
}

fn names(storage: &dyn Storage, directory: &str) -> Vec<String> {
    let (mut batched, mut visited) = (Vec::<DirEntry>::new(), Vec::new());
    let mut open = storage.open_directory(&path(directory)).unwrap();
    loop {
        let before = batched.len();
        open.next_batch(&mut batched, 2).unwrap();
        if batched.len() == before {
            break;
        }
    }
    let mut open = storage.open_directory(&path(directory)).unwrap();
    while open.next_names(&mut |name| visited.push(name.to_vec()), 2).unwrap() > 0 {}
    let mut names: Vec<_> = batched.into_iter().map(|entry| entry.name).collect();
    names.sort();
    visited.sort();
    assert_eq!(names, visited, "both kinds of listing show the same");
    names.into_iter().map(|name| String::from_utf8(name).unwrap()).collect()
}

#[test]
fn folders_with_nothing_mounted_conform() {
    conformance::run(&Folders::new(Arc::new(MemoryStorage::new())));
}

#[test]
fn a_folder_that_replaces_the_root_conforms() {
    let base = Arc::new(MemoryStorage::new());
    conformance::run(&Folders::new(base).mount(path("/"), Arc::new(MemoryStorage::new())));
}

#[test]
fn each_way_to_a_folder_is_a_directory_of_its_own() {
    let folders = Folders::new(Arc::new(MemoryStorage::new()))
        .mount(path("/a/b/c"), Arc::new(MemoryStorage::new()))
        .mount(path("/x/y"), Arc::new(MemoryStorage::new()));
    let identity = |name: &str| folders.metadata(&path(name), Wait::Allowed).unwrap().identity;
    assert!(identity("/a") != identity("/a/b") && identity("/a") != identity("/x"));
    assert_eq!(folders.open_directory(&path("/x")).unwrap().metadata().unwrap().identity, identity("/x"));
}

#[test]
fn listings_show_folders_and_the_ways_to_them_and_hide_what_they_cover() {
    let (folders, ..) = mounted();
    assert_eq!(names(&folders, "/"), ["f", "in", "media"]);
    assert_eq!(names(&folders, "/media"), ["film", "sub"]);
    assert_eq!(names(&folders, "/media/sub"), ["film"]);
    assert_eq!(names(&folders, "/in"), ["bank"]);
    assert_eq!(names(&folders, "/in/bank"), ["order"]);
    for directory in ["/", "/media", "/media/sub", "/in", "/in/bank"] {
        assert!(folders.metadata(&path(directory), Wait::Allowed).unwrap().is_directory(), "{directory}");
        assert_eq!(folders.entry(&path(directory)).unwrap().name, path(directory).name());
    }
    assert!(matches!(
        folders.metadata(&path("/media/covered"), Wait::Allowed).unwrap_err(),
        FileError::NotFound
    ));
}

#[test]
fn a_path_belongs_to_the_deepest_folder() {
    let inner = MemoryStorage::new();
    inner.insert("/x", "inner");
    let (folders, media, bank) = mounted();
    let folders = folders.mount(path("/media/sub"), Arc::new(inner.clone()));
    assert_eq!(names(&folders, "/media"), ["film", "sub"]);
    assert_eq!(names(&folders, "/media/sub"), ["x"]);
    upload(&folders, "/media/sub/y", b"new").unwrap();
    assert_eq!(inner.read("/y").unwrap(), b"new");
    upload(&folders, "/in/bank/order", b"replaced").unwrap();
    assert_eq!(bank.read("/order").unwrap(), b"replaced");
    assert!(matches!(upload(&folders, "/media/film", b"no").unwrap_err(), FileError::ReadOnly));
    assert_eq!(media.read("/film").unwrap(), b"media");
}

#[test]
fn a_name_that_only_begins_like_a_folder_is_the_base_s() {
    let (folders, ..) = mounted();
    upload(&folders, "/media2", b"base").unwrap();
    assert_eq!(names(&folders, "/"), ["f", "in", "media", "media2"]);
}

#[test]
fn folders_and_the_ways_to_them_stay_where_they_are() {
    let (folders, ..) = mounted();
    for fixed in ["/media", "/in", "/in/bank"] {
        let fixed = path(fixed);
        folders.remove_directory(&fixed).unwrap_err();
        folders.remove_file(&fixed).unwrap_err();
        folders.rename(&fixed, &path("/elsewhere")).unwrap_err();
        folders.rename(&path("/f"), &fixed).unwrap_err();
        folders.open_write(&fixed, WriteMode::Replace, Wait::Allowed).unwrap_err();
        assert!(matches!(folders.make_directory(&fixed).unwrap_err(), FileError::AlreadyExists));
        assert!(matches!(folders.make_symlink(b"f", &fixed).unwrap_err(), FileError::AlreadyExists));
    }
    assert!(matches!(upload(&folders, "/in/f", b"x").unwrap_err(), FileError::ReadOnly), "only a way");
    assert!(matches!(folders.make_directory(&path("/in/d")).unwrap_err(), FileError::ReadOnly));
    assert_eq!(names(&folders, "/"), ["f", "in", "media"]);
}

/// A folder that shows a part of the base once more, read-only, is read-only by every path.
#[test]
fn no_link_is_made_past_a_folder_to_what_it_hides() {
    let scratch = Scratch::new();
    let local = |beneath: &str| {
        let at = scratch.path().join(beneath);
        std::fs::create_dir_all(&at).unwrap();
        LocalStorage::open(&at, LocalOptions::default()).unwrap()
    };
    let base = Arc::new(local(""));
    let with = |at: &str, folder: Arc<dyn Storage>| Folders::new(base.clone()).mount(path(at), folder);
    let link = |folders: &Folders| match folders.make_symlink(b"pub", &path("/x")) {
        Ok(()) => folders.remove_file(&path("/x")).is_ok(),
        Err(error) => {
            assert!(matches!(error, FileError::PermissionDenied), "{error:?}");
            false
        }
    };
    let again: Arc<dyn Storage> = Arc::new(ReadOnly::new(local("pub")));
    let other: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    assert!(!link(&with("/pub", again.clone())), "empty, and the same directory");
    assert!(link(&with("/pub", other.clone())), "an empty directory hides nothing");
    base.make_directory(&path("/pub/sub")).unwrap();
    assert!(!link(&with("/pub", other.clone())) && !link(&with("/pub/sub", Arc::new(local("pub/sub")))));
    assert!(link(&with("/elsewhere", again.clone())) && link(&with("/pub/none", again.clone())));
    assert!(!link(&Folders::new(base.clone()).absent(path("/pub"))), "hidden while the folder is away");
    let nested = with("/m", Arc::new(local("m"))).mount(path("/m/pub"), other);
    std::fs::create_dir_all(scratch.path().join("m/pub/sub")).unwrap();
    nested.make_symlink(b"pub", &path("/m/x")).unwrap_err();
}

#[test]
fn every_affected_folder_is_asked_about_a_replacement() {
    let (folders, ..) = mounted();
    for (at, one, all) in [
        ("/f", true, true),
        ("/in/bank", true, true),
        ("/in/bank/order", true, true),
        ("/media/film", false, false),
        ("/", true, false),
        ("/in", false, false),
    ] {
        let may = |all_beneath| folders.may_replace(&path(at), all_beneath).is_ok();
        assert_eq!((may(false), may(true)), (one, all), "{at}");
    }
}

#[test]
fn between_back_ends_files_are_copied_and_not_renamed() {
    let (folders, _, bank) = mounted();
    let (from, to) = (path("/media/film"), path("/in/bank/film"));
    assert_eq!(folders.copy(&from, &to, &mut |_| true).unwrap(), 5);
    assert_eq!(bank.read("/film").unwrap(), b"media");
    let error = folders.rename(&to, &path("/film")).unwrap_err();
    assert!(matches!(error, FileError::CrossDevice) && error.to_string().ends_with("copy it and delete it"));
    assert!(matches!(folders.rename(&path("/in/bank/no"), &path("/no")).unwrap_err(), FileError::NotFound));
    folders.rename(&to, &path("/in/bank/moved")).unwrap();
    assert_eq!(bank.read("/moved").unwrap(), b"media");
}

#[test]
fn a_folder_that_is_away_hides_what_it_covers_and_answers_with_an_error() {
    let base = MemoryStorage::new();
    base.insert("/media/covered", "never seen").insert("/f", "base");
    let folders = Folders::new(Arc::new(base)).absent(path("/media"));
    assert_eq!(names(&folders, "/"), ["f"]);
    for result in [
        folders.metadata(&path("/media/covered"), Wait::Allowed).map(drop),
        folders.open_directory(&path("/media")).map(drop),
        folders.make_directory(&path("/media/new")),
    ] {
        assert!(
            matches!(&result, Err(FileError::Io(error)) if error.to_string() == "the folder is away"),
            "{result:?}"
        );
    }
}

#[test]
fn parts_of_an_upload_are_joined_within_a_folder_and_not_across() {
    let (base, media) = (Scratch::new(), Scratch::new());
    let open =
        |folder: &Scratch| Arc::new(LocalStorage::open(folder.path(), LocalOptions::default()).unwrap());
    let folders = Folders::new(open(&base)).mount(path("/media"), open(&media));
    let part = |at: &str, key: u8| {
        let (at, key) = (path(at), PartialKey::new([key; 16]));
        let mut part = folders.open_partial(&at, &key, WriteMode::CreateNew, PartialMode::New).unwrap();
        part.upload.write_all(at.name()).unwrap();
        part.upload.abort();
        (at, key)
    };
    let parts = [part("/media/one", 1), part("/media/two", 2), part("/three", 3)];
    let join = |to: &str, parts: &[_]| folders.join_partials(&path(to), parts, WriteMode::Replace);
    assert!(matches!(join("/media/f", &parts), Err(FileError::CrossDevice)));
    assert!(matches!(join("/f", &parts[..2]), Err(FileError::CrossDevice)));
    join("/media/f", &parts[..2]).unwrap().upload.commit().unwrap();
    assert_eq!(std::fs::read(media.path().join("f")).unwrap(), b"onetwo");
}
