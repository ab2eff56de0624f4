//! Answers to a session's questions about files, from its account's storage.
//!
//! [`answer_now`] is for a reactor thread: it answers what the caches can, and says so where they cannot.
//! [`answer`] is for the blocking pool and takes the time it needs, watching for a cancellation.

mod digest_cache;
mod hashed_directory;
mod notes;
mod unique;
mod walk;

pub(crate) use self::digest_cache::DigestCache;
use self::hashed_directory::HashedDirectory;
pub(crate) use self::unique::Promises;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::SystemTime;

use millrace_ftp::digest::{Algorithm, Hasher};
use millrace_ftp::listing::{Facts, Format, Lister};
use millrace_ftp::session::{Answer, ByteRange, LeftOut, ListRequest, Request};
use millrace_runtime::transfer::{FILL, Shared};
use millrace_vfs::{
    DirEntry, FileError, Metadata, ReadHandle, Storage, Timestamp, Upload, VirtualPath, Wait, WriteMode,
};

/// What a hash or a copy through this process reads at a time.
const CHUNK: usize = 256 * 1024;

/// Settings of all listings of a server.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ListLimits {
    pub(crate) sort_entries: usize,
}

/// Answers without waiting, or gives the question back.
pub(crate) fn answer_now(storage: &dyn Storage, request: Request) -> Result<Answer, Request> {
    let answer = match &request {
        Request::Metadata(path) => storage.metadata(path, Wait::Never).map(Answer::Metadata),
        Request::OpenRead(path) => storage.open_read(path, Wait::Never).map(Answer::Readable),
        Request::OpenWrite(path, mode, bits) => {
            storage.open_write_with(path, *mode, *bits, Wait::Never).map(Answer::Writable)
        }
        _ => return Err(request),
    };
    match answer {
        Err(FileError::WouldWait) => Err(request),
        answer => Ok(answer.unwrap_or_else(Answer::Failed)),
    }
}

/// What a question changes besides the file that it moves.
#[derive(Debug)]
pub(crate) struct Changed {
    /// A word for the log.
    pub(crate) verb: &'static str,
    /// The path that exists, or existed.
    pub(crate) path: VirtualPath,
    /// Its old name.
    pub(crate) from: Option<VirtualPath>,
}

/// What a question changes.
pub(crate) fn change(request: &Request) -> Option<Changed> {
    let (verb, path, from) = match request {
        Request::Rename(from, to) => ("rename-to", to, Some(from.clone())),
        Request::Copy(from, to) => ("copy-to", to, Some(from.clone())),
        request => change_at(request).map(|(verb, path)| (verb, path, None))?,
    };
    Some(Changed { verb, path: path.clone(), from })
}

fn change_at(request: &Request) -> Option<(&'static str, &VirtualPath)> {
    match request {
        Request::MakeDirectory(path, _) => Some(("make-directory", path)),
        Request::RemoveDirectory(path) => Some(("remove-directory", path)),
        Request::RemoveTree(path) => Some(("remove-tree", path)),
        Request::RemoveFile(path) => Some(("remove", path)),
        Request::Change(path, _) => Some(("change-attributes", path)),
        Request::MakeSymlink(_, path) => Some(("make-link", path)),
        Request::Combine(target, ..) => Some(("combine-into", target)),
        _ => None,
    }
}

