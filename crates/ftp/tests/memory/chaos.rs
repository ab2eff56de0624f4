//! Sessions under any sequence of lines, answers, failures and deadlines, and what must hold whatever comes.
#![allow(dead_code)]

use std::time::Duration;

use millrace_ftp::Settings;
use millrace_ftp::client::ReplyReader;
use millrace_ftp::session::{Answer, Input, TransferError, Via};
use millrace_vfs::FileError;

use super::Driver;

/// Something that happens to a session.
#[derive(Debug, Clone)]
pub(crate) enum Event {
    /// The client sends a line.
    Line(Vec<u8>),
    /// The client sends a line that is too long.
    LineTooLong,
    /// The open question is answered out of the tree.
    Answer,
    /// The open question fails.
    Fail(u8),
    /// The open question gets an answer that belongs to another.
    Mismatch,
    /// The running transfer ends well.
    Complete,
    /// The running transfer fails.
    Break(u8),
    /// Time passes, in seconds.
    Pass(u8),
    /// The server closes.
    Shutdown,
}

/// Does all of it to a session in which `user` has logged in, then brings everything to its end, and checks
/// that every line had exactly one final reply, in order, each well-formed.
pub(crate) fn survives(user: &str, events: &[Event]) {
    let mut driver = Driver::new(Settings::default());
    driver.tree.insert_directory("/d");
    driver.tree.insert("/d/x", "inner");
    driver.tree.insert("/f", "content\n");
    driver.handle(Input::Connected);
    driver.say(format!("USER {user}"));
    driver.say("PASS secret");
    let (before, mut wire) = (driver.codes.len(), Vec::new());
    for event in events {
        perform(&mut driver, event);
        wire.append(&mut driver.out);
    }
    settle(&mut driver);
    wire.append(&mut driver.out);
    check_count(&driver);
    check_wire(&driver.codes[before..], &wire);
}

fn perform(driver: &mut Driver, event: &Event) {
    match event {
        Event::Line(line) => driver.line(line),
        Event::LineTooLong if driver.session.takes(b"") => driver.handle(Input::LineTooLong),
        Event::Answer => {
            if let Some(request) = driver.question.take() {
                let answer = driver.answer_to(request);
                driver.answer(answer);
            }
        }
        Event::Fail(kind) if driver.question.is_some() => driver.answer(Answer::Failed(file_error(*kind))),
        Event::Mismatch if driver.question.is_some() => {
            let before = driver.finals.len();
            driver.answer(Answer::Lines(Vec::new()));
            assert!(driver.finals.len() > before || driver.question.is_some() || driver.session.is_busy());
        }
        Event::Complete => complete(driver),
        Event::Break(kind) if driver.transfer.is_some() => {
            let before = driver.finals.len();
            driver.end(Err(transfer_error(*kind)));
            assert!(
                driver.finals[before] >= 400,
                "a transfer that failed is not reported as one that did not"
            );
        }
        Event::Pass(seconds) => driver.pass(Duration::from_secs((*seconds).into())),
        Event::Shutdown => driver.handle(Input::Shutdown),
        _ => {}
    }
}

fn complete(driver: &mut Driver) {
    let Some(transfer) = &driver.transfer else { return };
    if let Via::Control(code) = transfer.via {
        driver.out.extend_from_slice(format!("{code}-Status:\r\n{code} End\r\n").as_bytes());
        driver.finals.push(code);
        driver.codes.push(code);
    }
    driver.end(Ok(()));
}

/// Ends the operation under way.
fn settle(driver: &mut Driver) {
    for _ in 0..10_000 {
        if driver.question.is_some() {
            driver.answer(Answer::Failed(FileError::NotFound));
        } else if driver.transfer.is_some() {
            driver.end(Err(TransferError::Stalled));
        } else if !driver.session.is_closed() && !driver.session.takes(b"NOOP") {
            // The delay after a wrong password; the longest is 64 times the first.
            driver.pass(Duration::from_secs(64));
        } else {
            return;
        }
    }
    panic!("it never ends: {:?}", driver.session);
}

fn check_count(driver: &Driver) {
    let expected = driver.lines + driver.others;
    let count = driver.finals.len();
    // A session that is closed for a reason of the server's says so once more than it was asked.
    let said_farewell = driver.session.is_closed() && driver.finals.last() == Some(&421);
    assert!(
        count == expected || said_farewell && count == expected + 1,
        "{count} replies to {expected}: {:?}",
        driver.finals
    );
    assert!(!driver.finals[..count - 1].contains(&421), "421 is the last word");
    assert!(
        driver.session.is_closed() || driver.session.deadline().is_some(),
        "a quiet session has a deadline"
    );
}

/// What went over the wire reads as these replies, so nothing in a name could forge one.
fn check_wire(expected: &[u16], wire: &[u8]) {
    let (mut reader, mut input, mut codes) = (ReplyReader::default(), wire, Vec::new());
    while let Some(reply) = reader.next(&mut input).expect("the replies are well-formed") {
        codes.push(reply.code);
    }
    assert_eq!(codes, expected);
}

fn file_error(kind: u8) -> FileError {
    use FileError::*;
    match kind % 19 {
        0 => NotFound,
        1 => PermissionDenied,
        2 => IsDirectory,
        3 => NotDirectory,
        4 => NotRegular,
        5 => AlreadyExists,
        6 => NotEmpty,
        7 => InvalidName,
        8 => NameTooLong,
        9 => Loop,
        10 => ReadOnly,
        11 => NoSpace,
        12 => QuotaExceeded,
        13 => TooLarge,
        14 => OutOfRange,
        15 => Exhausted,
        16 => CrossDevice,
        17 => Cancelled,
        _ => Io(std::io::Error::other("disk on fire\r\n226 forged")),
    }
}

fn transfer_error(kind: u8) -> TransferError {
    match kind % 6 {
        0 => TransferError::NoConnection("no connection\r\n226 forged".to_owned()),
        1 => TransferError::Broken(std::io::ErrorKind::ConnectionReset.into()),
        2 => TransferError::Stalled,
        3 => TransferError::Aborted,
        4 => TransferError::Malformed("cut short".to_owned()),
        _ => TransferError::File(file_error(kind / 6)),
    }
}

/// Reads events out of bytes: a byte that says which, and what belongs to it.
pub(crate) fn parse(mut bytes: &[u8]) -> Vec<Event> {
    let mut events = Vec::new();
    while let Some((&kind, rest)) = bytes.split_first() {
        bytes = rest;
        let mut next = || {
            let (&byte, rest) = bytes.split_first().unwrap_or((&0, &[]));
            bytes = rest;
            byte
        };
        events.push(match kind {
            1 => Event::Answer,
            2 => Event::Fail(next()),
            3 => Event::Mismatch,
            4 => Event::Complete,
            5 => Event::Break(next()),
            6 => Event::Pass(next()),
            7 => Event::Shutdown,
            8 => Event::LineTooLong,
            _ => {
                let end = rest.iter().position(|&byte| byte == b'\n').unwrap_or(rest.len());
                bytes = rest.get(end + 1..).unwrap_or_default();
                Event::Line([&[kind][..], &rest[..end]].concat())
            }
        });
    }
    events
}
