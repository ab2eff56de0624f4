//! The bodies of the fuzz targets, one function each: what must hold of any input.
//!
//! `fuzz/` runs them under libFuzzer for as long as one likes; `fuzz_smoke.rs` runs them briefly with every
//! `cargo test`.
#![allow(dead_code)]

use std::net::SocketAddr;
use std::sync::LazyLock;

use millrace_net::tls::{Acceptor, BUFFER, Connector, Hello, Plan, Tls, Trust, Versions, self_signed};
use millrace_net::{Wire, proxy};

/// The first bytes of a connection: parsing them never panics, and a hello is complete at its last byte only.
pub(crate) fn hello(input: &[u8]) {
    let _ = Hello::is_partial(input);
    let Some(hello) = Hello::peek(input) else { return };
    let _ = (hello.to_string(), hello.tickets.len());
    if let &[22, _, _, high, low, ..] = input {
        let record = 5 + usize::from(u16::from_be_bytes([high, low]));
        assert!(Hello::is_partial(&input[..record - 1]) && !Hello::is_partial(&input[..record]));
    }
}

/// What a proxy, or another node, says before anything else: a header is whole at its last byte only, what follows it
/// changes nothing, and its addresses are written and read again as the same.
pub(crate) fn proxy_header(input: &[u8]) {
    let Ok(Some(header)) = proxy::parse(input) else { return };
    assert!(header.length <= input.len());
    let (own, _) = input.split_at(header.length);
    assert_eq!(proxy::parse(own), Ok(Some(header)));
    for end in 0..own.len() {
        assert_eq!(proxy::parse(&own[..end]), Ok(None), "the first {end} bytes");
    }
    if let Some(ends) = header.ends {
        let written = proxy::header(&ends);
        let again = proxy::parse(&written).unwrap().unwrap();
        let is_same = |one: SocketAddr, other: SocketAddr| {
            (one.ip().to_canonical(), one.port()) == (other.ip().to_canonical(), other.port())
        };
        let same = again
            .ends
            .is_some_and(|again| is_same(again.client, ends.client) && is_same(again.server, ends.server));
        assert!(same && again.length == written.len(), "{ends:?}: {again:?}");
    }
}

/// A handshake and commands under TLS, on a wire that cuts the client's bytes anywhere and may change them.
///
/// However they are cut, the server reads what the client said, all of it and in order; of bytes that were changed,
/// put in or left out it reads what came before, and never anything else. Nothing that comes makes it keep much.
pub(crate) fn boundary(input: &[u8]) {
    let mut wire = Boundary::new(input.first().copied().unwrap_or(0));
    for step in input.get(1..).unwrap_or(&[]).chunks(2) {
        let &[what, how] = step else { break };
        if !wire.step(what, how) {
            break;
        }
    }
    wire.settle();
}

static SERVER: LazyLock<Acceptor> = LazyLock::new(|| {
    let folder = std::env::temp_dir().join(format!("millrace-fuzz-{}", std::process::id()));
    let pair = self_signed(&folder, &["localhost".to_owned()]).expect("a folder for a certificate");
    let acceptor = Acceptor::new(&Plan { identities: vec![pair], ..Plan::default() });
    let _ = std::fs::remove_dir_all(&folder);
    acceptor.expect("a certificate that was just made")
});

/// Changes of keys that a connection bears; with one more its peer is taken for an attacker (by rustls).
const KEY_UPDATES: usize = 32;

/// A client, a server, and the bytes in flight between them.
struct Boundary {
    client: Tls,
    server: Tls,
    /// From the client, and not yet there.
    outgoing: Vec<u8>,
    buffer: Vec<u8>,
    said: Vec<u8>,
    heard: Vec<u8>,
    /// The wire has changed something.
    is_mangled: bool,
    /// How many times the client may still change its keys.
    key_updates: usize,
    /// The client has said that this was all.
    is_closed: bool,
    /// One side has given up.
    is_over: bool,
}

impl Boundary {
    fn new(kind: u8) -> Self {
        let versions = [Versions::All, Versions::Tls12, Versions::Tls13][usize::from(kind) % 3];
        let connector = Connector::new(Trust::Anybody, versions, None).expect("settings that are good");
        let host = SERVER.host();
        let host = if kind & 0x80 == 0 { host } else { host.requiring_resumption() };
        let mut boundary = Self {
            client: connector.connect("localhost").expect("a name that is one"),
            server: host.control(None).expect("settings that are good"),
            outgoing: Vec::new(),
            buffer: vec![0; BUFFER],
            said: Vec::new(),
            heard: Vec::new(),
            is_mangled: false,
            key_updates: KEY_UPDATES,
            is_closed: false,
            is_over: false,
        };
        boundary.bring_to_client(&[]);
        boundary
    }

