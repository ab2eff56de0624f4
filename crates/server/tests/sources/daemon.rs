//! An external server for one test: run from a folder of its own, not by root, and never longer than the test.
//!
//! Tests of other crates include this file, too.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// When a test gives up.
const PATIENCE: Duration = Duration::from_secs(60);

/// The user that it runs as where the tests run as root, which databases refuse.
const UNPRIVILEGED_ID: u32 = 65534;

/// The folders in which programs are that no user's path has.
const FOLDERS: [&str; 2] = ["/usr/sbin", "/usr/libexec"];

/// An external server.
pub(crate) struct Daemon {
    folder: PathBuf,
    running: Option<Child>,
}

/// A program by its name; `None` where it is not there and need not be.
pub(crate) fn program(name: &str, package: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    folders.extend(FOLDERS.map(PathBuf::from));
    folders.extend(newest_postgresql());
    let found = folders.iter().map(|folder| folder.join(name)).find(|program| program.is_file());
    if found.is_none() {
        let why = format!("there is no {name}: install the package {package}");
        assert!(std::env::var_os("MILLRACE_REQUIRE_CLIENTS").is_none_or(|value| value == "0"), "{why}");
        eprintln!("passed over: {why}");
    }
    found
}

/// Debian has each version's programs in a folder of its own.
fn newest_postgresql() -> Option<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").ok()?;
    let numbered = versions.filter_map(|entry| {
        let path = entry.ok()?.path();
        Some((path.file_name()?.to_str()?.parse::<f32>().ok()?, path.join("bin")))
    });
    numbered.max_by(|(one, _), (other, _)| one.total_cmp(other)).map(|(_, folder)| folder)
}

fn is_root() -> bool {
    fs::metadata("/proc/self").unwrap().uid() == 0
}

impl Daemon {
    /// One that does not run yet.
    pub(crate) fn new() -> Self {
        static COUNTER: AtomicU32 = AtomicU32::new(0);
        let number = COUNTER.fetch_add(1, Ordering::Relaxed);
        // Short: the path of a socket has 107 characters.
        let folder = std::env::temp_dir().join(format!("millrace-daemon-{}-{number}", std::process::id()));
        fs::create_dir(&folder).unwrap();
        if is_root() {
            chown(&folder, Some(UNPRIVILEGED_ID), Some(UNPRIVILEGED_ID)).unwrap();
        }
        fs::set_permissions(&folder, Permissions::from_mode(0o700)).unwrap();
        Self { folder, running: None }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.folder
    }

    /// Writes a file that only the daemon may read, as some insist on.
    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path().join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        if is_root() {
            chown(&path, Some(UNPRIVILEGED_ID), Some(UNPRIVILEGED_ID)).unwrap();
        }
        path
    }

    /// A program, as the user who owns the folder.
    pub(crate) fn command(&self, program: impl AsRef<Path>) -> Command {
        let mut command = Command::new(program.as_ref());
        // MariaDB clears its temporary folder when it starts: no other's may be in it.
        command.env("TMPDIR", self.path()).env("HOME", self.path()).env("LC_ALL", "C");
        command.current_dir(self.path()).stdin(Stdio::null());
        if is_root() {
            command.uid(UNPRIVILEGED_ID).gid(UNPRIVILEGED_ID);
        }
        command
    }

    /// Runs a program to its end, which has to be a good one; answers what it printed.
    #[track_caller]
    pub(crate) fn run(&self, program: impl AsRef<Path>, arguments: &[&str]) -> String {
        let output = self.command(&program).args(arguments).output().unwrap();
        let complaints = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{} {arguments:?}: {complaints}", program.as_ref().display());
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    /// Starts the program until it answers. One that was killed may leave things behind for a moment that keep the
    /// next from starting; then it is tried again, with arguments of its own (another port).
    pub(crate) fn start(
        &mut self,
        program: &Path,
        mut arguments: impl FnMut() -> Vec<String>,
        mut answers: impl FnMut() -> bool,
    ) {
        let end = Instant::now() + PATIENCE;
        let log = self.path().join("daemon.log");
        loop {
            // The kernel ends it with the test, however that ends.
            let child = self
                .command("setpriv")
                .args(["--pdeathsig", "KILL", "--"])
                .arg(program)
                .args(arguments())
                .stdout(Stdio::null())
                .stderr(fs::File::create(&log).unwrap())
                .spawn()
                .unwrap();
            let child = self.running.insert(child);
            while child.try_wait().unwrap().is_none() {
                if answers() {
                    return;
                }
                let said = || fs::read_to_string(&log).unwrap_or_default();
                assert!(Instant::now() < end, "{} does not start: {}", program.display(), said());
                std::thread::sleep(Duration::from_millis(20));
            }
            let said = fs::read_to_string(&log).unwrap_or_default();
            assert!(Instant::now() < end, "{} ends at once: {said}", program.display());
        }
    }

    /// Ends it as a failing machine would.
    pub(crate) fn kill(&mut self) {
        if let Some(mut child) = self.running.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    /// Stops it from answering, or resumes it.
    pub(crate) fn freeze(&self, is_frozen: bool) {
        let signal = if is_frozen { "-STOP" } else { "-CONT" };
        let child = self.running.as_ref().expect("it runs").id().to_string();
        assert!(Command::new("kill").args([signal, &child]).status().unwrap().success());
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.kill();
        let _ = fs::remove_dir_all(&self.folder);
    }
}
