//! Hooks as they are written down: rules, each with whom and what it is about, and one thing to be done.
//!
//! Rules are looked at in their order, and those that match make a chain: a rewritten or moved file is what the
//! next rule has before it, and a refusal ends it. What need not be waited for goes to the queue, and is there,
//! safe, before the client hears of what it tells.
//!
//! A staged upload has no name until the chain has passed it, moves it, or has it wait for another: a refusal before
//! that leaves what had the name.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use millrace_ftp::commands::{COMMANDS, Command, Paths, SITE_COMMANDS};
use millrace_ftp::digest::Algorithm;
use millrace_ftp::listing::search::Searched;
use millrace_storage::Archives;
use millrace_vfs::{FileError, Storage, VirtualPath, Wait, WriteMode};
use serde::Deserialize;

use super::backlog::Backlog;
use super::facts::{self, Facts, Template};
use super::patterns::PathPattern;
use super::queue::{Letter, Queue, Recipient, Warn};
use super::verify::{self, Pair, Turn, Turns};
use super::webhook::{Credentials, Keyring, Webhook};
use super::{Event, HEARD, Hooks, Moment, Refusal, Ruling};
use crate::program::{Ended, How, Program, Purpose, Recall};

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

/// Methods of HTTP, some of which only others answer.
const METHODS: [&str; 17] = [
    "GET",
    "HEAD",
    "OPTIONS",
    "POST",
    "PUT",
    "PATCH",
    "DELETE",
    "MKCOL",
    "MOVE",
    "COPY",
    "PROPFIND",
    "PROPPATCH",
    "LOCK",
    "UNLOCK",
    "REPORT",
    "SEARCH",
    "TRACE",
];

/// What methods of HTTP, and commands by their names of RFC 775, are called in FTP, and what besides where they are about a
/// directory: a rule about the one holds for the other, so that there is no way round it.
const ALIKE: &[(&str, &[&str], &[&str])] = &[
    ("GET", &["RETR"], LISTS),
    ("HEAD", &["GET", "RETR"], LISTS),
    ("PUT", &["STOR"], &[]),
    // It makes the file where there is none.
    ("LOCK", &["STOR"], &[]),
    ("DELETE", &["DELE", "RMD", "RMDA"], &[]),
    ("MKCOL", &["MKD"], &[]),
    ("MOVE", &["RNTO", "RNFR"], &[]),
    ("COPY", &["SITE COPY"], &[]),
    ("PROPFIND", LISTS, &[]),
    ("XCWD", &["CWD"], &[]),
    ("XCUP", &["CDUP"], &[]),
    ("XPWD", &["PWD"], &[]),
    ("XMKD", &["MKD"], &[]),
    ("XRMD", &["RMD"], &[]),
];

/// What tells the names in a directory.
const LISTS: &[&str] = &["LIST", "MLSD", "NLST"];

/// Whom and what a rule is about, and what it does.
#[derive(Debug, Clone)]
pub struct Rule {
    /// The events; at least one.
    pub on: Vec<Event>,
    /// The commands, where not all: `STOR`, `SITE`, `SITE CHMOD`.
    pub verbs: Vec<String>,
    /// The users, where not all.
    pub users: Vec<PathPattern>,
    /// The files and directories, where not all.
    pub paths: Vec<PathPattern>,
    /// Only files of more bytes.
    pub larger_than: Option<u64>,
    /// Only files of fewer bytes.
    pub smaller_than: Option<u64>,
    /// What is done.
    pub action: Action,
    /// Whether the session waits for it; `None` for where its word counts.
    pub wait: Option<bool>,
    /// How long it may take.
    pub time_limit: Duration,
    /// Whether what was asked for is refused when the program or receiver does not work.
    pub refuses_on_failure: bool,
    /// Where an upload goes that is refused; `None`: it is removed.
    pub refused_to: Option<Template>,
}

