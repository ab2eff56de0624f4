//! A server from its start until it and all that descends from it have gone.

use std::fs::{self, File, Permissions};
use std::io::Read;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use super::{Installed, PeerError, Setting};
use millrace_load::host::descendants;
use millrace_load::stop::Stop;

/// How long a server may take to answer, on a machine that has other things to do.
const COMING_UP: Duration = Duration::from_secs(30);
/// And to go when it is asked to.
const GOING: Duration = Duration::from_secs(5);
const LOOK: Duration = Duration::from_millis(20);
/// Of what a server said, so much is shown.
const SAID: usize = 600;

/// The folder for test files, below the served root.
const FILES: &str = "files";

/// The document fetched over HTTP: zb's, as long as it was for TUX.
const DOCUMENT: &str = "index.html";
const DOCUMENT_BYTES: usize = 1666;

/// Process groups of running servers, with their folders: a program that must end at once kills them.
static GROUPS: Mutex<Vec<(Pid, PathBuf)>> = Mutex::new(Vec::new());
/// Sets the folders of one process apart.
static FOLDERS: AtomicU32 = AtomicU32::new(0);

/// Where a server listens.
#[derive(Debug, Clone, Copy)]
pub struct Ports {
    /// For control connections, or for HTTP.
    pub control: u16,
    /// For passive data connections, from and to.
    pub passive: (u16, u16),
}

/// Control ports are looked for here: below the ephemeral range, where no client's connection can be in the way.
const CONTROL: (u16, u16) = (2200, 9999);
/// And passive ones lie here.
const PASSIVE: (u16, u16) = (12_000, 31_999);

impl Ports {
    /// Of the `index`-th of `count` servers that run at once: passive ranges are equally long.
    pub fn free(index: usize, count: usize) -> std::io::Result<Self> {
        let length = (PASSIVE.1 - PASSIVE.0 + 1) / count.max(5) as u16;
        let first = PASSIVE.0 + length * index as u16;
        let span = CONTROL.1 - CONTROL.0;
        // From somewhere else in each process: several may look at the same time.
        let start = (std::process::id() % u32::from(span)) as u16;
        let candidates = (0..span).map(|step| CONTROL.0 + (start + step) % span);
        let free = |port: &u16| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok();
        let none = || std::io::Error::other("no port from 2200 to 9999 is free");
        let control = candidates.skip(index).find(free).ok_or_else(none)?;
        Ok(Self { control, passive: (first, first + length - 1) })
    }
}

/// A server that runs.
#[derive(Debug)]
pub struct Running {
    child: Child,
    folder: PathBuf,
    /// How it was started.
    pub argv: Vec<String>,
    /// The served folder, new for this run.
    pub root: PathBuf,
    /// How it is reached, with the account.
    pub url: String,
}

impl Running {
    /// Starts a server and waits until it answers; `more` goes behind its command line, `fill` puts files into what
    /// it serves.
    pub fn start(
        installed: &Installed,
        ports: Ports,
        more: &[String],
        place: &Path,
        fill: &dyn Fn(&Path) -> std::io::Result<()>,
        stop: &Stop,
    ) -> Result<Self, PeerError> {
        let name = installed.peer.name;
        let set_up = |error| PeerError::SetUp { name, error };
        let number = FOLDERS.fetch_add(1, Ordering::Relaxed);
        let folder = place.join(format!("millrace-race-{}-{number}", std::process::id()));
        let begun = (|| {
            let (root, state) = (folder.join("root"), folder.join("state"));
            // vsftpd refuses to serve a root that its user may write to.
            let files = root.join(FILES);
            for (path, mode) in [(&folder, 0o755), (&root, 0o755), (&files, 0o777), (&state, 0o755)] {
                fs::create_dir(path)?;
                fs::set_permissions(path, Permissions::from_mode(mode))?;
            }
            if installed.peer.is_over_http() {
                fs::write(root.join(DOCUMENT), "m".repeat(DOCUMENT_BYTES))?;
            }
            fill(&root)?;
            let setting = Setting { installed, root: &root, state: &state, ports };
            let mut launch = (installed.peer.configure)(&setting)?;
            launch.argv.extend_from_slice(more);
            let output = File::create(folder.join("output"))?;
            let child = Command::new(&launch.argv[0])
                .args(&launch.argv[1..])
                .envs(installed.environment.iter().cloned())
                .current_dir(&state)
                .stdin(Stdio::null())
                .stdout(output.try_clone()?)
                .stderr(output)
                .process_group(0)
                .spawn()?;
            Ok((child, launch, root))
        })();
        let (child, launch, root) = begun.map_err(|error| {
            let _ = fs::remove_dir_all(&folder);
            set_up(error)
        })?;
        if let Some(group) = Pid::from_raw(child.id() as i32) {
            groups().push((group, folder.clone()));
        }
        let account = match launch.user {
            "" => String::new(),
            user => format!("{user}:{}@", launch.password.replace('@', "%40")),
        };
        let path = if installed.peer.is_over_http() { DOCUMENT } else { FILES };
        let url = format!("{}://{account}127.0.0.1:{}/{path}", installed.peer.scheme, ports.control);
        let mut running = Self { child, folder, argv: launch.argv, root, url };
        running.wait_for_answer(installed, ports.control, stop)?;
        Ok(running)
    }

