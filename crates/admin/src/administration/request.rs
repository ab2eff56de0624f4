//! Requests and their answers.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::Ordering;
use std::time::Duration;

use millrace_storage::TallyReport;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::{Administration, Wake, everywhere};
use crate::error::AdminError;
use crate::events;
use crate::nodes;
use crate::role::Role;
use crate::tokens::TokenError;
use millrace_limits::{BanReport, Limit, Limits, Network, Scope, ScopeReport};
use millrace_server::cluster::TokenTable;
use millrace_server::{Live, Running, SessionReport, TraceFilter, TransferReport, cluster_of};

/// Ten years: beyond that it is for the configuration.
const LONGEST_BAN: u64 = 10 * 365 * 86_400;

/// An order of an administrator.
#[derive(Debug, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case", deny_unknown_fields)]
pub(super) enum Request {
    /// Tells which server it is.
    Status {},
    /// Lists the sessions.
    Sessions {
        /// This many of each node, those with the fastest transfers; else all.
        #[serde(default)]
        busiest: Option<usize>,
    },
    /// End sessions: all that every given part matches.
    Kick {
        session: Option<u64>,
        user: Option<String>,
        host: Option<String>,
        address: Option<IpAddr>,
        node: Option<String>,
    },
    /// Follows the commands and replies of the sessions that every given part matches.
    Trace { user: Option<String>, address: Option<IpAddr>, session: Option<u64> },
    /// Follows the log, from this many lines before on.
    Log { lines: Option<u32> },
    /// Without a scope: reports the effective limits. With one: sets the given limits, or restores the configured ones.
    Limits {
        scope: Option<String>,
        download: Option<String>,
        upload: Option<String>,
        sessions: Option<String>,
        #[serde(default)]
        restore: bool,
    },
    /// Bans a network for this many seconds, or until the ban is lifted.
    Ban { network: String, seconds: Option<u64> },
    /// Lift that.
    Unban { network: String },
    /// Lists the bans.
    Bans {},
    /// Lists the nodes of the cluster.
    Cluster {},
    /// Reports the use of quotas.
    Quotas {},
    /// Count that anew: in one tree, or in all.
    Recount { tree: Option<String> },
    /// Lists the undelivered events of hooks.
    Events { to: Option<String>, most: Option<usize> },
    /// Have some delivered that were put aside, and try those that wait now.
    RetryEvents {
        #[serde(default)]
        events: Vec<String>,
        to: Option<String>,
        #[serde(default)]
        all: bool,
    },
    /// Have some forgotten.
    DropEvents {
        #[serde(default)]
        events: Vec<String>,
        to: Option<String>,
        #[serde(default)]
        all: bool,
        #[serde(default)]
        waiting: bool,
    },
    /// Read the configuration anew.
    Reload {},
    /// Have another server take the place of this one: the program as it is now, with the same arguments.
    Upgrade {},
    /// Stops accepting, at once or after this many seconds in which it is not ready, waits for transfers, and ends the
    /// server.
    Drain { after: Option<u64> },
    /// The same, with the configured grace.
    Stop {},
    /// Tells which record of the audit log was written last.
    Audit {},
    /// Sends a trial to each receiver of notices.
    TestNotices {},
    /// Lists the tokens of the admin API.
    Tokens {},
    /// Makes a token, for this many seconds or for good.
    AddToken { name: String, role: Role, seconds: Option<u64> },
    /// Forgets a token.
    RemoveToken { name: String },
    /// Another server wants this socket's name: it may have it if this one no longer accepts clients.
    GiveWay {},
}

impl Request {
    /// Returns true if it is no mere question.
    pub(super) fn changes(&self) -> bool {
        match self {
            Self::Limits { download, upload, sessions, restore, .. } => {
                *restore || [download, upload, sessions].into_iter().any(Option::is_some)
            }
            Self::Status {}
            | Self::Sessions { .. }
            | Self::Bans {}
            | Self::Cluster {}
            | Self::Quotas {}
            | Self::Events { .. }
            | Self::Audit {}
            | Self::Log { .. }
            | Self::Tokens {}
            | Self::GiveWay {} => false,
            _ => true,
        }
    }

    /// Begins what is followed live.
    pub(super) fn follow(self, running: &Running, wake: Wake) -> Result<Live, AdminError> {
        match self {
            Self::Trace { user: None, address: None, session: None } => Err(AdminError::TraceWhom),
            Self::Trace { user, address, session } => {
                let session = session.map(|session| everywhere::number_here(running, session));
                running.trace(TraceFilter { user, address, session }, wake).ok_or(AdminError::TooManyTraces)
            }
            Self::Log { lines } => Ok(running.watch_log(lines.unwrap_or(0) as usize, wake)),
            _ => Err(AdminError::NotLive),
        }
    }

