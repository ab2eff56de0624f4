//! Decisions in tables: the request, what was looked up, and what comes of it.

use millrace_vfs::{FileKind, Link, Metadata, Owner, Timestamp};
use proptest::prelude::*;

use super::*;
use crate::request;

const ALL: Permissions = Permissions::READ_WRITE;

fn head(method: &str, fields: &str) -> Head {
    let text = format!("{method} /d/f HTTP/1.1\r\nHost: h\r\n{fields}\r\n");
    request::parse(text.as_bytes()).unwrap().unwrap().0
}

fn path(text: &str) -> VirtualPath {
    VirtualPath::parse(text.as_bytes()).unwrap()
}

fn entry(kind: FileKind, size: u64) -> DirEntry {
    let metadata = Metadata {
        kind,
        size,
        modified: Timestamp { seconds: 1_000_000_000, nanoseconds: 0 },
        created: None,
        changed: None,
        mode: 0o644,
        owner: Owner { user: 1, group: 1 },
        links: 1,
        identity: (1, 2),
    };
    DirEntry { name: b"f".to_vec(), metadata, link: None }
}

fn file(size: u64) -> DirEntry {
    entry(FileKind::File, size)
}

fn directory() -> DirEntry {
    entry(FileKind::Directory, 0)
}

/// A link to a directory.
fn link() -> DirEntry {
    let to = directory();
    DirEntry { link: Some(Link { text: b"x".to_vec(), metadata: to.metadata }), ..to }
}

fn without(permissions: &[Permission]) -> Permissions {
    permissions.iter().fold(ALL, |all, permission| all.without(*permission))
}

fn status<T>(decided: Result<T, Refusal>) -> Result<T, u16> {
    decided.map_err(|refusal| refusal.status.0)
}

#[test]
fn a_put_says_how_the_file_is_written() {
    use Permission::{Append, Overwrite, Write};
    use Touch::{Content, Name};
    let part = "Content-Range: bytes 5-9/*\r\nContent-Length: 5\r\n";
    let first = "Content-Range: bytes 0-4/5\r\nContent-Length: 5\r\n";
    for (fields, existing, permissions, expected) in [
        ("", None, ALL, Ok((WriteMode::Replace, Name))),
        ("", None, without(&[Write]), Err(403)),
        ("", None, without(&[Overwrite, Append]), Ok((WriteMode::Replace, Name))),
        ("", Some(file(3)), ALL, Ok((WriteMode::Replace, Content))),
        ("", Some(file(3)), without(&[Overwrite]), Err(403)),
        ("", Some(file(3)), without(&[Write, Append]), Ok((WriteMode::Replace, Content))),
        ("", Some(directory()), ALL, Err(409)),
        ("", Some(link()), ALL, Err(409)),
        ("If-None-Match: *\r\n", None, ALL, Ok((WriteMode::CreateNew, Name))),
        ("If-None-Match: *\r\n", Some(file(3)), ALL, Err(412)),
        ("If-Match: *\r\n", None, ALL, Err(412)),
        ("If-Match: *\r\n", Some(file(3)), ALL, Ok((WriteMode::Replace, Content))),
        // A file goes on where it ends, or within it; what is new begins at its first byte.
        (part, Some(file(5)), ALL, Ok((WriteMode::At(5), Content))),
        (part, Some(file(5)), without(&[Overwrite, Write]), Ok((WriteMode::At(5), Content))),
        (part, Some(file(5)), without(&[Append]), Err(403)),
        (part, Some(file(6)), ALL, Ok((WriteMode::At(5), Content))),
        (part, Some(file(6)), without(&[Overwrite]), Err(403)),
        (part, Some(file(4)), ALL, Err(416)),
        (part, None, ALL, Err(416)),
        (first, None, ALL, Ok((WriteMode::Replace, Name))),
        (first, None, without(&[Append]), Ok((WriteMode::Replace, Name))),
        (first, None, without(&[Write]), Err(403)),
        (first, Some(file(0)), ALL, Ok((WriteMode::At(0), Content))),
        ("Content-Range: bytes 0-4/5\r\nContent-Length: 4\r\n", Some(file(9)), ALL, Err(400)),
        ("Content-Range: bytes 0-4/5\r\nTransfer-Encoding: chunked\r\n", Some(file(9)), ALL, Err(400)),
        ("Content-Range: bytes */5\r\nContent-Length: 5\r\n", Some(file(9)), ALL, Err(400)),
    ] {
        let (head, path) = (head("PUT", fields), path("/d/f"));
        let request = ChangeRequest { head: &head, path: &path, is_directory: false, permissions };
        let decided = status(request.put(existing.as_ref())).map(|put| (put.mode, put.touch));
        assert_eq!(decided, expected, "{fields:?} {existing:?} {permissions}");
        let named_as_directory = ChangeRequest { is_directory: true, ..request };
        assert_eq!(status(named_as_directory.put(existing.as_ref())), Err(409));
    }
}

