//! Uploads that came in parts beside one another, and become one file (tus's `concatenation`).
//!
//! ```text
//!   POST /folder/   Upload-Concat: partial             -> 201, Location: /.millrace-uploads/A
//!   POST /folder/   Upload-Concat: partial             -> 201, Location: /.millrace-uploads/B
//!   PATCH...        both at a time
//!   POST /folder/   Upload-Concat: final;/.../A /.../B -> 201, and there is the file
//! ```
//!
//! The storage joins them ([`Storage::join_partials`]) before that is answered, so there is no final upload that is
//! begun and not yet whole; who did not hear the answer asks again and is told the same. The parts are gone then.
//!
//! [`Storage::join_partials`]: millrace_vfs::Storage::join_partials

use std::sync::Arc;

use millrace_cluster::UploadLock;
use millrace_http::tus::{self, UploadKind, UploadProgress};
use millrace_http::{Field, Framing, Head, Refusal, Status};
use millrace_vfs::{FileError, PartialKey, Upload, VirtualPath};

use crate::refused::{Refused, refuse};
use crate::tus_state::address::{Address, Secret};
use crate::tus_work::piece::{Joined, Piece};
use crate::tus_work::{TusAnswer, TusRequest, locked};

impl TusRequest {
    /// Answers a request for one file of parts that came.
    pub(crate) fn join(
        &self,
        head: &Head,
        parts: &[&[u8]],
        said: &[u8],
        name: Option<Vec<u8>>,
        metadata: &[u8],
    ) -> Result<TusAnswer, Refused> {
        if head.framing != Framing::None {
            return refuse(Status::BAD_REQUEST, "A final upload has no bytes but those of its parts.");
        }
        let parts = parts.iter().map(|part| self.part(part)).collect::<Result<Vec<_>, _>>()?;
        if parts.iter().enumerate().any(|(at, part)| parts[..at].iter().any(|other| other.key == part.key)) {
            return refuse(Status::BAD_REQUEST, "A part is in a file once.");
        }
        let path = self.target(UploadKind::Joined, name.as_deref())?;
        let mut address = Address {
            key: key_of(&self.secret()?, &path, &parts),
            user: self.user.clone(),
            kind: UploadKind::Joined,
            path,
            length: Some(0),
            is_exclusive: head.get(Field::IfNoneMatch).is_some(),
            metadata: metadata.to_vec(),
        };
        let mut done = self.server.tus.finished_upload(&address.key)?;
        if done.as_ref().is_some_and(|done| !done.is_settled) {
            return Err(tus::UNSETTLED.into());
        }
        if done.is_some() {
            // Nodes hear of it before it has its name: who has the lock knows.
            let lock = self.server.tus.lock(&address.key)?;
            done = self.server.tus.finished_upload(&address.key)?;
            lock.into_iter().for_each(UploadLock::release);
        }
        if let Some(length) = done.and_then(|done| self.joined_before(&address, done.length)) {
            let fields = self.is_joined(&Address { length: Some(length), ..address })?;
            return Ok(TusAnswer::Told(Status::CREATED, fields));
        }
        let states = parts.iter().map(|part| self.progress_of_part(part)).collect::<Result<Vec<_>, _>>()?;
        let length = tus::joined_length(states.iter().copied())?;
        address.length = Some(length);
        let fields = self.is_joined(&address)?;
        address.is_exclusive &= self.old_size(head, &address.path)?.is_none();
        self.has_room_beside(&address.path, length - states.first().map_or(0, UploadProgress::offset))?;
        let upload = self.join_parts(&address, &parts)?;
        let parts = parts.into_iter().map(|part| (part.path, part.key)).collect();
        // As behind a last piece, of no bytes: so it becomes the file as any does.
        let piece = Piece {
            server: Arc::clone(&self.server),
            storage: Arc::clone(&self.storage),
            user: self.user.clone(),
            head: Arc::clone(&self.head),
            key: address.key,
            path: address.path.clone(),
            joined: Some(Joined { said: said.into(), parts }),
            progress: address.progress(Some(length)),
            status: Status::CREATED,
            fields,
        };
        Ok(TusAnswer::Upload(upload, None, Box::new(piece)))
    }

    /// A part, by its path.
    fn part(&self, path: &[u8]) -> Result<Address, Refused> {
        let secret = self.secret()?;
        let address = VirtualPath::parse(path).ok().and_then(|path| Address::open(&path, &secret));
        let address = address.filter(|address| address.user == self.user && address.kind == UploadKind::Part);
        address.ok_or_else(|| {
            let reason = "One of the parts in Upload-Concat is no partial upload.";
            Refusal { status: Status::BAD_REQUEST, reason }.into()
        })
    }

    /// The length of the file, if it was joined before and is unchanged.
    fn joined_before(&self, address: &Address, length: u64) -> Option<u64> {
        let there = self.storage.metadata(&address.path, millrace_vfs::Wait::Allowed).ok()?;
        (there.size == length).then_some(length)
    }

    fn progress_of_part(&self, part: &Address) -> Result<UploadProgress, Refused> {
        let length = match part.length {
            None => self.length(&part.key)?,
            said => said,
        };
        let received = self.find(part)?.map(|state| state.size);
        Ok(UploadProgress { length, ..part.progress(received) })
    }

    /// The answer about a joined file.
    fn is_joined(&self, address: &Address) -> Result<Vec<(&'static str, String)>, Refused> {
        let Some(location) = address.seal(&self.secret()?) else {
            return refuse(Status::URI_TOO_LONG, "The path and the Upload-Metadata are too long.");
        };
        let mut fields = tus::answer_fields();
        fields.push(("Location", location));
        Ok(fields)
    }

    /// Returns whether the device has room for bytes that lie there twice for a moment. In a quota they are counted
    /// already, as what waits: of that the storage has the last word.
    fn has_room_beside(&self, path: &VirtualPath, bytes: u64) -> Result<(), Refused> {
        match self.storage.space(&path.parent()) {
            Ok(space) if space.quota.is_some() => Ok(()),
            _ => self.has_space(path, bytes),
        }
    }

    fn join_parts(&self, address: &Address, parts: &[Address]) -> Result<Box<dyn Upload>, Refused> {
        let keys: Vec<_> = parts.iter().map(|part| (part.path.clone(), part.key)).collect();
        let write = tus::write_mode(self.permissions, address.is_exclusive);
        let all = parts.iter().map(|part| &part.key).chain([&address.key]);
        let locks = all.map(|key| self.server.tus.lock(key)).collect::<Result<Vec<_>, _>>()?;
        let joined = match self.storage.join_partials(&address.path, &keys, write) {
            Err(FileError::Busy) => return Err(tus::LOCKED.into()),
            Err(FileError::CrossDevice) => {
                let reason = "The parts lie on another disk or in another folder than the file is to.";
                return refuse(Status::CONFLICT, reason);
            }
            joined => joined?,
        };
        if Some(joined.size) != address.length {
            return refuse(Status::CONFLICT, "One of the parts has changed just now.");
        }
        Ok(locked(joined, locks.into_iter().flatten().collect()).upload)
    }
}

/// The same parts of the same file have the same key.
fn key_of(secret: &Secret, path: &VirtualPath, parts: &[Address]) -> PartialKey {
    let mut hasher = blake3::Hasher::new_keyed(secret);
    for part in parts {
        hasher.update(part.key.as_bytes());
    }
    hasher.update(path.as_bytes());
    let mut key = [0; 16];
    hasher.finalize_xof().fill(&mut key);
    PartialKey::new(key)
}
