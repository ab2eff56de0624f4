//! `[[hook]]` tables, turned into rules. Each has one thing to be done; several in a row are a chain.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use millrace_server::Hooks;
use millrace_server::hooks::{
    Action, Algorithm, Credentials, EVENTS, Event, PathPattern, Rule, Rules, Template,
};
use millrace_terminal::Failure;

use super::places::Places;
use super::said::{Place, Said};
use super::setting::{default, required, settings, unset};
use super::slot::{Many, Map, One};
use super::sources;
use super::value::{Count, OnFailure, Period, Switch};

/// How long a program or a receiver may take, where nothing is said.
const TIME_LIMIT: Duration = Duration::from_secs(10);

settings! {
    /// A `[[hook]]` table. That it does one thing is checked when it is resolved.
    HookTable of "hook" {
        /// The event, or an array of them: `"upload"`
        on: Many<String> = required();
        /// Where the event is a command: `"STOR"`, `["SITE CHMOD", "DELE"]`
        verbs: Many<String> = unset("all commands");
        /// Patterns of names of users: `"partner-*"`
        users: Many<String> = unset("all");
        /// Patterns of paths: `"/in/**"`. One is enough of those that a command names, as
        /// [hooks.md](hooks.md#paths) lists them; of a rename, the old or the new one.
        paths: Many<String> = unset("all");
        /// Only of files of more bytes: `"10M"`
        larger_than: One<Count> = unset("any size");
        /// Only of files of fewer bytes
        smaller_than: One<Count> = unset("any size");
        /// Says no, with this text; a code of 400 to 599 may stand before it
        refuse: One<String> = unset("");
        /// Has the command be about this path: `"/in/{user}/{name}"`. Not for commands with several paths, or
        /// with more than a path.
        rewrite: One<String> = unset("");
        /// Where an upload is moved to; folders are made
        moved: One<String> = unset("").named("move");
        /// The hash (`"sha256"`, `"md5"`, ...) that an upload `name` is held to, which comes in `name.sha256`.
        /// Of the two the first waits: the tables below are looked at when both are there, for both.
        verify: One<String> = unset("");
        /// A program and its arguments: `["/usr/local/bin/check", "{file}"]`. A name without a slash is looked
        /// for in `PATH`.
        run: Many<String> = unset("");
        /// An address that the event is posted to: `"https://example.com/events"`
        webhook: One<String> = unset("");
        /// What goes with each post besides: `{ Authorization = "Bearer 5e9f" }`. See
        /// [hooks.md](hooks.md#whose-post-it-is).
        headers: Map<String> = unset("none");
        /// What posts are signed with, at least 24 characters
        secret: One<String> = unset("none");
        /// A file whose first line is that
        secret_file: One<PathBuf> = unset("none");
        /// Events at most that are posted together, as an array, where no session waits
        batch: One<Count> = default("1");
        /// Whether the session waits for a program or a webhook. If not, the event goes through `hooks-queue`.
        wait: One<Switch> = unset("where it is asked");
        /// How long a program or a webhook may take
        time_limit: One<Period> = default("10s");
        /// What follows where a program or a webhook fails: `"refuse"` (451), or `"pass"`
        on_failure: One<OnFailure> = default("refuse");
        /// Where an upload goes that is refused: `"/quarantine/{name}"`; `"{path}"` leaves it where it is
        refused_to: One<String> = unset("removed");
    }
}

impl HookTable {
    /// The keys that say what receivers are shown, and where they stand.
    pub(crate) fn shown_to_receivers(&self) -> impl Iterator<Item = (&'static str, &Place)> {
        let headers = self.headers.values().next().map(|said| ("headers", &said.place));
        let secret = self.secret.as_ref().map(|said| ("secret", &said.place));
        let file = self.secret_file.as_ref().map(|said| ("secret-file", &said.place));
        [headers, secret, file].into_iter().flatten()
    }

    /// `upload of /in/**: run ./check {file}`
    pub(crate) fn shown(&self) -> String {
        let words =
            |said: &[Said<String>]| said.iter().map(|said| &*said.value).collect::<Vec<_>>().join(", ");
        let mut text = words(&self.on);
        let list = |name: &str, said: &[Said<String>]| match said {
            [] => String::new(),
            said => format!(" {name}{}", words(said)),
        };
        text += &list("", &self.verbs);
        text += &list("of ", &self.paths);
        text += &list("by ", &self.users);
        let one = |said: &Option<Said<String>>| said.as_ref().map(|said| said.value.clone());
        let done = [
            ("refuse: ", one(&self.refuse)),
            ("rewrite to ", one(&self.rewrite)),
            ("move to ", one(&self.moved)),
            ("verify ", one(&self.verify)),
            ("run ", (!self.run.is_empty()).then(|| words(&self.run).replace(", ", " "))),
            ("tell ", one(&self.webhook)),
        ];
        let done = done.into_iter().find_map(|(does, what)| Some(format!("{does}{}", what?)));
        let is_signed = self.secret.is_some() || self.secret_file.is_some();
        format!("{text}: {}{}", done.unwrap_or_default(), if is_signed { ", signed" } else { "" })
    }
}

