//! `MLST` and `MLSD`: facts about an entry, for programs (RFC 3659 section 7).
//!
//! ```text
//! type=file;size=1048576;modify=20240101120000;perm=adfrw; a name
//! ```
//!
//! On the data connection names are exact, any bytes. RFC 3659 section 2.2 leaves one case open: a CR LF
//! within a name would end the line there, and must be given a form that can be undone. It is Telnet's
//! (RFC 2640 section 3.1 has the same for commands): a NUL, which no name can hold, after each CR that
//! stands before an LF or at the end of the name. [`parse`] takes it out. On the control connection, where
//! a lone LF too would break the reply, control characters are escaped as in [`crate::escape`].

use std::{fmt, ops::BitOr, sync::Arc};

use millrace_vfs::{DirEntry, FileKind, Link, Metadata, Timestamp};

use super::OwnerNames;
use crate::{
    decimal::{parse_decimal, push_decimal},
    escape::escape_name,
    time,
};

/// A set of facts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Facts(u16);

/// Names, in the order in which facts are written and advertised.
const NAMES: [(Facts, &str); 15] = [
    (Facts::TYPE, "type"),
    (Facts::SIZE, "size"),
    (Facts::MODIFY, "modify"),
    (Facts::CREATE, "create"),
    (Facts::UNIQUE, "unique"),
    (Facts::PERM, "perm"),
    (Facts::UNIX_MODE, "UNIX.mode"),
    (Facts::UNIX_OWNER, "UNIX.owner"),
    (Facts::UNIX_GROUP, "UNIX.group"),
    (Facts::UNIX_OWNERNAME, "UNIX.ownername"),
    (Facts::UNIX_GROUPNAME, "UNIX.groupname"),
    (Facts::LANG, "lang"),
    (Facts::CHARSET, "charset"),
    (Facts::MEDIA_TYPE, "media-type"),
    (Facts::HASH, "x.hash"),
];

impl Facts {
    /// No fact.
    pub const NONE: Self = Self(0);
    /// `type`: file, dir, cdir, pdir, or a kind of the system's.
    pub const TYPE: Self = Self(1);
    /// `size`, in bytes, of files.
    pub const SIZE: Self = Self(1 << 1);
    /// `modify`: last change, UTC.
    pub const MODIFY: Self = Self(1 << 2);
    /// `create`, where known.
    pub const CREATE: Self = Self(1 << 3);
    /// `unique`: equal for two names of one file.
    pub const UNIQUE: Self = Self(1 << 4);
    /// `perm`: what this session may do.
    pub const PERM: Self = Self(1 << 5);
    /// `UNIX.mode`, octal.
    pub const UNIX_MODE: Self = Self(1 << 6);
    /// `UNIX.owner`, a number.
    pub const UNIX_OWNER: Self = Self(1 << 7);
    /// `UNIX.group`, a number.
    pub const UNIX_GROUP: Self = Self(1 << 8);
    /// `UNIX.ownername`.
    pub const UNIX_OWNERNAME: Self = Self(1 << 9);
    /// `UNIX.groupname`.
    pub const UNIX_GROUPNAME: Self = Self(1 << 10);
    /// `lang`, where known.
    pub const LANG: Self = Self(1 << 11);
    /// `charset`, where known.
    pub const CHARSET: Self = Self(1 << 12);
    /// `media-type`, where known.
    pub const MEDIA_TYPE: Self = Self(1 << 13);
    /// `x.hash`: algorithm and hash, where it is known already.
    pub const HASH: Self = Self(1 << 14);
    /// Every fact.
    pub const ALL: Self = Self((1 << 15) - 1);
    /// What a session gets that never sent `OPTS MLST`.
    pub const DEFAULT: Self = Self(
        Self::TYPE.0
            | Self::SIZE.0
            | Self::MODIFY.0
            | Self::UNIQUE.0
            | Self::PERM.0
            | Self::UNIX_MODE.0
            | Self::UNIX_OWNER.0
            | Self::UNIX_GROUP.0,
    );

