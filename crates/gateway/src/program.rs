//! A CGI program: found, started as a process, written to, read from, ended.
//!
//! The invariant: a process never outlives its [`Program`]. Dropping that ends the whole process group, and leaves no
//! zombie; so it must be dropped where blocking is allowed.

use std::ffi::CString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::OnceLock;

use millrace_http::cgi::Environment;
use millrace_process::{Process, Start};
use millrace_vfs::{FileError, ReadHandle, Storage, VirtualPath, Wait};
use rustix::process::{Signal, kill_process_group};

/// Where programs find others: nothing of the server's own environment reaches them.
pub const PATH: &[u8] = b"/usr/local/bin:/usr/bin:/bin";

/// A program's file, and what a request's path says beside it.
#[derive(Debug)]
pub struct Script {
    /// In the file system.
    file: PathBuf,
    /// As clients name it.
    pub path: VirtualPath,
    /// What stands behind it: empty, or a path.
    pub path_info: Vec<u8>,
}

/// Why a path does not lead to a program.
#[derive(Debug)]
pub enum NoScript {
    /// A file that lies elsewhere than among the programs, whatever its path looks like: it is sent as it is.
    Elsewhere,
    /// A folder. For a file that may not be executed, starting it reports the error.
    NotRunnable,
    /// The file, or one on the way to it, cannot be opened.
    File(FileError),
}

impl From<FileError> for NoScript {
    fn from(error: FileError) -> Self {
        Self::File(error)
    }
}

/// Finds the program that a path beneath `mark` leads to, which may have a slash at its end; `folder` is where programs
/// lie. May wait.
pub fn find(
    storage: &dyn Storage,
    mark: &VirtualPath,
    folder: &Path,
    (path, is_directory): (&VirtualPath, bool),
) -> Result<Script, NoScript> {
    let behind = path.components().skip(mark.components().count());
    let mut script = mark.clone();
    for name in behind {
        script = script.join(name).map_err(|_| FileError::NameTooLong)?;
        let range = match storage.open_read(&script, Wait::Allowed) {
            Ok(ReadHandle::File(range)) => range,
            Ok(ReadHandle::Stream(_)) => return Err(NoScript::Elsewhere),
            Err(_) if storage.metadata(&script, Wait::Allowed)?.is_directory() => continue,
            Err(error) => return Err(error.into()),
        };
        // The opened file, after all roots and links.
        let link = format!("/proc/self/fd/{}", range.file.as_raw_fd());
        let file = std::fs::read_link(link).map_err(FileError::from)?;
        if !file.starts_with(folder) {
            return Err(NoScript::Elsewhere);
        }
        let path_info = path_info(&path.as_bytes()[script.as_bytes().len()..], is_directory);
        return Ok(Script { file, path: script, path_info });
    }
    Err(NoScript::NotRunnable)
}

/// What stands behind a script's name, with the slash at its end: programs tell `/x` from `/x/`, and lead clients from
/// the one to the other.
pub fn path_info(behind: &[u8], is_directory: bool) -> Vec<u8> {
    let slash: &[u8] = if is_directory && !behind.ends_with(b"/") { b"/" } else { b"" };
    [behind, slash].concat()
}

impl Script {
    /// Where its `PATH_INFO` would lie in the file system, as far as that can be told.
    pub fn path_translated(&self) -> Option<Vec<u8>> {
        let file = self.file.as_os_str().as_bytes();
        let root = file.strip_suffix(self.path.as_bytes())?;
        (!self.path_info.is_empty()).then(|| [root, &self.path_info].concat())
    }

    /// Why starting it has failed, if that is not because its file is not a program: the operator must see that.
    pub fn fault(&self, error: &io::Error) -> Option<String> {
        let why = match error.raw_os_error().map(rustix::io::Errno::from_raw_os_error) {
            Some(rustix::io::Errno::NOENT) => "the interpreter that its first line names is not there",
            Some(rustix::io::Errno::NOEXEC) => {
                "it has neither a first line with an interpreter nor code of this machine"
            }
            _ => return None,
        };
        Some(format!("the program {} cannot be run: {why}", self.file.display()))
    }

