//! A piece of an upload on its way: where it goes, and what it has to hash to.

use std::sync::Arc;

use millrace_ftp::digest::{Algorithm, Hasher};
use millrace_hooks::Event;
use millrace_http::tus::{self, UploadProgress};
use millrace_http::{Head, Refusal, Status};
use millrace_vfs::hex::Hex;
use millrace_vfs::{PartialKey, Storage, Upload, VirtualPath};

use crate::dav_state::claim::{Claim, touch_of};
use crate::refused::Refused;
use crate::shared::Http;
use crate::upload_outcome::{Settled, Settling, Unnamed};

/// A piece on its way.
#[derive(Debug)]
pub struct Piece {
    pub(crate) server: Arc<Http>,
    pub(crate) storage: Arc<dyn Storage>,
    pub(crate) user: Option<Vec<u8>>,
    /// The request that brings it.
    pub(crate) head: Arc<Head>,
    pub(crate) key: PartialKey,
    /// The file that it is a piece of.
    pub(crate) path: VirtualPath,
    /// What the whole was joined from, where it was.
    pub(crate) joined: Option<Joined>,
    /// Where it begins, how long the whole is, and what that becomes.
    pub(crate) progress: UploadProgress,
    /// The status of the answer after it has arrived, without the offset.
    pub(crate) status: Status,
    pub(crate) fields: Vec<(&'static str, String)>,
}

/// What a file was joined from.
#[derive(Debug, Clone)]
pub(crate) struct Joined {
    /// As the client said it.
    pub(crate) said: Box<[u8]>,
    pub(crate) parts: Vec<(VirtualPath, PartialKey)>,
}

/// An upload that has become its file.
#[derive(Debug)]
pub(crate) struct Whole {
    pub(crate) key: PartialKey,
    pub(crate) path: VirtualPath,
    pub(crate) length: u64,
}

/// What a piece has to hash to.
#[derive(Debug)]
pub struct Check {
    hasher: Box<Hasher>,
    expected: String,
}

impl Check {
    pub(crate) fn of(said: Option<tus::Checksum<'_>>) -> Result<Option<Self>, Refusal> {
        let Some((name, value)) = said else { return Ok(None) };
        let Some(algorithm) = Algorithm::parse(name) else {
            let reason = "This algorithm of the Upload-Checksum is not known here.";
            return Err(Refusal { status: Status::BAD_REQUEST, reason });
        };
        let expected = Hex(&value).to_string();
        Ok(Some(Self { hasher: Box::new(Hasher::new(algorithm)), expected }))
    }

    pub(crate) fn update(&mut self, bytes: &[u8]) {
        self.hasher.update(bytes);
    }

    pub(crate) fn holds(self) -> bool {
        self.hasher.finish() == self.expected
    }
}

impl Piece {
    /// The file that it is a piece of.
    pub(crate) fn path(&self) -> &VirtualPath {
        &self.path
    }

    /// How many bytes of it came before.
    pub(crate) fn before(&self) -> u64 {
        self.progress.offset()
    }

    /// Returns whether with this many bytes it becomes the file.
    pub(crate) fn ends_with(&self, bytes: u64) -> Result<bool, Refusal> {
        self.progress.ends_with(bytes)
    }

