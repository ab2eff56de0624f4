//! The bodies of the fuzz targets, one function each: what must hold of any input.
//!
//! `fuzz/` runs them under libFuzzer for as long as one likes; `fuzz_smoke.rs` runs them briefly with every
//! `cargo test`. The first bytes of an input choose parameters where a target has some.
#![allow(dead_code)]

use std::net::{IpAddr, SocketAddr};

use millrace_ftp::client::{ClientSession, Plan, ReplyReader};
use millrace_ftp::codec::{Coding, Decoded, Decoder, Encoder, Mode, Structure, Type};
use millrace_ftp::digest::Target;
use millrace_ftp::glob::Glob;
use millrace_ftp::line::{LineEvent, LineReader, MAX_LINE};
use millrace_ftp::listing::{ListOptions, facts, unix};
use millrace_ftp::{address, escape, time};
use millrace_vfs::Timestamp;

use crate::memory::chaos;

const NOW: Timestamp = Timestamp { seconds: 1_704_110_400, nanoseconds: 0 };

/// A byte of the input, and the rest of it.
fn choice(input: &[u8]) -> (u8, &[u8]) {
    input.split_first().map_or((0, input), |(&byte, rest)| (byte, rest))
}

/// Command lines: bounded, and the same however the network cuts them.
pub(crate) fn line(input: &[u8]) {
    let (size, input) = choice(input);
    let whole = lines(input, input.len());
    assert_eq!(lines(input, usize::from(size)), whole);
    assert!(whole.iter().flatten().all(|line| line.len() <= MAX_LINE && !line.contains(&b'\n')));
}

/// The lines of an input that comes in pieces; `None` for one that was too long.
fn lines(input: &[u8], size: usize) -> Vec<Option<Vec<u8>>> {
    let (mut reader, mut found) = (LineReader::default(), Vec::new());
    for mut piece in input.chunks(size.max(1)) {
        while let Some(event) = reader.next(&mut piece) {
            match event {
                LineEvent::Line(line) => found.push(Some(line.into_owned())),
                LineEvent::TooLong | LineEvent::Torn => found.push(None),
                LineEvent::Refuse(bytes) => assert_eq!(bytes[0], 255),
            }
        }
        assert!(piece.is_empty(), "nothing is left");
    }
    found
}

/// A session through lines, answers, failures and deadlines: see [`chaos`].
pub(crate) fn session(input: &[u8]) {
    let (user, input) = choice(input);
    let user = ["ann", "bob", "root", "mallory"][usize::from(user % 4)];
    chaos::survives(user, &chaos::parse(input));
}

/// Lines of listings: parsed or not, and written again as they were understood.
pub(crate) fn listing(input: &[u8]) {
    for line in input.split(|&byte| byte == b'\n') {
        if let Some(line) = facts::parse(line) {
            assert!(!line.name.is_empty());
        }
        if let Some(line) = unix::parse(line, NOW) {
            assert!(!line.name.is_empty());
        }
        let (_, path) = ListOptions::parse(line);
        assert!(line.ends_with(path));
        let _ = (time::parse(line), time::parse_minutes(line), Target::parse(line));
        let mut escaped = Vec::new();
        escape::escape_name(line, &mut escaped);
        let mut name = Vec::new();
        escape::unescape_name(&escaped, &mut name);
        assert_eq!(name, line);
    }
}

/// A server's replies, to a client that has sent some commands.
pub(crate) fn reply(input: &[u8]) {
    let (size, input) = choice(input);
    let mut client = ClientSession::new(SocketAddr::from(([192, 0, 2, 1], 21)));
    let mut out = Vec::new();
    client.log_in(b"ann", b"secret", &mut out);
    client.plan(Plan::Passive, &mut out);
    client.plan(Plan::ExtendedPassive, &mut out);
    client.transfer(b"RETR", b"f", &mut out);
    client.abort(&mut out);
    client.quit(&mut out);
    let mut reader = ReplyReader::default();
    for mut piece in input.chunks(usize::from(size).max(1)) {
        loop {
            match reader.next(&mut piece) {
                Ok(Some(reply)) => {
                    assert!((100..700).contains(&reply.code) && reply.lines().count() > 0);
                    if client.receive(reply, &mut out).is_err() {
                        return;
                    }
                }
                Ok(None) => break,
                Err(_) => return,
            }
        }
    }
}

