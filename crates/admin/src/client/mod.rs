//! `millrace ctl`: inspects and controls a running server over its control socket.

mod error;
mod finding;
mod link;
mod told;
mod top;
mod trace;

use std::io::{self, Write};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use clap::{Args, Subcommand};
use millrace_limits::period;
use serde_json::{Value, json};

use self::finding::find;
use self::link::{ServerLink, parsed};
use self::top::Top;
use self::trace::{FollowLog, Trace};
use crate::role::Role;

pub use self::error::{ClientError, FoundServer};

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// How often it is looked whether a server has ended.
const LOOKS_AGAIN: Duration = Duration::from_millis(100);

/// How long a new server may take to be ready; the old one waits no longer than that.
const STARTING: Duration = Duration::from_secs(180);

/// How long a walk over a tree may take.
const COUNTING: Duration = Duration::from_secs(3600);

/// What `millrace ctl` is told.
#[derive(Debug, Args)]
pub struct Ctl {
    /// The server's control socket, as given by --control [default: that of the only server of this user]
    #[arg(long, global = true, value_name = "FILE")]
    control: Option<PathBuf>,
    /// Print the server's answer as a line of JSON
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Show which server it is, since when it runs, where it listens, and how many sessions it has
    Status,
    /// List the sessions and their transfers
    Sessions,
    /// Show the sessions live: who, where from, the last command, file, rate, share done, idle time, what it waits for
    ///
    /// Keys sort (s), reverse (r), filter (/), follow a session (f), end one (k), pause (space) and quit (q). Only what
    /// has changed is written to the terminal.
    Top(Top),
    /// Follow commands and replies of sessions live, also of those that begin later; passwords are not shown
    ///
    /// Each line has the time (UTC), the session, its user and address, and what was said: > by the client, < by the
    /// server. Of HTTP it has request lines and the status of answers. Sessions have to match all that is given.
    Trace(Trace),
    /// Follow the log live, from its last lines on
    ///
    /// It has what happens while this runs, whatever --quiet and log-format say.
    Log(FollowLog),
    /// End the sessions that match all given flags
    Kick {
        /// The session with this number, as listed by "sessions"
        #[arg(long, value_name = "NUMBER")]
        session: Option<u64>,
        /// Sessions of this user
        #[arg(long, value_name = "NAME")]
        user: Option<String>,
        /// Sessions at this virtual host, as "sessions" names it
        #[arg(long, value_name = "HOST")]
        host: Option<String>,
        /// Sessions from this address
        #[arg(long, value_name = "ADDRESS")]
        address: Option<IpAddr>,
        /// Sessions at this node of the cluster
        #[arg(long, value_name = "NODE")]
        node: Option<String>,
    },
    /// Show limits, or change them until the server ends: changes apply at once, to running transfers too
    ///
    /// SCOPE is "server", "listener ADDR:PORT", "group NAME", "user NAME" or "session NUMBER"; without flags its limits
    /// are shown. A limit is written as in the configuration: 10M, none, "10M; mon-fri 08:00-18:00 1M". In a cluster all nodes
    /// hold to what is set, until it is restored.
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
        #[arg(long = "for", value_name = "TIME", alias = "seconds", value_parser = some_time)]
        time: Option<Duration>,
    },
    /// Lift a ban
    Unban {
        /// The network as it was banned
        network: String,
    },
    /// List the bans, and when they expire
    Bans,
    /// List the nodes of the cluster: how long each has been silent, its sessions, and whether it drains
    Cluster,
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
    /// Try the receivers of notices
    Notice {
        #[command(subcommand)]
        action: NoticeAction,
    },
    /// List the tokens of the admin API (--admin), make one, or remove one
    Token {
        #[command(subcommand)]
        action: TokenAction,
    },
    /// Stop accepting clients, wait for running transfers however long they take, then end
    Drain {
        /// How long clients are accepted yet, while health checks say that the server is not ready and balancers send
        /// new clients elsewhere, such as 30s [default: no longer]
        #[arg(long, value_name = "TIME", value_parser = length_of_time)]
        after: Option<Duration>,
        /// Come back when the server has ended
        #[arg(long)]
        wait: bool,
    },
    /// Stop accepting clients, wait for running transfers for the configured grace time at most, then end
    Stop,
}

/// The actions on notices.
#[derive(Debug, Subcommand)]
enum NoticeAction {
    /// Send a trial to each receiver now, and show which took it
    Test,
}

