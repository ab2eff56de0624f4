//! Open files and directories, as a protocol sees them.

use std::fs::File;
use std::sync::Arc;

use crate::hash::Hashes;
use crate::{FileError, Metadata};

/// An open file to be read.
#[derive(Debug)]
pub enum ReadHandle {
    /// A descriptor that the kernel can send by itself.
    File(FileRange),
    /// Buffers that a back end fills, where there is no file.
    Stream(Box<dyn ReadStream>),
}

impl ReadHandle {
    /// How many bytes the handle will deliver from its start, where that is known.
    pub fn size(&self) -> Option<u64> {
        match self {
            Self::File(range) => Some(range.size),
            Self::Stream(stream) => stream.size(),
        }
    }

    /// What is done to the stored bytes on their way.
    pub fn conversion(&self) -> Conversion {
        match self {
            Self::File(_) => Conversion::default(),
            Self::Stream(stream) => stream.conversion(),
        }
    }
}

/// What is done to stored bytes while they are sent, as wu-ftpd's `ftpconversions` has it; by default nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Conversion {
    /// They are compressed.
    pub compressed: bool,
    /// They are decompressed.
    pub uncompressed: bool,
    /// A folder is packed into one file.
    pub archived: bool,
}

impl Conversion {
    /// Returns whether nothing is done.
    pub fn is_none(self) -> bool {
        self == Self::default()
    }
}

/// Part of an open file.
#[derive(Debug)]
pub struct FileRange {
    /// The open descriptor. Read by position, so that several may share it.
    pub file: Arc<File>,
    /// The length of the file when it was opened, in bytes.
    pub size: u64,
    /// Whether a reactor thread may touch it.
    pub readiness: Readiness,
}

/// Whether the calls on a handle may be made on a reactor thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Readiness {
    /// A local file system: data in the page cache is answered at once, and writes go there.
    Cached,
    /// A network, user-space or unknown file system: any call may hang. Use the blocking pool.
    MayHang,
}

/// A file that is not a descriptor: memory, rows, an archive made on the fly.
pub trait ReadStream: Send + std::fmt::Debug {
    /// How many bytes there are from the start, where that is known beforehand.
    fn size(&self) -> Option<u64>;
    /// What is done to the stored bytes on their way.
    fn conversion(&self) -> Conversion {
        Conversion::default()
    }
    /// Returns a URL at which clients of HTTP can get all of it without this server, for a short time.
    fn elsewhere(&self) -> Option<String> {
        None
    }
    /// Reads at `offset` into `buffer`; 0 means the end.
    fn read_at(&mut self, offset: u64, buffer: &mut [u8]) -> Result<usize, FileError>;
    /// Whether `read_at` may be called on a reactor thread.
    fn readiness(&self) -> Readiness {
        Readiness::MayHang
    }
}

/// What an upload does to its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteMode {
    /// `STOR`: replace the file or make it. Whether by staging or in place is the back end's setting.
    Replace,
    /// `STOR` after `REST n`, `RANG`: write into the existing file from this offset on, and keep the rest.
    /// Always in place.
    At(u64),
    /// `APPE`: go on at the end of the file, or make it. Always in place.
    Append,
    /// `STOU`: make a file that must not exist.
    CreateNew,
}

