//! Programs that are run and waited for: accounts ask them, hooks have them work.
//!
//! Whatever a program does, it ends in its time, or is killed with all that it started; its input is written while its
//! output is read, so neither unread input nor megabytes of output block it, and only a limited part of its output is
//! kept. It gets no descriptor of the server's, and of its environment, which may hold secrets, the few variables that
//! are named here. Called on threads that may wait. (CGI programs are in `http/program.rs`: their output is a stream,
//! read by the worker.)

use std::env;
use std::ffi::{CStr, CString, OsStr, OsString};
use std::fmt;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Access, access};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, Signal, kill_process_group};

use crate::{Process, Start};

/// Bytes that are read of an output in one go, so that one that writes as fast as they are read has an end.
const TURN: usize = 256 * 1024;

/// How much of standard error is kept for the log.
const MOST_COMPLAINTS: usize = 4 * 1024;

/// A program to be run.
#[derive(Clone)]
pub struct Program {
    /// The program first: an absolute path, or a name to be found in `PATH`; then its arguments.
    pub words: Vec<OsString>,
    /// Variables, beside those that its purpose has it inherit.
    pub environment: Vec<(OsString, OsString)>,
    /// How long it may take.
    pub time: Duration,
    /// Bytes of its output that are kept.
    pub most: usize,
    /// The purpose of the program.
    pub purpose: Purpose,
}

/// The purpose of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// It produces an answer: an incomplete answer is an error, and nothing that it started outlives it.
    Answer,
    /// It works without a result: the beginning of its output is kept, and its background processes may go on.
    Work,
}

/// Variables that some program inherits.
pub(crate) const INHERITED: &[&str] = &["PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR"];

impl Purpose {
    /// Variables of the server's that it has as well.
    fn inherited(self) -> &'static [&'static str] {
        match self {
            Self::Answer => &["PATH"],
            Self::Work => INHERITED,
        }
    }

    /// Where it runs: nowhere in particular, or where the server does.
    fn folder(self) -> &'static CStr {
        match self {
            Self::Answer => c"/",
            Self::Work => c".",
        }
    }
}

/// The result of a program.
#[derive(Debug)]
pub struct Ended {
    /// How it ended.
    pub how: How,
    /// Its standard output, up to [`Program::most`] bytes.
    pub output: Vec<u8>,
    /// The beginning of what it wrote to standard error.
    pub complaints: Vec<u8>,
}

/// How a program ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    /// With this status.
    Exited(i32),
    /// By a signal that was not ours.
    Killed(i32),
    /// By ours, when its time was over.
    OutOfTime,
    /// By ours, when its answer was longer than is taken.
    TooLong,
}

impl fmt::Display for How {
    /// Behind the program's name.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exited(status) => write!(f, "exited with status {status}"),
            Self::Killed(signal) => write!(f, "was ended by signal {signal}"),
            Self::OutOfTime => f.write_str("took too long"),
            Self::TooLong => f.write_str("answered more than is taken"),
        }
    }
}

impl Program {
    /// Its name, for the log.
    pub fn name(&self) -> String {
        self.words.first().map(|word| word.to_string_lossy().into_owned()).unwrap_or_default()
    }

    /// Runs it to its end with this on its standard input.
    pub fn run(&self, input: &[u8]) -> io::Result<Ended> {
        self.run_unless(&Recall::default(), input)
    }

    /// The same, unless it is cancelled: then it is killed, with all its descendants.
    pub fn run_unless(&self, recall: &Recall, input: &[u8]) -> io::Result<Ended> {
        let end = Instant::now() + self.time;
        let mut child = self.start()?;
        let group = child.process.pid();
        recall.watch(Some(group));
        let talked = self.talk(&mut child, input, end);
        let has_ended = matches!(talked, Ok(Talk { cut: None, .. }));
        if !has_ended || self.purpose == Purpose::Answer {
            let _ = kill_process_group(group, Signal::KILL);
        }
        // Once its status is collected its number may be another's.
        recall.watch(None);
        // It has ended: this only collects the status.
        let status = child.process.wait()?;
        let Talk { cut, output, complaints } = talked?;
        let by_itself = || match status.code() {
            Some(code) => How::Exited(code),
            None => How::Killed(status.signal().unwrap_or_default()),
        };
        Ok(Ended { how: cut.unwrap_or_else(by_itself), output, complaints })
    }

