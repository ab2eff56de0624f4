//! Formats answers for people: tables, and sentences about changes. Programs use `--json`.

use std::collections::BTreeSet;
use std::time::Duration;

use millrace_limits::period::in_words;
use serde_json::Value;

use super::link::told_by_the_server;
use super::{Action, TokenAction};

/// The changed keys that a reload does not apply.
const LATER: &str = "next-start";

/// Formats the answer to an action.
pub(super) fn told(action: &Action, answer: &Value) -> String {
    let rows = |name: &str| answer[name].as_array().map_or(&[][..], Vec::as_slice);
    match action {
        Action::Status => status(answer),
        Action::Sessions | Action::Top(_) => match rows("sessions") {
            [] => format!("No client is connected.\n{}", unheard(rows("unheard"))),
            sessions => format!("{}{}", sessions_table(sessions), unheard(rows("unheard"))),
        },
        Action::Trace(_) | Action::Log(_) => String::new(),
        Action::Kick { .. } => {
            format!("{} ended.\n{}", counted(&answer["kicked"], "session"), unheard(rows("unheard")))
        }
        Action::Limits { .. } => limits(answer, rows("limits")),
        Action::Ban { network, time: None } => {
            format!("{} is banned until the ban is lifted.\n", shown(network))
        }
        Action::Ban { network, time: Some(period) } => {
            format!("{} is banned for {}.\n", shown(network), in_words(*period))
        }
        Action::Unban { network } => format!("{} is no longer banned.\n", shown(network)),
        Action::Bans => match rows("bans") {
            [] => "No bans.\n".to_owned(),
            bans => table(&["network", "user", "expires in"], bans.iter().map(ban)),
        },
        Action::Cluster => match rows("nodes") {
            [] => "No node is registered.\n".to_owned(),
            nodes => {
                let columns = ["node", "epoch", "state", "sessions", "heard", "lease", "since", "version"];
                table(&columns, nodes.iter().map(node)) + &namesakes(nodes)
            }
        },
        Action::Quotas | Action::Recount { .. } => match rows("quotas") {
            [] => "No folder with a quota is in use.\n".to_owned(),
            quotas => table(&["tree", "bytes", "files", "exact"], quotas.iter().map(quota)),
        },
        Action::Events { action: None, .. } => events(answer, rows("events")),
        Action::Events { .. } => {
            let done = ["retried", "dropped"].into_iter().find(|name| !answer[*name].is_null());
            done.map_or(String::new(), |done| format!("{} {done}.\n", counted(&answer[done], "event")))
        }
        Action::Reload => reload(rows("changed"), rows(LATER)),
        Action::Upgrade => format!(
            "Process {} accepts now; {} of the old one {} until {} end.\n",
            answer["pid"],
            counted(&answer["sessions"], "session"),
            if answer["sessions"] == 1 { "continues" } else { "continue" },
            if answer["sessions"] == 1 { "its" } else { "their" },
        ),
        Action::Audit => {
            let (file, sha256) = (word(&answer["file"]), word(&answer["sha256"]));
            format!("{file}: the last record is {}, SHA-256 {sha256}.\n", answer["seq"])
        }
        Action::Notice { .. } => rows("receivers").iter().map(tried).collect(),
        Action::Token { action: TokenAction::List } => match rows("tokens") {
            [] => "No tokens.\n".to_owned(),
            tokens => table(&["name", "role", "expires in"], tokens.iter().map(token)),
        },
        Action::Token { action: TokenAction::Add { .. } } => format!("{}\n", word(&answer["token"])),
        Action::Token { action: TokenAction::Remove { name } } => format!("{} is removed.\n", shown(name)),
        Action::Drain { after: Some(after), .. } => format!(
            "Clients are accepted for {} yet; then the server ends when its transfers have ended.{}\n",
            rounded(*after),
            left(answer)
        ),
        Action::Drain { after: None, .. } => {
            format!(
                "No more clients are accepted; the server ends when its transfers have ended.{}\n",
                left(answer)
            )
        }
        Action::Stop => {
            format!("The server stops; running transfers have the grace time to end.{}\n", left(answer))
        }
    }
}

/// Names the nodes of a cluster that have not answered.
fn unheard(nodes: &[Value]) -> String {
    let names: Vec<String> = nodes.iter().map(word).collect();
    if names.is_empty() { String::new() } else { format!("No answer of: {}.\n", names.join(", ")) }
}