/// Arguments of programs that a client could make an option.
pub(crate) fn leading_client_text(tables: &[HookTable]) -> Vec<String> {
    let words = tables.iter().flat_map(|table| table.run.iter().map(move |word| (table, word)));
    let warning = |(table, word): (&HookTable, &Said<String>)| {
        let name = Template::parse(&word.value).ok()?.leading_client_text()?;
        Some(format!(
            "the hook {:?} is not run, and what it is about is refused, where {{{name}}} begins with a hyphen, which a \
             program would take for an option: write something before it, such as \"--{name}={{{name}}}\"",
            table.shown()
        ))
    };
    words.filter_map(warning).collect()
}

/// The hooks as written; `None` where there are none, so that they cost nothing.
pub(crate) fn hooks(
    tables: Vec<HookTable>,
    queue: Option<&Said<PathBuf>>,
    places: &Places<'_>,
) -> Result<Option<Arc<dyn Hooks>>, Failure> {
    let place = tables.first().and_then(|table| table.on.first()).map(|said| said.place.clone());
    let rules = tables.into_iter().map(|table| rule(table, places)).collect::<Result<Vec<_>, _>>()?;
    match (place, queue) {
        (None, _) => Ok(None),
        (Some(place), None) if Rules::needs_queue(&rules) => {
            let message = "some of these hooks are told what has happened, which has to be kept until it is \
                           delivered: name a file for it with hooks-queue";
            Err(places.error(&place, "hook", message))
        }
        (Some(_), queue) => Ok(Some(Arc::new(Rules::new(rules, queue.map(|said| places.path(said)))))),
    }
}

fn rule(table: HookTable, places: &Places<'_>) -> Result<Rule, Failure> {
    let place = table.on.first().map_or(Place::CommandLine, |said| said.place.clone());
    let on = table.on.iter().map(|said| event(said, places)).collect::<Result<_, _>>()?;
    let action = action(&table, places)?.ok_or_else(|| {
        places.error(&place, "hook", "say what is to be done: refuse, rewrite, move, verify, run or webhook")
    })?;
    for said in &table.verbs {
        let known = Action::check_verb(&said.value.to_uppercase());
        known.map_err(|message| places.error(&said.place, "verbs", &message))?;
    }
    let patterns = |said: &[Said<String>]| said.iter().map(|said| PathPattern::new(&said.value)).collect();
    let size = |said: &Option<Said<Count>>| said.as_ref().map(|said| said.value.0 as u64);
    let rule = Rule {
        on,
        verbs: table.verbs.iter().map(|said| said.value.to_uppercase()).collect(),
        users: patterns(&table.users),
        paths: patterns(&table.paths),
        larger_than: size(&table.larger_than),
        smaller_than: size(&table.smaller_than),
        action,
        wait: table.wait.as_ref().map(|said| said.value.0),
        time_limit: table.time_limit.as_ref().map_or(TIME_LIMIT, |said| said.value.0),
        refuses_on_failure: table.on_failure.as_ref().is_none_or(|said| said.value == OnFailure::Refuse),
        refused_to: table.refused_to.as_ref().map(|said| template(said, places)).transpose()?,
    };
    check(&rule, &place, places)?;
    if matches!(rule.action, Action::Rewrite(_)) {
        for (verb, said) in rule.verbs.iter().zip(&table.verbs) {
            Action::check_rewrite(verb).map_err(|message| places.error(&said.place, "verbs", &message))?;
        }
    }
    Ok(rule)
}

/// Refuses what could never do anything.
fn check(rule: &Rule, place: &super::said::Place, places: &Places<'_>) -> Result<(), Failure> {
    let wrong = |message: &str| Err(places.error(place, "hook", message));
    let only = |event: Event| rule.on.iter().all(|on| *on == event);
    match &rule.action {
        Action::Refuse(_) if !rule.on.iter().all(|event| event.asks()) => {
            wrong("what has happened cannot be refused: connect, login, command and upload can")
        }
        Action::Rewrite(_) if !only(Event::Command) => {
            wrong("only a command can be rewritten: on = \"command\"")
        }
        Action::Move(_) | Action::Verify(_) if !only(Event::Upload) => {
            wrong("only an upload can be moved or verified: on = \"upload\"")
        }
        Action::Refuse(_) | Action::Rewrite(_) if rule.on.contains(&Event::Interrupted) => {
            wrong("what was interrupted is over")
        }
        _ if rule.wait == Some(true) && rule.on.contains(&Event::Interrupted) => {
            wrong("interrupted uploads are reported through the queue only, without waiting")
        }
        _ => Ok(()),
    }
}