    fn start(&self) -> io::Result<Child> {
        let name = self.words.first().ok_or_else(|| io::Error::other("no program is named"))?;
        let (program, mut arguments, mut environment) = (find(name)?, Vec::new(), Vec::new());
        for word in &self.words {
            add(&[word], &mut arguments)?;
        }
        for name in self.purpose.inherited() {
            if let Some(value) = env::var_os(name) {
                add(&[OsStr::new(name), OsStr::new("="), &value], &mut environment)?;
            }
        }
        for (name, value) in &self.environment {
            add(&[name, OsStr::new("="), value], &mut environment)?;
        }
        let pipe = || pipe_with(PipeFlags::CLOEXEC);
        let ((theirs, input), (output, said), (errors, complaint)) = (pipe()?, pipe()?, pipe()?);
        let process = Start {
            program: &program,
            arguments: &arguments,
            environment: &environment,
            folder: self.purpose.folder(),
            streams: [theirs.as_fd(), said.as_fd(), complaint.as_fd()],
        }
        .start()?;
        Ok(Child { process, input: Some(input), output: Some(output), errors: Some(errors) })
    }

    /// Feeds it and hears it until it ends; what its children still have to say is not waited for.
    fn talk(&self, child: &mut Child, input: &[u8], end: Instant) -> io::Result<Talk> {
        let ended = child.process.end()?;
        let mut feed = Feed::new(child.input.take(), input)?;
        let mut output = Ear::new(child.output.take(), self.most)?;
        let mut complaints = Ear::new(child.errors.take(), MOST_COMPLAINTS)?;
        let cut = loop {
            feed.go_on();
            let has_ended = wait(&ended, [feed.pipe(), output.pipe(), complaints.pipe()], end)?;
            output.listen();
            complaints.listen();
            if output.has_missed && self.purpose == Purpose::Answer {
                break Some(How::TooLong);
            }
            if has_ended {
                break None;
            }
            if Instant::now() >= end {
                break Some(How::OutOfTime);
            }
        };
        Ok(Talk { cut, output: output.heard, complaints: complaints.heard })
    }
}

/// A program that runs, and our ends of its streams.
struct Child {
    process: Process,
    input: Option<OwnedFd>,
    output: Option<OwnedFd>,
    errors: Option<OwnedFd>,
}

/// The file that a name leads to: itself where there is a slash in it, else the first that can be run in the folders of
/// `PATH`.
pub(crate) fn find(name: &OsStr) -> io::Result<CString> {
    if name.as_bytes().contains(&b'/') {
        return Ok(CString::new(name.as_bytes())?);
    }
    let folders = env::var_os("PATH").unwrap_or_else(|| "/usr/bin:/bin".into());
    let is_program = |file: &Path| file.is_file() && access(file, Access::EXEC_OK).is_ok();
    let file = env::split_paths(&folders).map(|folder| folder.join(name)).find(|file| is_program(file));
    Ok(CString::new(file.ok_or(io::ErrorKind::NotFound)?.as_os_str().as_bytes())?)
}

/// Adds an argument, or a variable, in the form in which a program gets it.
fn add(parts: &[&OsStr], block: &mut Vec<u8>) -> io::Result<()> {
    if parts.iter().any(|part| part.as_bytes().contains(&0)) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "a NUL byte in what a program is told"));
    }
    parts.iter().for_each(|part| block.extend_from_slice(part.as_bytes()));
    block.push(0);
    Ok(())
}

/// Cancels a program before or during its run; clones share the state.
#[derive(Debug, Clone, Default)]
pub struct Recall(Arc<Mutex<Recalled>>);

/// Guarded for a look, or a signal.
#[derive(Debug, Default)]
struct Recalled {
    is_given: bool,
    /// The group of the program that runs.
    group: Option<Pid>,
}

impl Recall {
    /// Cancels the program.
    pub fn give(&self) {
        let mut state = self.lock();
        state.is_given = true;
        state.kill();
    }

    /// Returns true if the program was cancelled.
    pub fn is_given(&self) -> bool {
        self.lock().is_given
    }

