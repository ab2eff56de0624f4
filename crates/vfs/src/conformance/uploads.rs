//! Uploads: what becomes of one that is committed, aborted, undone or dropped, and what others see meanwhile.

use super::{Claim, names, path, pattern, read, read_all, stages, write};
use crate::{FileError, Storage, Wait, WriteMode};

pub(super) const CLAIMS: &[(&str, Claim)] = &[
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
    ("permission bits said for what is made hold from its first moment", bits_of_what_is_made),
];

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
    // A back end that reserves the name at open refuses here; one that stages refuses the later commit.
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
