//! The body of the fuzz target `privsep`: what must hold of any message that a server sends which was taken over.
//!
//! `fuzz/` runs it under libFuzzer for as long as one likes; `fuzz_smoke.rs` runs it briefly with every `cargo test`.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::path::{Component, Path};
use std::thread;

use millrace_privsep::{
    Answer, FileCall, LONGEST_PASSWORD, LONGEST_USER, Policy, Request, Setup, serve_as_helper,
};
use rustix::io::retry_on_intr;
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
    recv, sendmsg, socketpair,
};

/// The first byte says what the rest is: a message of some kind, or packets on a connection.
pub(crate) fn privsep(input: &[u8]) {
    match input.split_first() {
        Some((0..=79, message)) => request(message),
        Some((80..=159, message)) => call(message),
        Some((160..=199, message)) => others(message),
        Some((how, packets)) => connection(*how, packets),
        None => {}
    }
}

/// A request has one meaning, and its texts keep their bounds.
fn request(message: &[u8]) {
    let Ok(request) = Request::read(message) else { return };
    assert_eq!(request.to_bytes(), message);
    match request {
        Request::Begin(service) => assert!(!service.contains('\0')),
        Request::Check(question) => {
            assert!((1..=LONGEST_USER).contains(&question.user.len()));
            assert!(question.password.len() <= LONGEST_PASSWORD);
            assert!(![question.service, question.user, question.password].concat().contains('\0'));
        }
        Request::OpenFiles(user) => assert!((1..=LONGEST_USER).contains(&user.len())),
        Request::Join => assert_eq!(message.len(), 1),
    }
}

/// A call has one meaning, and no name of it leads to another directory.
fn call(message: &[u8]) {
    let Ok(call) = FileCall::read(message) else { return };
    assert_eq!(call.to_bytes(), message);
    assert!((1..=2).contains(&call.descriptors()));
    let names: &[&[u8]] = match &call {
        FileCall::MakeDirectory { name, .. } | FileCall::Remove { name, .. } => &[name],
        FileCall::LinkFile { name } | FileCall::MakeSymlink { name, .. } => &[name],
        FileCall::Rename { old, new, .. } | FileCall::Link { old, new } => &[old, new],
        _ => &[],
    };
    for name in names {
        let name = Path::new(std::ffi::OsStr::new(str::from_utf8(name).unwrap_or("x")));
        assert!(matches!(name.components().collect::<Vec<_>>()[..], [Component::Normal(_)]), "{name:?}");
    }
}

/// What goes the other ways is read as it was written.
fn others(message: &[u8]) {
    if let Ok(answer) = Answer::read(message) {
        assert_eq!(Answer::read(&answer.to_bytes()).expect("as it was written"), answer);
    }
    if let Ok(policy) = Policy::read(message) {
        assert_eq!(policy.to_bytes(), message);
    }
    if let Ok(setup) = Setup::read(message) {
        assert_eq!(setup.to_bytes(), message);
    }
}

/// Whatever comes by a connection: a helper whose policy names nothing lets nobody in, starts nothing, answers each packet by
/// a failure, and ends when the server does.
fn connection(how: u8, packets: &[u8]) {
    let (control, theirs) = pair();
    let helper = thread::spawn(move || serve_as_helper(theirs, || panic!("it starts a process")));
    let (ours, theirs) = pair();
    send(&control, &Policy::default().to_bytes(), &[theirs.as_fd()]);
    drop(theirs);
    let mut answer = vec![0; 65_536];
    // Done, or why there is no PAM on this machine.
    assert!(receive(&control, &mut answer).is_some());
    let nothing = File::open("/dev/null").expect("/dev/null");
    assert!(nothing.metadata().expect("it is open").file_type().is_char_device());
    let descriptors = vec![nothing.as_fd(); usize::from(how % 5)];
    for packet in packets.split(|&byte| byte == b'\n').filter(|packet| !packet.is_empty()) {
        send(&ours, packet, &descriptors);
        let answer = receive(&ours, &mut answer).expect("an answer");
        // The descriptor is no socket of a successor, which the helper finds out later.
        let may_join = Request::read(packet).is_ok_and(|request| request == Request::Join);
        match Answer::read(answer) {
            Ok(Answer::Failed(_)) => {}
            Ok(Answer::Done) if may_join => {}
            answer => panic!("{answer:?} to {packet:?}"),
        }
    }
    drop((ours, control));
    helper.join().expect("no panic").expect("it ends with the server");
}

fn pair() -> (OwnedFd, OwnedFd) {
    socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).expect("sockets")
}

fn send(socket: &OwnedFd, message: &[u8], descriptors: &[BorrowedFd<'_>]) {
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    assert!(descriptors.is_empty() || ancillary.push(SendAncillaryMessage::ScmRights(descriptors)));
    let parts = [std::io::IoSlice::new(message)];
    retry_on_intr(|| sendmsg(socket, &parts, &mut ancillary, SendFlags::NOSIGNAL)).expect("room");
}

fn receive<'a>(socket: &OwnedFd, buffer: &'a mut [u8]) -> Option<&'a [u8]> {
    // A fuzzer's timer interrupts it.
    let (count, _) = retry_on_intr(|| recv(socket, &mut *buffer, RecvFlags::empty())).expect("a socket");
    (count > 0).then(|| &buffer[..count])
}
