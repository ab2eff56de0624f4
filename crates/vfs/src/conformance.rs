//! The suite that every storage back end must pass.
//!
//! [`run`] takes an empty, writable [`Storage`] and leaves it empty. It panics with the name of the claim that
//! does not hold, so a back end's test is one line. What a back end may choose (whether uploads stage, whether
//! it has links, owners or room to report) it says by what it does, and the suite then holds it to that.

use crate::{
    Change, DirEntry, FileError, FileKind, ReadHandle, Storage, Timestamp, VirtualPath, Wait, WriteMode,
};

/// Whether a claim holds; what is wrong where it does not.
type Claim = fn(&dyn Storage);

/// Every claim, by name.
const CLAIMS: &[(&str, Claim)] = &[
    ("the root is a directory that stays", root_stays),
    ("what is missing is not found", missing_is_not_found),
    ("an upload becomes the file", upload_becomes_the_file),
    ("a shorter upload leaves no old tail", shorter_upload_leaves_no_tail),
    ("an empty upload makes an empty file", empty_upload),
    ("an aborted upload to a new name in a staging back end leaves nothing", abort_of_a_new_name),
    ("a dropped upload is an abort", drop_is_abort),
    ("an upload of which nothing came changes nothing", nothing_came_of_it),
    ("a failed commit leaves the old file", failed_commit),
    ("a staged upload is looked at before it has its name", preview),
    ("an append goes on at the end, or begins the file", append),
    ("an append that is undone leaves the file as it was", undone_append),
    ("an upload at an offset keeps the rest", at_offset),
    ("an offset beyond the end is refused", at_beyond_the_end),
    ("a new-only upload refuses a name that is taken", create_new),
    ("two new-only uploads to one name: one wins", create_new_race),
    ("a reader can read any part", read_parts),
    ("a file is no directory, nor a directory a file", kinds_are_told_apart),
    ("permission bits said for what is made hold from its first moment", bits_of_what_is_made),
    ("names are bytes", names_are_bytes),
    ("names of 255 bytes are held", long_names),
    ("directories are made once, and removed when empty", directories),
    ("a listing has every entry once: none", listing_of_none),
    ("a listing has every entry once: one", listing_of_one),
    ("a listing says what metadata says", listing_agrees_with_metadata),
    ("a rename moves a file, and replaces one", rename_file),
    ("a rename onto a directory is refused", rename_onto_directory),
    ("a rename moves a directory, but not into itself", rename_directory),
    ("a link within the tree is followed", links_are_followed),
    ("a link that leads out is refused", links_that_lead_out),
    ("links in a circle end", links_in_a_circle),
    ("an upload through a link writes what it leads to", upload_through_a_link),
    ("the time of a change is kept to the nanosecond", modification_time),
    ("a copy has the content, and replaces", copy),
    ("a copy can be cancelled, and leaves the old file", cancelled_copy),
    ("free room is no more than there is", space),
];

/// Entries of the largest directory of [`run`].
const MANY: usize = 10_000;

/// Runs the whole suite on an empty, writable storage, and leaves it empty.
///
/// # Panics
/// Where a claim does not hold.
pub fn run(storage: &dyn Storage) {
    run_with(storage, MANY);
}

/// As [`run`], with so many entries in its largest directory: a back end that is asked over a network takes a while
/// for each. They should be more than it answers at a time.
///
/// # Panics
/// Where a claim does not hold.
pub fn run_with(storage: &dyn Storage, many: usize) {
    assert!(names(storage, "/").is_empty(), "the suite begins with an empty storage");
    for (name, claim) in CLAIMS {
        hold_to(storage, name, claim);
    }
    hold_to(storage, "a listing has every entry once: many", &|storage| listing_of_many(storage, many));
}

fn hold_to(storage: &dyn Storage, name: &str, claim: &dyn Fn(&dyn Storage)) {
    // The harness shows this only when the claim panics.
    println!("conformance: {name}");
    claim(storage);
    clear(storage, &VirtualPath::root());
    assert!(names(storage, "/").is_empty(), "{name}: something is left that cannot be removed");
}

/// Asserts that a result is an error of one kind.
macro_rules! refused {
    ($result:expr, $($kind:ident)|+) => {
        match $result {
            Err($(FileError::$kind)|+) => {}
            Err(error) => panic!("{} is refused with {error:?}", stringify!($result)),
            Ok(_) => panic!("{} is not refused", stringify!($result)),
        }
    };
}

