//! What a path stands for: a file, a directory's page, a redirect.

use std::borrow::Cow;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use millrace_gateway::conversation::Contact;
use millrace_gateway::program::Program;
use millrace_gateway::upstream::route_of;
use millrace_http::conditional::Validators;
use millrace_http::date;
use millrace_http::digest::Algorithm;
use millrace_http::negotiate::Coding;
use millrace_http::response::PreparedFields;
use millrace_http::retrieval;
use millrace_net::copy;
use millrace_vfs::{
    FileError, FileRange, Metadata, ReadHandle, ReadStream, Readiness, Storage, Timestamp, VirtualPath, Wait,
    hash, hex,
};

use crate::change::Changed;
use crate::config::HttpConfig;
use crate::dav_work::members::DavAnswer;
use crate::listing::{Listing, Shape};
use crate::tus_work::TusAnswer;
use crate::web::{CompiledWebConfig, Fields};

/// Files up to this length are kept in memory and sent with their head in one write.
pub(crate) const SMALL: u64 = 16 * 1024;

/// Bytes that are read at a time to be hashed.
const HASHED: usize = 256 * 1024;

/// More than two ticks of the kernel's clock, in which files are dated (before Linux 6.13; 10 ms at most).
const TICKS: Duration = Duration::from_millis(25);

/// What a path stands for.
#[derive(Debug)]
pub enum Found {
    /// A file.
    File(Arc<Entry>),
    /// A file that is no descriptor.
    Stream(Box<dyn ReadStream>, Arc<Entry>),
    /// FileContent generated while it is sent, of unknown length and time.
    Made(Box<dyn ReadStream>),
    /// A directory, named without its slash.
    Redirect,
    /// A directory; its page is the pool's to make.
    Directory,
    /// The path that answers instead of a directory's page.
    Index(VirtualPath),
    /// The page of a directory, whole.
    Page { bytes: Vec<u8>, is_sorted: bool },
    /// The page of a directory, the first part of it.
    LongPage(Box<Listing>),
    /// What WebDAV answers.
    Dav(DavAnswer),
    /// What tus answers.
    Tus(TusAnswer),
    /// What a change came to.
    Changed(Changed),
    /// A program, started; whether it writes the whole of its answer itself.
    Program(Box<Program>, bool),
    /// What came of asking an application.
    Contact(Contact),
    /// A file that is no program, though it has the path of one.
    NoProgram,
}

impl Found {
    /// Returns whether it is what a file holds, and so held against transfer quotas: whatever else there is to be
    /// told of files is not.
    pub(crate) fn is_content(&self) -> bool {
        matches!(self, Self::File(_) | Self::Stream(..) | Self::Made(_))
    }
}

/// A file as it was when it was opened, with everything of an answer that is the same for every client.
#[derive(Debug)]
pub struct Entry {
    /// Its path, which for a directory's index is not the one that was asked for.
    pub(crate) path: VirtualPath,
    pub(crate) identity: (u64, u64),
    pub(crate) size: u64,
    pub(crate) modified: Timestamp,
    pub(crate) changed: Option<Timestamp>,
    /// It was changed so shortly before it was looked at that another change may have come within the same tick of the
    /// kernel's clock, which the time of the last one would not tell.
    pub(crate) is_young: bool,
    pub(crate) validators: Validators,
    /// `Content-Type`.
    pub(crate) media_type: Cow<'static, str>,
    /// `Content-Encoding`, of a file that is another one's neighbour.
    pub(crate) coding: Option<&'static str>,
    /// The lines that tell of the file, but for its length, type and coding.
    lines: PreparedFields,
    /// The same at the origin for downloads, where there is one.
    isolated_lines: Option<PreparedFields>,
    pub(crate) content: FileContent,
    /// What its bytes were found to hash to, in the order of the algorithms; `None` where that was not found out.
    digests: [OnceLock<Option<Vec<u8>>>; 2],
    /// The generation of the additional header fields.
    pub(crate) generation: u64,
}

