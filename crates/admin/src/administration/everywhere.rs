//! Sessions and limits of all nodes of a cluster: orders that go to the other nodes as errands, the numbers by which their
//! sessions are known here, and limits that all nodes hold to.
//!
//! In a cluster a session has the number of its node's registration before its own, so that it is the same session at whatever
//! node it is named: 14 and 7 are 140000000007. The number alone is a session of this node.

use std::cmp::Reverse;
use std::sync::Arc;

use millrace_limits::Scope;
use millrace_server::cluster::{Cluster, Epoch, NodeAnswer};
use millrace_server::{Running, SessionReport, cluster_of, perform_errands, set_limits_of_cluster};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::request::{self, ChangedLimits, KickedSessions};
use crate::error::AdminError;

/// As many sessions may have begun at a node.
const NUMBERS: u64 = 10_000_000_000;

/// So many bytes the name of a scope and its limits may have together: each node reads them once a second.
const MOST_BYTES: usize = 2048;

/// What nodes ask of one another.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case")]
enum Errand {
    Sessions {
        busiest: Option<usize>,
    },
    /// Ends sessions, for the sake of an administrator of this node.
    Kick {
        of: String,
        whose: KickedSessions,
    },
    /// Sets limits of a session, or tells them.
    Limits {
        of: String,
        session: u64,
        changed: ChangedLimits,
    },
}

/// Has errands of other nodes performed.
pub(super) fn listen(running: &Arc<Running>) {
    if cluster_of(running).is_none() {
        return;
    }
    let server = Arc::downgrade(running);
    let perform = move |text: &str| {
        let errand = serde_json::from_str(text).ok().zip(server.upgrade());
        // Another version may ask for more than this one knows.
        errand.map_or(Value::Null, |(errand, running)| perform(errand, &running)).to_string()
    };
    perform_errands(running, Box::new(perform));
}

fn perform(errand: Errand, running: &Running) -> Value {
    match errand {
        Errand::Sessions { busiest } => json!(own_sessions(running, busiest)),
        Errand::Kick { of, whose } => {
            let asked = json!({ "do": "kick", "session": whose.session, "user": whose.user, "host": whose.host,
                "address": whose.address, "of": of });
            let kicked = request::kick(running, whose);
            running.note_administered(&asked.as_object().map(request::said).unwrap_or_default(), None, None);
            kicked.into()
        }
        Errand::Limits { of, session, changed } => {
            let told = request::limits_here(running, &Scope::Session(session), &changed);
            if !changed.is_question() {
                let failed = told.as_ref().err().map(ToString::to_string);
                let ChangedLimits { download, upload, restore, .. } = changed;
                let asked = json!({ "do": "limits", "session": session, "download": download, "upload": upload,
                    "restore": restore, "of": of });
                let asked = asked.as_object().map(request::said).unwrap_or_default();
                running.note_administered(&asked, failed.as_deref(), None);
            }
            // No such session: it may have ended.
            told.unwrap_or_else(|_| json!({ "missing": true }))
        }
    }
}

/// The sessions of a node that are listed, and how many it has.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Listed {
    sessions: Vec<Value>,
    total: usize,
}

/// Lists the sessions of this node: what is not wanted is not turned into JSON, which for 10,000 sessions takes a tenth of a second.
fn own_sessions(running: &Running, busiest: Option<usize>) -> Listed {
    let mut reports = running.sessions();
    let total = reports.len();
    if let Some(most) = busiest {
        let rate = |session: &SessionReport| session.transfer.as_ref().map_or(0, request::mean_rate);
        reports.sort_by_key(|session| Reverse(rate(session)));
        reports.truncate(most);
    }
    Listed { sessions: reports.iter().map(request::session).collect(), total }
}