    /// Parses the argument of `OPTS MLST`, `type;size;`. Names are in any case; unknown ones are left out,
    /// and no name at all means no facts (RFC 3659 section 7.9).
    pub fn parse(list: &[u8]) -> Self {
        let named = |name: &[u8]| NAMES.iter().find(|(_, known)| name.eq_ignore_ascii_case(known.as_bytes()));
        list.trim_ascii()
            .split(|&byte| byte == b';')
            .filter_map(named)
            .fold(Self::NONE, |set, (fact, _)| set | *fact)
    }

    /// Claims that every fact of `other` is in this set.
    pub fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// The text for `FEAT`, after `MLST `: every fact, with a star behind those of this set.
    pub fn feature(self) -> String {
        let fact =
            |(fact, name): &(Self, &str)| format!("{name}{};", if self.contains(*fact) { "*" } else { "" });
        NAMES.iter().map(fact).collect()
    }
}

impl Default for Facts {
    fn default() -> Self {
        Self::DEFAULT
    }
}

impl BitOr for Facts {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// `type;size;`: what the reply to `OPTS MLST` says.
impl fmt::Display for Facts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        NAMES.iter().filter(|(fact, _)| self.contains(*fact)).try_for_each(|(_, name)| write!(f, "{name};"))
    }
}

/// What a session may do in a directory, for the `perm` fact. The default is everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Rights {
    /// List directories and enter them.
    pub list: bool,
    /// `RETR`.
    pub read: bool,
    /// `STOR` over files that are there.
    pub overwrite: bool,
    /// `APPE`.
    pub append: bool,
    /// `STOR` under new names.
    pub create: bool,
    /// `DELE`, `RMD`.
    pub delete: bool,
    /// `RNFR`.
    pub rename: bool,
    /// `MKD`.
    pub make_directory: bool,
}

impl Rights {
    /// Everything.
    pub const ALL: Self = Self {
        list: true,
        read: true,
        overwrite: true,
        append: true,
        create: true,
        delete: true,
        rename: true,
        make_directory: true,
    };
    /// Nothing that changes anything.
    pub const READ_ONLY: Self = Self {
        overwrite: false,
        append: false,
        create: false,
        delete: false,
        rename: false,
        make_directory: false,
        ..Self::ALL
    };

    fn of_file(&self) -> Vec<u8> {
        letters(&[
            (self.append, b'a'),
            (self.delete, b'd'),
            (self.rename, b'f'),
            (self.read, b'r'),
            (self.overwrite, b'w'),
        ])
    }

    fn of_name(&self) -> Vec<u8> {
        letters(&[(self.delete, b'd'), (self.rename, b'f')])
    }

    fn of_directory(&self) -> Vec<u8> {
        letters(&[
            (self.create, b'c'),
            (self.delete, b'd'),
            (self.list, b'e'),
            (self.rename, b'f'),
            (self.list, b'l'),
            (self.make_directory, b'm'),
            (self.delete, b'p'),
        ])
    }
}

impl Default for Rights {
    fn default() -> Self {
        Self::ALL
    }
}

fn letters(rights: &[(bool, u8)]) -> Vec<u8> {
    rights.iter().filter(|(held, _)| *held).map(|(_, letter)| *letter).collect()
}

/// How links are shown. `MLST` and `MLSD` do the same, and every fact is of one object: `unique` names what `type`
/// describes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Links {
    /// As what they lead to within the tree, so that mirrors go on into it; one that leads nowhere as a
    /// link.
    #[default]
    Followed,
    /// As links: `type=OS.unix=slink:target`.
    Shown,
}

/// Where an entry stands to the directory that is listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Place {
    /// In it.
    #[default]
    Within,
    /// It is the directory itself: `cdir`.
    Itself,
    /// It is above: `pdir`.
    Parent,
}

impl Place {
    /// The place that the name `.` or `..`, or any other, stands for.
    pub fn of(name: &[u8]) -> Self {
        match name {
            b"." => Self::Itself,
            b".." => Self::Parent,
            _ => Self::Within,
        }
    }
}