#[test]
fn what_is_removed_or_made_is_there_or_not() {
    for (method, target, fields, existing, expected) in [
        ("DELETE", "/d/f", "", Some(file(1)), Ok(())),
        ("DELETE", "/d/f", "", None, Err(404)),
        ("DELETE", "/d/f", "If-Match: \"x\"\r\n", Some(file(1)), Err(412)),
        ("DELETE", "/d/f/", "", Some(file(1)), Err(404)),
        ("DELETE", "/d/f/", "", Some(directory()), Ok(())),
        ("DELETE", "/d/f", "", Some(link()), Ok(())),
        ("DELETE", "/", "", Some(directory()), Err(403)),
        ("MKCOL", "/d/f/", "", None, Ok(())),
        ("MKCOL", "/d/f/", "", Some(file(1)), Err(405)),
        ("MKCOL", "/d/f", "", Some(directory()), Err(405)),
        ("MKCOL", "/d/f", "If-None-Match: *\r\n", None, Ok(())),
        ("MKCOL", "/d/f", "If-Match: *\r\n", None, Err(412)),
    ] {
        let (head, path) = (head(method, fields), path(target));
        let is_directory = target.ends_with('/');
        let request = ChangeRequest { head: &head, path: &path, is_directory, permissions: ALL };
        let decided = match method {
            "DELETE" => status(request.delete(existing.as_ref())).map(drop),
            _ => status(request.make_collection(existing.as_ref())),
        };
        assert_eq!(decided, expected, "{method} {target} {fields:?} {existing:?}");
    }
}

/// A `MOVE` or `COPY` of `/d/f`, or of `/d/f/` where it is a directory.
fn transfer(
    (method, fields): (&str, &str),
    entry: Option<&DirEntry>,
    to: &str,
    replaced: Option<&DirEntry>,
    permissions: Permissions,
) -> Result<Transfer, u16> {
    let (head, from) = (head(method, fields), path("/d/f"));
    let is_directory = entry.is_some_and(|entry| entry.metadata.is_directory());
    let request = ChangeRequest { head: &head, path: &from, is_directory, permissions };
    status(request.transfer(entry, (&path(to), to.ends_with('/')), replaced))
}

