//! What rules tell later: the letters of a chain, which the queue keeps until they are delivered.

use std::ffi::OsString;

use millrace_vfs::VirtualPath;

use super::{Action, Rule};
use crate::Moment;
use crate::delivery::{Letter, Recipient};
use crate::facts::{self, Facts};

/// What a chain tells by the queue.
#[derive(Default)]
pub(super) struct Letters<'a> {
    pub(super) written: Vec<Letter>,
    /// Rules whose letters say where the file is: it has no name yet.
    early: Vec<&'a Rule>,
}

impl<'a> Letters<'a> {
    pub(super) fn write(&mut self, rule: &'a Rule, moment: &Moment, path: Option<&VirtualPath>) {
        match moment.is_pending() {
            true => self.early.push(rule),
            false => self.written.extend(rule.letter(moment, path)),
        }
    }

    /// The upload takes its name, if it has not, and what waited for that is written; false where it cannot.
    pub(super) fn name(&mut self, moment: &Moment, path: Option<&VirtualPath>) -> bool {
        let is_named = moment.commit();
        let early = std::mem::take(&mut self.early).into_iter().filter(|_| is_named);
        self.written.extend(early.filter_map(|rule| rule.letter(moment, path)));
        is_named
    }
}

impl Rule {
    /// The event as it is put into the queue.
    pub(super) fn letter(&self, moment: &Moment, path: Option<&VirtualPath>) -> Option<Letter> {
        let facts = Facts::new(moment, path);
        let milliseconds = u64::try_from(self.time_limit.as_millis()).unwrap_or(u64::MAX);
        let body = facts.json();
        match &self.action {
            Action::Webhook { url, batch, credentials } => {
                let (url, shows) = (url.clone(), credentials.number());
                let to = Recipient::Webhook { url, batch: *batch, milliseconds, shows };
                Some(Letter { to, body, words: Vec::new(), variables: Vec::new() })
            }
            Action::Run(words) => {
                let words: Vec<OsString> = words.iter().map(|word| word.argument(&facts)).collect();
                let name = words.first()?.to_string_lossy().into_owned();
                let variables = facts.environment();
                let variables = variables.iter().flat_map(|(name, value)| [&**name, &**value]);
                Some(Letter {
                    to: Recipient::Program { name, milliseconds },
                    body,
                    words: facts::pack(words.iter().map(|word| &**word)),
                    variables: facts::pack(variables),
                })
            }
            _ => None,
        }
    }
}
