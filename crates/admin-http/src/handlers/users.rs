//! Users and groups: listed, and changed where a database keeps them. The checks are those of `millrace user`.
//!
//! The invariant: no answer has a hash or a secret but that of a secret made just now, and a user is replaced only by an
//! administrator who has seen what it is now.

use std::fmt::Display;
use std::sync::Arc;

use hyper::StatusCode;
use hyper::header::{ETAG, IF_MATCH};
use millrace_server::auth::{
    self, Chain, DatabaseError, Group, Origin, Profile, RosterUser, Secret, Stored, UserQuery,
};
use serde_json::{Map, Value, json};

use crate::call::Call;
use crate::configuration::tag;
use crate::operation::Answering;
use crate::reply::{Problem, Reply};
use crate::shared_logins;

/// Users in an answer at most.
const SHOWN: u64 = 1000;

/// What the settings of a user have for a secret, which is never shown.
const TOTP: &str = "totp";

/// Lists users.
pub(crate) fn list(call: Call) -> Answering {
    with_chain(call, |call, chain| {
        let limit = call.number("limit").unwrap_or(SHOWN).min(SHOWN);
        let wanted = UserQuery {
            text: call.text("text").unwrap_or_default(),
            group: call.text("group"),
            offset: call.number("offset").unwrap_or(0),
            limit,
        };
        let page = chain.users(&wanted)?;
        let source = |source: auth::RosterSource| json!({ "name": source.name, "listed": source.lists_users, "writable": source.is_writable });
        let sources: Vec<Value> = chain.roster_sources()?.into_iter().map(source).collect();
        let users: Vec<Value> = page.users.iter().map(shown).collect();
        Ok(Reply::json(&json!({ "ok": true, "total": page.total, "users": users, "sources": sources })))
    })
}

/// Shows a user, with the settings that hold for it.
pub(crate) fn show(call: Call) -> Answering {
    with_chain(call, |call, chain| Ok(detailed(chain, &found(call, chain)?)))
}

/// Adds a user to a database.
pub(crate) fn create(call: Call) -> Answering {
    with_chain(call, |call, chain| {
        let name = call.text("name").unwrap_or_default();
        auth::check_name(name).map_err(|error| wrong("name", error))?;
        let taken = match call.text("source") {
            Some(_) => None,
            None => chain.user(name, None)?,
        };
        if let Some(user) = taken {
            let refused = format!("there is a user named {name} already, in {}", user.source);
            return Err(Problem::new(StatusCode::CONFLICT, refused).in_field("name"));
        }
        let database = chain.database(call.text("source")).ok_or_else(|| {
            let missing = "the server has no such database of users: \"millrace user add NAME\" makes one, which the server \
                           uses from its next start on";
            Problem::new(StatusCode::CONFLICT, missing)
        })?;
        let groups = texts(call, "groups");
        check_groups(chain, &groups)?;
        let profile = settings(call)?;
        let user = auth::User { name: name.to_owned(), groups, profile };
        let change = difference(&auth::User::default(), &user);
        let stored = Stored { user, hash: Some(new_hash(call)?) };
        database.add(&stored)?;
        note(call, "add", name, Some(&change));
        shown_again(chain, name, auth::Source::name(database))
    })
}

/// Replaces the groups and the settings of a user.
pub(crate) fn change(call: Call) -> Answering {
    with_chain(call, |call, chain| {
        let (groups, profile) = (texts(call, "groups"), settings(call)?);
        edit(call, chain, "set", |stored| {
            if stored.user.groups != groups {
                check_groups(chain, &groups)?;
            }
            let totp = stored.user.profile.totp.take();
            stored.user.profile = Profile { totp, ..profile };
            stored.user.groups = groups;
            Ok(())
        })
    })
}

/// Replaces the password of a user, and ends the user's logins here.
pub(crate) fn set_password(call: Call) -> Answering {
    with_chain(call, |call, chain| {
        let hash = new_hash(call)?;
        let reply = edit(call, chain, "password", |stored| {
            stored.hash = Some(hash);
            Ok(())
        })?;
        end_logins(call, call.text("name").unwrap_or_default());
        Ok(reply)
    })
}

/// Makes a secret of one-time codes, which are asked for from now on.
pub(crate) fn ask_for_codes(call: Call) -> Answering {
    with_chain(call, |call, chain| {
        let secret = Secret::random();
        let kept = secret.clone();
        let reply = edit(call, chain, "totp", |stored| {
            stored.user.profile.totp = Some(kept);
            Ok(())
        })?;
        let tag = reply.field(&ETAG).unwrap_or_default().to_owned();
        let url = secret.url(call.text("name").unwrap_or_default());
        let told = json!({ "ok": true, "secret": secret.to_string(), "url": url, "etag": tag });
        Ok(Reply::json(&told).with(ETAG, &tag))
    })
}

/// Asks for one-time codes no longer.
pub(crate) fn ask_for_no_codes(call: Call) -> Answering {
    with_chain(call, |call, chain| {
        edit(call, chain, "set", |stored| {
            stored.user.profile.totp = None;
            Ok(())
        })
    })
}