/// An entry to write, and what is known of it besides its metadata.
#[derive(Debug, Clone, Copy)]
pub struct Item<'a> {
    /// What the line calls it: a name for `MLSD`, usually a whole path for `MLST`.
    pub name: &'a [u8],
    /// Its metadata.
    pub metadata: &'a Metadata,
    /// The link itself, where the entry is one: `metadata` is what it leads to, or its own where it leads nowhere.
    pub link: Option<&'a Link>,
    /// `cdir`, `pdir` or neither.
    pub place: Place,
    /// `lang`
    pub lang: Option<&'a str>,
    /// `charset`
    pub charset: Option<&'a str>,
    /// `media-type`
    pub media_type: Option<&'a str>,
    /// `x.hash`
    pub hash: Option<&'a str>,
}

impl<'a> Item<'a> {
    /// An entry of which nothing but its metadata is known.
    pub fn new(name: &'a [u8], metadata: &'a Metadata) -> Self {
        Self {
            name,
            metadata,
            link: None,
            place: Place::Within,
            lang: None,
            charset: None,
            media_type: None,
            hash: None,
        }
    }
}

impl<'a> From<&'a DirEntry> for Item<'a> {
    fn from(entry: &'a DirEntry) -> Self {
        Self { link: entry.link.as_ref(), ..Self::new(&entry.name, &entry.metadata) }
    }
}

/// Writes lines of facts.
#[derive(Debug)]
pub struct Writer {
    facts: Facts,
    links: Links,
    owners: Arc<dyn OwnerNames>,
    file_rights: Vec<u8>,
    directory_rights: Vec<u8>,
    /// Of what can be neither read nor written: a pipe, a link that leads nowhere.
    name_rights: Vec<u8>,
    ancestors: Vec<(u64, u64)>,
}

impl Writer {
    /// A writer of these facts, for a session that may do this.
    pub fn new(facts: Facts, rights: Rights, owners: Arc<dyn OwnerNames>) -> Self {
        Self {
            facts,
            links: Links::default(),
            ancestors: Vec::new(),
            owners,
            file_rights: rights.of_file(),
            directory_rights: rights.of_directory(),
            name_rights: rights.of_name(),
        }
    }

    /// Shows links to one of these directories as links in any case: they lead back to where the listing is.
    pub fn with_ancestors(mut self, ancestors: Vec<(u64, u64)>) -> Self {
        self.ancestors = ancestors;
        self
    }

    /// Shows links as `links` says.
    pub fn with_links(mut self, links: Links) -> Self {
        self.links = links;
        self
    }

    /// Appends the line of an entry for the data connection, without its line end.
    pub fn write(&self, item: &Item<'_>, out: &mut Vec<u8>) {
        self.write_facts(item, out);
        out.push(b' ');
        write_name(item.name, out);
    }

    /// Appends the line of an entry for a reply (`MLST`), without the blank before it and its line end.
    pub fn write_reply(&self, item: &Item<'_>, out: &mut Vec<u8>) {
        self.write_facts(item, out);
        out.push(b' ');
        escape_name(item.name, out);
    }

    fn write_facts(&self, item: &Item<'_>, out: &mut Vec<u8>) {
        let link = item.link.filter(|_| !self.follows(item.metadata));
        let (target, metadata) = (item.metadata, link.map_or(item.metadata, |link| &link.metadata));
        let item = &Item { link, metadata, ..*item };
        let has = |fact: Facts| self.facts.contains(fact);
        if has(Facts::TYPE) {
            write_type(item, out);
        }
        if has(Facts::SIZE) && metadata.is_file() {
            number(b"size=", metadata.size, out);
        }
        if has(Facts::MODIFY) {
            date(b"modify=", metadata.modified, out);
        }
        if let Some(created) = metadata.created.filter(|_| has(Facts::CREATE)) {
            date(b"create=", created, out);
        }
        if has(Facts::UNIQUE) {
            write_unique(metadata.identity, out);
        }
        if has(Facts::PERM) {
            // What a command on the name does, it does to what a link leads to, if it leads on.
            let leads_on = link.is_none() || !self.leads_back(target);
            let rights = match if leads_on { target.kind } else { FileKind::Symlink } {
                FileKind::File => &self.file_rights,
                FileKind::Directory => &self.directory_rights,
                FileKind::Symlink | FileKind::Other(_) => &self.name_rights,
            };
            text(b"perm=", rights, out);
        }
        if has(Facts::UNIX_MODE) {
            let digit = |shift: u32| b'0' + (metadata.mode >> shift & 7) as u8;
            text(b"UNIX.mode=", &[digit(9), digit(6), digit(3), digit(0)], out);
        }
        if has(Facts::UNIX_OWNER) {
            number(b"UNIX.owner=", u64::from(metadata.owner.user), out);
        }
        if has(Facts::UNIX_GROUP) {
            number(b"UNIX.group=", u64::from(metadata.owner.group), out);
        }
        self.write_rare_facts(item, out);
    }