/// Answers, however long it takes.
pub(crate) fn answer(
    storage: &Arc<dyn Storage>,
    request: Request,
    limits: ListLimits,
    promises: &Promises,
    digests: &Arc<DigestCache>,
    shared: &Shared,
) -> Answer {
    let files = &**storage;
    let answer = match request {
        Request::Metadata(path) => files.metadata(&path, Wait::Allowed).map(Answer::Metadata),
        Request::Entry(path) => files.entry(&path).map(|entry| Answer::Entry(Box::new(entry))),
        Request::Look(path, wants_hash) => look(files, &path).map(|entry| {
            if wants_hash {
                digests.note_stored(files, &path, &entry.metadata);
            }
            Answer::Entry(Box::new(entry))
        }),
        Request::OpenRead(path) => files.open_read(&path, Wait::Allowed).map(Answer::Readable),
        Request::OpenWrite(path, mode, bits) => {
            files.open_write_with(&path, mode, bits, Wait::Allowed).map(Answer::Writable)
        }
        Request::OpenUnique(path, bits) => {
            unique::open(files, &path, bits, promises).map(|(upload, path)| Answer::Unique(upload, path))
        }
        Request::List(request) => {
            list(storage, *request, limits, digests).map(|lister| Answer::Listing(Box::new(lister)))
        }
        Request::MakeDirectory(path, bits) => files.make_directory_with(&path, bits).map(|()| Answer::Done),
        Request::RemoveDirectory(path) => files.remove_directory(&path).map(|()| Answer::Done),
        Request::RemoveTree(path) => return at_fault(remove_tree(files, path, shared).map(Answer::Count)),
        Request::RemoveFile(path) => files.remove_file(&path).map(|()| Answer::Done),
        Request::Rename(from, to) => return at_fault(rename(files, from, to).map(|()| Answer::Done)),
        Request::Change(path, change) => files.change(&path, change).map(|()| Answer::Done),
        Request::MakeSymlink(target, path) => files.make_symlink(&target, &path).map(|()| Answer::Done),
        Request::Copy(from, to) => return at_fault(copy(files, from, to, shared).map(Answer::Count)),
        Request::Combine(target, parts, bits) => {
            return at_fault(combine(files, target, parts, bits, shared).map(Answer::Count));
        }
        Request::Digest(path, algorithm, range) => {
            learn_digest(files, &path, algorithm, range, digests, shared)
                .map(|(hash, bytes)| Answer::Digest(hash, bytes))
        }
        Request::TreeSize(path) => {
            tree_size(files, &path, shared).map(|(bytes, left_out)| Answer::Sum(bytes, left_out))
        }
        Request::Newer(path, since) => {
            newer(files, &path, since, shared).map(|(lines, left_out)| Answer::Found(lines, left_out))
        }
        Request::Notes(path) => notes::read(files, &path).map(Answer::Lines),
        Request::Space(path) => files.space(&path).map(Answer::Space),
        // The driver answers these itself.
        Request::LogIn(_)
        | Request::Recognize(_)
        | Request::Listen
        | Request::Host(_)
        | Request::Who
        | Request::LimitBandwidth { .. }
        | Request::RestoreBandwidth
        | Request::ShutDown(_)
        | Request::Progress => Err(FileError::Unsupported),
    };
    answer.unwrap_or_else(Answer::Failed)
}

/// A failure, and which of several paths is to blame.
type Fault = (VirtualPath, FileError);

fn at_fault(result: Result<Answer, Fault>) -> Answer {
    result.unwrap_or_else(|(path, error)| Answer::FailedAt(path, error))
}

/// Which of two paths made a step from the one to the other fail: the first, if it cannot be used alone.
fn blame<T>(from: VirtualPath, to: VirtualPath, alone: Result<T, FileError>, error: FileError) -> Fault {
    match alone {
        Ok(_) => (to, error),
        Err(own) => (from, own),
    }
}

fn list(
    storage: &Arc<dyn Storage>,
    request: ListRequest,
    limits: ListLimits,
    digests: &Arc<DigestCache>,
) -> Result<Lister, FileError> {
    let request = match request.literal {
        Some(literal) if storage.entry(&literal.path).is_ok() => *literal,
        _ => request,
    };
    let ListRequest { path, mut listing, files, .. } = request;
    listing.sort_bound = limits.sort_entries;
    if files && listing.options.directory && !listing.is_search() {
        return entry_itself(&**storage, &path, listing);
    }
    match storage.open_directory(&path) {
        Ok(directory) => {
            let mut directory = directory;
            if let Format::Facts(facts) = listing.format {
                listing.ancestors = ancestors(&**storage, &path)?;
                if facts.contains(Facts::HASH) && listing.rights.read {
                    let (storage, digests, path) = (Arc::clone(storage), Arc::clone(digests), path.clone());
                    directory = Box::new(HashedDirectory { inner: directory, storage, digests, path });
                }
            }
            let mut lister = Lister::new(directory, listing).in_tree(Arc::clone(storage), path);
            // A small directory needs no second trip to the pool.
            lister.begin(FILL)?;
            Ok(lister)
        }
        Err(FileError::NotDirectory) if files && !listing.is_search() => {
            entry_itself(&**storage, &path, listing)
        }
        // Its parent is not a directory, so it does not exist.
        Err(FileError::NotDirectory) if storage.entry(&path).is_err() => Err(FileError::NotFound),
        Err(error) => Err(error),
    }
}

