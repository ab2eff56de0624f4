//! Configured hooks: rules, each with the events that it is about and one action.
//!
//! Rules are evaluated in order, and those that match form a chain: the next rule sees a rewritten path or a moved
//! file, and a refusal ends it. Events that no session waits for go to the queue, and are stored before the client gets
//! its reply.
//!
//! A staged upload has no name until the chain has passed it, moves it, or has it wait for another: a refusal before
//! that leaves what had the name.

mod about;
mod chain;
mod moving;
mod outbox;
mod performing;
mod rule;

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use millrace_cluster::Cluster;

use self::about::first_word;
pub use self::rule::{Action, Rule};
use super::backlog::Backlog;
use super::delivery::Warn;
use super::facts::Facts;
use super::queue::Queue;
use super::queue_error::QueueError;
use super::verify::Turns;
use super::webhook::{Keyring, Webhook};
use super::{Event, EventContext, HookError, HookVerdict, Hooks, Refusal};

/// Commands that change something: what they are about to do is put down before, where a rule is about
/// [`Event::Interrupted`].
const CHANGES: [&str; 23] = [
    "STOR",
    "APPE",
    "STOU",
    "DELE",
    "RNTO",
    "MKD",
    "XMKD",
    "RMD",
    "XRMD",
    "RMDA",
    "COMB",
    "MFMT",
    "MFF",
    "MDTM",
    "SITE",
    "PUT",
    "PATCH",
    "DELETE",
    "MKCOL",
    "MOVE",
    "COPY",
    "PROPPATCH",
    "LOCK",
];

/// Rules, and the queue for what they do later.
pub struct Rules {
    rules: Vec<Rule>,
    queue_path: Option<PathBuf>,
    /// The credentials for webhooks.
    keys: Keyring,
    /// One for each rule that posts and waits.
    webhooks: Vec<Option<Webhook>>,
    queue: OnceLock<Arc<Queue>>,
    /// The cluster that the server is a node of.
    cluster: OnceLock<Arc<Cluster>>,
    warn: OnceLock<Warn>,
    turns: Turns,
}

impl std::fmt::Debug for Rules {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Rules").field("rules", &self.rules).finish_non_exhaustive()
    }
}

impl Rules {
    /// Makes hooks of these rules; events for later delivery are stored in a database at this path.
    pub fn new(mut rules: Vec<Rule>, queue: Option<PathBuf>) -> Self {
        let mut keys = Keyring::default();
        for rule in &mut rules {
            match &mut rule.action {
                Action::Webhook { url, credentials, .. } => keys.add(url, credentials),
                Action::Run(words) => keys.add_program(words),
                _ => {}
            }
        }
        let webhook = |rule: &Rule| match &rule.action {
            Action::Webhook { url, .. } => Some(Webhook::new(url, rule.time_limit)),
            _ => None,
        };
        let webhooks = rules.iter().map(webhook).collect();
        Self {
            rules,
            queue_path: queue,
            keys,
            webhooks,
            queue: OnceLock::new(),
            cluster: OnceLock::new(),
            warn: OnceLock::new(),
            turns: Turns::default(),
        }
    }

    /// Returns true if a rule has something to be done later, for which there has to be a queue.
    pub fn needs_queue(rules: &[Rule]) -> bool {
        rules.iter().any(|rule| rule.on.iter().any(|event| !rule.waits(*event)))
    }

    fn warn(&self, text: &str) {
        if let Some(warn) = self.warn.get() {
            warn(text);
        }
    }

    fn has_intentions(&self, verb: &str) -> bool {
        CHANGES.contains(&first_word(verb))
            && self
                .rules
                .iter()
                .any(|rule| rule.on.contains(&Event::Interrupted) && rule.is_about_verb(verb, true))
    }

    /// Puts down what a command is about to do.
    fn intend(&self, context: &EventContext) -> Result<(), Refusal> {
        // Where it can be read in one way only, it says no time that is to be set.
        if context.verb == "MDTM" && context.also.is_empty() {
            return Ok(());
        }
        let context = interrupted(context);
        let matching = self.rules.iter().filter(|rule| rule.matches(&context));
        let mut deliveries = Vec::new();
        for rule in matching {
            match rule.delivery(&context, context.path.as_ref()) {
                Ok(delivery) => deliveries.extend(delivery),
                Err(error) => {
                    let facts = Facts::new(&context, context.path.as_ref());
                    self.warn(&performing::taken_for_option(rule, &facts, error));
                }
            }
        }
        match (deliveries.is_empty(), self.queue.get()) {
            (false, Some(queue)) => {
                queue.intend(context.session, deliveries).map_err(|error| self.broken(&error))
            }
            _ => Ok(()),
        }
    }

    fn broken(&self, error: &QueueError) -> Refusal {
        self.warn(&format!("hooks: {error}"));
        Refusal::for_now("451 What this leads to cannot be recorded now; try again later.")
    }
}

