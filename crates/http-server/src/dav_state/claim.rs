//! Whether a request may change something: what its `If` field claims, and what locks forbid (RFC 4918 section 7).

use std::cell::{Cell, OnceCell};
use std::sync::Arc;

use millrace_http::conditional::{ETag, Validators};
use millrace_http::dav::Touch;
use millrace_http::dav::condition::{self, List, State};
use millrace_http::dav::place::{Chain, Place};
use millrace_http::{Field, Head, Refusal, Status, target};
use millrace_vfs::{FileError, Storage, VirtualPath, Wait};

use crate::dav_state::place::chain;
use crate::dav_state::turns::Turn;
use crate::dav_state::{Dav, Told, turns};

/// How many resources of one `If` field a node of a cluster asks about.
const MOST_RESOURCES: usize = 64;
const TOO_MANY: Refusal =
    Refusal { status: Status::BAD_REQUEST, reason: "The If field is about too many resources." };

/// What it is to write a file at a path. May wait.
pub(crate) fn touch_of(storage: &dyn Storage, path: &VirtualPath) -> Touch {
    match storage.metadata(path, Wait::Allowed) {
        Err(FileError::NotFound) => Touch::Name,
        _ => Touch::Content,
    }
}

/// A request that wants to change something.
pub(crate) struct Claim<'a> {
    dav: &'a Dav,
    storage: &'a Arc<dyn Storage>,
    user: Option<&'a [u8]>,
    /// What it is for.
    path: &'a VirtualPath,
    /// Whether a cluster was found to have locks or properties there.
    has_found: Cell<bool>,
    /// Whether it was not looked, as it will be later.
    is_put_off: Cell<bool>,
}

impl<'a> Claim<'a> {
    pub(crate) fn new(
        dav: &'a Dav,
        storage: &'a Arc<dyn Storage>,
        user: Option<&'a [u8]>,
        path: &'a VirtualPath,
    ) -> Self {
        Self { dav, storage, user, path, has_found: Cell::new(false), is_put_off: Cell::new(false) }
    }

    /// Returns whether the request may do this to these paths. May wait.
    pub(crate) fn permit(&self, head: &Head, touched: &[(&VirtualPath, Touch)]) -> Result<(), Refusal> {
        let lists = condition::lists(head)?;
        self.evaluate(&lists)?;
        if self.dav.is_empty() {
            return Ok(());
        }
        let chains: Vec<_> =
            touched.iter().filter_map(|(path, touch)| Some((self.chain(path)?, *touch))).collect();
        let has_found = self.dav.pass(&chains, self.user, &condition::tokens(&lists))?;
        self.has_found.set(has_found);
        Ok(())
    }

    /// The same for a request that [`Claim::permit`] decides again before it changes anything: of a cluster without locks
    /// nothing is asked.
    pub(crate) fn permit_for_now(
        &self,
        head: &Head,
        touched: &[(&VirtualPath, Touch)],
    ) -> Result<(), Refusal> {
        if head.get(Field::If).is_none() && self.dav.had_none() {
            self.is_put_off.set(true);
            return Ok(());
        }
        self.permit(head, touched)
    }

    /// Returns whether nothing was asked, so that it has to be before anything changes.
    pub(crate) fn is_put_off(&self) -> bool {
        self.is_put_off.get()
    }

    /// A place that cannot be opened has no locks; the request that uses it reports the error.
    fn chain(&self, path: &VirtualPath) -> Option<Chain> {
        chain(self.dav, &**self.storage, path).ok()
    }

    /// One of the lists has to hold, where there are any.
    fn evaluate(&self, lists: &[List<'_>]) -> Result<(), Refusal> {
        // A field may have thousands of claims of one resource, which is looked at once.
        let (mut known, trouble): (Option<Looked<'_>>, _) = (None, Cell::new(None));
        let mut count = 0;
        let checked = condition::check(lists, |resource, state| {
            let looked = match known.take().filter(|known| known.resource == resource) {
                Some(known) => known,
                // Each is a question to the database of a cluster.
                None if count == MOST_RESOURCES && self.dav.shared.is_some() => {
                    trouble.set(Some(TOO_MANY));
                    return None;
                }
                None => {
                    count += 1;
                    Looked::at(self, resource)
                }
            };
            known.insert(looked).has(state).unwrap_or_else(|refusal| {
                trouble.set(Some(refusal));
                None
            })
        });
        trouble.take().map_or(checked, Err)
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
            self.dav.gone(&place);
        }
    }

    /// A resource was moved or copied; properties are kept, locks are not.
    pub(crate) fn copied(&self, from: Option<&Placed>, to: Option<&Placed>) {
        if let (Some(Placed(from)), Some(Placed(to))) = (from, to) {
            self.dav.copied(from, to);
        }
    }

    /// The place of a path, if locks or properties exist. May block.
    pub(crate) fn place(&self, path: &VirtualPath) -> Option<Placed> {
        if self.dav.is_empty() || (!self.has_found.get() && self.dav.had_none()) {
            return None;
        }
        let directory = self.storage.metadata(&path.parent(), Wait::Allowed).ok()?;
        Some(Placed(self.dav.place(directory.identity, path.name())))
    }
}

/// A resource that an `If` field makes claims of.
struct Looked<'a> {
    claim: &'a Claim<'a>,
    /// As it is named.
    resource: Option<&'a [u8]>,
    path: Option<VirtualPath>,
    tag: OnceCell<Option<ETag>>,
    /// The tokens of its locks.
    locks: OnceCell<Vec<String>>,
}

impl<'a> Looked<'a> {
    fn at(claim: &'a Claim<'a>, resource: Option<&'a [u8]>) -> Self {
        let path = match resource {
            None => Some(claim.path.clone()),
            Some(url) => target::parse(url).ok().map(|target| target.path),
        };
        Self { claim, resource, path, tag: OnceCell::new(), locks: OnceCell::new() }
    }

    fn has(&self, state: State<'_>) -> Result<Option<bool>, Refusal> {
        if self.path.is_none() {
            return Ok(None);
        }
        Ok(Some(match state {
            State::Tag(written) => self.tag().is_some_and(|tag| tag.is(written)),
            State::Token(token) => self.locks()?.iter().any(|lock| lock.as_bytes() == token),
        }))
    }

    fn tag(&self) -> Option<&ETag> {
        let look = || {
            let metadata = self.claim.storage.metadata(self.path.as_ref()?, Wait::Allowed).ok()?;
            Some(Validators::of(&metadata).etag)
        };
        self.tag.get_or_init(look).as_ref()
    }

    fn locks(&self) -> Result<&[String], Refusal> {
        if let Some(locks) = self.locks.get() {
            return Ok(locks);
        }
        let dav = self.claim.dav;
        let chain = self.path.as_ref().filter(|_| !dav.is_empty()).and_then(|path| self.claim.chain(path));
        let locks = match chain {
            None => Vec::new(),
            Some(chain) => {
                let tokens = |told: &Told| told.locks.at(&chain).map(|lock| lock.token.clone()).collect();
                dav.view(|look| look.at(&chain))?.with(tokens)
            }
        };
        Ok(self.locks.get_or_init(|| locks))
    }
}

/// Where something is or was.
pub(crate) struct Placed(Place);

/// An error that is as good as not being there.
pub(crate) fn is_absent(error: &FileError) -> bool {
    matches!(error, FileError::NotFound | FileError::NotDirectory)
}
