//! `PROPFIND`, `PROPPATCH`, `LOCK` and `UNLOCK` (RFC 4918 section 9), once their bodies are whole.

use std::net::IpAddr;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use millrace_accounts::password;
use millrace_http::conditional;
use millrace_http::dav::Touch;
use millrace_http::dav::body;
use millrace_http::dav::condition::{self, Depth};
use millrace_http::dav::locks::{self, LONGEST, Lock, LockDenied};
use millrace_http::dav::place::Chain;
use millrace_http::dav::{multistatus, properties};
use millrace_http::{Head, Method, Refusal, Status, page};
use millrace_limits::{LimitKey, Reached};
use millrace_vfs::hex::Hex;
use millrace_vfs::{FileError, Metadata, Storage, VirtualPath, Wait, WriteMode};

use crate::dav_state::claim::{Claim, is_absent};
use crate::dav_state::place::chain;
use crate::dav_work::members;
use crate::dav_work::members::{DavAnswer, DavContent, Resource};
use crate::refused::{Refused, refuse};
use crate::shared::Http;

/// The longest body that is taken.
pub(crate) const BODY: usize = 256 * 1024;

/// A body that is collected.
#[derive(Debug)]
pub(crate) struct Collecting {
    pub(crate) head: Arc<Head>,
    /// What it is about, and whether that was named as a folder.
    pub(crate) path: VirtualPath,
    pub(crate) is_directory: bool,
    pub(crate) body: Vec<u8>,
    /// Since when.
    pub(crate) began: Instant,
}

impl Collecting {
    /// The head that it is the body of.
    pub(crate) fn head(&self) -> &Head {
        &self.head
    }
}

pub(crate) fn failed(error: FileError) -> Refused {
    error.into()
}

pub(crate) fn refuse_absent<T>() -> Result<T, Refused> {
    refuse(Status::NOT_FOUND, "There is no such file.")
}

/// The request and its user.
pub(crate) struct DavRequest {
    pub(crate) server: Arc<Http>,
    pub(crate) storage: Arc<dyn Storage>,
    pub(crate) user: Option<Vec<u8>>,
    pub(crate) address: Option<IpAddr>,
    pub(crate) path: VirtualPath,
    /// It was named as a folder, with a slash at its end.
    pub(crate) is_directory: bool,
}

pub(crate) fn refusal_of(Refused { refusal: Refusal { status, reason }, reached }: Refused) -> DavAnswer {
    let content = DavContent::Whole(page::of(status, reason));
    DavAnswer { status, field: None, media_type: page::MEDIA_TYPE, content, reached, has_made_file: false }
}

impl DavRequest {
    /// Answers. May wait.
    pub(crate) fn answer(&self, head: &Head, body: &[u8]) -> Result<DavAnswer, Refused> {
        match head.method {
            Method::PropFind => self.propfind(head, body),
            Method::PropPatch => self.proppatch(head, body),
            Method::Lock if body.trim_ascii().is_empty() => self.refresh(head),
            Method::Lock => self.lock(head, body),
            _ => self.unlock(head),
        }
    }

    fn metadata(&self) -> Result<Metadata, Refused> {
        match self.storage.metadata(&self.path, Wait::Allowed) {
            Ok(metadata) if self.is_directory && !metadata.is_directory() => refuse_absent(),
            Err(error) if is_absent(&error) => refuse_absent(),
            metadata => metadata.map_err(failed),
        }
    }