/// What a rule does.
#[derive(Debug, Clone)]
pub enum Action {
    /// Says no, with this text.
    Refuse(String),
    /// Has the command be about another path.
    Rewrite(Template),
    /// Moves an uploaded file.
    Move(Template),
    /// Holds an uploaded file to the hash in the file beside it, and the other way round; until both are there,
    /// what follows is done to neither.
    Verify(Algorithm),
    /// Runs a program: the file, and its arguments.
    Run(Vec<Template>),
    /// Posts it, one event or an array of so many at a time.
    Webhook {
        /// To this address.
        url: String,
        /// So many at most, where they come from the queue.
        batch: usize,
        /// What is shown there.
        credentials: Credentials,
    },
}

impl Action {
    /// Which one it is, for whoever reads the log.
    fn name(&self, facts: &Facts<'_>) -> String {
        match self {
            Self::Run(words) => {
                let program = words.first().map(|word| word.argument(facts)).unwrap_or_default();
                program.to_string_lossy().into_owned()
            }
            Self::Webhook { url, .. } => url.clone(),
            _ => "a rule".to_owned(),
        }
    }

    /// Claims that events can be posted to this address; the error is for people.
    pub fn check_url(url: &str) -> Result<(), String> {
        Webhook::check(url)
    }

    /// Claims that there is a command or a method of this name; the error is for people.
    pub fn check_verb(verb: &str) -> Result<(), String> {
        let is_in = |table: &[Command], name: &str| table.iter().any(|command| command.verb == name);
        let is_known = match verb.split_once(' ') {
            Some(("SITE", name)) => is_in(SITE_COMMANDS, name),
            Some(_) => false,
            None => is_in(COMMANDS, verb) || METHODS.contains(&verb),
        };
        match is_known {
            true => Ok(()),
            false => {
                Err(format!("there is no command or method {verb:?}, such as STOR, \"SITE CHMOD\" or PUT"))
            }
        }
    }

    /// Claims that a client can be refused with this text; the error is for people.
    pub fn check_refusal(text: &str) -> Result<(), String> {
        let code = text.split_once(' ').map_or(text, |(code, _)| code);
        match code.parse::<u16>() {
            Ok(number) if code.len() == 3 && !(400..600).contains(&number) => {
                Err(format!("{code} is no code of a refusal: those are 400 to 599"))
            }
            _ => Ok(()),
        }
    }

    /// Claims that a command can be put to another path; the error is for people. Methods of HTTP can.
    pub fn check_rewrite(verb: &str) -> Result<(), String> {
        let (table, name, row) = match verb.split_once(' ') {
            Some(("SITE", name)) => (SITE_COMMANDS, name, verb),
            _ => (COMMANDS, verb, verb),
        };
        let why = match table.iter().find(|command| command.verb == name).map(|command| command.paths) {
            _ if verb == "SITE" => "is many commands: name them, as in \"SITE MKDIR\"",
            Some(Paths::None) => "is about no path",
            Some(Paths::Within(_) | Paths::Listed(_)) => "takes more than one path, or more than a path",
            Some(Paths::Whole(_)) | None => return Ok(()),
        };
        Err(format!("{row} {why}, so it cannot be rewritten"))
    }
}

/// What a program prints, or a receiver answers, where it says more than yes or no.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Said {
    refuse: Option<String>,
    path: Option<String>,
}

/// Rules, and the queue for what they do later.
pub struct Rules {
    rules: Vec<Rule>,
    queue_path: Option<PathBuf>,
    /// What is shown where events are posted to.
    keys: Keyring,
    /// One for each rule that posts and waits.
    webhooks: Vec<Option<Webhook>>,
    queue: OnceLock<Arc<Queue>>,
    warn: OnceLock<Warn>,
    turns: Turns,
}

/// What comes of one rule of a chain.
enum Done<'a> {
    /// The chain goes on.
    On,
    /// It goes on with the file at another place.
    At(VirtualPath),
    /// It does not go on before something else has come.
    Waits,
    /// It goes on, and after it that of a hash which has waited for this file.
    Before(Box<Moment>, Turn<'a>),
}

impl std::fmt::Debug for Rules {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Rules").field("rules", &self.rules).finish_non_exhaustive()
    }
}

