//! Resumable uploads on the blocking pool: begins, continues, joins and ends them. `crate::tus_state` has what is remembered.

pub(crate) mod joining;
pub(crate) mod piece;

use std::net::IpAddr;
use std::sync::Arc;

use millrace_accounts::password;
use millrace_ftp::session::{Permission, Permissions};
use millrace_http::conditional::{self, Validators, Verdict};
use millrace_http::dav::Touch;
use millrace_http::tus::Becomes;
use millrace_http::{Field, Framing, Head, Method, Refusal, Status, date, tus};
use millrace_limits::{LimitKey, Reached};
use millrace_vfs::{
    FileError, Partial, PartialKey, PartialMode, PartialState, Storage, Timestamp, Upload, VirtualPath, Wait,
    WriteMode,
};

use crate::dav_state::claim::{Claim, touch_of};
use crate::refused::{Refused, refuse};
use crate::shared::Http;
use crate::tus_state::address::{Address, Kind, Secret};
use crate::tus_state::lengths::Untaken;
use crate::tus_state::{Concern, file_in};
use crate::tus_work::piece::{Check, Piece, can_be, too_long};

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

/// Whether a new upload comes with its first piece, and what that has to hash to.
pub(crate) fn first_piece(head: &Head) -> Result<(bool, Option<Check>), Refused> {
    let has_piece = head.framing != Framing::None;
    if has_piece && !tus::has_piece(head) {
        let reason = "The Content-Type of a piece is application/offset+octet-stream.";
        return refuse(Status::UNSUPPORTED_MEDIA_TYPE, reason);
    }
    Ok((has_piece, Check::of(tus::checksum(head)?)?))
}

pub(crate) fn gone<T>() -> Result<T, Refused> {
    refuse(Status::GONE, "There is no such upload, or not any more.")
}

pub(crate) fn locked<T>() -> Result<T, Refused> {
    refuse(Status::LOCKED, "Another request brings a piece of it just now.")
}

pub(crate) fn unsettled<T>() -> Result<T, Refused> {
    refuse(Status::LOCKED, "The file is there, and is looked at just now.")
}

pub(crate) fn answer_fields() -> Vec<(&'static str, String)> {
    vec![("Tus-Resumable", tus::VERSION.to_owned()), ("Cache-Control", "no-store".to_owned())]
}

