//! The records of a connection whose handshake is over, opened and sealed where they lie.
//!
//! rustls shakes hands and makes the keys. A record that it opens or seals passes through a vector and two copies; here
//! ring works in the buffers of the copy loop, and the plain bytes of many records end up side by side, in front of
//! the buffer that they were read into:
//!
//! ```text
//! | header, cipher, tag | header, cipher, tag | header, ci      what was read
//! | plain, plain | ...                        | header, ci      what is given on, and what waits for its rest
//! ```
//!
//! TLS 1.3: RFC 8446, section 5. TLS 1.2: RFC 5246, section 6.2.3.3, with RFC 5288 (GCM) and RFC 7905 (ChaCha20).
//!
//! The invariant: under one key a sequence number, and with it a nonce, is used once in each direction.

use std::fmt;
use std::io::{self, IoSliceMut};

use ring::aead::{
    AES_128_GCM, AES_256_GCM, Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey,
};
use rustls::kernel::KernelConnection;
use rustls::pki_types::CertificateDer;
use rustls::server::{ServerConnectionData, UnbufferedServerConnection};
use rustls::{
    AlertDescription, ConnectionTrafficSecrets, Error, PeerMisbehaved, ProtocolVersion, SupportedCipherSuite,
};

use super::channel::Unwritten;
use super::wire::Wire;

const HEADER: usize = 5;
const TAG: usize = 16;

/// The part of a nonce of GCM that TLS 1.2 sends along.
const EXPLICIT: usize = 8;

/// The most plain bytes of a record.
const PLAIN: usize = 16 * 1024;

/// What a record may be longer than its plain bytes, at most: the type, padding, nonce and tag (RFC 5246, 6.2.3).
const EXPANSION: usize = 2048;

/// What is sealed at a time when it comes from a file: 4 full records, one read and one write.
const BATCH: usize = 4 * PLAIN;

/// How many records or requests without a byte of content are borne one after the other, as rustls bears them.
const PATIENCE: u8 = 32;

/// Content types.
const CHANGE_CIPHER_SPEC: u8 = 20;
const ALERT: u8 = 21;
const HANDSHAKE: u8 = 22;
const APPLICATION_DATA: u8 = 23;

const WARNING: u8 = 1;
const FATAL: u8 = 2;

/// Fills buffers from wherever plain bytes come from; answers how many there were.
pub(super) type Read<'a> = dyn FnMut(&mut [IoSliceMut<'_>]) -> io::Result<usize> + 'a;

/// Both directions of a connection.
pub(super) struct Records {
    form: Form,
    reading: Half,
    writing: Half,
    /// So many records may be sealed with one key.
    most: u64,
    /// Makes new keys.
    keys: KernelConnection<ServerConnectionData>,
    /// The certificate that the client showed, if it was asked for one.
    peer: Option<CertificateDer<'static>>,
    /// What came without content, since there was some.
    idle: u8,
    /// The other side has asked for new keys of ours: they come before the next of our bytes, once for all that were
    /// asked for until then. Whoever asks and never reads has so nothing kept for it.
    owes_keys: bool,
}

/// How a record is made.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Tls13,
    Tls12Gcm,
    Tls12ChaCha,
}

/// One direction: its key, and what its nonces are made of.
struct Half {
    key: LessSafeKey,
    iv: [u8; NONCE_LEN],
    sequence: u64,
}

/// What became of wire bytes.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Opened {
    /// So many plain bytes are in front.
    pub(super) plain: usize,
    /// So many wire bytes were records, and whole.
    pub(super) used: usize,
    /// The other side has said that nothing more will come.
    pub(super) ended: bool,
}

/// A record that is no application data, and what it leads to.
enum Other {
    Nothing,
    Ended,
}

impl fmt::Debug for Records {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Records({} read, {} written)", self.reading.sequence, self.writing.sequence)
    }
}

