//! An upload that is whole: hooks have their word before the client hears, and before it takes its name where it can
//! wait for that.

use std::sync::{Arc, Mutex, PoisonError};

use millrace_vfs::{Upload, VirtualPath};

use super::batch::Heed;
use super::{Fields, Then, status_of};
use crate::hooks::{Event, Moment, Pending, Refusal, Rules, Ruling};
use crate::http::answer::Answers;
use crate::http::hooking::HookGate;
use crate::http::hooking::Notices;
use crate::http::record::Record;
use crate::http::tus::{OF_REFUSALS, Whole, lent};
use crate::http::writing::Refused;
use crate::log::Direction;

/// How an upload becomes a file; its tag, where that could be had.
pub(in crate::http) type Committing = dyn FnOnce(Box<dyn Upload>) -> Result<Option<String>, Refused> + Send;

/// What came of an upload that was to take its name: its tag, where that could be had. `None` where it was not to.
pub(super) type Naming = Arc<Mutex<Option<Result<Option<String>, Refused>>>>;

/// What is done after the hooks' verdict, which may refuse or rename the upload.
pub(in crate::http) type Settling = dyn FnOnce(Settled) + Send;

/// What hooks have made of an upload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::http) enum Settled {
    Refused,
    /// They have moved it away before it had a name.
    Taken,
    /// It has its name, or could not take it.
    Tried,
}

/// A file that has come whole, and has no name yet.
pub(in crate::http) struct Unnamed {
    pub(in crate::http) upload: Box<dyn Upload>,
    /// What it is to be called, where that is not the request's path.
    pub(in crate::http) path: Option<VirtualPath>,
    pub(in crate::http) bytes: u64,
    pub(in crate::http) commit: Box<Committing>,
    pub(in crate::http) settle: Option<Box<Settling>>,
    /// Those of the answer.
    pub(in crate::http) fields: Fields,
}

/// Those fields of an answer that belong to a refusal, too.
pub(super) fn of_refusals(fields: &Fields) -> Vec<(&str, &str)> {
    let said = |name: &str| OF_REFUSALS.iter().any(|(of, _)| *of == name);
    lent(fields).into_iter().filter(|(name, _)| said(name)).collect()
}

impl HookGate<'_> {
    /// A file has arrived, and takes its name after the hooks' verdict.
    pub(in crate::http) fn conclude_unnamed(&mut self, record: Record, unnamed: Unnamed) {
        let Unnamed { upload, path, bytes, commit, settle, fields } = unnamed;
        let naming = Naming::default();
        let told = Arc::clone(&naming);
        let pending = Pending::new(upload, move |upload| {
            let named = commit(upload);
            let result = named.as_ref().map(drop).map_err(|refused| refused.refusal.reason.to_owned());
            *told.lock().unwrap_or_else(PoisonError::into_inner) = Some(named);
            result
        });
        let moment = Notices::of(self.connection).moment_of(self.core, Event::Upload, &record, bytes, None);
        let (pending, undecided) = (Some(pending), Some(super::moments::undecided(self.core)));
        let moment = Moment { path: path.or(moment.path), pending, undecided, ..moment };
        let told = Arc::clone(&naming);
        let heed = settle.map(|settle| -> Heed {
            Box::new(move |ruling| {
                let has_tried = told.lock().unwrap_or_else(PoisonError::into_inner).is_some();
                settle(match ruling {
                    Ruling::Refuse(_) => Settled::Refused,
                    _ if has_tried => Settled::Tried,
                    _ => Settled::Taken,
                });
            })
        });
        // Without hooks (any more), it is accepted.
        let hooks = self.core.server.hooks().unwrap_or_else(|| Arc::new(Rules::new(Vec::new(), None)));
        let then = Then::Named(Box::new(record), naming, fields);
        self.submit(hooks, vec![moment], then, heed);
    }

    /// The hooks' verdict has arrived, or the file could not take its name.
    pub(super) fn answer_named(
        &mut self,
        record: Record,
        naming: &Naming,
        mut fields: Fields,
        refusal: Option<&Refusal>,
    ) {
        let named = naming.lock().unwrap_or_else(PoisonError::into_inner).take();
        let (status, reason) = match (named, refusal) {
            (Some(Err(Refused { refusal, reached })), _) => {
                Answers::new(self.connection, self.core).tell_limit(reached.as_deref());
                (refusal.status, refusal.reason)
            }
            (_, Some(refusal)) => (status_of(refusal), refusal.text()),
            // Without a tag also where a hook has taken it elsewhere.
            (named, None) => {
                let tag = named.and_then(Result::ok).flatten();
                fields.extend(tag.map(|tag| ("ETag", tag)));
                return self.answer_done(record, &fields);
            }
        };
        Answers::new(self.connection, self.core).answer_page(record, status, reason, &of_refusals(&fields));
    }

    /// An upload has become its file, maybe in many pieces: as [`Connection::conclude`] for one that came whole.
    pub(in crate::http) fn conclude_upload(&mut self, record: Record, fields: Fields, whole: Whole) {
        let Whole { key, path, length } = whole;
        let moment = Notices::of(self.connection).moment_of(self.core, Event::Upload, &record, length, None);
        let moment = Moment { path: Some(path), ..moment };
        match self.core.server.hooks().filter(|hooks| hooks.concerns(Event::Upload, "PUT")) {
            Some(hooks) => {
                let server = Arc::clone(&self.core.server);
                let heed: Heed = Box::new(move |ruling| {
                    server.tus.settle(&key, !matches!(ruling, Ruling::Refuse(_)));
                });
                let then = Then::Answer(Box::new(record), fields);
                let moment = Moment { undecided: Some(super::moments::undecided(self.core)), ..moment };
                self.submit(hooks, vec![moment], then, Some(heed));
            }
            None => {
                Notices::of(self.connection).log_transferred(
                    self.core,
                    Direction::Upload,
                    &moment,
                    length,
                    None,
                );
                self.core.server.tus.settle(&key, true);
                self.answer_done(record, &fields);
            }
        }
    }
}
