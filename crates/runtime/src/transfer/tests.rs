//! Turns of transfers on real sockets, with time passed in.

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::FileExt;
use std::time::Duration;

use millrace_ftp::codec::{Coding, Mode, Type};
use millrace_ftp::session::ByteRange;
use millrace_net::Wire;
use millrace_storage::MemoryStorage;
use millrace_vfs::{FileRange, ReadHandle, Readiness, Storage, Wait, WriteMode};

use super::*;
use millrace_limits::{Limit, Limits, Scope, ServerLimits};

const LENGTH: u64 = 100_000_000;

/// A download whose client takes at once what comes.
struct Download {
    running: Running,
    client: TcpStream,
    tree: Tree,
    member: LimitHandle,
    now: Instant,
}

fn both(rate: u64) -> Limits {
    let rate = Some(Limit::of(rate));
    Limits { download: rate.clone(), upload: rate, ..Limits::default() }
}

/// A file that is all hole, and has no name.
fn file(test: &str) -> ReadHandle {
    let path = std::env::temp_dir().join(format!("millrace-transfer-{}-{test}", std::process::id()));
    let file = File::options().read(true).write(true).create(true).truncate(true).open(&path).unwrap();
    std::fs::remove_file(path).unwrap();
    file.write_all_at(b"x", LENGTH - 1).unwrap();
    ReadHandle::File(FileRange { file: Arc::new(file), size: LENGTH, readiness: Readiness::Cached })
}

/// Both ends of a connection; that of the server does not block.
fn connected() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (socket, _) = listener.accept().unwrap();
    socket.set_nonblocking(true).unwrap();
    (client, socket)
}

fn transfer(content: Content, coding: Coding, announced: Option<u64>) -> Transfer {
    Transfer {
        content,
        via: Via::Passive,
        coding,
        path: VirtualPath::root(),
        skip: 0,
        offset: None,
        announced,
        protection: Protection::Clear,
    }
}

impl Download {
    fn new(test: &str, rate: u64) -> Self {
        let (client, socket) = connected();
        client.set_nonblocking(true).unwrap();
        let now = Instant::now();
        let tree = Tree::new(ServerLimits { server: both(rate), ..ServerLimits::default() }, now, 0);
        let member = tree.connect(socket.local_addr().unwrap(), now).unwrap();
        let content = Content::Send(file(test), ByteRange { start: 0, end: None });
        let transfer = transfer(content, Coding::PLAIN, None);
        let running = Running::new(transfer, Link::Open(Socket::new(socket.into())), 1, now, &member);
        Self { running, client, tree, member, now }
    }

    /// Goes on for so long.
    fn go_on(&mut self, time: Duration) {
        let (end, mut scratch) = (self.now + time, vec![0; 64 * 1024]);
        while self.now < end {
            match self.running.turn(self.now, &mut scratch, &self.tree, &self.member) {
                Turn::Pause => self.now = self.running.pace.paused.unwrap(),
                Turn::Job(kind) => {
                    let done = self.running.lend(kind).run();
                    assert!(self.running.take_back(done, self.now).is_none());
                }
                // A clock that does not advance reaches no limit.
                Turn::Yield | Turn::Wait => self.now += Duration::from_millis(1),
                turn => panic!("{turn:?}"),
            }
            while match self.client.read(&mut scratch) {
                Ok(count) => count > 0,
                Err(error) => error.kind() == ErrorKind::Interrupted,
            } {}
        }
    }

    /// The rate that the kernel was set to, in thousands of bytes a second.
    fn told(&self) -> Option<u64> {
        let Link::Open(socket) = &self.running.link else { panic!("{:?}", self.running.link) };
        stream::paced(&socket.fd).unwrap().map(|rate| rate / 1000)
    }

    fn limit(&self, rate: u64) {
        assert!(self.tree.set(&Scope::Server, &both(rate), self.now));
    }
}

#[test]
fn the_kernel_is_told_the_pace_of_a_limited_download_as_it_changes() {
    let mut download = Download::new("pace", 1_000_000);
    download.go_on(Duration::from_millis(1));
    assert_eq!(download.told(), None, "for a slice nothing is told");
    for rate in [1_000, 400, 3_000] {
        download.limit(rate * 1000);
        download.go_on(Duration::from_secs(2));
        let told = download.told().unwrap();
        assert!((rate..=rate * 117 / 100).contains(&told), "{rate}: {told}");
    }
    download.limit(0);
    download.go_on(Duration::from_millis(5));
    assert_eq!(download.told(), None, "it may be as fast as it can again");
}

#[test]
fn nothing_is_told_of_what_is_not_limited() {
    let mut download = Download::new("free", 0);
    download.go_on(Duration::from_millis(5));
    assert!(download.running.shared.bytes() > 0);
    assert_eq!(download.told(), None);
}

