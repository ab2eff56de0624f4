//! Three servers behind one HAProxy that sends each data connection to any of them. `MILLRACE_CLUSTER_ROUNDS=20` is the long
//! form, of more than a thousand transfers.

#[path = "data/upgrade.rs"]
mod upgrade;

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::daemon::program;
use super::postgresql::Postgres;
use super::quotas::Folder;
use super::{Client, Node, PATIENCE, eventually, long_form};

/// What an administrator reads.
const TEXT: &str = include_str!("../../../../docs/load-balancer.md");

/// Each node has 40 passive ports.
const FIRST_PORT: u16 = 20_400;
const PORTS: u16 = 40;

const NAMES: [&str; 3] = ["a", "b", "c"];

/// Clients at a time.
const CLIENTS: usize = 4;

/// How HAProxy tells the servers of its clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Balancer {
    /// It does not: all of them have its address.
    Silent,
    /// By the PROXY protocol.
    Naming,
}

/// Three nodes and their balancer.
struct Site {
    database: Postgres,
    files: Folder,
    /// HAProxy's files.
    own: Folder,
    balancer: Balancer,
    addresses: [Ipv4Addr; 4],
    nodes: [Option<Node>; 3],
    haproxy: Child,
}

impl Drop for Site {
    fn drop(&mut self) {
        let _ = self.haproxy.kill();
        let _ = self.haproxy.wait();
        if thread::panicking() {
            for (name, node) in NAMES.iter().zip(&self.nodes) {
                let log = node.as_ref().map_or("it was killed".to_owned(), Node::log);
                let lines: Vec<&str> = log.lines().collect();
                eprintln!("--- {name}:\n{}", lines[lines.len().saturating_sub(40)..].join("\n"));
            }
        }
    }
}

/// Addresses that no other test uses: the balancer's, and those of the nodes.
fn own_addresses() -> [Ipv4Addr; 4] {
    static NUMBER: AtomicU8 = AtomicU8::new(0);
    let [_, _, high, low] = std::process::id().to_be_bytes();
    let first = 192 + NUMBER.fetch_add(1, Ordering::Relaxed) * 4;
    [0, 1, 2, 3].map(|part| Ipv4Addr::new(127, first + part, high, low))
}

fn range(number: usize) -> String {
    let first = FIRST_PORT + PORTS * number as u16;
    format!("{first}-{}", first + PORTS - 1)
}

/// What the documentation has for HAProxy, with these addresses, and a third node.
fn data_section([front, a, b, c]: [Ipv4Addr; 4], header: &str) -> String {
    let blocks = TEXT.split("```haproxy\n").filter_map(|part| part.split("```").next());
    let section = blocks.filter(|block| block.starts_with("listen data\n")).collect::<String>();
    let last = FIRST_PORT + 3 * PORTS - 1;
    let here = [
        ("192.0.2.1:50000-50999", format!("{front}:{FIRST_PORT}-{last}")),
        ("send-proxy-v2", format!("{header} source {front}")),
        ("10.0.0.21", a.to_string()),
        ("10.0.0.22", b.to_string()),
    ];
    let placed = here.iter().fold(section, |text, (there, here)| {
        assert!(text.contains(there), "{there} is not in {text}");
        text.replace(there, here)
    });
    format!("{placed}    server c {c} track ftp/c\n")
}

/// Starts a node.
fn start(
    database: &Postgres,
    files: &Folder,
    balancer: Balancer,
    [front, nodes @ ..]: [Ipv4Addr; 4],
    number: usize,
    of_cluster: &str,
) -> Node {
    let told = match balancer {
        Balancer::Naming => format!("proxy-from = \"{front}\""),
        Balancer::Silent => format!("public-ip = \"{front}\""),
    };
    let keys = format!(
        "directory = \"{}\"\npassive-ports = \"{}\"\ngrace = 3\n{told}\ntls-self-signed = true\ntls-names = [\"{front}\"]\n",
        files.0.display(),
        range(number)
    );
    let of_cluster = of_cluster.replace("HERE", &nodes[number].to_string());
    let place = format!("{}:2121", nodes[number]);
    Node::start_at(database, NAMES[number], &place, [&keys, &of_cluster], 3)
}

