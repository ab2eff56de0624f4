//! Programs that are asked something: the question on their standard input, the answer on their standard output.
//!
//! Whatever a program does, asking it ends: one that takes too long is killed, with all that it started, and of
//! what it prints only so much is read. It gets no descriptor of the server's and none of its environment but
//! `PATH`. Called on threads that may wait.

use std::fmt;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};

/// What is kept of standard error, for the log.
const MOST_COMPLAINTS: usize = 4 * 1024;

/// A program and its arguments, and how it is run.
#[derive(Clone)]
pub(crate) struct Program {
    /// The program first: an absolute path, or a name to be found in `PATH`.
    pub(crate) words: Vec<String>,
    /// How long it may take.
    pub(crate) time: Duration,
    /// Bytes of its answer that are read; a longer one is an error.
    pub(crate) most: usize,
}

/// How a program ended by itself.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    pub(crate) answer: Vec<u8>,
    /// The beginning of what it wrote to standard error.
    pub(crate) complaints: Vec<u8>,
}

/// Why there is no answer; full sentences without their full stop.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ProgramError {
    #[error("{program} cannot be run: {source}")]
    Run { program: String, source: io::Error },
    #[error("{program} was ended after {time:?} without an answer")]
    Late { program: String, time: Duration },
    #[error("{program} was ended because it answered more than {most} bytes")]
    Long { program: String, most: usize },
}

impl Program {
    /// Runs it with a question and more environment, and waits for its end.
    pub(crate) fn ask(&self, question: &[u8], environment: &[(&str, &str)]) -> Result<Ended, ProgramError> {
        let end = Instant::now() + self.time;
        let asked = self.start(environment).and_then(|mut child| {
            let answered = self.converse(&mut child, question, end);
            // Whatever it has started ends with it.
            if let Some(group) = Pid::from_raw(i32::try_from(child.id()).unwrap_or(0)) {
                let _ = kill_process_group(group, Signal::KILL);
            }
            let status = child.wait()?;
            answered.map(|answered| answered.map(|(answer, complaints)| Ended { status, answer, complaints }))
        });
        let program = self.words.first().cloned().unwrap_or_default();
        match asked {
            Ok(Ok(ended)) => Ok(ended),
            Ok(Err(Excess::Time)) => Err(ProgramError::Late { program, time: self.time }),
            Ok(Err(Excess::Length)) => Err(ProgramError::Long { program, most: self.most }),
            Err(source) => Err(ProgramError::Run { program, source }),
        }
    }

    fn start(&self, environment: &[(&str, &str)]) -> io::Result<Child> {
        let (program, arguments) =
            self.words.split_first().ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
        let mut command = Command::new(program);
        command.args(arguments).env_clear().envs(environment.iter().copied()).current_dir("/");
        if let Some(path) = std::env::var_os("PATH") {
            command.env("PATH", path);
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0).spawn()
    }

    /// Feeds it and hears it until it ends; what its children still have to say is not waited for.
    fn converse(&self, child: &mut Child, question: &[u8], end: Instant) -> io::Result<Heard> {
        let pid = Pid::from_raw(i32::try_from(child.id()).unwrap_or(0)).ok_or(io::ErrorKind::NotFound)?;
        let ended = pidfd_open(pid, PidfdFlags::empty())?;
        let mut ask = Feed::new(child.stdin.take().map(OwnedFd::from), question)?;
        let mut answer = Hearing::new(child.stdout.take().map(OwnedFd::from), self.most)?;
        let mut complaints = Hearing::new(child.stderr.take().map(OwnedFd::from), MOST_COMPLAINTS)?;
        loop {
            let has_ended = wait(&ended, [ask.pipe(), answer.pipe(), complaints.pipe()], end)?;
            ask.go_on();
            answer.go_on()?;
            complaints.go_on()?;
            if answer.is_over {
                return Ok(Err(Excess::Length));
            }
            match has_ended {
                Some(true) => return Ok(Ok((answer.bytes, complaints.bytes))),
                Some(false) => {}
                None => return Ok(Err(Excess::Time)),
            }
        }
    }
}

/// The answer and the complaints, or what there was too much of.
type Heard = Result<(Vec<u8>, Vec<u8>), Excess>;

enum Excess {
    Time,
    Length,
}

/// Waits until something can be done; answers whether the program has ended, `None` when time is up.
fn wait(
    ended: &OwnedFd,
    [ask, answer, complaints]: [Option<BorrowedFd<'_>>; 3],
    end: Instant,
) -> io::Result<Option<bool>> {
    let left = end.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Ok(None);
    }
    let mut watched = vec![PollFd::new(ended, PollFlags::IN)];
    watched.extend(ask.map(|pipe| PollFd::from_borrowed_fd(pipe, PollFlags::OUT)));
    let heard = [answer, complaints].into_iter().flatten();
    watched.extend(heard.map(|pipe| PollFd::from_borrowed_fd(pipe, PollFlags::IN)));
    let left = Timespec::try_from(left).map_err(|_| io::ErrorKind::InvalidInput)?;
    match poll(&mut watched, Some(&left)) {
        Err(rustix::io::Errno::INTR) => Ok(Some(false)),
        polled => polled.map(|_| Some(!watched[0].revents().is_empty())).map_err(io::Error::from),
    }
}