    /// Takes one step. Returns true if another may follow.
    fn step(&mut self, what: u8, how: u8) -> bool {
        let at = usize::from(how) % self.outgoing.len().max(1);
        match what % 8 {
            0 => self.bring_to_server(1 + usize::from(how)),
            1 => self.bring_to_server(usize::from(how) * 64),
            2 => self.say(how),
            3 if self.client.version() == Some("TLS 1.3") && self.may_speak() && self.key_updates > 0 => {
                self.key_updates -= 1;
                self.client_says(|client, out| client.update_keys(out).is_ok());
            }
            4 if self.may_speak() => {
                self.client_says(|client, out| client.close(out).is_ok());
                self.is_closed = true;
            }
            5 if !self.outgoing.is_empty() => {
                self.outgoing[at] ^= 1 << (what >> 5);
                self.is_mangled = true;
            }
            6 if !self.outgoing.is_empty() => {
                self.outgoing.remove(at);
                self.is_mangled = true;
            }
            7 => {
                self.outgoing.splice(at.min(self.outgoing.len())..at.min(self.outgoing.len()), [how; 3]);
                self.is_mangled = true;
            }
            _ => {}
        }
        !self.is_over
    }

    /// A command, in as many records as it has parts.
    fn say(&mut self, how: u8) {
        if !self.may_speak() {
            return;
        }
        let command = format!("STOR {how}{}\r\n", "x".repeat(usize::from(how) * 3));
        for part in command.as_bytes().chunks(1 + usize::from(how >> 4) * 16) {
            self.said.extend_from_slice(part);
            self.client_says(|client, out| client.seal(part, out).is_ok());
        }
    }

    fn may_speak(&self) -> bool {
        !self.client.is_handshaking() && !self.is_closed
    }

    fn client_says(&mut self, say: impl FnOnce(&mut Tls, &mut Wire) -> bool) {
        let mut out = Wire::default();
        assert!(say(&mut self.client, &mut out), "the client can say it");
        self.outgoing.extend_from_slice(out.pending());
    }

    /// Brings the client's next bytes, and what the server answers back to it.
    fn bring_to_server(&mut self, count: usize) {
        let piece: Vec<u8> = self.outgoing.drain(..count.min(self.outgoing.len())).collect();
        if piece.is_empty() {
            return;
        }
        let mut out = Wire::default();
        let begun = self.server.begin(&mut self.buffer);
        assert!(begun <= 64 * 1024 + 256, "{begun} bytes are kept");
        let wire = &mut self.buffer[..begun + piece.len()];
        wire[begun..].copy_from_slice(&piece);
        let heard = &mut self.heard;
        let done = self.server.receive(wire, &mut out, &mut |bytes| heard.extend_from_slice(bytes));
        assert!(self.said.starts_with(&self.heard), "the server has read what was not said");
        if let Err(fault) = done {
            assert!(self.is_mangled, "nothing was changed, and yet: {fault}");
            self.is_over = true;
        }
        self.bring_to_client(out.pending());
    }

    fn bring_to_client(&mut self, bytes: &[u8]) {
        let mut out = Wire::default();
        let begun = self.client.begin(&mut self.buffer);
        let wire = &mut self.buffer[..begun + bytes.len()];
        wire[begun..].copy_from_slice(bytes);
        if let Err(fault) = self.client.receive(wire, &mut out, &mut |_| {}) {
            assert!(self.is_mangled, "nothing was changed, and yet: {fault}");
            self.is_over = true;
        }
        self.outgoing.extend_from_slice(out.pending());
    }

    /// Brings the rest, and looks whether all is as it was said.
    fn settle(&mut self) {
        while !self.outgoing.is_empty() && !self.is_over {
            self.bring_to_server(4096);
        }
        if !self.is_mangled {
            assert!(!self.server.is_handshaking(), "the handshake is not over");
            assert!(self.heard == self.said, "{} of {} bytes", self.heard.len(), self.said.len());
            assert_eq!(self.server.has_ended(), self.is_closed);
        }
        let is_whole = self.heard == self.said && self.is_closed;
        // Before there are keys, any attacker may end the connection.
        let may_end = is_whole || self.server.is_handshaking();
        assert!(!self.server.has_ended() || may_end, "the end was not announced");
    }
}