impl Site {
    /// `None` where PostgreSQL or HAProxy is missing.
    fn new(balancer: Balancer, of_cluster: &str) -> Option<Self> {
        let (database, haproxy) = (Postgres::new()?, program("haproxy", "haproxy")?);
        let (files, own, addresses) = (Folder::new(), Folder::new(), own_addresses());
        let [front, nodes @ ..] = addresses;
        let header = if balancer == Balancer::Naming { "send-proxy-v2" } else { "" };
        let checks = "check inter 200ms rise 25 fall 1 on-marked-down shutdown-sessions";
        let server = |(name, node)| format!("    server {name} {node}:2121\n");
        let text = format!(
            "global\n    maxconn 1000\n    stats socket {}\ndefaults\n    mode tcp\n    timeout connect 30s\n    \
             timeout client 90s\n    timeout server 90s\n    retries 0\nlisten ftp\n    bind {front}:2121\n    \
             balance roundrobin\n    default-server {header} source {front} {checks}\n{}{}",
            own.0.join("stats").display(),
            NAMES.iter().zip(&nodes).map(server).collect::<String>(),
            data_section(addresses, header),
        );
        fs::write(own.0.join("haproxy.cfg"), text).unwrap();
        let mut nodes_there = [const { None }; 3];
        for (number, node) in nodes_there.iter_mut().enumerate() {
            *node = Some(start(&database, &files, balancer, addresses, number, of_cluster));
        }
        let log = fs::File::create(own.0.join("log")).unwrap();
        let haproxy = Command::new(haproxy)
            .args(["-db", "-f", "haproxy.cfg"])
            .current_dir(&own.0)
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        let site = Self { database, files, own, balancer, addresses, nodes: nodes_there, haproxy };
        site.waits_until("UP", 3);
        if of_cluster == HANDED_ON {
            eventually("the nodes know one another", || site.all_are_listened_for());
        }
        Some(site)
    }

    /// Returns whether each node listens at ports of the others.
    fn all_are_listened_for(&self) -> bool {
        let pairs = (0..3).flat_map(|at| (0..3).map(move |of| (at, of)));
        let is_listened_at = |(at, of): (usize, u16)| {
            let port = FIRST_PORT + PORTS * of;
            usize::from(of) == at || TcpStream::connect((self.addresses[1 + at], port)).is_ok()
        };
        pairs.into_iter().all(is_listened_at)
    }

    /// HAProxy's row of a server: its state, and how many connections it got.
    fn row(&self, listen: &str, name: &str) -> Option<(String, u64)> {
        let mut told = String::new();
        let mut stream = UnixStream::connect(self.own.0.join("stats")).ok()?;
        stream.write_all(b"show stat\n").ok()?;
        stream.read_to_string(&mut told).ok()?;
        let begin = format!("{listen},{name},");
        let row: Vec<&str> = told.lines().find(|line| line.starts_with(&begin))?.split(',').collect();
        Some((row[17].to_owned(), row[7].parse().ok()?))
    }

    fn waits_until(&self, state: &str, count: usize) {
        eventually(&format!("{count} nodes are {state}"), || {
            let is_so =
                |name: &&&str| self.row("data", name).is_some_and(|(found, _)| found.starts_with(state));
            NAMES.iter().filter(is_so).count() == count
        });
    }

    fn front(&self) -> Front {
        Front { address: self.addresses[0], files: self.files.0.clone(), own: self.own.0.clone() }
    }

    /// How many data connections each node got.
    fn shares(&self) -> [u64; 3] {
        NAMES.map(|name| self.row("data", name).unwrap().1)
    }
}

/// What clients see of a site.
struct Front {
    address: Ipv4Addr,
    files: PathBuf,
    /// The clients' own folder.
    own: PathBuf,
}

impl Front {
    fn curl(&self, arguments: &[&str]) -> Result<Vec<u8>, String> {
        let output = Command::new("curl")
            .args(["--silent", "--show-error", "--insecure", "--max-time", "60", "--user", "free:password"])
            .args(arguments)
            .output()
            .unwrap();
        let said = || format!("{}: {}", output.status, String::from_utf8_lossy(&output.stderr));
        if output.status.success() { Ok(output.stdout) } else { Err(said()) }
    }

    fn url(&self, path: &str) -> String {
        format!("ftp://{}:2121/{path}", self.address)
    }

    /// An upload, its download and a listing, in clear and by FTPS; the errors.
    fn rounds(&self, count: usize) -> Vec<String> {
        let next = AtomicUsize::new(0);
        let client = || {
            let mut errors = Vec::new();
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= count {
                    return errors;
                }
                errors.extend(self.round(number).err());
            }
        };
        thread::scope(|scope| {
            let clients: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(client)).collect();
            clients.into_iter().flat_map(|client| client.join().unwrap()).collect()
        })
    }

    fn round(&self, number: usize) -> Result<(), String> {
        let options: &[&str] = match number % 3 {
            0 => &[],
            1 => &["--ssl-reqd"],
            // It connects to where the reply says.
            _ => &["--disable-epsv", "--no-ftp-skip-pasv-ip"],
        };
        let name = format!("f{number}");
        let content = noise(number as u64, 1 + number * 7919 % 300_000);
        let local = self.own.join(&name);
        fs::write(&local, &content).unwrap();
        let what = |error: String| format!("{number} {options:?}: {error}");
        self.curl(&[&["--upload-file", local.to_str().unwrap(), &self.url(&name)], options].concat())
            .map_err(what)?;
        if fs::read(self.files.join(&name)).unwrap_or_default() != content {
            return Err(what("what was uploaded is something else".to_owned()));
        }
        if self.curl(&[&[&self.url(&name)[..]], options].concat()).map_err(what)? != content {
            return Err(what("what was downloaded is something else".to_owned()));
        }
        let list = self.curl(&[&["--list-only", &self.url("")], options].concat()).map_err(what)?;
        if !String::from_utf8_lossy(&list).lines().any(|line| line == name) {
            return Err(what("it is not listed".to_owned()));
        }
        Ok(())
    }
}