    fn claim(&self) -> Claim<'_> {
        Claim::new(&self.server.dav, &self.storage, self.user.as_deref(), &self.path)
    }

    fn chain(&self) -> Result<Chain, Refused> {
        chain(&self.server.dav, &*self.storage, &self.path).map_err(failed)
    }

    fn permit(&self, head: &Head, touch: Touch) -> Result<(), Refused> {
        Ok(self.claim().permit(head, &[(&self.path, touch)])?)
    }

    /// Checks that the user may write there, where no write would tell.
    fn permit_place(&self, all_beneath: bool) -> Result<(), Refused> {
        match self.storage.may_replace(&self.path, all_beneath) {
            Err(error) if is_absent(&error) => refuse_absent(),
            permitted => permitted.map_err(failed),
        }
    }

    fn propfind(&self, head: &Head, body: &[u8]) -> Result<DavAnswer, Refused> {
        let asked = body::propfind(body)?;
        let metadata = self.metadata()?;
        let beneath = match condition::propfind_depth(head, metadata.is_directory())? {
            Depth::Zero => false,
            Depth::One => true,
            // All beneath could be everything: RFC 4918 section 9.1 lets servers say no.
            Depth::Infinity => return Ok(no_infinity()),
        };
        let chain = self.chain()?;
        let resource = Resource { path: &self.path, metadata: &metadata, chain: &chain };
        let content =
            members::write(&self.server, &self.storage, asked, &resource, beneath).map_err(failed)?;
        Ok(DavAnswer { content, ..whole(Status::MULTI_STATUS, String::new()) })
    }

    fn proppatch(&self, head: &Head, body: &[u8]) -> Result<DavAnswer, Refused> {
        let changes = body::propertyupdate(body)?;
        let metadata = self.metadata()?;
        self.permit_place(false)?;
        conditional::check(head, Some(&metadata))?;
        self.permit(head, Touch::Content)?;
        let chain = self.chain()?;
        let user = self.user.as_deref();
        let groups = self.server.dav.patch(&chain[0], changes, user)?;
        let is_full = groups.iter().any(|(status, _)| *status == Status::INSUFFICIENT_STORAGE);
        let reached =
            is_full.then(|| Box::new(Reached::new(LimitKey::Properties, properties::MAX_BYTES as u64)));
        let resource = Resource { path: &self.path, metadata: &metadata, chain: &chain };
        let mut out = multistatus::BEGIN.to_owned();
        multistatus::response(&members::href(&resource), &groups, &mut out);
        out.push_str(multistatus::END);
        Ok(DavAnswer { reached, ..whole(Status::MULTI_STATUS, out) })
    }

    fn lock(&self, head: &Head, body: &[u8]) -> Result<DavAnswer, Refused> {
        let info = body::lockinfo(body)?;
        let is_deep = condition::lock_is_deep(head)?;
        // No other upload takes the name between the check and the lock.
        let claim = self.claim();
        let _turn = claim.turn(&[&self.path])?;
        let metadata = match self.storage.metadata(&self.path, Wait::Allowed) {
            Ok(metadata) if self.is_directory && !metadata.is_directory() => return refuse_absent(),
            Ok(metadata) => Some(metadata),
            Err(FileError::NotFound) if self.is_directory => {
                return refuse(Status::CONFLICT, "A directory is made with MKCOL.");
            }
            Err(FileError::NotFound) => None,
            Err(error) => return Err(failed(error)),
        };
        let is_directory = metadata.is_some_and(|metadata| metadata.is_directory());
        self.permit_place(is_deep && is_directory)?;
        conditional::check(head, metadata.as_ref())?;
        let chain = self.chain()?;
        if metadata.is_none() {
            self.permit(head, Touch::Name)?;
        }
        let lock = Lock {
            token: token(),
            chain,
            root: multistatus::href(self.path.as_bytes(), is_directory),
            is_exclusive: info.is_exclusive,
            is_deep: is_deep && is_directory,
            owner: info.owner,
            user: self.user.clone(),
            address: self.address,
            until: Instant::now() + condition::timeout(head, LONGEST),
        };
        self.server.dav.give(&lock)?.map_err(|denied| {
            let reached = Reached::new(LimitKey::Locks, locks::MAX_LOCKS as u64);
            let reached = (denied == LockDenied::Full).then(|| Box::new(reached));
            Refused { refusal: denied.refusal(), reached }
        })?;
        if metadata.is_none() {
            // A name that is locked is a file, though an empty one (section 7.3).
            let made = self.storage.open_write(&self.path, WriteMode::CreateNew, Wait::Allowed);
            if let Err(error) = made.and_then(|upload| upload.commit()) {
                self.server.dav.release(&lock);
                return Err(failed(error));
            }
        }
        let status = if metadata.is_some() { Status::OK } else { Status::CREATED };
        let field = Some(("Lock-Token", format!("<{}>", lock.token)));
        Ok(DavAnswer { field, has_made_file: metadata.is_none(), ..discovery(status, &lock) })
    }

    /// A lock is held on: the `If` field says which.
    fn refresh(&self, head: &Head) -> Result<DavAnswer, Refused> {
        let (lists, chain) = (condition::lists(head)?, self.chain()?);
        let left = condition::timeout(head, LONGEST);
        let lock = self.server.dav.refresh(&lists, &chain, self.user.as_deref(), left)?;
        Ok(discovery(Status::OK, &lock))
    }

    fn unlock(&self, head: &Head) -> Result<DavAnswer, Refused> {
        let Some(token) = condition::lock_token(head) else {
            return refuse(Status::BAD_REQUEST, "There is no Lock-Token.");
        };
        self.server.dav.unlock(token, &self.chain()?, self.user.as_deref())?;
        Ok(whole(Status::NO_CONTENT, String::new()))
    }
}

pub(crate) fn whole(status: Status, body: String) -> DavAnswer {
    let content = DavContent::Whole(body.into_bytes());
    let media_type = multistatus::MEDIA_TYPE;
    DavAnswer { status, field: None, media_type, content, reached: None, has_made_file: false }
}

pub(crate) fn no_infinity() -> DavAnswer {
    let body = "<?xml version=\"1.0\" encoding=\"utf-8\"?>\n\
                <D:error xmlns:D=\"DAV:\"><D:propfind-finite-depth/></D:error>\n";
    whole(Status::FORBIDDEN, body.to_owned())
}

/// The body of an answer to `LOCK`.
pub(crate) fn discovery(status: Status, lock: &Lock) -> DavAnswer {
    let mut body =
        "<?xml version=\"1.0\" encoding=\"utf-8\"?>\n<D:prop xmlns:D=\"DAV:\"><D:lockdiscovery>".to_owned();
    members::active(lock, &mut body);
    body.push_str("</D:lockdiscovery></D:prop>\n");
    whole(status, body)
}

/// A unique token that cannot be guessed (RFC 4122, version 4).
pub(crate) fn token() -> String {
    let mut bytes = password::random::<16>();
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let hex = |range: Range<usize>| Hex(&bytes[range]);
    format!("urn:uuid:{}-{}-{}-{}-{}", hex(0..4), hex(4..6), hex(6..8), hex(8..10), hex(10..16))
}
