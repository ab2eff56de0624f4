//! How much one server, one address and one process may have.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use millrace_server::limits::Limit;
use millrace_storage::MemoryStorage;

use crate::kit::{Client, config, eventually, serve, serve_with};

#[test]
fn one_session_too_many_is_told_and_place_is_made_by_one_that_ends() {
    let mut config = config(Arc::new(MemoryStorage::new()));
    config.sessions = Limit::of(3);
    let served = serve_with(config);
    let mut clients: Vec<_> = (0..3).map(|_| served.login()).collect();
    let mut refused = Client::connect(served.address);
    assert!(refused.expect_reply(421).text.contains("Too many sessions on this server"));
    refused.expect_end();
    clients.iter_mut().for_each(Client::expect_alive);
    clients.pop();
    eventually("there is place again", || {
        Client::connect(served.address).next_reply().is_some_and(|reply| reply.code == 220)
    });
}

/// 2021-30047, 2021-47865: one address must not be able to take every place.
#[test]
fn an_address_has_its_own_limit() {
    let mut config = config(Arc::new(MemoryStorage::new()));
    config.sessions_per_address = Some(Limit::of(2));
    let served = serve_with(config);
    let mut clients: Vec<_> = (0..2).map(|_| served.connect()).collect();
    Client::connect(served.address).expect_reply(421);
    Client::connect_from("127.0.0.2", served.address).expect_reply(220);
    clients.pop();
    eventually("there is place again", || {
        Client::connect(served.address).next_reply().is_some_and(|reply| reply.code == 220)
    });
}

/// A network that has many addresses must not be able to take every place either.
#[test]
fn a_network_has_its_own_limit() {
    let mut config = config(Arc::new(MemoryStorage::new()));
    config.sessions_per_network = Limit::of(2);
    let served = serve_with(config);
    let from = |address: &str| Client::connect_from(address, served.address);
    let mut clients = vec![from("127.0.0.2"), from("127.0.0.3")];
    clients.iter_mut().for_each(|client| drop(client.expect_reply(220)));
    let told = from("127.0.0.4").expect_reply(421);
    assert!(told.text.contains("Too many sessions from your network"), "{}", told.text);
    from("127.0.1.2").expect_reply(220);
    clients.pop();
    eventually("there is place again", || {
        from("127.0.0.5").next_reply().is_some_and(|reply| reply.code == 220)
    });
}

#[test]
fn a_thousand_refused_clients_cost_nothing() {
    let mut config = config(Arc::new(MemoryStorage::new()));
    config.sessions = Limit::of(1);
    let served = serve_with(config);
    let mut client = served.login();
    for _ in 0..1_000 {
        Client::connect(served.address).expect_reply(421);
    }
    client.expect_alive();
}

/// The server of the next test, in a process of its own with few descriptors.
#[test]
#[ignore = "started by the_descriptors_run_out"]
fn child_with_few_descriptors() {
    use rustix::process::{Resource, Rlimit, setrlimit};
    let storage = MemoryStorage::new();
    storage.insert("/f", vec![b'x'; 1_000_000]);
    let most = std::env::var("MILLRACE_DESCRIPTORS").unwrap().parse().unwrap();
    setrlimit(Resource::Nofile, Rlimit { current: Some(most), maximum: Some(most) }).unwrap();
    let mut config = config(Arc::new(storage));
    config.connect_timeout = Duration::from_millis(500);
    config.passive_ports = crate::kit::free_ports(100);
    let served = serve_with(config);
    println!("ready {}", served.address);
    // Until the test closes our input.
    let _ = std::io::stdin().read(&mut [0]);
}

struct Process {
    child: Child,
    address: SocketAddr,
}

impl Process {
    fn start(descriptors: u32) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "limits::child_with_few_descriptors", "--ignored", "--nocapture"])
            .env("MILLRACE_DESCRIPTORS", descriptors.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.as_mut().unwrap()).lines();
        let ready = lines.map(Result::unwrap).find_map(|line| Some(line.split_once("ready ")?.1.to_owned()));
        Self { address: ready.expect("the server starts").parse().unwrap(), child }
    }

    /// Processor time so far, in ticks of 10 ms.
    fn ticks(&self) -> u64 {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap();
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
        fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// faults.md 9: pyftpdlib dies of it, ProFTPD spins.
#[test]
fn the_descriptors_run_out() {
    let process = Process::start(64);
    let mut clients = Vec::new();
    let refusal = loop {
        let mut client = Client::connect(process.address);
        let reply = client.reply();
        match reply.code {
            220 => {
                client.log_in("u", "p");
                clients.push(client);
            }
            _ => break reply,
        }
        assert!(clients.len() < 64);
    };
    assert_eq!(refusal.code, 421);
    assert!(clients.len() >= 16, "only {} sessions", clients.len());
    // Those that are there go on, with transfers.
    for client in &mut clients {
        assert_eq!(client.fetch("RETR f").len(), 1_000_000);
    }
    // Now all of them at once hold data connections, of which some cannot be had.
    let mut waiting = Vec::new();
    for client in &mut clients {
        let reply = client.command("PASV");
        if reply.code == 227 {
            client.send("RETR f\r\n");
            waiting.push(client.reply().code);
        } else {
            // There are ports enough. (How many sessions come to this depends on how soon the first ones are given up.)
            assert!(reply.code == 425 && reply.text.contains("no descriptor"), "{reply:?}");
        }
    }
    assert!(waiting.contains(&150));
    // All other clients still get a reply, and nothing spins meanwhile.
    let more: Vec<TcpStream> = (0..100).map(|_| TcpStream::connect(process.address).unwrap()).collect();
    let before = process.ticks();
    std::thread::sleep(Duration::from_secs(1));
    let spent = process.ticks() - before;
    assert!(spent < 20, "{spent} ticks of 100 while there was nothing to do");
    drop((more, waiting, clients));
    eventually("all is well again", || {
        let mut client = Client::connect(process.address);
        client.next_reply().is_some_and(|reply| reply.code == 220) && {
            client.log_in("u", "p");
            client.try_fetch("RETR f").0.len() == 1_000_000
        }
    });
}

/// A process that is at its limit in truth: the sessions' own bound does not see what others opened.
#[test]
fn without_a_single_descriptor_the_next_client_is_told() {
    let process = Process::start(40);
    let mut clients: Vec<Client> = Vec::new();
    let mut refusals = 0;
    for _ in 0..60 {
        let mut client = Client::connect(process.address);
        match client.next_reply() {
            // What a login or a thread held for a moment may be there again for the next.
            Some(reply) if reply.code == 421 => refusals += 1,
            Some(_) => {
                client.log_in("u", "p");
                // Each session also holds a listener.
                let _ = client.command("PASV");
                clients.push(client);
            }
            None => {}
        }
        if refusals == 3 {
            break;
        }
    }
    assert_eq!(refusals, 3, "with {} sessions", clients.len());
    let before = process.ticks();
    std::thread::sleep(Duration::from_millis(500));
    assert!(process.ticks() - before < 10, "the server spins");
    clients.iter_mut().for_each(Client::expect_alive);
}

#[test]
fn silent_connections_block_no_other_client() {
    let served = serve(Arc::new(MemoryStorage::new()));
    let silent: Vec<_> = (0..200).map(|_| TcpStream::connect(served.address).unwrap()).collect();
    let mut client = served.login();
    client.expect_alive();
    for mut stream in silent {
        stream.write_all(b"NO").unwrap();
    }
    client.expect_alive();
}