    fn write_rare_facts(&self, item: &Item<'_>, out: &mut Vec<u8>) {
        let has = |fact: Facts| self.facts.contains(fact);
        if has(Facts::UNIX_OWNERNAME) {
            looked_up(b"UNIX.ownername=", |out| self.owners.user(item.metadata.owner.user, out), out);
        }
        if has(Facts::UNIX_GROUPNAME) {
            looked_up(b"UNIX.groupname=", |out| self.owners.group(item.metadata.owner.group, out), out);
        }
        let known = [
            (Facts::LANG, &b"lang="[..], item.lang),
            (Facts::CHARSET, b"charset=", item.charset),
            (Facts::MEDIA_TYPE, b"media-type=", item.media_type),
            (Facts::HASH, b"x.hash=", item.hash),
        ];
        for (fact, key, value) in known {
            if let Some(value) = value.filter(|value| has(fact) && is_value(value.as_bytes())) {
                text(key, value.as_bytes(), out);
            }
        }
    }

    /// Claims that a link to this is shown as what it leads to.
    fn follows(&self, target: &Metadata) -> bool {
        self.links == Links::Followed && target.kind != FileKind::Symlink && !self.leads_back(target)
    }

    fn leads_back(&self, target: &Metadata) -> bool {
        target.is_directory() && self.ancestors.contains(&target.identity)
    }
}

fn write_type(item: &Item<'_>, out: &mut Vec<u8>) {
    if let Some(link) = item.link {
        out.extend_from_slice(b"type=OS.unix=slink");
        if is_value(&link.text) {
            out.push(b':');
            out.extend_from_slice(&link.text);
        }
        return out.push(b';');
    }
    out.extend_from_slice(match (item.place, item.metadata.kind) {
        (Place::Itself, _) => b"type=cdir;",
        (Place::Parent, _) => b"type=pdir;",
        (_, FileKind::File) => b"type=file;",
        (_, FileKind::Directory) => b"type=dir;",
        (_, FileKind::Symlink) => b"type=OS.unix=slink;",
        (_, FileKind::Other(_)) => b"type=OS.unix=special;",
    });
}

/// Claims that a value can stand in a line: no semicolon, no blank, nothing that is not printable.
fn is_value(value: &[u8]) -> bool {
    !value.is_empty() && value.iter().all(|&byte| byte > b' ' && byte != b';' && byte != 0x7f)
}

fn text(key: &[u8], value: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(key);
    out.extend_from_slice(value);
    out.push(b';');
}

fn number(key: &[u8], value: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(key);
    push_decimal(value, out);
    out.push(b';');
}

fn date(key: &[u8], value: Timestamp, out: &mut Vec<u8>) {
    out.extend_from_slice(key);
    time::write(value, out);
    out.push(b';');
}

fn looked_up(key: &[u8], look_up: impl FnOnce(&mut Vec<u8>), out: &mut Vec<u8>) {
    let start = out.len();
    out.extend_from_slice(key);
    look_up(out);
    match is_value(&out[start + key.len()..]) {
        true => out.push(b';'),
        false => out.truncate(start),
    }
}

/// `unique=801g1f3a;`: device and inode in hexadecimal.
fn write_unique(identity: (u64, u64), out: &mut Vec<u8>) {
    out.extend_from_slice(b"unique=");
    push_hexadecimal(identity.0, out);
    out.push(b'g');
    push_hexadecimal(identity.1, out);
    out.push(b';');
}