impl Half {
    fn new((sequence, secrets): (u64, ConnectionTrafficSecrets)) -> Result<Self, Error> {
        let (algorithm, key, iv) = match &secrets {
            ConnectionTrafficSecrets::Aes128Gcm { key, iv } => (&AES_128_GCM, key, iv),
            ConnectionTrafficSecrets::Aes256Gcm { key, iv } => (&AES_256_GCM, key, iv),
            ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv } => (&CHACHA20_POLY1305, key, iv),
            _ => return Err(unusable("cipher")),
        };
        let key = UnboundKey::new(algorithm, key.as_ref()).map_err(|_| unusable("key"))?;
        let iv = iv.as_ref().try_into().map_err(|_| unusable("initialization vector"))?;
        Ok(Self { key: LessSafeKey::new(key), iv, sequence })
    }

    /// The sequence number of the next record, and its nonce.
    fn next(&mut self) -> Result<(u64, [u8; NONCE_LEN]), Error> {
        let sequence = self.sequence;
        self.sequence = sequence.checked_add(1).ok_or(Error::EncryptError)?;
        let mut nonce = self.iv;
        for (byte, part) in nonce[NONCE_LEN - 8..].iter_mut().zip(sequence.to_be_bytes()) {
            *byte ^= part;
        }
        Ok((sequence, nonce))
    }
}

impl Form {
    /// What stands between the header and what is encrypted.
    fn explicit(self) -> usize {
        if self == Self::Tls12Gcm { EXPLICIT } else { 0 }
    }

    /// What is encrypted besides the plain bytes: TLS 1.3 hides the type there.
    fn hidden(self) -> usize {
        usize::from(self == Self::Tls13)
    }
}

/// What TLS 1.2 authenticates besides the content, whose length is `length` (RFC 5246, section 6.2.3.3).
fn additional(sequence: u64, kind: u8, version: [u8; 2], length: usize) -> [u8; 13] {
    let mut data = [0; 13];
    data[..8].copy_from_slice(&sequence.to_be_bytes());
    data[8] = kind;
    data[9..11].copy_from_slice(&version);
    data[11..].copy_from_slice(&(length as u16).to_be_bytes());
    data
}

impl Records {
    /// Takes over from rustls, whose handshake has to be over and all of it sent.
    pub(super) fn new(connection: UnbufferedServerConnection) -> Result<Self, Error> {
        let peer = connection.peer_certificates().and_then(<[_]>::first).cloned();
        let (secrets, keys) = connection.dangerous_into_kernel_connection()?;
        let suite = keys.negotiated_cipher_suite();
        let form = match (&suite, &secrets.tx.1) {
            (SupportedCipherSuite::Tls13(_), _) => Form::Tls13,
            (_, ConnectionTrafficSecrets::Chacha20Poly1305 { .. }) => Form::Tls12ChaCha,
            _ => Form::Tls12Gcm,
        };
        let most = match suite {
            SupportedCipherSuite::Tls13(suite) => suite.common.confidentiality_limit,
            SupportedCipherSuite::Tls12(suite) => suite.common.confidentiality_limit,
        };
        let (reading, writing) = (Half::new(secrets.rx)?, Half::new(secrets.tx)?);
        Ok(Self { form, reading, writing, most, keys, peer, idle: 0, owes_keys: false })
    }

    /// The version in use.
    pub(super) fn version(&self) -> ProtocolVersion {
        self.keys.protocol_version()
    }