/// Where a file's bytes are.
#[derive(Debug)]
pub(crate) enum FileContent {
    /// Here.
    Memory(Vec<u8>),
    /// In the kernel.
    File(Arc<std::fs::File>, Readiness),
    /// In a stream, which every answer opens for itself.
    Stream,
}

/// Finds what a path stands for; a trailing slash says that it is meant as a directory. What the proxy routes and programs of
/// `config` answer is not opened to be sent.
pub(crate) fn find(
    (web, config): (&CompiledWebConfig, &HttpConfig),
    storage: &dyn Storage,
    path: &VirtualPath,
    is_directory: bool,
    wait: Wait,
) -> Result<Found, FileError> {
    if !is_directory {
        return match open(web, storage, path, wait) {
            Err(FileError::IsDirectory) => Ok(Found::Redirect),
            opened => opened,
        };
    }
    for name in &web.index {
        let index = path.join(name).map_err(|_| FileError::NameTooLong)?;
        let opened = match is_answered(config, &index) {
            true => storage.open_read(&index, wait).map(|_| Found::Index(index)),
            false => open(web, storage, &index, wait),
        };
        if let Some(answer) = retrieval::index(opened) {
            return answer;
        }
    }
    Ok(Found::Directory)
}

/// Returns true if a path is answered by a program or another server.
fn is_answered(config: &HttpConfig, path: &VirtualPath) -> bool {
    config.programs.marked(path).is_some() || route_of(&config.proxy_routes, path).is_some()
}

/// The file to send to a client with these codings: the file itself, or the first suitable neighbour.
pub(crate) fn prefer(
    web: &CompiledWebConfig,
    storage: &dyn Storage,
    found: Found,
    codings: &[Coding],
    wait: Wait,
) -> Result<Found, FileError> {
    let Found::File(entry) = found else { return Ok(found) };
    for coding in codings {
        if let Some(coded) = neighbour(web, storage, &entry, *coding, wait)? {
            return Ok(Found::File(coded));
        }
    }
    Ok(Found::File(entry))
}

/// The path of a file's neighbour in a coding.
pub(crate) fn neighbour_path(path: &VirtualPath, coding: Coding) -> Option<VirtualPath> {
    let name = [path.name(), coding.suffix.as_bytes()].concat();
    path.parent().join(&name).ok()
}

/// The neighbour of a file in a coding, if there is one. A neighbour that is older than the file is outdated.
pub(crate) fn neighbour(
    web: &CompiledWebConfig,
    storage: &dyn Storage,
    entry: &Entry,
    coding: Coding,
    wait: Wait,
) -> Result<Option<Arc<Entry>>, FileError> {
    let Some(path) = neighbour_path(&entry.path, coding) else { return Ok(None) };
    let opened = match storage.open_read(&path, wait) {
        Err(FileError::WouldWait) => return Err(FileError::WouldWait),
        Err(_) => return Ok(None),
        Ok(ReadHandle::Stream(_)) => return Ok(None),
        Ok(ReadHandle::File(range)) if web.withheld.is_source(&range.file) => return Ok(None),
        Ok(ReadHandle::File(range)) => file(web, &path, range, wait)?,
    };
    Ok((opened.modified >= entry.modified).then(|| Arc::new(opened.in_place_of(web, entry, coding))))
}

/// Makes the page of a directory, or the first part of it. May wait.
pub(crate) fn page(storage: &dyn Storage, path: &VirtualPath, shape: Shape) -> Result<Found, FileError> {
    let mut listing = Listing::open(storage, path, shape)?;
    let first = listing.fill()?;
    Ok(match listing.is_drained() {
        true => Found::Page { is_sorted: listing.is_sorted(), bytes: first },
        false => Found::LongPage(Box::new(listing.beginning_with(first))),
    })
}