/// The entry as a listing of its directory has it: a link is followed where it leads on within the tree, and not
/// back to where it is.
fn look(storage: &dyn Storage, path: &VirtualPath) -> Result<DirEntry, FileError> {
    let mut entry = storage.entry(path)?;
    if entry.link.is_some()
        && let Ok(target) = storage.metadata(path, Wait::Allowed)
        && !(target.is_directory() && ancestors(storage, &path.parent())?.contains(&target.identity))
    {
        entry.metadata = target;
    }
    Ok(entry)
}

/// What a directory and those above it are.
fn ancestors(storage: &dyn Storage, path: &VirtualPath) -> Result<Vec<(u64, u64)>, FileError> {
    let parents = std::iter::successors(Some(path.clone()), |path| (!path.is_root()).then(|| path.parent()));
    parents.map(|path| storage.metadata(&path, Wait::Allowed).map(|metadata| metadata.identity)).collect()
}

/// The listing of one entry: a file, or with `-d` a directory.
fn entry_itself(
    storage: &dyn Storage,
    path: &VirtualPath,
    mut listing: millrace_ftp::listing::Listing,
) -> Result<Lister, FileError> {
    let mut entry = storage.entry(path)?;
    // The prefix was made for a directory: `file/` becomes `file`, and the name goes behind nothing.
    if listing.prefix.last() == Some(&b'/') {
        listing.prefix.pop();
        entry.name = std::mem::take(&mut listing.prefix);
    }
    if entry.name.is_empty() {
        // The root has no name, and an empty line would be none.
        entry.name = b"/".to_vec();
    }
    Ok(Lister::of(vec![entry], listing))
}

fn rename(storage: &dyn Storage, from: VirtualPath, to: VirtualPath) -> Result<(), Fault> {
    storage.rename(&from, &to).map_err(|error| {
        let alone = storage.entry(&from);
        blame(from, to, alone, error)
    })
}

fn copy(storage: &dyn Storage, from: VirtualPath, to: VirtualPath, shared: &Shared) -> Result<u64, Fault> {
    let mut progress = |bytes| {
        shared.bytes.store(bytes, Ordering::Relaxed);
        !shared.is_cancelled()
    };
    storage.copy(&from, &to, &mut progress).map_err(|error| {
        let alone = storage.open_read(&from, Wait::Allowed);
        blame(from, to, alone, error)
    })
}

