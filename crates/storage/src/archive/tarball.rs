//! tar, plain or packed by gzip: the records of the ustar format, GNU's for long names.

use std::io::{self, Write};

use flate2::Compression;
use flate2::write::GzEncoder;
use millrace_vfs::Metadata;
use tar::{EntryType, Header};

use super::pack::{Form, Item};

/// A record of a tar file, in bytes.
const RECORD: usize = 512;

/// A tar file in the making.
#[derive(Debug)]
pub(super) struct Tarball {
    sink: Sink,
    /// The padding to a whole record after a file.
    padding: usize,
}

/// Where the records go.
#[derive(Debug)]
enum Sink {
    Plain(Vec<u8>),
    Packed(Box<GzEncoder<Vec<u8>>>),
}

impl Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Plain(out) => out.write_all(bytes),
            Self::Packed(encoder) => encoder.write_all(bytes),
        }
    }
}

impl Tarball {
    pub(super) fn plain() -> Self {
        Self { sink: Sink::Plain(Vec::new()), padding: 0 }
    }

    pub(super) fn packed() -> Self {
        Self { sink: Sink::Packed(Box::new(GzEncoder::new(Vec::new(), Compression::new(6)))), padding: 0 }
    }

    fn record(&mut self, kind: EntryType, name: &[u8], target: &[u8], metadata: &Metadata) -> io::Result<()> {
        let mut header = Header::new_gnu();
        header.set_entry_type(kind);
        header.set_mode(metadata.mode & 0o7777);
        header.set_uid(metadata.owner.user.into());
        header.set_gid(metadata.owner.group.into());
        header.set_mtime(u64::try_from(metadata.modified.seconds).unwrap_or(0));
        header.set_size(if kind == EntryType::Regular { metadata.size } else { 0 });
        self.long(b'K', target, &mut header.as_gnu_mut().expect("it was made so").linkname)?;
        self.long(b'L', name, &mut header.as_gnu_mut().expect("it was made so").name)?;
        header.set_cksum();
        self.sink.write(header.as_bytes())
    }

    /// Puts a text into its field; one that does not fit goes before the header in a record of its own.
    fn long(&mut self, kind: u8, text: &[u8], field: &mut [u8; 100]) -> io::Result<()> {
        let fitting = text.len().min(field.len());
        field[..fitting].copy_from_slice(&text[..fitting]);
        if text.len() <= field.len() {
            return Ok(());
        }
        let mut header = Header::new_gnu();
        let gnu = header.as_gnu_mut().expect("it was made so");
        gnu.name[..13].copy_from_slice(b"././@LongLink");
        header.set_entry_type(EntryType::new(kind));
        header.set_mode(0o644);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(0);
        header.set_size(text.len() as u64 + 1);
        header.set_cksum();
        self.sink.write(header.as_bytes())?;
        self.sink.write(text)?;
        // The text ends with a NUL.
        self.sink.write(&[0; RECORD][..RECORD - text.len() % RECORD])
    }
}

impl Form for Tarball {
    fn directory(&mut self, item: &Item<'_>) -> io::Result<()> {
        let name = [item.name, b"/"].concat();
        self.record(EntryType::Directory, &name, b"", &item.entry.metadata)
    }

    fn link(&mut self, item: &Item<'_>, text: &[u8]) -> io::Result<()> {
        self.record(EntryType::Symlink, item.name, text, &item.entry.metadata)
    }

    fn begin_file(&mut self, item: &Item<'_>) -> io::Result<()> {
        self.padding = (RECORD - (item.entry.metadata.size % RECORD as u64) as usize) % RECORD;
        self.record(EntryType::Regular, item.name, b"", &item.entry.metadata)
    }

    fn data(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.sink.write(bytes)
    }

    fn end_file(&mut self) -> io::Result<()> {
        self.sink.write(&[0; RECORD][..self.padding])
    }

    fn finish(&mut self) -> io::Result<()> {
        self.sink.write(&[0; 2 * RECORD])?;
        match &mut self.sink {
            Sink::Plain(_) => Ok(()),
            Sink::Packed(encoder) => encoder.try_finish(),
        }
    }

    fn take(&mut self, out: &mut Vec<u8>) {
        match &mut self.sink {
            Sink::Plain(made) => out.append(made),
            Sink::Packed(encoder) => out.append(encoder.get_mut()),
        }
    }

    fn has_links(&self) -> bool {
        true
    }
}
