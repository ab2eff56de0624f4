//! Orders of `millrace ctl`, and the list of sessions.

use hyper::StatusCode;
use serde_json::{Map, Value};

use crate::call::Call;
use crate::operation::Answering;
use crate::reply::{Problem, Reply};

/// Sessions in an answer where nothing is said.
const SHOWN: u64 = 10_000;

/// Performs an order, which has the arguments, and `true` for each of these names.
pub(crate) fn order(name: &'static str, switches: &'static [&'static str], call: Call) -> Answering {
    Box::pin(async move {
        let mut order = call.arguments.clone();
        order.extend(switches.iter().map(|name| ((*name).to_owned(), true.into())));
        let answer = call.order(name, order).await?;
        match answer["kicked"] == 0 {
            true => Err(Problem::new(StatusCode::NOT_FOUND, "there is no such session")),
            false => Ok(Reply::json(&answer)),
        }
    })
}

/// Lists sessions: those that are meant, in an order, from the first that is wanted.
pub(crate) fn sessions(call: Call) -> Answering {
    Box::pin(async move {
        let (offset, limit) = (call.number("offset").unwrap_or(0), call.number("limit").unwrap_or(SHOWN));
        let listing = Listing::of(&call);
        let mut order = Map::new();
        // What a dashboard that is open asks for each second.
        let are_busiest = listing.are_busiest();
        if are_busiest {
            order.insert("busiest".to_owned(), offset.saturating_add(limit).into());
        }
        let mut answer = call.order("sessions", order).await?;
        let Some(Value::Array(sessions)) = answer.get_mut("sessions").map(Value::take) else {
            return Ok(Reply::json(&answer));
        };
        let all = listing.choose(sessions);
        if !are_busiest {
            answer["total"] = all.len().into();
        }
        answer["sessions"] =
            all.into_iter().skip(offset as usize).take(limit as usize).collect::<Vec<_>>().into();
        Ok(Reply::json(&answer))
    })
}

/// Which sessions are wanted, and in which order.
#[derive(Default)]
struct Listing<'a> {
    user: Option<&'a str>,
    address: Option<&'a str>,
    node: Option<&'a str>,
    /// Part of the user's name, the address or a path, in small letters.
    text: Option<String>,
    sort: Option<&'a str>,
}

impl<'a> Listing<'a> {
    fn of(call: &'a Call) -> Self {
        let text = call.text("text").map(str::to_lowercase);
        let [user, address, node, sort] = ["user", "address", "node", "sort"].map(|name| call.text(name));
        Self { user, address, node, text, sort }
    }

    /// Returns whether all sessions are meant, and the fastest come first.
    fn are_busiest(&self) -> bool {
        self.sort == Some("-rate")
            && [self.user, self.address, self.node, self.text.as_deref()].iter().all(Option::is_none)
    }

    fn choose(&self, sessions: Vec<Value>) -> Vec<Value> {
        let is_meant = |session: &Value| {
            self.user.is_none_or(|user| session["user"] == user)
                && self.node.is_none_or(|node| session["node"] == node)
                && self.address.is_none_or(|address| {
                    let peer = session["peer"].as_str().and_then(|peer| peer.rsplit_once(':'));
                    peer.is_some_and(|(peer, _)| peer.trim_matches(['[', ']']) == address)
                })
                && self.text.as_ref().is_none_or(|text| {
                    let words = ["user", "peer", "path"].map(|key| &session[key]);
                    let mut words = words.into_iter().chain([&session["transfer"]["path"]]);
                    words.any(|word| word.as_str().is_some_and(|word| word.to_lowercase().contains(text)))
                })
        };
        let mut chosen: Vec<Value> = sessions.into_iter().filter(is_meant).collect();
        let Some(sort) = self.sort else { return chosen };
        let key = sort.trim_start_matches('-');
        match key {
            "user" | "peer" | "node" => {
                chosen.sort_by(|one, other| one[key].as_str().cmp(&other[key].as_str()));
            }
            _ => chosen.sort_by(|one, other| number(one, key).total_cmp(&number(other, key))),
        }
        if sort.starts_with('-') {
            chosen.reverse();
        }
        chosen
    }
}

/// The figure that sessions are sorted by; 0 where there is none.
fn number(session: &Value, key: &str) -> f64 {
    let found = match key {
        "rate" | "bytes" => &session["transfer"][key],
        key => &session[key],
    };
    found.as_f64().unwrap_or(0.0)
}

/// Returns the figures of the last hour.
pub(crate) fn rates(call: Call) -> Answering {
    Box::pin(async move { Ok(Reply::json(&call.api.rates.told())) })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The numbers of the sessions that are listed.
    fn chosen(listing: Listing<'_>, all: Vec<Value>) -> Vec<u64> {
        listing.choose(all).iter().map(|session| session["session"].as_u64().unwrap()).collect()
    }

    #[test]
    fn sessions_of_a_cluster_are_filtered_and_sorted_by_their_nodes() {
        let session = |number: u64, node: &str| json!({ "session": number, "node": node });
        let all = || vec![session(1, "b"), session(2, "a"), session(3, "b")];
        let of = |node, sort| chosen(Listing { node, sort, ..Listing::default() }, all());
        assert_eq!(of(Some("b"), None), [1, 3]);
        assert_eq!(of(Some("c"), None), [0; 0]);
        assert_eq!(of(None, Some("node")), [2, 1, 3]);
    }

    #[test]
    fn sessions_are_filtered_and_sorted() {
        let session = |number: u64, user: &str, peer: &str, rate: u64| json!({ "session": number, "user": user, "peer": peer, "transfer": { "rate": rate, "path": format!("/X/f{rate}") } });
        let all = || {
            vec![
                session(1, "bob", "192.0.2.1:4", 5),
                session(2, "ann", "[2001:db8::1]:4", 9),
                json!({ "session": 3, "user": null, "peer": "192.0.2.1:5", "transfer": null }),
            ]
        };
        let numbers = |user, address, sort| -> Vec<u64> {
            chosen(Listing { user, address, sort, ..Listing::default() }, all())
        };
        let with =
            |text: &str| chosen(Listing { text: Some(text.to_owned()), ..Listing::default() }, all()).len();
        assert_eq!([with("an"), with("192.0"), with("b"), with("/x/f9"), with("y")], [1, 2, 2, 1, 0]);
        assert_eq!(numbers(None, None, None), [1, 2, 3]);
        assert_eq!(numbers(Some("ann"), None, None), [2]);
        assert_eq!(numbers(None, Some("192.0.2.1"), None), [1, 3]);
        assert_eq!(numbers(None, Some("2001:db8::1"), None), [2]);
        assert_eq!(numbers(None, None, Some("-rate")), [2, 1, 3]);
        assert_eq!(numbers(None, None, Some("user")), [3, 2, 1]);
    }
}