/// Lists the sessions of all nodes, or this many of each, and the nodes that have not answered.
pub(super) fn sessions(running: &Running, busiest: Option<usize>) -> Value {
    let Listed { sessions: mut all, mut total } = own_sessions(running, busiest);
    let Some(cluster) = cluster_of(running) else { return json!({ "sessions": all, "total": total }) };
    let own = cluster.epoch().unwrap_or(Epoch(0));
    all.iter_mut().for_each(|session| name(session, own, cluster.name()));
    let (answers, unheard) = ask(running, &Errand::Sessions { busiest }, None);
    for (node, answer) in answers {
        let mut listed: Listed = serde_json::from_value(answer).unwrap_or_default();
        listed.sessions.iter_mut().for_each(|session| name(session, node.epoch, &node.name));
        all.append(&mut listed.sessions);
        total += listed.total;
    }
    json!({ "sessions": all, "total": total, "unheard": unheard })
}

/// Says of a session which node it is at.
fn name(session: &mut Value, Epoch(epoch): Epoch, node: &str) {
    let number = session["session"].as_u64().unwrap_or(0) % NUMBERS;
    session["session"] = (epoch.unsigned_abs() * NUMBERS + number).into();
    session["node"] = node.into();
}

/// Returns the number that a session of this server has in its log, where it was named as one of a cluster.
pub(super) fn number_here(running: &Running, session: u64) -> u64 {
    let own = cluster_of(running).and_then(|cluster| cluster.epoch());
    let is_own = own.is_some_and(|Epoch(epoch)| session / NUMBERS == epoch.unsigned_abs());
    if is_own { session % NUMBERS } else { session }
}

/// Ends sessions, on whichever node they are, or at the node of this name alone; returns how many.
pub(super) fn kick(
    running: &Running,
    whose: KickedSessions,
    node: Option<&str>,
) -> Result<Value, AdminError> {
    let Some(cluster) = cluster_of(running) else {
        return match node {
            None => Ok(json!({ "kicked": request::kick(running, whose) })),
            Some(_) => Err(AdminError::NoCluster),
        };
    };
    let own = cluster.epoch().unwrap_or(Epoch(0));
    let numbered = whose.session.filter(|session| *session >= NUMBERS);
    let numbered = numbered.map(|session| Epoch(i64::try_from(session / NUMBERS).unwrap_or(0)));
    let named = node.map(|name| epoch_of(cluster, name)).transpose()?;
    if numbered.is_some() && named.is_some() && numbered != named {
        return Ok(json!({ "kicked": 0 }));
    }
    // A number alone is of a session of this node.
    let only = named.or(numbered).or(whose.session.map(|_| own));
    let whose = KickedSessions { session: whose.session.map(|session| session % NUMBERS), ..whose };
    let here = if only.is_none_or(|only| only == own) { request::kick(running, whose.clone()) } else { 0 };
    if only == Some(own) {
        return Ok(json!({ "kicked": here }));
    }
    let errand = Errand::Kick { of: cluster.name().to_owned(), whose };
    let (answers, unheard) = ask(running, &errand, only);
    let elsewhere: u64 = answers.iter().filter_map(|(_, kicked)| kicked.as_u64()).sum();
    Ok(json!({ "kicked": here as u64 + elsewhere, "unheard": unheard }))
}

/// Sets limits, or tells those that hold: of a session at its node, of other scopes for all nodes.
pub(super) fn limits(running: &Running, scope: Scope, changed: ChangedLimits) -> Result<Value, AdminError> {
    let cluster = cluster_of(running);
    // What is set can be restored, whether there is such a user or not.
    let is_set = cluster.is_some_and(|cluster| cluster.has_limits(&scope));
    if let Scope::User(name) = &scope
        && !is_set
        && !running.may_know(name)
    {
        return Err(AdminError::UnknownUser(String::from_utf8_lossy(name).into_owned()));
    }
    match (cluster, &scope) {
        (None, _) => request::limits_here(running, &scope, &changed),
        (Some(cluster), Scope::Session(session)) => limits_of_session(running, cluster, *session, changed),
        (Some(_), _) if changed.is_question() => request::limits_of(running, &scope),
        (Some(cluster), _) => {
            let is_here = || running.limits().iter().any(|report| report.scope == scope);
            if matches!(scope, Scope::Listener(_)) && !is_set && !is_here() {
                return Err(AdminError::UnknownScope(scope));
            }
            let limits = changed.limits()?;
            let texts = [&changed.download, &changed.upload, &changed.sessions].into_iter().flatten();
            let length = texts.map(String::len).sum::<usize>() + scope.to_string().len();
            if length > MOST_BYTES {
                return Err(AdminError::LongLimits(length));
            }
            match set_limits_of_cluster(running, cluster, &scope, &limits, changed.restore) {
                Ok(true) => Ok(request::with_note(json!({}), &scope, &running.limits())),
                Ok(false) => Err(AdminError::TooManyLimits),
                Err(error) => Err(AdminError::Cluster(error)),
            }
        }
    }
}

