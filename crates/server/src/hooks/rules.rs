//! Hooks as they are written down: rules, each with whom and what it is about, and one thing to be done.
//!
//! Rules are looked at in their order, and those that match make a chain: a rewritten or moved file is what the
//! next rule has before it, and a refusal ends it. What need not be waited for goes to the queue, and is there,
//! safe, before the client hears of what it tells.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use millrace_ftp::commands::{COMMANDS, Command, Paths, SITE_COMMANDS};
use millrace_ftp::digest::Algorithm;
use millrace_ftp::glob::Glob;
use millrace_ftp::listing::search::{Level, Searched};
use millrace_vfs::{FileError, Storage, VirtualPath, Wait};
use serde::Deserialize;

use super::facts::{self, Facts, Template};
use super::queue::{Letter, Queue, Recipient, Warn};
use super::verify::{Pair, Turn, Turns};
use super::webhook::Webhook;
use super::{Event, HEARD, Hooks, Moment, Refusal, Ruling};
use crate::program::{How, Program, Purpose};

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
    },
}

impl Action {
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

/// A pattern of paths: `/in/*.zip`, `/home/*/drafts/**`. `**` stands for any number of components. Other than in
/// listings, a `*` matches hidden names too.
#[derive(Debug, Clone)]
pub struct PathPattern(Vec<Option<Glob>>);

impl PathPattern {
    /// Compiles a pattern.
    pub fn new(pattern: &str) -> Self {
        let components = pattern.split('/').filter(|component| !component.is_empty());
        Self(components.map(|one| (one != "**").then(|| Glob::new(one.as_bytes()))).collect())
    }

    /// Claims that a path matches.
    pub(crate) fn covers(&self, path: &VirtualPath) -> bool {
        self.matches(&path.components().collect::<Vec<_>>())
    }

    /// Claims that a folder may match which is gone into.
    fn may_cover(&self, searched: &Searched) -> bool {
        let mut ways = vec![self.begun()];
        let mut gone_into = |level: &Level| {
            match level {
                Level::Name(name) if name == b".." => {
                    // Above the first there is nothing.
                    ways.truncate((ways.len() - 1).max(1));
                }
                Level::Name(name) => ways.push(self.behind(&ways, |glob| matches_hidden(glob, name))),
                Level::Pattern(pattern) => ways.push(self.behind(&ways, |glob| glob.overlaps(pattern))),
            }
            ways.last().is_some_and(|places| places[self.0.len()])
        };
        for name in searched.folder.components() {
            gone_into(&Level::Name(name.to_vec()));
        }
        searched.levels.iter().any(gone_into)
    }

    fn matches(&self, components: &[&[u8]]) -> bool {
        let begun = vec![self.begun()];
        let ways = components
            .iter()
            .fold(begun, |ways, name| vec![self.behind(&ways, |glob| matches_hidden(glob, name))]);
        ways[0][self.0.len()]
    }

    /// Where in the pattern one may be before the first component. However many ways there are to some place, each
    /// component is compared with each part once.
    fn begun(&self) -> Vec<bool> {
        let mut places = vec![false; self.0.len() + 1];
        places[0] = true;
        self.pass(places)
    }

    /// Where one may be behind another component, from where the last of these ways leads.
    fn behind(&self, ways: &[Vec<bool>], matches: impl Fn(&Glob) -> bool) -> Vec<bool> {
        let mut places = vec![false; self.0.len() + 1];
        let parts = self.0.iter().enumerate();
        for (place, part) in parts.filter(|(place, _)| ways.last().is_some_and(|before| before[*place])) {
            match part {
                None => places[place] = true,
                Some(glob) => places[place + 1] |= matches(glob),
            }
        }
        self.pass(places)
    }

