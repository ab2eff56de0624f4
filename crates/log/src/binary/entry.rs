//! Entries of the binary log: what of a request or a transfer is kept, and how it comes back.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use millrace_metrics::{Cause, Waited};
use millrace_vfs::{Conversion, Timestamp, VirtualPath};

use super::record::{self, Record};
use crate::{Direction, Event, Request, Subject, Transferred};

const REQUEST: u8 = 1;
const TRANSFER: u8 = 2;

/// Bytes of a path or a target at most, and of each other name.
const PATH: usize = 4096;
const NAME: usize = 512;

/// What stands at the end of a name that was cut.
const CUT: &[u8] = b"...";

/// The length of a name that is not there.
const NONE: u16 = u16::MAX;

/// Versions of HTTP, by number.
const VERSIONS: [&str; 4] = ["", "HTTP/1.0", "HTTP/1.1", "HTTP/2.0"];

const DIRECTIONS: [Direction; 3] = [Direction::Download, Direction::Upload, Direction::Listing];

/// Flags of a transfer.
const ASCII: u8 = 1;
const COMPRESSED: u8 = 2;
const UNCOMPRESSED: u8 = 4;
const ARCHIVED: u8 = 8;

/// Appends the records of a request.
pub(crate) fn write_request(now: Timestamp, subject: &Subject<'_>, request: &Request<'_>, out: &mut Vec<u8>) {
    let mut head = head_of(now, subject, request.elapsed, request.bytes, &request.waited);
    head[16] = REQUEST;
    head[22..24].copy_from_slice(&request.status.to_le_bytes());
    head[26] = VERSIONS.iter().position(|version| *version == request.protocol).unwrap_or(0) as u8;
    let start = record::begin(&head, out);
    put(out, subject.user, NAME);
    put(out, Some(request.method.as_bytes()), NAME);
    put(out, Some(request.target), PATH);
    for name in [request.host, request.referer, request.agent] {
        put(out, name, NAME);
    }
    record::finish(start, out);
}

/// Appends the records of a transfer.
pub(crate) fn write_transfer(
    now: Timestamp,
    subject: &Subject<'_>,
    transfer: &Transferred<'_>,
    out: &mut Vec<u8>,
) {
    let (_, ended) = transfer.span(now);
    let told =
        Timestamp { seconds: (ended / 1_000_000) as i64, nanoseconds: (ended % 1_000_000) as u32 * 1000 };
    let mut head = head_of(told, subject, transfer.elapsed, transfer.bytes, &transfer.waited);
    let Conversion { compressed, uncompressed, archived } = transfer.conversion;
    let flags = [
        (transfer.ascii, ASCII),
        (compressed, COMPRESSED),
        (uncompressed, UNCOMPRESSED),
        (archived, ARCHIVED),
    ];
    head[16] = TRANSFER;
    head[19] = flags.into_iter().filter(|(is_set, _)| *is_set).map(|(_, flag)| flag).sum();
    head[27] = DIRECTIONS.iter().position(|direction| *direction == transfer.direction).unwrap_or(0) as u8;
    let start = record::begin(&head, out);
    put(out, subject.user, NAME);
    put(out, Some(transfer.path.as_bytes()), PATH);
    for name in [transfer.guest, transfer.hash.map(str::as_bytes), transfer.failure.map(str::as_bytes)] {
        put(out, name, NAME);
    }
    record::finish(start, out);
}

/// Returns what all entries have.
fn head_of(
    now: Timestamp,
    subject: &Subject<'_>,
    elapsed: Duration,
    bytes: u64,
    waited: &Waited,
) -> [u8; 112] {
    let mut head = record::head();
    let time = now.seconds * 1_000_000 + i64::from(now.nanoseconds / 1000);
    let address = match subject.peer.ip() {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    };
    head[24..26].copy_from_slice(&subject.peer.port().to_le_bytes());
    let numbers = [time as u64, elapsed.as_micros() as u64, bytes, subject.session];
    for (number, at) in numbers.into_iter().zip((32..64).step_by(8)) {
        head[at..at + 8].copy_from_slice(&number.to_le_bytes());
    }
    head[64..80].copy_from_slice(&address.octets());
    for (cause, time) in waited.spent() {
        let at = 80 + 4 * cause as usize;
        let milliseconds = u32::try_from(time.as_millis()).unwrap_or(u32::MAX);
        head[at..at + 4].copy_from_slice(&milliseconds.to_le_bytes());
    }
    head
}

