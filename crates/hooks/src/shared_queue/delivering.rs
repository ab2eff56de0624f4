//! Delivers some events of one receiver, and keeps what came of them.

use std::collections::VecDeque;
use std::slice;
use std::time::{Duration, Instant};

use millrace_cluster::{Epoch, Failure, Settlement, SharedEvent};

use super::courier::Courier;
use crate::delivery::Recipient;
use crate::delivery_state::{FIRST_PAUSE, LONGEST_PAUSE, PROGRAM_TRIES};
use crate::facts;
use crate::posting::{self, Door, Told};
use crate::webhook::DeliveryError;

/// How long a node delivers before it says what was delivered.
const SILENCE: Duration = Duration::from_millis(500);

/// The delivery of events to one receiver, by a node under its epoch.
pub(super) struct Delivering<'a> {
    pub(super) courier: &'a Courier,
    pub(super) epoch: Epoch,
    pub(super) to: &'a Recipient,
    pub(super) door: &'a Door,
}

impl Delivering<'_> {
    /// Delivers these in their order, of which the first was tried so often; as many as there is time for.
    pub(super) fn run(&self, events: &[SharedEvent], mut tries: u32) -> Settlement {
        let mut done = Settlement::default();
        let begun = Instant::now();
        let mut posts: VecDeque<&[SharedEvent]> = events.chunks(self.to.together()).collect();
        while let Some(post) = posts.pop_front() {
            // A turn that says nothing would be repeated for ever, where a batch is refused slowly.
            let has_news = !(done.delivered.is_empty() && done.parked.is_empty());
            if has_news && begun.elapsed() > SILENCE || !self.courier.may_deliver(self.epoch) {
                break;
            }
            match self.tell(post) {
                Ok(()) => done.delivered.extend(post.iter().map(|event| event.id.clone())),
                Err(DeliveryError::Permanent(_)) if post.len() > 1 => {
                    // One of them is to blame: one by one, to find out which.
                    post.iter().rev().for_each(|event| posts.push_front(slice::from_ref(event)));
                    continue;
                }
                Err(error) => {
                    tries += 1;
                    if !self.gives_up(&error, tries) {
                        done.failure = Some(self.failure(&error, tries));
                        break;
                    }
                    self.warn(&format!("{} event(s) for {} put aside: {error}", post.len(), self.to.name()));
                    done.parked.extend(post.iter().map(|event| (event.id.clone(), told_of(&error))));
                }
            }
            tries = 0;
        }
        done
    }

    fn gives_up(&self, error: &DeliveryError, tries: u32) -> bool {
        match error {
            DeliveryError::Permanent(_) => true,
            DeliveryError::Retryable(_) => self.door.is_program() && tries >= PROGRAM_TRIES,
        }
    }

    fn tell(&self, post: &[SharedEvent]) -> Result<(), DeliveryError> {
        let told = |event: &SharedEvent| event.id.clone();
        let id = match post {
            [] => return Ok(()),
            [one] => told(one),
            // Of events of several nodes, unlike those of one, the numbers do not say how many there are.
            [first, .., last] => format!("{}-{}-{}", told(first), told(last), post.len()),
        };
        let is_ours = |event: &SharedEvent| self.courier.shared.may_run(&facts::unpack(&event.words));
        if self.door.is_program() && !post.iter().all(is_ours) {
            let why = "no hook of this node runs the program with such words";
            return Err(DeliveryError::Retryable(why.to_owned()));
        }
        let events: Vec<Told<'_>> = post
            .iter()
            .map(|SharedEvent { id, body, words, variables, .. }| Told {
                id: id.clone(),
                body,
                words,
                variables,
            })
            .collect();
        let credentials = self.courier.shared.credentials(self.to);
        posting::tell(self.to, self.door, &credentials, &id, &events)
    }

    fn failure(&self, error: &DeliveryError, tries: u32) -> Failure {
        if tries == 1 {
            self.warn(&format!("{} does not take events: {error}; they wait", self.to.name()));
        }
        let pause = (FIRST_PAUSE * 2u32.pow(tries.min(10) - 1)).min(LONGEST_PAUSE);
        Failure { trouble: told_of(error), tries, pause: pause.as_secs_f64() }
    }

    fn warn(&self, text: &str) {
        (self.courier.shared.warn)(&format!("hooks: {text}"));
    }
}

/// An error as the database can keep it: a program may have written anything.
fn told_of(error: &DeliveryError) -> String {
    error.to_string().replace('\0', " ")
}