    /// The certificate that the client showed, and that was found to be good.
    pub(super) fn peer_certificate(&self) -> Option<&CertificateDer<'static>> {
        self.peer.as_ref()
    }

    /// Opens what is whole in `wire`, and moves what it says to its front. An answer, where one is due, goes to `out`;
    /// so does the alert that goes with an error, before which [`Opened::plain`] bytes of `opened` have come.
    pub(super) fn open(&mut self, wire: &mut [u8], opened: &mut Opened, out: &mut Wire) -> Result<(), Error> {
        while !opened.ended
            && let Some(&header) = wire[opened.used..].first_chunk::<HEADER>()
        {
            let body = opened.used + HEADER;
            let length = usize::from(u16::from_be_bytes([header[3], header[4]]));
            if length > PLAIN + EXPANSION {
                return Err(self.alarm(
                    AlertDescription::RecordOverflow,
                    Error::PeerSentOversizedRecord,
                    out,
                ));
            }
            let Some(room) = wire.get_mut(opened.plain..body + length) else { break };
            let record = self.open_one(header, room, body - opened.plain);
            let (kind, count) = record.map_err(|(alert, error)| self.alarm(alert, error, out))?;
            opened.used = body + length;
            let plain = &wire[opened.plain..opened.plain + count];
            if kind == APPLICATION_DATA {
                opened.plain += count;
            }
            if kind == APPLICATION_DATA && count > 0 {
                self.idle = 0;
                continue;
            }
            self.idle += 1;
            let heard = match kind {
                _ if self.idle > PATIENCE => {
                    let error = Error::PeerMisbehaved(PeerMisbehaved::TooManyEmptyFragments);
                    Err((AlertDescription::UnexpectedMessage, error))
                }
                APPLICATION_DATA => Ok(Other::Nothing),
                ALERT => self.heed_alert(plain),
                HANDSHAKE if self.form == Form::Tls13 => self.heed_key_update(plain),
                HANDSHAKE => Err((AlertDescription::NoRenegotiation, general("a renegotiation is refused"))),
                _ => Err((AlertDescription::UnexpectedMessage, general("a record of an unexpected type"))),
            };
            match heard {
                Ok(Other::Nothing) => {}
                Ok(Other::Ended) => opened.ended = true,
                Err((alert, error)) => return Err(self.alarm(alert, error, out)),
            }
        }
        Ok(())
    }

    /// Opens one record, whose body is `room` from `at`, and moves what it says to the front; answers its type, and
    /// how long it is.
    fn open_one(
        &mut self,
        header: [u8; HEADER],
        room: &mut [u8],
        at: usize,
    ) -> Result<(u8, usize), (AlertDescription, Error)> {
        let bad = || (AlertDescription::BadRecordMac, Error::DecryptError);
        let (sequence, mut nonce) = self.reading.next().map_err(|_| bad())?;
        let explicit = self.form.explicit();
        let length = room.len() - at;
        let content = length.checked_sub(explicit + TAG).ok_or_else(bad)?;
        if explicit > 0 {
            nonce[NONCE_LEN - EXPLICIT..].copy_from_slice(&room[at..at + EXPLICIT]);
        }
        let nonce = Nonce::assume_unique_for_key(nonce);
        let from = at + explicit..;
        let key = &self.reading.key;
        let opened = match self.form {
            Form::Tls13 if header[0] != APPLICATION_DATA => {
                let what = if header[0] == CHANGE_CIPHER_SPEC {
                    "a late change of ciphers"
                } else {
                    "a plain record"
                };
                return Err((AlertDescription::UnexpectedMessage, general(what)));
            }
            Form::Tls13 => key.open_within(nonce, Aad::from(header), room, from),
            Form::Tls12Gcm | Form::Tls12ChaCha => {
                let data = additional(sequence, header[0], [header[1], header[2]], content);
                key.open_within(nonce, Aad::from(data), room, from)
            }
        };
        let opened = opened.map_err(|_| bad())?;
        let (kind, count) = match self.form {
            // The type is the last byte that is not padding.
            Form::Tls13 => match opened.iter().rposition(|&byte| byte != 0) {
                Some(last) => (opened[last], last),
                None => {
                    return Err((AlertDescription::UnexpectedMessage, general("a record without a type")));
                }
            },
            Form::Tls12Gcm | Form::Tls12ChaCha => (header[0], opened.len()),
        };
        match count {
            0..=PLAIN => Ok((kind, count)),
            _ => Err((AlertDescription::RecordOverflow, Error::PeerSentOversizedRecord)),
        }
    }

    fn heed_alert(&self, content: &[u8]) -> Result<Other, (AlertDescription, Error)> {
        let &[level, description] = content else {
            return Err((AlertDescription::DecodeError, general("an alert of a wrong length")));
        };
        match (AlertDescription::from(description), level) {
            (AlertDescription::CloseNotify, _) => Ok(Other::Ended),
            // Warnings went with TLS 1.2, all but this one.
            (AlertDescription::UserCanceled, WARNING) => Ok(Other::Nothing),
            (_, WARNING) if self.form != Form::Tls13 => Ok(Other::Nothing),
            (description, _) => Err((AlertDescription::CloseNotify, Error::AlertReceived(description))),
        }
    }

    /// New keys for what comes, and if they are asked for, for what goes (RFC 8446, section 4.6.3).
    fn heed_key_update(&mut self, content: &[u8]) -> Result<Other, (AlertDescription, Error)> {
        let failed = |error| (AlertDescription::InternalError, error);
        let &[24, 0, 0, 1, wanted @ (0 | 1)] = content else {
            let what = "a handshake message that is no key update";
            return Err((AlertDescription::UnexpectedMessage, general(what)));
        };
        self.owes_keys |= wanted == 1;
        self.reading = self.keys.update_rx_secret().and_then(Half::new).map_err(failed)?;
        Ok(Other::Nothing)
    }

    /// Puts the records of plain bytes into `out`, as large as they may be.
    pub(super) fn seal(&mut self, plain: &[u8], out: &mut Wire) -> Result<(), Error> {
        plain.chunks(PLAIN).try_for_each(|part| {
            self.renew_keys(1, out)?;
            self.seal_one(APPLICATION_DATA, part, out)
        })
    }

    /// Says that nothing more will be sent.
    pub(super) fn close(&mut self, out: &mut Wire) -> Result<(), Error> {
        self.seal_one(ALERT, &[WARNING, AlertDescription::CloseNotify.into()], out)
    }

    /// Before so many records: new keys, where they are owed, or would be used up.
    fn renew_keys(&mut self, records: usize, out: &mut Wire) -> Result<(), Error> {
        let is_used_up = self.writing.sequence.saturating_add(records as u64) > self.most;
        if is_used_up || self.owes_keys { self.change_keys(is_used_up, out) } else { Ok(()) }
    }

    /// Sends with a new key from here on, and asks the other side to do so, too, if it `is_to_follow`. Under TLS 1.2 there
    /// is no way to.
    pub(super) fn change_keys(&mut self, is_to_follow: bool, out: &mut Wire) -> Result<(), Error> {
        if self.form != Form::Tls13 {
            return Err(general("TLS 1.2 has no new keys for a connection that has used up its own"));
        }
        let next = self.keys.update_tx_secret().and_then(Half::new)?;
        self.seal_one(HANDSHAKE, &[24, 0, 0, 1, u8::from(is_to_follow)], out)?;
        self.writing = next;
        self.owes_keys = false;
        Ok(())
    }

    fn seal_one(&mut self, kind: u8, plain: &[u8], out: &mut Wire) -> Result<(), Error> {
        let (start, most) = (self.start(), self.length(plain.len()));
        let room = &mut out.room(most)[..most];
        room[start..start + plain.len()].copy_from_slice(plain);
        self.seal_within(kind, room, plain.len())?;
        out.fill(most);
        Ok(())
    }

    /// Has `read` put up to `most` plain bytes, and no more than [`BATCH`], where they are sealed: into the records of
    /// `out`. Answers how many there were.
    pub(super) fn seal_from(
        &mut self,
        most: usize,
        read: &mut Read<'_>,
        out: &mut Wire,
    ) -> Result<usize, Unwritten> {
        let most = most.min(BATCH);
        let needed = most.div_ceil(PLAIN);
        self.renew_keys(needed, out).map_err(Unwritten::sealing)?;
        let (start, stride) = (self.start(), self.length(PLAIN));
        let room = &mut out.room(stride * needed)[..stride * needed];
        let mut left = most;
        let mut records = room.chunks_exact_mut(stride);
        let mut parts: [IoSliceMut<'_>; BATCH / PLAIN] = std::array::from_fn(|_| {
            let length = left.min(PLAIN);
            left -= length;
            // Fewer, where less is left.
            IoSliceMut::new(records.next().map_or(&mut [], |record| &mut record[start..start + length]))
        });
        let count = read(&mut parts).map_err(Unwritten::Source)?.min(most);
        let mut sealed = 0;
        for (record, at) in room.chunks_exact_mut(stride).zip((0..count).step_by(PLAIN)) {
            let length = (count - at).min(PLAIN);
            let whole = self.length(length);
            let record = &mut record[..whole];
            self.seal_within(APPLICATION_DATA, record, length).map_err(Unwritten::sealing)?;
            sealed += whole;
        }
        out.fill(sealed);
        Ok(count)
    }

    /// Where the plain bytes of a record are.
    fn start(&self) -> usize {
        HEADER + self.form.explicit()
    }

    /// How long a record of so many plain bytes is.
    fn length(&self, plain: usize) -> usize {
        self.start() + plain + self.form.hidden() + TAG
    }

    /// Makes a record around `plain` bytes that are in their place.
    fn seal_within(&mut self, kind: u8, record: &mut [u8], plain: usize) -> Result<(), Error> {
        let (sequence, nonce) = self.writing.next()?;
        let (explicit, hidden) = (self.form.explicit(), self.form.hidden());
        let length = (record.len() - HEADER) as u16;
        let (header, rest) = record.split_at_mut(HEADER);
        let outer = if self.form == Form::Tls13 { APPLICATION_DATA } else { kind };
        header.copy_from_slice(&[outer, 3, 3, (length >> 8) as u8, length as u8]);
        let (before, rest) = rest.split_at_mut(explicit);
        before.copy_from_slice(&nonce[NONCE_LEN - explicit..]);
        let (content, place) = rest.split_at_mut(plain + hidden);
        content[plain..].fill(kind);
        let nonce = Nonce::assume_unique_for_key(nonce);
        let key = &self.writing.key;
        let tag = match self.form {
            Form::Tls13 => key.seal_in_place_separate_tag(nonce, Aad::from(&*header), content),
            Form::Tls12Gcm | Form::Tls12ChaCha => {
                let data = additional(sequence, kind, [3, 3], plain);
                key.seal_in_place_separate_tag(nonce, Aad::from(data), content)
            }
        };
        place.copy_from_slice(tag.map_err(|_| Error::EncryptError)?.as_ref());
        Ok(())
    }

    /// Tells the other side what is wrong, unless it has told us.
    fn alarm(&mut self, alert: AlertDescription, error: Error, out: &mut Wire) -> Error {
        if alert != AlertDescription::CloseNotify {
            // An error is on its way already.
            let _ = self.seal_one(ALERT, &[FATAL, alert.into()], out);
        }
        error
    }
}