    /// `**` stands for no component, too.
    fn pass(&self, mut places: Vec<bool>) -> Vec<bool> {
        for (place, part) in self.0.iter().enumerate() {
            places[place + 1] |= places[place] && part.is_none();
        }
        places
    }
}

fn matches_hidden(glob: &Glob, name: &[u8]) -> bool {
    if glob.matches(name) {
        return true;
    }
    match name.split_first() {
        // As if its dot were any other character.
        Some((b'.', rest)) if !glob.names_hidden() => glob.matches(&[&[1], rest].concat()),
        _ => false,
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
    pub fn new(rules: Vec<Rule>, queue: Option<PathBuf>) -> Self {
        let webhook = |rule: &Rule| match &rule.action {
            Action::Webhook { url, .. } => Some(Webhook::new(url, rule.time_limit)),
            _ => None,
        };
        let webhooks = rules.iter().map(webhook).collect();
        Self {
            rules,
            queue_path: queue,
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
        Refusal::new("451 What this leads to cannot be recorded now; try again later.")
    }

    /// The chain for one moment, from one of the rules on; where the file is then. By what a file was `verified`, it is
    /// not verified again.
    fn chain(
        &self,
        first: usize,
        moment: &Moment,
        mut verified: Vec<Algorithm>,
    ) -> Result<Option<VirtualPath>, Refusal> {
        let mut path = moment.path.clone();
        let (mut letters, mut after) = (Vec::new(), Vec::new());
        for (at, rule) in self.rules.iter().enumerate().skip(first).filter(|(_, rule)| rule.matches(moment)) {
            let done = match (rule.waits(moment.event), &rule.action, &path) {
                (false, ..) => {
                    letters.extend(rule.letter(moment, path.as_ref()));
                    Ok(Done::On)
                }
                (true, Action::Verify(algorithm), Some(path)) => {
                    self.verify(at, *algorithm, moment, path, &mut verified)
                }
                (true, ..) => self
                    .perform(rule, self.webhooks[at].as_ref(), moment, path.as_ref())
                    .map(|moved| moved.map_or(Done::On, Done::At)),
            };
            match done {
                Ok(Done::On) => {}
                Ok(Done::At(moved)) => path = Some(moved),
                Ok(Done::Waits) => break,
                Ok(Done::Before(sum, turn)) => after.push((at + 1, sum, turn)),
                Err(refusal) => {
                    if moment.event == Event::Upload {
                        self.put_away(rule, moment, path.as_ref());
                    }
                    return Err(refusal);
                }
            }
        }
        if let (false, Some(queue)) = (letters.is_empty(), self.queue.get()) {
            queue.put(moment.session, letters).map_err(|error| self.broken(&error))?;
        }
        // From the last to the first: what a chain comes to is behind the rules that this one still has a turn at.
        while let Some((first, sum, _turn)) = after.pop() {
            // The file is accepted, whatever becomes of the hash.
            let _ = self.go_on(first, &sum, &verified);
        }
        Ok(path)
    }

    /// The rest of a chain for a file that has waited.
    fn go_on(&self, first: usize, moment: &Moment, verified: &[Algorithm]) -> Result<(), Refusal> {
        self.chain(first, moment, verified.to_vec())
            .map(drop)
            .inspect_err(|refusal| self.tell_refused(moment, refusal))
    }

    /// A refused upload is one that failed.
    fn tell_refused(&self, moment: &Moment, refusal: &Refusal) {
        let reason = Some(format!("refused: {}", refusal.text()));
        let _ = self.chain(0, &Moment { event: Event::UploadFailed, reason, ..moment.clone() }, Vec::new());
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
        let turn = self.turns.take(at, &**storage, &pair);
        if !pair.compare(&**storage, algorithm)? {
            return Ok(Done::Waits);
        }
        verified.push(algorithm);
        let is_sum = *path == pair.sum;
        let other = if is_sum { pair.file } else { pair.sum };
        let bytes = storage.metadata(&other, Wait::Allowed).ok().map(|file| file.size);
        let argument = other.as_bytes().to_vec();
        let other = Moment { path: Some(other), argument, bytes, elapsed: None, ..moment.clone() };
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
                        Err(Refusal::new("451 The file arrived, and could not be put in its place."))
                    }
                },
                _ => Ok(None),
            },
            (Action::Run(words), _) => self.run(rule, words, &facts),
            (Action::Webhook { .. }, Some(webhook)) => match webhook.post(facts.json().as_bytes()) {
                Ok(answer) => self.read_answer(rule, &answer),
                Err(error) => self.failed(rule, &error.to_string()),
            },
            (Action::Webhook { .. }, None) | (Action::Verify(_), _) => Ok(None),
        }
    }

    fn run(
        &self,
        rule: &Rule,
        words: &[Template],
        facts: &Facts<'_>,
    ) -> Result<Option<VirtualPath>, Refusal> {
        let program = Program {
            words: words.iter().map(|word| word.argument(facts)).collect(),
            environment: facts.environment(),
            time: rule.time_limit,
            most: HEARD,
            purpose: Purpose::Work,
        };
        let name = || program.name();
        match program.run(facts.json().as_bytes()) {
            Ok(ended) => match ended.how {
                How::Exited(0) => self.read_answer(rule, &ended.output),
                How::Exited(_) => Err(Refusal::new(&String::from_utf8_lossy(&ended.output))),
                how => {
                    let errors = String::from_utf8_lossy(&ended.complaints);
                    self.failed(rule, &format!("{} {how} {}", name(), errors.trim()))
                }
            },
            Err(error) => self.failed(rule, &format!("{} cannot be run: {error}", name())),
        }
    }

    /// What was said with success: nothing, or JSON.
    fn read_answer(&self, rule: &Rule, answer: &[u8]) -> Result<Option<VirtualPath>, Refusal> {
        if !answer.trim_ascii().starts_with(b"{") {
            return Ok(None);
        }
        match serde_json::from_slice::<Said>(answer) {
            Ok(Said { refuse: Some(text), .. }) => Err(Refusal::new(&text)),
            Ok(Said { path: Some(path), .. }) => match VirtualPath::parse(path.as_bytes()) {
                Ok(path) => Ok(Some(path)),
                Err(error) => self.failed(rule, &format!("{path:?} is no path: {error}")),
            },
            Ok(_) => Ok(None),
            Err(error) => self.failed(rule, &format!("what it says is not understood: {error}")),
        }
    }

    fn failed(&self, rule: &Rule, what: &str) -> Result<Option<VirtualPath>, Refusal> {
        self.warn(&format!("hooks: {}", what.trim_end()));
        match rule.refuses_on_failure {
            true => Err(Refusal::new("451 This cannot be checked at the moment; try again later.")),
            false => Ok(None),
        }
    }

    /// An upload was refused: nobody is to take it for one that was not.
    fn put_away(&self, rule: &Rule, moment: &Moment, path: Option<&VirtualPath>) {
        let (Some(storage), Some(path)) = (&moment.storage, path) else { return };
        let facts = Facts::new(moment, Some(path));
        let done = match rule.refused_to.as_ref().and_then(|template| template.path(&facts)) {
            None => storage.remove_file(path),
            Some(to) if to == *path => Ok(()),
            Some(to) => move_file(&**storage, path, &to),
        };
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

    fn may_take_long(&self, moment: &Moment) -> bool {
        // A refused upload is one that failed, too, and of a pair the other one goes on.
        let events = [moment.event, Event::UploadFailed];
        let events = &events[..if moment.event == Event::Upload { 2 } else { 1 }];
        self.rules.iter().any(|rule| {
            rule.takes_long() && events.iter().any(|&event| rule.waits(event) && rule.is_about(event, moment))
        })
    }

    fn call(&self, moment: &Moment) -> Ruling {
        if matches!(moment.event, Event::Reply | Event::Disconnect)
            && let Some(queue) = self.queue.get()
        {
            queue.forget(moment.session);
        }
        let path = match self.chain(0, moment, Vec::new()) {
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
            let _ = self.queue.set(Queue::of(path, warn)?);
        }
        Ok(())
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
        self.is_about(moment.event, moment) && self.size_matches(moment)
    }

    /// As `matches`, of a moment that may be of another event, and a file whatever its size.
    fn is_about(&self, event: Event, moment: &Moment) -> bool {
        let mut paths = moment.path.iter().chain(&moment.to).chain(&moment.also);
        self.on.contains(&event)
            && (moment.verb.is_empty() || self.is_about_verb(&moment.verb, moment.is_directory))
            && (self.users.is_empty()
                || moment
                    .user
                    .as_deref()
                    .is_some_and(|user| self.users.iter().any(|one| one.matches(&[user]))))
            && (self.paths.is_empty()
                || paths.any(|path| self.covers(path))
                || moment.searched.as_ref().is_some_and(|searched| self.may_cover(searched)))
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
            (_, to) if can && !to.as_ref().is_some_and(covers) => Ok(false),
            _ => Err(Refusal::of_rewriting()),
        }
    }

    fn size_matches(&self, moment: &Moment) -> bool {
        if self.larger_than.is_none() && self.smaller_than.is_none() {
            return true;
        }
        // Of a file that is to come, what was said of it; of one that is there, its own size: an upload may have
        // gone on with what was there before.
        let fits = |size: u64| {
            self.larger_than.is_none_or(|least| size > least)
                && self.smaller_than.is_none_or(|most| size < most)
        };
        let there = |path: &VirtualPath| {
            let metadata = moment.storage.as_ref()?.metadata(path, Wait::Allowed).ok()?;
            metadata.is_file().then_some(metadata.size)
        };
        let to_come = moment.bytes.filter(|_| moment.event == Event::Command);
        let size = to_come.or_else(|| moment.path.as_ref().and_then(there)).or(moment.bytes);
        size.is_some_and(fits) || moment.also.iter().filter_map(there).any(fits)
    }

    /// The event as it is put into the queue.
    fn letter(&self, moment: &Moment, path: Option<&VirtualPath>) -> Option<Letter> {
        let facts = Facts::new(moment, path);
        let milliseconds = u64::try_from(self.time_limit.as_millis()).unwrap_or(u64::MAX);
        let body = facts.json();
        match &self.action {
            Action::Webhook { url, batch } => {
                let to = Recipient::Webhook { url: url.clone(), batch: *batch, milliseconds };
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

fn first_word(verb: &str) -> &str {
    verb.split(' ').next().unwrap_or_default()
}

/// Renames, in a directory that is made where it is not there.
fn move_file(storage: &dyn Storage, from: &VirtualPath, to: &VirtualPath) -> Result<(), FileError> {
    match storage.rename(from, to) {
        Err(FileError::NotFound) => {
            let parents =
                std::iter::successors(Some(to.parent()), |path| (!path.is_root()).then(|| path.parent()));
            let missing: Vec<VirtualPath> = parents.filter(|path| !path.is_root()).collect();
            for directory in missing.iter().rev() {
                match storage.make_directory(directory) {
                    Ok(()) | Err(FileError::AlreadyExists) => {}
                    Err(error) => return Err(error),
                }
            }
            storage.rename(from, to)
        }
        done => done,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn matches(pattern: &str, path: &str) -> bool {
        let path = VirtualPath::parse(path.as_bytes()).unwrap();
        PathPattern::new(pattern).matches(&path.components().collect::<Vec<_>>())
    }

    #[test]
    fn patterns_match_paths_and_hidden_names_too() {
        for (pattern, path, expected) in [
            ("/in/*", "/in/a", true),
            ("/in/*", "/in/.hidden", true),
            ("/in/*", "/in/a/b", false),
            ("/in/**", "/in/a/b", true),
            ("/in/**", "/in", true),
            ("/**/*.zip", "/a/b/c.zip", true),
            ("/**/*.zip", "/c.zip", true),
            ("/**/*.zip", "/c.zip.txt", false),
            ("/home/*/drafts/**", "/home/ann/drafts/x/y", true),
            ("/home/*/drafts/**", "/home/ann/x", false),
            ("**", "/", true),
            ("/**/a/**/b/**/c", "/x/a/y/b/c", true),
            ("/**/a/**/b/**/c", "/x/b/y/a/c", false),
            ("/**/**", "/a", true),
        ] {
            assert_eq!(matches(pattern, path), expected, "{pattern} {path}");
        }
        // Tried way by way this would take years.
        assert!(!matches(&"/**/a".repeat(12), &"/a/b".repeat(1000)));
    }

    /// What patterns mean, tried way by way: each part stands for its component, and `**` for any number of them.
    fn means<T>(pattern: &[Option<Glob>], rest: &[T], is_one: &dyn Fn(&Glob, &T) -> bool) -> bool {
        match (pattern.split_first(), rest.split_first()) {
            (None, None) => true,
            (Some((None, after)), _) => {
                (0..=rest.len()).any(|skipped| means(after, &rest[skipped..], is_one))
            }
            (Some((Some(glob), after)), Some((one, beneath))) => {
                is_one(glob, one) && means(after, beneath, is_one)
            }
            (None, Some(_)) | (Some((Some(_), _)), None) => false,
        }
    }

    /// Any path of these components.
    fn paths(components: &'static [&'static str]) -> impl Strategy<Value = Vec<&'static str>> {
        proptest::collection::vec(proptest::sample::select(components), 0..6)
    }

    proptest! {
        #[test]
        fn patterns_mean_what_trying_every_way_says(
            pattern in paths(&["a", "b", "a*", "*", "?b", "**", "**"]),
            path in paths(&["a", "b", "ab", ".b"]),
            levels in paths(&["a", "b", "b*", "*", "..", ".."]),
        ) {
            let pattern = PathPattern::new(&pattern.join("/"));
            let names: Vec<&[u8]> = path.iter().map(|name| name.as_bytes()).collect();
            let expected = means(&pattern.0, &names, &|glob, name| matches_hidden(glob, name));
            prop_assert_eq!(pattern.matches(&names), expected);

            let folder = VirtualPath::parse(format!("/{}", path.join("/")).as_bytes()).unwrap();
            let mut at: Vec<Level> = names.iter().map(|name| Level::Name(name.to_vec())).collect();
            let levels: Vec<Level> = levels.iter().map(|level| Level::new(level.as_bytes())).collect();
            let expected = levels.iter().any(|level| {
                match level {
                    Level::Name(name) if name == b".." => drop(at.pop()),
                    level => at.push(level.clone()),
                }
                means(&pattern.0, &at, &|glob, level| match level {
                    Level::Name(name) => matches_hidden(glob, name),
                    Level::Pattern(level) => glob.overlaps(level),
                })
            });
            prop_assert_eq!(pattern.may_cover(&Searched { folder, levels }), expected);
        }
    }
}
