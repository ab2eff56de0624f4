//! A toy FTP server with one known fault: what the benchmark says of it can be held against the truth.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use millrace_ftp::digest::{Algorithm, Hasher};

/// The toy's misbehaviour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    Nothing,
    /// One in this many downloads lacks its last 100 bytes.
    DropsTheEnd(u64),
    /// One in this many downloads gets the content of another file.
    SwapsFiles(u64),
    /// One in this many downloads gets its first half twice.
    RepeatsTheStart(u64),
    /// One in this many downloads is never confirmed.
    NeverConfirms(u64),
    /// Once, after this many NOOPs, no client gets an answer for this long.
    StallsOnce(u64, Duration),
    /// One in this many sessions waits this long for each answer.
    StarvesSessions(u64, Duration),
    /// One in this many sessions waits this long for each download.
    StarvesDownloads(u64, Duration),
    /// Refuses connections beyond this number.
    HoldsAtMost(u64),
    /// Confirms uploads of files that are there already, and keeps the old ones.
    LosesUploads,
    /// Every transfer pauses for this long after its first part.
    Halts(Duration),
}

/// What it has to say of a file's hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hashes {
    None,
    /// `HASH`, which begins with another algorithm than it is asked for.
    Hash,
    /// `XCRC` alone.
    Xcrc,
    /// `HASH`, of something else.
    Wrong,
    /// `HASH`, which is refused for every file.
    Refused,
}

/// A server that runs until its process ends.
pub(crate) struct Toy {
    pub(crate) address: SocketAddr,
    shared: Arc<Shared>,
    _machine: Share,
}

/// Read by a test that needs a part of the machine only, and written by one that needs the whole.
static MACHINE: RwLock<()> = RwLock::new(());

/// What a toy's test has of the machine; this is here for its end.
#[expect(dead_code)]
enum Share {
    Part(RwLockReadGuard<'static, ()>),
    Whole(RwLockWriteGuard<'static, ()>),
    /// The test has its share already.
    Held,
}

struct Shared {
    fault: Fault,
    hashes: Hashes,
    files: Mutex<HashMap<String, Arc<Vec<u8>>>>,
    sessions: AtomicU64,
    present: AtomicU64,
    noops: AtomicU64,
    downloads: AtomicU64,
    faults: AtomicU64,
    /// From where those came who wait for each answer.
    starved: Mutex<Vec<IpAddr>>,
    /// How often a NOOP was answered, by where it came from.
    answered: Mutex<HashMap<IpAddr, u64>>,
    /// Held while a NOOP is answered, so that a stall stops all connections.
    answering: Mutex<()>,
}

impl Toy {
    pub(crate) fn start(fault: Fault) -> Self {
        Self::start_with(fault, Hashes::None)
    }

    /// One that has hashes.
    pub(crate) fn start_with(fault: Fault, hashes: Hashes) -> Self {
        Self::open(fault, hashes, Share::Part(MACHINE.read().unwrap_or_else(PoisonError::into_inner)))
    }

    /// One for a test that says something about times, which must not depend on the load of other tests.
    pub(crate) fn start_alone(fault: Fault) -> Self {
        Self::open(fault, Hashes::None, Share::Whole(MACHINE.write().unwrap_or_else(PoisonError::into_inner)))
    }

    /// One more, for the test that has one.
    pub(crate) fn start_beside(fault: Fault) -> Self {
        Self::open(fault, Hashes::None, Share::Held)
    }

    fn open(fault: Fault, hashes: Hashes, machine: Share) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            fault,
            hashes,
            files: Mutex::default(),
            sessions: AtomicU64::new(0),
            present: AtomicU64::new(0),
            noops: AtomicU64::new(0),
            downloads: AtomicU64::new(0),
            faults: AtomicU64::new(0),
            starved: Mutex::default(),
            answered: Mutex::default(),
            answering: Mutex::default(),
        });
        let toy = Self { address, shared: Arc::clone(&shared), _machine: machine };
        std::thread::spawn(move || {
            for control in listener.incoming().flatten() {
                let shared = Arc::clone(&shared);
                std::thread::spawn(move || Session::new(control, shared).serve());
            }
        });
        toy
    }

    pub(crate) fn url(&self) -> String {
        format!("ftp://toy:toy@{}/", self.address)
    }

    /// How many downloads it has spoilt.
    pub(crate) fn faults(&self) -> u64 {
        self.shared.faults.load(Ordering::SeqCst)
    }
}