    /// Starts it. What it says of errors goes to `errors`.
    pub fn start(
        &self,
        variables: &Environment,
        takes_input: bool,
        errors: BorrowedFd<'_>,
    ) -> io::Result<Program> {
        let program = CString::new(self.file.as_os_str().as_bytes())?;
        let folder = self.file.parent().unwrap_or(Path::new("/"));
        let folder = CString::new(folder.as_os_str().as_bytes())?;
        let (output, said) = pipe()?;
        let input = takes_input.then(pipe).transpose()?;
        let body = match &input {
            Some((body, _)) => body.as_fd(),
            None => nothing()?,
        };
        let child = spawn(&Start {
            program: &program,
            arguments: program.as_bytes_with_nul(),
            environment: variables.as_bytes(),
            folder: &folder,
            streams: [body, said.as_fd(), errors],
        })?;
        let file = self.file.clone();
        let mut program = Program { file, child, input: None, output: None, has_ended: false };
        program.output = Some(ours(output)?);
        program.input = input.map(|(_, input)| ours(input)).transpose()?;
        Ok(program)
    }
}

/// The reading end, and the writing end.
fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?)
}

/// Our end of a pipe, which never waits; the program's own does.
fn ours(end: OwnedFd) -> io::Result<File> {
    rustix::io::ioctl_fionbio(&end, true)?;
    Ok(File::from(end))
}

/// What a program reads whose request has no body: the end, at once. It is opened once.
fn nothing() -> io::Result<BorrowedFd<'static>> {
    static NOTHING: OnceLock<File> = OnceLock::new();
    match NOTHING.get() {
        Some(nothing) => Ok(nothing.as_fd()),
        None => {
            let nothing = File::open("/dev/null")?;
            Ok(NOTHING.get_or_init(|| nothing).as_fd())
        }
    }
}

/// Starts a process. A file that is open for writing cannot be run: by an upload that is about to end, or a copy of its
/// descriptor in another process that is just being started. Both are temporary.
fn spawn(start: &Start<'_>) -> io::Result<Process> {
    const ATTEMPTS: u32 = 100;
    for _ in 1..ATTEMPTS {
        match start.start() {
            Err(error) if error.kind() == io::ErrorKind::ExecutableFileBusy => {
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
            started => return started,
        }
    }
    start.start()
}

/// A running program.
#[derive(Debug)]
pub struct Program {
    /// What runs.
    file: PathBuf,
    child: Process,
    /// Its standard input, until the body has been written.
    pub input: Option<File>,
    /// Its standard output, until that has ended.
    pub output: Option<File>,
    /// It was waited for.
    has_ended: bool,
}

impl Program {
    /// Which one it is, for the log.
    pub fn name(&self) -> String {
        format!("the program {}", self.file.display())
    }

    /// Writes to it what it takes.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.input {
            Some(input) => input.write(bytes),
            None => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }

    /// Reads what it has said; 0 is the end.
    pub fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match &mut self.output {
            Some(output) => output.read(buffer),
            None => Ok(0),
        }
    }

    /// What tells of its end.
    pub fn process(&self) -> Option<OwnedFd> {
        self.child.end().ok()
    }

    /// How it ended, if it has.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        // If SIGCHLD is ignored (inherited from the server's parent), the exit status is lost: only the end is known,
        // and the process ID may be reused.
        let status = self.child.try_wait().unwrap_or_else(|_| Some(ExitStatus::default()));
        self.has_ended |= status.is_some();
        status
    }

    fn kill(&self) {
        let _ = kill_process_group(self.child.pid(), Signal::KILL);
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        if !self.has_ended {
            // It was not waited for yet, so its process ID is not reused.
            self.kill();
            let _ = self.child.wait();
        }
    }
}
