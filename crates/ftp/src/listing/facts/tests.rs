//! Written facts can be parsed, and so can lines of other servers.

use std::sync::Arc;

use millrace_vfs::{FileKind, Link, Metadata, Owner, Special, Timestamp};
use proptest::prelude::*;

use super::*;
use crate::listing::{FactSource, NumericOwners};

fn metadata(kind: FileKind) -> Metadata {
    Metadata {
        kind,
        size: 42,
        modified: Timestamp { seconds: 1_704_067_200, nanoseconds: 999_999_999 },
        created: Some(Timestamp { seconds: 0, nanoseconds: 0 }),
        changed: None,
        mode: 0o4755,
        owner: Owner { user: 1000, group: 100 },
        links: 1,
        identity: (0x801, u64::MAX),
    }
}

/// Takes names for types, and sizes for hashes.
#[derive(Debug)]
struct Scholar;

impl FactSource for Scholar {
    fn media_type(&self, name: &[u8], out: &mut Vec<u8>) {
        out.extend(name.iter().map(|&byte| if byte == b' ' { b'_' } else { byte }));
    }

    fn hash(&self, metadata: &Metadata, out: &mut Vec<u8>) {
        out.extend_from_slice(format!("SHA-256:{}", metadata.size).as_bytes());
    }
}

fn writer(facts: Facts, rights: Rights) -> FactWriter {
    FactWriter::new(facts, rights, Arc::new(NumericOwners))
}

fn line(facts: Facts, item: &Item<'_>) -> String {
    let mut out = Vec::new();
    writer(facts, Rights::ALL).write(item, &mut out);
    String::from_utf8(out).unwrap()
}

#[test]
fn every_fact_is_written_that_is_known_and_asked_for() {
    let metadata = metadata(FileKind::File);
    let item = Item::new(b"a b", &metadata);
    let mut all = Vec::new();
    writer(Facts::ALL, Rights::ALL).with_fact_source(Arc::new(Scholar)).write(&item, &mut all);
    assert_eq!(
        String::from_utf8(all).unwrap(),
        "type=file;size=42;modify=20240101000000;create=19700101000000;unique=801gffffffffffffffff;perm=adfrw;\
         UNIX.mode=4755;UNIX.owner=1000;UNIX.group=100;UNIX.ownername=1000;UNIX.groupname=100;\
         media-type=a_b;x.hash=SHA-256:42; a b"
    );
    assert!(!line(Facts::ALL, &item).contains("hash"), "what is not known is not told");
    let mut blind = Vec::new();
    let rights = Rights { read: false, ..Rights::ALL };
    writer(Facts::HASH, rights).with_fact_source(Arc::new(Scholar)).write(&item, &mut blind);
    assert_eq!(blind, b" a b", "a user without read permission does not see the hash");
    assert_eq!(line(Facts::NONE, &item), " a b");
    assert_eq!(line(Facts::TYPE | Facts::SIZE, &item), "type=file;size=42; a b");
}

#[test]
fn directories_have_no_size_and_other_rights() {
    let metadata = metadata(FileKind::Directory);
    let item = Item { place: Place::of(b"."), ..Item::new(b".", &metadata) };
    assert_eq!(line(Facts::TYPE | Facts::SIZE | Facts::PERM, &item), "type=cdir;perm=cdeflmp; .");
    let mut out = Vec::new();
    writer(Facts::PERM, Rights::READ_ONLY).write(&item, &mut out);
    assert_eq!(out, b"perm=el; .");
}

#[test]
fn a_link_is_followed_or_shown() {
    let (file, dangling) = (metadata(FileKind::File), metadata(FileKind::Symlink));
    let to = |text: &[u8]| Link {
        text: text.to_vec(),
        metadata: Metadata { identity: (7, 7), ..metadata(FileKind::Symlink) },
    };
    let (plain, odd) = (to(b"to"), to(b"to;size=1"));
    let item = |metadata, link| Item { link: Some(link), ..Item::new(b"l", metadata) };
    assert_eq!(line(Facts::TYPE, &item(&file, &plain)), "type=file; l");
    assert_eq!(line(Facts::TYPE, &item(&dangling, &plain)), "type=OS.unix=slink:to; l");
    assert_eq!(line(Facts::TYPE, &item(&dangling, &odd)), "type=OS.unix=slink; l");
    // Facts are of the link where the type is; what may be done is done to what it leads to.
    let facts = Facts::TYPE | Facts::SIZE | Facts::UNIQUE | Facts::PERM;
    let mut out = Vec::new();
    writer(facts, Rights::ALL).with_links(Links::Shown).write(&item(&file, &plain), &mut out);
    assert_eq!(out, b"type=OS.unix=slink:to;unique=7g7;perm=adfrw; l");
    let (pipe, nowhere) = (metadata(FileKind::Other(Special::Pipe)), line(facts, &item(&dangling, &plain)));
    assert_eq!(nowhere, "type=OS.unix=slink:to;unique=7g7;perm=df; l");
    assert_eq!(line(Facts::PERM, &Item::new(b"p", &pipe)), "perm=df; p");
}

