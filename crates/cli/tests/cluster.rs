//! Three servers that share a PostgreSQL: limits on sessions and bans hold on all of them, whichever of them dies, stalls or
//! loses the database. `MILLRACE_CLUSTER_ROUNDS=20` is the long form.

#[path = "cluster/classes.rs"]
mod classes;
#[path = "../../server/tests/sources/daemon.rs"]
#[allow(dead_code, reason = "other tests use all of it")]
mod daemon;
#[path = "cluster/data.rs"]
mod data;
#[path = "cluster/events.rs"]
mod events;
#[path = "cluster/failures.rs"]
mod failures;
#[path = "cluster/http.rs"]
mod http;
#[path = "cluster/limits.rs"]
mod limits;
#[path = "cluster/logins.rs"]
mod logins;
#[path = "../../server/tests/sources/postgresql.rs"]
#[allow(dead_code, reason = "other tests use all of it")]
mod postgresql;
#[path = "cluster/quotas.rs"]
mod quotas;
#[path = "cluster/rates.rs"]
mod rates;
#[path = "crashes/receiver.rs"]
#[allow(dead_code, reason = "other tests use all of it")]
mod receiver;
#[path = "cluster/steering.rs"]
mod steering;
#[path = "cluster/tickets.rs"]
mod tickets;
#[path = "cluster/tokens.rs"]
mod tokens;
#[path = "cluster/transfers.rs"]
mod transfers;
#[path = "cluster/tus.rs"]
mod tus;
#[path = "cluster/webdav.rs"]
mod webdav;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use postgresql::Postgres;

/// The hash of `password`: cheap.
const HASH: &str = "$argon2id$v=19$m=256,t=2,p=1$c29tZXNhbHQ$nf65EOgLrQMR/uIPnA4rEsF5h7TKyQwu9U1bMCHGi/4";

const PATIENCE: Duration = Duration::from_secs(30);

/// How often the long form repeats what the short one does once or twice.
fn long_form() -> Option<usize> {
    std::env::var("MILLRACE_CLUSTER_ROUNDS").ok().and_then(|text| text.parse().ok())
}

/// Logins at once, over three nodes.
const LOGINS: usize = 300;

/// The users, and how many sessions each may have on all nodes together.
const USERS: [(&str, &str); 3] = [("ann", "7"), ("bob", "1"), ("free", "none")];

/// A server that is a node.
struct Node {
    folder: PathBuf,
    child: Child,
    address: String,
    /// Of HTTP, where it speaks that.
    http: String,
    /// Of HTTPS, where it speaks that.
    https: String,
    /// Its log.
    log: Arc<Mutex<String>>,
}

impl Node {
    fn start(database: &Postgres, name: &str, keys: &str, lease: u32) -> Self {
        Self::start_at(database, name, "127.0.0.1:0", [keys, ""], lease)
    }

