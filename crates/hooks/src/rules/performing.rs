//! Performs one rule's action: a refusal, another path, a program, a webhook. It interprets the answers of programs and
//! receivers, and their failures.

use millrace_vfs::VirtualPath;
use serde::Deserialize;

use super::moving::move_file;
use super::{Action, Rule, Rules};
use crate::facts::{Facts, TakenForOption, Template};
use crate::webhook::Webhook;
use crate::{EventContext, HEARD, Refusal};
use millrace_process::{Ended, How, Program, Purpose, Recall};

/// The answer of a program or receiver, beyond success or failure.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Said {
    refuse: Option<String>,
    path: Option<String>,
}

/// For the log.
pub(super) fn taken_for_option(rule: &Rule, facts: &Facts<'_>, error: TakenForOption) -> String {
    format!("hooks: error: {}, {}, is not run: {error}", rule.action.name(facts), facts.told())
}

impl Rules {
    /// Does what a rule says, at once; answers the new place of the file if it has one.
    pub(super) fn perform(
        &self,
        rule: &Rule,
        webhook: Option<&Webhook>,
        context: &EventContext,
        path: Option<&VirtualPath>,
    ) -> Result<Option<VirtualPath>, Refusal> {
        let facts = Facts::new(context, path);
        match (&rule.action, webhook) {
            (Action::Refuse(text), _) => Err(Refusal::new(text)),
            (Action::Rewrite(template), _) => match rule.rewrites(context)? {
                true => Ok(template.path(&facts)),
                false => Ok(None),
            },
            (Action::Move(template), _) => match (&context.storage, path, template.path(&facts)) {
                (Some(storage), Some(from), Some(to)) => match move_file(&**storage, from, &to) {
                    Ok(()) => Ok(Some(to)),
                    Err(error) => {
                        self.warn(&format!("hooks: {from} cannot be moved to {to}: {error}"));
                        Err(Refusal::for_now("451 The file arrived, and could not be put in its place."))
                    }
                },
                _ => Ok(None),
            },
            (Action::Run(words), _) => self.run(rule, words, &facts, &context.recall),
            (Action::Webhook { credentials, .. }, Some(webhook)) => {
                match webhook.post(credentials, None, facts.json().as_bytes()) {
                    Ok(answer) => self.read_answer(rule, &facts, &answer),
                    Err(error) => self.failed(rule, &facts, &error.to_string()),
                }
            }
            (Action::Webhook { .. }, None) | (Action::Verify(_), _) => Ok(None),
        }
    }

    fn run(
        &self,
        rule: &Rule,
        words: &[Template],
        facts: &Facts<'_>,
        recall: &Recall,
    ) -> Result<Option<VirtualPath>, Refusal> {
        let words = match words.iter().map(|word| word.argument(facts)).collect() {
            Ok(words) => words,
            // Whatever is to follow a failure: a client could choose it.
            Err(error) => {
                self.warn(&taken_for_option(rule, facts, error));
                return Err(Refusal::new("553 A name that begins with a hyphen is not accepted here."));
            }
        };
        let program = Program {
            words,
            environment: facts.environment(),
            time: rule.time_limit,
            most: HEARD,
            purpose: Purpose::Work,
        };
        match program.run_unless(recall, facts.json().as_bytes()) {
            _ if recall.is_given() => Err(Refusal::of_giving_up()),
            Ok(Ended { how: How::Exited(0), output, .. }) if facts.is_taken() => {
                facts.note_taken();
                self.read_answer(rule, facts, &output)
            }
            Ok(ended) => match ended.how {
                How::Exited(0) => self.read_answer(rule, facts, &ended.output),
                How::Exited(_) => Err(Refusal::new(&String::from_utf8_lossy(&ended.output))),
                how => {
                    let errors = String::from_utf8_lossy(&ended.complaints);
                    self.failed(rule, facts, &format!("it {how} {}", errors.trim()))
                }
            },
            Err(error) => self.failed(rule, facts, &format!("it cannot be run: {error}")),
        }
    }

    /// Parses a successful answer: empty, or JSON.
    fn read_answer(
        &self,
        rule: &Rule,
        facts: &Facts<'_>,
        answer: &[u8],
    ) -> Result<Option<VirtualPath>, Refusal> {
        if !answer.trim_ascii().starts_with(b"{") {
            return Ok(None);
        }
        match serde_json::from_slice::<Said>(answer) {
            Ok(Said { refuse: Some(text), .. }) => Err(Refusal::new(&text)),
            Ok(Said { path: Some(path), .. }) => match VirtualPath::parse(path.as_bytes()) {
                Ok(path) => Ok(Some(path)),
                Err(error) => self.failed(rule, facts, &format!("{path:?} is no path: {error}")),
            },
            Ok(_) => Ok(None),
            Err(error) => self.failed(rule, facts, &format!("what it says is not understood: {error}")),
        }
    }

    fn failed(&self, rule: &Rule, facts: &Facts<'_>, what: &str) -> Result<Option<VirtualPath>, Refusal> {
        self.warn(&format!("hooks: {}, {}: {}", rule.action.name(facts), facts.told(), what.trim_end()));
        match rule.refuses_on_failure {
            true => Err(Refusal::for_now("451 This cannot be checked at the moment; try again later.")),
            false => Ok(None),
        }
    }
}
