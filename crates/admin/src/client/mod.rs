//! `millrace ctl`: inspects and controls a running server over its control socket.

mod told;
mod top;

use std::io::{BufRead, BufReader, Write};
use std::net::IpAddr;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use crate::bench::output::print;
use crate::config::{Period, Said};
use crate::failure::Failure;
use top::Top;

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// How long a new server may take to be ready; the old one waits no longer than that.
const STARTING: Duration = Duration::from_secs(180);

/// How long a walk over a tree may take.
const COUNTING: Duration = Duration::from_secs(3600);

#[derive(Debug, Args)]
pub(crate) struct Ctl {
    /// The server's control socket, as given by --control
    #[arg(long, value_name = "FILE")]
    control: PathBuf,
    /// Print the server's answer as a line of JSON
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List the sessions and their transfers
    Sessions,
    /// Show the sessions live: who, where from, the last command, file, rate, share done, idle time, what it waits for
    ///
    /// Keys sort (s), reverse (r), filter (/), follow a session (f), end one (k), pause (space) and quit (q). Only what
    /// has changed is written to the terminal.
    Top(Top),
    /// End the sessions that match all given flags
    Kick {
        /// The session with this number, as listed by "sessions"
        #[arg(long, value_name = "NUMBER")]
        session: Option<u64>,
        /// Sessions of this user
        #[arg(long, value_name = "NAME")]
        user: Option<String>,
        /// Sessions from this address
        #[arg(long, value_name = "ADDRESS")]
        address: Option<IpAddr>,
    },
    /// Show limits, or change them until the server ends: changes apply at once, to running transfers too
    ///
    /// SCOPE is "server", "listener ADDR:PORT", "group NAME", "user NAME" or "session NUMBER"; without flags its limits
    /// are shown. A limit is written as in the configuration: 10M, none, "10M; mon-fri 08:00-18:00 1M".
    Limits {
        /// The scope of the limits [default: show all]
        #[arg(value_name = "SCOPE", num_args = 0..)]
        scope: Vec<String>,
        /// Bytes a second to clients
        #[arg(long, value_name = "LIMIT")]
        download: Option<String>,
        /// Bytes a second from clients
        #[arg(long, value_name = "LIMIT")]
        upload: Option<String>,
        /// Sessions at a time
        #[arg(long, value_name = "LIMIT")]
        sessions: Option<String>,
        /// Restore the configured limits
        #[arg(long)]
        restore: bool,
    },
    /// Refuse connections from a network; running sessions continue
    Ban {
        /// An address or a network, such as 192.0.2.7 or 10.0.0.0/8
        network: String,
        /// How long, such as 10m or 1d [default: until the ban is lifted]
        #[arg(long = "for", value_name = "TIME", alias = "seconds")]
        time: Option<Said<Period>>,
    },
    /// Lift a ban
    Unban {
        /// The network as it was banned
        network: String,
    },
    /// List the bans, and when they expire
    Bans,
    /// Show the use of quotas, for folders that are in use
    Quotas,
    /// Count files again, after other programs have changed them
    Recount {
        /// One folder, as "quotas" names it [default: all]
        tree: Option<String>,
    },
    /// Show undelivered events of hooks: waiting ones, and failed ones that were parked, with their errors
    #[command(args_conflicts_with_subcommands = true)]
    Events {
        #[command(subcommand)]
        action: Option<Events>,
        /// Only events for this address or program
        #[arg(long, value_name = "RECEIVER")]
        to: Option<String>,
        /// Show at most this many [default: 100]
        #[arg(long, value_name = "NUMBER")]
        most: Option<usize>,
    },
    /// Reload the configuration file, as SIGHUP does; shows which changed keys need a restart
    Reload,
    /// Replace the running server by the program as it is now installed, with the present configuration; no client is
    /// refused meanwhile
    ///
    /// The server starts it with its own arguments, and passes its listening sockets on. When the new one serves, the
    /// old one accepts no more clients: its sessions may continue for the grace time, its transfers to their end. If
    /// the new one fails to start, the old one continues, and the error says why.
    Upgrade,
    /// Show the last record of the audit log, to be noted where it cannot be changed together with the log
    Audit,
    /// Stop accepting clients, wait for running transfers however long they take, then end
    Drain,
    /// Stop accepting clients, wait for running transfers for the configured grace time at most, then end
    Stop,
}

/// The actions on events.
#[derive(Debug, Subcommand)]
enum Events {
    /// Deliver parked events again, and retry waiting ones now
    Retry {
        #[command(flatten)]
        which: Which,
    },
    /// Remove parked events
    Drop {
        #[command(flatten)]
        which: Which,
        /// With --all, remove waiting events as well
        #[arg(long, requires = "all")]
        waiting: bool,
    },
}