#[test]
fn a_transfer_says_how_the_new_name_comes_to_be() {
    use Permission::{Delete, MakeDirectory, Overwrite, Read, Rename, Write};
    use Replaced::{AtOnce, Nothing, SetAside};
    use TransferKind::{CopyDirectory, CopyFile, CopyTree, Rename as Renamed};
    let (mv, cp) = (("MOVE", ""), ("COPY", ""));
    let keep = "Overwrite: f\r\n";
    for (request, from, to, replaced, permissions, expected) in [
        (mv, Some(file(1)), "/e", None, ALL, Ok((Renamed, Nothing))),
        (mv, None, "/e", None, ALL, Err(404)),
        (mv, Some(file(1)), "/e/", None, ALL, Err(409)),
        (mv, Some(file(1)), "/e/", Some(directory()), ALL, Ok((Renamed, SetAside))),
        (mv, Some(file(1)), "/e/", Some(file(1)), ALL, Err(409)),
        (mv, Some(directory()), "/e/", None, ALL, Ok((Renamed, Nothing))),
        (mv, Some(file(1)), "/e", Some(file(2)), ALL, Ok((Renamed, AtOnce))),
        (mv, Some(file(1)), "/e", Some(link()), ALL, Ok((Renamed, AtOnce))),
        (mv, Some(directory()), "/e", Some(file(2)), ALL, Ok((Renamed, SetAside))),
        (mv, Some(file(1)), "/e", None, without(&[Write]), Err(403)),
        (mv, Some(file(1)), "/e", None, without(&[Overwrite, Read]), Ok((Renamed, Nothing))),
        (mv, Some(file(1)), "/e", Some(file(2)), without(&[Overwrite]), Err(403)),
        (mv, Some(file(1)), "/e", Some(file(2)), without(&[Delete, Write]), Ok((Renamed, AtOnce))),
        (mv, Some(file(1)), "/e", Some(directory()), without(&[Delete]), Err(403)),
        (mv, Some(directory()), "/e", Some(file(2)), without(&[Rename]), Err(403)),
        (("MOVE", keep), Some(file(1)), "/e", Some(file(2)), ALL, Err(412)),
        (("MOVE", "Overwrite: T\r\n"), Some(file(1)), "/e", Some(file(2)), ALL, Ok((Renamed, AtOnce))),
        (("MOVE", keep), Some(file(1)), "/e", None, ALL, Ok((Renamed, Nothing))),
        (("MOVE", "If-Match: \"x\"\r\n"), Some(file(1)), "/e", None, ALL, Err(412)),
        (mv, Some(file(1)), "/d/f", Some(file(1)), ALL, Err(403)),
        (mv, Some(directory()), "/d/f/g", None, ALL, Err(403)),
        (mv, Some(directory()), "/d", Some(directory()), ALL, Err(403)),
        (mv, Some(file(1)), "/", Some(directory()), ALL, Err(403)),
        (cp, Some(file(1)), "/e", None, ALL, Ok((CopyFile, Nothing))),
        (cp, Some(link()), "/e", None, ALL, Ok((CopyFile, Nothing))),
        (cp, Some(file(1)), "/e", None, without(&[Read]), Err(403)),
        (cp, Some(file(1)), "/e", None, without(&[MakeDirectory]), Ok((CopyFile, Nothing))),
        (cp, Some(directory()), "/e", None, ALL, Ok((CopyTree, Nothing))),
        (cp, Some(directory()), "/e", None, without(&[MakeDirectory]), Err(403)),
        (("COPY", "Depth: 0\r\n"), Some(directory()), "/e", None, ALL, Ok((CopyDirectory, Nothing))),
        (("COPY", "Depth: 0\r\n"), Some(file(1)), "/e", None, ALL, Ok((CopyFile, Nothing))),
        (("COPY", keep), Some(directory()), "/e", Some(file(1)), ALL, Err(412)),
    ] {
        let decided = transfer(request, from.as_ref(), to, replaced.as_ref(), permissions);
        let decided = decided.map(|transfer| (transfer.how, transfer.replaced));
        assert_eq!(decided, expected, "{request:?} {from:?} {to} {replaced:?} {permissions}");
    }
}

#[test]
fn a_transfer_passes_the_locks_of_what_it_changes() {
    let (from, to) = (path("/d/f"), path("/e"));
    for (method, paths) in [("MOVE", vec![&from, &to]), ("COPY", vec![&to])] {
        let transfer = transfer((method, ""), Some(&file(1)), "/e", None, ALL).unwrap();
        let touched: Vec<_> = transfer.touched(&from, &to);
        assert_eq!(touched, paths.into_iter().map(|path| (path, Touch::Name)).collect::<Vec<_>>());
        assert_eq!(transfer.status(), Status::CREATED);
    }
}

