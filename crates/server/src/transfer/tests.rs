//! Turns of transfers on real sockets, with time passed in.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::FileExt;
use std::time::Duration;

use millrace_ftp::codec::Coding;
use millrace_ftp::session::ByteRange;
use millrace_vfs::{FileRange, ReadHandle, Readiness};

use super::*;
use crate::limits::{Limit, Limits, Scope, ServerLimits};

const LENGTH: u64 = 100_000_000;

/// A download whose client takes at once what comes.
struct Download {
    running: Running,
    client: TcpStream,
    tree: Tree,
    member: Member,
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

impl Download {
    fn new(test: &str, rate: u64) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (socket, _) = listener.accept().unwrap();
        socket.set_nonblocking(true).unwrap();
        client.set_nonblocking(true).unwrap();
        let now = Instant::now();
        let tree = Tree::new(ServerLimits { server: both(rate), ..ServerLimits::default() }, now, 0);
        let member = tree.connect(listener.local_addr().unwrap(), now).unwrap();
        let transfer = Transfer {
            content: Content::Send(file(test), ByteRange { start: 0, end: None }),
            via: Via::Passive,
            coding: Coding::PLAIN,
            path: VirtualPath::root(),
            skip: 0,
            offset: None,
            protection: Protection::Clear,
        };
        let running = Running::new(transfer, Link::Open(Socket::new(socket.into())), 1, now);
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
                // A clock that stands still has no limit to wait for.
                Turn::Yield | Turn::Wait => self.now += Duration::from_millis(1),
                turn => panic!("{turn:?}"),
            }
            while match self.client.read(&mut scratch) {
                Ok(count) => count > 0,
                Err(error) => error.kind() == ErrorKind::Interrupted,
            } {}
        }
    }

    /// What the kernel was told, in thousands of bytes a second.
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