/// Which server it is, and a line for each address.
fn status(answer: &Value) -> String {
    let ending = if answer["ending"] == true { ", and is ending" } else { "" };
    let seconds = Duration::from_secs(answer["seconds"].as_u64().unwrap_or(0));
    let head = format!(
        "Millrace {}, process {}, has run for {}{ending}.\n",
        word(&answer["version"]),
        answer["pid"],
        rounded(seconds)
    );
    let urls: String = urls(answer).iter().map(|url| format!("  {url}\n")).collect();
    let (sessions, transfers) =
        (counted(&answer["sessions"], "session"), counted(&answer["transfers"], "transfer"));
    format!("{head}{urls}{sessions}, {transfers} under way.\n")
}

/// Where a server listens, from its status.
pub(super) fn urls(status: &Value) -> Vec<String> {
    let of = |scheme: &'static str| {
        let addresses = status[scheme].as_array().map_or(&[][..], Vec::as_slice);
        addresses.iter().map(move |address| format!("{scheme}://{}/", word(address)))
    };
    ["ftp", "ftps", "http", "https"].into_iter().flat_map(of).collect()
}

/// `2 d`, `3 h`, `5 min`, `20 s`: of the largest unit that is not zero, and a second at least.
fn rounded(time: Duration) -> String {
    let seconds = time.as_secs().max(1);
    let unit = [86_400, 3600, 60].into_iter().find(|unit| seconds >= *unit).unwrap_or(1);
    in_words(Duration::from_secs(seconds / unit * unit))
}

fn left(answer: &Value) -> String {
    match answer["transfers"].as_u64() {
        None => String::new(),
        Some(0) => " No transfer is running.".to_owned(),
        Some(1) => " One transfer is running.".to_owned(),
        Some(many) => format!(" {many} transfers are running."),
    }
}

fn reload(changed: &[Value], later: &[Value]) -> String {
    let list = |what: &str, keys: &[Value]| match keys {
        [] => String::new(),
        keys => format!("; {what}: {}", keys.iter().map(word).collect::<Vec<_>>().join(", ")),
    };
    let changed = list("changed", changed);
    let later = list("these need a restart or \"millrace ctl upgrade\"", later);
    format!("Configuration reloaded{changed}{later}.\n")
}

/// With a column of hosts where there are any.
fn sessions_table(sessions: &[Value]) -> String {
    let mut head = vec!["session", "user", "from", "to", "protocol", "transfer"];
    let has_hosts = sessions.iter().any(|session| !session["host"].is_null());
    if has_hosts {
        head.insert(2, "host");
    }
    let has_nodes = sessions.iter().any(|session| !session["node"].is_null());
    if has_nodes {
        head.insert(1, "node");
    }
    let row = |one: &Value| {
        let mut row = session(one);
        if has_hosts {
            row.insert(2, word(&one["host"]));
        }
        if has_nodes {
            row.insert(1, word(&one["node"]));
        }
        row
    };
    table(&head, sessions.iter().map(row))
}

fn session(session: &Value) -> Vec<String> {
    let transfer = &session["transfer"];
    vec![
        word(&session["session"]),
        word(&session["user"]),
        word(&session["peer"]),
        word(&session["local"]),
        word(&session["protocol"]),
        if transfer.is_null() {
            "-".to_owned()
        } else {
            self::transfer(transfer, session["waits-for"].as_str())
        },
    ]
}

/// `download /f: 4.1 MB of 10 MB in 12 s, waits for limit`
fn transfer(transfer: &Value, waits_for: Option<&str>) -> String {
    let of = transfer["total"].as_u64().map_or(String::new(), |total| format!(" of {}", size(total)));
    let waits = waits_for.map_or(String::new(), |what| format!(", waits for {what}"));
    format!(
        "{} {}: {}{of} in {:.0} s{waits}",
        word(&transfer["kind"]),
        word(&transfer["path"]),
        size(transfer["bytes"].as_u64().unwrap_or(0)),
        transfer["seconds"].as_f64().unwrap_or(0.0)
    )
}

fn limits(answer: &Value, rows: &[Value]) -> String {
    let note = match &answer["note"] {
        Value::Null => String::new(),
        note => format!("{}.\n", told_by_the_server(note)),
    };
    match (rows, answer.get("limits")) {
        ([], None) if note.is_empty() => "Limits updated.\n".to_owned(),
        ([], _) => note,
        _ => {
            let columns = ["scope", "sessions", "max", "download", "upload"];
            table(&columns, rows.iter().map(limit)) + &set_limits(rows) + &note
        }
    }
}