fn push_hexadecimal(value: u64, out: &mut Vec<u8>) {
    let digits = 16 - (value | 1).leading_zeros() / 4;
    out.extend((0..digits).rev().map(|at| b"0123456789abcdef"[(value >> (4 * at) & 15) as usize]));
}

fn write_name(name: &[u8], out: &mut Vec<u8>) {
    let mut start = 0;
    for cr in memchr::memchr_iter(b'\r', name) {
        if name.get(cr + 1).is_none_or(|&next| next == b'\n') {
            out.extend_from_slice(&name[start..=cr]);
            out.push(0);
            start = cr + 1;
        }
    }
    out.extend_from_slice(&name[start..]);
}

/// What a line of facts is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// `file`
    File,
    /// `dir`
    Directory,
    /// `cdir`: the directory that is listed.
    Itself,
    /// `pdir`: one above it.
    Parent,
    /// `OS.unix=slink`, and what others call it.
    Link,
    /// Anything else.
    Other,
}

/// What a line says of an entry: as much as its server told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// `type`
    pub kind: Option<Kind>,
    /// `size`, or the `sizd` that some servers give for directories.
    pub size: Option<u64>,
    /// `modify`
    pub modified: Option<Timestamp>,
    /// `create`
    pub created: Option<Timestamp>,
    /// `unique`
    pub unique: Option<Vec<u8>>,
    /// `perm`
    pub permissions: Option<Vec<u8>>,
    /// `UNIX.mode`
    pub mode: Option<u32>,
    /// `UNIX.owner`
    pub owner: Option<Vec<u8>>,
    /// `UNIX.group`
    pub group: Option<Vec<u8>>,
    /// Where a link leads.
    pub link: Option<Vec<u8>>,
    /// The name.
    pub name: Vec<u8>,
}

/// Parses a line from the data connection, with or without its line end. Facts that make no sense are
/// passed over; a line without the blank that ends its facts, or without a name, is `None`.
pub fn parse(line: &[u8]) -> Option<Line> {
    let line = line.strip_suffix(b"\r\n").unwrap_or(line);
    // No value holds a blank, so the first one ends the facts, even where the last semicolon is missing.
    let blank = memchr::memchr(b' ', line)?;
    let mut parsed = Line {
        kind: None,
        size: None,
        modified: None,
        created: None,
        unique: None,
        permissions: None,
        mode: None,
        owner: None,
        group: None,
        link: None,
        name: parse_name(&line[blank + 1..]),
    };
    for fact in line[..blank].split(|&byte| byte == b';') {
        if let Some(equals) = memchr::memchr(b'=', fact) {
            parsed.set(&fact[..equals].to_ascii_lowercase(), &fact[equals + 1..]);
        }
    }
    (!parsed.name.is_empty()).then_some(parsed)
}

impl Line {
    fn set(&mut self, key: &[u8], value: &[u8]) {
        match key {
            b"type" => (self.kind, self.link) = parse_type(value),
            b"size" | b"sizd" => self.size = parse_decimal(value),
            b"modify" => self.modified = time::parse(value),
            b"create" => self.created = time::parse(value),
            b"unique" => self.unique = Some(value.to_vec()),
            b"perm" => self.permissions = Some(value.to_vec()),
            b"unix.mode" => self.mode = parse_octal(value),
            b"unix.owner" => self.owner = Some(value.to_vec()),
            b"unix.group" => self.group = Some(value.to_vec()),
            _ => {}
        }
    }
}

fn parse_type(value: &[u8]) -> (Option<Kind>, Option<Vec<u8>>) {
    let lower = value.to_ascii_lowercase();
    let kind = match &lower[..] {
        b"file" => Kind::File,
        b"dir" => Kind::Directory,
        b"cdir" => Kind::Itself,
        b"pdir" => Kind::Parent,
        other if [&b"os.unix=slink"[..], b"os.unix=symlink"].iter().any(|link| other.starts_with(link)) => {
            let target = memchr::memchr(b':', value).map(|colon| value[colon + 1..].to_vec());
            return (Some(Kind::Link), target);
        }
        _ => Kind::Other,
    };
    (Some(kind), None)
}

