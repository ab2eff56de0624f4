//! A look at a ClientHello before it is answered: what a client offered, for the log.
//!
//! rustls refuses outdated or unsuitable offers, but cannot say what they were. This parser only informs the log: if it
//! cannot parse a hello it returns nothing, and the handshake goes on.

use std::fmt;

/// The offer of a client.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Hello {
    /// The versions, as their numbers on the wire (0x0303 is TLS 1.2).
    pub versions: Vec<u16>,
    /// The name of the server that it wants (SNI).
    pub server_name: Option<String>,
    /// The protocols that it speaks (ALPN).
    pub protocols: Vec<Vec<u8>>,
    /// It says that it has tried a newer version before, without success (RFC 7507).
    pub falls_back: bool,
    /// It can resume sessions of TLS 1.3, or would like a ticket to do so later: without psk_key_exchange_modes no
    /// server may give it one (RFC 8446 section 4.2.9).
    pub resumes_tls13: bool,
    /// The session id that it would go on with (TLS 1.2), or one without a meaning (TLS 1.3).
    pub session_id: Vec<u8>,
    /// The tickets that it shows.
    pub tickets: Vec<Vec<u8>>,
}

const HANDSHAKE: u8 = 22;
const CLIENT_HELLO: u8 = 1;
const SERVER_NAME: u16 = 0;
const ALPN: u16 = 16;
const SESSION_TICKET: u16 = 35;
const PRE_SHARED_KEY: u16 = 41;
const SUPPORTED_VERSIONS: u16 = 43;
const PSK_KEY_EXCHANGE_MODES: u16 = 45;
const TLS_FALLBACK_SCSV: u16 = 0x5600;

const TLS12: u16 = 0x0303;
const TLS13: u16 = 0x0304;

impl Hello {
    /// Looks at the first bytes of a connection. `None` where they are no whole ClientHello in one record,
    /// nor the SSL 2.0 form that the oldest clients begin with.
    pub fn peek(wire: &[u8]) -> Option<Self> {
        let mut record = Reader(wire);
        if record.byte()? != HANDSHAKE {
            return ssl2(wire);
        }
        record.take(2)?;
        let mut message = record.with_length_16()?;
        if message.byte()? != CLIENT_HELLO {
            return None;
        }
        message.take(3)?;
        let legacy = message.u16()?;
        message.take(32)?;
        let session_id = message.with_length_8()?.0.to_vec();
        let mut ciphers = message.with_length_16()?;
        message.with_length_8()?; // compression
        let mut hello = Self { versions: vec![legacy], session_id, ..Self::default() };
        while let Some(cipher) = ciphers.u16() {
            hello.falls_back |= cipher == TLS_FALLBACK_SCSV;
        }
        // Without extensions, the hello of an old client ends here.
        if let Some(mut extensions) = message.with_length_16() {
            while let (Some(kind), Some(body)) = (extensions.u16(), extensions.with_length_16()) {
                hello.take_extension(kind, body);
            }
        }
        Some(hello)
    }

    /// Returns true if these are the beginning of a record with a ClientHello, whose rest has not come.
    pub fn is_partial(wire: &[u8]) -> bool {
        let mut record = Reader(wire);
        match record.byte() {
            Some(HANDSHAKE) => record.take(2).is_none() || record.with_length_16().is_none(),
            first => first.is_none(),
        }
    }

    /// Returns true if the client signals a fallback to TLS 1.2 or less (`TLS_FALLBACK_SCSV`), which this server never
    /// makes necessary.
    pub(super) fn is_inappropriate_fallback(&self) -> bool {
        self.falls_back && !self.versions.contains(&TLS13)
    }

    /// Returns true if it would speak TLS 1.3, under which it never resumes, but speaks TLS 1.2 as well.
    pub(super) fn resumes_tls12_only(&self) -> bool {
        !self.resumes_tls13 && self.versions.contains(&TLS13) && self.versions.contains(&TLS12)
    }

