//! Conversions of single files while they are sent, as wu-ftpd's `ftpconversions` has them: `RETR file.gz` of a `file`, and `RETR
//! file` of a `file.gz`; the same with `.zst` and `.Z`.
//!
//! A file of the name itself goes first. Converted names are not listed, and their length is not known beforehand. Nothing is
//! written to disk, and a conversion holds a few MiB at most, whatever it makes: it makes a piece when the reader asks for one.
//! The layer converts what the storage beneath it shows, so permissions belong beneath it, and [`Archives`](crate::Archives), of
//! which `folder.tar.zst` is then made.

mod lzw;
mod zst;

use std::fmt;
use std::io::{self, BufReader, Read};
use std::sync::Arc;

use flate2::Compression;
use flate2::bufread::{GzEncoder, MultiGzDecoder};
use millrace_vfs::{
    Call, Conversion, FileError, Metadata, ReadHandle, ReadStream, Storage, VirtualPath, Wait,
};

use crate::through;

/// About how many bytes are read or made at a time.
const PIECE: usize = 64 << 10;

/// A form of compressed files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Compressed {
    Gzip,
    Zstd,
    /// By `compress`.
    Lzw,
}

/// The endings of their names.
const ENDINGS: &[(&[u8], Compressed)] =
    &[(b".gz", Compressed::Gzip), (b".zst", Compressed::Zstd), (b".Z", Compressed::Lzw)];

/// Another back end, whose files can be read compressed, and compressed ones as what they hold.
#[derive(Debug, Clone)]
pub struct Conversions {
    inner: Arc<dyn Storage>,
}

/// How the content of a name can be made.
#[derive(Debug)]
struct Recipe {
    source: VirtualPath,
    form: Compressed,
    /// Whether the source is compressed, rather than decompressed.
    compresses: bool,
}

impl Conversions {
    /// Lets files of `inner` be converted.
    pub fn new(inner: Arc<dyn Storage>) -> Self {
        Self { inner }
    }

    /// Returns the files that this name could be a conversion of, whether they are there or not; a file of the name goes first.
    pub fn sources(path: &VirtualPath) -> impl Iterator<Item = VirtualPath> {
        recipes(path).map(|recipe| recipe.source)
    }

    fn convert(&self, path: &VirtualPath) -> Result<ReadHandle, FileError> {
        let opened = recipes(path).map(|recipe| Converted::open(&*self.inner, recipe));
        let mut found = opened.filter(|opened| {
            !matches!(opened, Err(FileError::NotFound | FileError::IsDirectory | FileError::NameTooLong))
        });
        let converted = found.next().unwrap_or(Err(FileError::NotFound))?;
        Ok(ReadHandle::Stream(Box::new(converted)))
    }

    /// Returns whether a file is there, or can be made as an archive.
    fn is_source(&self, path: &VirtualPath) -> bool {
        match self.inner.metadata(path, Wait::Allowed) {
            Ok(metadata) => metadata.is_file(),
            Err(error) => matches!(error, FileError::Unsupported),
        }
    }
}

/// Returns how a name can be made, the ways that compress first.
fn recipes(path: &VirtualPath) -> impl Iterator<Item = Recipe> {
    let packed = ENDINGS.iter().filter_map(|&(ending, form)| {
        let stem = path.name().strip_suffix(ending).filter(|stem| !stem.is_empty())?;
        Some(Recipe { source: path.parent().join(stem).ok()?, form, compresses: true })
    });
    let unpacked = ENDINGS.iter().filter_map(|&(ending, form)| {
        let source = path.parent().join(&[path.name(), ending].concat()).ok()?;
        Some(Recipe { source, form, compresses: false })
    });
    packed.chain(unpacked)
}

impl millrace_vfs::Layer for Conversions {
    fn inner(&self) -> &dyn Storage {
        &*self.inner
    }

    fn admit(&self, _: Call, _: Wait) -> Result<(), FileError> {
        Ok(())
    }

    fn open_read(&self, path: &VirtualPath, wait: Wait) -> Result<ReadHandle, FileError> {
        match self.inner.open_read(path, wait) {
            // Looking for the source may wait.
            Err(FileError::NotFound) if wait == Wait::Never => Err(FileError::WouldWait),
            Err(FileError::NotFound) => self.convert(path),
            result => result,
        }
    }