/// Bytes that are the same for the same seed, and do not repeat.
fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let next = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    (0..length).map(next).collect()
}

/// The key that has the nodes hand on; `HERE` is a node's address.
const HANDED_ON: &str = "data-address = \"HERE\"";

fn transfers_never_fail(balancer: Balancer) {
    let Some(site) = Site::new(balancer, HANDED_ON) else { return };
    let rounds = long_form().map_or(40, |rounds| rounds * 17);
    let errors = site.front().rounds(rounds);
    assert!(errors.is_empty(), "{} of {}: {errors:#?}", errors.len(), 3 * rounds);
    let shares = site.shares();
    assert!(shares.iter().all(|share| *share > rounds as u64 / 4), "any node gets them: {shares:?}");
    println!("{} transfers, 0 failed; data connections of each node: {shares:?}", 3 * rounds);
}

#[test]
fn transfers_never_fail_where_data_connections_come_to_any_node() {
    transfers_never_fail(Balancer::Naming);
}

#[test]
fn nor_where_the_balancer_does_not_say_whose_they_are() {
    transfers_never_fail(Balancer::Silent);
}

/// What the tests above would see if nothing were handed on.
#[test]
fn without_the_key_such_transfers_fail() {
    let Some(site) = Site::new(Balancer::Naming, "") else { return };
    let quick = ["--connect-timeout", "3", "--max-time", "3", "--list-only"];
    // By chance each comes to the right node with a third.
    let fails = |_| site.front().curl(&[&quick[..], &[&site.front().url("")]].concat()).is_err();
    assert!((0..16).any(fails), "all came to the right node");
}

/// To the node of the session the kernel's end of the relay must not look like the end of the file.
#[test]
fn an_upload_fails_whose_relay_is_killed_and_the_old_file_stays() {
    let Some(mut site) = Site::new(Balancer::Silent, HANDED_ON) else { return };
    let file = site.files.0.join("kept");
    fs::write(&file, "old").unwrap();
    let [_, passes_on, has_the_session, _] = site.addresses;
    let mut client = Client::log_in(&format!("{has_the_session}:2121"), "free").unwrap();
    client.expect("TYPE I", "200");
    let reply = client.expect("EPSV", "229");
    let port: u16 = reply.split('|').nth(3).unwrap().parse().unwrap();
    let mut data = TcpStream::connect((passes_on, port)).unwrap();
    client.expect("STOR kept", "150");
    data.write_all(&noise(1, 1 << 20)).unwrap();
    let mut killed = site.nodes[0].take().unwrap();
    killed.child.kill().unwrap();
    killed.child.wait().unwrap();
    let reply = client.line();
    assert!(reply.starts_with('4'), "{reply}");
    assert_eq!(fs::read(&file).unwrap(), b"old");
}

#[test]
fn lftp_mirrors_by_ftps_where_data_connections_come_to_any_node() {
    let Some(lftp) = program("lftp", "lftp") else { return };
    let Some(site) = Site::new(Balancer::Naming, HANDED_ON) else { return };
    let tree = site.own.0.join("tree");
    fs::create_dir_all(tree.join("d")).unwrap();
    for number in 0..30 {
        let content = noise(number, 40_000 * (number as usize % 5));
        fs::write(tree.join(if number % 2 == 0 { "d" } else { "." }).join(number.to_string()), content)
            .unwrap();
    }
    let script = format!(
        "set cmd:fail-exit yes; set net:max-retries 1; set net:timeout 30; set ftp:ssl-force yes; \
         set ftp:ssl-protect-data yes; set ssl:verify-certificate no; set mirror:parallel-transfer-count 4; \
         open -u free,password {}; mirror -R tree up; mirror up back",
        site.front().url("")
    );
    let done =
        Command::new(lftp).args(["-c", &script]).current_dir(&site.own.0).env("HOME", &site.own.0).output();
    let done = done.unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    for number in 0..30 {
        let path = PathBuf::from(if number % 2 == 0 { "d" } else { "." }).join(number.to_string());
        assert!(
            fs::read(tree.join(&path)).unwrap() == fs::read(site.own.0.join("back").join(&path)).unwrap()
        );
    }
}

