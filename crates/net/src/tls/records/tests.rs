//! A client of rustls and a server that has settled, in memory.

use std::io::Read;
use std::sync::Arc;

use proptest::prelude::*;
use rustls::ClientConfig;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::ServerName;

use super::super::client::Unchecked;
use super::super::tests::{Folder, noise};
use super::super::{Acceptor, Fault, Tls};
use crate::Wire;

/// One end in memory, and what it has to say.
struct End {
    tls: Tls,
    out: Wire,
}

impl End {
    /// Takes all that the other end has to say, in pieces.
    fn hear(&mut self, other: &mut Self, piece: usize) -> Result<Vec<u8>, Fault> {
        let said = other.out.pending().to_vec();
        other.out.consume(said.len());
        self.take(&said, piece)
    }

    fn take(&mut self, said: &[u8], piece: usize) -> Result<Vec<u8>, Fault> {
        let mut heard = Vec::new();
        for part in said.chunks(piece) {
            let mut buffer = vec![0; 256 * 1024];
            let begun = self.tls.begin(&mut buffer);
            buffer.truncate(begun + part.len());
            buffer[begun..].copy_from_slice(part);
            self.tls.receive(&mut buffer, &mut self.out, &mut |bytes| heard.extend_from_slice(bytes))?;
        }
        Ok(heard)
    }
}

/// A client of rustls and a server that has settled, for this suite.
fn met(acceptor: &Acceptor, suite: rustls::SupportedCipherSuite) -> (End, End) {
    let (mut client, mut server) = meeting(acceptor, suite);
    while server.tls.is_handshaking() || client.tls.is_handshaking() {
        server.hear(&mut client, usize::MAX).unwrap();
        client.hear(&mut server, usize::MAX).unwrap();
    }
    server.tls = server.tls.settle().unwrap();
    (client, server)
}

/// The same two, before the handshake.
fn meeting(acceptor: &Acceptor, suite: rustls::SupportedCipherSuite) -> (End, End) {
    let provider = Arc::new(CryptoProvider { cipher_suites: vec![suite], ..ring::default_provider() });
    let config = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&[suite.version()])
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Unchecked(provider)))
        .with_no_client_auth();
    let name = ServerName::try_from("localhost").unwrap();
    let end = |tls| End { tls, out: Wire::default() };
    let mut client = end(Tls::client(Arc::new(config), name).unwrap());
    let server = end(acceptor.host().data().unwrap());
    client.tls.receive(&mut [], &mut client.out, &mut |_| {}).unwrap();
    (client, server)
}

fn for_each_suite(mut test: impl FnMut(End, End)) {
    let folder = Folder::new();
    let acceptor = folder.acceptor();
    for suite in ring::ALL_CIPHER_SUITES {
        // Those of the other kind of certificate.
        if !format!("{:?}", suite.suite()).contains("_RSA_") {
            let (client, server) = met(&acceptor, *suite);
            test(client, server);
        }
    }
}

#[test]
fn rustls_understands_it_and_it_understands_rustls() {
    for_each_suite(|mut client, mut server| {
        for length in [1, 15, 16, 17, 16 * 1024 - 1, 16 * 1024, 16 * 1024 + 1, 100_000] {
            let content = noise(length);
            for piece in [7 * 1024 + 1, usize::MAX] {
                client.tls.seal(&content, &mut client.out).unwrap();
                assert!(server.hear(&mut client, piece).unwrap() == content, "up, {length}");
                server.tls.seal(&content, &mut server.out).unwrap();
                assert!(client.hear(&mut server, piece).unwrap() == content, "down, {length}");
            }
        }
        client.tls.close(&mut client.out).unwrap();
        assert_eq!(server.hear(&mut client, usize::MAX).unwrap(), b"");
        assert!(server.tls.has_ended());
        server.tls.seal(b"half of it goes on", &mut server.out).unwrap();
        server.tls.close(&mut server.out).unwrap();
        assert_eq!(client.hear(&mut server, usize::MAX).unwrap(), b"half of it goes on");
        assert!(client.tls.has_ended());
    });
}