    /// Returns true if the server, and its logs, may end before the answer.
    pub(super) fn ends(&self) -> bool {
        matches!(self, Self::Stop {} | Self::Drain { .. })
    }

    /// Performs it.
    pub(super) fn perform(self, running: &Running, served: &Administration) -> Result<Value, AdminError> {
        match self {
            Self::Status {} => Ok(status(running, served)),
            Self::Sessions { busiest } => Ok(everywhere::sessions(running, busiest)),
            Self::Kick { session: None, user: None, host: None, address: None, node: None } => {
                Err(AdminError::KickWhom)
            }
            Self::Kick { session, user, host, address, node } => {
                everywhere::kick(running, KickedSessions { session, user, host, address }, node.as_deref())
            }
            Self::Trace { .. } | Self::Log { .. } => Err(AdminError::Live),
            Self::Limits { scope: None, download: None, upload: None, sessions: None, restore: false } => {
                Ok(json!({ "limits": running.limits().iter().map(limits).collect::<Vec<_>>() }))
            }
            Self::Limits { scope, download, upload, sessions, restore } => {
                let scope = scope.as_deref().ok_or(AdminError::LimitsWhose)?.parse()?;
                everywhere::limits(running, scope, ChangedLimits { download, upload, sessions, restore })
            }
            Self::Ban { network, seconds } => {
                let time = seconds.map(|seconds| Duration::from_secs(seconds.min(LONGEST_BAN)));
                match running.ban(parse_network(&network)?, time) {
                    true => Ok(Value::Null),
                    false => Err(AdminError::TooManyBans),
                }
            }
            Self::Unban { network } => match running.lift_ban(parse_network(&network)?) {
                true => Ok(Value::Null),
                false => Err(AdminError::NotBanned(network)),
            },
            Self::Bans {} => Ok(json!({ "bans": running.bans().iter().map(ban).collect::<Vec<_>>() })),
            Self::Cluster {} => nodes::list(running),
            Self::Quotas {} => {
                Ok(json!({ "quotas": running.quotas().iter().map(tally).collect::<Vec<_>>() }))
            }
            Self::Recount { tree } => {
                let counted = running.recount_quotas(tree.as_deref())?;
                Ok(json!({ "quotas": counted.iter().map(tally).collect::<Vec<_>>() }))
            }
            Self::Events { to, most } => events::list(running, to.as_deref(), most),
            Self::RetryEvents { events, to, all } => {
                events::retry(running, &events::meant(events, to, all, false)?)
            }
            Self::DropEvents { events, to, all, waiting } => {
                events::forget(running, &events::meant(events, to, all, waiting)?)
            }
            Self::Reload {} => (served.orders.reload)()
                .map(|keys| json!({ "changed": keys.changed, "next-start": keys.next_start }))
                .map_err(AdminError::Reload),
            Self::Upgrade {} => upgrade(running, served),
            Self::Drain { after: None | Some(0) } => Ok(end(running, "drained", Running::drain)),
            Self::Drain { after: Some(seconds) } => drain_after(running, seconds),
            Self::Stop {} => Ok(end(running, "ctl stop", Running::request_shutdown)),
            Self::Audit {} => audit(running),
            Self::TestNotices {} => test_notices(served),
            Self::Tokens {} => Ok(served.tokens().list()),
            Self::AddToken { name, role, seconds } => {
                Ok(served.tokens().add(&name, role, seconds, tokens_of_cluster(running)?)?)
            }
            Self::RemoveToken { name } => {
                Ok(served.tokens().remove(&name, tokens_of_cluster(running)?).map(|()| Value::Null)?)
            }
            Self::GiveWay {} if running.is_ending() => {
                served.give();
                Ok(Value::Null)
            }
            Self::GiveWay {} => Err(AdminError::Serving),
        }
    }
}

/// Returns where the nodes of the cluster share their tokens, if the server is one; an error while the database is away.
fn tokens_of_cluster(running: &Running) -> Result<Option<&dyn TokenTable>, TokenError> {
    cluster_of(running).map(|cluster| cluster.tokens()).transpose().map_err(TokenError::Cluster)
}

/// A request for the log: `ban network=192.0.2.7 seconds=60`.
pub(super) fn said(request: &Map<String, Value>) -> String {
    let what = request.get("do").and_then(Value::as_str).unwrap_or_default().to_owned();
    let others = request.iter().filter(|(key, value)| *key != "do" && !value.is_null());
    others.fold(what, |said, (key, value)| match value {
        Value::String(text) => format!("{said} {key}={text}"),
        value => format!("{said} {key}={value}"),
    })
}