fn open(
    web: &CompiledWebConfig,
    storage: &dyn Storage,
    path: &VirtualPath,
    wait: Wait,
) -> Result<Found, FileError> {
    match storage.open_read(path, wait)? {
        // It was not reached by its own path: its text is never sent.
        ReadHandle::File(range) if web.withheld.is_source(&range.file) => Err(FileError::PermissionDenied),
        ReadHandle::File(range) => file(web, path, range, wait).map(|entry| Found::File(Arc::new(entry))),
        ReadHandle::Stream(stream) => {
            let metadata = match storage.metadata(path, wait) {
                Err(FileError::Unsupported) => return Ok(Found::Made(stream)),
                metadata => metadata?,
            };
            let metadata = Metadata { size: stream.size().unwrap_or(metadata.size), ..metadata };
            let entry = Entry::new(web, path, &Seen::of(&metadata), FileContent::Stream);
            Ok(Found::Stream(stream, Arc::new(entry)))
        }
    }
}

fn file(
    web: &CompiledWebConfig,
    path: &VirtualPath,
    range: FileRange,
    wait: Wait,
) -> Result<Entry, FileError> {
    let FileRange { file, readiness, .. } = range;
    // Before it is looked at: a thread may be held up for longer than a file is young.
    let began = SystemTime::now();
    let seen = Seen::of_file(&file.metadata()?);
    let content = match small(&file, seen.size, wait) {
        Some(bytes) if readiness == Readiness::Cached => FileContent::Memory(bytes),
        _ => FileContent::File(file, readiness),
    };
    Ok(Entry { is_young: seen.is_young(began), ..Entry::new(web, path, &seen, content) })
}

/// What a file was told apart by when it was opened.
struct Seen {
    identity: (u64, u64),
    size: u64,
    modified: Timestamp,
    changed: Option<Timestamp>,
}

impl Seen {
    pub(crate) fn of(metadata: &Metadata) -> Self {
        let Metadata { identity, size, modified, changed, .. } = *metadata;
        Self { identity, size, modified, changed }
    }

    fn of_file(metadata: &std::fs::Metadata) -> Self {
        let time = |seconds, nanoseconds: i64| Timestamp {
            seconds,
            nanoseconds: u32::try_from(nanoseconds).unwrap_or(0),
        };
        Self {
            identity: (metadata.dev(), metadata.ino()),
            size: metadata.size(),
            modified: time(metadata.mtime(), metadata.mtime_nsec()),
            changed: Some(time(metadata.ctime(), metadata.ctime_nsec())),
        }
    }

    /// Returns whether it was changed just before this time.
    fn is_young(&self, now: SystemTime) -> bool {
        let changed = self.changed.unwrap_or(self.modified);
        let since_1970 = Duration::new(u64::try_from(changed.seconds).unwrap_or(0), changed.nanoseconds);
        now.duration_since(SystemTime::UNIX_EPOCH + since_1970).map_or(true, |age| age < TICKS)
    }
}

/// The bytes of a small file, where they are to be had now.
fn small(file: &std::fs::File, size: u64, wait: Wait) -> Option<Vec<u8>> {
    if size > SMALL {
        return None;
    }
    let mut bytes = vec![0; size as usize];
    let count = match wait {
        _ if bytes.is_empty() => Ok(0),
        Wait::Never => copy::read_cached(file, &mut bytes, 0),
        Wait::Allowed => read_all(file, &mut bytes),
    };
    // One that changes under our eyes is sent by its descriptor, which notices.
    count.is_ok_and(|count| count == bytes.len()).then_some(bytes)
}

fn read_all(file: &std::fs::File, bytes: &mut [u8]) -> io::Result<usize> {
    file.read_exact_at(bytes, 0).map(|()| bytes.len())
}