/// Where an upload goes on.
pub(crate) fn offset_of(address: &Address, state: Option<PartialState>) -> u64 {
    state.map_or(address.length.unwrap_or(0), |state| state.size)
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

    fn secret(&self) -> &Secret {
        self.server.tus.secret(|text| self.server.log.warn(text))
    }

    /// The file that a new upload becomes, or is a part of.
    fn target(&self, kind: Kind, name: Option<Vec<u8>>) -> Result<VirtualPath, Refused> {
        if self.is_ruled && kind != Kind::Part {
            return Ok(self.path.clone());
        }
        let is_directory = self.is_directory
            || self.storage.metadata(&self.path, Wait::Allowed).is_ok_and(|metadata| metadata.is_directory());
        if !is_directory {
            return Ok(self.path.clone());
        }
        let Some(name) = name else {
            return refuse(
                Status::BAD_REQUEST,
                "A filename in Upload-Metadata says which file in this folder it is.",
            );
        };
        file_in(&self.path, &name).ok_or_else(|| {
            let reason = "The filename in Upload-Metadata is no name of a file.";
            Refusal { status: Status::BAD_REQUEST, reason }.into()
        })
    }

    fn create(&self, head: &Head) -> Result<TusAnswer, Refused> {
        let tus::Creation { length, becomes, name, metadata } = tus::creation(head)?;
        let kind = match becomes {
            Becomes::Whole { parts, said } => return self.join(head, &parts, said, name, metadata),
            Becomes::Part => Kind::Part,
            Becomes::File => Kind::File,
        };
        length.map_or(Ok(()), can_be)?;
        let (has_piece, check) = first_piece(head)?;
        let key = PartialKey::new(password::random());
        let path =
            self.target(kind, name.or_else(|| (kind == Kind::Part).then(|| key.to_string().into())))?;
        let old = self.old_size(head, &path)?;
        // A condition that the existing file meets does not forbid replacing it.
        let is_exclusive = head.get(Field::IfNoneMatch).is_some() && old.is_none();
        self.has_room(&path, length.unwrap_or(0).saturating_sub(old.unwrap_or(0)))?;
        let (user, metadata) = (self.user.clone(), metadata.to_vec());
        let address = Address { key, user, kind, path, length, is_exclusive, metadata };
        let Some(location) = address.seal(self.secret()) else {
            return refuse(Status::URI_TOO_LONG, "The path and the Upload-Metadata are too long.");
        };
        // A client that hears of it only now has to be able to ask for it.
        let partial = self.open(&address, PartialMode::New)?;
        let (user, from) = (self.user.as_deref(), self.address);
        self.server.tus.shares().begin(key, user, from, self.server.tus.settings.age);
        let mut fields = answer_fields();
        fields.push(("Location", location));
        fields.push(("Upload-Expires", self.expires(partial.modified)));
        let is_whole = kind == Kind::File && length == Some(0);
        if !has_piece && !is_whole {
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
        self.receive(head, &address, partial, check, Status::CREATED, fields)
    }

    /// How long the file is that would be replaced, if that may be.
    fn old_size(&self, head: &Head, path: &VirtualPath) -> Result<Option<u64>, Refused> {
        let old = match self.storage.metadata(path, Wait::Allowed) {
            Ok(metadata) if metadata.is_directory() => {
                return refuse(Status::CONFLICT, "There is a directory of this name.");
            }
            Ok(metadata) => Some(metadata),
            Err(FileError::NotFound) => None,
            // A drop box: a user that may not list it finds out at the end.
            Err(FileError::PermissionDenied) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let validators = old.as_ref().map(Validators::of);
        if !matches!(conditional::evaluate(head, validators.as_ref()), Verdict::Proceed) {
            return refuse(
                Status::PRECONDITION_FAILED,
                "The resource does not meet the condition of the request.",
            );
        }
        if old.is_some() && !self.permissions.allows(Permission::Overwrite) {
            return refuse(Status::FORBIDDEN, "There is a file of this name, which you may not replace.");
        }
        let touch = if old.is_some() { Touch::Content } else { Touch::Name };
        self.claim(path).permit(head, &[(path, touch)])?;
        Ok(old.map(|old| old.size))
    }

    fn claim<'a>(&'a self, path: &'a VirtualPath) -> Claim<'a> {
        Claim { dav: &self.server.dav, storage: &self.storage, user: self.user.as_deref(), path }
    }

    fn has_room(&self, path: &VirtualPath, bytes: u64) -> Result<(), Refused> {
        self.has_space(path, bytes)?;
        let has_share = self.server.tus.shares().is_full(self.user.as_deref(), self.address, SHARE);
        match self.storage.resting()?.files {
            files if files >= MOST || has_share => {
                let reason = "Too many uploads wait here to be gone on with.";
                let reached = Reached::new(LimitKey::WaitingUploads, if has_share { SHARE } else { MOST });
                Err(Refused::because(Status::INSUFFICIENT_STORAGE, reason, reached))
            }
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

    /// How the file is written that it becomes.
    fn write_mode(&self, is_exclusive: bool) -> WriteMode {
        match self.permissions.allows(Permission::Overwrite) && !is_exclusive {
            true => WriteMode::Replace,
            false => WriteMode::CreateNew,
        }
    }

    fn open(&self, address: &Address, mode: PartialMode) -> Result<Partial, Refused> {
        let write = self.write_mode(address.is_exclusive);
        match self.storage.open_partial(&address.path, &address.key, write, mode) {
            Err(FileError::Busy) => locked(),
            Err(FileError::NotFound) if mode == PartialMode::New => {
                refuse(Status::CONFLICT, "There is no such directory to put it in.")
            }
            Err(FileError::NotFound) => gone(),
            opened => Ok(opened?),
        }
    }

    fn expires(&self, since: Timestamp) -> String {
        let mut text = Vec::new();
        date::write(since.seconds.saturating_add(self.server.tus.age()), &mut text);
        String::from_utf8_lossy(&text).into_owned()
    }

    /// An upload that was begun.
    fn go_on(&self, head: &Head) -> Result<TusAnswer, Refused> {
        let Some(mut address) =
            Address::open(&self.path, self.secret()).filter(|address| address.user == self.user)
        else {
            return refuse(Status::NOT_FOUND, "There is no such upload.");
        };
        address.length = address.length.or_else(|| self.length(&address.key));
        match tus::method(head) {
            Method::Head => self.tell(head, &address),
            Method::Patch if address.kind == Kind::Joined => {
                refuse(Status::FORBIDDEN, "This upload is of parts that came before; nothing is added to it.")
            }
            Method::Patch => self.patch(head, address),
            Method::Delete => {
                if let Err(error) = self.storage.remove_partial(&address.path, &address.key) {
                    return match error {
                        FileError::NotFound => gone(),
                        FileError::Busy => locked(),
                        error => Err(error.into()),
                    };
                }
                self.server.tus.forget_length(&address.key);
                Ok(TusAnswer::Told(Status::NO_CONTENT, answer_fields()))
            }
            _ => refuse(Status::METHOD_NOT_ALLOWED, "An upload is asked for with HEAD, PATCH and DELETE."),
        }
    }

    /// The length of an upload whose address does not say it, where that is known by now.
    fn length(&self, key: &PartialKey) -> Option<u64> {
        let (tus, now) = (&self.server.tus, self.wall.seconds);
        let said = tus.with_lengths(&self.server.log, now, |lengths| lengths.of(key, now, tus.age()));
        said.or_else(|| tus.finished_length(key))
    }

    /// The client says how long the whole is.
    fn say_length(&self, address: &mut Address, length: u64, size: u64) -> Result<(), Refused> {
        can_be(length)?;
        if size > length {
            return Err(too_long().into());
        }
        let (tus, now) = (&self.server.tus, self.wall.seconds);
        let since = tus.long_ago(now);
        let said = match address.length {
            Some(known) if known == length => Ok(()),
            Some(_) => Err(Untaken::Other),
            None => tus
                .with_lengths(&self.server.log, now, |lengths| lengths.say(address.key, length, now, since)),
        };
        address.length = Some(length);
        match said {
            Ok(()) => Ok(()),
            Err(Untaken::Other) => refuse(Status::BAD_REQUEST, "Another Upload-Length was said before."),
            Err(Untaken::Full) => {
                refuse(Status::INSUFFICIENT_STORAGE, "Too many uploads have said their length late.")
            }
        }
    }

    /// What came so far; `None` where all of it did, and it is the file.
    fn find(&self, address: &Address) -> Result<Option<PartialState>, Refused> {
        match self.storage.find_partial(&address.path, &address.key) {
            Err(FileError::NotFound) => match self.server.tus.done(&address.key) {
                Some(done) if done.is_settled => Ok(None),
                Some(_) => unsettled(),
                None => gone(),
            },
            Err(error) => Err(error.into()),
            Ok(state) => {
                let age = self.wall.seconds.saturating_sub(state.modified.seconds);
                if u64::try_from(age).unwrap_or(0) > self.server.tus.settings.age.as_secs() {
                    let _ = self.storage.remove_partial(&address.path, &address.key);
                    self.server.tus.forget_length(&address.key);
                    return gone();
                }
                Ok(Some(state))
            }
        }
    }

    /// Returns whether all of an upload came, which the server could not say before it was ended.
    fn is_whole(address: &Address, state: Option<PartialState>) -> bool {
        address.kind == Kind::File
            && state.zip(address.length).is_some_and(|(state, length)| state.size >= length)
    }

    fn tell(&self, head: &Head, address: &Address) -> Result<TusAnswer, Refused> {
        let state = self.find(address)?;
        let mut fields = answer_fields();
        fields.push(match address.length {
            Some(length) => ("Upload-Length", length.to_string()),
            None => ("Upload-Defer-Length", "1".to_owned()),
        });
        if address.kind == Kind::Part {
            fields.push(("Upload-Concat", "partial".to_owned()));
        } else if let Some(parts) = self.server.tus.done(&address.key).and_then(|done| done.parts) {
            fields.push(("Upload-Concat", String::from_utf8_lossy(&parts).into_owned()));
        }
        if !address.metadata.is_empty() {
            fields.push(("Upload-Metadata", String::from_utf8_lossy(&address.metadata).into_owned()));
        }
        if Self::is_whole(address, state) {
            let partial = self.open(address, PartialMode::Resume)?;
            return self.receive(head, address, partial, None, Status::OK, fields);
        }
        if let Some(state) = state {
            fields.push(("Upload-Expires", self.expires(state.modified)));
        }
        fields.push(("Upload-Offset", offset_of(address, state).to_string()));
        Ok(TusAnswer::Told(Status::OK, fields))
    }

    fn patch(&self, head: &Head, mut address: Address) -> Result<TusAnswer, Refused> {
        let tus::Piece { offset, length, checksum } = tus::piece(head)?;
        let check = Check::of(checksum)?;
        let touch = touch_of(&*self.storage, &address.path);
        self.claim(&address.path).permit(head, &[(&address.path, touch)])?;
        let state = self.find(&address)?;
        if offset_of(&address, state) != offset {
            return refuse(Status::CONFLICT, "This is not where the upload goes on.");
        }
        if let Some(length) = length {
            // It may be all that was missing.
            self.say_length(&mut address, length, offset)?;
        }
        let address = &address;
        let mut fields = answer_fields();
        let is_empty = matches!(head.framing, Framing::None | Framing::Length(0));
        if state.is_none() && !is_empty {
            return Err(too_long().into());
        }
        if state.is_none() || head.framing == Framing::None && !Self::is_whole(address, state) {
            fields.push(("Upload-Offset", offset.to_string()));
            return Ok(TusAnswer::Told(Status::NO_CONTENT, fields));
        }
        let mode = if check.is_some() { PartialMode::Checked } else { PartialMode::Resume };
        let partial = self.open(address, mode)?;
        if partial.size != offset {
            return refuse(Status::CONFLICT, "This is not where the upload goes on.");
        }
        fields.push(("Upload-Expires", self.expires(self.wall)));
        self.receive(head, address, partial, check, Status::NO_CONTENT, fields)
    }

    fn receive(
        &self,
        head: &Head,
        address: &Address,
        partial: Partial,
        check: Option<Check>,
        status: Status,
        fields: Vec<(&'static str, String)>,
    ) -> Result<TusAnswer, Refused> {
        let piece = Piece {
            server: Arc::clone(&self.server),
            storage: Arc::clone(&self.storage),
            user: self.user.clone(),
            head: Arc::clone(&self.head),
            key: address.key,
            path: address.path.clone(),
            joined: None,
            offset: partial.size,
            length: address.length,
            is_part: address.kind == Kind::Part,
            status,
            fields,
        };
        if let Framing::Length(length) = head.framing
            && let Err(refusal) = piece.ends_with(length)
        {
            drop(partial.upload);
            piece.give_up();
            return Err(refusal.into());
        }
        Ok(TusAnswer::Upload(partial.upload, check, Box::new(piece)))
    }
}

/// Uploads of a tree that wait for more at a time.
pub(crate) const MOST: u64 = 1000;

/// Uploads of one user that wait at a time, and of one address.
pub(crate) const SHARE: u64 = MOST / 4;