impl Rules {
    /// These rules; events that nobody waits for are kept in a database at this path until they are delivered.
    pub fn new(mut rules: Vec<Rule>, queue: Option<PathBuf>) -> Self {
        let mut keys = Keyring::default();
        for rule in &mut rules {
            if let Action::Webhook { url, credentials, .. } = &mut rule.action {
                keys.add(url, credentials);
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
            warn: OnceLock::new(),
            turns: Turns::default(),
        }
    }

    /// Claims that a rule has something to be done later, for which there has to be a queue.
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
    fn intend(&self, moment: &Moment) -> Result<(), Refusal> {
        // Where it can be read in one way only, it says no time that is to be set.
        if moment.verb == "MDTM" && moment.also.is_empty() {
            return Ok(());
        }
        let mut moment = moment.clone();
        moment.event = Event::Interrupted;
        let matching = self.rules.iter().filter(|rule| rule.matches(&moment));
        let letters: Vec<Letter> =
            matching.filter_map(|rule| rule.letter(&moment, moment.path.as_ref())).collect();
        match (letters.is_empty(), self.queue.get()) {
            (false, Some(queue)) => {
                queue.intend(moment.session, letters).map_err(|error| self.broken(&error))
            }
            _ => Ok(()),
        }
    }

    fn broken(&self, error: &str) -> Refusal {
        self.warn(&format!("hooks: {error}"));
        Refusal::for_now("451 What this leads to cannot be recorded now; try again later.")
    }

    /// The chain for one moment, from one of the rules on; where the file is then. By what a file was `verified`, it is
    /// not verified again. One that `has_waited` its sender takes for safe: where nothing can be said of it now, it stays.
    fn chain(
        &self,
        first: usize,
        moment: &Moment,
        mut verified: Vec<Algorithm>,
        has_waited: bool,
    ) -> Result<Option<VirtualPath>, Refusal> {
        let mut path = moment.path.clone();
        let (mut letters, mut after) = (Letters::default(), Vec::new());
        for (at, rule) in self.rules.iter().enumerate().skip(first).filter(|(_, rule)| rule.matches(moment)) {
            let done = match (rule.waits(moment.event), &rule.action, &path) {
                (false, ..) => {
                    letters.write(rule, moment, path.as_ref().or(moment.path.as_ref()));
                    Ok(Done::On)
                }
                (true, Action::Move(_), _) if !letters.name(moment, path.as_ref()) => return Ok(path),
                (true, Action::Verify(algorithm), Some(path)) => {
                    self.verify(at, *algorithm, moment, path, &mut verified)
                }
                (true, ..) => self
                    .perform(rule, self.webhooks[at].as_ref(), moment, path.as_ref())
                    .map(|moved| moved.map_or(Done::On, Done::At)),
            };
            match done {
                _ if moment.is_given_up() => return Err(self.give_up(rule, moment, path.as_ref())),
                Ok(Done::On) if moment.is_taken() && path == moment.path => path = None,
                Ok(Done::On) => {}
                Ok(Done::At(_)) if !letters.name(moment, path.as_ref()) => return Ok(path),
                Ok(Done::At(moved)) => path = Some(moved),
                Ok(Done::Waits) => break,
                Ok(Done::Before(sum, turn)) => after.push((at + 1, sum, turn)),
                Err(refusal) => {
                    if moment.event == Event::Upload && !(has_waited && refusal.is_passing) {
                        self.put_away(rule, moment, path.as_ref());
                    }
                    return Err(refusal);
                }
            }
        }
        if moment.is_given_up() && moment.is_pending() {
            return Err(Refusal::of_giving_up());
        }
        if !letters.name(moment, path.as_ref()) {
            return Ok(path);
        }
        if let (false, Some(queue)) = (letters.written.is_empty(), self.queue.get()) {
            queue.put(moment.session, letters.written).map_err(|error| self.broken(&error))?;
        }
        // From the last to the first: what a chain comes to is behind the rules that this one still has a turn at.
        while let Some((first, sum, _turn)) = after.pop() {
            // The file is accepted, whatever becomes of the hash.
            let _ = self.go_on(first, &sum, &verified);
        }
        Ok(path)
    }

    /// The client does not wait: what has not been done is not done.
    fn give_up(&self, rule: &Rule, moment: &Moment, path: Option<&VirtualPath>) -> Refusal {
        if moment.event == Event::Upload {
            self.put_away(rule, moment, path);
        }
        Refusal::of_giving_up()
    }

    /// The rest of a chain for a file that has waited.
    fn go_on(&self, first: usize, moment: &Moment, verified: &[Algorithm]) -> Result<(), Refusal> {
        let gone_on = self.chain(first, moment, verified.to_vec(), true);
        // What nothing can be said of waits on.
        let refused = gone_on.as_ref().err().filter(|refusal| !refusal.is_passing);
        if let Some(refusal) = refused {
            self.tell_refused(moment, refusal);
        }
        gone_on.map(drop)
    }

    /// A refused upload is one that failed.
    fn tell_refused(&self, moment: &Moment, refusal: &Refusal) {
        let reason = Some(format!("refused: {}", refusal.text()));
        let recall = Recall::default();
        let (event, pending, undecided) = (Event::UploadFailed, None, None);
        let failed = Moment { event, reason, recall, pending, undecided, ..moment.clone() };
        let _ = self.chain(0, &failed, Vec::new(), false);
    }

    /// Holds a file to its hash, once both are there. Of the two the file goes on first, so that a hash is nowhere
    /// without its file.
    fn verify(
        &self,
        at: usize,
        algorithm: Algorithm,
        moment: &Moment,
        path: &VirtualPath,
        verified: &mut Vec<Algorithm>,
    ) -> Result<Done<'_>, Refusal> {
        let (Some(storage), Some(pair)) = (&moment.storage, Pair::of(path, algorithm)) else {
            return Ok(Done::On);
        };
        if verified.contains(&algorithm) {
            return Ok(Done::On);
        }
        let turn = verify::take(&self.turns, at, &**storage, &pair);
        let pair = if *path == pair.sum { pair } else { pair.found_in(&**storage, algorithm) };
        let preview = moment.preview();
        if preview.is_none() && !moment.commit() {
            return Ok(Done::Waits);
        }
        if !pair.compare(&**storage, algorithm, preview.map(|handle| (path, handle)))? {
            // While it is this one's turn: the other is to find it.
            moment.commit();
            return Ok(Done::Waits);
        }
        verified.push(algorithm);
        let is_sum = *path == pair.sum;
        let other = if is_sum { pair.file } else { pair.sum };
        let bytes = storage.metadata(&other, Wait::Allowed).ok().map(|file| file.size);
        let argument = other.as_bytes().to_vec();
        // Its sender takes it for safe, whoever does not wait for this one.
        let (path, elapsed, recall) = (Some(other), None, Recall::default());
        let unlike = Moment { path, argument, bytes, elapsed, recall, ..moment.clone() };
        let other = Moment { pending: None, undecided: None, ..unlike };
        match is_sum {
            true => self.go_on(at + 1, &other, verified).map(|()| Done::On),
            false => Ok(Done::Before(Box::new(other), turn)),
        }
    }

