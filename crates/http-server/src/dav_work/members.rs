//! What a resource is like, and all that is in a directory, written as `PROPFIND` wants it.
//!
//! Members are read and written a batch at a time, so that a directory of any length takes the same memory.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use millrace_http::conditional::Validators;
use millrace_http::dav::Name;
use millrace_http::dav::body::Asked;
use millrace_http::dav::locks::Lock;
use millrace_http::dav::multistatus::{self, ActiveLock, Property, Value};
use millrace_http::dav::place::{Chain, Place};
use millrace_http::dav::properties::{LIVE, ON_REQUEST, is_protected};
use millrace_http::{Status, date};
use millrace_limits::Reached;
use millrace_vfs::{Civil, DirEntry, Directory, FileError, Metadata, ReadStream, Storage, VirtualPath};

use crate::dav_state::shared::Look;
use crate::dav_state::{Told, View};
use crate::shared::Http;

/// The size of a write.
const FILL: usize = 64 * 1024;

/// Entries that are read at a time.
const BATCH: usize = 256;

/// An answer of WebDAV's.
#[derive(Debug)]
pub struct DavAnswer {
    pub(crate) status: Status,
    /// A field that goes with it.
    pub(crate) field: Option<(&'static str, String)>,
    pub(crate) media_type: &'static str,
    pub(crate) content: DavContent,
    /// The limit that was in the way.
    pub(crate) reached: Option<Box<Reached>>,
    /// A file was made, of which hooks have not heard.
    pub(crate) has_made_file: bool,
}

#[derive(Debug)]
pub(crate) enum DavContent {
    /// All of it.
    Whole(Vec<u8>),
    /// The first part of it.
    Long(Box<Members>),
}

/// A directory and its members, being written.
#[derive(Debug)]
pub(crate) struct Members {
    server: Arc<Http>,
    storage: Arc<dyn Storage>,
    asked: Asked,
    /// Which directory, and where it is.
    path: VirtualPath,
    identity: (u64, u64),
    chain: Chain,
    directory: Box<dyn Directory>,
    /// Entries that were read, and not written yet.
    entries: VecDeque<DirEntry>,
    /// Locks and properties of these, where they are not this server's own.
    found: Option<Told>,
    is_drained: bool,
    /// Bytes of the stream, and how many of them are gone.
    ready: Vec<u8>,
    gone: usize,
}

/// A resource and the requested properties.
pub(crate) struct Resource<'a> {
    pub(crate) path: &'a VirtualPath,
    pub(crate) metadata: &'a Metadata,
    pub(crate) chain: &'a [Place],
}

/// Writes a resource and, where `beneath` says so, its members.
pub(crate) fn write(
    server: &Arc<Http>,
    storage: &Arc<dyn Storage>,
    asked: Asked,
    resource: &Resource<'_>,
    beneath: bool,
) -> Result<DavContent, FileError> {
    let mut out = multistatus::BEGIN.to_owned();
    let view = server.dav.view_for(&asked, |look| look.at(resource.chain).properties(&resource.chain[0]));
    respond((server, &view), storage, &asked, resource, &mut out);
    if !beneath || !resource.metadata.is_directory() {
        out.push_str(multistatus::END);
        return Ok(DavContent::Whole(out.into_bytes()));
    }
    let mut members = Members {
        server: Arc::clone(server),
        storage: Arc::clone(storage),
        asked,
        path: resource.path.clone(),
        identity: resource.metadata.identity,
        chain: resource.chain.to_vec(),
        directory: storage.open_directory(resource.path)?,
        entries: VecDeque::new(),
        found: None,
        is_drained: false,
        ready: out.into_bytes(),
        gone: 0,
    };
    while members.ready.len() < FILL && !members.is_drained {
        members.fill()?;
    }
    Ok(match members.is_drained {
        true => DavContent::Whole(members.ready),
        false => DavContent::Long(Box::new(members)),
    })
}

impl Members {
    /// Writes one member more, or the end. May wait.
    ///
    /// Never a whole batch: a request for a thousand names gets a thousand lines for each member.
    fn fill(&mut self) -> Result<(), FileError> {
        if self.entries.is_empty() {
            let mut entries = Vec::new();
            self.directory.next_batch(&mut entries, BATCH)?;
            self.entries = entries.into();
            self.look_up();
        }
        let mut out = String::new();
        match self.entries.pop_front() {
            Some(entry) => self.write(&entry, &mut out),
            None => {
                out.push_str(multistatus::END);
                self.is_drained = true;
            }
        }
        self.ready.extend_from_slice(out.as_bytes());
        Ok(())
    }

    /// Looks up the locks and properties of the entries that were read.
    fn look_up(&mut self) {
        let server = Arc::clone(&self.server);
        let look = |look: Look| {
            let places = self.entries.iter().map(|entry| server.dav.place(self.identity, &entry.name));
            places.fold(look.at(&self.chain), |look, place| {
                look.at(std::slice::from_ref(&place)).properties(&place)
            })
        };
        self.found = match server.dav.view_for(&self.asked, look) {
            View::Found(told) => Some(*told),
            View::Own(_) | View::Seen(_) => None,
        };
    }

    pub(crate) fn write(&self, entry: &DirEntry, out: &mut String) {
        let Ok(path) = self.path.join(&entry.name) else { return };
        let mut chain = vec![self.server.dav.place(self.identity, &entry.name)];
        chain.extend_from_slice(&self.chain);
        let resource = Resource { path: &path, metadata: &entry.metadata, chain: &chain };
        let view = self.found.as_ref().map_or(View::Own(&self.server.dav), View::Seen);
        respond((&self.server, &view), &self.storage, &self.asked, &resource, out);
    }
}

