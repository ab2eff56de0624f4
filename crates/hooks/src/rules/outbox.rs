//! Deliveries of a chain, which the queue stores until they are delivered.

use std::ffi::OsString;

use millrace_vfs::VirtualPath;

use super::performing::taken_for_option;
use super::{Action, Rule};
use crate::EventContext;
use crate::delivery::{Delivery, Recipient};
use crate::facts::{self, Facts, TakenForOption};

/// The queued deliveries of a chain.
#[derive(Default)]
pub(super) struct Outbox<'a> {
    pub(super) written: Vec<Delivery>,
    /// Rules whose deliveries say where the file is: it has no name yet.
    early: Vec<&'a Rule>,
    /// Events that could not be stored, for the log.
    pub(super) refused: Vec<String>,
}

impl<'a> Outbox<'a> {
    pub(super) fn write(&mut self, rule: &'a Rule, context: &EventContext, path: Option<&VirtualPath>) {
        match context.is_pending() {
            true => self.early.push(rule),
            false => self.add(rule, context, path),
        }
    }

    fn add(&mut self, rule: &Rule, context: &EventContext, path: Option<&VirtualPath>) {
        match rule.delivery(context, path) {
            Ok(delivery) => self.written.extend(delivery),
            Err(error) => self.refused.push(taken_for_option(rule, &Facts::new(context, path), error)),
        }
    }

    /// The upload takes its name, if it has not, and what waited for that is written; false where it cannot.
    pub(super) fn name(&mut self, context: &EventContext, path: Option<&VirtualPath>) -> bool {
        let is_named = context.commit();
        for rule in std::mem::take(&mut self.early).into_iter().filter(|_| is_named) {
            self.add(rule, context, path);
        }
        is_named
    }
}

impl Rule {
    /// The event as it is put into the queue.
    pub(super) fn delivery(
        &self,
        context: &EventContext,
        path: Option<&VirtualPath>,
    ) -> Result<Option<Delivery>, TakenForOption> {
        let facts = Facts::new(context, path);
        let milliseconds = u64::try_from(self.time_limit.as_millis()).unwrap_or(u64::MAX);
        let body = facts.json();
        Ok(match &self.action {
            Action::Webhook { url, batch, credentials } => {
                let (url, shows) = (url.clone(), credentials.number());
                let to = Recipient::Webhook { url, batch: *batch, milliseconds, shows };
                Some(Delivery { to, body, words: Vec::new(), variables: Vec::new() })
            }
            Action::Run(words) => {
                let words: Result<Vec<OsString>, _> =
                    words.iter().map(|word| word.argument(&facts)).collect();
                let words = words?;
                let Some(first) = words.first() else { return Ok(None) };
                let name = first.to_string_lossy().into_owned();
                let variables = facts.environment();
                let variables = variables.iter().flat_map(|(name, value)| [&**name, &**value]);
                Some(Delivery {
                    to: Recipient::Program { name, milliseconds },
                    body,
                    words: facts::pack(words.iter().map(|word| &**word)),
                    variables: facts::pack(variables),
                })
            }
            _ => None,
        })
    }
}