    /// Commits the file, if that is still permitted: the name may have been locked since. May block.
    pub(crate) fn commit(
        &self,
    ) -> impl FnOnce(Box<dyn Upload>) -> Result<Option<String>, Refused> + Send + 'static {
        let (finish, server, storage) = (self.finish(), Arc::clone(&self.server), Arc::clone(&self.storage));
        let (user, path, head) = (self.user.clone(), self.path.clone(), Arc::clone(&self.head));
        let (key, length) = (self.key, self.progress.length);
        let said = self.joined.as_ref().map(|joined| joined.said.clone());
        move |upload| {
            let claim = Claim::new(&server.dav, &storage, user.as_deref(), &path);
            let _turn = claim.turn(&[&path])?;
            claim.permit(&head, &[(&path, touch_of(&*storage, &path))])?;
            let is_settled = server.hooks().is_none_or(|hooks| !hooks.concerns(Event::Upload, "PUT"));
            // Nodes that had not heard of it would take it for gone. What came stays, and the client asks again.
            let lock = match server.tus.finishes(&key, length, said.as_deref(), is_settled) {
                Ok(lock) => lock,
                Err(refusal) => {
                    upload.keep()?;
                    return Err(refusal.into());
                }
            };
            upload.commit().inspect_err(|_| server.tus.has_not_finished(&key, lock))?;
            finish();
            Ok(None)
        }
    }

    /// What follows the commit.
    fn finish(&self) -> impl FnOnce() + Send + 'static {
        let (server, key, length) = (Arc::clone(&self.server), self.key, self.progress.length);
        let joined = self.joined.clone();
        move || {
            if let Some(length) = length {
                server.tus.finished(key, length, joined.as_ref().map(|joined| &*joined.said));
            }
            let parts = joined.iter().flat_map(|joined| &joined.parts);
            parts.for_each(|(_, part)| server.tus.forget(part));
        }
    }

    /// The complete file of this many bytes, without a name yet; and the answer for when it has one.
    pub(crate) fn unnamed(self, bytes: u64, upload: Box<dyn Upload>) -> (Status, Unnamed) {
        let (commit, settle) = (Box::new(self.commit()), Some(self.settle()));
        let (path, length) = (Some(self.path.clone()), self.before() + bytes);
        let (status, fields) = self.answer(bytes);
        (status, Unnamed { upload, path, bytes: length, commit, settle, fields })
    }

    /// What follows the hooks' verdict before it has its name. A refused upload is removed.
    fn settle(&self) -> Box<Settling> {
        let (finish, server, storage, key) =
            (self.finish(), Arc::clone(&self.server), Arc::clone(&self.storage), self.key);
        let own = || vec![(self.path.clone(), key)];
        let staged = self.joined.as_ref().map_or_else(own, |joined| joined.parts.clone());
        let (length, said) = (self.progress.length, self.joined.as_ref().map(|joined| joined.said.clone()));
        Box::new(move |settled| {
            match settled {
                Settled::Refused => {
                    for (path, key) in &staged {
                        // It may have come to where such files are put, under its name.
                        let _ = storage.remove_partial(path, key);
                        server.tus.forget(key);
                    }
                }
                Settled::Taken => {
                    let _ = server.tus.finishes(&key, length, said.as_deref(), true);
                    finish();
                }
                Settled::Tried => {}
            }
            server.tus.settle(&key, settled != Settled::Refused);
        })
    }

    /// The file, where it is whole with this many bytes of this piece.
    pub(crate) fn whole(&self, bytes: u64) -> Option<Whole> {
        let length = self.progress.length.filter(|_| self.ends_with(bytes) == Ok(true))?;
        Some(Whole { key: self.key, path: self.path.clone(), length })
    }

    /// Has it go where it came with the request that began it: its client was not told where to go on. May wait.
    pub(crate) fn give_up(self) {
        if self.status == Status::CREATED && self.joined.is_none() {
            // Where that fails it goes with its time.
            let _ = self.storage.remove_partial(&self.path, &self.key);
            self.server.tus.forget(&self.key);
        }
    }

    /// The answer now that this many bytes of it have arrived.
    pub(crate) fn answer(self, bytes: u64) -> (Status, Vec<(&'static str, String)>) {
        let Self { status, mut fields, progress, joined, .. } = self;
        if joined.is_none() {
            fields.push(("Upload-Offset", (progress.offset() + bytes).to_string()));
        }
        if progress.ends_with(bytes) == Ok(true) {
            fields.retain(|(name, _)| *name != "Upload-Expires");
        }
        (status, fields)
    }
}