/// Which server it is, where it listens, and how busy it is.
fn status(running: &Running, served: &Administration) -> Value {
    let sessions = running.sessions();
    let texts = |addresses: &[SocketAddr]| addresses.iter().map(SocketAddr::to_string).collect::<Vec<_>>();
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "pid": std::process::id(),
        "seconds": served.begun.elapsed().as_secs(),
        "ending": running.is_ending(),
        "ftp": texts(running.ftp_addresses()),
        "ftps": texts(running.ftps_addresses()),
        "http": texts(running.http_addresses()),
        "https": texts(running.https_addresses()),
        "sessions": sessions.len(),
        "transfers": sessions.iter().filter(|session| session.transfer.is_some()).count(),
    })
}

/// The last record of the audit log, to be noted where it cannot be changed with the log.
fn audit(running: &Running) -> Result<Value, AdminError> {
    let position = running.audit_position().ok_or(AdminError::NoAuditLog)?;
    let (file, last) = position.map_err(AdminError::AuditLog)?;
    Ok(json!({ "file": file.to_string_lossy(), "seq": last.seq, "sha256": last.sha256.to_string() }))
}

/// Sends a trial to each receiver of notices, and waits.
fn test_notices(served: &Administration) -> Result<Value, AdminError> {
    let tried = (served.orders.test_notices)();
    if tried.is_empty() {
        return Err(AdminError::NoNotices);
    }
    let shown =
        |(receiver, failure): &(String, Option<String>)| json!({ "receiver": receiver, "error": failure });
    Ok(json!({ "receivers": tried.iter().map(shown).collect::<Vec<_>>() }))
}

/// Which sessions are to end: those that every given part matches.
///
/// Nodes tell it to one another. A program that left out a part that it does not know would end more sessions than are meant, so it
/// ends none; and a part that is not given is not told, so that nodes of two versions understand one another without it.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct KickedSessions {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) session: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) user: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) host: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) address: Option<IpAddr>,
}

/// Ends sessions of this server; returns how many.
pub(super) fn kick(running: &Running, whose: KickedSessions) -> usize {
    let KickedSessions { session, user, host, address } = whose;
    let meant = move |one: &SessionReport| {
        session.is_none_or(|number| one.number == number)
            && user.as_ref().is_none_or(|user| one.user.as_deref() == Some(user.as_bytes()))
            && host.as_ref().is_none_or(|host| one.host.as_deref() == Some(&**host))
            && address.is_none_or(|address| one.peer.ip() == address.to_canonical())
    };
    running.kick(meant)
}

/// What an order changes of the limits of a scope. Those that are left out stay as they are, unless `restore` removes them.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ChangedLimits {
    pub(super) download: Option<String>,
    pub(super) upload: Option<String>,
    pub(super) sessions: Option<String>,
    #[serde(default)]
    pub(super) restore: bool,
}

impl ChangedLimits {
    /// Returns whether it only asks for the limits.
    pub(super) fn is_question(&self) -> bool {
        !self.restore && [&self.download, &self.upload, &self.sessions].into_iter().all(Option::is_none)
    }

    /// Reads the limits.
    pub(super) fn limits(&self) -> Result<Limits, AdminError> {
        let limit = |text: &Option<String>| text.as_deref().map(str::parse::<Limit>).transpose();
        let [download, upload, sessions] = [&self.download, &self.upload, &self.sessions].map(limit);
        Ok(Limits { download: download?, upload: upload?, sessions: sessions? })
    }
}

/// Sets limits of this server, or tells those that hold.
pub(super) fn limits_here(
    running: &Running,
    scope: &Scope,
    changed: &ChangedLimits,
) -> Result<Value, AdminError> {
    if changed.is_question() {
        return limits_of(running, scope);
    }
    let limits = changed.limits()?;
    match (changed.restore && !running.restore_limits(scope)) || !running.set_limits(scope, &limits) {
        true => Err(AdminError::UnknownScope(scope.clone())),
        false => Ok(with_note(json!({}), scope, &running.limits())),
    }
}

/// Ends the server in this way; returns what it waits for.
fn end(running: &Running, why: &'static str, how: impl FnOnce(&Running)) -> Value {
    let left = transfers(running);
    running.note_why_it_ends(why);
    how(running);
    left
}

/// Ends the server when its transfers have ended, which it begins to wait for after this time.
fn drain_after(running: &Running, seconds: u64) -> Result<Value, AdminError> {
    running.drain_after(Duration::from_secs(seconds)).map_err(AdminError::NoThread)?;
    running.note_why_it_ends("drained");
    Ok(transfers(running))
}

/// How many are under way.
fn transfers(running: &Running) -> Value {
    json!({ "transfers": running.sessions().iter().filter(|session| session.transfer.is_some()).count() })
}