fn root_stays(storage: &dyn Storage) {
    let root = VirtualPath::root();
    assert!(storage.metadata(&root, Wait::Allowed).unwrap().is_directory());
    assert!(storage.entry(&root).unwrap().metadata.is_directory());
    storage.remove_directory(&root).unwrap_err();
    storage.remove_file(&root).unwrap_err();
    storage.rename(&root, &path("/elsewhere")).unwrap_err();
    refused!(storage.make_directory(&root), AlreadyExists);
    refused!(storage.open_read(&root, Wait::Allowed), IsDirectory);
    storage.open_write(&root, WriteMode::Replace, Wait::Allowed).unwrap_err();
    assert!(storage.metadata(&root, Wait::Allowed).unwrap().is_directory());
}

fn missing_is_not_found(storage: &dyn Storage) {
    for missing in ["/missing", "/missing/deeper"] {
        let missing = path(missing);
        refused!(storage.open_read(&missing, Wait::Allowed), NotFound);
        refused!(storage.metadata(&missing, Wait::Allowed), NotFound);
        refused!(storage.entry(&missing), NotFound);
        refused!(storage.open_directory(&missing), NotFound);
        refused!(storage.remove_file(&missing), NotFound);
        refused!(storage.remove_directory(&missing), NotFound);
        refused!(storage.rename(&missing, &path("/to")), NotFound);
        refused!(storage.change(&missing, Change { mode: Some(0o600), ..Change::default() }), NotFound);
        refused!(storage.copy(&missing, &path("/to"), &mut |_| true), NotFound);
    }
    refused!(storage.open_write(&path("/missing/f"), WriteMode::Replace, Wait::Allowed), NotFound);
    refused!(storage.open_write(&path("/missing/f"), WriteMode::Append, Wait::Allowed), NotFound);
    refused!(storage.open_write(&path("/f"), WriteMode::At(1), Wait::Allowed), NotFound);
    refused!(storage.make_directory(&path("/missing/d")), NotFound);
    assert!(names(storage, "/").is_empty());
}

fn upload_becomes_the_file(storage: &dyn Storage) {
    let long = pattern(300_000);
    for content in [b"first".as_slice(), b"second, longer", &long, b"third"] {
        let old = read(storage, "/f");
        let mut upload = storage.open_write(&path("/f"), WriteMode::Replace, Wait::Allowed).unwrap();
        for part in content.chunks(70_001) {
            upload.write_all(part).unwrap();
        }
        if stages(storage) {
            assert_eq!(read(storage, "/f"), old, "the old file shows until the commit");
        }
        assert_eq!(upload.commit().unwrap().size, content.len() as u64);
        assert_eq!(read(storage, "/f").unwrap(), content);
        assert_eq!(names(storage, "/"), [b"f"]);
    }
}

fn shorter_upload_leaves_no_tail(storage: &dyn Storage) {
    write(storage, "/f", b"a longer text");
    write(storage, "/f", b"short");
    assert_eq!(read(storage, "/f").unwrap(), b"short");
}

fn empty_upload(storage: &dyn Storage) {
    write(storage, "/f", b"");
    assert_eq!(read(storage, "/f").unwrap(), b"");
    write(storage, "/f", b"something");
    write(storage, "/f", b"");
    assert_eq!(read(storage, "/f").unwrap(), b"");
}

fn abort_of_a_new_name(storage: &dyn Storage) {
    if !stages(storage) {
        return;
    }
    let mut upload = storage.open_write(&path("/f"), WriteMode::Replace, Wait::Allowed).unwrap();
    upload.write_all(b"half").unwrap();
    upload.abort();
    assert!(names(storage, "/").is_empty());
}

fn drop_is_abort(storage: &dyn Storage) {
    write(storage, "/f", b"the old file");
    let mut upload = storage.open_write(&path("/f"), WriteMode::Replace, Wait::Allowed).unwrap();
    upload.write_all(b"new").unwrap();
    drop(upload);
    let expected: &[u8] = if stages(storage) { b"the old file" } else { b"new" };
    assert_eq!(read(storage, "/f").unwrap(), expected, "in place, what came stays, cut to its length");
    assert_eq!(names(storage, "/"), [b"f"]);
}