impl Entry {
    fn new(web: &CompiledWebConfig, path: &VirtualPath, seen: &Seen, content: FileContent) -> Self {
        let Seen { identity, size, modified, changed } = *seen;
        let validators = Validators::new(identity.1, size, modified, changed);
        // Without better information: no file was changed later than now.
        let validators =
            if changed.is_some() { validators } else { validators.no_later_than(now_in_seconds()) };
        let media_type = web.types.of(path.name());
        let (lines, isolated_lines) = lines(web, path, &media_type, &validators);
        Self {
            path: path.clone(),
            identity,
            size,
            modified,
            changed,
            is_young: seen.is_young(SystemTime::now()),
            validators,
            media_type,
            coding: None,
            lines,
            isolated_lines,
            content,
            digests: Default::default(),
            generation: web.generation,
        }
    }

    /// This, sent in place of the file that it is a coding of.
    fn in_place_of(self, web: &CompiledWebConfig, entry: &Self, coding: Coding) -> Self {
        let validators = self.validators.coded(coding.name);
        let (lines, isolated_lines) = lines(web, &entry.path, &entry.media_type, &validators);
        let media_type = entry.media_type.clone();
        Self { validators, lines, isolated_lines, media_type, coding: Some(coding.name), ..self }
    }

    /// The hash of its bytes, where that is known or quick to find out.
    pub(crate) fn digest(&self, algorithm: Algorithm) -> Option<&[u8]> {
        let kept = &self.digests[algorithm as usize];
        match &self.content {
            FileContent::Memory(bytes) => kept.get_or_init(|| Some(hash_of(algorithm, bytes))).as_deref(),
            _ => kept.get()?.as_deref(),
        }
    }

    /// Returns whether nothing was done yet to find the hash of its bytes out.
    pub(crate) fn may_find_digest(&self, algorithm: Algorithm) -> bool {
        matches!(self.content, FileContent::File(..)) && self.digests[algorithm as usize].get().is_none()
    }

    /// Finds the hash of its bytes out: the one that is stored with the file, else that of up to `most` bytes, as long as
    /// it is wanted. May wait, for as long as it takes to read them.
    pub(crate) fn find_digest(
        &self,
        storage: &dyn Storage,
        algorithm: Algorithm,
        most: u64,
        is_wanted: &dyn Fn() -> bool,
    ) -> Result<(), FileError> {
        let digest = match self.stored_digest(storage, algorithm) {
            None if self.size <= most => self.read_digest(algorithm, is_wanted)?,
            stored => stored,
        };
        // Another thread has found the same.
        let _ = self.digests[algorithm as usize].set(digest);
        Ok(())
    }

    /// The hash that is stored with the file, if that is still the one that was opened.
    fn stored_digest(&self, storage: &dyn Storage, algorithm: Algorithm) -> Option<Vec<u8>> {
        let stored = storage.stored_hashes(&self.path, Wait::Allowed).ok()??;
        let now = storage.metadata(&self.path, Wait::Allowed).ok()?;
        let (seen, now) = (
            (self.identity, self.size, self.modified, self.changed),
            (now.identity, now.size, now.modified, now.changed),
        );
        let kind = match algorithm {
            Algorithm::Sha256 => hash::Algorithm::Sha256,
            Algorithm::Sha512 => hash::Algorithm::Sha512,
        };
        hex::decode(stored.of(kind).filter(|_| seen == now)?.as_bytes())
    }