#[test]
fn names_come_back_and_a_line_end_within_one_does_not_end_the_line() {
    let metadata = metadata(FileKind::File);
    for (name, written) in [
        (&b" a; \xff\\x "[..], &b"  a; \xff\\x "[..]),
        (b"a\nb;\x1b", b" a\\012b;\\033"),
        (b"a\r\ntype=dir; ..", b" a\\015\\012type=dir; .."),
        (b"a\r", b" a\\015"),
        (b"a\\012", b" a\\134012"),
    ] {
        let mut out = Vec::new();
        writer(Facts::NONE, Rights::ALL).write(&Item::new(name, &metadata), &mut out);
        assert_eq!(out, written);
        assert_eq!(parse(&out).unwrap().name, name);
    }
    // As servers write it that follow RFC 854.
    assert_eq!(parse(b" a\r\0b").unwrap().name, b"a\rb");
}

#[test]
fn opts_mlst_takes_what_it_knows() {
    assert_eq!(Facts::parse(b"Type;SIZE;nonsense;unix.MODE;"), Facts::TYPE | Facts::SIZE | Facts::UNIX_MODE);
    assert_eq!(Facts::parse(b""), Facts::NONE);
    assert_eq!(Facts::parse(b"size"), Facts::SIZE);
    assert_eq!(Facts::parse(b"size;type;").to_string(), "type;size;");
    assert!((Facts::TYPE | Facts::SIZE).feature().starts_with("type*;size*;modify;create;"));
    assert_eq!(Facts::parse(Facts::ALL.to_string().as_bytes()), Facts::ALL);
}

#[test]
fn lines_of_other_servers_are_read() {
    // ProFTPD
    let line = parse(b"modify=20240101000000;perm=adfrw;size=42;type=file;unique=801U2;UNIX.group=0;UNIX.mode=0644;UNIX.owner=0; a b\r\n").unwrap();
    assert_eq!((line.kind, line.size, line.mode), (Some(Kind::File), Some(42), Some(0o644)));
    assert_eq!(line.name, b"a b");
    // Pure-FTPd
    let line = parse(b"type=dir;sizd=4096;modify=20240101000000;UNIX.mode=0755;UNIX.uid=0;unique=802g1; pub")
        .unwrap();
    assert_eq!((line.kind, line.size), (Some(Kind::Directory), Some(4096)));
    // FileZilla Server, with milliseconds
    let line = parse(b"type=file;size=1;modify=20240101000000.500; x").unwrap();
    assert_eq!(line.modified.unwrap().nanoseconds, 500_000_000);
    // without the last semicolon
    assert_eq!(parse(b"type=file;size=1 x").unwrap().size, Some(1));
    for text in [&b""[..], b"x", b"type=file;", b"type=file; "] {
        assert_eq!(parse(text), None);
    }
}

proptest! {
    #[test]
    fn what_is_written_is_read_back(
        name in prop::collection::vec(prop_oneof![prop::sample::select(&b"\r\n ;="[..]), 1..=255u8], 1..40),
        kind in prop::sample::select(vec![FileKind::File, FileKind::Directory, FileKind::Symlink, FileKind::Other(Special::Socket)]),
        size: u64, mode in 0..0o10000u32, user: u32, seconds in 0..253_402_300_799i64, device: u64, inode: u64,
    ) {
        let modified = Timestamp { seconds, nanoseconds: 0 };
        let owner = Owner { user, group: 7 };
        let metadata = Metadata { size, modified, mode, owner, identity: (device, inode), ..metadata(kind) };
        let mut out = Vec::new();
        writer(Facts::ALL, Rights::READ_ONLY).write(&Item::new(&name, &metadata), &mut out);
        out.extend_from_slice(b"\r\n");
        prop_assert_eq!(out.iter().position(|&byte| matches!(byte, b'\r' | b'\n')), Some(out.len() - 2));
        let permissions: &[u8] = match kind {
            FileKind::File => b"r",
            FileKind::Directory => b"el",
            FileKind::Symlink | FileKind::Other(_) => b"",
        };
        let expected = FactLine {
            kind: Some(match kind {
                FileKind::File => Kind::File,
                FileKind::Directory => Kind::Directory,
                FileKind::Symlink => Kind::Link,
                FileKind::Other(_) => Kind::Other,
            }),
            size: (kind == FileKind::File).then_some(size),
            modified: Some(modified),
            created: metadata.created,
            unique: Some(format!("{device:x}g{inode:x}").into_bytes()),
            permissions: Some(permissions.to_vec()),
            mode: Some(mode),
            owner: Some(user.to_string().into_bytes()),
            group: Some(b"7".to_vec()),
            link: None,
            name,
        };
        prop_assert_eq!(parse(&out), Some(expected));
    }

    #[test]
    fn any_bytes_are_a_line_or_none(bytes in prop::collection::vec(any::<u8>(), 0..60), text in "((type|size|modify|UNIX.mode)=[0-9a-z:.=]{0,16};){0,4} ?.{0,4}") {
        let _ = parse(&bytes);
        let _ = parse(text.as_bytes());
        let _ = Facts::parse(&bytes);
    }
}