/// Read once, from its start: the offset is where the last read ended.
impl ReadStream for Members {
    fn size(&self) -> Option<u64> {
        None
    }

    fn read_at(&mut self, _: u64, buffer: &mut [u8]) -> Result<usize, FileError> {
        if self.gone == self.ready.len() {
            self.ready.clear();
            self.gone = 0;
        }
        while self.ready.len() < FILL && self.gone == 0 && !self.is_drained {
            self.fill()?;
        }
        let left = &self.ready[self.gone..];
        let count = buffer.len().min(left.len());
        buffer[..count].copy_from_slice(&left[..count]);
        self.gone += count;
        Ok(count)
    }
}

fn respond(
    (server, view): (&Http, &View<'_>),
    storage: &Arc<dyn Storage>,
    asked: &Asked,
    resource: &Resource<'_>,
    out: &mut String,
) {
    let dead = || {
        let place = resource.chain.first().filter(|_| !view.is_empty());
        place.and_then(|place| view.with(|told| told.properties.of(place).cloned())).unwrap_or_default()
    };
    let live = |local: &str| value((server, view), storage, resource, local);
    let (mut there, mut missing) = (Vec::<Property>::new(), Vec::<Property>::new());
    match asked {
        Asked::Names => {
            there.extend(
                LIVE.iter().filter(|local| live(local).is_some()).map(|local| (Name::dav(local), None)),
            );
            there.extend(dead().into_keys().map(|name| (name, None)));
        }
        Asked::All(more) => {
            let more = more.iter().filter_map(Name::as_dav).filter(|local| ON_REQUEST.contains(local));
            let told = LIVE.into_iter().chain(more);
            there.extend(told.filter_map(|local| live(local).map(|value| (Name::dav(local), Some(value)))));
            there.extend(dead().into_iter().map(|(name, value)| (name, Some(Value::Element(value)))));
        }
        Asked::These(names) => {
            let dead = dead();
            for name in names {
                let value = match name.as_dav().filter(|_| is_protected(name)) {
                    Some(local) => live(local),
                    None => dead.get(name).cloned().map(Value::Element),
                };
                match value {
                    Some(value) => there.push((name.clone(), Some(value))),
                    None => missing.push((name.clone(), None)),
                }
            }
        }
    }
    let mut groups = vec![(Status::OK, there), (Status::NOT_FOUND, missing)];
    groups.retain(|(status, properties)| !properties.is_empty() || *status == Status::OK);
    if groups.len() > 1 && groups[0].1.is_empty() {
        groups.remove(0);
    }
    multistatus::response(&href(resource), &groups, out);
}

/// The link to a resource.
pub(crate) fn href(resource: &Resource<'_>) -> String {
    multistatus::href(resource.path.as_bytes(), resource.metadata.is_directory())
}

/// The value of a property that we know of.
fn value(
    (server, view): (&Http, &View<'_>),
    storage: &Arc<dyn Storage>,
    resource: &Resource<'_>,
    local: &str,
) -> Option<Value> {
    let Resource { path, metadata, chain } = resource;
    let is_file = !metadata.is_directory();
    let inner = |text: &str| Some(Value::Inner(text.to_owned()));
    match local {
        "creationdate" => metadata.created.map(|created| {
            let civil = Civil::from_seconds(created.seconds);
            Value::Inner(format!(
                "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}Z",
                civil.year, civil.month, civil.day, civil.hour, civil.minute, civil.second
            ))
        }),
        "displayname" => Some(Value::text(&String::from_utf8_lossy(path.name()))),
        "getcontentlength" if is_file => inner(&metadata.size.to_string()),
        "getcontenttype" if is_file => inner(&server.web().types.of(path.name())),
        "getetag" if is_file => {
            let tag = Validators::of(metadata).etag;
            Some(Value::text(&tag.to_string()))
        }
        "getlastmodified" => {
            let mut text = Vec::new();
            date::write(Validators::of(metadata).modified, &mut text);
            inner(&String::from_utf8_lossy(&text))
        }
        "resourcetype" => inner(if is_file { "" } else { "<D:collection/>" }),
        "supportedlock" => {
            let entry = |scope: &str| {
                format!(
                    "<D:lockentry><D:lockscope><D:{scope}/></D:lockscope><D:locktype><D:write/></D:locktype></D:lockentry>"
                )
            };
            inner(&[entry("exclusive"), entry("shared")].concat())
        }
        "lockdiscovery" if view.is_empty() => inner(""),
        "lockdiscovery" => {
            let mut out = String::new();
            view.with(|told| told.locks.at(chain).for_each(|lock| active(lock, &mut out)));
            Some(Value::Inner(out))
        }
        "quota-available-bytes" => storage.space(path).ok().map(|space| number(space.available)),
        "quota-used-bytes" => storage.space(path).ok().map(|space| number(space.total - space.available)),
        _ => None,
    }
}

fn number(number: u64) -> Value {
    Value::Inner(number.to_string())
}

/// Appends a lock as `lockdiscovery` has it.
pub(crate) fn active(lock: &Lock, out: &mut String) {
    let active = ActiveLock {
        is_exclusive: lock.is_exclusive,
        is_deep: lock.is_deep,
        owner: lock.owner.as_deref(),
        seconds: lock.until.saturating_duration_since(Instant::now()).as_secs(),
        token: &lock.token,
        root: &lock.root,
    };
    multistatus::active_lock(&active, out);
}