    fn take_extension(&mut self, kind: u16, mut body: Reader<'_>) {
        match kind {
            SERVER_NAME => {
                let name = body.with_length_16().and_then(|mut list| {
                    list.byte().filter(|&kind| kind == 0)?;
                    list.with_length_16()
                });
                self.server_name = name.map(|Reader(name)| String::from_utf8_lossy(name).into_owned());
            }
            ALPN => {
                let Some(mut list) = body.with_length_16() else { return };
                while let Some(Reader(name)) = list.with_length_8() {
                    self.protocols.push(name.to_vec());
                }
            }
            SUPPORTED_VERSIONS => {
                let Some(mut list) = body.with_length_8() else { return };
                self.versions.clear();
                while let Some(version) = list.u16() {
                    self.versions.push(version);
                }
            }
            SESSION_TICKET if !body.0.is_empty() => self.tickets.push(body.0.to_vec()),
            PRE_SHARED_KEY => {
                let Some(mut identities) = body.with_length_16() else { return };
                while let (Some(Reader(ticket)), Some(_age)) =
                    (identities.with_length_16(), identities.take(size_of::<u32>()))
                {
                    self.tickets.push(ticket.to_vec());
                }
            }
            PSK_KEY_EXCHANGE_MODES => self.resumes_tls13 = true,
            _ => {}
        }
    }
}

/// `TLS 1.0, TLS 1.1`, in the client's order, without the values that mean nothing (GREASE).
impl fmt::Display for Hello {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for name in self.versions.iter().filter_map(|version| version_name(*version)) {
            write!(out, "{separator}{name}")?;
            separator = ", ";
        }
        if separator.is_empty() { out.write_str("no version that is known") } else { Ok(()) }
    }
}

fn version_name(version: u16) -> Option<&'static str> {
    Some(match version {
        0x0002 => "SSL 2.0",
        0x0300 => "SSL 3.0",
        0x0301 => "TLS 1.0",
        0x0302 => "TLS 1.1",
        0x0303 => "TLS 1.2",
        0x0304 => "TLS 1.3",
        _ => return None,
    })
}

/// The hello of SSL 2.0, in which clients of that age also offer SSL 3.0 and TLS 1.0.
fn ssl2(wire: &[u8]) -> Option<Hello> {
    let [length, _, CLIENT_HELLO, major, minor, ..] = *wire else { return None };
    let version = u16::from_be_bytes([major, minor]);
    let known = length & 0x80 != 0 && version_name(version).is_some();
    known.then(|| Hello { versions: vec![version], ..Hello::default() })
}