    /// Does what a rule says, at once; answers the new place of the file if it has one.
    fn perform(
        &self,
        rule: &Rule,
        webhook: Option<&Webhook>,
        moment: &Moment,
        path: Option<&VirtualPath>,
    ) -> Result<Option<VirtualPath>, Refusal> {
        let facts = Facts::new(moment, path);
        match (&rule.action, webhook) {
            (Action::Refuse(text), _) => Err(Refusal::new(text)),
            (Action::Rewrite(template), _) => match rule.rewrites(moment)? {
                true => Ok(template.path(&facts)),
                false => Ok(None),
            },
            (Action::Move(template), _) => match (&moment.storage, path, template.path(&facts)) {
                (Some(storage), Some(from), Some(to)) => match move_file(&**storage, from, &to) {
                    Ok(()) => Ok(Some(to)),
                    Err(error) => {
                        self.warn(&format!("hooks: {from} cannot be moved to {to}: {error}"));
                        Err(Refusal::for_now("451 The file arrived, and could not be put in its place."))
                    }
                },
                _ => Ok(None),
            },
            (Action::Run(words), _) => self.run(rule, words, &facts, &moment.recall),
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
        let program = Program {
            words: words.iter().map(|word| word.argument(facts)).collect(),
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

    /// What was said with success: nothing, or JSON.
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

    /// An upload was refused: nobody is to take it for one that was not.
    fn put_away(&self, rule: &Rule, moment: &Moment, path: Option<&VirtualPath>) {
        let (Some(storage), Some(path)) = (&moment.storage, path) else { return };
        if moment.pending.as_ref().is_some_and(|pending| pending.has_vanished()) {
            return;
        }
        let facts = Facts::new(moment, Some(path));
        let to = rule.refused_to.as_ref().and_then(|template| template.path(&facts));
        if let (true, Some(pending)) = (moment.is_pending(), &moment.pending) {
            let done = match &to {
                None => Ok(()),
                Some(to) => put_aside(&**storage, moment, path, to),
            };
            drop(pending.give_up());
            return self.warn_of_refused(path, done);
        }
        let done = match to {
            None => storage.remove_file(path),
            Some(to) if to == *path => Ok(()),
            Some(to) => move_file(&**storage, path, &to),
        };
        self.warn_of_refused(path, done);
    }

    fn warn_of_refused(&self, path: &VirtualPath, done: Result<(), FileError>) {
        if let Err(error) = done {
            self.warn(&format!("hooks: the refused upload {path} cannot be put away: {error}"));
        }
    }
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

    fn may_take_long(&self, moment: &Moment) -> bool {
        // A refused upload is one that failed, too, and of a pair the other one goes on.
        let events = [moment.event, Event::UploadFailed];
        let events = &events[..if moment.event == Event::Upload { 2 } else { 1 }];
        self.rules.iter().any(|rule| {
            // Whether it is an archive, only the storage knows.
            let is_about = |event| rule.is_about(event, moment) || may_be_archive(event, moment).is_some();
            rule.takes_long() && events.iter().any(|&event| rule.waits(event) && is_about(event))
        })
    }

    fn call(&self, moment: &Moment) -> Ruling {
        if matches!(moment.event, Event::Reply | Event::Disconnect)
            && let Some(queue) = self.queue.get()
        {
            queue.forget(moment.session);
        }
        let path = match self.chain(0, moment, Vec::new(), false) {
            Ok(path) => path,
            Err(refusal) => {
                if moment.event == Event::Upload {
                    self.tell_refused(moment, &refusal);
                }
                return Ruling::Refuse(refusal);
            }
        };
        if moment.event == Event::Command
            && self.has_intentions(&moment.verb)
            && let Err(refusal) = self.intend(&Moment { path: path.clone(), ..moment.clone() })
        {
            return Ruling::Refuse(refusal);
        }
        if moment.is_given_up()
            && let Some(queue) = self.queue.get()
        {
            queue.forget(moment.session);
        }
        match path {
            Some(path) if moment.event == Event::Command && moment.path.as_ref() != Some(&path) => {
                Ruling::Rewrite(path)
            }
            _ => Ruling::Pass,
        }
    }

    fn begin(&self, warn: Warn) -> Result<(), String> {
        let _ = self.warn.set(Arc::clone(&warn));
        if let Some(path) = &self.queue_path {
            let _ = self.queue.set(Queue::of(path, &self.keys, warn)?);
        }
        Ok(())
    }

    fn backlog(&self) -> Option<Backlog> {
        self.queue.get().map(Backlog::of)
    }

    fn close(&self) {
        if let Some(queue) = self.queue.get() {
            queue.close();
        }
    }
}

impl Rule {
    /// Claims that the session waits for what the rule does about this event.
    fn waits(&self, event: Event) -> bool {
        match self.action {
            Action::Run(_) | Action::Webhook { .. } => self.wait.unwrap_or(event.asks()),
            _ => true,
        }
    }

    /// Claims that what it does can take long. To move a file is to rename it.
    fn takes_long(&self) -> bool {
        matches!(self.action, Action::Run(_) | Action::Webhook { .. } | Action::Verify(_))
    }

    fn is_about_verb(&self, verb: &str, is_directory: bool) -> bool {
        let row = ALIKE.iter().find(|row| row.0 == verb);
        let (alike, of_directories) = row.map_or((&[][..], &[][..]), |row| (row.1, row.2));
        let is_alike = |one: &str| alike.contains(&one) || (is_directory && of_directories.contains(&one));
        let names = |one: &String| one == verb || one == first_word(verb) || is_alike(one);
        self.verbs.is_empty() || self.verbs.iter().any(names)
    }

    /// As `is_about_verb`, where of `SITE` the subcommand is not known yet, and of HTTP the path.
    fn may_be_about(&self, verb: &str) -> bool {
        self.is_about_verb(verb, true) || self.verbs.iter().any(|one| first_word(one) == verb)
    }

    fn matches(&self, moment: &Moment) -> bool {
        let is_about = self.is_about(moment.event, moment)
            || (self.is_of(moment.event, moment) && self.reaches_into_archive(moment));
        is_about && self.size_matches(moment)
    }

    /// Claims that a download is a folder's archive, in which something may be that the rule is about.
    fn reaches_into_archive(&self, moment: &Moment) -> bool {
        let Some(folder) = may_be_archive(moment.event, moment) else { return false };
        let covers =
            self.paths.is_empty() || self.paths.iter().any(|pattern| pattern.may_cover_within(&folder));
        covers && is_archive(moment, &folder)
    }

    /// As `matches`, of a moment that may be of another event, and a file whatever its size.
    fn is_about(&self, event: Event, moment: &Moment) -> bool {
        let mut paths = moment.path.iter().chain(&moment.to).chain(&moment.also);
        self.is_of(event, moment)
            && (self.paths.is_empty()
                || paths.any(|path| self.covers(path))
                || moment.searched.as_ref().is_some_and(|searched| self.may_cover(searched)))
    }

    /// As `is_about`, wherever it is.
    fn is_of(&self, event: Event, moment: &Moment) -> bool {
        self.on.contains(&event)
            && (moment.verb.is_empty() || self.is_about_verb(&moment.verb, moment.is_directory))
            && (self.users.is_empty()
                || moment
                    .user
                    .as_deref()
                    .is_some_and(|user| self.users.iter().any(|one| one.matches(&[user]))))
    }

    fn covers(&self, path: &VirtualPath) -> bool {
        self.paths.is_empty() || self.paths.iter().any(|pattern| pattern.covers(path))
    }

    /// Claims that one of the folders may match.
    fn may_cover(&self, searched: &Searched) -> bool {
        self.paths.iter().any(|pattern| pattern.may_cover(searched))
    }

    /// Claims that a command which matches is to be about another path. Where the path that matches is not one that
    /// can be taken out, nothing is done at all: the rule was to keep it from just that path.
    fn rewrites(&self, moment: &Moment) -> Result<bool, Refusal> {
        let can = Action::check_rewrite(&moment.verb).is_ok();
        let covers = |path: &VirtualPath| self.covers(path);
        match (&moment.path, &moment.to) {
            // What is about no path is not about another either.
            (None, _) => Ok(false),
            (Some(path), _) if can && covers(path) => Ok(true),
            // Of what RNTO renames RNFR was asked.
            (_, to) if can && !to.as_ref().is_some_and(covers) && !self.reaches_into_archive(moment) => {
                Ok(false)
            }
            _ => Err(Refusal::of_rewriting()),
        }
    }

    fn size_matches(&self, moment: &Moment) -> bool {
        if self.larger_than.is_none() && self.smaller_than.is_none() {
            return true;
        }
        // Of a file that is to come or has no name yet, what was said of it; of one that is there, its own size: an upload may have
        // gone on with what was there before.
        let fits = |size: u64| {
            self.larger_than.is_none_or(|least| size > least)
                && self.smaller_than.is_none_or(|most| size < most)
        };
        let there = |path: &VirtualPath| {
            let metadata = moment.storage.as_ref()?.metadata(path, Wait::Allowed).ok()?;
            metadata.is_file().then_some(metadata.size)
        };
        let to_come = moment.bytes.filter(|_| moment.event == Event::Command || moment.is_pending());
        let size = to_come.or_else(|| moment.path.as_ref().and_then(there)).or(moment.bytes);
        size.is_some_and(fits) || moment.also.iter().filter_map(there).any(fits)
    }

    /// The event as it is put into the queue.
    fn letter(&self, moment: &Moment, path: Option<&VirtualPath>) -> Option<Letter> {
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

/// The folder whose archive a command asks for, if there is such a folder, and no file of the name.
fn may_be_archive(event: Event, moment: &Moment) -> Option<VirtualPath> {
    let reads = event == Event::Command && matches!(&*moment.verb, "RETR" | "GET" | "HEAD");
    moment.path.as_ref().filter(|_| reads && !moment.is_directory).and_then(Archives::folder_named)
}

/// Claims that there is. May wait.
fn is_archive(moment: &Moment, folder: &VirtualPath) -> bool {
    let there = |path| moment.storage.as_ref().and_then(|files| files.metadata(path, Wait::Allowed).ok());
    moment.path.as_ref().is_some_and(|path| there(path).is_none())
        && there(folder).is_some_and(|folder| folder.is_directory())
}

/// What a chain tells by the queue.
#[derive(Default)]
struct Letters<'a> {
    written: Vec<Letter>,
    /// Rules whose letters say where the file is: it has no name yet.
    early: Vec<&'a Rule>,
}

impl<'a> Letters<'a> {
    fn write(&mut self, rule: &'a Rule, moment: &Moment, path: Option<&VirtualPath>) {
        match moment.is_pending() {
            true => self.early.push(rule),
            false => self.written.extend(rule.letter(moment, path)),
        }
    }

    /// The upload takes its name, if it has not, and what waited for that is written; false where it cannot.
    fn name(&mut self, moment: &Moment, path: Option<&VirtualPath>) -> bool {
        let is_named = moment.commit();
        let early = std::mem::take(&mut self.early).into_iter().filter(|_| is_named);
        self.written.extend(early.filter_map(|rule| rule.letter(moment, path)));
        is_named
    }
}

fn first_word(verb: &str) -> &str {
    verb.split(' ').next().unwrap_or_default()
}

/// Puts a refused upload somewhere else. Where nothing has its name it takes that on its way; else it is copied, as what has
/// the name stays.
fn put_aside(
    storage: &dyn Storage,
    moment: &Moment,
    path: &VirtualPath,
    to: &VirtualPath,
) -> Result<(), FileError> {
    if to == path || matches!(storage.entry(path), Err(FileError::NotFound)) {
        return match moment.commit() {
            true if to == path => Ok(()),
            true => move_file(storage, path, to),
            false => Err(FileError::NotFound),
        };
    }
    let content = moment.preview().ok_or(FileError::Unsupported)?;
    make_directories(storage, to)?;
    let mut copy = storage.open_write(to, WriteMode::Replace, Wait::Allowed)?;
    let mut written = Ok(());
    verify::read_file(content, usize::MAX, &mut |bytes| {
        written = std::mem::replace(&mut written, Ok(())).and_then(|()| copy.write_all(bytes));
    })?;
    written?;
    copy.commit().map(drop)
}

/// Makes the directories that a path lies in.
fn make_directories(storage: &dyn Storage, path: &VirtualPath) -> Result<(), FileError> {
    let parents = std::iter::successors(Some(path.parent()), |path| (!path.is_root()).then(|| path.parent()));
    let missing: Vec<VirtualPath> = parents.filter(|path| !path.is_root()).collect();
    for directory in missing.iter().rev() {
        match storage.make_directory(directory) {
            Ok(()) | Err(FileError::AlreadyExists) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Renames, in a directory that is made where it is not there.
fn move_file(storage: &dyn Storage, from: &VirtualPath, to: &VirtualPath) -> Result<(), FileError> {
    match storage.rename(from, to) {
        Err(FileError::NotFound) => {
            make_directories(storage, to)?;
            storage.rename(from, to)
        }
        done => done,
    }
}