/// One at a time; a server that ends has nothing to hand over.
fn upgrade(running: &Running, served: &Administration) -> Result<Value, AdminError> {
    if running.is_ending() {
        return Err(AdminError::Ending);
    }
    if served.is_upgrading.swap(true, Ordering::AcqRel) {
        return Err(AdminError::Upgrading);
    }
    // By then there may be no sessions, and no way to count them.
    let sessions = running.sessions().len();
    let given = running.hand_over((served.orders.successor)());
    served.is_upgrading.store(false, Ordering::Release);
    given
        .inspect(|pid| (served.orders.relieved)(*pid))
        .map(|pid| json!({ "pid": pid, "sessions": sessions }))
        .map_err(AdminError::from)
}

/// The effective limits of a scope, also of one without sessions.
pub(super) fn limits_of(running: &Running, scope: &Scope) -> Result<Value, AdminError> {
    let all = running.limits();
    let of_scope: Vec<Value> = all.iter().filter(|report| report.scope == *scope).map(limits).collect();
    let is_there = match scope {
        Scope::Session(number) => running.sessions().iter().any(|session| session.number == *number),
        Scope::Server | Scope::Listener(_) => !of_scope.is_empty(),
        Scope::Group(_) | Scope::User(_) => true,
    };
    match is_there {
        true => Ok(with_note(json!({ "limits": of_scope }), scope, &all)),
        false => Err(AdminError::UnknownScope(scope.clone())),
    }
}

/// An answer about a scope, with a note if the scope has no sessions.
pub(super) fn with_note(mut answer: Value, scope: &Scope, all: &[ScopeReport]) -> Value {
    let found = all.iter().find(|report| report.scope == *scope);
    let note = match scope {
        Scope::User(_) | Scope::Group(_) if found.is_some_and(|report| report.sessions > 0) => return answer,
        Scope::User(name) => {
            let name = String::from_utf8_lossy(name);
            format!(
                "no session of {name} is logged in: what is set here holds from the next login on, beside what the account \
                 says, which \"millrace explain {name}\" tells"
            )
        }
        Scope::Group(name) => {
            format!("no member of {name} is logged in: what is set here holds from the next login on")
        }
        Scope::Session(number) if found.is_none() => {
            format!(
                "nothing is set for session {number} itself; what holds for it is said of its user, groups, listener and the server"
            )
        }
        Scope::Session(_) | Scope::Server | Scope::Listener(_) => return answer,
    };
    answer["note"] = note.into();
    answer
}

fn parse_network(text: &str) -> Result<Network, AdminError> {
    Ok(text.parse()?)
}

/// A session, as lists have it.
pub(super) fn session(session: &SessionReport) -> Value {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let transfer = session.transfer.as_ref().map(|transfer| {
        json!({
            "kind": transfer.kind,
            "path": text(&transfer.path),
            "bytes": transfer.bytes,
            "total": transfer.total,
            "seconds": transfer.elapsed.as_secs_f64(),
            "rate": mean_rate(transfer),
            "done": transfer.total.filter(|total| *total > 0).map(|total| transfer.bytes as f64 / total as f64),
            "held-back": transfer.held_back,
            "waited": waited(transfer),
        })
    });
    let seconds = |time: Duration| (time.as_secs_f64() * 1000.0).round() / 1000.0;
    json!({
        "session": session.number,
        "protocol": session.protocol.to_string(),
        "peer": session.peer.to_string(),
        "local": session.local.to_string(),
        "user": session.user.as_deref().map(text),
        "host": session.host.as_deref(),
        "age": seconds(session.age),
        "idle": seconds(session.idle),
        "command": session.command,
        "place": session.place.as_deref().map(text),
        "waits-for": session.waits_for.text(),
        "transfer": transfer,
    })
}

/// What a transfer has waited for, in seconds.
fn waited(transfer: &TransferReport) -> Value {
    let waited = transfer.waited.spent();
    waited.map(|(cause, time)| (cause.word().to_owned(), Value::from(time.as_secs_f64()))).collect()
}

/// Bytes a second since the transfer began.
pub(super) fn mean_rate(transfer: &TransferReport) -> u64 {
    match transfer.elapsed.as_secs_f64() {
        time if time > 0.0 => (transfer.bytes as f64 / time) as u64,
        _ => 0,
    }
}

/// With the user, where others are let in from there.
fn ban(ban: &BanReport) -> Value {
    let user = ban.user.as_ref().map(|user| String::from_utf8_lossy(user).into_owned());
    let left = ban.left.map(|left| left.as_secs());
    json!({ "network": ban.network.to_string(), "user": user, "seconds-left": left })
}

fn tally(report: &TallyReport) -> Value {
    json!({ "tree": report.tree, "bytes": report.bytes, "files": report.files, "exact": report.exact })
}

fn limits(report: &ScopeReport) -> Value {
    json!({
        "scope": report.scope.to_string(),
        "sessions": report.sessions,
        "sessions-at-most": report.most_sessions,
        "download": report.download,
        "upload": report.upload,
        "set": report.is_set,
    })
}