/// Removes a user.
pub(crate) fn remove(call: Call) -> Answering {
    with_chain(call, |call, chain| {
        let user = writable(call, chain)?;
        let name = &user.stored.user.name;
        let database = chain.database(Some(&user.source)).ok_or_else(|| missing(name))?;
        database.remove_if(name, |stored| check_condition(call, stored))??;
        note(call, "remove", name, None);
        end_logins(call, name);
        Ok(Reply::json(&json!({ "ok": true })))
    })
}

/// Ends the logins of a user, at all nodes.
fn end_logins(call: &Call, user: &str) {
    shared_logins::end_user(user, &call.running);
    call.api.logins.remove_user(user);
}

/// Lists groups.
pub(crate) fn groups(call: Call) -> Answering {
    with_chain(call, |call, chain| {
        let text = call.text("text").unwrap_or_default().to_ascii_lowercase();
        let groups = chain.groups()?.into_iter();
        let wanted = groups.filter(|(group, _)| group.name.to_ascii_lowercase().contains(&text));
        let groups: Vec<Value> = wanted.map(|(group, members)| shown_group(group, members)).collect();
        Ok(Reply::json(&json!({ "ok": true, "groups": groups })))
    })
}

/// Shows a group.
pub(crate) fn group(call: Call) -> Answering {
    with_chain(call, |call, chain| {
        let name = call.text("name").unwrap_or_default();
        let found = chain.groups()?.into_iter().find(|(group, _)| group.name == name);
        let (group, members) = found.ok_or_else(|| {
            Problem::new(StatusCode::NOT_FOUND, format!("there is no [[group]] table named {name}"))
        })?;
        let mut told = shown_group(group, members);
        told["ok"] = true.into();
        Ok(Reply::json(&told))
    })
}

/// Has a thread do what may wait for a database, with the accounts as they are now.
fn with_chain(
    call: Call,
    work: impl FnOnce(&Call, &Chain) -> Result<Reply, Problem> + Send + 'static,
) -> Answering {
    Box::pin(async move {
        let api = Arc::clone(&call.api);
        let done = move || {
            let accounts = call.running.accounts();
            match accounts.chain() {
                Some(chain) => work(&call, chain),
                None => {
                    Err(Problem::new(StatusCode::CONFLICT, "the accounts of this server cannot be listed"))
                }
            }
        };
        api.wait_for(done).await?
    })
}

/// Changes a user of a database, if it still is what the administrator has seen.
fn edit(
    call: &Call,
    chain: &Chain,
    action: &str,
    change: impl FnOnce(&mut Stored) -> Result<(), Problem>,
) -> Result<Reply, Problem> {
    let user = writable(call, chain)?;
    let name = &user.stored.user.name;
    let database = chain.database(Some(&user.source)).ok_or_else(|| missing(name))?;
    let mut changed = String::new();
    database.change(name, |stored| {
        check_condition(call, stored)?;
        let before = stored.user.clone();
        change(stored)?;
        changed = difference(&before, &stored.user);
        Ok::<_, Problem>(())
    })??;
    note(call, action, name, Some(changed.as_str()).filter(|_| action == "set"));
    shown_again(chain, name, &user.source)
}

/// Finds the user that is meant.
fn found(call: &Call, chain: &Chain) -> Result<RosterUser, Problem> {
    let name = call.text("name").unwrap_or_default();
    chain.user(name, call.text("source"))?.ok_or_else(|| missing(name))
}

/// Finds the user that is meant, where it may be changed.
fn writable(call: &Call, chain: &Chain) -> Result<RosterUser, Problem> {
    let user = found(call, chain)?;
    match user.is_writable {
        true => Ok(user),
        false => {
            let refused = format!("{} is kept in {}, and changed there", user.stored.user.name, user.source);
            Err(Problem::new(StatusCode::CONFLICT, refused))
        }
    }
}

fn missing(name: &str) -> Problem {
    Problem::new(StatusCode::NOT_FOUND, format!("no source that lists its users has a user named {name}"))
}

/// Refuses a change of what the administrator has not seen.
fn check_condition(call: &Call, stored: &Stored) -> Result<(), Problem> {
    let present = tag_of(stored);
    match call.field(IF_MATCH.as_str()) {
        None => {
            let missing =
                "say by If-Match which user you have seen: its ETag comes with GET /api/v1/users/NAME";
            Err(Problem::new(StatusCode::PRECONDITION_REQUIRED, missing))
        }
        Some("*") => Ok(()),
        Some(seen) if seen == present => Ok(()),
        Some(_) => {
            let other = "the user has been changed since you read it: read it again";
            Err(Problem::new(StatusCode::PRECONDITION_FAILED, other).with(ETAG, present))
        }
    }
}

/// Returns the entity tag of a user: another one for each change, that of a password, too.
fn tag_of(Stored { user, hash }: &Stored) -> String {
    tag(&json!([user.name, user.groups, user.profile, hash]).to_string())
}