    /// The hash of its bytes, which are read for it.
    fn read_digest(
        &self,
        algorithm: Algorithm,
        is_wanted: &dyn Fn() -> bool,
    ) -> Result<Option<Vec<u8>>, FileError> {
        let FileContent::File(file, _) = &self.content else { return Ok(None) };
        let mut context = ring::digest::Context::new(by_name(algorithm));
        let (mut buffer, mut at) = (vec![0; HASHED], 0);
        while at < self.size {
            if !is_wanted() {
                return Err(io::Error::from(io::ErrorKind::Interrupted).into());
            }
            let most = buffer.len().min(usize::try_from(self.size - at).unwrap_or(usize::MAX));
            match file.read_at(&mut buffer[..most], at) {
                Ok(0) => return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
                Ok(count) => {
                    context.update(&buffer[..count]);
                    at += count as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(Some(context.finish().as_ref().to_vec()))
    }

    /// The bytes that it holds, as a stream, whose pace can be limited.
    pub(crate) fn stream(self: &Arc<Self>) -> Box<dyn ReadStream> {
        Box::new(Kept(Arc::clone(self)))
    }

    /// The lines that tell of the file, but for its length, type and coding: at the origin for downloads, or elsewhere.
    pub(crate) fn lines(&self, is_at_download_origin: bool) -> &PreparedFields {
        self.isolated_lines.as_ref().filter(|_| is_at_download_origin).unwrap_or(&self.lines)
    }

    /// The bytes that it holds in memory.
    pub(crate) fn memory(&self) -> usize {
        let isolated = self.isolated_lines.as_ref().map_or(0, |lines| lines.lines().len());
        let lines = (self.lines.lines().len() + isolated) * 2;
        match &self.content {
            FileContent::Memory(bytes) => bytes.len() + lines,
            _ => lines,
        }
    }

    /// Returns whether it holds a descriptor.
    pub(crate) fn is_open(&self) -> bool {
        matches!(self.content, FileContent::File(..))
    }

    /// Returns whether dropping it may wait for a file system.
    pub(crate) fn end_may_wait(&self) -> bool {
        matches!(self.content, FileContent::File(_, Readiness::MayHang))
    }

    /// Returns whether it may be kept for other clients.
    pub(crate) fn may_be_kept(&self) -> bool {
        match &self.content {
            FileContent::Memory(_) => true,
            FileContent::File(_, readiness) => *readiness == Readiness::Cached,
            FileContent::Stream => false,
        }
    }
}

fn now_in_seconds() -> i64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(now.as_secs()).unwrap_or(i64::MAX)
}

/// The lines that tell of a file, with what was configured for its path and type; and the same for the origin for
/// downloads, where there is one.
fn lines(
    web: &CompiledWebConfig,
    path: &VirtualPath,
    media_type: &str,
    validators: &Validators,
) -> (PreparedFields, Option<PreparedFields>) {
    let mut lines = b"Last-Modified: ".to_vec();
    date::write(validators.modified, &mut lines);
    let rest = format!("\r\nETag: {}\r\nAccept-Ranges: bytes\r\n", validators.etag);
    lines.extend_from_slice(rest.as_bytes());
    if web.precompressed {
        lines.extend_from_slice(b"Vary: Accept-Encoding\r\n");
    }
    let with = |fields: &Fields| [&lines[..], &fields.of_file(path, media_type)].concat().into();
    (with(&web.fields), web.download_origin.as_ref().map(|isolated| with(&isolated.fields)))
}

fn by_name(algorithm: Algorithm) -> &'static ring::digest::Algorithm {
    match algorithm {
        Algorithm::Sha256 => &ring::digest::SHA256,
        Algorithm::Sha512 => &ring::digest::SHA512,
    }
}

fn hash_of(algorithm: Algorithm, bytes: &[u8]) -> Vec<u8> {
    ring::digest::digest(by_name(algorithm), bytes).as_ref().to_vec()
}

/// A file that is held in memory, as a stream.
#[derive(Debug)]
struct Kept(Arc<Entry>);

impl ReadStream for Kept {
    fn size(&self) -> Option<u64> {
        Some(self.0.size)
    }

    fn read_at(&mut self, offset: u64, buffer: &mut [u8]) -> Result<usize, FileError> {
        let FileContent::Memory(bytes) = &self.0.content else { return Err(FileError::Unsupported) };
        let rest = bytes.get(offset as usize..).unwrap_or_default();
        let count = rest.len().min(buffer.len());
        buffer[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    }

    fn readiness(&self) -> Readiness {
        Readiness::Cached
    }
}
