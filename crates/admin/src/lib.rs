//! The control socket: how a running server is asked and told things from the same computer, and `millrace ctl`, which does
//! so ([`client`]).
//!
//! A Unix socket that only its owner may open (mode 0600). A request is a line of JSON, and so is its answer:
//! see `docs/limits.md`. Each client has a thread, of which there are few; none of it touches a worker but by
//! its inbox.

pub mod client;
mod error;
mod events;
mod request;
pub mod sockets;

use std::fs::Permissions;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::net::sockopt::socket_peercred;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with};

use millrace_server::{Actor, Running};

pub use error::{AdminError, ReloadFailure};

/// Reads the configuration again and applies it.
pub type Reload = Box<dyn Fn() -> Result<Reloaded, ReloadFailure> + Send + Sync>;

/// The keys whose values a reload found changed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reloaded {
    /// Those that it applied.
    pub changed: Vec<&'static str>,
    /// Those that take effect at the next start only.
    pub next_start: Vec<&'static str>,
}

/// Makes the command that starts the successor: the program as it is now installed, with this process's arguments.
pub type Successor = Box<dyn Fn() -> Command + Send + Sync>;

/// The actions that the program around the server performs.
pub struct Orders {
    /// Reads the configuration anew.
    pub reload: Reload,
    /// Starts another server.
    pub successor: Successor,
    /// That one, the process of this number, has taken over.
    pub relieved: Box<dyn Fn(u32) + Send + Sync>,
}

/// Clients at a time; each costs a thread.
const CLIENTS: usize = 16;

/// The longest request.
const LONGEST: u64 = 64 * 1024;

/// How long the program's end waits for answers that are being written, so that the client which asked for the end gets
/// its answer.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// A control socket that is open. It is closed, and removed, when this is dropped, unless the name is another server's by
/// then: while this one waits for the last transfers, its successor may begin.
pub struct Control {
    path: PathBuf,
    /// Of the file that it was opened as.
    number: Option<u64>,
    stop: Arc<AtomicBool>,
    is_given: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    answering: Arc<Answering>,
}

/// How many requests are being answered.
#[derive(Default)]
struct Answering {
    count: Mutex<usize>,
    none: Condvar,
}

impl Answering {
    fn begin(&self) {
        *self.count.lock().unwrap_or_else(PoisonError::into_inner) += 1;
    }

    fn end(&self) {
        *self.count.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        self.none.notify_all();
    }

    fn wait(&self, most: Duration) {
        let count = self.count.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = self.none.wait_timeout_while(count, most, |count| *count > 0);
    }
}

impl std::fmt::Debug for Control {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Control").field("path", &self.path).finish_non_exhaustive()
    }
}

/// The state of a client's thread.
struct Served {
    running: Weak<Running>,
    begun: Instant,
    orders: Orders,
    /// Another server is being started.
    is_upgrading: AtomicBool,
    clients: AtomicUsize,
    answering: Arc<Answering>,
    is_given: Arc<AtomicBool>,
}

impl Control {
    /// Opens the socket. It replaces the socket of a killed or ending server, but not one of a running server.
    pub fn open(path: &Path, running: &Arc<Running>, orders: Orders) -> io::Result<Self> {
        Self::at(path, open(path)?, running, orders)
    }

    /// Opens the socket of a server that relieves another, in the place of that one's: at no moment is there none.
    pub fn replace(path: &Path, running: &Arc<Running>, orders: Orders) -> io::Result<Self> {
        let mut beside = path.as_os_str().to_owned();
        beside.push(format!(".{}", std::process::id()));
        let beside = PathBuf::from(beside);
        let _ = std::fs::remove_file(&beside);
        let listener = bind_to(&beside)?;
        let renamed = std::fs::rename(&beside, path);
        if renamed.is_err() {
            let _ = std::fs::remove_file(&beside);
        }
        renamed?;
        Self::at(path, listener, running, orders)
    }

    /// Serves at a socket that a service manager has opened, and removes at the end.
    pub fn inherited(
        path: &Path,
        listener: UnixListener,
        running: &Arc<Running>,
        orders: Orders,
    ) -> io::Result<Self> {
        let mut control = Self::at(path, listener, running, orders)?;
        // Without the number of its file, the socket is not taken for this server's own.
        control.number = None;
        Ok(control)
    }