impl Toy {
    /// The addresses of the clients that it starves.
    pub(crate) fn starved(&self) -> Vec<IpAddr> {
        self.shared.starved.lock().unwrap().clone()
    }

    /// How often it has answered the NOOPs that came from there.
    pub(crate) fn answered(&self, from: IpAddr) -> u64 {
        self.shared.answered.lock().unwrap().get(&from).copied().unwrap_or(0)
    }

    /// How many downloads it was asked for.
    pub(crate) fn downloads(&self) -> u64 {
        self.shared.downloads.load(Ordering::SeqCst)
    }
}

struct Session {
    control: TcpStream,
    shared: Arc<Shared>,
    passive: Option<TcpListener>,
    /// How long it waits for each answer, or for each download.
    delay: Option<Duration>,
}

impl Session {
    fn new(control: TcpStream, shared: Arc<Shared>) -> Self {
        let number = shared.sessions.fetch_add(1, Ordering::SeqCst);
        let delay = match shared.fault {
            Fault::StarvesSessions(every, delay) | Fault::StarvesDownloads(every, delay)
                if number % every == every - 1 =>
            {
                Some(delay)
            }
            _ => None,
        };
        control.set_nodelay(true).unwrap();
        if let (Some(_), Ok(peer)) = (delay, control.peer_addr()) {
            shared.starved.lock().unwrap().push(peer.ip());
        }
        Self { control, shared, passive: None, delay }
    }

    fn serve(mut self) {
        let lines = BufReader::new(self.control.try_clone().unwrap());
        let present = 1 + self.shared.present.fetch_add(1, Ordering::SeqCst);
        if matches!(self.shared.fault, Fault::HoldsAtMost(most) if present > most) {
            self.shared.present.fetch_sub(1, Ordering::SeqCst);
            return self.say("421 Full.");
        }
        self.say("220 A toy.");
        for line in lines.lines().map_while(Result::ok) {
            let (verb, argument) = line.split_once(' ').unwrap_or((&line, ""));
            let is_waited_for = verb == "RETR" || !matches!(self.shared.fault, Fault::StarvesDownloads(..));
            self.delay.filter(|_| is_waited_for).into_iter().for_each(std::thread::sleep);
            match verb {
                "USER" => self.say("331 Go on."),
                "PASS" => self.say("230 Welcome."),
                "PASV" => self.listen(),
                "RETR" => self.send(argument),
                "STOR" => self.receive(argument),
                "NOOP" => self.noop(),
                "FEAT" => match self.shared.hashes {
                    Hashes::None => self.say("502 What?"),
                    Hashes::Xcrc => self.say("211-Features:\r\n REST STREAM\r\n XCRC\r\n211 End"),
                    _ => self.say("211-Features:\r\n HASH SHA-256;MD5*;\r\n211 End"),
                },
                "HASH" | "XCRC" => self.hash(verb, argument),
                "QUIT" => {
                    self.shared.present.fetch_sub(1, Ordering::SeqCst);
                    self.say("221 Bye.");
                    return;
                }
                _ => self.say("200 Done."),
            }
        }
    }

    fn say(&mut self, reply: &str) {
        let _ = self.control.write_all(format!("{reply}\r\n").as_bytes());
    }

