//! The body of the fuzz target `spawner`: what must hold of any message that a server sends which was taken over.
//!
//! `fuzz/` runs it under libFuzzer for as long as one likes; `fuzz_smoke.rs` runs it briefly with every `cargo test`.

use std::fs::File;
use std::io::{IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::LazyLock;

use millrace_process::{Policy, Request, Word, run_spawner};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

/// Where the programs of the policy are.
pub(crate) const FOLDER: &str = "/srv/cgi";

static POLICY: LazyLock<Policy> = LazyLock::new(|| {
    let shell = ["sh", "-c", "true"].map(Word::fixed).to_vec();
    let file = Word { prefix: "--file=".into(), suffix: Some(".part".into()) };
    Policy {
        commands: vec![shell, vec![Word::fixed("sh"), file]],
        folders: vec![FOLDER.into()],
        variables: vec!["MILLRACE_".to_owned(), "QUERY_STRING=".to_owned()],
        ..Policy::default()
    }
});

/// The first byte says what the rest is: a request, a policy, or what comes by a connection.
pub(crate) fn spawner(input: &[u8]) {
    match input.split_first() {
        Some((0..=127, message)) => request(message),
        Some((128..=191, message)) => policy(message),
        Some((how, bytes)) => connection(*how, bytes),
        None => {}
    }
}

/// A request has one meaning, and what the policy allows is what it lists.
fn request(message: &[u8]) {
    let Ok(request) = Request::read(message) else { return };
    assert_eq!(request.to_bytes(), message);
    if !POLICY.allows(&request) {
        return;
    }
    let Request::Program { program, folder, arguments, environment } = request else {
        panic!("the policy has no successor");
    };
    let (program, folder) =
        (program.to_str().expect("text, as the policy is"), folder.to_str().expect("text"));
    let words: Vec<&[u8]> = arguments.strip_suffix(b"\0").expect("an end").split(|&byte| byte == 0).collect();
    match words[..] {
        [b"sh", b"-c", b"true"] => assert!(program.ends_with("/sh") && matches!(folder, "/" | ".")),
        [b"sh", file] => {
            assert!(file.starts_with(b"--file=") && file.ends_with(b".part"));
            assert!(program.ends_with("/sh") && matches!(folder, "/" | "."));
        }
        [file] => {
            assert_eq!(file, program.as_bytes());
            assert!(program.starts_with("/srv/cgi/") && program.split('/').all(|part| part != ".."));
            assert_eq!(Some(Path::new(folder)), Path::new(program).parent());
        }
        _ => panic!("no command of the policy: {words:?}"),
    }
    let variables = environment.split(|&byte| byte == 0).filter(|variable| !variable.is_empty());
    for variable in variables.map(String::from_utf8_lossy) {
        let (name, value) = variable.split_once('=').expect("a name");
        let is_inherited = std::env::var(name).is_ok_and(|own| own == value);
        assert!(name.starts_with("MILLRACE_") || name == "QUERY_STRING" || is_inherited, "{variable}");
    }
}

/// A policy that is read means the same when it is written and read again.
fn policy(message: &[u8]) {
    let Ok(policy) = Policy::read(message) else { return };
    assert_eq!(Policy::read(&policy.to_bytes()).expect("as it was written"), policy);
}

/// Whatever comes by a connection, however it is cut: a spawner whose policy lists nothing starts nothing, answers each
/// message by an error, and ends when the server does.
fn connection(how: u8, bytes: &[u8]) {
    let (mut control, theirs) = UnixStream::pair().expect("sockets");
    let spawner = std::thread::spawn(move || run_spawner(theirs.into()));
    let (mut ours, theirs) = UnixStream::pair().expect("sockets");
    let message = Policy::default().to_bytes();
    send(&control, &(message.len() as u64).to_le_bytes(), &[theirs.as_fd()]);
    control.write_all(&message).expect("it reads");
    drop((control, theirs));
    let nothing = File::open("/dev/null").expect("/dev/null");
    let streams = vec![nothing.as_fd(); usize::from(how % 5)];
    let (first, rest) = bytes.split_at(bytes.len().min(usize::from(how >> 2 & 15)));
    if !first.is_empty() {
        send(&ours, first, &streams);
    }
    // It may have given up already.
    let _ = ours.write_all(rest);
    let _ = ours.shutdown(Shutdown::Write);
    let mut answers = Vec::new();
    // What it did not read is a reset.
    let _ = ours.read_to_end(&mut answers);
    assert!(answers.len().is_multiple_of(8));
    for answer in answers.chunks(8) {
        assert_eq!(answer[..4], [0; 4], "it has started something");
        assert_ne!(answer[4..], [0; 4], "no error");
    }
    drop(ours);
    let _ = spawner.join().expect("no panic");
}

fn send(socket: &UnixStream, bytes: &[u8], descriptors: &[std::os::fd::BorrowedFd<'_>]) {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    assert!(descriptors.is_empty() || ancillary.push(SendAncillaryMessage::ScmRights(descriptors)));
    let sent = sendmsg(socket, &[IoSlice::new(bytes)], &mut ancillary, SendFlags::NOSIGNAL);
    assert_eq!(sent.expect("room"), bytes.len());
}