#[test]
fn data_read_into_records_is_unchanged() {
    for_each_suite(|mut client, mut server| {
        for (most, there) in [(1, 1), (70_000, 70_000), (40_000, 40_000), (65_536, 20_000), (20, 0)] {
            let content = noise(there);
            let mut from = &content[..];
            let mut read = |parts: &mut [std::io::IoSliceMut<'_>]| from.read_vectored(parts);
            let records = server.tls.records().unwrap();
            let count = records.seal_from(most, &mut read, &mut server.out).unwrap();
            assert_eq!(count, there.min(super::sealing::BATCH));
            assert!(client.hear(&mut server, usize::MAX).unwrap() == content[..count], "{most}, {there}");
        }
    });
}

#[test]
fn bytes_one_at_a_time_are_records() {
    for_each_suite(|mut client, mut server| {
        client.tls.seal(b"a few bytes", &mut client.out).unwrap();
        assert_eq!(server.hear(&mut client, 1).unwrap(), b"a few bytes");
    });
}

#[test]
fn nothing_that_was_changed_on_the_way_is_taken_and_the_other_side_is_told() {
    for_each_suite(|mut client, mut server| {
        client.tls.seal(b"before", &mut client.out).unwrap();
        let whole = client.out.pending().len();
        client.tls.seal(b"changed", &mut client.out).unwrap();
        let mut said = client.out.pending().to_vec();
        *said.last_mut().unwrap() ^= 1;
        let mut heard = Vec::new();
        let result =
            server.tls.receive(&mut said, &mut server.out, &mut |bytes| heard.extend_from_slice(bytes));
        assert!(result.is_err() && whole < said.len());
        assert_eq!(heard, b"before", "what came whole has come");
        let told = client.hear(&mut server, usize::MAX).unwrap_err().to_string();
        assert!(told.contains("BadRecordMac"), "{told}");
    });
}

#[test]
fn records_that_come_twice_or_out_of_turn_are_refused() {
    for_each_suite(|mut client, mut server| {
        client.tls.seal(b"once", &mut client.out).unwrap();
        let said = client.out.pending().to_vec();
        assert_eq!(server.take(&said, usize::MAX).unwrap(), b"once");
        assert!(server.take(&said, usize::MAX).is_err());
    });
}

#[test]
fn keys_change_when_either_side_says_so_and_before_they_are_used_up() {
    for_each_suite(|mut client, mut server| {
        let is_13 = server.tls.version() == Some("TLS 1.3");
        server.tls.records().unwrap().most = 5;
        let content = noise(100_000);
        let sealed = server.tls.seal(&content, &mut server.out);
        if !is_13 {
            assert!(sealed.unwrap_err().to_string().contains("TLS 1.2 has no new keys"));
            return;
        }
        assert!(client.hear(&mut server, usize::MAX).unwrap() == content);
        for _ in 0..3 {
            // The client was asked to follow, and asks in its turn.
            client.tls.update_keys(&mut client.out).unwrap();
            client.tls.seal(b"new keys", &mut client.out).unwrap();
            assert_eq!(server.hear(&mut client, usize::MAX).unwrap(), b"new keys");
            server.tls.update_keys(&mut server.out).unwrap();
            server.tls.seal(b"here as well", &mut server.out).unwrap();
            assert_eq!(client.hear(&mut server, usize::MAX).unwrap(), b"here as well");
        }
    });
}

#[test]
fn new_keys_may_be_asked_for_with_the_last_word_of_the_handshake() {
    let folder = Folder::new();
    let suite = ring::cipher_suite::TLS13_AES_128_GCM_SHA256;
    for piece in [usize::MAX, 1000, 1] {
        let (mut client, mut server) = meeting(&folder.acceptor(), suite);
        server.hear(&mut client, usize::MAX).unwrap();
        client.hear(&mut server, usize::MAX).unwrap();
        assert!(server.tls.is_handshaking() && !client.tls.is_handshaking());
        client.tls.update_keys(&mut client.out).unwrap();
        client.tls.seal(b"a file, and", &mut client.out).unwrap();
        let said = client.out.pending().to_vec();
        let (mut at, mut heard) = (0, Vec::new());
        while server.tls.is_handshaking() {
            let end = said.len().min(at + piece.min(said.len()));
            heard.extend(server.take(&said[at..end], usize::MAX).unwrap());
            at = end;
        }
        server.tls = server.tls.settle().unwrap();
        if server.tls.take_unheard() {
            let mut buffer = vec![0; 256 * 1024];
            let begun = server.tls.begin(&mut buffer);
            let mut take = |bytes: &[u8]| heard.extend_from_slice(bytes);
            server.tls.receive(&mut buffer[..begun], &mut server.out, &mut take).unwrap();
        }
        heard.extend(server.take(&said[at..], piece).unwrap());
        assert_eq!(heard, b"a file, and", "pieces of {piece}");
        server.tls.seal(b"what is said to it", &mut server.out).unwrap();
        assert_eq!(client.hear(&mut server, usize::MAX).unwrap(), b"what is said to it");
    }
}

#[test]
fn key_updates_without_reads_take_no_memory() {
    let folder = Folder::new();
    let (mut client, mut server) = met(&folder.acceptor(), ring::cipher_suite::TLS13_AES_128_GCM_SHA256);
    for _ in 0..1000 {
        client.tls.update_keys(&mut client.out).unwrap();
        client.tls.seal(b"x", &mut client.out).unwrap();
        assert_eq!(server.hear(&mut client, usize::MAX).unwrap(), b"x");
        assert!(server.out.is_empty());
    }
    let mut read = |parts: &mut [std::io::IoSliceMut<'_>]| {
        (&b"all of them are answered at once"[..]).read_vectored(parts)
    };
    server.tls.records().unwrap().seal_from(100, &mut read, &mut server.out).unwrap();
    assert_eq!(client.hear(&mut server, usize::MAX).unwrap(), b"all of them are answered at once");
    server.tls.seal(b", and once", &mut server.out).unwrap();
    assert_eq!(client.hear(&mut server, usize::MAX).unwrap(), b", and once");
}

#[test]
fn endless_key_updates_end_the_connection() {
    let folder = Folder::new();
    let (mut client, mut server) = met(&folder.acceptor(), ring::cipher_suite::TLS13_AES_128_GCM_SHA256);
    let mut ask = || {
        client.tls.update_keys(&mut client.out).unwrap();
        server.hear(&mut client, usize::MAX)
    };
    let borne = (0..1000).take_while(|_| ask().is_ok()).count();
    assert_eq!(borne, usize::from(super::opening::PATIENCE));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn nothing_that_comes_makes_it_panic(
        records in prop::collection::vec((any::<[u8; 5]>(), prop::collection::vec(any::<u8>(), 0..80)), 1..8),
        honest in any::<bool>(),
    ) {
        let folder = Folder::new();
        let (_, mut server) = met(&folder.acceptor(), ring::cipher_suite::TLS13_AES_128_GCM_SHA256);
        let mut said = Vec::new();
        for (header, body) in records {
            let header = match honest {
                true => [20 + header[0] % 5, 3, 3, 0, body.len() as u8],
                false => header,
            };
            said.extend_from_slice(&header);
            said.extend_from_slice(&body);
        }
        prop_assert!(server.take(&said, usize::MAX).map_or(true, |heard| heard.is_empty()));
    }
}