/// Names the scopes whose limits are not those of the configuration alone.
fn set_limits(rows: &[Value]) -> String {
    let set = rows.iter().filter(|row| row["set"] == true);
    let scopes: Vec<String> = set.map(|row| word(&row["scope"])).collect();
    if scopes.is_empty() { String::new() } else { format!("Set, until restored: {}.\n", scopes.join(", ")) }
}

fn limit(limit: &Value) -> Vec<String> {
    let most = match limit["sessions-at-most"].as_u64() {
        Some(0) | None => "none".to_owned(),
        Some(most) => most.to_string(),
    };
    let rate = |value: &Value| match value.as_u64() {
        Some(0) | None => "none".to_owned(),
        Some(rate) => format!("{}/s", size(rate)),
    };
    vec![
        word(&limit["scope"]),
        word(&limit["sessions"]),
        most,
        rate(&limit["download"]),
        rate(&limit["upload"]),
    ]
}

fn ban(ban: &Value) -> Vec<String> {
    let left = ban["seconds-left"].as_u64().map(|left| in_words(Duration::from_secs(left)));
    vec![word(&ban["network"]), word(&ban["user"]), left.unwrap_or_else(|| "never".to_owned())]
}

/// This node has a star.
fn node(node: &Value) -> Vec<String> {
    let star = if node["this"] == true { "*" } else { "" };
    let since = Duration::from_secs(node["age"].as_u64().unwrap_or(0));
    vec![
        format!("{}{star}", word(&node["node"])),
        word(&node["epoch"]),
        word(&node["state"]),
        word(&node["sessions"]),
        format!("{:.1} s ago", node["silent-seconds"].as_f64().unwrap_or(0.0)),
        format!("{} s", word(&node["lease-seconds"])),
        rounded(since),
        word(&node["version"]),
    ]
}

/// Warns of names that several nodes have.
fn namesakes(nodes: &[Value]) -> String {
    let shared = nodes.iter().filter(|node| node["namesake"] == true);
    let names: BTreeSet<String> = shared.map(|node| word(&node["node"])).collect();
    let warning = |name| {
        format!(
            "Several nodes that serve are called {name}: give each a name of its own, by node in [cluster].\n"
        )
    };
    names.into_iter().map(warning).collect()
}

fn token(token: &Value) -> Vec<String> {
    let left = match (&token["expired"], token["seconds-left"].as_u64()) {
        (Value::Bool(true), _) => "expired".to_owned(),
        (_, None) => "never".to_owned(),
        (_, Some(left)) => rounded(Duration::from_secs(left)),
    };
    vec![word(&token["name"]), word(&token["role"]), left]
}

fn quota(quota: &Value) -> Vec<String> {
    let exact = if quota["exact"] == true { "yes" } else { "no" };
    let bytes = quota["bytes"].as_u64().map_or_else(|| word(&quota["bytes"]), size);
    vec![word(&quota["tree"]), bytes, word(&quota["files"]), exact.to_owned()]
}

fn events(answer: &Value, rows: &[Value]) -> String {
    let row = |event: &Value| {
        ["id", "state", "event", "time", "user", "path", "to", "error"].map(|key| word(&event[key])).to_vec()
    };
    let shown = match rows {
        [] => String::new(),
        rows => table(&["id", "state", "event", "time", "user", "path", "to", "error"], rows.iter().map(row)),
    };
    let more = answer["not-shown"].as_u64().map_or(String::new(), |more| format!(", {more} not shown"));
    format!("{shown}{} waiting, {} parked{more}.\n", answer["waiting"], answer["parked"])
}

/// Aligns columns to their content.
fn table(head: &[&str], rows: impl Iterator<Item = Vec<String>>) -> String {
    let head = head.iter().map(|title| title.to_uppercase()).collect();
    let rows: Vec<Vec<String>> = std::iter::once(head).chain(rows).collect();
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let cell = |row: &'_ Vec<String>, column: usize| row.get(column).map_or(0, |cell| cell.chars().count());
    let widths: Vec<usize> =
        (0..columns).map(|column| rows.iter().map(|row| cell(row, column)).max().unwrap_or(0)).collect();
    let line = |row: &Vec<String>| {
        let cells: Vec<String> =
            row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        format!("{}\n", cells.join("  ").trim_end())
    };
    rows.iter().map(line).collect()
}

