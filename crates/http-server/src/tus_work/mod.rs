//! Resumable uploads on the blocking pool: begins, continues, joins and ends them. `crate::tus_state` has what is remembered.

pub(crate) mod joining;
pub(crate) mod piece;

use std::net::IpAddr;
use std::sync::Arc;

use millrace_accounts::password;
use millrace_cluster::{LockedUpload, UploadLock};
use millrace_http::tus::{
    self, Becomes, Concern, MAX_SHARE, MAX_WAITING, PieceAction, UploadAction, UploadKind,
};
use millrace_http::{Field, Head, Status};
use millrace_limits::{LimitKey, Reached};
use millrace_vfs::{
    FileError, Partial, PartialKey, PartialMode, PartialState, Permissions, Storage, Timestamp, Upload,
    VirtualPath, Wait,
};

use crate::dav_state::claim::{Claim, touch_of};
use crate::refused::{Refused, refuse};
use crate::shared::Http;
use crate::tus_state::address::{Address, Secret};
use crate::tus_state::lengths::Untaken;
use crate::tus_state::nodes;
use crate::tus_work::piece::{Check, Piece};

/// What the pool says of a request.
#[derive(Debug)]
pub enum TusAnswer {
    Told(Status, Vec<(&'static str, String)>),
    Refused(Refused),
    /// A piece may come.
    Upload(Box<dyn Upload>, Option<Check>, Box<Piece>),
}

/// The request and its user.
pub(crate) struct TusRequest {
    pub(crate) server: Arc<Http>,
    pub(crate) storage: Arc<dyn Storage>,
    pub(crate) permissions: Permissions,
    pub(crate) user: Option<Vec<u8>>,
    pub(crate) address: Option<IpAddr>,
    pub(crate) head: Arc<Head>,
    pub(crate) path: VirtualPath,
    pub(crate) is_directory: bool,
    /// Hooks have ruled on this very path of a new upload.
    pub(crate) is_ruled: bool,
    pub(crate) wall: Timestamp,
}

/// An upload under locks of a cluster, where there are any.
fn locked(partial: Partial, locks: Vec<UploadLock>) -> Partial {
    match locks.is_empty() {
        true => partial,
        false => Partial { upload: Box::new(LockedUpload::new(partial.upload, locks)), ..partial },
    }
}

fn too_many<T>(most: u64) -> Result<T, Refused> {
    let reason = "Too many uploads wait here to be gone on with.";
    let reached = Reached::new(LimitKey::WaitingUploads, most);
    Err(Refused::because(Status::INSUFFICIENT_STORAGE, reason, reached))
}

impl TusRequest {
    /// Answers. May wait.
    pub(crate) fn answer(&self, head: &Head, concern: Concern) -> TusAnswer {
        let answered = match concern {
            Concern::Creation => self.create(head),
            Concern::Upload => self.go_on(head),
        };
        answered.unwrap_or_else(TusAnswer::Refused)
    }

    fn secret(&self) -> Result<Secret, Refused> {
        Ok(self.server.tus.secret(|text| self.server.log.warn(text)).ok_or(nodes::AWAY)?)
    }

    /// The file that a new upload becomes, or is a part of.
    fn target(&self, kind: UploadKind, name: Option<&[u8]>) -> Result<VirtualPath, Refused> {
        let is_ruled = self.is_ruled && kind != UploadKind::Part;
        let is_directory = !is_ruled
            && (self.is_directory
                || self.storage.metadata(&self.path, Wait::Allowed).is_ok_and(|there| there.is_directory()));
        Ok(tus::file_path(&self.path, is_directory, name)?)
    }

    fn create(&self, head: &Head) -> Result<TusAnswer, Refused> {
        let tus::Creation { length, becomes, name, metadata } = tus::creation(head)?;
        let kind = match becomes {
            Becomes::Whole { parts, said } => return self.join(head, &parts, said, name, metadata),
            Becomes::Part => UploadKind::Part,
            Becomes::File => UploadKind::File,
        };
        let (has_piece, checksum) = tus::first_piece(head, length)?;
        let check = Check::of(checksum)?;
        let key = PartialKey::new(password::random());
        let name = name.or_else(|| (kind == UploadKind::Part).then(|| key.to_string().into()));
        let path = self.target(kind, name.as_deref())?;
        let old = self.old_size(head, &path)?;
        // A condition that the existing file meets does not forbid replacing it.
        let is_exclusive = head.get(Field::IfNoneMatch).is_some() && old.is_none();
        self.has_room(&path, length.unwrap_or(0).saturating_sub(old.unwrap_or(0)))?;
        let (user, metadata) = (self.user.clone(), metadata.to_vec());
        let address = Address { key, user, kind, path, length, is_exclusive, metadata };
        let Some(location) = address.seal(&self.secret()?) else {
            return refuse(Status::URI_TOO_LONG, "The path and the Upload-Metadata are too long.");
        };
        let comes = has_piece || (kind == UploadKind::File && length == Some(0));
        let lock = if comes { self.server.tus.lock(&key)? } else { None };
        if !self.server.tus.begin(key, self.user.as_deref(), self.address)? {
            return too_many(MAX_SHARE);
        }
        // A client that hears of it only now has to be able to ask for it.
        let partial = self
            .open_under(lock, &address, PartialMode::New)
            .inspect_err(|_| self.server.tus.forget(&address.key))?;
        let mut fields = tus::answer_fields();
        fields.push(("Location", location));
        fields.push(("Upload-Expires", self.expires(partial.modified)));
        if !comes {
            partial.upload.abort();
            return Ok(TusAnswer::Told(Status::CREATED, fields));
        }
        // With what it is to be checked against nothing of it is sure yet.
        let partial = match &check {
            None => partial,
            Some(_) => {
                partial.upload.abort();
                self.open(&address, PartialMode::Checked)?
            }
        };
        Ok(self.receive(&address, partial, check, Status::CREATED, fields))
    }

    /// How long the file is that would be replaced, if that may be.
    fn old_size(&self, head: &Head, path: &VirtualPath) -> Result<Option<u64>, Refused> {
        let old = match self.storage.metadata(path, Wait::Allowed) {
            Ok(metadata) => Some(metadata),
            Err(FileError::NotFound) => None,
            // A drop box: a user that may not list it finds out at the end.
            Err(FileError::PermissionDenied) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let touch = tus::replaces(head, old.as_ref(), self.permissions)?;
        self.claim(path).permit_for_now(head, &[(path, touch)])?;
        Ok(old.map(|old| old.size))
    }

    fn claim<'a>(&'a self, path: &'a VirtualPath) -> Claim<'a> {
        Claim::new(&self.server.dav, &self.storage, self.user.as_deref(), path)
    }

    fn has_room(&self, path: &VirtualPath, bytes: u64) -> Result<(), Refused> {
        self.has_space(path, bytes)?;
        match self.storage.resting()?.files {
            files if files >= MAX_WAITING => too_many(MAX_WAITING),
            _ => Ok(()),
        }
    }

    fn has_space(&self, path: &VirtualPath, bytes: u64) -> Result<(), Refused> {
        match self.storage.space(&path.parent()) {
            Ok(space) if space.available < bytes => {
                let reached = Reached::new(LimitKey::Space, space.available);
                Err(Refused::because(Status::INSUFFICIENT_STORAGE, "There is no room for it.", reached))
            }
            _ => Ok(()),
        }
    }

    fn open(&self, address: &Address, mode: PartialMode) -> Result<Partial, Refused> {
        self.open_under(self.server.tus.lock(&address.key)?, address, mode)
    }

    fn open_under(
        &self,
        lock: Option<UploadLock>,
        address: &Address,
        mode: PartialMode,
    ) -> Result<Partial, Refused> {
        let write = tus::write_mode(self.permissions, address.is_exclusive);
        match self.storage.open_partial(&address.path, &address.key, write, mode) {
            Err(FileError::Busy) => Err(tus::LOCKED.into()),
            Err(FileError::NotFound) if mode == PartialMode::New => {
                refuse(Status::CONFLICT, "There is no such directory to put it in.")
            }
            // Another node may have made it the file since it was found: the client asks again.
            Err(FileError::NotFound) => match self.server.tus.finished_upload(&address.key)? {
                Some(_) => Err(tus::LOCKED.into()),
                None => Err(tus::GONE.into()),
            },
            opened => Ok(locked(opened?, lock.into_iter().collect())),
        }
    }

    fn expires(&self, since: Timestamp) -> String {
        tus::expires(since.seconds, self.server.tus.settings.age)
    }

    /// An upload that was begun.
    fn go_on(&self, head: &Head) -> Result<TusAnswer, Refused> {
        let secret = self.secret()?;
        let Some(mut address) =
            Address::open(&self.path, &secret).filter(|address| address.user == self.user)
        else {
            return refuse(Status::NOT_FOUND, "There is no such upload.");
        };
        if address.length.is_none() {
            address.length = self.length(&address.key)?;
        }
        match tus::action(head, address.kind)? {
            UploadAction::Tell => self.tell(&address),
            UploadAction::Append => self.patch(head, address),
            UploadAction::Remove => {
                let lock = self.server.tus.lock(&address.key)?;
                if let Err(error) = self.storage.remove_partial(&address.path, &address.key) {
                    return Err(match error {
                        FileError::NotFound => tus::GONE.into(),
                        FileError::Busy => tus::LOCKED.into(),
                        error => error.into(),
                    });
                }
                self.server.tus.forget(&address.key);
                lock.into_iter().for_each(UploadLock::release);
                Ok(TusAnswer::Told(Status::NO_CONTENT, tus::answer_fields()))
            }
        }
    }

    /// The length of an upload whose address does not say it, where that is known by now.
    fn length(&self, key: &PartialKey) -> Result<Option<u64>, Refused> {
        Ok(self.server.tus.length_of(&self.server.log, key, self.wall.seconds)?)
    }

    /// Remembers the length of an upload that has been said late.
    fn keep_length(&self, key: PartialKey, length: u64) -> Result<(), Refused> {
        match self.server.tus.say_length(&self.server.log, key, length, self.wall.seconds)? {
            Ok(()) => Ok(()),
            Err(Untaken::Other) => Err(tus::OTHER_LENGTH.into()),
            Err(Untaken::Full) => {
                refuse(Status::INSUFFICIENT_STORAGE, "Too many uploads have said their length late.")
            }
        }
    }

    /// What came so far; `None` where all of it did, and it is the file.
    fn find(&self, address: &Address) -> Result<Option<PartialState>, Refused> {
        match self.storage.find_partial(&address.path, &address.key) {
            Err(FileError::NotFound) => match self.server.tus.finished_upload(&address.key)? {
                Some(done) if done.is_settled => Ok(None),
                Some(_) => Err(tus::UNSETTLED.into()),
                None => Err(tus::GONE.into()),
            },
            Err(error) => Err(error.into()),
            Ok(state) if self.is_expired(&state) => {
                let _ = self.storage.remove_partial(&address.path, &address.key);
                self.server.tus.forget(&address.key);
                Err(tus::GONE.into())
            }
            Ok(state) => Ok(Some(state)),
        }
    }

    fn is_expired(&self, state: &PartialState) -> bool {
        tus::is_expired(state.modified.seconds, self.wall.seconds, self.server.tus.settings.age)
    }

    fn tell(&self, address: &Address) -> Result<TusAnswer, Refused> {
        let state = self.find(address)?;
        let progress = address.progress(state.map(|state| state.size));
        let is_joined = address.kind == UploadKind::Joined;
        let done = is_joined.then(|| self.server.tus.finished_upload(&address.key)).transpose()?.flatten();
        let parts = done.and_then(|done| done.parts);
        let mut fields = progress.describe(parts.as_deref(), &address.metadata);
        if progress.is_whole() {
            let partial = self.open(address, PartialMode::Resume)?;
            return Ok(self.receive(address, partial, None, Status::OK, fields));
        }
        if let Some(state) = state {
            fields.push(("Upload-Expires", self.expires(state.modified)));
        }
        fields.push(("Upload-Offset", progress.offset().to_string()));
        Ok(TusAnswer::Told(Status::OK, fields))
    }

    fn patch(&self, head: &Head, mut address: Address) -> Result<TusAnswer, Refused> {
        let mut piece = tus::piece(head)?;
        let check = Check::of(piece.checksum.take())?;
        let touch = touch_of(&*self.storage, &address.path);
        self.claim(&address.path).permit_for_now(head, &[(&address.path, touch)])?;
        let mut progress = address.progress(self.find(&address)?.map(|state| state.size));
        let action = progress.append(&piece, head.framing)?;
        if let (None, Some(length)) = (address.length, progress.length) {
            self.keep_length(address.key, length)?;
            address.length = Some(length);
        }
        let mut fields = tus::answer_fields();
        if action == PieceAction::Tell {
            fields.push(("Upload-Offset", piece.offset.to_string()));
            return Ok(TusAnswer::Told(Status::NO_CONTENT, fields));
        }
        let mode = if check.is_some() { PartialMode::Checked } else { PartialMode::Resume };
        let partial = self.open(&address, mode)?;
        // Another request may have been first.
        if partial.size != piece.offset {
            partial.upload.abort();
            return Err(tus::WRONG_OFFSET.into());
        }
        fields.push(("Upload-Expires", self.expires(self.wall)));
        Ok(self.receive(&address, partial, check, Status::NO_CONTENT, fields))
    }

    fn receive(
        &self,
        address: &Address,
        partial: Partial,
        check: Option<Check>,
        status: Status,
        fields: Vec<(&'static str, String)>,
    ) -> TusAnswer {
        let piece = Piece {
            server: Arc::clone(&self.server),
            storage: Arc::clone(&self.storage),
            user: self.user.clone(),
            head: Arc::clone(&self.head),
            key: address.key,
            path: address.path.clone(),
            joined: None,
            progress: address.progress(Some(partial.size)),
            status,
            fields,
        };
        TusAnswer::Upload(partial.upload, check, Box::new(piece))
    }
}
