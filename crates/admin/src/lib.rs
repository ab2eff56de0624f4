//! The control socket: how a running server is asked and told things from the same computer, and `millrace ctl`, which does
//! so ([`client`]).
//!
//! A Unix socket that only its owner may open (mode 0600). A request is a line of JSON, and so is its answer:
//! see `docs/limits.md`. Each client has a thread, of which there are few; none of it touches a worker but by
//! its inbox.

mod administration;
pub mod client;
mod error;
mod events;
mod nodes;
mod role;
pub mod sockets;
mod stream;
mod tokens;
pub mod whole_file;

use std::fs::Permissions;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::net::sockopt::socket_peercred;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with};

use millrace_server::{Actor, Administrator, Live};
use serde_json::{Map, Value, json};

pub use administration::{Administration, Orders, Reload, Reloaded, Successor, TestNotices, Validate, Wake};
pub use error::{AdminError, Blame, ReloadFailure};
pub use role::Role;
pub use tokens::{TokenError, Tokens, random_number};

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
    administration: Arc<Administration>,
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
    administration: Arc<Administration>,
    clients: AtomicUsize,
    answering: Arc<Answering>,
}

impl Control {
    /// Opens the socket. It replaces the socket of a killed or ending server, but not one of a running server.
    pub fn open(path: &Path, administration: &Arc<Administration>) -> io::Result<Self> {
        Self::at(path, open(path)?, administration)
    }

    /// Opens the socket of a server that relieves another, in the place of that one's: at no moment is there none.
    pub fn replace(path: &Path, administration: &Arc<Administration>) -> io::Result<Self> {
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
        Self::at(path, listener, administration)
    }

    /// Serves at a socket that a service manager has opened, and removes at the end.
    pub fn inherited(
        path: &Path,
        listener: UnixListener,
        administration: &Arc<Administration>,
    ) -> io::Result<Self> {
        let mut control = Self::at(path, listener, administration)?;
        // Without the number of its file, the socket is not taken for this server's own.
        control.number = None;
        Ok(control)
    }

    fn at(path: &Path, listener: UnixListener, administration: &Arc<Administration>) -> io::Result<Self> {
        let number = number(path);
        let (answering, administration) = (Arc::<Answering>::default(), Arc::clone(administration));
        let served = Arc::new(Served {
            administration: Arc::clone(&administration),
            clients: AtomicUsize::new(0),
            answering: Arc::clone(&answering),
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
        Ok(Self { path: path.to_owned(), number, stop, administration, thread: Some(thread), answering })
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if self.administration.is_given() || number(&self.path) != self.number {
            return self.answering.wait(LAST_WORDS);
        }
        // Wakes the thread; where that fails it ends with the process.
        if UnixStream::connect(&self.path).is_ok()
            && let Some(thread) = self.thread.take()
        {
            let _ = thread.join();
        }
        // Another client may have asked for it meanwhile.
        if !self.administration.is_given() {
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

/// What comes behind an answer.
enum Then {
    /// The next request.
    Next,
    /// Nothing: the server has ended.
    End,
    /// What is followed, when there is some.
    Follow(Live, Receiver<()>),
}

/// Performs the order of a line.
fn answer(
    served: &Served,
    line: &[u8],
    by: Option<Administrator<'_>>,
    out: &mut UnixStream,
) -> io::Result<Then> {
    let Some(running) = served.administration.running() else { return Ok(Then::End) };
    let order: Result<Map<String, Value>, _> = serde_json::from_slice(line);
    let mut then = Then::Next;
    let result = order.map_err(AdminError::from).and_then(|order| match stream::is_live(&order) {
        false => served.administration.perform(order, &running, by),
        true => {
            let (wake, woken) = stream::bell();
            let live = served.administration.follow(order, &running, by, wake)?;
            then = Then::Follow(live, woken);
            Ok(json!({ "ok": true }))
        }
    });
    let answer = result.unwrap_or_else(|error| json!({ "ok": false, "error": error.to_string() }));
    // The end of the server, which may be what was asked for, waits for who holds it.
    drop(running);
    out.write_all(format!("{answer}\n").as_bytes())?;
    Ok(then)
}

fn serve(served: &Served, stream: UnixStream) -> io::Result<()> {
    let by = socket_peercred(&stream).ok().map(|peer| Administrator::Local(Actor::of_uid(peer.uid.as_raw())));
    let mut out = stream.try_clone()?;
    let mut reader = BufReader::new(stream);
    loop {
        let mut line = Vec::new();
        if reader.by_ref().take(LONGEST).read_until(b'\n', &mut line)? == 0 {
            return Ok(());
        }
        served.answering.begin();
        let then = answer(served, &line, by, &mut out);
        served.answering.end();
        match then? {
            Then::Next => {}
            Then::End => return Ok(()),
            Then::Follow(live, woken) => {
                return stream::send(&live, &woken, &served.administration, &mut out);
            }
        }
        if line.last() != Some(&b'\n') {
            // Too long, or the last: what follows would be read as another request.
            return Ok(());
        }
    }
}