    /// A program runs, or none does any more.
    fn watch(&self, group: Option<Pid>) {
        let mut state = self.lock();
        state.group = group;
        if state.is_given {
            state.kill();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Recalled> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Recalled {
    fn kill(&self) {
        if let Some(group) = self.group {
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

struct Talk {
    /// Why it has to be ended; `None` where it has ended.
    cut: Option<How>,
    output: Vec<u8>,
    complaints: Vec<u8>,
}

/// Waits until something can be done, or the time is over; answers whether the program has ended.
fn wait(
    ended: &OwnedFd,
    [feed, output, complaints]: [Option<BorrowedFd<'_>>; 3],
    end: Instant,
) -> io::Result<bool> {
    let mut watched = vec![PollFd::new(ended, PollFlags::IN)];
    watched.extend(feed.map(|pipe| PollFd::from_borrowed_fd(pipe, PollFlags::OUT)));
    let heard = [output, complaints].into_iter().flatten();
    watched.extend(heard.map(|pipe| PollFd::from_borrowed_fd(pipe, PollFlags::IN)));
    let left = end.saturating_duration_since(Instant::now());
    let left = Timespec { tv_sec: left.as_secs().cast_signed(), tv_nsec: left.subsec_nanos().into() };
    match poll(&mut watched, Some(&left)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(!watched[0].revents().is_empty()),
        Err(error) => Err(error.into()),
    }
}

/// The rest of its input.
struct Feed<'a> {
    pipe: Option<File>,
    rest: &'a [u8],
}

impl<'a> Feed<'a> {
    fn new(pipe: Option<OwnedFd>, rest: &'a [u8]) -> io::Result<Self> {
        Ok(Self { pipe: never_waiting(pipe)?, rest })
    }

    fn pipe(&self) -> Option<BorrowedFd<'_>> {
        self.pipe.as_ref().map(AsFd::as_fd)
    }

    /// Writes as much input as the program takes now. It need not read it.
    fn go_on(&mut self) {
        let Some(pipe) = &mut self.pipe else { return };
        match pipe.write(self.rest) {
            Ok(count) => self.rest = &self.rest[count..],
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
                return;
            }
            Err(_) => self.rest = &[],
        }
        if self.rest.is_empty() {
            self.pipe = None;
        }
    }
}

/// One of its outputs.
struct Ear {
    pipe: Option<File>,
    heard: Vec<u8>,
    most: usize,
    /// More was said than is kept.
    has_missed: bool,
}

impl Ear {
    fn new(pipe: Option<OwnedFd>, most: usize) -> io::Result<Self> {
        Ok(Self { pipe: never_waiting(pipe)?, heard: Vec::new(), most, has_missed: false })
    }

    fn pipe(&self) -> Option<BorrowedFd<'_>> {
        self.pipe.as_ref().map(AsFd::as_fd)
    }

    /// Takes what there is now, but not for ever.
    fn listen(&mut self) {
        let (mut buffer, mut taken) = ([0; 16 * 1024], 0);
        while let (Some(pipe), true) = (&mut self.pipe, taken < TURN) {
            match pipe.read(&mut buffer) {
                Ok(0) => self.pipe = None,
                Ok(count) => {
                    let kept = count.min(self.most - self.heard.len());
                    self.heard.extend_from_slice(&buffer[..kept]);
                    self.has_missed |= kept < count;
                    taken += count;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => self.pipe = None,
            }
        }
    }
}

fn never_waiting(pipe: Option<OwnedFd>) -> io::Result<Option<File>> {
    pipe.iter().try_for_each(|pipe| rustix::io::ioctl_fionbio(pipe, true))?;
    Ok(pipe.map(File::from))
}

/// Its arguments and variables may hold secrets, so they are not shown.
impl fmt::Debug for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Program({:?})", self.words.first())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(30);
    const SHORT: Duration = Duration::from_millis(300);
    const MOST: usize = 64 * 1024;
    const BOTH: [Purpose; 2] = [Purpose::Answer, Purpose::Work];

    fn shell(script: &str, purpose: Purpose) -> Program {
        let words = ["sh", "-c", script].map(OsString::from).to_vec();
        let environment = vec![("WHO".into(), "alice".into())];
        Program { words, environment, time: LONG, most: MOST, purpose }
    }

    #[test]
    fn a_program_hears_its_input_and_is_heard() {
        let script = "read line; echo \"$line $WHO\"; cat; echo no >&2; exit 3";
        for purpose in BOTH {
            let ended = shell(script, purpose).run(b"hello\nmore").unwrap();
            assert_eq!(ended.output, b"hello alice\nmore");
            assert_eq!((ended.complaints, ended.how), (b"no\n".to_vec(), How::Exited(3)));
        }
        let home = "[ -z \"$CARGO_MANIFEST_DIR\" ] && echo \"$HOME\"";
        assert_eq!(shell(home, Purpose::Answer).run(b"").unwrap().output, b"\n");
        let expected = format!("{}\n", std::env::var("HOME").unwrap_or_default());
        assert_eq!(shell(home, Purpose::Work).run(b"").unwrap().output, expected.as_bytes());
    }

    #[test]
    fn unread_input_and_output_longer_than_a_pipe_block_neither_side() {
        let megabyte = vec![b'x'; 1 << 20];
        for purpose in BOTH {
            assert_eq!(shell("exec <&-; exit 0", purpose).run(&megabyte).unwrap().how, How::Exited(0));
            let ended = Program { most: 1 << 20, ..shell("cat", purpose) }.run(&megabyte).unwrap();
            assert!(ended.output == megabyte);
            let ended = shell("head -c 1000000 /dev/zero >&2", purpose).run(b"").unwrap();
            assert_eq!((ended.how, ended.complaints.len()), (How::Exited(0), MOST_COMPLAINTS));
        }
    }

    #[test]
    fn a_program_that_takes_too_long_is_ended_with_what_it_started() {
        for script in ["sleep 1000", "sleep 1000 & sleep 1000", "exec >&- 2>&-; sleep 1000"] {
            for purpose in BOTH {
                let ended = Program { time: SHORT, ..shell(script, purpose) }.run(b"").unwrap();
                assert_eq!(ended.how, How::OutOfTime, "{script}");
            }
        }
    }

    #[test]
    fn a_program_that_is_recalled_is_ended_with_what_it_started() {
        let recall = Recall::default();
        std::thread::scope(|scope| {
            let running = scope
                .spawn(|| shell("sleep 1000 & echo; sleep 1000", Purpose::Work).run_unless(&recall, b""));
            let begun = Instant::now();
            while recall.lock().group.is_none() {
                assert!(begun.elapsed() < LONG);
                std::thread::yield_now();
            }
            recall.give();
            assert_eq!(running.join().unwrap().unwrap().how, How::Killed(9));
        });
        assert!(recall.lock().group.is_none());
        let before = shell("sleep 1000", Purpose::Work).run_unless(&recall, b"").unwrap();
        assert_eq!(before.how, How::Killed(9), "recalled before it began");
    }

    #[test]
    fn an_answer_that_is_too_long_is_none_and_work_may_say_what_it_likes() {
        assert_eq!(shell("yes", Purpose::Answer).run(b"").unwrap().how, How::TooLong);
        let ended = shell("head -c 8000000 /dev/zero; exit 4", Purpose::Work).run(b"").unwrap();
        assert_eq!((ended.how, ended.output.len()), (How::Exited(4), MOST));
        // How much one says in a short time is the machine's affair.
        let ended = Program { time: SHORT, ..shell("yes", Purpose::Work) }.run(b"").unwrap();
        assert_eq!(ended.how, How::OutOfTime);
        assert!(ended.output.len() <= MOST);
    }

    #[test]
    fn background_children_are_not_awaited_and_end_with_an_answer() {
        let left_by = |purpose| {
            let ended = shell("sleep 1000 & echo $!; exit 5", purpose).run(b"").unwrap();
            assert_eq!(ended.how, How::Exited(5));
            String::from_utf8(ended.output).unwrap().trim().parse().unwrap()
        };
        let is_there = |pid: i32| {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
            stat.is_ok_and(|stat| !stat.contains(") Z "))
        };
        let pid = left_by(Purpose::Work);
        assert!(is_there(pid));
        rustix::process::kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
        let (pid, begun) = (left_by(Purpose::Answer), Instant::now());
        while is_there(pid) {
            assert!(begun.elapsed() < LONG);
            std::thread::yield_now();
        }
    }

    #[test]
    fn one_that_dies_or_is_not_there_is_told() {
        assert_eq!(shell("kill -SEGV $$", Purpose::Work).run(b"").unwrap().how, How::Killed(11));
        let nowhere = Program { words: vec!["/nowhere/at/all".into()], ..shell("", Purpose::Answer) };
        assert_eq!(nowhere.run(b"").unwrap_err().kind(), io::ErrorKind::NotFound);
        assert_eq!(nowhere.name(), "/nowhere/at/all");
    }
}