fn parse_octal(value: &[u8]) -> Option<u32> {
    let is_octal = (1..=7).contains(&value.len()) && value.iter().all(|byte| (b'0'..=b'7').contains(byte));
    is_octal.then(|| value.iter().fold(0, |mode, byte| mode << 3 | u32::from(byte - b'0')))
}

/// Takes out the NUL after each CR.
fn parse_name(text: &[u8]) -> Vec<u8> {
    let mut name = Vec::with_capacity(text.len());
    for &byte in text {
        if byte != 0 || name.last() != Some(&b'\r') {
            name.push(byte);
        }
    }
    name
}

#[cfg(test)]
mod tests {
    use millrace_vfs::{Owner, Special};
    use proptest::prelude::*;

    use super::*;
    use crate::listing::NumericOwners;

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

    fn writer(facts: Facts, rights: Rights) -> Writer {
        Writer::new(facts, rights, Arc::new(NumericOwners))
    }

    fn line(facts: Facts, item: &Item<'_>) -> String {
        let mut out = Vec::new();
        writer(facts, Rights::ALL).write(item, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn every_fact_is_written_that_is_known_and_asked_for() {
        let metadata = metadata(FileKind::File);
        let item = Item {
            lang: Some("en"),
            charset: Some("UTF-8"),
            media_type: Some("text/plain"),
            hash: Some("SHA-256:ab"),
            ..Item::new(b"a b", &metadata)
        };
        assert_eq!(
            line(Facts::ALL, &item),
            "type=file;size=42;modify=20240101000000;create=19700101000000;unique=801gffffffffffffffff;perm=adfrw;\
             UNIX.mode=4755;UNIX.owner=1000;UNIX.group=100;UNIX.ownername=1000;UNIX.groupname=100;\
             lang=en;charset=UTF-8;media-type=text/plain;x.hash=SHA-256:ab; a b"
        );
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
        let (pipe, nowhere) =
            (metadata(FileKind::Other(Special::Pipe)), line(facts, &item(&dangling, &plain)));
        assert_eq!(nowhere, "type=OS.unix=slink:to;unique=7g7;perm=df; l");
        assert_eq!(line(Facts::PERM, &Item::new(b"p", &pipe)), "perm=df; p");
    }

    #[test]
    fn names_are_exact_and_a_line_end_within_one_does_not_end_the_line() {
        let metadata = metadata(FileKind::File);
        for (name, written) in [
            (&b" a\nb;\x1b \xff "[..], &b"  a\nb;\x1b \xff "[..]),
            (b"a\rb", b" a\rb"),
            (b"a\r\ntype=dir; b", b" a\r\0\ntype=dir; b"),
            (b"a\r", b" a\r\0"),
            (b"\r\r\n", b" \r\r\0\n"),
        ] {
            let mut out = Vec::new();
            writer(Facts::NONE, Rights::ALL).write(&Item::new(name, &metadata), &mut out);
            assert_eq!(out, written);
            assert_eq!(parse(&out).unwrap().name, name);
        }
        let mut reply = Vec::new();
        writer(Facts::TYPE, Rights::ALL).write_reply(&Item::new(b"a\n250 End", &metadata), &mut reply);
        assert_eq!(reply, b"type=file; a\\012250 End");
    }

    #[test]
    fn opts_mlst_takes_what_it_knows() {
        assert_eq!(
            Facts::parse(b"Type;SIZE;nonsense;unix.MODE;"),
            Facts::TYPE | Facts::SIZE | Facts::UNIX_MODE
        );
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
        let line =
            parse(b"type=dir;sizd=4096;modify=20240101000000;UNIX.mode=0755;UNIX.uid=0;unique=802g1; pub")
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
            prop_assert_eq!(memchr::memmem::find(&out, b"\r\n"), Some(out.len() - 2));
            let permissions: &[u8] = match kind {
                FileKind::File => b"r",
                FileKind::Directory => b"el",
                FileKind::Symlink | FileKind::Other(_) => b"",
            };
            let expected = Line {
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
}
