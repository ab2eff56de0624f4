//! Random bytes and mangled conversations against a live server: afterwards it serves, and holds nothing.
//! The seed is fixed; `MILLRACE_SEED` chooses another, `MILLRACE_STREAMS` how many streams.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::time::Duration;

use millrace_net::Wire;
use millrace_net::tls::{Connector, Trust, Versions};
use millrace_server::Config;

use crate::kit::{
    Client, PATIENCE, Random, Scratch, config, descriptors, eventually, pattern, policy, serve_with,
};
use crate::{alone, expect_descriptors};

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

const LINES: [&[u8]; 40] = [
    b"USER u",
    b"PASS p",
    b"USER",
    b"PASS x",
    b"TYPE I",
    b"TYPE A",
    b"MODE B",
    b"MODE Z",
    b"MODE S",
    b"STRU R",
    b"STRU F",
    b"PASV",
    b"EPSV",
    b"EPSV ALL",
    b"PORT 127,0,0,1,4,1",
    b"EPRT |1|127.0.0.1|1025|",
    b"RETR f",
    b"STOR g",
    b"APPE g",
    b"STOU",
    b"LIST",
    b"NLST *",
    b"MLSD",
    b"LIST -R",
    b"STAT",
    b"STAT /",
    b"ABOR",
    b"REST 5",
    b"RANG 1 3",
    b"RNFR f",
    b"RNTO f",
    b"XSHA256 f",
    b"NOOP",
    b"REIN",
    b"MKD d",
    b"RMD d",
    b"SITE CPFR f",
    b"SITE CPTO h",
    b"\xff\xf4\xff\xf2ABOR",
    b"QUIT",
];

fn stream(random: &mut Random) -> Vec<u8> {
    let mut bytes = Vec::new();
    if random.below(4) > 0 {
        bytes.extend_from_slice(b"USER u\r\nPASS p\r\n");
    }
    for _ in 0..random.below(30) {
        match random.below(12) {
            0 => bytes.extend((0..random.below(300)).map(|_| random.next() as u8)),
            1 => bytes.extend(std::iter::repeat_n(random.next() as u8, random.below(12_000))),
            _ => {
                bytes.extend_from_slice(LINES[random.below(LINES.len())]);
                bytes.extend_from_slice(b"\r\n");
            }
        }
    }
    // A few bytes changed, dropped or put in.
    for _ in 0..random.below(8) {
        if bytes.is_empty() {
            break;
        }
        let at = random.below(bytes.len());
        match random.below(3) {
            0 => bytes[at] = random.next() as u8,
            1 => _ = bytes.remove(at),
            _ => bytes.insert(at, random.next() as u8),
        }
    }
    bytes
}

/// What a client sends that asks for TLS: commands before it and with it, a hello that is whole, cut or mangled, noise.
fn boundary(random: &mut Random, hello: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    if random.below(3) == 0 {
        bytes.extend_from_slice(b"USER u\r\n");
    }
    bytes.extend_from_slice(b"AUTH TLS\r\n");
    match random.below(4) {
        0 => bytes.extend_from_slice(b"PASS p\r\nPWD\r\nPASV\r\n"),
        1 => bytes.extend((0..random.below(600)).map(|_| random.next() as u8)),
        _ => {}
    }
    let at = bytes.len();
    bytes.extend_from_slice(&hello[..random.below(hello.len() + 1)]);
    for _ in 0..random.below(4) {
        let place = at + random.below(bytes.len() - at + 1);
        if let Some(byte) = bytes.get_mut(place) {
            *byte = random.next() as u8;
        }
    }
    bytes
}

/// A ClientHello, as it comes on the wire.
fn hello() -> Vec<u8> {
    let connector = Connector::new(Trust::Anybody, Versions::All, None).unwrap();
    let (mut client, mut out) = (connector.connect("localhost").unwrap(), Wire::default());
    client.receive(&mut [], &mut out, &mut |_| {}).unwrap();
    out.pending().to_vec()
}

#[test]
fn nothing_around_the_beginning_of_tls_does_harm() {
    let _alone = alone();
    let scratch = Scratch::new();
    let before = descriptors();
    let served = serve_with(Config { tls: Some(policy(&scratch)), ..config(scratch.storage()) });
    let mut random = Random(number("MILLRACE_SEED", 0x715) | 1);
    let hello = hello();
    for _ in 0..number("MILLRACE_STREAMS", 150) {
        let bytes = boundary(&mut random, &hello);
        let mut client = Client::connect(served.address);
        client.stream.set_write_timeout(Some(PATIENCE)).unwrap();
        client.stream.set_read_timeout(Some(PATIENCE)).unwrap();
        for piece in bytes.chunks(1 + random.below(bytes.len())) {
            // The server may have closed it.
            if client.stream.write_all(piece).is_err() {
                break;
            }
        }
        let _ = client.stream.shutdown(Shutdown::Write);
        let mut heard = Vec::new();
        // A reset is an end, too.
        let _ = client.stream.read_to_end(&mut heard);
        let behind = heard.windows(6).position(|text| text == b"\r\n234 ").map(|at| &heard[at + 2..]);
        let line = behind.and_then(|behind| behind.split_inclusive(|byte| *byte == b'\n').next());
        if let (Some(behind), Some(line)) = (behind, line) {
            // Records of TLS, of the handshake or an alert; never a reply to what came in clear.
            let next = behind.get(line.len());
            assert!(matches!(next, None | Some(20..=23)), "{}", heard.escape_ascii());
        }
    }
    drop(served.connect());
    drop(served);
    expect_descriptors(before);
}

#[test]
fn random_conversations_do_no_harm() {
    let _alone = alone();
    let scratch = Scratch::new();
    scratch.write("f", &pattern(200_000));
    let mut config = config(scratch.storage());
    config.connect_timeout = Duration::from_millis(200);
    config.login_delay = Duration::from_millis(1);
    let before = descriptors();
    let served = serve_with(config);
    let mut random = Random(number("MILLRACE_SEED", 0x5eed) | 1);
    for _ in 0..number("MILLRACE_STREAMS", 1_500) {
        let bytes = stream(&mut random);
        let mut client = Client::connect(served.address);
        client.stream.set_write_timeout(Some(Duration::from_millis(100))).unwrap();
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let piece = (1 + random.below(2_000)).min(rest.len());
            // The server may have closed it, or may not want more for now.
            if client.stream.write_all(&rest[..piece]).is_err() {
                break;
            }
            rest = &rest[piece..];
        }
        match random.below(4) {
            0 => client.reset(),
            1 => {
                let _ = client.stream.shutdown(Shutdown::Write);
                client.stream.set_read_timeout(Some(Duration::from_millis(5))).unwrap();
                let _ = client.stream.read(&mut [0; 10_000]);
            }
            _ => {}
        }
    }
    let mut client = served.login();
    client.store("STOR check", &pattern(100_000));
    assert!(client.fetch("RETR check") == pattern(100_000));
    drop(client);
    let ports = served.ports.clone();
    let mut crowd: Vec<_> = ports.map(|_| served.login()).collect();
    crowd.iter_mut().for_each(|client| eventually("a port", || client.command("PASV").code == 227));
    drop(crowd);
    drop(served);
    expect_descriptors(before);
}