    /// The same at another address, with these keys, and these of the cluster.
    fn start_at(
        database: &Postgres,
        name: &str,
        place: &str,
        [keys, of_cluster]: [&str; 2],
        lease: u32,
    ) -> Self {
        static COUNTER: AtomicU32 = AtomicU32::new(0);
        let number = COUNTER.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("millrace-cluster-{}-{number}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        fs::File::create(folder.join("f")).unwrap().set_len(64 << 20).unwrap();
        let user = |(name, most): (&str, &str)| {
            format!("[[user]]\nname = \"{name}\"\npassword = \"{HASH}\"\nsessions = \"{most}\"\n")
        };
        let keys = if keys.contains("http") { keys.to_owned() } else { format!("http = \"off\"\n{keys}") };
        let keys = if keys.contains("directory") { keys } else { format!("directory = \".\"\n{keys}") };
        let text = format!(
            "control = \"control\"\nstate = \"state\"\n{keys}\n{}\n[cluster]\ndatabase = \"{}\"\n\
             node = \"{name}\"\nlease = \"{lease}s\"\ntimeout = \"5s\"\nshare-events = {}\n{of_cluster}\n",
            USERS.map(user).concat(),
            database.connection(),
            keys.contains("hooks-queue"),
        );
        fs::write(folder.join("millrace.toml"), text).unwrap();
        let mut child = Command::new(env!("CARGO_BIN_EXE_millrace"))
            .args(["serve", "--ftp", place, "--config"])
            .arg(folder.join("millrace.toml"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let (out, errors) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
        let log = Arc::new(Mutex::new(String::new()));
        let kept = Arc::clone(&log);
        thread::spawn(move || {
            for line in BufReader::new(errors).lines().map_while(Result::ok) {
                *kept.lock().unwrap() += &format!("{line}\n");
            }
        });
        let mut node =
            Self { folder, child, address: String::new(), http: String::new(), https: String::new(), log };
        let mut lines = BufReader::new(out).lines();
        while let Some(line) = lines.next().map(Result::unwrap) {
            let place = |scheme: &str| {
                let (_, rest) = line.split_once(scheme)?;
                Some(rest.split('/').next().unwrap().rsplit('@').next().unwrap().to_owned())
            };
            place("ftp://").into_iter().for_each(|place| node.address = place);
            place("http://").into_iter().for_each(|place| node.http = place);
            place("https://").into_iter().for_each(|place| node.https = place);
            if line.starts_with("Ready") {
                // A process that relieves this one has the same output.
                thread::spawn(move || lines.for_each(drop));
                return node;
            }
        }
        panic!("it ended before it was ready: {}", node.log());
    }

    fn log(&self) -> String {
        self.log.lock().unwrap().clone()
    }

    fn ctl(&self, arguments: &[&str]) -> String {
        let mut command = Command::new(env!("CARGO_BIN_EXE_millrace"));
        command.arg("ctl").arg("--control").arg(self.folder.join("control")).args(arguments);
        let output = command.output().unwrap();
        String::from_utf8([output.stdout, output.stderr].concat()).unwrap()
    }

    fn signal(&self, signal: &str) {
        let kill = Command::new("kill").args([signal, &self.child.id().to_string()]).status().unwrap();
        assert!(kill.success());
    }

    fn log_in(&self, user: &str) -> Result<Client, String> {
        Client::log_in(&self.address, user)
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// A session.
struct Client(BufReader<TcpStream>);

impl Client {
    /// Logs in, or returns the reply that refuses it.
    fn log_in(address: &str, user: &str) -> Result<Self, String> {
        let mut client = Self::connect(address);
        let greeting = client.line();
        if !greeting.starts_with("220") {
            return Err(greeting);
        }
        client.say(&format!("USER {user}"));
        let reply = client.say("PASS password");
        if reply.starts_with("230") { Ok(client) } else { Err(reply) }
    }

    fn connect(address: &str) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Self(BufReader::new(stream))
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        line
    }

    fn say(&mut self, line: &str) -> String {
        write!(self.0.get_mut(), "{line}\r\n").unwrap();
        self.line()
    }

    #[track_caller]
    fn expect(&mut self, line: &str, code: &str) -> String {
        let reply = self.say(line);
        assert!(reply.starts_with(code), "{line}: {reply}");
        reply
    }

    /// Begins a download; its data connection.
    fn download(&mut self) -> TcpStream {
        self.expect("TYPE I", "200");
        let reply = self.expect("EPSV", "229");
        let port: u16 = reply.split('|').nth(3).unwrap().parse().unwrap();
        let data = TcpStream::connect(("127.0.0.1", port)).unwrap();
        self.expect("RETR f", "150");
        data
    }
}

/// A connection of HTTP, as bob.
struct Browser(BufReader<TcpStream>);

impl Browser {
    fn new(node: &Node) -> Self {
        let stream = TcpStream::connect(&node.http).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Self(BufReader::new(stream))
    }

    /// The status of a request.
    fn get(&mut self) -> u16 {
        let head = "HEAD / HTTP/1.1\r\nHost: x\r\nAuthorization: Basic Ym9iOnBhc3N3b3Jk\r\n\r\n";
        self.0.get_mut().write_all(head.as_bytes()).unwrap();
        let mut lines = self.0.by_ref().lines().map(Result::unwrap).take_while(|line| !line.is_empty());
        let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
        lines.for_each(drop);
        status
    }
}

#[track_caller]
fn eventually(what: &str, mut claim: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !claim() {
        assert!(Instant::now() < end, "not in time: {what}");
        thread::sleep(Duration::from_millis(20));
    }
}

fn three(database: &Postgres, keys: &str) -> [Node; 3] {
    ["a", "b", "c"].map(|name| Node::start(database, name, keys, 6))
}

/// Places that are taken.
fn held(database: &Postgres) -> String {
    database.run("SELECT coalesce(sum(places), 0) FROM millrace_cluster.held")
}

/// Has 300 clients log in at once over the nodes. Returns those that are in; the others were told 421.
fn rush(nodes: &[Node], user: &str) -> Vec<Client> {
    let barrier = Barrier::new(LOGINS);
    thread::scope(|scope| {
        let clients: Vec<_> = (0..LOGINS)
            .map(|number| {
                let (address, barrier) = (&nodes[number % nodes.len()].address, &barrier);
                let log_in = move || {
                    barrier.wait();
                    Client::log_in(address, user)
                };
                thread::Builder::new().stack_size(128 << 10).spawn_scoped(scope, log_in).unwrap()
            })
            .collect();
        let ended = clients.into_iter().map(|client| client.join().unwrap());
        let (sessions, refused): (Vec<_>, Vec<_>) = ended.partition(Result::is_ok);
        for reply in refused.into_iter().filter_map(Result::err) {
            assert!(reply.starts_with("421 Too many sessions"), "{reply}");
        }
        sessions.into_iter().filter_map(Result::ok).collect()
    })
}

fn rounds(nodes: &[Node], database: &Postgres, user: &str) {
    for round in 0..long_form().unwrap_or(2) {
        let sessions = rush(nodes, user);
        assert_eq!(sessions.len(), 7, "round {round}");
        drop(sessions);
        eventually("all places are free again", || held(database) == "0");
    }
}

#[test]
fn of_300_logins_at_once_over_three_nodes_seven_get_in_where_a_user_may_have_seven_sessions() {
    let Some(database) = Postgres::new() else { return };
    rounds(&three(&database, ""), &database, "ann");
}

#[test]
fn of_300_logins_at_once_over_three_nodes_seven_get_in_where_there_may_be_seven_sessions_in_all() {
    let Some(database) = Postgres::new() else { return };
    let nodes = three(&database, "sessions = 7");
    rounds(&nodes, &database, "free");
    drop(nodes);
    rounds(&three(&database, "sessions-per-address = 7"), &database, "free");
    rounds(&three(&database, "sessions-per-network = 7"), &database, "free");
}

#[test]
fn of_300_logins_at_once_over_three_nodes_seven_get_in_where_a_group_may_have_seven_sessions() {
    let Some(database) = Postgres::new() else { return };
    let group = |name, most| format!("[[group]]\nname = \"{name}\"\nshared-sessions = {most}\n");
    let user =
        |name, groups| format!("[[user]]\nname = \"{name}\"\npassword = \"{HASH}\"\ngroups = [{groups}]\n");
    let keys = [
        group("a", 7),
        group("b", 8),
        user("first", "'b', 'a'"),
        user("second", "'b'"),
        user("third", "'a'"),
    ]
    .concat();
    let nodes = three(&database, &keys);
    rounds(&nodes, &database, "first");
    let sessions = rush(&nodes, "first");
    assert!(nodes[0].log_in("third").err().unwrap().starts_with("421 Too many sessions of your group"));
    let _last = nodes[1].log_in("second").unwrap();
    assert!(nodes[2].log_in("second").is_err(), "all of the other group's places are taken");
    drop(sessions);
    eventually("the places are free", || nodes[0].log_in("third").is_ok());
}

#[test]
fn a_login_asks_the_database_once_and_not_at_all_without_a_limit() {
    let Some(database) = Postgres::new() else { return };
    database.run("ALTER DATABASE postgres SET track_functions = 'pl'");
    let nodes = three(&database, "");
    let calls = || {
        database.run(
            "SELECT coalesce(sum(calls), 0) FROM pg_stat_user_functions \
             WHERE schemaname = 'millrace_cluster' AND funcname = 'take'",
        )
    };
    let sessions: Vec<_> = (0..7).map(|number| nodes[number % 3].log_in("ann").unwrap()).collect();
    assert!(nodes[0].log_in("ann").is_err());
    // One that finds no place asks once more, later.
    eventually("the database has counted them", || calls() == "9");
    drop(sessions);
    let _free: Vec<_> = (0..9).map(|number| nodes[number % 3].log_in("free").unwrap()).collect();
    let _last = nodes[0].log_in("bob").unwrap();
    eventually("one more is counted, and no other", || calls() != "9");
    assert_eq!(calls(), "10");
}

#[test]
fn a_client_that_has_quit_may_log_in_at_another_node_at_once() {
    let Some(database) = Postgres::new() else { return };
    let nodes = three(&database, "");
    for round in 0..6 {
        let mut client = nodes[round % 3].log_in("bob").unwrap();
        client.expect("QUIT", "221");
    }
}

#[test]
fn a_node_that_dies_frees_its_places_within_ten_seconds() {
    let Some(database) = Postgres::new() else { return };
    let [mut dies, lives, _] = three(&database, "");
    let _client = dies.log_in("bob").unwrap();
    assert!(lives.log_in("bob").err().unwrap().starts_with("421 Too many sessions of this user"));
    dies.child.kill().unwrap();
    let death = Instant::now();
    eventually("its place is free", || lives.log_in("bob").is_ok());
    assert!(death.elapsed() < Duration::from_secs(10), "{:?}", death.elapsed());
}

#[test]
fn a_node_that_stalls_is_fenced_and_counts_its_sessions_anew() {
    let Some(database) = Postgres::new() else { return };
    let [stalls, lives] = ["stalls", "lives"].map(|name| Node::start(&database, name, "", 3));
    let mut client = stalls.log_in("bob").unwrap();
    stalls.signal("-STOP");
    eventually("its place is free", || held(&database) == "0");
    let other = lives.log_in("bob").unwrap();
    stalls.signal("-CONT");
    eventually("it learns of it", || stalls.log().contains("has ended: it was silent"));
    client.expect("NOOP", "200");
    eventually("both sessions are counted", || held(&database) == "2");
    drop(other);
    eventually("one is left", || held(&database) == "1");
    assert!(lives.log_in("bob").err().unwrap().starts_with("421"), "the session of the stalled node counts");
    drop(client);
    eventually("the place is free", || lives.log_in("bob").is_ok());
}

#[test]
fn while_the_database_is_away_sessions_and_transfers_go_on_and_logins_that_need_a_place_are_refused() {
    let Some(mut database) = Postgres::new() else { return };
    let [one, other, _] = three(&database, "");
    let mut client = one.log_in("bob").unwrap();
    let mut data = client.download();
    database.daemon.kill();
    eventually("logins are refused", || {
        let refused = other.log_in("ann").err();
        refused.is_some_and(|reply| reply.starts_with("421 Logins are not possible at the moment"))
    });
    assert!(other.log_in("free").is_ok(), "a user without a limit needs no place");
    assert_eq!(std::io::copy(&mut data, &mut std::io::sink()).unwrap(), 64 << 20);
    assert!(client.line().starts_with("226"));
    client.expect("NOOP", "200");
    database.start();
    let back = Instant::now();
    eventually("logins work again", || other.log_in("ann").is_ok());
    // It has crashed: a lease of 6 s and two seconds, and as much for a machine that is busy.
    assert!(back.elapsed() < Duration::from_secs(16), "{:?}", back.elapsed());
    assert!(other.log_in("bob").is_err(), "the session is counted before others are let in");
    client.expect("NOOP", "200");
    let log = other.log();
    assert!(
        log.contains("are refused") && log.contains("the database of the cluster answers again"),
        "{log}"
    );
}

#[test]
fn a_ban_at_one_node_holds_at_all_of_them_and_is_lifted_at_any() {
    let Some(database) = Postgres::new() else { return };
    let nodes = three(&database, "");
    nodes[0].ctl(&["ban", "192.0.2.0/24", "--for", "1h"]);
    let start = Instant::now();
    eventually("it holds at all", || nodes.iter().all(|node| node.ctl(&["bans"]).contains("192.0.2.0/24")));
    // Two seconds, and as much for a machine that is busy.
    assert!(start.elapsed() < Duration::from_secs(4), "{:?}", start.elapsed());
    let late = Node::start(&database, "late", "", 6);
    assert!(late.ctl(&["bans"]).contains("192.0.2.0/24"), "a node that joins knows it");
    late.ctl(&["unban", "192.0.2.0/24"]);
    eventually("it is lifted", || nodes.iter().all(|node| !node.ctl(&["bans"]).contains("192.0.2.0/24")));
}

#[test]
fn every_node_lists_all_of_them_until_they_leave() {
    let Some(mut database) = Postgres::new() else { return };
    let [one, mut other, _] = three(&database, "");
    let _client = other.log_in("ann").unwrap();
    let list = || one.ctl(&["cluster"]);
    eventually("its session is told", || {
        let words = |line: &str| line.split_whitespace().take(4).map(str::to_owned).collect::<Vec<_>>();
        list().lines().map(words).any(|words| words[0] == "b" && words[2..] == ["serving", "1"])
    });
    let names: Vec<String> = list().lines().map(|line| line.split(' ').next().unwrap().to_owned()).collect();
    assert_eq!(names, ["NODE", "a*", "b", "c"]);
    other.signal("-TERM");
    eventually("it has left", || !list().lines().any(|line| line.starts_with("b ")));
    assert!(other.child.wait().unwrap().success());
    database.daemon.kill();
    assert!(list().contains("the database of the cluster"), "{}", list());
}

#[test]
fn a_connection_of_http_has_a_place_for_as_long_as_its_user_asks_and_is_told_503_where_there_is_none() {
    let Some(database) = Postgres::new() else { return };
    let nodes = ["a", "b"].map(|name| Node::start(&database, name, "http = \"127.0.0.1:0\"", 6));
    let mut browser = Browser::new(&nodes[0]);
    let start = Instant::now();
    // The accounts are asked again each second: that is no other session.
    while start.elapsed() < Duration::from_millis(2500) {
        assert_eq!(browser.get(), 200);
    }
    assert_eq!(held(&database), "1");
    assert!(nodes[1].log_in("bob").err().unwrap().starts_with("421 Too many sessions of this user"));
    assert_eq!(Browser::new(&nodes[1]).get(), 503);
    drop(browser);
    eventually("the place is free", || Browser::new(&nodes[1]).get() == 200);
}

#[test]
fn a_node_whose_database_is_away_starts_and_joins_later() {
    let Some(mut database) = Postgres::new() else { return };
    database.daemon.kill();
    let node = Node::start(&database, "early", "", 6);
    assert!(node.log_in("free").is_ok() && node.log_in("ann").is_err());
    database.start();
    eventually("it joins", || node.log_in("ann").is_ok());
}