fn put(names: &mut Vec<u8>, name: Option<&[u8]>, most: usize) {
    let Some(name) = name else { return names.extend_from_slice(&NONE.to_le_bytes()) };
    let (kept, mark) = if name.len() > most { (&name[..most - CUT.len()], CUT) } else { (name, &b""[..]) };
    names.extend_from_slice(&((kept.len() + mark.len()) as u16).to_le_bytes());
    names.extend_from_slice(kept);
    names.extend_from_slice(mark);
}

/// Takes the first name; `None` where the rest is no name.
fn take<'a>(names: &mut &'a [u8]) -> Option<Option<&'a [u8]>> {
    let (length, rest) = names.split_at_checked(2)?;
    let length = u16::from_le_bytes([length[0], length[1]]);
    if length == NONE {
        *names = rest;
        return Some(None);
    }
    let (name, rest) = rest.split_at_checked(length.into())?;
    *names = rest;
    Some(Some(name))
}

/// Shows an entry, of its first record and all its names, as the event that it was. Returns `None` where it is none.
pub(super) fn read<T>(
    first: &Record,
    mut names: &[u8],
    show: impl FnOnce(Timestamp, &Subject<'_>, &Event<'_>) -> T,
) -> Option<T> {
    let [time, elapsed, bytes, session] = [32, 40, 48, 56].map(|at| record::number(first, at));
    let address: [u8; 16] = first[64..80].try_into().ok()?;
    let port = u16::from_le_bytes([first[24], first[25]]);
    let peer = SocketAddr::new(Ipv6Addr::from(address).to_canonical(), port);
    let time = time as i64;
    let now = Timestamp {
        seconds: time.div_euclid(1_000_000),
        nanoseconds: time.rem_euclid(1_000_000) as u32 * 1000,
    };
    let (elapsed, waited) = (Duration::from_micros(elapsed), waited(first));
    let subject = Subject { session, peer, user: take(&mut names)? };
    match first[16] {
        REQUEST => {
            let [method, target, host, referer, agent] = take_five(&mut names)?;
            let request = Request {
                method: std::str::from_utf8(method?).ok()?,
                target: target?,
                protocol: VERSIONS.get(usize::from(first[26]))?,
                host,
                status: u16::from_le_bytes([first[22], first[23]]),
                bytes,
                referer,
                agent,
                elapsed,
                waited,
                trace: None,
            };
            Some(show(now, &subject, &Event::Requested(&request)))
        }
        TRANSFER => {
            let path = VirtualPath::parse(take(&mut names)??).ok()?;
            let (guest, hash, failure) = (take(&mut names)?, take(&mut names)?, take(&mut names)?);
            let [hash, failure] = [hash, failure].map(|text| text.map(String::from_utf8_lossy));
            let flag = |flag: u8| first[19] & flag != 0;
            let transfer = Transferred {
                direction: *DIRECTIONS.get(usize::from(first[27]))?,
                path: &path,
                bytes,
                elapsed,
                first_byte: None,
                lag: Duration::ZERO,
                waited,
                failure: failure.as_deref(),
                hash: hash.as_deref(),
                ascii: flag(ASCII),
                conversion: Conversion {
                    compressed: flag(COMPRESSED),
                    uncompressed: flag(UNCOMPRESSED),
                    archived: flag(ARCHIVED),
                },
                guest,
                log: None,
            };
            Some(show(now, &subject, &Event::Transferred(&transfer)))
        }
        _ => None,
    }
}

fn take_five<'a>(names: &mut &'a [u8]) -> Option<[Option<&'a [u8]>; 5]> {
    Some([take(names)?, take(names)?, take(names)?, take(names)?, take(names)?])
}

fn waited(first: &Record) -> Waited {
    let milliseconds = |cause: Cause| {
        let at = 80 + 4 * cause as usize;
        u32::from_le_bytes([first[at], first[at + 1], first[at + 2], first[at + 3]])
    };
    Cause::ALL.into_iter().map(|cause| (cause, Duration::from_millis(milliseconds(cause).into()))).collect()
}
