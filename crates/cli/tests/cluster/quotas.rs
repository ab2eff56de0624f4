//! A quota over three servers that share a folder, while they are killed.

use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::postgresql::Postgres;
use super::{HASH, Node, PATIENCE, eventually, long_form};

const UPLOADS: usize = 90;
const KILLS: usize = 6;

/// The folder that all nodes serve.
pub(super) struct Folder(pub(super) PathBuf);

impl Folder {
    pub(super) fn new() -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path =
            std::env::temp_dir().join(format!("millrace-cluster-files-{}-{number}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn stored(&self) -> u64 {
        let found = fs::read_dir(&self.0).unwrap().filter_map(|entry| entry.unwrap().metadata().ok());
        found.filter(fs::Metadata::is_file).map(|found| found.len()).sum()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn start(database: &Postgres, folder: &Path, name: &str, most: u64) -> Node {
    let keys = format!(
        "directory = \"{}\"\n[[user]]\nname = \"quota\"\npassword = \"{HASH}\"\ndirectory = \".\"\nquota-bytes = {most}\n",
        folder.display()
    );
    Node::start(database, name, &keys, 3)
}

/// A session of the user with the quota.
struct Uploader(BufReader<TcpStream>);

impl Uploader {
    fn log_in(address: &str) -> io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let mut client = Self(BufReader::new(stream));
        client.reply()?;
        for line in ["USER quota", "PASS password", "TYPE I"] {
            client.say(line)?;
        }
        Ok(client)
    }

    fn reply(&mut self) -> io::Result<String> {
        let mut line = String::new();
        match self.0.read_line(&mut line)? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(line),
        }
    }

    fn say(&mut self, line: &str) -> io::Result<String> {
        write!(self.0.get_mut(), "{line}\r\n")?;
        self.reply()
    }

    /// Stores a file of this size; the last reply.
    fn store(&mut self, name: &str, size: usize) -> io::Result<String> {
        let passive = self.say("EPSV")?;
        let port: Option<u16> = passive.split('|').nth(3).and_then(|port| port.parse().ok());
        let Some(port) = port else { return Ok(passive) };
        let mut data = TcpStream::connect(("127.0.0.1", port))?;
        data.set_read_timeout(Some(PATIENCE))?;
        let first = self.say(&format!("STOR {name}"))?;
        if !first.starts_with("150") {
            return Ok(first);
        }
        // A server that has enough may hang up.
        let _ = data.write_all(&vec![b'x'; size]);
        let _ = data.shutdown(Shutdown::Write);
        let _ = data.read_to_end(&mut Vec::new());
        self.reply()
    }
}

/// What the database has, once every node has told all and nothing is in doubt.
fn recorded(database: &Postgres, node: &Node) -> u64 {
    let row = || {
        database.run(
            "SELECT bytes, files FROM millrace_cluster.tree WHERE NOT doubtful AND lost_bytes = 0 \
             AND NOT EXISTS (SELECT FROM millrace_cluster.share)",
        )
    };
    eventually("the count is in doubt no more", || {
        // A node that is dead is noticed with the next change.
        let changed = Uploader::log_in(&node.address).and_then(|mut client| client.store("last", 1));
        assert!(changed.is_ok());
        let end = Instant::now() + Duration::from_secs(4);
        std::iter::repeat_with(|| !row().is_empty())
            .take_while(|_| Instant::now() < end)
            .any(|is_sure| is_sure)
    });
    row().split('|').next().unwrap().parse().unwrap()
}

#[test]
fn of_ninety_uploads_over_three_nodes_that_are_killed_as_much_is_recorded_as_is_stored() {
    let Some(database) = Postgres::new() else { return };
    let (most, size) = match long_form() {
        Some(_) => (1 << 30, 16 << 20),
        None => (24_000_000, 400_000),
    };
    let folder = Folder::new();
    let begin = |index: usize| start(&database, &folder.0, ["a", "b", "c"][index], most);
    let nodes = [0, 1, 2].map(|index| Mutex::new(begin(index)));
    let (next, acknowledged) = (AtomicUsize::new(0), AtomicUsize::new(0));
    thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= UPLOADS {
                        return;
                    }
                    let address = nodes[number % 3].lock().unwrap().address.clone();
                    // Some replace others. The node may die meanwhile.
                    let stored = Uploader::log_in(&address).and_then(|mut client| {
                        client.store(&format!("{}", number % 80), size + number * 1000)
                    });
                    match stored {
                        Ok(reply) if reply.starts_with("226") => {
                            acknowledged.fetch_add(1, Ordering::Relaxed);
                        }
                        Ok(reply) => assert!(reply.starts_with("552") || reply.starts_with("45"), "{reply}"),
                        Err(_) => {}
                    }
                    assert!(folder.stored() <= most);
                }
            });
        }
        for kill in 0..KILLS {
            let due = (kill + 1) * UPLOADS / (KILLS + 1);
            eventually("some uploads have begun", || next.load(Ordering::Relaxed) >= due);
            let mut node = nodes[kill % 3].lock().unwrap();
            node.child.kill().unwrap();
            *node = begin(kill % 3);
        }
    });
    assert!(acknowledged.load(Ordering::Relaxed) > UPLOADS / 3, "{acknowledged:?}");
    let node = nodes[0].lock().unwrap();
    assert_eq!(recorded(&database, &node), folder.stored());

    // And then it is filled to the last byte.
    let mut client = Uploader::log_in(&nodes[1].lock().unwrap().address).unwrap();
    let left = most - folder.stored();
    let over = client.store("more", usize::try_from(left).unwrap() + 1).unwrap();
    assert!(over.starts_with("552") && over.contains("quota of bytes"), "{over}");
    eventually("the rest fits", || {
        client.store("more", usize::try_from(left).unwrap()).unwrap().starts_with("226")
    });
    assert_eq!(folder.stored(), most);
}