#[test]
fn a_destination_is_a_path_of_this_server() {
    for (fields, expected) in [
        ("", Err(400)),
        ("Destination: /a%20b\r\n", Ok(("/a b", false))),
        ("Destination: http://h/a/\r\n", Ok(("/a", true))),
        ("Destination: http://other/a\r\n", Err(502)),
        ("Destination: a\r\n", Err(400)),
    ] {
        let decided = status(destination(&head("MOVE", fields)));
        assert_eq!(decided, expected.map(|(text, is_directory)| (path(text), is_directory)), "{fields}");
    }
}

#[test]
fn a_body_has_an_end_that_is_known() {
    for (method, version, fields, expected) in [
        ("PUT", "1.1", "Content-Length: 5\r\n", Ok(())),
        ("PUT", "1.1", "Content-Length: 0\r\n", Ok(())),
        ("PUT", "1.1", "Transfer-Encoding: chunked\r\n", Ok(())),
        ("PUT", "1.1", "", Err(411)),
        ("PUT", "1.0", "", Err(411)),
        ("MOVE", "1.1", "", Ok(())),
        ("MKCOL", "1.1", "Content-Length: 5\r\n", Err(415)),
    ] {
        let text = format!("{method} /f HTTP/{version}\r\nHost: h\r\n{fields}\r\n");
        let (mut head, _) = request::parse(text.as_bytes()).unwrap().unwrap();
        assert_eq!(status(check_body(&head)), expected, "{text}");
        if expected == Err(411) {
            // The frames of HTTP/2 say where a body ends.
            head.version = Version::Http2;
            assert_eq!(status(check_body(&head)), Ok(()));
        }
    }
}

fn entries() -> impl Strategy<Value = Option<DirEntry>> {
    prop_oneof![
        Just(None),
        (0..9_u64).prop_map(|size| Some(file(size))),
        Just(Some(directory())),
        Just(Some(link()))
    ]
}

fn permissions() -> impl Strategy<Value = Permissions> {
    prop::collection::vec(prop::sample::select(&Permission::WORDS[..]), 0..11)
        .prop_map(|words| words.iter().fold(Permissions::NONE, |set, (permission, _)| set.with(*permission)))
}

proptest! {
    /// Whatever is allowed stays allowed, and the same, with further permissions; and nothing replaces what a request
    /// said to keep, or goes into itself.
    #[test]
    fn further_permissions_take_nothing_away(
        method in prop::sample::select(&["MOVE", "COPY"][..]),
        fields in prop::sample::select(&["", "Overwrite: F\r\n", "Depth: 0\r\n"][..]),
        from in entries(),
        to in prop::sample::select(&["/", "/d", "/d/", "/d/f", "/d/f/g", "/d/g", "/e/"][..]),
        replaced in entries(),
        few in permissions(),
        more in permissions(),
    ) {
        let decide = |permissions| transfer((method, fields), from.as_ref(), to, replaced.as_ref(), permissions);
        if let Ok(decided) = decide(few) {
            prop_assert_eq!(decide(few.union(more)), Ok(decided));
            prop_assert!(decided.replaced == Replaced::Nothing || !fields.starts_with("Overwrite"));
            prop_assert_eq!(decided.replaced == Replaced::Nothing, replaced.is_none());
            prop_assert!(!path(to).starts_with(&path("/d/f")) && !path("/d/f").starts_with(&path(to)));
        }
        let (head, from) = (head("PUT", ""), path("/d/f"));
        let put = |permissions| {
            ChangeRequest { head: &head, path: &from, is_directory: false, permissions }.put(replaced.as_ref())
        };
        if let Ok(decided) = put(few) {
            prop_assert_eq!(put(few.union(more)), Ok(decided));
        }
    }
}