/// `https://example.com/notices: delivered`
fn tried(receiver: &Value) -> String {
    let name = word(&receiver["receiver"]);
    match receiver["error"].as_str() {
        None => format!("{name}: delivered\n"),
        Some(error) => format!("{name}: {}\n", shown(error)),
    }
}

/// `1 session`, `3 sessions`
fn counted(count: &Value, what: &str) -> String {
    match count.as_u64() {
        Some(1) => format!("1 {what}"),
        count => format!("{} {what}s", count.unwrap_or(0)),
    }
}

/// `300 kB`: three figures at most, and exact where that is enough.
pub(super) fn size(bytes: u64) -> String {
    let units = ["B", "kB", "MB", "GB", "TB", "PB", "EB"];
    let (mut value, mut unit) = (bytes as f64, 0);
    while value >= 999.5 && unit + 1 < units.len() {
        (value, unit) = (value / 1000.0, unit + 1);
    }
    let figures = match value {
        _ if unit == 0 => format!("{value:.0}"),
        100.0.. => format!("{value:.0}"),
        10.0.. => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    };
    let plain = match figures.contains('.') {
        true => figures.trim_end_matches('0').trim_end_matches('.'),
        false => &figures,
    };
    format!("{plain} {}", units[unit])
}

/// A value in a table; `-` for none.
fn word(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => shown(text),
        value => value.to_string(),
    }
}

/// Escapes control characters in names from clients for the terminal.
pub(super) fn shown(text: &str) -> String {
    text.chars()
        .map(|char| if char.is_control() { char.escape_debug().to_string() } else { char.into() })
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of_all(limits: Value) -> String {
        let action = Action::Limits {
            scope: Vec::new(),
            download: None,
            upload: None,
            sessions: None,
            restore: false,
        };
        told(&action, &limits)
    }

    #[test]
    fn tokens_are_listed_with_the_time_that_is_left() {
        let row = |name: &str, left: Value, is_expired: bool| json!({ "name": name, "role": "viewer", "seconds-left": left, "expired": is_expired });
        let all =
            [row("a", json!(null), false), row("b", json!(86_400 * 89 + 7), false), row("c", json!(0), true)];
        assert_eq!(
            told(&Action::Token { action: TokenAction::List }, &json!({ "ok": true, "tokens": all })),
            "NAME  ROLE    EXPIRES IN\n\
             a     viewer  never\n\
             b     viewer  89 d\n\
             c     viewer  expired\n"
        );
    }

    #[test]
    fn limits_are_a_table_and_none_is_a_word() {
        let row = |scope: &str, most: u64, rate: u64| json!({ "scope": scope, "sessions": 3, "sessions-at-most": most, "download": rate, "upload": 0 });
        assert_eq!(
            of_all(
                json!({ "ok": true, "limits": [row("server", 100, 0), row("user al\u{7}ice", 0, 12_500)] })
            ),
            "SCOPE            SESSIONS  MAX   DOWNLOAD   UPLOAD\n\
             server           3         100   none       none\n\
             user al\\u{7}ice  3         none  12.5 kB/s  none\n"
        );
        assert_eq!(of_all(json!({ "ok": true })), "Limits updated.\n");
        assert_eq!(of_all(json!({ "ok": true, "note": "no session" })), "no session.\n");
    }

    #[test]
    fn sizes_have_three_figures() {
        for (bytes, told) in [
            (0, "0 B"),
            (999, "999 B"),
            (1000, "1 kB"),
            (1234, "1.23 kB"),
            (12_345, "12.3 kB"),
            (300_000, "300 kB"),
            (999_999, "1 MB"),
            (u64::MAX, "18.4 EB"),
        ] {
            assert_eq!(size(bytes), told);
        }
    }

    #[test]
    fn a_session_shows_what_it_moves() {
        let transfer = json!({ "kind": "download", "path": "/f", "bytes": 4100, "total": 10_000, "seconds": 2.2, "held-back": true });
        let session = json!({ "session": 17, "protocol": "ftp", "peer": "192.0.2.7:40000", "local": "192.0.2.1:21", "user": null, "waits-for": "limit", "transfer": transfer });
        let told = told(&Action::Sessions, &json!({ "sessions": [session] }));
        let line = told.lines().nth(1).unwrap();
        assert!(line.ends_with("ftp       download /f: 4.1 kB of 10 kB in 2 s, waits for limit"), "{told}");
        assert!(line.starts_with("17       -     192.0.2.7:40000  192.0.2.1:21"), "{told}");
    }
}