fn nothing_came_of_it(storage: &dyn Storage) {
    write(storage, "/f", b"the old file");
    for name in ["/f", "/new"] {
        let open = || storage.open_write(&path(name), WriteMode::Replace, Wait::Allowed).unwrap();
        drop(open());
        open().abort();
        open().undo();
    }
    assert_eq!(read(storage, "/f").unwrap(), b"the old file");
    assert_eq!(names(storage, "/"), [b"f"]);
}

fn failed_commit(storage: &dyn Storage) {
    if !stages(storage) {
        return;
    }
    let mut upload = storage.open_write(&path("/f"), WriteMode::Replace, Wait::Allowed).unwrap();
    upload.write_all(b"new").unwrap();
    storage.make_directory(&path("/f")).unwrap();
    refused!(upload.commit(), IsDirectory);
    assert_eq!(names(storage, "/"), [b"f"]);
    assert!(names(storage, "/f").is_empty());
}

fn append(storage: &dyn Storage) {
    for _ in 0..3 {
        let mut upload = storage.open_write(&path("/f"), WriteMode::Append, Wait::Allowed).unwrap();
        upload.write_all(b"ab").unwrap();
        upload.write_all(b"c").unwrap();
        upload.commit().unwrap();
    }
    assert_eq!(read(storage, "/f").unwrap(), b"abcabcabc");
    let mut upload = storage.open_write(&path("/f"), WriteMode::Append, Wait::Allowed).unwrap();
    upload.write_all(b"x").unwrap();
    upload.abort();
    assert_eq!(read(storage, "/f").unwrap(), b"abcabcabcx", "what came of an append stays");
}

fn preview(storage: &dyn Storage) {
    if !stages(storage) {
        return;
    }
    let shows = |name: &str, content: Option<&[u8]>| assert!(read(storage, name).as_deref() == content);
    for length in [0, 3, 70_000, 300_000] {
        let content = pattern(length);
        write(storage, "/old", b"old");
        for (name, before) in [("/old", Some(&b"old"[..])), ("/new", None)] {
            for is_committed in [false, true] {
                let mut upload = storage.open_write(&path(name), WriteMode::Replace, Wait::Allowed).unwrap();
                upload.write_all(&content).unwrap();
                for _ in 0..2 {
                    let seen = upload.preview().unwrap().map(read_all);
                    assert!(seen.is_none_or(|seen| seen == content), "{length} bytes");
                    shows(name, before);
                }
                assert_eq!(names(storage, "/"), [b"old"], "no other name is seen");
                if is_committed {
                    assert_eq!(upload.commit().unwrap().size, u64::from(length));
                    shows(name, Some(&content));
                } else {
                    drop(upload);
                    shows(name, before);
                }
            }
            storage.remove_file(&path(name)).unwrap();
            write(storage, "/old", b"old");
        }
    }
}

fn undone_append(storage: &dyn Storage) {
    for length in [0, 3, 200_000] {
        let old = pattern(length);
        write(storage, "/f", &old);
        for added in [0, 1, 300_000] {
            let mut upload = storage.open_write(&path("/f"), WriteMode::Append, Wait::Allowed).unwrap();
            upload.write_all(&pattern(added)).unwrap();
            upload.undo();
            assert!(read(storage, "/f").unwrap() == old, "{added} bytes behind {length}");
            assert_eq!(storage.metadata(&path("/f"), Wait::Allowed).unwrap().size, u64::from(length));
        }
    }
    let staged = stages(storage);
    let mut upload = storage.open_write(&path("/new"), WriteMode::CreateNew, Wait::Allowed).unwrap();
    upload.write_all(b"x").unwrap();
    upload.undo();
    assert_eq!(read(storage, "/new").unwrap_or_default(), b"");
    assert!(!staged || read(storage, "/new").is_none());
}

fn bits_of_what_is_made(storage: &dyn Storage) {
    let bits =
        |name: &str| storage.metadata(&path(name), Wait::Allowed).map(|metadata| metadata.mode & 0o777);
    let modes = [WriteMode::CreateNew, WriteMode::Replace, WriteMode::Append];
    for (number, mode) in modes.into_iter().enumerate() {
        // Less and more than what a back end chooses, or the umask of a process leaves.
        for wanted in [0o600, 0o666] {
            let name = format!("/{number}-{wanted:o}");
            let mut upload =
                storage.open_write_with(&path(&name), mode, Some(wanted), Wait::Allowed).unwrap();
            upload.write_all(b"x").unwrap();
            match bits(&name) {
                Err(FileError::NotFound) => {}
                seen => assert_eq!(seen.unwrap(), wanted, "{mode:?}, before its end"),
            }
            upload.commit().unwrap();
            assert_eq!(bits(&name).unwrap(), wanted, "{mode:?}");
            if mode != WriteMode::CreateNew {
                let upload = storage.open_write_with(&path(&name), mode, Some(0o640), Wait::Allowed).unwrap();
                upload.commit().unwrap();
                assert_eq!(bits(&name).unwrap(), wanted, "{mode:?}: a file that was there keeps its own");
            }
        }
    }
    for wanted in [0o700, 0o777] {
        let name = format!("/d{wanted:o}");
        storage.make_directory_with(&path(&name), Some(wanted)).unwrap();
        assert_eq!(bits(&name).unwrap(), wanted);
    }
}