/// The actions on tokens.
#[derive(Debug, Subcommand)]
enum TokenAction {
    /// Show names, roles and when they expire
    List,
    /// Make a token, and print it: it is shown this once
    Add {
        /// What the log calls whoever uses it
        name: String,
        /// What it permits
        #[arg(long, value_enum)]
        role: Role,
        /// How long it is good, such as 90d [default: until it is removed]
        #[arg(long = "for", value_name = "TIME", value_parser = some_time)]
        time: Option<Duration>,
    },
    /// Forget a token, which is refused from then on
    Remove {
        /// As "list" names it
        name: String,
    },
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

/// Reads a length of time.
fn length_of_time(text: &str) -> Result<Duration, NotATime> {
    period::parse(text).ok_or_else(|| NotATime::Malformed(text.to_owned()))
}

/// As [`length_of_time`], of what has to last.
fn some_time(text: &str) -> Result<Duration, NotATime> {
    length_of_time(text).and_then(|time| if time.is_zero() { Err(NotATime::None) } else { Ok(time) })
}

/// Why a text is no length of time.
#[derive(Debug, thiserror::Error)]
enum NotATime {
    #[error("{0:?} is not a length of time; write a number with ms, s, m, h or d, such as 30s or 5m")]
    Malformed(String),
    #[error("it would be over at once")]
    None,
}

/// Asks a server, or tells it something.
pub fn run(arguments: Ctl) -> Result<(), ClientError> {
    let patience = match arguments.action {
        Action::Recount { .. } => COUNTING,
        Action::Upgrade | Action::Notice { .. } => STARTING,
        _ => PATIENCE,
    };
    let socket = arguments.control.map_or_else(find, Ok)?;
    if let Action::Top(top) = &arguments.action {
        return top::run(&socket, top, arguments.json);
    }
    if let Action::Trace(trace) = &arguments.action {
        return trace::run(&socket, &trace.request(), trace.time, arguments.json);
    }
    if let Action::Log(log) = &arguments.action {
        return trace::run(&socket, &log.request(), log.time, arguments.json);
    }
    let awaited = match arguments.action {
        Action::Drain { wait: true, .. } => Some(process(&socket)?),
        _ => None,
    };
    let answer = ServerLink::new(&socket, patience).ask_for_line(&request(&arguments.action))?;
    let parsed = parsed(&answer)?;
    let is_none_kicked = parsed["kicked"] == 0;
    match arguments.json {
        true => print(&answer)?,
        false if is_none_kicked => {}
        false => print(&told::told(&arguments.action, &parsed))?,
    }
    while awaited.is_some() && process(&socket).ok() == awaited {
        thread::sleep(LOOKS_AGAIN);
    }
    let tried = parsed["receivers"].as_array().map_or(&[][..], Vec::as_slice);
    match tried.iter().all(|one| one["error"].is_null()) {
        false => Err(ClientError::NoticeNotTaken),
        true if is_none_kicked => Err(ClientError::NoSession),
        true => Ok(()),
    }
}

/// Returns the number of the process that serves this socket.
fn process(socket: &Path) -> Result<Value, ClientError> {
    Ok(ServerLink::new(socket, PATIENCE).ask(&json!({ "do": "status" }))?["pid"].take())
}

/// Writes to standard output. A reader that has gone is no error.
fn print(text: &str) -> Result<(), ClientError> {
    match io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(ClientError::Output(error)),
        _ => Ok(()),
    }
}

fn request(action: &Action) -> Value {
    match action {
        Action::Status => json!({ "do": "status" }),
        Action::Sessions | Action::Top(_) => json!({ "do": "sessions" }),
        Action::Trace(trace) => trace.request(),
        Action::Log(log) => log.request(),
        Action::Kick { session, user, host, address, node } => {
            let address = address.map(|address| address.to_string());
            json!({ "do": "kick", "session": session, "user": user, "host": host, "address": address, "node": node })
        }
        Action::Limits { scope, download, upload, sessions, restore } => {
            let scope = (!scope.is_empty()).then(|| scope.join(" "));
            json!({
                "do": "limits", "scope": scope, "download": download, "upload": upload, "sessions": sessions,
                "restore": restore,
            })
        }
        Action::Ban { network, time } => {
            json!({ "do": "ban", "network": network, "seconds": time.map(whole_seconds) })
        }
        Action::Unban { network } => json!({ "do": "unban", "network": network }),
        Action::Bans => json!({ "do": "bans" }),
        Action::Cluster => json!({ "do": "cluster" }),
        Action::Quotas => json!({ "do": "quotas" }),
        Action::Recount { tree } => json!({ "do": "recount", "tree": tree }),
        Action::Events { action: None, to, most } => json!({ "do": "events", "to": to, "most": most }),
        Action::Events { action: Some(action), .. } => events(action),
        Action::Reload => json!({ "do": "reload" }),
        Action::Upgrade => json!({ "do": "upgrade" }),
        Action::Audit => json!({ "do": "audit" }),
        Action::Token { action: TokenAction::List } => json!({ "do": "tokens" }),
        Action::Token { action: TokenAction::Add { name, role, time } } => {
            json!({ "do": "add-token", "name": name, "role": role, "seconds": time.map(whole_seconds) })
        }
        Action::Token { action: TokenAction::Remove { name } } => {
            json!({ "do": "remove-token", "name": name })
        }
        Action::Notice { action: NoticeAction::Test } => json!({ "do": "test-notices" }),
        Action::Drain { after, .. } => json!({ "do": "drain", "after": after.map(whole_seconds) }),
        Action::Stop => json!({ "do": "stop" }),
    }
}

/// Rounds up, to one at least.
fn whole_seconds(time: Duration) -> u64 {
    time.as_millis().div_ceil(1000).max(1) as u64
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