    /// Of the process that was started; others descend from it.
    pub fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    /// The folder that its URL names.
    pub fn files(&self) -> PathBuf {
        self.root.join(FILES)
    }

    /// The end of what it wrote.
    pub fn said(&self) -> String {
        let bytes = fs::read(self.folder.join("output")).unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes[bytes.len().saturating_sub(SAID)..]).trim().to_owned();
        if text.is_empty() { "nothing".to_owned() } else { text }
    }

    fn wait_for_answer(&mut self, installed: &Installed, port: u16, stop: &Stop) -> Result<(), PeerError> {
        let give_up = Instant::now() + COMING_UP;
        let speaks_first = !installed.peer.is_over_http();
        let silent = |after: String, said: String| {
            Err(PeerError::Silent { name: installed.peer.name, port, after, said })
        };
        loop {
            if let Ok(Some(status)) = self.child.try_wait() {
                return silent(format!(", it ended with {status}"), self.said());
            }
            if answers(port, speaks_first) {
                return Ok(());
            }
            if stop.is_asked() {
                return Err(PeerError::Left);
            }
            if Instant::now() > give_up {
                return silent(format!(" within {} s", COMING_UP.as_secs()), self.said());
            }
            thread::sleep(LOOK);
        }
    }

    /// Terminates the process, waits for it, and kills what remains of its group.
    fn end(&mut self) {
        let tree = descendants(self.pid());
        let Some(group) = Pid::from_raw(self.pid()) else { return };
        let _ = kill_process(group, Signal::TERM);
        let give_up = Instant::now() + GOING;
        while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < give_up {
            thread::sleep(LOOK);
        }
        let _ = kill_process_group(group, Signal::KILL);
        // Some daemons put their children into groups of their own.
        for pid in tree.into_iter().filter_map(Pid::from_raw) {
            let _ = kill_process(pid, Signal::KILL);
        }
        let _ = self.child.wait();
        groups().retain(|(other, _)| *other != group);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Ends every server that this process has started, and removes their folders: for a signal's handler, before the
/// process ends.
pub fn end_all() {
    for (group, folder) in groups().drain(..) {
        let tree = descendants(group.as_raw_nonzero().get());
        let _ = kill_process_group(group, Signal::KILL);
        for pid in tree.into_iter().filter_map(Pid::from_raw) {
            let _ = kill_process(pid, Signal::KILL);
        }
        let _ = fs::remove_dir_all(folder);
    }
}

fn groups() -> std::sync::MutexGuard<'static, Vec<(Pid, PathBuf)>> {
    GROUPS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns true if a server is there: an FTP server greets, of an HTTP server a connection is enough.
fn answers(port: u16, speaks_first: bool) -> bool {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let Ok(mut control) = TcpStream::connect_timeout(&address, Duration::from_secs(5)) else { return false };
    if !speaks_first {
        return true;
    }
    let mut greeting = [0; 3];
    let _ = control.set_read_timeout(Some(Duration::from_secs(5)));
    control.read_exact(&mut greeting).is_ok() && greeting == *b"220"
}