/// The same of a session, at the node that its number names.
fn limits_of_session(
    running: &Running,
    cluster: &Cluster,
    number: u64,
    changed: ChangedLimits,
) -> Result<Value, AdminError> {
    let session = number_here(running, number);
    if session < NUMBERS {
        return request::limits_here(running, &Scope::Session(session), &changed);
    }
    changed.limits()?;
    let epoch = Epoch(i64::try_from(number / NUMBERS).unwrap_or(0));
    let errand = Errand::Limits { of: cluster.name().to_owned(), session: number % NUMBERS, changed };
    let answers = cluster.ask_others(&json!(errand).to_string(), Some(epoch)).map_err(AdminError::Cluster)?;
    let missing = || AdminError::UnknownScope(Scope::Session(number));
    let node = answers.into_iter().next().ok_or_else(missing)?;
    let answer = node.answer.and_then(|text| serde_json::from_str(&text).ok());
    match answer.unwrap_or_default() {
        Value::Null => Err(AdminError::SilentNode(node.name)),
        answer if answer["missing"] == true => Err(missing()),
        answer => Ok(answer),
    }
}

/// Returns the registration of the one node that serves under a name.
fn epoch_of(cluster: &Cluster, name: &str) -> Result<Epoch, AdminError> {
    let own = (name == cluster.name()).then(|| cluster.epoch().unwrap_or(Epoch(0)));
    let nodes = match (cluster.nodes(), own) {
        (Ok(nodes), _) => nodes,
        // Without the database there is no other to be reached.
        (Err(_), Some(own)) => return Ok(own),
        (Err(error), None) => return Err(AdminError::Cluster(error)),
    };
    let named = || nodes.iter().filter(|node| node.is_alive() && node.name == name);
    let namesakes = named().filter(|node| named().any(|other| other.is_namesake_of(node))).count();
    if namesakes > 0 {
        return Err(AdminError::AmbiguousNode(name.to_owned(), namesakes));
    }
    // The predecessor of an upgrade, and one that has crashed, have registered before.
    let newest = named().map(|node| node.epoch).max();
    own.or(newest).ok_or_else(|| AdminError::UnknownNode(name.to_owned()))
}

/// Has the other nodes do something. Returns their answers, and what has not answered.
fn ask(running: &Running, errand: &Errand, only: Option<Epoch>) -> (Vec<(NodeAnswer, Value)>, Vec<String>) {
    let errand = json!(errand).to_string();
    match cluster_of(running).map(|cluster| cluster.ask_others(&errand, only)) {
        None => Default::default(),
        Some(Err(error)) => (Vec::new(), vec![error.to_string()]),
        Some(Ok(answers)) => {
            let (heard, unheard): (Vec<_>, Vec<_>) =
                answers.into_iter().partition(|node| node.answer.is_some());
            let read = |mut node: NodeAnswer| {
                let answer = node.answer.take().and_then(|text| serde_json::from_str(&text).ok());
                (node, answer.unwrap_or_default())
            };
            (heard.into_iter().map(read).collect(), unheard.into_iter().map(|node| node.name).collect())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_errand_to_end_sessions_of_a_kind_that_is_not_known_ends_none() {
        let whose = KickedSessions { session: None, user: Some("ann".to_owned()), host: None, address: None };
        let mut errand = json!(Errand::Kick { of: "a".to_owned(), whose });
        assert_eq!(errand["whose"], json!({ "user": "ann" }));
        assert!(serde_json::from_value::<Errand>(errand.clone()).is_ok());
        errand["whose"]["class"] = "guests".into();
        assert!(serde_json::from_value::<Errand>(errand).is_err());
    }
}