/// The unread bytes.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn byte(&mut self) -> Option<u8> {
        self.take(1).map(|bytes| bytes[0])
    }

    fn u16(&mut self) -> Option<u16> {
        self.take(2).map(|bytes| u16::from_be_bytes([bytes[0], bytes[1]]))
    }

    fn with_length_8(&mut self) -> Option<Self> {
        let length = self.byte()?;
        self.take(length.into()).map(Self)
    }

    fn with_length_16(&mut self) -> Option<Self> {
        let length = self.u16()?;
        self.take(length.into()).map(Self)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A ClientHello with these extensions, as it comes in a record.
    fn record(version: u16, extensions: &[(u16, &[u8])]) -> Vec<u8> {
        let mut block = Vec::new();
        for (kind, body) in extensions {
            block.extend(kind.to_be_bytes());
            block.extend((body.len() as u16).to_be_bytes());
            block.extend(*body);
        }
        let mut message = version.to_be_bytes().to_vec();
        message.extend([7; 32]);
        message.extend([0, 0, 2, 0x13, 0x01, 1, 0]);
        if !extensions.is_empty() {
            message.extend((block.len() as u16).to_be_bytes());
            message.extend(block);
        }
        let length = message.len() as u32;
        let mut wire = vec![22, 3, 1];
        wire.extend((length as u16 + 4).to_be_bytes());
        wire.extend(((1 << 24) | length).to_be_bytes());
        wire.extend(message);
        wire
    }

    #[test]
    fn old_clients_are_told_by_their_version() {
        let hello = Hello::peek(&record(0x0302, &[])).unwrap();
        assert_eq!(hello.to_string(), "TLS 1.1");
        let hello = Hello::peek(&[0x80, 0x2e, 1, 3, 1, 0, 21, 0, 0]).unwrap();
        assert_eq!(hello.to_string(), "TLS 1.0");
    }

    #[test]
    fn extensions_are_read() {
        let name = b"\0\x0e\0\0\x0bftp.example";
        let hello = Hello::peek(&record(
            0x0303,
            &[(0, name), (10, b"\0\x02\0\x1d"), (16, b"\0\x04\x03ftp"), (43, &[6, 0x6a, 0x6a, 3, 4, 3, 3])],
        ))
        .unwrap();
        assert_eq!(hello.server_name.as_deref(), Some("ftp.example"));
        assert_eq!(hello.protocols, [b"ftp".to_vec()]);
        assert_eq!(hello.to_string(), "TLS 1.3, TLS 1.2");
    }

    #[test]
    fn a_hello_shows_whether_it_can_resume_under_tls_13() {
        let all = (43, &[4, 3, 4, 3, 3][..]);
        let resumes = Hello::peek(&record(0x0303, &[all, (45, &[1, 1])])).unwrap();
        assert!(resumes.resumes_tls13 && !resumes.resumes_tls12_only());
        assert!(Hello::peek(&record(0x0303, &[all])).unwrap().resumes_tls12_only());
        assert!(!Hello::peek(&record(0x0303, &[(43, &[2, 3, 4])])).unwrap().resumes_tls12_only());
        assert!(!Hello::peek(&record(0x0303, &[])).unwrap().resumes_tls12_only());
    }

    #[test]
    fn tickets_are_read_of_either_version() {
        let hello = Hello::peek(&record(0x0303, &[(35, b"old")])).unwrap();
        assert_eq!(hello.tickets, [b"old".to_vec()]);
        assert_eq!(Hello::peek(&record(0x0303, &[(35, b"")])).unwrap().tickets.len(), 0);
        let identities = b"\0\x11\0\x03one\0\0\0\x07\0\x02no\0\0\0\0\0\x04\x03bnd";
        let hello = Hello::peek(&record(0x0303, &[(41, identities)])).unwrap();
        assert_eq!(hello.tickets, [b"one".to_vec(), b"no".to_vec()]);
    }

    #[test]
    fn falling_back_from_tls_13_is_told_by_a_cipher() {
        let mut wire = record(0x0303, &[]);
        let at = wire.windows(2).position(|pair| pair == [0x13, 0x01]).unwrap();
        assert!(!Hello::peek(&wire).unwrap().is_inappropriate_fallback());
        wire[at..at + 2].copy_from_slice(&TLS_FALLBACK_SCSV.to_be_bytes());
        assert!(Hello::peek(&wire).unwrap().is_inappropriate_fallback());
    }

    #[test]
    fn a_record_that_has_not_all_come_is_partial() {
        let wire = record(0x0303, &[(43, &[2, 3, 4])]);
        for length in 0..wire.len() {
            assert!(Hello::is_partial(&wire[..length]), "{length}");
        }
        assert!(!Hello::is_partial(&wire));
        assert!(!Hello::is_partial(b"USER"));
    }

    #[test]
    fn a_malformed_hello_is_none() {
        for text in [&b"USER alice\r\n"[..], b"", b"\x16\x03\x01", b"\x80", b"GET / HTTP/1.1\r\n\r\n"] {
            assert_eq!(Hello::peek(text), None, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn nothing_makes_it_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..200), cut in 0usize..200) {
            let _ = (Hello::peek(&bytes), Hello::is_partial(&bytes));
            let whole = record(0x0303, &[(0, &bytes), (16, &bytes), (43, &bytes)]);
            let _ = Hello::peek(&whole);
            let _ = Hello::peek(&whole[..cut.min(whole.len())]);
            bytes.splice(0..0, [22, 3, 1]);
            let _ = Hello::peek(&bytes);
        }
    }
}
