//! Lines of facts, as they are written.

use std::sync::Arc;

use millrace_vfs::{DirEntry, FileKind, Link, Metadata, Timestamp};

use super::{Facts, Links, Place, Rights};
use crate::decimal::push_decimal;
use crate::escape::escape_name;
use crate::listing::{FactSource, NoFacts, OwnerNames};
use crate::time;

/// An entry to write, and facts beyond its metadata.
#[derive(Debug, Clone, Copy)]
pub struct Item<'a> {
    /// The name in the line: a name for `MLSD`, usually a whole path for `MLST`.
    pub name: &'a [u8],
    /// Its metadata.
    pub metadata: &'a Metadata,
    /// The link itself, where the entry is one: `metadata` is what it leads to, or its own where it leads nowhere.
    pub link: Option<&'a Link>,
    /// `cdir`, `pdir` or neither.
    pub place: Place,
}

impl<'a> Item<'a> {
    /// An entry of which nothing but its metadata is known.
    pub fn new(name: &'a [u8], metadata: &'a Metadata) -> Self {
        Self { name, metadata, link: None, place: Place::Within }
    }
}

impl<'a> From<&'a DirEntry> for Item<'a> {
    fn from(entry: &'a DirEntry) -> Self {
        Self { link: entry.link.as_ref(), ..Self::new(&entry.name, &entry.metadata) }
    }
}

/// Writes lines of facts.
#[derive(Debug)]
pub struct FactWriter {
    facts: Facts,
    links: Links,
    owners: Arc<dyn OwnerNames>,
    fact_source: Arc<dyn FactSource>,
    file_rights: Vec<u8>,
    directory_rights: Vec<u8>,
    /// Of what can be neither read nor written: a pipe, a link that leads nowhere.
    name_rights: Vec<u8>,
    ancestors: Vec<(u64, u64)>,
}

impl FactWriter {
    /// A writer of these facts, for a session that may do this.
    pub fn new(facts: Facts, rights: Rights, owners: Arc<dyn OwnerNames>) -> Self {
        Self {
            facts,
            links: Links::default(),
            ancestors: Vec::new(),
            owners,
            fact_source: Arc::new(NoFacts),
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

    /// Tells what else is known of files.
    pub fn with_fact_source(mut self, fact_source: Arc<dyn FactSource>) -> Self {
        self.fact_source = fact_source;
        self
    }

    /// Shows links as `links` says.
    pub fn with_links(mut self, links: Links) -> Self {
        self.links = links;
        self
    }

    /// Appends the line of an entry, without its line end: as `MLSD` sends it, and as `MLST` does behind a blank.
    /// Control characters in the name are escaped.
    pub fn write(&self, item: &Item<'_>, out: &mut Vec<u8>) {
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
            // Commands on a link apply to its target, if it has one.
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
        if !item.metadata.is_file() {
            return;
        }
        if has(Facts::MEDIA_TYPE) {
            let name = item.name.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
            looked_up(b"media-type=", |out| self.fact_source.media_type(name, out), out);
        }
        // A hash would reveal a file's content, as `HASH` refuses to.
        if has(Facts::HASH) && self.file_rights.contains(&b'r') {
            looked_up(b"x.hash=", |out| self.fact_source.hash(item.metadata, out), out);
        }
    }

    /// Returns true if a link to this is shown as what it leads to.
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

/// Returns true if a value can stand in a line: no semicolon, no blank, nothing that is not printable.
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