fn at_offset(storage: &dyn Storage) {
    write(storage, "/f", b"0123456789");
    for (offset, bytes, expected) in [
        (3, "abc", "012abc6789"),
        (0, "X", "X12abc6789"),
        (9, "YZ", "X12abc678YZ"),
        (11, "!", "X12abc678YZ!"),
    ] {
        let mut upload = storage.open_write(&path("/f"), WriteMode::At(offset), Wait::Allowed).unwrap();
        upload.write_all(bytes.as_bytes()).unwrap();
        assert_eq!(upload.commit().unwrap().size, expected.len() as u64);
        assert_eq!(read(storage, "/f").unwrap(), expected.as_bytes());
    }
}

fn at_beyond_the_end(storage: &dyn Storage) {
    write(storage, "/f", b"0123456789");
    for offset in [11, 1 << 40, u64::MAX] {
        refused!(storage.open_write(&path("/f"), WriteMode::At(offset), Wait::Allowed), OutOfRange);
    }
    assert_eq!(read(storage, "/f").unwrap(), b"0123456789");
}

fn create_new(storage: &dyn Storage) {
    let mut upload = storage.open_write(&path("/f"), WriteMode::CreateNew, Wait::Allowed).unwrap();
    upload.write_all(b"mine").unwrap();
    upload.commit().unwrap();
    storage.make_directory(&path("/d")).unwrap();
    refused!(storage.open_write(&path("/f"), WriteMode::CreateNew, Wait::Allowed), AlreadyExists);
    refused!(
        storage.open_write(&path("/d"), WriteMode::CreateNew, Wait::Allowed),
        AlreadyExists | IsDirectory
    );
    assert_eq!(read(storage, "/f").unwrap(), b"mine");
}

fn create_new_race(storage: &dyn Storage) {
    let begin = || storage.open_write(&path("/f"), WriteMode::CreateNew, Wait::Allowed);
    let mut first = begin().unwrap();
    first.write_all(b"first").unwrap();
    // Whoever reserves the name when it is opened refuses here, whoever stages refuses the later commit.
    match begin() {
        Err(FileError::AlreadyExists) => drop(first.commit().unwrap()),
        Err(error) => panic!("{error:?}"),
        Ok(mut second) => {
            second.write_all(b"second").unwrap();
            first.commit().unwrap();
            refused!(second.commit(), AlreadyExists);
        }
    }
    assert_eq!(read(storage, "/f").unwrap(), b"first");
    assert_eq!(names(storage, "/"), [b"f"]);
}

fn read_parts(storage: &dyn Storage) {
    let content = pattern(100_000);
    write(storage, "/f", &content);
    let mut handle = storage.open_read(&path("/f"), Wait::Allowed).unwrap();
    for (offset, length) in [(0, 1), (99_999, 10), (50_000, 20_000), (100_000, 1), (200_000, 1)] {
        let end = content.len().min(offset + length);
        let expected = content.get(offset..end).unwrap_or_default();
        assert_eq!(read_at(&mut handle, offset as u64, length), expected);
    }
}