fn shown(user: &RosterUser) -> Value {
    let auth::User { name, groups, profile } = &user.stored.user;
    json!({
        "name": name, "source": user.source, "writable": user.is_writable, "password": user.has_password,
        "second-factor": profile.totp.is_some(), "groups": groups, "settings": shown_settings(profile),
    })
}

fn shown_settings(profile: &Profile) -> Value {
    json!(Profile { totp: None, ..profile.clone() })
}

fn shown_group(group: &Group, members: u64) -> Value {
    json!({ "name": group.name, "members": members, "settings": shown_settings(&group.profile) })
}

fn shown_again(chain: &Chain, name: &str, source: &str) -> Result<Reply, Problem> {
    let user = chain.user(name, Some(source))?.ok_or_else(|| missing(name))?;
    Ok(detailed(chain, &user))
}

/// Shows a user with what holds for it, and its entity tag.
fn detailed(chain: &Chain, user: &RosterUser) -> Reply {
    let line = |(key, value, origin): (&str, String, Origin)| {
        let origin = match origin {
            Origin::Default => "default".to_owned(),
            Origin::User => "user".to_owned(),
            Origin::Group(name) => format!("group {name}"),
        };
        json!({ "key": key, "value": value, "origin": origin })
    };
    let (mut told, tag) = (shown(user), tag_of(&user.stored));
    told["ok"] = true.into();
    told["effective"] = chain.effective_of(user).explain().into_iter().map(line).collect();
    told["etag"] = tag.as_str().into();
    Reply::json(&told).with(ETAG, &tag)
}

/// Refuses groups that are not in the configuration: a member of one is not let in.
fn check_groups(chain: &Chain, groups: &[String]) -> Result<(), Problem> {
    match chain.unknown_groups(groups)[..] {
        [] => Ok(()),
        ref unknown => {
            let unknown = unknown.join(", ");
            let told = format!(
                "{unknown}: there is no [[group]] table of that name in the configuration, and its members would not \
                 be let in"
            );
            Err(wrong("groups", told))
        }
    }
}

/// Reads the settings of the body.
fn settings(call: &Call) -> Result<Profile, Problem> {
    let settings = match call.arguments.get("settings") {
        Some(Value::Object(settings)) => settings.clone(),
        _ => Map::new(),
    };
    if settings.contains_key(TOTP) {
        return Err(wrong("settings.totp", "POST /api/v1/users/NAME/totp makes a secret of one-time codes"));
    }
    auth::read_settings(settings).map_err(|error| wrong(&format!("settings.{}", error.key()), &error))
}

/// Returns the hash of the body's password, or the hash that it has.
fn new_hash(call: &Call) -> Result<String, Problem> {
    match (call.text("password"), call.text("hash")) {
        (Some(password), None) => {
            auth::hash_new_password(password.as_bytes()).map_err(|error| wrong("password", error))
        }
        (None, Some(hash)) => auth::check_hash(hash.to_owned()).map_err(|error| wrong("hash", error)),
        _ => Err(wrong("password", "send either the password or its hash")),
    }
}

fn texts(call: &Call, name: &str) -> Vec<String> {
    let texts = call.arguments.get(name).and_then(Value::as_array).into_iter().flatten();
    texts.filter_map(Value::as_str).map(str::to_owned).collect()
}

fn wrong(field: &str, why: impl Display) -> Problem {
    Problem::invalid(why.to_string()).in_field(field)
}

/// Returns what the audit log says of a change: `access=ro sessions=`, as `millrace user set` has it.
fn difference(before: &auth::User, after: &auth::User) -> String {
    let keys = |user: &auth::User| match json!(user.profile) {
        Value::Object(mut keys) => {
            keys.insert("groups".to_owned(), user.groups.join(",").into());
            keys
        }
        _ => Map::new(),
    };
    let (before, after) = (keys(before), keys(after));
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let set = after.iter().filter(|(key, value)| before.get(*key) != Some(*value));
    let set = set.map(|(key, value)| match key.as_str() {
        TOTP => "totp=(secret)".to_owned(),
        key => format!("{key}={}", text(value)),
    });
    let gone = before.keys().filter(|key| !after.contains_key(*key)).map(|key| format!("{key}="));
    let changes: Vec<String> = set.chain(gone).collect();
    changes.join(" ")
}

/// Records a change in the log and in the audit log.
fn note(call: &Call, action: &str, account: &str, settings: Option<&str>) {
    let settings = settings.filter(|text| !text.is_empty());
    call.as_administrator(|by| call.running.note_account_changed(action, account, settings, by));
}

impl From<DatabaseError> for Problem {
    fn from(error: DatabaseError) -> Self {
        match error {
            DatabaseError::Taken(_) => Self::new(StatusCode::CONFLICT, error.to_string()).in_field("name"),
            DatabaseError::Missing(_) => Self::new(StatusCode::NOT_FOUND, error.to_string()),
            error => Self::failed(format!("the database of users cannot be used: {error}")),
        }
    }
}