/// Appends the parts to the target, then removes them: all of the parts are opened before the first byte is
/// written, and none is removed unless all were appended. Where that fails, a target that was not there is not, and
/// one that was is as long as before. Of each part goes in what it held before: a part may be the target by another
/// name, a link, and would grow as it is read.
fn combine(
    storage: &dyn Storage,
    target: VirtualPath,
    parts: Vec<VirtualPath>,
    bits: Option<u32>,
    shared: &Shared,
) -> Result<u64, Fault> {
    let at = |path: &VirtualPath| {
        let path = path.clone();
        move |error| (path, error)
    };
    // By what they are: one file may have many names, and links on the way to it.
    let mut files = match storage.metadata(&target, Wait::Allowed) {
        Ok(metadata) => vec![metadata.identity],
        // What has the name of a conversion only has no file of its own.
        Err(FileError::NotFound | FileError::Unsupported) => Vec::new(),
        Err(error) => return Err((target, error)),
    };
    let is_new = files.is_empty();
    for part in &parts {
        let identity = storage.metadata(part, Wait::Allowed).map_err(at(part))?.identity;
        if *part == target || files.contains(&identity) {
            return Err((part.clone(), FileError::InvalidName));
        }
        files.push(identity);
    }
    let open = |part| storage.open_read(part, Wait::Allowed).map_err(at(part));
    let handles = parts.iter().map(open).collect::<Result<Vec<_>, _>>()?;
    let dangles = is_new && storage.entry(&target).is_ok();
    let mode = match (is_new, dangles) {
        (true, false) => WriteMode::CreateNew,
        // A link that leads to nothing yet: it is followed, as by an upload.
        (true, true) => WriteMode::Replace,
        (false, _) => WriteMode::Append,
    };
    let mut upload = storage.open_write_with(&target, mode, bits, Wait::Allowed).map_err(at(&target))?;
    let is_left = is_new && !upload.is_staged();
    let sources = parts.iter().zip(handles);
    let combined = match append_all(&mut *upload, &target, sources, shared) {
        Ok(()) => upload.commit().map_err(at(&target)),
        Err(fault) => {
            upload.undo();
            Err(fault)
        }
    };
    if combined.is_err() && is_left {
        let left = if dangles { led_to(storage, &target) } else { Some(target) };
        let _ = left.map(|path| storage.remove_file(&path));
    }
    let size = combined?.size;
    for part in &parts {
        storage.remove_file(part).map_err(at(part))?;
    }
    Ok(size)
}

/// The file that a link leads to, where its text alone says which it is.
fn led_to(storage: &dyn Storage, link: &VirtualPath) -> Option<VirtualPath> {
    let identity = |path| storage.metadata(path, Wait::Allowed).ok().map(|metadata| metadata.identity);
    let path = link.parent().resolve(&storage.entry(link).ok()?.link?.text).ok()?;
    (identity(&path)? == identity(link)?).then_some(path)
}

fn append_all<'a>(
    upload: &mut dyn Upload,
    target: &VirtualPath,
    sources: impl Iterator<Item = (&'a VirtualPath, ReadHandle)>,
    shared: &Shared,
) -> Result<(), Fault> {
    for (part, handle) in sources {
        let range = ByteRange { start: 0, end: handle.size() };
        let mut written = Ok(());
        let append = |chunk: &[u8]| {
            written = upload.write_all(chunk);
            if written.is_ok() { Ok(()) } else { Err(FileError::Cancelled) }
        };
        let read = read_through(handle, range, shared, append);
        written.map_err(|error| (target.clone(), error))?;
        read.map_err(|error| (part.clone(), error))?;
    }
    Ok(())
}

/// The hash of a file, without reading it where it is stored with it. That of a whole one is known from now on, while the
/// file is what it was.
fn learn_digest(
    files: &dyn Storage,
    path: &VirtualPath,
    algorithm: Algorithm,
    range: ByteRange,
    digests: &DigestCache,
    shared: &Shared,
) -> Result<(String, u64), FileError> {
    let before = files.metadata(path, Wait::Allowed);
    if let Ok(before) = &before
        && range == ByteRange::default()
        && let Some(hash) = stored_digest(files, path, algorithm, before)
    {
        return Ok((hash, before.size));
    }
    let digest = digest(files, path, algorithm, range, shared);
    if let (Ok(before), Ok((hash, _)), true) = (before, &digest, range == ByteRange::default())
        && let Ok(after) = files.metadata(path, Wait::Allowed)
    {
        digests.learn((&before, &after), SystemTime::now(), algorithm, hash);
    }
    digest
}

/// The hash that is stored with a file which is still what it was before.
fn stored_digest(
    files: &dyn Storage,
    path: &VirtualPath,
    algorithm: Algorithm,
    before: &Metadata,
) -> Option<String> {
    let stored = files.stored_hashes(path, Wait::Allowed).ok()??;
    let after = files.metadata(path, Wait::Allowed).ok()?;
    stored.of(algorithm).filter(|_| after == *before).map(str::to_owned)
}

