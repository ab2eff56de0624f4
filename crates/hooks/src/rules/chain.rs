//! The chain of rules for one moment: each has before it what those before have made of the file, and of a file and its
//! hash, of which one has waited for the other, both go on.

use millrace_ftp::digest::Algorithm;
use millrace_vfs::{VirtualPath, Wait};

use super::outbox::Outbox;
use super::{Action, Rule, Rules};
use crate::verify::{self, Pair, Turn};
use crate::{Event, EventContext, Refusal};
use millrace_process::Recall;

/// The result of one rule of a chain.
enum Done<'a> {
    /// The chain goes on.
    On,
    /// It goes on with the file at another place.
    At(VirtualPath),
    /// It does not go on before something else has come.
    Waits,
    /// It goes on, and after it that of a hash which has waited for this file.
    Before(Box<EventContext>, Turn<'a>),
}

impl Rules {
    /// Runs the chain for one event, from one of the rules on, with the file's present path. A file is not verified
    /// twice by the same algorithm (`verified`). A file that `has_waited` was acknowledged, so it stays if its rules
    /// fail now.
    pub(super) fn chain(
        &self,
        first: usize,
        context: &EventContext,
        mut verified: Vec<Algorithm>,
        has_waited: bool,
    ) -> Result<Option<VirtualPath>, Refusal> {
        let mut path = context.path.clone();
        let (mut outbox, mut after) = (Outbox::default(), Vec::new());
        for (at, rule) in self.rules.iter().enumerate().skip(first).filter(|(_, rule)| rule.matches(context))
        {
            let done = match (rule.waits(context.event), &rule.action, &path) {
                (false, ..) => {
                    outbox.write(rule, context, path.as_ref().or(context.path.as_ref()));
                    Ok(Done::On)
                }
                (true, Action::Move(_), _) if !outbox.name(context, path.as_ref()) => return Ok(path),
                (true, Action::Verify(algorithm), Some(path)) => {
                    self.verify(at, *algorithm, context, path, &mut verified)
                }
                (true, ..) => self
                    .perform(rule, self.webhooks[at].as_ref(), context, path.as_ref())
                    .map(|moved| moved.map_or(Done::On, Done::At)),
            };
            match done {
                _ if context.is_given_up() => return Err(self.give_up(rule, context, path.as_ref())),
                Ok(Done::On) if context.is_taken() && path == context.path => path = None,
                Ok(Done::On) => {}
                Ok(Done::At(_)) if !outbox.name(context, path.as_ref()) => return Ok(path),
                Ok(Done::At(moved)) => path = Some(moved),
                Ok(Done::Waits) => break,
                Ok(Done::Before(sum, turn)) => after.push((at + 1, sum, turn)),
                Err(refusal) => {
                    if context.event == Event::Upload && !(has_waited && refusal.is_passing) {
                        self.put_away(rule, context, path.as_ref());
                    }
                    return Err(refusal);
                }
            }
        }
        if context.is_given_up() && context.is_pending() {
            return Err(Refusal::of_giving_up());
        }
        if !outbox.name(context, path.as_ref()) {
            return Ok(path);
        }
        outbox.refused.iter().for_each(|why| self.warn(why));
        if let (false, Some(queue)) = (outbox.written.is_empty(), self.queue.get()) {
            queue.put(context.session, outbox.written).map_err(|error| self.broken(&error))?;
        }
        // From the last to the first: what a chain comes to is behind the rules that this one still has a turn at.
        while let Some((first, sum, _turn)) = after.pop() {
            // The file is accepted, whatever becomes of the hash.
            let _ = self.go_on(first, &sum, &verified);
        }
        Ok(path)
    }

    /// The client does not wait: what has not been done is not done.
    fn give_up(&self, rule: &Rule, context: &EventContext, path: Option<&VirtualPath>) -> Refusal {
        if context.event == Event::Upload {
            self.put_away(rule, context, path);
        }
        Refusal::of_giving_up()
    }

    /// The rest of a chain for a file that has waited.
    fn go_on(&self, first: usize, context: &EventContext, verified: &[Algorithm]) -> Result<(), Refusal> {
        let gone_on = self.chain(first, context, verified.to_vec(), true);
        // A file whose rules fail waits on.
        let refused = gone_on.as_ref().err().filter(|refusal| !refusal.is_passing);
        if let Some(refusal) = refused {
            self.tell_refused(context, refusal);
        }
        gone_on.map(drop)
    }

    /// A refused upload is one that failed.
    pub(super) fn tell_refused(&self, context: &EventContext, refusal: &Refusal) {
        let reason = Some(format!("refused: {}", refusal.text()));
        let recall = Recall::default();
        let (event, pending, undecided) = (Event::UploadFailed, None, None);
        let failed = EventContext { event, reason, recall, pending, undecided, ..context.clone() };
        let _ = self.chain(0, &failed, Vec::new(), false);
    }

    /// Holds a file to its hash, once both are there. Of the two the file goes on first, so that a hash is nowhere
    /// without its file.
    fn verify(
        &self,
        at: usize,
        algorithm: Algorithm,
        context: &EventContext,
        path: &VirtualPath,
        verified: &mut Vec<Algorithm>,
    ) -> Result<Done<'_>, Refusal> {
        let (Some(storage), Some(pair)) = (&context.storage, Pair::of(path, algorithm)) else {
            return Ok(Done::On);
        };
        if verified.contains(&algorithm) {
            return Ok(Done::On);
        }
        let turn = verify::take(&self.turns, at, &**storage, &pair);
        let pair = if *path == pair.sum { pair } else { pair.found_in(&**storage, algorithm) };
        let preview = context.preview();
        if preview.is_none() && !context.commit() {
            return Ok(Done::Waits);
        }
        if !pair.compare(&**storage, algorithm, preview.map(|handle| (path, handle)))? {
            // While it is this one's turn: the other is to find it.
            context.commit();
            return Ok(Done::Waits);
        }
        verified.push(algorithm);
        let is_sum = *path == pair.sum;
        let other = if is_sum { pair.file } else { pair.sum };
        let bytes = storage.metadata(&other, Wait::Allowed).ok().map(|file| file.size);
        let argument = other.as_bytes().to_vec();
        // The client takes it for stored, even if it does not wait for this reply.
        let (path, elapsed, recall) = (Some(other), None, Recall::default());
        let unlike = EventContext { path, argument, bytes, elapsed, recall, ..context.clone() };
        let other = EventContext { pending: None, undecided: None, ..unlike };
        match is_sum {
            true => self.go_on(at + 1, &other, verified).map(|()| Done::On),
            false => Ok(Done::Before(Box::new(other), turn)),
        }
    }
}