/// An upload in progress. Dropping it without [`Upload::commit`] is an abort.
///
/// Bytes arrive in order. Nothing may be visible under the name before `commit` where the back end
/// stages; where it writes in place, what came is there, and of an upload of which nothing came the old file is.
pub trait Upload: Send + std::fmt::Debug {
    /// The descriptor and position at which the next bytes go, for `splice`; `None` where bytes must pass through
    /// [`Upload::write_all`]. After splicing, call [`Upload::advance`].
    fn file(&mut self) -> Result<Option<(&File, u64)>, FileError>;
    /// The same for one call that writes there, `false` where there is no file: while it runs no other upload takes the
    /// file over, so that no write follows a takeover.
    fn with_file(&mut self, write: &mut dyn FnMut(&File, u64)) -> Result<bool, FileError> {
        let Some((file, position)) = self.file()? else { return Ok(false) };
        write(file, position);
        Ok(true)
    }
    /// Moves the position after `count` bytes went to [`Upload::file`] directly.
    fn advance(&mut self, count: u64);
    /// Takes the next bytes.
    fn write_all(&mut self, bytes: &[u8]) -> Result<(), FileError>;
    /// Opens the content of a complete staged upload for reading before `commit`. A file of the host has a name there
    /// that no client sees. `None` where the back end cannot. May wait; the upload takes no further data.
    fn preview(&mut self) -> Result<Option<ReadHandle>, FileError> {
        Ok(None)
    }
    /// Takes the hashes of the whole content, of this many bytes. A back end that can stores them with the file, in
    /// `commit`, if that has this length then.
    fn set_hashes(&mut self, hashes: Hashes, length: u64) {
        let _ = (hashes, length);
    }
    /// Returns the hashes of what came, where they were computed on the way and it is the whole content.
    fn hashes(&self) -> Option<Hashes> {
        None
    }
    /// Ends the upload: everything arrived, make it the file.
    fn commit(self: Box<Self>) -> Result<Committed, FileError>;
    /// Ends an incomplete upload. A staged upload vanishes; in place, the received data stays, cut to its length.
    /// Errors are not returned: the back end logs them.
    fn abort(self: Box<Self>);
    /// Ends a visit to a partial upload ([`PartialMode`](crate::PartialMode)): what came is kept, and may be
    /// acknowledged unless this fails. Any other upload is aborted.
    fn keep(self: Box<Self>) -> Result<(), FileError> {
        self.abort();
        Ok(())
    }
    /// Has all that came on the disk, where the back end does that. What fails is reported by the end that follows.
    fn sync(&mut self) {}
    /// Lets go of a partial upload without changing anything of it: it may be another server's now.
    fn close(self: Box<Self>) {
        self.abort();
    }
    /// Ends the upload as if it had not begun, as far as it made the file longer: the file is cut to its old length. (A
    /// new file stays, empty; overwritten bytes stay overwritten.) As with `abort`, errors are not returned.
    fn undo(self: Box<Self>);
    /// Whether `file` and `write_all` may be used on a reactor thread.
    fn readiness(&self) -> Readiness;
    /// Whether `commit` may be called on a reactor thread.
    fn commit_readiness(&self) -> Readiness;
    /// Returns true if until `commit` the name has what it had before, or nothing.
    fn is_staged(&self) -> bool {
        false
    }
}

/// The result of a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Committed {
    /// The file's length in bytes after the upload.
    pub size: u64,
}

/// One entry of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirEntry {
    /// The name: one component, any bytes but `/` and NUL.
    pub name: Vec<u8>,
    /// The metadata of the entry. A link that can be followed within the tree shows its target here.
    pub metadata: Metadata,
    /// Where the entry is a symbolic link: the link itself.
    pub link: Option<Link>,
}

impl DirEntry {
    /// The metadata of the entry itself, a link not followed.
    pub fn own_metadata(&self) -> &Metadata {
        self.link.as_ref().map_or(&self.metadata, |link| &link.metadata)
    }

    /// Returns whether this is a directory itself, not a link to one.
    pub fn is_tree(&self) -> bool {
        self.metadata.is_directory() && self.link.is_none()
    }

    /// The text of a link.
    pub fn link_text(&self) -> Option<&[u8]> {
        self.link.as_ref().map(|link| &link.text[..])
    }
}

/// A symbolic link itself, not what it leads to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    /// Its text.
    pub text: Vec<u8>,
    /// Its own metadata.
    pub metadata: Metadata,
}

/// An open directory: a stream of entries in the back end's own order, without `.` and `..`.
///
/// All calls may wait for the device.
pub trait Directory: Send + std::fmt::Debug {
    /// Appends the next entries to `entries`, about `most` of them; appends none at the end.
    /// Entries that vanish between being named and being looked at are left out.
    fn next_batch(&mut self, entries: &mut Vec<DirEntry>, most: usize) -> Result<(), FileError>;
    /// As `next_batch`, but only names: cheaper where only names are needed (`NLST`). Answers how many names were
    /// visited, about `most`; 0 at the end.
    fn next_names(&mut self, visit: &mut dyn FnMut(&[u8]), most: usize) -> Result<usize, FileError>;
    /// The metadata of the directory itself (the `cdir` of RFC 3659).
    fn metadata(&self) -> Result<Metadata, FileError>;
}