    fn at(path: &Path, listener: UnixListener, running: &Arc<Running>, orders: Orders) -> io::Result<Self> {
        let number = number(path);
        let (answering, is_given) = (Arc::new(Answering::default()), Arc::new(AtomicBool::new(false)));
        let served = Arc::new(Served {
            running: Arc::downgrade(running),
            begun: Instant::now(),
            orders,
            is_upgrading: AtomicBool::new(false),
            clients: AtomicUsize::new(0),
            answering: Arc::clone(&answering),
            is_given: Arc::clone(&is_given),
        });
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let accept = move || {
            for stream in listener.incoming() {
                if stopped.load(Ordering::Acquire) {
                    return;
                }
                if let Ok(stream) = stream {
                    take_in(&served, stream);
                }
            }
        };
        let thread = thread::Builder::new().name("millrace-control".to_owned()).spawn(accept)?;
        Ok(Self { path: path.to_owned(), number, stop, is_given, thread: Some(thread), answering })
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if self.is_given.load(Ordering::Acquire) || number(&self.path) != self.number {
            return self.answering.wait(LAST_WORDS);
        }
        // Wakes the thread; where that fails it ends with the process.
        if UnixStream::connect(&self.path).is_ok()
            && let Some(thread) = self.thread.take()
        {
            let _ = thread.join();
        }
        // Another client may have asked for it meanwhile.
        if !self.is_given.load(Ordering::Acquire) {
            let _ = std::fs::remove_file(&self.path);
        }
        self.answering.wait(LAST_WORDS);
    }
}

fn open(path: &Path) -> io::Result<UnixListener> {
    if std::fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket()) {
        match UnixStream::connect(path) {
            Ok(other) if !gives_way(&other) => return Err(io::ErrorKind::AddrInUse.into()),
            // It may just have removed it itself.
            Ok(_) | Err(_) => match std::fs::remove_file(path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            },
        }
    }
    bind_to(path)
}

/// The number of a file, which it keeps while it has another name.
fn number(path: &Path) -> Option<u64> {
    std::fs::symlink_metadata(path).ok().map(|found| found.ino())
}

fn bind_to(path: &Path) -> io::Result<UnixListener> {
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    bind(&socket, &SocketAddrUnix::new(path)?)?;
    // Before any client can connect.
    std::fs::set_permissions(path, Permissions::from_mode(0o600))?;
    listen(&socket, CLIENTS as i32)?;
    Ok(UnixListener::from(socket))
}

/// Asks the server that has the name whether it is about to end.
fn gives_way(mut other: &UnixStream) -> bool {
    let mut answer = String::new();
    let asked = other
        .set_read_timeout(Some(LAST_WORDS))
        .and_then(|()| other.write_all(b"{\"do\":\"give-way\"}\n"))
        .and_then(|()| BufReader::new(other.take(LONGEST)).read_line(&mut answer));
    let said: Option<serde_json::Value> = serde_json::from_str(&answer).ok();
    asked.is_ok() && said.is_some_and(|said| said["ok"] == true)
}

fn take_in(served: &Arc<Served>, stream: UnixStream) {
    if served.clients.fetch_add(1, Ordering::Relaxed) >= CLIENTS {
        served.clients.fetch_sub(1, Ordering::Relaxed);
        return;
    }
    let its = Arc::clone(served);
    let serve = move || {
        // A client that hangs up in the middle is not an error.
        let _ = serve(&its, stream);
        its.clients.fetch_sub(1, Ordering::Relaxed);
    };
    if thread::Builder::new().name("millrace-control".to_owned()).spawn(serve).is_err() {
        served.clients.fetch_sub(1, Ordering::Relaxed);
    }
}

/// `false` where there is no server any more.
fn answer(served: &Served, line: &[u8], by: Option<Actor>, out: &mut UnixStream) -> io::Result<bool> {
    let Some(running) = served.running.upgrade() else { return Ok(false) };
    let mut answer = request::answer(line, &running, served, by).to_string();
    // The end of the server, which may be what was asked for, waits for who holds it.
    drop(running);
    answer.push('\n');
    out.write_all(answer.as_bytes())?;
    Ok(true)
}

fn serve(served: &Served, stream: UnixStream) -> io::Result<()> {
    let by = socket_peercred(&stream).ok().map(|peer| Actor::of_uid(peer.uid.as_raw()));
    let mut out = stream.try_clone()?;
    let mut reader = BufReader::new(stream);
    loop {
        let mut line = Vec::new();
        if reader.by_ref().take(LONGEST).read_until(b'\n', &mut line)? == 0 {
            return Ok(());
        }
        served.answering.begin();
        let answered = answer(served, &line, by, &mut out);
        served.answering.end();
        if !answered? {
            return Ok(());
        }
        if line.last() != Some(&b'\n') {
            // Too long, or the last: what follows would be read as another request.
            return Ok(());
        }
    }
}