/// An upload of this over `/f`, of which the end has come.
fn uploaded(storage: &MemoryStorage, coding: Coding, announced: Option<u64>, wire: &[u8]) -> Running {
    let (mut client, socket) = connected();
    client.write_all(wire).unwrap();
    drop(client);
    let now = Instant::now();
    let tree = Tree::new(ServerLimits::default(), now, 0);
    let member = tree.connect(socket.local_addr().unwrap(), now).unwrap();
    let path = VirtualPath::parse(b"/f").unwrap();
    let upload = storage.open_write(&path, WriteMode::Replace, Wait::Allowed).unwrap();
    let transfer = transfer(Content::Receive(upload, None), coding, announced);
    let mut running = Running::new(transfer, Link::Open(Socket::new(socket.into())), 1, now, &member);
    let mut scratch = vec![0; 64 * 1024];
    loop {
        match running.turn(now, &mut scratch, &tree, &member) {
            Turn::Commit => return running,
            Turn::Job(kind) => {
                let done = running.lend(kind).run();
                assert!(running.take_back(done, now).is_none());
            }
            Turn::Wait => {
                let Link::Open(socket) = &running.link else { panic!("{:?}", running.link) };
                assert!(stream::wait_readable(&socket.fd, Duration::from_secs(30)));
            }
            turn => panic!("{turn:?}"),
        }
    }
}

#[test]
fn the_end_of_a_client_is_waited_for_where_only_the_end_of_the_data_says_that_this_was_all() {
    let ascii = Coding { representation: Type::Ascii, ..Coding::PLAIN };
    let block = Coding { mode: Mode::Block, ..Coding::PLAIN };
    let (seconds, ms) = (Duration::from_secs, Duration::from_millis);
    for (coding, announced, wire, took, expected) in [
        (Coding::PLAIN, None, &b"ten bytes!"[..], seconds(10), ms(50)),
        (Coding::PLAIN, None, b"ten bytes!", ms(320), ms(20)),
        (Coding::PLAIN, None, b"ten bytes!", ms(15), ms(0)),
        (ascii, None, b"ten bytes!", seconds(10), ms(50)),
        // The announced bytes have arrived, or more; or fewer, however quickly.
        (Coding::PLAIN, Some(10), b"ten bytes!", seconds(10), ms(0)),
        (Coding::PLAIN, Some(9), b"ten bytes!", seconds(10), ms(50)),
        (Coding::PLAIN, Some(11), b"ten bytes!", ms(1), ms(500)),
        (ascii, Some(11), b"ten bytes!", ms(1), ms(0)),
        // It says itself where it ends.
        (block, None, b"\x40\x00\x01x", seconds(10), ms(0)),
    ] {
        let running = uploaded(&MemoryStorage::new(), coding, announced, wire);
        let Work::Receive(receiver) = &running.work else { panic!("{:?}", running.work) };
        let grace = receiver.grace(running.shared.bytes(), took);
        assert_eq!(grace, expected, "{coding:?} {announced:?} {took:?}");
    }
}

#[test]
fn an_upload_whose_client_ends_before_it_is_committed_is_not_whole() {
    let storage = MemoryStorage::new();
    storage.insert("/f", "old");
    let (client, control) = connected();
    let control = OwnedFd::from(control);
    let commit = |grace| {
        let mut job = uploaded(&storage, Coding::PLAIN, None, b"half").lend(JobKind::Sink);
        job.grace = grace;
        job.listen_to(&control);
        job.run().result
    };
    assert!(matches!(commit(Duration::from_millis(1)), Some(Ok(()))));
    // It is not heard of by the worker, which may be busy.
    drop(client);
    let begin = Instant::now();
    assert!(matches!(commit(Duration::from_secs(3600)), Some(Err(TransferError::Aborted))));
    assert!(begin.elapsed() < Duration::from_secs(60));
}

/// Such files exist where the kernel generates the content; others lie on file systems without `sendfile`.
#[test]
fn a_file_that_the_kernel_does_not_send_is_read() {
    let path = "/proc/self/cmdline";
    let content = std::fs::read(path).unwrap();
    let file = Arc::new(File::open(path).unwrap());
    let range = FileRange { file, size: content.len() as u64, readiness: Readiness::Cached };
    let (mut client, socket) = connected();
    let now = Instant::now();
    let tree = Tree::new(ServerLimits::default(), now, 0);
    let member = tree.connect(socket.local_addr().unwrap(), now).unwrap();
    let content_of = Content::Send(ReadHandle::File(range), ByteRange::default());
    let transfer = transfer(content_of, Coding::PLAIN, None);
    let mut running = Running::new(transfer, Link::Open(Socket::new(socket.into())), 1, now, &member);
    let mut scratch = vec![0; 64 * 1024];
    loop {
        match running.turn(now, &mut scratch, &tree, &member) {
            Turn::Done(result) => break result.unwrap(),
            Turn::Job(kind) => {
                let done = running.lend(kind).run();
                assert!(running.take_back(done, now).is_none());
            }
            Turn::Yield => {}
            turn => panic!("{turn:?}"),
        }
    }
    drop(running);
    let mut received = Vec::new();
    client.read_to_end(&mut received).unwrap();
    assert!(received == content);
}

#[test]
fn bytes_that_are_read_and_not_sent_are_left_to_be_sent() {
    let storage = MemoryStorage::new();
    storage.insert("/f", [7; 1000]);
    let handle = storage.open_read(&VirtualPath::parse(b"/f").unwrap(), Wait::Never).unwrap();
    let mut sender = Sender::file(handle, ByteRange { start: 0, end: None }, Coding::PLAIN, 0);
    sender.fill().unwrap();
    assert_eq!(sender.left(), Some(1000));
    let (mut out, shared) = (Wire::default(), Shared::default());
    sender.turn_to_memory((&mut out, 400), &shared, &mut Share::new(400));
    assert_eq!((out.pending().len(), sender.left()), (400, Some(600)));
}
