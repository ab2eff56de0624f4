//! Both sides of TLS in one thread, over real sockets.

use std::io::{self, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use super::*;
use crate::{Wire, stream};

/// A folder with a self-signed certificate, which goes with the test.
pub(super) struct Folder(pub(super) PathBuf);

impl Folder {
    pub(super) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        Self(std::env::temp_dir().join(format!("millrace-tls-{}-{number}", std::process::id())))
    }

    fn pair(&self, folder: &str, names: &[&str]) -> KeyPair {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        self_signed(&self.0.join(folder), &names).unwrap()
    }

    pub(super) fn acceptor(&self) -> Acceptor {
        let identities = vec![self.pair("own", &["localhost", "127.0.0.1"])];
        Acceptor::new(&Plan { identities, ..Plan::default() }).unwrap()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn connector(versions: Versions) -> Connector {
    Connector::new(Trust::Anybody, versions, None).unwrap()
}

/// Two ends of a connection.
struct Pair {
    client: (TcpStream, Channel),
    server: (TcpStream, Channel),
    buffer: Vec<u8>,
}

impl Pair {
    fn new(client: Tls, server: Tls) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let peer = listener.accept().unwrap().0;
        for socket in [&socket, &peer] {
            socket.set_nonblocking(true).unwrap();
            socket.set_nodelay(true).unwrap();
        }
        let (client, server) = ((socket, Channel::new(client)), (peer, Channel::new(server)));
        Self { client, server, buffer: vec![0; BUFFER] }
    }

    fn shake_hands(&mut self) -> io::Result<()> {
        loop {
            let client = self.client.1.handshake(&self.client.0, &mut self.buffer)?;
            let server = self.server.1.handshake(&self.server.0, &mut self.buffer)?;
            if client && server {
                return Ok(());
            }
        }
    }

    /// A pair whose handshake went well.
    fn met(client: Tls, server: Tls) -> Self {
        let mut pair = Self::new(client, server);
        pair.shake_hands().unwrap();
        pair
    }

    /// Sends another ticket to the client.
    fn replenish(&mut self) {
        let mut wire = Wire::default();
        self.server.1.tls_mut().replenish(&mut wire).unwrap();
        while !wire.is_empty() {
            let count = stream::write(&self.server.0, wire.pending()).unwrap();
            wire.consume(count);
        }
        self.talk();
    }

    /// Sends from client to server and back, so that tickets arrive.
    fn talk(&mut self) {
        assert_eq!(carry(&mut self.client, &mut self.server, &mut self.buffer, b"hello"), b"hello");
        assert_eq!(carry(&mut self.server, &mut self.client, &mut self.buffer, b"world"), b"world");
    }
}

type End = (TcpStream, Channel);

fn carry(from: &mut End, to: &mut End, buffer: &mut [u8], content: &[u8]) -> Vec<u8> {
    let (mut sent, mut received) = (0, Vec::new());
    while received.len() < content.len() {
        match from.1.write(&from.0, &content[sent..]) {
            Ok(count) => sent += count,
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
        }
        match to.1.read(&to.0, buffer, &mut |bytes| received.extend_from_slice(bytes)) {
            Ok(heard) => assert!(matches!(heard, Heard::Bytes { .. }), "{heard:?}"),
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock, "{error}"),
        }
    }
    received
}

