//! The run's side: a thread that stands in for a worker which is a process.

use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};

use super::{COMMAND, Order, Report, Word, line};
use crate::driver::{DriverError, WorkerTask};
use crate::tally::Tally;

/// Starts a process of `program` for a worker's share, and passes through the phases in its place.
pub(crate) fn work(task: &WorkerTask<'_>, program: &Path, order: &Order) -> Result<Tally, DriverError> {
    let mut coordinator = Coordinator { task, met: 0, was_stopped: false };
    let result = coordinator.lead(program, order);
    if result.is_err() {
        task.gate.spoil();
    }
    // In any case the other workers must not block at the gate.
    task.sit_out_after(coordinator.met);
    result
}

struct Coordinator<'a> {
    task: &'a WorkerTask<'a>,
    /// How often the others were met.
    met: usize,
    was_stopped: bool,
}

impl Coordinator<'_> {
    fn lead(&mut self, program: &Path, order: &Order) -> Result<Tally, DriverError> {
        let mut worker = WorkerProcess::start(program, order).map_err(DriverError::Client)?;
        let output = worker.0.stdout.take().map(BufReader::new);
        let mut input = worker.0.stdin.take();
        for said in output.into_iter().flat_map(BufReader::lines) {
            let said = said.map_err(DriverError::Client)?;
            let report = serde_json::from_str(&said).map_err(|error| died(error.to_string()))?;
            match report {
                Report::Live(counts, snapshot) => {
                    counts.show(self.task.live);
                    let own = self.task.index;
                    self.task.ramp_state.learn(&snapshot, |worker| worker == own);
                    let known = self.task.ramp_state.snapshot();
                    if known != snapshot {
                        tell(input.as_mut(), &Word::RampSnapshot(known));
                    }
                }
                Report::Here => {
                    self.met += 1;
                    self.task.gate.meet();
                    tell(input.as_mut(), &Word::Go);
                }
                Report::Tally(tally) => return Ok(*tally),
                Report::Failed(why) => return Err(died(why)),
            }
            let is_over = self.task.stop.is_asked() || self.task.gate.is_spoilt();
            if is_over && !self.was_stopped {
                self.was_stopped = true;
                tell(input.as_mut(), &Word::Stop);
            }
        }
        Err(died("it ended without a word".to_owned()))
    }
}

fn died(why: String) -> DriverError {
    DriverError::Client(io::Error::other(format!("a worker process: {why}")))
}

/// A process that has ended is noticed at the next read.
fn tell(input: Option<&mut ChildStdin>, word: &Word) {
    if let Some(input) = input {
        let _ = input.write_all(&line(word));
    }
}

/// The process; it does not outlive this.
struct WorkerProcess(Child);

impl WorkerProcess {
    fn start(program: &Path, order: &Order) -> io::Result<Self> {
        // A Ctrl-C in the terminal is the run's: it asks the workers to end, which then send what they have.
        let mut child = Command::new(program)
            .arg(COMMAND)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .process_group(0)
            .spawn()?;
        if let Some(input) = &mut child.stdin {
            let _ = input.write_all(&line(order)); // one that has gone is noticed where it is read from
        }
        Ok(Self(child))
    }
}

impl Drop for WorkerProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