#[test]
fn a_node_that_dies_or_comes_is_followed_within_seconds() {
    let Some(mut site) = Site::new(Balancer::Naming, HANDED_ON) else { return };
    assert_eq!(site.front().rounds(6), [""; 0]);
    let mut dead = site.nodes[2].take().unwrap();
    dead.child.kill().unwrap();
    site.waits_until("UP", 2);
    assert_eq!(site.front().rounds(12), [""; 0], "the others go on at once");
    let before = site.shares()[2];
    site.nodes[2] = Some(start(&site.database, &site.files, site.balancer, site.addresses, 2, HANDED_ON));
    // HAProxy takes five seconds to believe it; the nodes follow it within two.
    site.waits_until("UP", 3);
    assert_eq!(site.front().rounds(18), [""; 0], "and with the one that came");
    assert!(site.shares()[2] > before, "it gets some");
}

/// What an outsider says of itself, at a node's passive port or at its data address, is not believed; and the session that it
/// was about goes on.
#[test]
fn an_outsider_cannot_pass_for_the_client_of_a_session() {
    let Some(site) = Site::new(Balancer::Naming, HANDED_ON) else { return };
    let mut session = super::Client::log_in(&format!("{}:2121", site.addresses[0]), "free").unwrap();
    session.expect("TYPE I", "200");
    fs::write(site.files.0.join("f"), b"content").unwrap();
    let reply = session.expect("EPSV", "229");
    let port: u16 = reply.split('|').nth(3).unwrap().parse().unwrap();
    let header = format!("PROXY TCP4 127.0.0.1 {} 1 {port}\r\n", site.addresses[0]);
    let doors = site.database.run("SELECT address FROM millrace_cluster.data_route");
    let mut doors: Vec<SocketAddr> = doors.lines().map(|line| line.parse().unwrap()).collect();
    assert_eq!(doors.len(), 3);
    // At the node of the session, strangers wait until its transfer begins, as without a cluster.
    let owner = usize::from((port - FIRST_PORT) / PORTS);
    let others = site.addresses[1..].iter().enumerate().filter(|(number, _)| *number != owner);
    doors.extend(others.map(|(_, node)| SocketAddr::new((*node).into(), port)));
    for (number, door) in doors.into_iter().enumerate() {
        let mut outsider = connect_from(Ipv4Addr::new(127, 0, 0, 66), door);
        outsider.set_read_timeout(Some(PATIENCE)).unwrap();
        let _ = outsider.write_all(&[header.as_bytes(), &[7; 32]].concat());
        let mut said = Vec::new();
        match outsider.read_to_end(&mut said) {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
            other => panic!("{door}: {other:?}"),
        }
        // A data address says what its nodes are to seal, and then nothing.
        assert!(said.is_empty() || number < 3 && said.len() <= 16, "{door}: {said:?}");
    }
    let mut data = TcpStream::connect((site.addresses[0], port)).unwrap();
    session.expect("RETR f", "150");
    let mut content = String::new();
    data.read_to_string(&mut content).unwrap();
    assert_eq!(content, "content");
    assert!(session.line().starts_with("226"));
}

fn connect_from(from: Ipv4Addr, to: SocketAddr) -> TcpStream {
    use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    bind(&socket, &SocketAddr::new(from.into(), 0)).unwrap();
    connect(&socket, &to).unwrap();
    TcpStream::from(socket)
}

/// A node that ends lets transfers of other nodes' sessions that it hands on go to their end.
#[test]
fn a_node_that_drains_ends_behind_what_it_hands_on() {
    let Some(mut site) = Site::new(Balancer::Naming, HANDED_ON) else { return };
    let mut relays = site.nodes[0].take().unwrap();
    fs::File::create(site.files.0.join("big")).unwrap().set_len(64 << 20).unwrap();
    // Directly at the second node, and by the first.
    let mut session = super::Client::log_in(&format!("{}:2121", site.addresses[2]), "free").unwrap();
    session.expect("TYPE I", "200");
    let reply = session.expect("EPSV", "229");
    let port: u16 = reply.split('|').nth(3).unwrap().parse().unwrap();
    let mut data = TcpStream::connect((site.addresses[1], port)).unwrap();
    session.expect("RETR big", "150");
    data.read_exact(&mut [0]).unwrap();
    relays.ctl(&["drain"]);
    eventually("it hands on nothing new", || TcpStream::connect((site.addresses[1], port)).is_err());
    assert!(relays.child.try_wait().unwrap().is_none(), "it has not ended");
    assert_eq!(std::io::copy(&mut data, &mut std::io::sink()).unwrap(), (64 << 20) - 1);
    drop(data);
    assert!(session.line().starts_with("226"));
    let begin = Instant::now();
    assert!(relays.child.wait().unwrap().success());
    assert!(begin.elapsed() < Duration::from_secs(20));
}