/// Which of them.
#[derive(Debug, Args)]
struct Which {
    /// As "events" tells them
    #[arg(value_name = "ID", required_unless_present = "all", conflicts_with = "all")]
    ids: Vec<String>,
    /// All parked events
    #[arg(long)]
    all: bool,
    /// With --all, only events for this address or program
    #[arg(long, value_name = "RECEIVER", requires = "all")]
    to: Option<String>,
}

pub(crate) fn run(arguments: Ctl) -> Result<(), Failure> {
    let patience = match arguments.action {
        Action::Recount { .. } => COUNTING,
        Action::Upgrade => STARTING,
        _ => PATIENCE,
    };
    if let Action::Top(top) = &arguments.action {
        return top::run(&arguments.control, top, arguments.json);
    }
    let request = request(&arguments.action);
    let answer =
        ask(&arguments.control, &request, patience).map_err(|error| no_answer(&arguments.control, &error))?;
    let parsed = parsed(&answer)?;
    let is_none_kicked = parsed["kicked"] == 0;
    match arguments.json {
        true => print(&answer)?,
        false if is_none_kicked => {}
        false => print(&told::told(&arguments.action, &parsed))?,
    }
    match is_none_kicked {
        true => Err(Failure::Running("no session matches; \"millrace ctl sessions\" lists them.".to_owned())),
        false => Ok(()),
    }
}

fn no_answer(socket: &Path, error: &std::io::Error) -> Failure {
    let socket = socket.display();
    Failure::Running(format!(
        "no answer from {socket}: {error}; is a server running with --control {socket}?"
    ))
}

/// The answer of a server, or its error.
fn parsed(answer: &str) -> Result<Value, Failure> {
    let parsed: Value = serde_json::from_str(answer)
        .map_err(|error| Failure::Running(format!("{answer:?} is no answer: {error}.")))?;
    match parsed["ok"] == true {
        true => Ok(parsed),
        false => Err(Failure::Running(format!("{}.", told_by_the_server(&parsed["error"])))),
    }
}

fn request(action: &Action) -> Value {
    match action {
        Action::Sessions | Action::Top(_) => json!({ "do": "sessions" }),
        Action::Kick { session, user, address } => {
            json!({ "do": "kick", "session": session, "user": user, "address": address.map(|address| address.to_string()) })
        }
        Action::Limits { scope, download, upload, sessions, restore } => {
            let scope = (!scope.is_empty()).then(|| scope.join(" "));
            json!({
                "do": "limits", "scope": scope, "download": download, "upload": upload, "sessions": sessions,
                "restore": restore,
            })
        }
        Action::Ban { network, time } => {
            let seconds = time.as_ref().map(|time| time.value.0.as_millis().div_ceil(1000).max(1) as u64);
            json!({ "do": "ban", "network": network, "seconds": seconds })
        }
        Action::Unban { network } => json!({ "do": "unban", "network": network }),
        Action::Bans => json!({ "do": "bans" }),
        Action::Quotas => json!({ "do": "quotas" }),
        Action::Recount { tree } => json!({ "do": "recount", "tree": tree }),
        Action::Events { action: None, to, most } => json!({ "do": "events", "to": to, "most": most }),
        Action::Events { action: Some(action), .. } => events(action),
        Action::Reload => json!({ "do": "reload" }),
        Action::Upgrade => json!({ "do": "upgrade" }),
        Action::Audit => json!({ "do": "audit" }),
        Action::Drain => json!({ "do": "drain" }),
        Action::Stop => json!({ "do": "stop" }),
    }
}

fn events(action: &Events) -> Value {
    match action {
        Events::Retry { which: Which { ids, all, to } } => {
            json!({ "do": "retry-events", "events": ids, "all": all, "to": to })
        }
        Events::Drop { which: Which { ids, all, to }, waiting } => {
            json!({ "do": "drop-events", "events": ids, "all": all, "to": to, "waiting": waiting })
        }
    }
}

fn ask(socket: &Path, request: &Value, patience: Duration) -> std::io::Result<String> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(patience))?;
    stream.write_all(format!("{request}\n").as_bytes())?;
    let mut answer = String::new();
    match BufReader::new(stream).read_line(&mut answer)? {
        0 => Err(std::io::ErrorKind::UnexpectedEof.into()),
        _ => Ok(answer),
    }
}

/// An error, which may quote lines of a file and what clients named.
fn told_by_the_server(error: &Value) -> String {
    let text = error.as_str().unwrap_or("it says not why").trim_end_matches('.');
    let shown = |char: char| match char {
        '\n' => "\n".to_owned(),
        char if char.is_control() => char.escape_debug().to_string(),
        char => char.to_string(),
    };
    text.chars().map(shown).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_shown_as_it_was_written_and_moves_no_cursor() {
        let error = json!("m.toml:1:9: no \"thing\"\n    1 | \u{1b}[2J.");
        assert_eq!(told_by_the_server(&error), "m.toml:1:9: no \"thing\"\n    1 | \\u{1b}[2J");
    }
}