fn general(what: &str) -> Error {
    Error::General(what.to_owned())
}

fn unusable(what: &str) -> Error {
    Error::General(format!("a {what} of an unknown kind"))
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::sync::Arc;

    use proptest::prelude::*;
    use rustls::ClientConfig;
    use rustls::crypto::{CryptoProvider, ring};
    use rustls::pki_types::ServerName;

    use super::super::client::Unchecked;
    use super::super::tests::{Folder, noise};
    use super::super::{Acceptor, Fault, Tls, Wire};

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
    fn what_is_read_into_its_records_is_what_was_read() {
        for_each_suite(|mut client, mut server| {
            for (most, there) in [(1, 1), (70_000, 70_000), (40_000, 40_000), (65_536, 20_000), (20, 0)] {
                let content = noise(there);
                let mut from = &content[..];
                let mut read = |parts: &mut [std::io::IoSliceMut<'_>]| from.read_vectored(parts);
                let records = server.tls.records().unwrap();
                let count = records.seal_from(most, &mut read, &mut server.out).unwrap();
                assert_eq!(count, there.min(super::BATCH));
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
    fn who_asks_for_new_keys_and_reads_nothing_has_nothing_kept_for_it() {
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
    fn who_asks_for_new_keys_and_says_nothing_else_is_sent_away() {
        let folder = Folder::new();
        let (mut client, mut server) = met(&folder.acceptor(), ring::cipher_suite::TLS13_AES_128_GCM_SHA256);
        let mut ask = || {
            client.tls.update_keys(&mut client.out).unwrap();
            server.hear(&mut client, usize::MAX)
        };
        let borne = (0..1000).take_while(|_| ask().is_ok()).count();
        assert_eq!(borne, usize::from(super::PATIENCE));
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
}
