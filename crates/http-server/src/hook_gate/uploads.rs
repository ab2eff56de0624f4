//! An upload that is whole: hooks have their word before the client hears, and before it takes its name where it can
//! wait for that.

use std::sync::Arc;

use millrace_hooks::{Event, EventContext, HookVerdict, Refusal, Rules};
use millrace_log::Direction;
use millrace_metrics::{Cause, Waited};
use millrace_vfs::Conversion;

use crate::answer::Answers;
use crate::hook_gate::HookGate;
use crate::hook_gate::status_of_hook;
use crate::hook_state::Then;
use crate::notices::batch::Heed;
use crate::notices::{Notices, undecided};
use crate::record::Record;
use crate::refused::Refused;
use crate::tus_work::piece::Whole;
use crate::upload_outcome::{AnswerFields, Settled, Unnamed, UploadNaming, of_refusals};

impl HookGate<'_> {
    /// A file has arrived, and takes its name after the hooks' verdict.
    pub(crate) fn conclude_unnamed(&mut self, mut record: Record, unnamed: Unnamed) {
        let Unnamed { upload, path, bytes, commit, settle, fields } = unnamed;
        let why = |refused: &Refused| refused.refusal.reason.to_owned();
        let (pending, naming) = UploadNaming::begin(upload, commit, why);
        record.waits.note(None, self.core.now.instant);
        let context = Notices::of(self.connection).moment_of(self.core, Event::Upload, &record, bytes, None);
        let undecided = Some(undecided(self.connection, self.core, context.waited));
        let pending = Some(pending);
        let context = EventContext { path: path.or(context.path), pending, undecided, ..context };
        let told = naming.clone();
        let heed = settle.map(|settle| -> Heed {
            Box::new(move |verdict| {
                settle(match verdict {
                    HookVerdict::Refuse(_) => Settled::Refused,
                    _ if told.was_tried() => Settled::Tried,
                    _ => Settled::Taken,
                });
            })
        });
        // Without hooks (any more), it is accepted.
        let hooks = self.core.server.hooks().unwrap_or_else(|| Arc::new(Rules::new(Vec::new(), None)));
        record.waits.note(Some(Cause::Hook), self.core.now.instant);
        let then = Then::Named(Box::new(record), naming, fields);
        self.submit(hooks, vec![context], then, heed);
    }

    /// The hooks' verdict has arrived, or the file could not take its name.
    pub(crate) fn answer_named(
        &mut self,
        record: Record,
        naming: &UploadNaming,
        mut fields: AnswerFields,
        refusal: Option<&Refusal>,
    ) {
        let (status, reason) = match (naming.take(), refusal) {
            (Some(Err(Refused { refusal, reached })), _) => {
                Answers::new(self.connection, self.core).tell_limit(reached.as_deref());
                (refusal.status, refusal.reason)
            }
            (_, Some(refusal)) => (status_of_hook(refusal), refusal.text()),
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
    pub(crate) fn conclude_upload(&mut self, mut record: Record, fields: AnswerFields, whole: Whole) {
        let Whole { key, path, length } = whole;
        let context = Notices::of(self.connection).moment_of(self.core, Event::Upload, &record, length, None);
        // Its pieces have waited, and were told by themselves.
        let context = EventContext { path: Some(path), waited: Waited::default(), ..context };
        match self.core.server.hooks().filter(|hooks| hooks.concerns(Event::Upload, "PUT")) {
            Some(hooks) => {
                let server = Arc::clone(&self.core.server);
                let heed: Heed = Box::new(move |verdict| {
                    server.tus.settle(&key, !matches!(verdict, HookVerdict::Refuse(_)));
                });
                record.waits.note(Some(Cause::Hook), self.core.now.instant);
                let then = Then::Answer(Box::new(record), fields);
                let context = EventContext {
                    undecided: Some(undecided(self.connection, self.core, context.waited)),
                    ..context
                };
                self.submit(hooks, vec![context], then, Some(heed));
            }
            None => {
                Notices::of(self.connection).log_transferred(
                    self.core,
                    Direction::Upload,
                    &context,
                    (length, None, Conversion::default()),
                    None,
                );
                self.core.server.tus.settle_without_hooks(&key);
                self.answer_done(record, &fields);
            }
        }
    }
}