fn kinds_are_told_apart(storage: &dyn Storage) {
    write(storage, "/f", b"file");
    storage.make_directory(&path("/d")).unwrap();
    write(storage, "/d/inside", b"file");
    refused!(storage.open_directory(&path("/f")), NotDirectory);
    refused!(storage.metadata(&path("/f/x"), Wait::Allowed), NotDirectory);
    refused!(storage.open_read(&path("/f/x"), Wait::Allowed), NotDirectory);
    refused!(storage.open_write(&path("/f/x"), WriteMode::Replace, Wait::Allowed), NotDirectory);
    refused!(storage.remove_directory(&path("/f")), NotDirectory);
    refused!(storage.make_directory(&path("/f")), AlreadyExists);
    refused!(storage.open_read(&path("/d"), Wait::Allowed), IsDirectory);
    for mode in [WriteMode::Replace, WriteMode::Append, WriteMode::At(0)] {
        refused!(storage.open_write(&path("/d"), mode, Wait::Allowed), IsDirectory);
    }
    refused!(storage.remove_file(&path("/d")), IsDirectory);
    refused!(storage.remove_directory(&path("/d")), NotEmpty);
    refused!(storage.copy(&path("/d"), &path("/e"), &mut |_| true), IsDirectory);
}

fn names_are_bytes(storage: &dyn Storage) {
    let mut expected = Vec::new();
    for byte in (1..=255).filter(|&byte| byte != b'/') {
        let name = [b"<", &[byte][..], b">"].concat();
        expected.push(name);
    }
    expected.extend([&b"..."[..], b" ", b"-rf", b"~", b"*", b"a\r\nb", b"\xff\xfe"].map(<[u8]>::to_vec));
    for name in &expected {
        write_path(storage, &VirtualPath::root().join(name).unwrap(), name);
    }
    expected.sort();
    assert_eq!(names(storage, "/"), expected);
    for name in &expected {
        let path = VirtualPath::root().join(name).unwrap();
        assert_eq!(&read_path(storage, &path).unwrap(), name);
    }
}

fn long_names(storage: &dyn Storage) {
    let name = "n".repeat(VirtualPath::MAX_NAME);
    write(storage, &name, b"content");
    assert_eq!(read(storage, &name).unwrap(), b"content");
    write(storage, &name, b"again");
    assert_eq!(names(storage, "/"), [name.as_bytes()]);
}

fn directories(storage: &dyn Storage) {
    storage.make_directory(&path("/d")).unwrap();
    refused!(storage.make_directory(&path("/d")), AlreadyExists);
    storage.make_directory(&path("/d/e")).unwrap();
    assert!(storage.metadata(&path("/d/e"), Wait::Allowed).unwrap().is_directory());
    refused!(storage.remove_directory(&path("/d")), NotEmpty);
    storage.remove_directory(&path("/d/e")).unwrap();
    storage.remove_directory(&path("/d")).unwrap();
    refused!(storage.metadata(&path("/d"), Wait::Allowed), NotFound);
}

fn listing_of_none(storage: &dyn Storage) {
    storage.make_directory(&path("/d")).unwrap();
    assert!(names(storage, "/d").is_empty());
    assert!(entries(storage, "/d", 10).is_empty());
    let directory = storage.open_directory(&path("/d")).unwrap();
    assert!(directory.metadata().unwrap().is_directory());
}

fn listing_of_one(storage: &dyn Storage) {
    write(storage, "/f", b"12345");
    assert_eq!(names(storage, "/"), [b"f"]);
    let entries = entries(storage, "/", 10);
    assert_eq!(entries.len(), 1);
    assert_eq!((entries[0].metadata.size, entries[0].metadata.kind), (5, FileKind::File));
    assert_eq!(entries[0].link, None);
}

fn listing_of_many(storage: &dyn Storage, many: usize) {
    storage.make_directory(&path("/d")).unwrap();
    let mut expected: Vec<Vec<u8>> = (0..many).map(|n| format!("entry {n}").into_bytes()).collect();
    for name in &expected {
        storage.make_directory(&path("/d").join(name).unwrap()).unwrap();
    }
    expected.sort();
    assert_eq!(names(storage, "/d"), expected);
    for most in [1, 7, 1000, usize::MAX] {
        let mut listed: Vec<Vec<u8>> =
            entries(storage, "/d", most).into_iter().map(|entry| entry.name).collect();
        listed.sort();
        assert_eq!(listed, expected, "in batches of {most}");
    }
    let mut batch = Vec::new();
    storage.open_directory(&path("/d")).unwrap().next_batch(&mut batch, 100).unwrap();
    assert!((1..=400).contains(&batch.len()), "a batch of about 100 has {}", batch.len());
}

fn listing_agrees_with_metadata(storage: &dyn Storage) {
    write(storage, "/f", b"12345");
    storage.make_directory(&path("/d")).unwrap();
    for entry in entries(storage, "/", 10) {
        let path = VirtualPath::root().join(&entry.name).unwrap();
        assert_eq!(entry.metadata, storage.metadata(&path, Wait::Allowed).unwrap());
        assert_eq!(entry, storage.entry(&path).unwrap());
    }
}