fn digest(
    storage: &dyn Storage,
    path: &VirtualPath,
    algorithm: Algorithm,
    range: ByteRange,
    shared: &Shared,
) -> Result<(String, u64), FileError> {
    let mut hasher = Hasher::new(algorithm);
    let handle = storage.open_read(path, Wait::Allowed)?;
    // It would have to be made for nothing else.
    if !handle.conversion().is_none() {
        return Err(FileError::Unsupported);
    }
    if handle.size().is_some_and(|size| range.start > size) {
        return Err(FileError::OutOfRange);
    }
    let bytes = read_through(handle, range, shared, |chunk| {
        hasher.update(chunk);
        Ok(())
    })?;
    Ok((hasher.finish(), bytes))
}

/// Reads a range of a file through `take`, counting, until it ends or is cancelled.
fn read_through(
    handle: ReadHandle,
    range: ByteRange,
    shared: &Shared,
    mut take: impl FnMut(&[u8]) -> Result<(), FileError>,
) -> Result<u64, FileError> {
    let mut handle = handle;
    let mut chunk = vec![0; CHUNK];
    let mut offset = range.start;
    while range.end.is_none_or(|end| offset < end) {
        if shared.is_cancelled() {
            return Err(FileError::Cancelled);
        }
        let most = range.end.map_or(CHUNK as u64, |end| (end - offset).min(CHUNK as u64)) as usize;
        let count = match &mut handle {
            ReadHandle::File(range) => {
                std::os::unix::fs::FileExt::read_at(&*range.file, &mut chunk[..most], offset)?
            }
            ReadHandle::Stream(stream) => stream.read_at(offset, &mut chunk[..most])?,
        };
        if count == 0 {
            break;
        }
        take(&chunk[..count])?;
        offset += count as u64;
        shared.add(count as u64);
    }
    Ok(offset - range.start)
}

/// Removes a directory and all beneath it. A link to one is none: what it leads to is not beneath it.
fn remove_tree(storage: &dyn Storage, top: VirtualPath, shared: &Shared) -> Result<u64, Fault> {
    match storage.entry(&top) {
        Ok(entry) if entry.link.is_some() => return Err((top, FileError::NotDirectory)),
        Err(error) => return Err((top, error)),
        Ok(_) => {}
    }
    // Where the top may not be removed, as it holds a place with permissions of its own, nothing beneath it is.
    match storage.remove_directory(&top) {
        Ok(()) => return Ok(1),
        Err(error @ FileError::PermissionDenied) => return Err((top, error)),
        Err(_) => {}
    }
    let removed = walk::clear(storage, &top, shared)?;
    storage.remove_directory(&top).map(|()| removed + 1).map_err(|error| (top, error))
}

fn tree_size(
    storage: &dyn Storage,
    path: &VirtualPath,
    shared: &Shared,
) -> Result<(u64, LeftOut), FileError> {
    let metadata = storage.metadata(path, Wait::Allowed)?;
    if !metadata.is_directory() {
        return Ok((metadata.size, LeftOut::default()));
    }
    let mut bytes = 0;
    let unreadable = walk::look(storage, path, shared, &mut |_, entry| {
        if entry.metadata.is_file() {
            bytes += entry.metadata.size;
        }
    })?;
    Ok((bytes, LeftOut { unreadable, overflow: false }))
}

fn newer(
    storage: &dyn Storage,
    path: &VirtualPath,
    since: Timestamp,
    shared: &Shared,
) -> Result<(Vec<Vec<u8>>, LeftOut), FileError> {
    /// Lines of a reply: the control connection holds them all.
    const MOST: usize = 10_000;
    /// And their bytes.
    const MOST_BYTES: usize = 2 << 20;
    let (mut lines, mut bytes, mut overflow) = (Vec::new(), 0, false);
    let unreadable = walk::look(storage, path, shared, &mut |path, entry| {
        if entry.metadata.modified > since && entry.metadata.is_file() {
            bytes += path.as_bytes().len();
            overflow |= lines.len() == MOST || bytes > MOST_BYTES;
            if !overflow {
                lines.push([b" ", path.as_bytes()].concat());
            }
        }
    })?;
    Ok((lines, LeftOut { unreadable, overflow }))
}
