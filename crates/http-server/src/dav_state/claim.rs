//! Whether a request may change something: what its `If` field claims, and what locks forbid (RFC 4918 section 7).

use std::cell::OnceCell;
use std::sync::Arc;

use millrace_http::conditional::{ETag, Validators};
use millrace_http::dav::Touch;
use millrace_http::dav::condition::{self, List, State};
use millrace_http::dav::place::{Chain, Place};
use millrace_http::{Head, Refusal, target};
use millrace_vfs::{FileError, Storage, VirtualPath, Wait};

use crate::dav_state::place::chain;
use crate::dav_state::turns::Turn;
use crate::dav_state::{Dav, turns};

/// What it is to write a file at a path. May wait.
pub(crate) fn touch_of(storage: &dyn Storage, path: &VirtualPath) -> Touch {
    match storage.metadata(path, Wait::Allowed) {
        Err(FileError::NotFound) => Touch::Name,
        _ => Touch::Content,
    }
}

/// A request that wants to change something.
pub(crate) struct Claim<'a> {
    pub(crate) dav: &'a Dav,
    pub(crate) storage: &'a Arc<dyn Storage>,
    pub(crate) user: Option<&'a [u8]>,
    /// What it is for.
    pub(crate) path: &'a VirtualPath,
}

/// A place that cannot be opened has no locks; the request that uses it reports the error.
fn place_of(storage: &dyn Storage, path: &VirtualPath) -> Option<Chain> {
    chain(storage, path).ok()
}

impl Claim<'_> {
    /// Returns whether the request may do this to these paths. May wait.
    pub(crate) fn permit(&self, head: &Head, touched: &[(&VirtualPath, Touch)]) -> Result<(), Refusal> {
        let lists = condition::lists(head)?;
        self.evaluate(&lists)?;
        if self.dav.is_empty() {
            return Ok(());
        }
        let tokens = condition::tokens(&lists);
        touched.iter().try_for_each(|(path, touch)| {
            let Some(chain) = place_of(&**self.storage, path) else { return Ok(()) };
            self.dav.with(|told| told.locks.check(&chain, *touch, self.user, &tokens))
        })
    }

    /// One of the lists has to hold, where there are any.
    fn evaluate(&self, lists: &[List<'_>]) -> Result<(), Refusal> {
        // A field may have thousands of claims of one resource, which is looked at once.
        let mut known: Option<Looked<'_>> = None;
        condition::check(lists, |resource, state| {
            let looked = match known.take().filter(|known| known.resource == resource) {
                Some(known) => known,
                None => Looked::at(self, resource),
            };
            known.insert(looked).has(state)
        })
    }

    /// The turn to change these paths. May wait, for those who change them now, where not too many do.
    pub(crate) fn turn(&self, paths: &[&VirtualPath]) -> Result<Turn<'_>, Refusal> {
        let place = |path: &&VirtualPath| {
            // Where there is no directory, there is nothing to change.
            let directory = self.storage.metadata(&path.parent(), Wait::Allowed).ok()?;
            Some(Place::within(directory.identity, path.name()))
        };
        turns::take(&self.dav.turns, paths.iter().filter_map(place).collect())
    }

    /// What was at a path is gone: its place, looked at before, has no locks and properties any more.
    pub(crate) fn gone(&self, place: Option<Placed>) {
        if let Some(Placed(place)) = place {
            self.dav.with(|told| {
                told.locks.forget(&place);
                told.properties.forget(&place);
            });
        }
    }

    /// A resource was moved or copied; properties are kept, locks are not.
    pub(crate) fn copied(&self, from: Option<&Placed>, to: Option<&Placed>) {
        if let (Some(Placed(from)), Some(Placed(to))) = (from, to) {
            self.dav.with(|told| told.properties.copy(from, to));
        }
    }

    /// The place of a path, if locks or properties exist. May block.
    pub(crate) fn place(&self, path: &VirtualPath) -> Option<Placed> {
        if self.dav.is_empty() {
            return None;
        }
        let directory = self.storage.metadata(&path.parent(), Wait::Allowed).ok()?;
        Some(Placed(Place::within(directory.identity, path.name())))
    }
}

/// A resource that an `If` field makes claims of.
struct Looked<'a> {
    claim: &'a Claim<'a>,
    /// As it is named.
    resource: Option<&'a [u8]>,
    path: Option<VirtualPath>,
    tag: OnceCell<Option<ETag>>,
    chain: OnceCell<Option<Chain>>,
}

impl<'a> Looked<'a> {
    fn at(claim: &'a Claim<'a>, resource: Option<&'a [u8]>) -> Self {
        let path = match resource {
            None => Some(claim.path.clone()),
            Some(url) => target::parse(url).ok().map(|target| target.path),
        };
        Self { claim, resource, path, tag: OnceCell::new(), chain: OnceCell::new() }
    }

    fn has(&self, state: State<'_>) -> Option<bool> {
        self.path.as_ref()?;
        Some(match state {
            State::Tag(written) => self.tag().is_some_and(|tag| tag.is(written)),
            State::Token(token) => self.has_lock(token),
        })
    }

    fn tag(&self) -> Option<&ETag> {
        let look = || {
            let metadata = self.claim.storage.metadata(self.path.as_ref()?, Wait::Allowed).ok()?;
            Some(Validators::of(&metadata).etag)
        };
        self.tag.get_or_init(look).as_ref()
    }

    fn has_lock(&self, token: &[u8]) -> bool {
        if self.claim.dav.is_empty() {
            return false;
        }
        let look = || place_of(&**self.claim.storage, self.path.as_ref()?);
        let chain = self.chain.get_or_init(look).as_ref();
        chain.is_some_and(|chain| self.claim.dav.with(|told| told.locks.find(token, chain).is_some()))
    }
}

/// Where something is or was.
pub(crate) struct Placed(Place);

/// An error that is as good as not being there.
pub(crate) fn is_absent(error: &FileError) -> bool {
    matches!(error, FileError::NotFound | FileError::NotDirectory)
}