/// The question, as far as it has not been read.
struct Feed<'a> {
    pipe: Option<std::fs::File>,
    rest: &'a [u8],
}

impl<'a> Feed<'a> {
    fn new(pipe: Option<OwnedFd>, rest: &'a [u8]) -> io::Result<Self> {
        pipe.iter().try_for_each(never_wait)?;
        let mut feed = Self { pipe: pipe.map(Into::into), rest };
        feed.go_on();
        Ok(feed)
    }

    fn pipe(&self) -> Option<BorrowedFd<'_>> {
        self.pipe.as_ref().map(AsFd::as_fd)
    }

    /// A program need not read its question.
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

/// What was printed so far.
struct Hearing {
    pipe: Option<std::fs::File>,
    bytes: Vec<u8>,
    most: usize,
    /// More was printed than is kept.
    is_over: bool,
}

impl Hearing {
    fn new(pipe: Option<OwnedFd>, most: usize) -> io::Result<Self> {
        pipe.iter().try_for_each(never_wait)?;
        Ok(Self { pipe: pipe.map(Into::into), bytes: Vec::new(), most, is_over: false })
    }

    fn pipe(&self) -> Option<BorrowedFd<'_>> {
        self.pipe.as_ref().map(AsFd::as_fd)
    }

    /// Takes what is there now.
    fn go_on(&mut self) -> io::Result<()> {
        let mut buffer = [0; 8 * 1024];
        while let Some(pipe) = &mut self.pipe {
            match pipe.read(&mut buffer) {
                Ok(0) => self.pipe = None,
                Ok(count) => {
                    let kept = count.min(self.most - self.bytes.len());
                    self.bytes.extend_from_slice(&buffer[..kept]);
                    self.is_over |= kept < count;
                    if self.is_over {
                        return Ok(());
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

fn never_wait(pipe: &OwnedFd) -> io::Result<()> {
    let flags = fcntl_getfl(pipe)?;
    Ok(fcntl_setfl(pipe, flags | OFlags::NONBLOCK)?)
}

/// Its arguments may hold what is nobody's business.
impl fmt::Debug for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Program({:?})", self.words.first())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Program {
        let words = ["sh", "-c", script].map(str::to_owned).to_vec();
        Program { words, time: Duration::from_secs(30), most: 64 * 1024 }
    }

    #[test]
    fn a_question_is_answered_with_the_environment_that_was_given() {
        let ended = shell("read line; echo \"$line $WHO\" $HOME; echo no >&2; exit 3")
            .ask(b"hello\n", &[("WHO", "alice")])
            .unwrap();
        assert_eq!(ended.answer, b"hello alice\n");
        assert_eq!(ended.complaints, b"no\n");
        assert_eq!(ended.status.code(), Some(3));
    }

    #[test]
    fn a_question_that_nobody_reads_is_no_error() {
        let ended = shell("exit 0").ask(&vec![b'x'; 1 << 20], &[]).unwrap();
        assert!(ended.status.success());
    }

    #[test]
    fn questions_and_answers_longer_than_a_pipe_pass() {
        let question = vec![b'x'; 1 << 20];
        let ended = Program { most: 1 << 20, ..shell("cat") }.ask(&question, &[]).unwrap();
        assert!(ended.answer == question);
    }

    #[test]
    fn a_program_that_takes_too_long_is_ended_with_what_it_started() {
        let time = Duration::from_millis(300);
        for script in ["sleep 1000", "sleep 1000 & sleep 1000", "exec >&- 2>&-; sleep 1000"] {
            let error = Program { time, ..shell(script) }.ask(b"", &[]).unwrap_err();
            assert!(matches!(error, ProgramError::Late { .. }), "{script}: {error}");
        }
    }

    #[test]
    fn who_stays_behind_is_not_waited_for() {
        let ended = shell("sleep 1000 & echo done").ask(b"", &[]).unwrap();
        assert_eq!(ended.answer, b"done\n");
    }

    #[test]
    fn one_that_prints_without_end_is_ended() {
        let error = shell("yes").ask(b"", &[]).unwrap_err();
        assert!(matches!(error, ProgramError::Long { .. }), "{error}");
        let ended = shell("yes | head -c 1000000 >&2").ask(b"", &[]).unwrap();
        assert_eq!(ended.complaints.len(), MOST_COMPLAINTS);
    }

    #[test]
    fn one_that_is_not_there_is_told() {
        let error =
            Program { words: vec!["/nowhere/at/all".to_owned()], ..shell("") }.ask(b"", &[]).unwrap_err();
        assert!(error.to_string().starts_with("/nowhere/at/all cannot be run"), "{error}");
    }
}