fn rename_file(storage: &dyn Storage) {
    write(storage, "/a", b"content of a");
    storage.make_directory(&path("/d")).unwrap();
    storage.rename(&path("/a"), &path("/d/b")).unwrap();
    refused!(storage.metadata(&path("/a"), Wait::Allowed), NotFound);
    assert_eq!(read(storage, "/d/b").unwrap(), b"content of a");
    write(storage, "/c", b"content of c");
    storage.rename(&path("/d/b"), &path("/c")).unwrap();
    assert_eq!(read(storage, "/c").unwrap(), b"content of a");
    storage.rename(&path("/c"), &path("/c")).unwrap();
    assert_eq!(read(storage, "/c").unwrap(), b"content of a");
    refused!(storage.rename(&path("/c"), &path("/missing/c")), NotFound);
    refused!(storage.rename(&path("/c"), &path("/c/d")), NotDirectory | InvalidName);
}

fn rename_onto_directory(storage: &dyn Storage) {
    write(storage, "/f", b"file");
    storage.make_directory(&path("/d")).unwrap();
    storage.make_directory(&path("/e")).unwrap();
    refused!(storage.rename(&path("/f"), &path("/d")), IsDirectory | AlreadyExists);
    refused!(storage.rename(&path("/e"), &path("/d")), AlreadyExists);
    refused!(storage.rename(&path("/e"), &path("/f")), AlreadyExists | NotDirectory);
    assert_eq!(names(storage, "/"), [b"d", b"e", b"f"]);
}

fn rename_directory(storage: &dyn Storage) {
    storage.make_directory(&path("/d")).unwrap();
    write(storage, "/d/f", b"content");
    storage.rename(&path("/d"), &path("/e")).unwrap();
    assert_eq!(read(storage, "/e/f").unwrap(), b"content");
    storage.rename(&path("/e"), &path("/e")).unwrap();
    refused!(storage.rename(&path("/e"), &path("/e/inside")), InvalidName);
    assert_eq!(read(storage, "/e/f").unwrap(), b"content");
}

/// Makes a link, or says that this back end has none.
fn link(storage: &dyn Storage, target: &[u8], link: &str) -> bool {
    match storage.make_symlink(target, &path(link)) {
        Ok(()) => true,
        Err(FileError::Unsupported) => false,
        Err(error) => panic!("a link to {target:?} is refused with {error:?}"),
    }
}

fn links_are_followed(storage: &dyn Storage) {
    storage.make_directory(&path("/d")).unwrap();
    write(storage, "/d/f", b"content");
    if !link(storage, b"d/f", "/to-file") {
        return;
    }
    link(storage, b"d", "/to-directory");
    link(storage, b"../d/./f", "/d/through-the-parent");
    link(storage, b"missing", "/dangling");
    for way in ["/to-file", "/to-directory/f", "/d/through-the-parent", "/to-directory/through-the-parent"] {
        assert_eq!(read(storage, way).unwrap(), b"content", "{way}");
        assert_eq!(storage.metadata(&path(way), Wait::Allowed).unwrap().kind, FileKind::File);
    }
    let entry = storage.entry(&path("/to-file")).unwrap();
    assert_eq!((entry.metadata.kind, entry.link_text()), (FileKind::Symlink, Some(&b"d/f"[..])));
    refused!(storage.metadata(&path("/dangling"), Wait::Allowed), NotFound);
    let listed = entries(storage, "/", 10);
    let listed = |name: &[u8]| listed.iter().find(|entry| entry.name == name).unwrap();
    assert_eq!(listed(b"to-file").metadata.size, 7);
    assert_eq!(listed(b"to-file").link_text(), Some(&b"d/f"[..]));
    assert_eq!(listed(b"to-file").own_metadata(), &entry.metadata, "a link itself, listed and asked for");
    assert!(listed(b"to-directory").metadata.is_directory());
    assert_eq!(listed(b"dangling").metadata.kind, FileKind::Symlink);
    refused!(storage.remove_directory(&path("/to-directory")), NotDirectory);
    storage.remove_file(&path("/to-directory")).unwrap();
    assert_eq!(read(storage, "/d/f").unwrap(), b"content");
}

