//! A configured rule: the events that it is about, and its action. The checks return errors for the reader of the
//! configuration.

use std::time::Duration;

use millrace_ftp::commands::{COMMANDS, Command, Paths, SITE_COMMANDS};
use millrace_ftp::digest::Algorithm;

use crate::Event;
use crate::facts::{Facts, Template};
use crate::patterns::PathPattern;
use crate::setting_error::SettingError;
use crate::webhook::{Credentials, Webhook};

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

/// The users and events that a rule is about, and its action.
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
    /// The action.
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

/// The action of a rule.
#[derive(Debug, Clone)]
pub enum Action {
    /// Says no, with this text.
    Refuse(String),
    /// Applies the command to another path.
    Rewrite(Template),
    /// Moves an uploaded file.
    Move(Template),
    /// Compares an uploaded file with the hash in a second file, whichever comes first; until both have arrived, later
    /// rules do not run for either.
    Verify(Algorithm),
    /// Runs a program: the file, and its arguments.
    Run(Vec<Template>),
    /// Posts it, one event or an array of this many at a time.
    Webhook {
        /// To this address.
        url: String,
        /// At most this many in one post, from the queue.
        batch: usize,
        /// The credentials sent with it.
        credentials: Credentials,
    },
}

impl Action {
    /// Describes the rule for the log.
    pub(super) fn name(&self, facts: &Facts<'_>) -> String {
        match self {
            Self::Run(words) => {
                let program = words.first().and_then(|word| word.argument(facts).ok()).unwrap_or_default();
                program.to_string_lossy().into_owned()
            }
            Self::Webhook { url, .. } => url.clone(),
            _ => "a rule".to_owned(),
        }
    }

    /// Checks that events can be posted to this address.
    pub fn check_url(url: &str) -> Result<(), SettingError> {
        Webhook::check(url)
    }

    /// Checks that there is a command or method of this name.
    pub fn check_verb(verb: &str) -> Result<(), SettingError> {
        let is_in = |table: &[Command], name: &str| table.iter().any(|command| command.verb == name);
        let is_known = match verb.split_once(' ') {
            Some(("SITE", name)) => is_in(SITE_COMMANDS, name),
            Some(_) => false,
            None => is_in(COMMANDS, verb) || METHODS.contains(&verb),
        };
        match is_known {
            true => Ok(()),
            false => Err(SettingError::Verb(verb.to_owned())),
        }
    }

    /// Checks that this text can refuse a client.
    pub fn check_refusal(text: &str) -> Result<(), SettingError> {
        let code = text.split_once(' ').map_or(text, |(code, _)| code);
        match code.parse::<u16>() {
            Ok(number) if code.len() == 3 && !(400..600).contains(&number) => {
                Err(SettingError::RefusalCode(code.to_owned()))
            }
            _ => Ok(()),
        }
    }

    /// Checks that a rule can rewrite this command's path. It can for every HTTP method.
    pub fn check_rewrite(verb: &str) -> Result<(), SettingError> {
        let (table, name) = match verb.split_once(' ') {
            Some(("SITE", name)) => (SITE_COMMANDS, name),
            _ => (COMMANDS, verb),
        };
        let why = match table.iter().find(|command| command.verb == name).map(|command| command.paths) {
            _ if verb == "SITE" => "is many commands: name them, as in \"SITE MKDIR\"",
            Some(Paths::None) => "is about no path",
            Some(Paths::Within(_) | Paths::Listed(_)) => "takes more than one path, or more than a path",
            Some(Paths::Whole(_)) | None => return Ok(()),
        };
        Err(SettingError::Rewrite { verb: verb.to_owned(), why })
    }
}

impl Rule {
    /// Returns true if the session waits for what the rule does about this event.
    pub(super) fn waits(&self, event: Event) -> bool {
        match self.action {
            Action::Run(_) | Action::Webhook { .. } => self.wait.unwrap_or(event.asks()),
            _ => true,
        }
    }

    /// Returns true if what it does can take long. To move a file is to rename it.
    pub(super) fn takes_long(&self) -> bool {
        matches!(self.action, Action::Run(_) | Action::Webhook { .. } | Action::Verify(_))
    }
}