    fn noop(&mut self) {
        let shared = Arc::clone(&self.shared);
        let turn = shared.answering.lock().unwrap();
        if let Fault::StallsOnce(after, length) = self.shared.fault
            && self.shared.noops.fetch_add(1, Ordering::SeqCst) == after
        {
            std::thread::sleep(length);
        }
        drop(turn);
        if let Ok(peer) = self.control.peer_addr() {
            *self.shared.answered.lock().unwrap().entry(peer.ip()).or_default() += 1;
        }
        self.say("200 Here.");
    }

    fn hash(&mut self, verb: &str, name: &str) {
        let file = self.shared.files.lock().unwrap().get(name).cloned();
        let Some(file) = file.filter(|_| self.shared.hashes != Hashes::Refused) else {
            return self.say("550 No.");
        };
        let of = |algorithm, bytes: &[u8]| {
            let mut hasher = Hasher::new(algorithm);
            hasher.update(bytes);
            hasher.finish()
        };
        match (verb, self.shared.hashes) {
            ("XCRC", _) => self.say(&format!("250 {}", of(Algorithm::Crc32, &file).to_uppercase())),
            (_, Hashes::Wrong) => {
                self.say(&format!("213 SHA-256 0-9 {} {name}", of(Algorithm::Sha256, b"?")))
            }
            _ => self.say(&format!("213 SHA-256 0-9 {} {name}", of(Algorithm::Sha256, &file))),
        }
    }

    fn listen(&mut self) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        self.passive = Some(listener);
        self.say(&format!("227 At 127,0,0,1,{},{}", port >> 8, port & 255));
    }

    fn send(&mut self, name: &str) {
        let (file, other) = {
            let files = self.shared.files.lock().unwrap();
            let other = files.iter().find(|(path, _)| *path != name).map(|(_, file)| Arc::clone(file));
            (files.get(name).cloned(), other)
        };
        let (Some(file), Some(listener)) = (file, self.passive.take()) else { return self.say("550 No.") };
        let number = self.shared.downloads.fetch_add(1, Ordering::SeqCst);
        let is_spoilt = |every: u64| number % every == every - 1;
        let middle = file.len() / 2;
        let bytes = match self.shared.fault {
            Fault::DropsTheEnd(every) if is_spoilt(every) => file[..file.len() - 100].to_vec(),
            Fault::SwapsFiles(every) if is_spoilt(every) => other.unwrap().to_vec(),
            Fault::RepeatsTheStart(every) if is_spoilt(every) => [&file[..middle], &file[..middle]].concat(),
            _ => file.to_vec(),
        };
        let is_mute = matches!(self.shared.fault, Fault::NeverConfirms(every) if is_spoilt(every));
        if bytes != *file || is_mute {
            self.shared.faults.fetch_add(1, Ordering::SeqCst);
        }
        self.say("150 Here it comes.");
        let (mut data, _) = listener.accept().unwrap();
        let halt = self.halt().map_or(0, |_| middle);
        let _ = data.write_all(&bytes[..halt]);
        self.halt().into_iter().for_each(std::thread::sleep);
        let _ = data.write_all(&bytes[halt..]);
        drop(data);
        if !is_mute {
            self.say("226 Done.");
        }
    }

    fn halt(&self) -> Option<Duration> {
        if let Fault::Halts(length) = self.shared.fault { Some(length) } else { None }
    }

    fn receive(&mut self, name: &str) {
        let Some(listener) = self.passive.take() else { return self.say("425 No.") };
        self.say("150 Send it.");
        let (mut data, _) = listener.accept().unwrap();
        let mut bytes = Vec::new();
        let mut first = [0];
        if self.halt().is_some() && data.read_exact(&mut first).is_ok() {
            bytes.push(first[0]);
        }
        self.halt().into_iter().for_each(std::thread::sleep);
        let _ = data.read_to_end(&mut bytes);
        let mut files = self.shared.files.lock().unwrap();
        if self.shared.fault != Fault::LosesUploads || !files.contains_key(name) {
            files.insert(name.to_owned(), Arc::new(bytes));
        }
        drop(files);
        self.say("226 Done.");
    }
}