/// Returns the event of a command that a kill has cut. It names the paths as the event does that the command would have been: the
/// old one, and the new one.
fn interrupted(command: &EventContext) -> EventContext {
    let mut context = EventContext { event: Event::Interrupted, ..command.clone() };
    if matches!(&*context.verb, "RNTO" | "SITE CPTO")
        && let Some(source) = context.also.pop()
    {
        context.to = context.path.replace(source);
    }
    context
}

impl Hooks for Rules {
    fn concerns(&self, event: Event, verb: &str) -> bool {
        let about = |rule: &Rule| rule.on.contains(&event) && (verb.is_empty() || rule.may_be_about(verb));
        if self.rules.iter().any(about) {
            return true;
        }
        match event {
            Event::Command | Event::Reply => self.has_intentions(verb),
            // A refused upload is one that failed.
            Event::Upload => self.rules.iter().any(|rule| rule.on.contains(&Event::UploadFailed)),
            Event::Disconnect => self.rules.iter().any(|rule| rule.on.contains(&Event::Interrupted)),
            _ => false,
        }
    }

    fn asks_beforehand(&self) -> bool {
        let may_refuse = |rule: &Rule| {
            let acts = !matches!(rule.action, Action::Move(_) | Action::Rewrite(_));
            acts && rule.on.contains(&Event::Upload) && rule.waits(Event::Upload)
        };
        self.rules.iter().any(may_refuse)
    }

    fn may_take_long(&self, context: &EventContext) -> bool {
        // A refused upload is one that failed, too, and of a pair the other one goes on.
        let events = [context.event, Event::UploadFailed];
        let events = &events[..if context.event == Event::Upload { 2 } else { 1 }];
        self.rules.iter().any(|rule| {
            // Whether it is an archive or a conversion, only the storage knows.
            let is_about = |event| rule.is_about(event, context) || rule.may_reach_into(event, context);
            rule.takes_long() && events.iter().any(|&event| rule.waits(event) && is_about(event))
        })
    }

    fn call(&self, context: &EventContext) -> HookVerdict {
        if matches!(context.event, Event::Reply | Event::Disconnect)
            && let Some(queue) = self.queue.get()
        {
            queue.forget(context.session);
        }
        let path = match self.chain(0, context, Vec::new(), false) {
            Ok(path) => path,
            Err(refusal) => {
                if context.event == Event::Upload {
                    self.tell_refused(context, &refusal);
                }
                return HookVerdict::Refuse(refusal);
            }
        };
        if context.event == Event::Command
            && self.has_intentions(&context.verb)
            && let Err(refusal) = self.intend(&EventContext { path: path.clone(), ..context.clone() })
        {
            return HookVerdict::Refuse(refusal);
        }
        if context.is_given_up()
            && let Some(queue) = self.queue.get()
        {
            queue.forget(context.session);
        }
        match path {
            Some(path) if context.event == Event::Command && context.path.as_ref() != Some(&path) => {
                HookVerdict::Rewrite(path)
            }
            _ => HookVerdict::Pass,
        }
    }

    fn join(&self, cluster: &Arc<Cluster>) {
        let _ = self.cluster.set(Arc::clone(cluster));
    }

    fn begin(&self, warn: Warn) -> Result<(), HookError> {
        let _ = self.warn.set(Arc::clone(&warn));
        if let Some(path) = &self.queue_path {
            let _ = self.queue.set(Queue::of(path, &self.keys, self.cluster.get(), warn)?);
        }
        Ok(())
    }

    fn backlog(&self) -> Option<Backlog> {
        self.queue.get().map(Backlog::of)
    }

    fn give_way(&self) {
        if let Some(queue) = self.queue.get() {
            queue.give_way();
        }
    }

    fn take_back(&self) -> Result<(), HookError> {
        Ok(self.queue.get().map_or(Ok(()), |queue| queue.take_back())?)
    }

    fn close(&self) {
        if let Some(queue) = self.queue.get() {
            queue.close();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use millrace_vfs::VirtualPath;

    use super::*;

    #[test]
    fn a_rename_that_was_cut_names_the_old_path_and_the_new_one() {
        let path = |text: &str| VirtualPath::parse(text.as_bytes()).unwrap();
        let address = "127.0.0.1:1".parse().unwrap();
        let command = |verb: &str, also: &[&str]| EventContext {
            verb: verb.to_owned(),
            path: Some(path("/new")),
            also: also.iter().map(|text| path(text)).collect(),
            ..EventContext::new(Event::Command, Duration::ZERO, 1, address, address)
        };
        for (verb, also, expected) in [
            ("RNTO", &["/old"][..], ("/old", Some("/new"))),
            ("SITE CPTO", &["/old"], ("/old", Some("/new"))),
            // Without RNFR nothing would have been done.
            ("RNTO", &[], ("/new", None)),
            ("COMB", &["/part"], ("/new", None)),
            ("STOR", &[], ("/new", None)),
        ] {
            let event = interrupted(&command(verb, also));
            assert_eq!(event.event, Event::Interrupted);
            assert_eq!((event.path, event.to), (Some(path(expected.0)), expected.1.map(path)), "{verb}");
        }
    }
}