    fn metadata(&self, path: &VirtualPath, wait: Wait) -> Result<Metadata, FileError> {
        match self.inner.metadata(path, wait) {
            Err(FileError::NotFound) if wait == Wait::Never => Err(FileError::WouldWait),
            // Not "not found", as for archives.
            Err(FileError::NotFound) if Self::sources(path).any(|source| self.is_source(&source)) => {
                Err(FileError::Unsupported)
            }
            result => result,
        }
    }
}

/// A coder that makes the converted bytes.
trait Coder: Send {
    /// Appends some more, of bounded length; returns false at the end.
    fn step(&mut self, out: &mut Vec<u8>) -> io::Result<bool>;
}

/// A coder of a library, which is read from.
struct Readable<R>(R);

impl<R: Read + Send> Coder for Readable<R> {
    fn step(&mut self, out: &mut Vec<u8>) -> io::Result<bool> {
        let start = out.len();
        out.resize(start + PIECE, 0);
        let count = self.0.read(&mut out[start..])?;
        out.truncate(start + count);
        Ok(count > 0)
    }
}

/// The stored file, read in order. Coders ask again behind its end, which is not looked at twice.
struct Source {
    handle: ReadHandle,
    offset: u64,
    has_ended: bool,
}

impl Read for Source {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.has_ended {
            return Ok(0);
        }
        let count = through::read_at(&mut self.handle, self.offset, buffer).map_err(|error| match error {
            FileError::Io(error) => error,
            error => io::Error::other(error),
        })?;
        self.offset += count as u64;
        self.has_ended = count == 0;
        Ok(count)
    }
}

/// A file that is converted as it is read, in order.
struct Converted {
    source: VirtualPath,
    conversion: Conversion,
    coder: Box<dyn Coder>,
    has_ended: bool,
    /// Made and not yet read; begins at `position`.
    out: Vec<u8>,
    position: u64,
}

impl Converted {
    fn open(storage: &dyn Storage, recipe: Recipe) -> Result<Self, FileError> {
        let Recipe { source, form, compresses } = recipe;
        let handle = storage.open_read(&source, Wait::Allowed)?;
        let mut conversion = handle.conversion();
        conversion.compressed |= compresses;
        conversion.uncompressed |= !compresses;
        let input = BufReader::with_capacity(PIECE, Source { handle, offset: 0, has_ended: false });
        let coder: Box<dyn Coder> = match (form, compresses) {
            (Compressed::Gzip, true) => Box::new(Readable(GzEncoder::new(input, Compression::new(6)))),
            (Compressed::Gzip, false) => Box::new(Readable(MultiGzDecoder::new(input))),
            (Compressed::Zstd, true) => Box::new(zst::Encoder::new(input)),
            (Compressed::Zstd, false) => Box::new(zst::Decoder::new(input)),
            (Compressed::Lzw, true) => Box::new(lzw::Encoder::new(input)),
            (Compressed::Lzw, false) => Box::new(lzw::Decoder::new(input)),
        };
        Ok(Self { source, conversion, coder, has_ended: false, out: Vec::new(), position: 0 })
    }
}

impl fmt::Debug for Converted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Converted({} at {})", self.source, self.position)
    }
}

impl ReadStream for Converted {
    fn size(&self) -> Option<u64> {
        None
    }

    fn conversion(&self) -> Conversion {
        self.conversion
    }

    /// Reads on from where it stands; nothing else is supported, because all before another place would have to be made for it.
    fn read_at(&mut self, offset: u64, buffer: &mut [u8]) -> Result<usize, FileError> {
        if offset != self.position {
            return Err(FileError::Unsupported);
        }
        while self.out.is_empty() && !self.has_ended {
            let is_more = self.coder.step(&mut self.out).map_err(|error| {
                FileError::Io(io::Error::other(format!("{} cannot be converted: {error}", self.source)))
            })?;
            self.has_ended = !is_more;
        }
        let count = buffer.len().min(self.out.len());
        buffer[..count].copy_from_slice(&self.out[..count]);
        self.out.drain(..count);
        self.position += count as u64;
        Ok(count)
    }
}