/// The coding that a byte stands for.
fn coding(byte: u8) -> Coding {
    Coding {
        representation: [Type::Image, Type::Ascii, Type::Ebcdic][usize::from(byte % 3)],
        structure: [Structure::File, Structure::Record][usize::from(byte / 3 % 2)],
        mode: [Mode::Stream, Mode::Block, Mode::Deflate { level: 1 }][usize::from(byte / 6 % 3)],
    }
}

/// Wire bytes: a file or an error, the same however they are cut, with flat memory. And file bytes: they
/// come back from the wire.
pub(crate) fn codec(input: &[u8]) {
    let (kind, input) = choice(input);
    let (size, input) = choice(input);
    let coding = coding(kind);
    let whole = decoded(coding, input, input.len());
    let cut = decoded(coding, input, usize::from(size));
    assert_eq!(cut.is_some(), whole.is_some());
    // Deflate may return more before it reaches the damage; complete data is equal.
    if let (Some(cut), Some(whole)) = (cut, whole) {
        assert_eq!(cut, whole);
    }
    if coding.representation == Type::Image && coding.structure == Structure::File {
        let mut wire = Vec::new();
        let mut encoder = Encoder::new(coding, 0);
        for piece in input.chunks(usize::from(size).max(1)) {
            encoder.encode(piece, &mut wire);
        }
        encoder.finish(&mut wire);
        assert_eq!(decoded(coding, &wire, wire.len()).as_deref(), Some(input));
    }
}

/// The file that wire bytes make, where they make one; at most a MiB of it.
fn decoded(coding: Coding, wire: &[u8], size: usize) -> Option<Vec<u8>> {
    const MOST: usize = 4096;
    let (mut decoder, mut file) = (Decoder::new(coding, 0), Vec::new());
    for piece in wire.chunks(size.max(1)) {
        let mut rest = piece;
        loop {
            let before = file.len();
            let progress = decoder.decode(rest, &mut file, MOST).ok()?;
            assert!(file.len() - before <= MOST + 2, "memory is flat");
            match progress {
                Decoded::Hungry => break,
                Decoded::Full { consumed } | Decoded::Marker { consumed, .. } => rest = &rest[consumed..],
                // The rest belongs to neither side.
                Decoded::EndOfFile { .. } => return Some(file),
            }
            if file.len() > 1 << 20 {
                return None;
            }
        }
    }
    decoder.finish(&mut file).ok()?;
    Some(file)
}

/// Addresses in all their forms: what parses is written, and read again, as the same.
pub(crate) fn address(input: &[u8]) {
    for found in [address::parse_extended(input), address::parse_long(input)].into_iter().flatten() {
        assert_eq!(address::parse_extended(address::format_extended(found).as_bytes()), Ok(found));
        assert_eq!(address::parse_long(address::format_long(found).as_bytes()), Ok(found));
    }
    for found in [address::parse_port(input), address::parse_passive(input)].into_iter().flatten() {
        let IpAddr::V4(ip) = found.ip() else { panic!("PORT is IPv4") };
        assert_eq!(address::parse_port(address::format_port(ip, found.port()).as_bytes()), Some(found));
    }
    let _ = address::parse_extended_passive(input);
}

/// A pattern against a name: any pair ends, soon.
pub(crate) fn glob(input: &[u8]) {
    let mut parts = input.splitn(2, |&byte| byte == b'\n');
    let (pattern, name) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let matches = Glob::new(pattern).matches(name);
    if !Glob::is_pattern(pattern) && !pattern.contains(&b'\\') {
        assert_eq!(matches, pattern == name);
    }
    assert!(Glob::new(b"*").matches(name));
}