fn hear(end: &mut End, buffer: &mut [u8]) -> io::Result<(Heard, Vec<u8>)> {
    let mut received = Vec::new();
    loop {
        match end.1.read(&end.0, buffer, &mut |bytes| received.extend_from_slice(bytes)) {
            Ok(Heard::Bytes { .. }) => {}
            Ok(heard) => return Ok((heard, received)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
}

pub(super) fn noise(length: usize) -> Vec<u8> {
    (0..length as u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect()
}

#[test]
fn bytes_arrive_whole_in_both_directions_and_the_end_is_told() {
    let folder = Folder::new();
    let acceptor = folder.acceptor();
    for versions in [Versions::Tls12, Versions::Tls13] {
        let client = connector(versions).connect("localhost").unwrap();
        let mut pair = Pair::met(client, acceptor.host().control(None).unwrap());
        let content = noise(3_000_000);
        assert!(carry(&mut pair.client, &mut pair.server, &mut pair.buffer, &content) == content);
        assert!(carry(&mut pair.server, &mut pair.client, &mut pair.buffer, &content) == content);
        pair.server.1.close(&pair.server.0).unwrap();
        assert_eq!(hear(&mut pair.client, &mut pair.buffer).unwrap(), (Heard::End, vec![]));
        // Half a connection goes on.
        let more = carry(&mut pair.client, &mut pair.server, &mut pair.buffer, b"still here");
        assert_eq!(more, b"still here");
    }
}

#[test]
fn a_stream_without_a_goodbye_was_cut() {
    let folder = Folder::new();
    let acceptor = folder.acceptor();
    let client = connector(Versions::All).connect("localhost").unwrap();
    let mut pair = Pair::met(client, acceptor.host().control(None).unwrap());
    pair.client.1.write(&pair.client.0, b"the beginning").unwrap();
    pair.client.0.shutdown(std::net::Shutdown::Write).unwrap();
    let (heard, received) = hear(&mut pair.server, &mut pair.buffer).unwrap();
    assert_eq!((heard, &received[..]), (Heard::Cut { within_record: false }, &b"the beginning"[..]));
}

#[test]
fn keys_may_change_in_the_middle() {
    let folder = Folder::new();
    let acceptor = folder.acceptor();
    let client = connector(Versions::Tls13).connect("localhost").unwrap();
    let mut pair = Pair::met(client, acceptor.host().control(None).unwrap());
    for _ in 0..20 {
        pair.client.1.update_keys(&pair.client.0).unwrap();
        pair.talk();
        pair.server.1.update_keys(&pair.server.0).unwrap();
        pair.talk();
    }
}

#[test]
fn a_data_connection_resumes_with_its_own_ticket_again_and_again() {
    let folder = Folder::new();
    let acceptor = folder.acceptor();
    for versions in [Versions::Tls12, Versions::Tls13] {
        let (connector, host) = (connector(versions), acceptor.host());
        let mut control = Pair::met(connector.connect("localhost").unwrap(), host.control(None).unwrap());
        control.talk();
        assert!(!control.server.1.tls().is_resumed());
        // rustls as a client uses each ticket of TLS 1.3 once.
        for round in 0..40 {
            let mut data = Pair::met(connector.connect("localhost").unwrap(), host.data().unwrap());
            data.talk();
            assert!(data.server.1.tls().is_resumed(), "{versions:?}, round {round}");
            assert!(!host.take_foreign());
            control.replenish();
        }
    }
}

#[test]
fn the_ticket_of_another_connection_is_not_resumed_and_is_reported() {
    let folder = Folder::new();
    let acceptor = folder.acceptor();
    for versions in [Versions::Tls12, Versions::Tls13] {
        let (connector, host, other) = (connector(versions), acceptor.host(), acceptor.host());
        Pair::met(connector.connect("localhost").unwrap(), host.control(None).unwrap()).talk();
        let mut data = Pair::met(connector.connect("localhost").unwrap(), other.data().unwrap());
        data.talk();
        assert!(!data.server.1.tls().is_resumed());
        assert!(other.take_foreign());
        assert!(!host.take_foreign());
    }
}

#[test]
fn a_data_connection_gives_out_no_tickets() {
    let folder = Folder::new();
    let acceptor = folder.acceptor();
    let (connector, host) = (connector(Versions::Tls13), acceptor.host());
    for _ in 0..3 {
        let mut data = Pair::met(connector.connect("localhost").unwrap(), host.data().unwrap());
        data.talk();
        assert!(!data.server.1.tls().is_resumed());
    }
}

#[test]
fn a_client_that_names_no_server_gets_the_certificate_of_the_address() {
    let folder = Folder::new();
    let mut plan = Plan { identities: vec![folder.pair("one", &["one.example"])], ..Plan::default() };
    plan.add(folder.pair("two", &["two.example"]), ["192.0.2.7".parse().unwrap()]);
    let acceptor = Acceptor::new(&plan).unwrap();
    let [one, two] = &acceptor.fingerprints()[..] else { panic!("two certificates") };
    for (sni, local, expected) in [
        ("192.0.2.7", "192.0.2.7:21", two),
        ("192.0.2.7", "192.0.2.8:21", one),
        ("one.example", "192.0.2.7:21", one),
        ("two.example", "192.0.2.8:21", two),
        ("no.example", "192.0.2.7:21", two),
    ] {
        let client = connector(Versions::All).connect(sni).unwrap();
        let server = acceptor.host().reached_at(local.parse().unwrap()).control(None).unwrap();
        let pair = Pair::met(client, server);
        assert_eq!(fingerprint(pair.client.1.tls().peer_certificate().unwrap()), *expected, "{sni} {local}");
    }
}

#[test]
fn the_certificate_is_chosen_by_the_name_that_is_asked_for() {
    let folder = Folder::new();
    let identities = vec![folder.pair("one", &["one.example"]), folder.pair("two", &["*.two.example"])];
    let acceptor = Acceptor::new(&Plan { identities, ..Plan::default() }).unwrap();
    let [one, two] = &acceptor.fingerprints()[..] else { panic!("two certificates") };
    let shown = |sni: &str, host: Option<&str>| {
        let client = connector(Versions::All).connect(sni).unwrap();
        let pair = Pair::met(client, acceptor.host().control(host).unwrap());
        fingerprint(pair.client.1.tls().peer_certificate().unwrap())
    };
    assert_eq!(shown("one.example", None), *one);
    assert_eq!(shown("ftp.two.example", None), *two);
    assert_eq!(shown("else.example", None), *one, "the first is for everybody else");
    // An address is no name that SNI could carry.
    assert_eq!(shown("127.0.0.1", Some("ftp.two.example")), *two);
    assert_eq!(shown("one.example", Some("ftp.two.example")), *one, "SNI goes before HOST");
    assert!(acceptor.serves("FTP.two.example") && !acceptor.serves("two.example"));
}

#[test]
fn another_protocol_is_refused() {
    let folder = Folder::new();
    let acceptor = folder.acceptor();
    let named = |protocols: &[&[u8]]| {
        let client = connector(Versions::All).with_protocols(protocols).connect("localhost").unwrap();
        Pair::new(client, acceptor.host().control(None).unwrap()).shake_hands()
    };
    named(&[b"ftp"]).unwrap();
    assert_eq!(named(&[b"http/1.1"]).unwrap_err().kind(), io::ErrorKind::InvalidData);
}

#[test]
fn a_refused_client_gets_an_alert() {
    let folder = Folder::new();
    let acceptor = folder.acceptor();
    for versions in [Versions::Tls12, Versions::Tls13] {
        let client = connector(versions).with_protocols(&[b"http/1.1"]).connect("localhost").unwrap();
        let mut pair = Pair::new(client, acceptor.host().control(None).unwrap());
        let told = loop {
            // The server's side fails, and what it had to say is on its way.
            let _ = pair.server.1.handshake(&pair.server.0, &mut pair.buffer);
            match pair.client.1.handshake(&pair.client.0, &mut pair.buffer) {
                Ok(true) => panic!("they agreed"),
                Ok(false) => {}
                Err(error) => break error.to_string(),
            }
        };
        assert!(told.contains("NoApplicationProtocol"), "{versions:?}: {told}");
    }
}

#[test]
fn bytes_that_are_not_tls_end_the_handshake() {
    let folder = Folder::new();
    let acceptor = folder.acceptor();
    let tls12_hello_only = [22, 3, 1, 0, 45, 1, 0, 0, 41, 3, 2];
    for text in [&b"USER alice\r\n"[..], b"\0\0\0\0\0\0\0\0", &tls12_hello_only] {
        let client = connector(Versions::All).connect("localhost").unwrap();
        let mut pair = Pair::new(client, acceptor.host().control(None).unwrap());
        pair.client.0.write_all(text).unwrap();
        pair.client.0.shutdown(std::net::Shutdown::Write).unwrap();
        let end = loop {
            match pair.server.1.handshake(&pair.server.0, &mut pair.buffer) {
                Ok(done) => assert!(!done),
                Err(error) => break error,
            }
        };
        assert!(matches!(end.kind(), io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof), "{end}");
    }
}

#[test]
fn a_handshake_in_single_bytes_is_a_handshake() {
    let folder = Folder::new();
    let acceptor = folder.acceptor();
    let mut server = acceptor.host().control(None).unwrap();
    let mut client = connector(Versions::All).connect("localhost").unwrap();
    let (mut to_server, mut to_client) = (Wire::default(), Wire::default());
    let mut buffer = vec![0; BUFFER];
    client.receive(&mut [], &mut to_server, &mut |_| {}).unwrap();
    let mut feed = |tls: &mut Tls, from: &mut Wire, to: &mut Wire| {
        while let Some(byte) = from.pending().first().copied() {
            from.consume(1);
            let begun = tls.begin(&mut buffer);
            buffer[begun] = byte;
            tls.receive(&mut buffer[..=begun], to, &mut |_| panic!("no data yet")).unwrap();
        }
    };
    while client.is_handshaking() || server.is_handshaking() {
        feed(&mut server, &mut to_server, &mut to_client);
        feed(&mut client, &mut to_client, &mut to_server);
    }
}

#[test]
fn a_handshake_message_without_end_is_refused() {
    let folder = Folder::new();
    let mut server = folder.acceptor().host().control(None).unwrap();
    let mut buffer = vec![0; BUFFER];
    let mut out = Wire::default();
    // A ClientHello of 16 MiB, in full records.
    let mut record = vec![22, 3, 1, 0x40, 0];
    record.resize(5 + 0x4000, 7);
    record[5..9].copy_from_slice(&[1, 0xff, 0xff, 0xff]);
    let mut refused = false;
    for _ in 0..16 {
        let begun = server.begin(&mut buffer);
        buffer[begun..begun + record.len()].copy_from_slice(&record);
        if server.receive(&mut buffer[..begun + record.len()], &mut out, &mut |_| {}).is_err() {
            refused = true;
            break;
        }
        record[5..9].copy_from_slice(&[7; 4]);
    }
    assert!(refused);
}

#[test]
fn a_folder_with_half_of_a_self_signed_pair_is_named_and_kept() {
    let folder = Folder::new();
    let pair = folder.pair("half", &["localhost"]);
    std::fs::remove_file(&pair.key).unwrap();
    let error = self_signed(&folder.0.join("half"), &["localhost".to_owned()]).unwrap_err().to_string();
    assert!(error.contains("self-signed has not both") && error.contains("move it away"), "{error}");
    assert!(pair.certificate.is_file());
}

#[test]
fn a_self_signed_certificate_is_kept() {
    let folder = Folder::new();
    let fingerprint = || folder.acceptor().fingerprints();
    assert_eq!(fingerprint(), fingerprint());
    let mode = std::os::unix::fs::MetadataExt::mode(&std::fs::metadata(folder.pair("own", &[]).key).unwrap());
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn a_reload_is_for_those_who_come_later_and_a_bad_one_changes_nothing() {
    let folder = Folder::new();
    let (old, new) = (folder.pair("old", &["localhost"]), folder.pair("new", &["localhost"]));
    let plan = |pair: &KeyPair| Plan { identities: vec![pair.clone()], ..Plan::default() };
    let acceptor = Acceptor::new(&plan(&old)).unwrap();
    let before = acceptor.fingerprints();
    let host = acceptor.host();
    acceptor.reload(&plan(&new)).unwrap();
    assert_ne!(acceptor.fingerprints(), before);
    let pair = Pair::met(connector(Versions::All).connect("localhost").unwrap(), host.data().unwrap());
    assert_eq!(fingerprint(pair.client.1.tls().peer_certificate().unwrap()), before[0]);

    let mixed = KeyPair { key: old.key, ..new };
    assert!(matches!(acceptor.reload(&plan(&mixed)), Err(LoadError::Mismatch(..))));
    assert_ne!(acceptor.fingerprints(), before);
}

#[test]
fn held_data_is_sent_with_the_next_and_does_not_pile_up() {
    let folder = Folder::new();
    for versions in [Versions::Tls12, Versions::Tls13] {
        let server = folder.acceptor().accept(&[], None).unwrap();
        let mut pair = Pair::met(connector(versions).connect("localhost").unwrap(), server);
        let (socket, channel) = pair.server;
        let mut channel = channel.settle().unwrap();
        assert_eq!(channel.write_more(&socket, b"head").unwrap(), 4);
        assert!(channel.is_holding() && channel.is_flushed(), "neither side has anything to do");
        let mut heard = Vec::<u8>::new();
        let mut hear = |bytes: &[u8]| heard.extend_from_slice(bytes);
        // Tickets, if anything.
        while pair.client.1.read(&pair.client.0, &mut pair.buffer, &mut hear).is_ok() {}
        assert_eq!(heard, b"", "nothing was sent");
        let mut body = &b", body"[..];
        let mut read = |parts: &mut [io::IoSliceMut<'_>]| io::Read::read_vectored(&mut body, parts);
        assert_eq!(channel.write_from(&socket, 6, &mut read).unwrap(), 6);
        assert!(!channel.is_holding());
        let mut end = (socket, channel);
        assert_eq!(carry(&mut end, &mut pair.client, &mut pair.buffer, b"x"), b"head, bodyx");
        // A peer that announces more forever is not waited for.
        let (socket, mut channel) = end;
        let piece = noise(16 * 1024);
        let held = (0..100).take_while(|_| channel.write_more(&socket, &piece).is_ok()).count();
        let mut heard = Vec::new();
        while let Ok(Heard::Bytes { .. }) =
            pair.client.1.read(&pair.client.0, &mut pair.buffer, &mut |bytes| heard.extend_from_slice(bytes))
        {
        }
        assert!(held > 4 && heard.len() >= 4 * piece.len(), "{held}, {}", heard.len());
    }
}

#[test]
fn a_file_that_may_not_be_read_is_said_to_be_that() {
    let error = LoadError::Unread("/etc/key.pem".into(), io::ErrorKind::PermissionDenied.into());
    let said = error.to_string();
    assert!(
        said.starts_with("/etc/key.pem: permission is denied; the user that the server runs as"),
        "{said}"
    );
    assert_eq!(error.file(), Some(std::path::Path::new("/etc/key.pem")));
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(400))]
    /// A ClientHello with bytes changed, cut and repeated, then noise, in pieces of any size.
    #[test]
    fn nothing_that_comes_makes_a_server_panic(
        changes in proptest::collection::vec((0usize..400, proptest::prelude::any::<u8>()), 0..6),
        cut in 0usize..600,
        noise in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..200),
        step in 1usize..300,
    ) {
        // The file, not the folder: statics are not dropped, and the folder would stay.
        static ACCEPTOR: std::sync::LazyLock<Acceptor> = std::sync::LazyLock::new(|| Folder::new().acceptor());
        let mut hello = Wire::default();
        let mut client = connector(Versions::All).connect("localhost").unwrap();
        client.receive(&mut [], &mut hello, &mut |_| {}).unwrap();
        let mut wire = hello.pending().to_vec();
        for (at, byte) in changes {
            let at = at % wire.len();
            wire[at] = byte;
        }
        wire.truncate(cut);
        wire.extend(noise);
        let (mut server, mut out) = (ACCEPTOR.host().control(None).unwrap(), Wire::default());
        let mut buffer = vec![0; BUFFER];
        for piece in wire.chunks(step) {
            let begun = server.begin(&mut buffer);
            buffer[begun..begun + piece.len()].copy_from_slice(piece);
            if server.receive(&mut buffer[..begun + piece.len()], &mut out, &mut |_| {}).is_err() {
                break;
            }
        }
    }
}
