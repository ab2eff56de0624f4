//! A program that a hook runs: the moment in its environment and as JSON on its input, its word by its exit status.
//!
//! It has a group of processes of its own, a time after which all of it is killed, and as much output as is
//! kept of it: what it says beyond that is read and forgotten, so it neither blocks nor fills the memory.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};

/// Bytes of output that are kept, of each kind.
const KEPT: usize = 4096;

/// Variables that a program inherits; the server's others may hold secrets.
const INHERITED: [&str; 6] = ["PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR"];

/// A program to be run.
#[derive(Debug, Clone)]
pub(super) struct Program {
    /// The file, and its arguments.
    pub(super) words: Vec<OsString>,
    pub(super) environment: Vec<(OsString, OsString)>,
    pub(super) input: Vec<u8>,
    pub(super) time_limit: Duration,
}

/// How it ended.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) how: How,
    /// The beginning of what it said.
    pub(super) output: Vec<u8>,
    /// The beginning of what it complained of.
    pub(super) errors: Vec<u8>,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum How {
    /// With this status.
    Exited(i32),
    /// By a signal that was not ours.
    Killed(i32),
    /// By ours.
    OutOfTime,
}

impl Program {
    /// Runs it to its end.
    pub(super) fn run(&self) -> io::Result<Ended> {
        let (file, arguments) =
            self.words.split_first().ok_or_else(|| io::Error::other("no program is named"))?;
        let inherited = INHERITED.iter().filter_map(|name| Some((*name, std::env::var_os(name)?)));
        let mut child = Command::new(file)
            .args(arguments)
            .env_clear()
            .envs(inherited)
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()?;
        let talked = self.talk(&mut child);
        if !matches!(talked, Ok(Talk { ended: true, .. }))
            && let Some(group) = Pid::from_raw(child.id().cast_signed())
        {
            let _ = kill_process_group(group, Signal::KILL);
        }
        // It has ended: this only collects the status.
        let status = child.wait()?;
        let Talk { ended, output, errors } = talked?;
        let how = match (ended, status.code(), status.signal()) {
            (false, ..) => How::OutOfTime,
            (true, Some(code), _) => How::Exited(code),
            (true, None, signal) => How::Killed(signal.unwrap_or_default()),
        };
        Ok(Ended { how, output, errors })
    }

    /// Gives it its input and takes its output until it has ended, or its time.
    fn talk(&self, child: &mut Child) -> io::Result<Talk> {
        let id = Pid::from_raw(child.id().cast_signed()).ok_or(io::ErrorKind::NotFound)?;
        let handle = pidfd_open(id, PidfdFlags::empty())?;
        let mut input = child.stdin.take().map(|input| File::from(OwnedFd::from(input)));
        let mut out = Ear::new(child.stdout.take().map(OwnedFd::from))?;
        let mut err = Ear::new(child.stderr.take().map(OwnedFd::from))?;
        if let Some(input) = &input {
            rustix::io::ioctl_fionbio(input, true)?;
        }
        let (deadline, mut written) = (Instant::now() + self.time_limit, 0);
        let ended = loop {
            if let Some(pipe) = &mut input
                && feed(pipe, &self.input, &mut written)
            {
                input = None;
            }
            let mut fds = vec![PollFd::new(&handle, PollFlags::IN)];
            fds.extend(input.as_ref().map(|pipe| PollFd::new(pipe, PollFlags::OUT)));
            fds.extend(
                [&out, &err]
                    .into_iter()
                    .filter_map(|ear| Some(PollFd::new(ear.pipe.as_ref()?, PollFlags::IN))),
            );
            let left = deadline.saturating_duration_since(Instant::now());
            let left = Timespec { tv_sec: left.as_secs().cast_signed(), tv_nsec: left.subsec_nanos().into() };
            match poll(&mut fds, Some(&left)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            let has_ended = !fds[0].revents().is_empty();
            drop(fds);
            out.listen();
            err.listen();
            if has_ended || Instant::now() >= deadline {
                break has_ended;
            }
        };
        Ok(Talk { ended, output: out.heard, errors: err.heard })
    }
}

struct Talk {
    ended: bool,
    output: Vec<u8>,
    errors: Vec<u8>,
}

/// Writes what fits; answers whether there is no more to be written.
fn feed(pipe: &mut File, input: &[u8], written: &mut usize) -> bool {
    match pipe.write(&input[*written..]) {
        Ok(count) => {
            *written += count;
            *written == input.len() || count == 0
        }
        Err(error) => !matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted),
    }
}

/// One of its outputs.
struct Ear {
    pipe: Option<File>,
    heard: Vec<u8>,
}

impl Ear {
    fn new(pipe: Option<OwnedFd>) -> io::Result<Self> {
        if let Some(pipe) = &pipe {
            rustix::io::ioctl_fionbio(pipe.as_fd(), true)?;
        }
        Ok(Self { pipe: pipe.map(File::from), heard: Vec::new() })
    }

    /// Takes what there is, but not for ever: it may write as fast as this reads.
    fn listen(&mut self) {
        let mut buffer = [0; 16 * 1024];
        for _ in 0..16 {
            let Some(pipe) = &mut self.pipe else { return };
            match pipe.read(&mut buffer) {
                Ok(0) => self.pipe = None,
                Ok(count) => {
                    let room = KEPT.saturating_sub(self.heard.len()).min(count);
                    self.heard.extend_from_slice(&buffer[..room]);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => self.pipe = None,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, input: &[u8], time_limit: Duration) -> Ended {
        let words = ["/bin/sh", "-c", script].map(OsString::from).to_vec();
        let environment = vec![("MILLRACE_EVENT".into(), "upload".into())];
        Program { words, environment, input: input.to_vec(), time_limit }.run().unwrap()
    }

    const LONG: Duration = Duration::from_secs(30);

    #[test]
    fn a_program_hears_its_input_and_is_heard() {
        let ended = shell("echo $MILLRACE_EVENT; cat; echo oh >&2; exit 3", b"{}", LONG);
        assert_eq!(ended.how, How::Exited(3));
        assert_eq!((&*ended.output, &*ended.errors), (&b"upload\n{}"[..], &b"oh\n"[..]));
    }

    #[test]
    fn a_program_that_hangs_is_killed_with_its_children() {
        let begun = Instant::now();
        let ended = shell("sleep 600 & sleep 600", b"", Duration::from_millis(100));
        assert_eq!(ended.how, How::OutOfTime);
        assert!(begun.elapsed() < LONG);
    }

    #[test]
    fn a_program_that_prints_megabytes_blocks_nobody_and_is_not_kept() {
        let ended = shell("head -c 8000000 /dev/zero; exit 4", b"", LONG);
        assert_eq!((ended.how, ended.output.len()), (How::Exited(4), KEPT));
        let ended = shell("yes", b"", Duration::from_millis(200));
        assert_eq!((ended.how, ended.output.len()), (How::OutOfTime, KEPT));
    }

    #[test]
    fn a_program_that_dies_or_reads_nothing_or_leaves_children_behind_has_ended() {
        assert_eq!(shell("kill -SEGV $$", b"", LONG).how, How::Killed(11));
        let begun = Instant::now();
        assert_eq!(shell("exec <&-; exit 0", &[b'x'; 1 << 20], LONG).how, How::Exited(0));
        assert_eq!(shell("sleep 40 & exit 5", b"", LONG).how, How::Exited(5));
        assert!(begun.elapsed() < LONG);
        assert!(
            Program { words: vec!["/no/such".into()], environment: vec![], input: vec![], time_limit: LONG }
                .run()
                .is_err()
        );
    }
}