fn event(said: &Said<String>, places: &Places<'_>) -> Result<Event, Failure> {
    Event::parse(&said.value).ok_or_else(|| {
        let names: Vec<&str> = EVENTS.iter().map(|row| row.1).collect();
        let message = format!("there is no event {:?}; there are {}", said.value, names.join(", "));
        places.error(&said.place, "on", &message)
    })
}

fn template(said: &Said<String>, places: &Places<'_>) -> Result<Template, Failure> {
    Template::parse(&said.value).map_err(|message| places.error(&said.place, "hook", &message))
}

/// The credentials for the receiver at `url`. An error in a header is reported without its value, which is secret.
pub(super) fn credentials(
    headers: &Map<String>,
    (secret, secret_file): (&One<String>, &One<PathBuf>),
    url: &Said<String>,
    places: &Places<'_>,
) -> Result<Credentials, Failure> {
    let mut credentials = Credentials::default();
    for (name, value) in headers {
        let with = credentials.header(name, &value.value);
        credentials = with.map_err(|message| places.error(&url.place, "headers", &message))?;
    }
    match (secret, secret_file) {
        (None, None) => Ok(credentials),
        (Some(_), Some(file)) => {
            Err(places.error(&file.place, "secret-file", "there is either `secret` or `secret-file`"))
        }
        (Some(said), None) => {
            credentials.secret(&said.value).map_err(|message| places.error(&said.place, "secret", &message))
        }
        (None, Some(said)) => {
            let wrong = |message: &str| places.error(&said.place, "secret-file", message);
            let bytes = sources::read(Some(said), "secret-file", places)?.unwrap_or_default();
            let text = String::from_utf8(bytes).map_err(|_| wrong("the secret is not UTF-8"))?;
            credentials
                .secret(text.lines().next().unwrap_or_default())
                .map_err(|error| wrong(&error.to_string()))
        }
    }
}

/// The action: exactly one.
fn action(table: &HookTable, places: &Places<'_>) -> Result<Option<Action>, Failure> {
    let mut actions = Vec::new();
    if let Some(said) = &table.refuse {
        let checked = Action::check_refusal(&said.value);
        checked.map_err(|message| places.error(&said.place, "refuse", &message))?;
        actions.push((said.place.clone(), Action::Refuse(said.value.clone())));
    }
    if let Some(said) = &table.rewrite {
        actions.push((said.place.clone(), Action::Rewrite(template(said, places)?)));
    }
    if let Some(said) = &table.moved {
        actions.push((said.place.clone(), Action::Move(template(said, places)?)));
    }
    if let Some(said) = &table.verify {
        let algorithm = Algorithm::parse(said.value.as_bytes()).ok_or_else(|| {
            let names: Vec<&str> = Algorithm::ALL.iter().map(|algorithm| algorithm.name()).collect();
            places.error(
                &said.place,
                "verify",
                &format!("there is no hash {:?}; there are {}", said.value, names.join(", ")),
            )
        })?;
        actions.push((said.place.clone(), Action::Verify(algorithm)));
    }
    if let Some(first) = table.run.first() {
        places.find_program(first, "run")?;
        let mut words = table.run.iter().map(|said| template(said, places)).collect::<Result<Vec<_>, _>>()?;
        // A name without a slash is one of PATH.
        if let Some(folder) = places.folder_of_program(first) {
            let program = words.remove(0).beneath(folder);
            words.insert(0, program);
        }
        actions.push((first.place.clone(), Action::Run(words)));
    }
    if let Some(said) = &table.webhook {
        Action::check_url(&said.value).map_err(|message| places.error(&said.place, "webhook", &message))?;
        let batch = table.batch.as_ref().map_or(1, |said| said.value.0.clamp(1, 1000));
        let secrets = (&table.secret, &table.secret_file);
        let (url, credentials) = (said.value.clone(), credentials(&table.headers, secrets, said, places)?);
        actions.push((said.place.clone(), Action::Webhook { url, batch, credentials }));
    } else if let Some((key, place)) = table.shown_to_receivers().next() {
        let message = format!("`{key}` means nothing to a hook without `webhook`");
        return Err(places.error(place, key, &message));
    }
    if let Some((place, _)) = actions.get(1) {
        let message = "a [[hook]] table does one thing; write a second table below it for the next";
        return Err(places.error(place, "hook", message));
    }
    Ok(actions.pop().map(|(_, action)| action))
}
