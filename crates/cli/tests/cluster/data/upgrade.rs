//! Hot upgrades of the two nodes that a data connection passes, while it runs.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use super::{Balancer, HANDED_ON, Site, noise};
use crate::{Client, Node};

/// Of which node the sessions are, and which one hands on their data connections.
const OWNER: usize = 1;
const RELAY: usize = 0;

/// How long the old process lets sessions go on, and a second.
const GRACE: Duration = Duration::from_secs(4);

/// More than all buffers on the way hold.
const CHUNKS: usize = 48;

/// A node whose process was relieved by another one, which ends with this.
struct Upgraded<'a>(&'a Node);

impl<'a> Upgraded<'a> {
    fn new(node: &'a Node) -> Self {
        let said = node.ctl(&["--json", "upgrade"]);
        assert!(said.contains("\"pid\""), "{said}{}", node.log());
        Self(node)
    }
}

impl Drop for Upgraded<'_> {
    fn drop(&mut self) {
        self.0.ctl(&["stop"]);
    }
}

impl Site {
    fn node(&self, number: usize) -> &Node {
        self.nodes[number].as_ref().unwrap()
    }

    /// A session at one node, whose data connections another one hands on.
    fn session(&self, owner: usize, relay: usize) -> Session {
        Session::new(self.addresses, owner, relay)
    }
}

struct Session {
    client: Client,
    relay: String,
}

impl Session {
    fn new(addresses: [Ipv4Addr; 4], owner: usize, relay: usize) -> Self {
        let [owner, relay] = [owner, relay].map(|number| addresses[1 + number].to_string());
        let mut client = Client::log_in(&format!("{owner}:2121"), "free").unwrap();
        client.expect("TYPE I", "200");
        Self { client, relay }
    }

    fn begin(&mut self, command: &str) -> TcpStream {
        let reply = self.client.expect("EPSV", "229");
        let port: u16 = reply.split('|').nth(3).unwrap().parse().unwrap();
        let data =
            TcpStream::connect((&self.relay[..], port)).unwrap_or_else(|error| panic!("{command}: {error}"));
        data.set_read_timeout(Some(crate::PATIENCE)).unwrap();
        self.client.expect(command, "150");
        data
    }

    #[track_caller]
    fn is_told(&mut self, code: &str) {
        let reply = self.client.line();
        assert!(reply.starts_with(code), "{reply}");
    }

    #[track_caller]
    fn fetches(&mut self, name: &str, content: &[u8]) {
        let (mut data, mut received) = (self.begin(&format!("RETR {name}")), Vec::new());
        data.read_to_end(&mut received).unwrap();
        assert!(received == content, "{} bytes", received.len());
        self.is_told("226");
    }
}

fn transfers_go_on_when_it_is_upgraded(number: usize) {
    let Some(site) = Site::new(Balancer::Silent, HANDED_ON) else { return };
    let content = noise(7, 1 << 20).repeat(CHUNKS);
    fs::write(site.files.0.join("big"), &content).unwrap();
    fs::write(site.files.0.join("small"), "content").unwrap();
    let [mut downloads, mut uploads] = [(); 2].map(|()| site.session(OWNER, RELAY));
    let mut down = downloads.begin("RETR big");
    let mut received = vec![0; 1];
    down.read_exact(&mut received).unwrap();
    let mut up = uploads.begin("STOR up");
    let (first, rest) = content.split_at(content.len() / 2);
    up.write_all(first).unwrap();
    let is_over = AtomicBool::new(false);
    let _upgraded = thread::scope(|scope| {
        let clients = [(OWNER, RELAY), (RELAY, OWNER)].map(|(owner, relay)| {
            let (addresses, is_over) = (site.addresses, &is_over);
            scope.spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    Session::new(addresses, owner, relay).fetches("small", b"content");
                }
            })
        });
        let upgraded = Upgraded::new(site.node(number));
        // Until the old process has no time left but for transfers.
        thread::sleep(GRACE);
        is_over.store(true, Ordering::Relaxed);
        for client in clients {
            client.join().expect("no connection fails, and none is tried twice");
        }
        upgraded
    });
    down.read_to_end(&mut received).unwrap();
    assert!(received == content, "{} bytes", received.len());
    downloads.is_told("226");
    up.write_all(rest).unwrap();
    up.shutdown(Shutdown::Write).unwrap();
    uploads.is_told("226");
    assert!(fs::read(site.files.0.join("up")).unwrap() == content);
}

#[test]
fn transfers_go_on_when_the_node_that_hands_them_on_is_upgraded() {
    transfers_go_on_when_it_is_upgraded(RELAY);
}

#[test]
fn transfers_go_on_when_the_node_of_their_sessions_is_upgraded() {
    transfers_go_on_when_it_is_upgraded(OWNER);
}

/// The old process is told to end, which gives what it hands on `grace`.
#[test]
fn transfers_fail_at_both_ends_when_the_old_process_that_hands_them_on_is_ended() {
    let Some(site) = Site::new(Balancer::Silent, HANDED_ON) else { return };
    fs::write(site.files.0.join("big"), noise(7, 1 << 20).repeat(CHUNKS)).unwrap();
    fs::write(site.files.0.join("kept"), "old").unwrap();
    let [mut downloads, mut uploads] = [(); 2].map(|()| site.session(OWNER, RELAY));
    let mut down = downloads.begin("RETR big");
    down.read_exact(&mut [0]).unwrap();
    let mut up = uploads.begin("STOR kept");
    up.write_all(&noise(1, 1 << 20)).unwrap();
    let _upgraded = Upgraded::new(site.node(RELAY));
    site.node(RELAY).signal("-TERM");
    uploads.is_told("4");
    assert_eq!(fs::read(site.files.0.join("kept")).unwrap(), b"old");
    let end = std::io::copy(&mut down, &mut std::io::sink());
    assert_eq!(end.unwrap_err().kind(), ErrorKind::ConnectionReset);
    downloads.is_told("4");
    site.session(OWNER, RELAY).fetches("kept", b"old");
}