fn links_that_lead_out(storage: &dyn Storage) {
    storage.make_directory(&path("/d")).unwrap();
    for target in [&b"/"[..], b"/etc", b"..", b"../..", b"d/../../outside", b"../../../../../../etc/passwd"] {
        if !link(storage, target, "/out") {
            return;
        }
        for way in ["/out", "/out/deeper"] {
            refused!(storage.open_read(&path(way), Wait::Allowed), PermissionDenied);
            refused!(storage.metadata(&path(way), Wait::Allowed), PermissionDenied);
            refused!(storage.open_directory(&path(way)), PermissionDenied);
            let wanted = storage.open_write(&path(way), WriteMode::Append, Wait::Allowed);
            refused!(wanted, PermissionDenied);
            // Beside a link whose last step is `..` there is no name to write to.
            let wanted = storage.open_write(&path(way), WriteMode::Replace, Wait::Allowed);
            refused!(wanted, PermissionDenied | IsDirectory);
        }
        refused!(storage.make_directory(&path("/out/d")), PermissionDenied);
        refused!(storage.remove_file(&path("/out/f")), PermissionDenied);
        refused!(storage.rename(&path("/d"), &path("/out/d")), PermissionDenied);
        storage.remove_file(&path("/out")).unwrap();
    }
}

fn links_in_a_circle(storage: &dyn Storage) {
    if !link(storage, b"b", "/a") {
        return;
    }
    link(storage, b"a", "/b");
    refused!(storage.open_read(&path("/a"), Wait::Allowed), Loop);
    refused!(storage.metadata(&path("/a/x"), Wait::Allowed), Loop);
    refused!(storage.open_write(&path("/a"), WriteMode::Replace, Wait::Allowed), Loop);
    assert_eq!(entries(storage, "/", 10).len(), 2);
}

fn upload_through_a_link(storage: &dyn Storage) {
    storage.make_directory(&path("/d")).unwrap();
    write(storage, "/d/f", b"old");
    if !link(storage, b"d/f", "/link") {
        return;
    }
    link(storage, b"link", "/link-to-link");
    link(storage, b"../d/new", "/d/to-nothing-yet");
    for (way, target) in [("/link", "/d/f"), ("/link-to-link", "/d/f"), ("/d/to-nothing-yet", "/d/new")] {
        write(storage, way, way.as_bytes());
        assert_eq!(read(storage, target).unwrap(), way.as_bytes());
        assert_eq!(storage.entry(&path(way)).unwrap().metadata.kind, FileKind::Symlink);
    }
}

fn modification_time(storage: &dyn Storage) {
    write(storage, "/f", b"content");
    for (seconds, nanoseconds) in [(0, 0), (1, 999_999_999), (1_700_000_000, 123_456_789), (4_000_000_000, 1)]
    {
        let modified = Timestamp { seconds, nanoseconds };
        storage.change(&path("/f"), Change { modified: Some(modified), ..Change::default() }).unwrap();
        assert_eq!(storage.metadata(&path("/f"), Wait::Allowed).unwrap().modified, modified);
    }
    let mode = 0o640;
    storage.change(&path("/f"), Change { mode: Some(mode), ..Change::default() }).unwrap();
    assert_eq!(storage.metadata(&path("/f"), Wait::Allowed).unwrap().mode, mode);
    write(storage, "/f", b"other content");
    assert_eq!(storage.metadata(&path("/f"), Wait::Allowed).unwrap().mode, mode, "an upload keeps the mode");
}

fn copy(storage: &dyn Storage) {
    let content = pattern(1_000_000);
    write(storage, "/a", &content);
    write(storage, "/b", b"old");
    let mut told = Vec::new();
    let copied = storage
        .copy(&path("/a"), &path("/b"), &mut |bytes| {
            told.push(bytes);
            true
        })
        .unwrap();
    assert_eq!(copied, content.len() as u64);
    assert!(told.is_sorted() && told.last() == Some(&copied), "{told:?}");
    assert!(read(storage, "/b").unwrap() == content);
    assert_eq!(storage.copy(&path("/a"), &path("/a"), &mut |_| true).unwrap(), content.len() as u64);
    assert!(read(storage, "/a").unwrap() == content, "a copy onto itself changes nothing");
    write(storage, "/empty", b"");
    assert_eq!(storage.copy(&path("/empty"), &path("/b"), &mut |_| true).unwrap(), 0);
    assert_eq!(read(storage, "/b").unwrap(), b"");
}

fn cancelled_copy(storage: &dyn Storage) {
    write(storage, "/a", &pattern(1_000_000));
    write(storage, "/b", b"old");
    refused!(storage.copy(&path("/a"), &path("/b"), &mut |_| false), Cancelled);
    assert_eq!(read(storage, "/b").unwrap(), b"old");
    assert_eq!(names(storage, "/"), [b"a", b"b"]);
}

fn space(storage: &dyn Storage) {
    match storage.space(&VirtualPath::root()) {
        Ok(space) => assert!(space.available <= space.total),
        Err(FileError::Unsupported) => {}
        Err(error) => panic!("{error:?}"),
    }
}

fn path(text: &str) -> VirtualPath {
    VirtualPath::parse(text.as_bytes()).expect("the suite's own paths are well-formed")
}

/// Bytes that differ from place to place.
fn pattern(length: u32) -> Vec<u8> {
    (0..length).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

/// Whether an upload shows only when it is committed.
fn stages(storage: &dyn Storage) -> bool {
    let probe = path("/does-it-stage");
    let mut upload = storage.open_write(&probe, WriteMode::Replace, Wait::Allowed).unwrap();
    upload.write_all(b"x").unwrap();
    let shows = storage.metadata(&probe, Wait::Allowed).is_ok();
    upload.abort();
    if shows {
        storage.remove_file(&probe).unwrap();
    }
    !shows
}

fn write(storage: &dyn Storage, name: &str, content: &[u8]) {
    write_path(storage, &path(name), content);
}

fn write_path(storage: &dyn Storage, path: &VirtualPath, content: &[u8]) {
    let mut upload = storage.open_write(path, WriteMode::Replace, Wait::Allowed).unwrap();
    upload.write_all(content).unwrap();
    assert_eq!(upload.commit().unwrap().size, content.len() as u64);
}

/// The whole content, or `None` where there is no such file.
fn read(storage: &dyn Storage, name: &str) -> Option<Vec<u8>> {
    read_path(storage, &path(name))
}

fn read_path(storage: &dyn Storage, path: &VirtualPath) -> Option<Vec<u8>> {
    match storage.open_read(path, Wait::Allowed) {
        Err(FileError::NotFound) => None,
        result => Some(read_all(result.unwrap())),
    }
}

fn read_all(mut handle: ReadHandle) -> Vec<u8> {
    let size = handle.size();
    let mut content = Vec::new();
    loop {
        let part = read_at(&mut handle, content.len() as u64, 1 << 16);
        if part.is_empty() {
            assert!(size.is_none_or(|size| size == content.len() as u64), "the handle says how long it is");
            return content;
        }
        content.extend(part);
    }
}

fn read_at(handle: &mut ReadHandle, offset: u64, length: usize) -> Vec<u8> {
    let mut buffer = vec![0; length];
    let count = match handle {
        ReadHandle::File(range) => {
            std::os::unix::fs::FileExt::read_at(&*range.file, &mut buffer, offset).unwrap()
        }
        ReadHandle::Stream(stream) => stream.read_at(offset, &mut buffer).unwrap(),
    };
    buffer.truncate(count);
    buffer
}

/// All names of a directory, sorted.
fn names(storage: &dyn Storage, name: &str) -> Vec<Vec<u8>> {
    let mut directory = storage.open_directory(&path(name)).unwrap();
    let mut names = Vec::new();
    while directory.next_names(&mut |name| names.push(name.to_vec()), 100).unwrap() > 0 {}
    names.sort();
    names
}

/// All entries of a directory, read in batches.
fn entries(storage: &dyn Storage, name: &str, most: usize) -> Vec<DirEntry> {
    let mut directory = storage.open_directory(&path(name)).unwrap();
    let mut entries = Vec::new();
    loop {
        let before = entries.len();
        directory.next_batch(&mut entries, most).unwrap();
        if entries.len() == before {
            return entries;
        }
    }
}

/// Removes everything beneath a directory.
fn clear(storage: &dyn Storage, path: &VirtualPath) {
    let text = std::str::from_utf8(path.as_bytes()).expect("the suite's directories are text");
    for name in names(storage, text) {
        let path = path.join(&name).expect("a listed name is well-formed");
        if storage.entry(&path).unwrap().metadata.is_directory() {
            clear(storage, &path);
            storage.remove_directory(&path).unwrap();
        } else {
            storage.remove_file(&path).unwrap();
        }
    }
}
