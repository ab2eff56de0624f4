//! The process's side: a worker that meets the others through its standard input and output.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use super::{Order, Report, Word, line};
use crate::driver::{self, Gate, Meeting, WorkerTask};
use crate::ramp_up::RampState;
use crate::stop::Stop;
use crate::tally::{Counts, Live};

/// How often the coordinator is told how far it is.
const TELL: Duration = Duration::from_millis(100);

/// Does what `input` orders and reports to `output`; an error is of these two.
pub fn serve(input: impl Read + Send + 'static, output: impl Write + Send) -> io::Result<()> {
    let mut input = BufReader::new(input);
    let mut said = String::new();
    input.read_line(&mut said)?;
    let mut order: Order = serde_json::from_str(&said)?;
    order.cell.settings.replay = order.script.take().map(Arc::new);
    millrace_net::limits::raise_descriptors();
    let (live, is_over) = (Live::default(), AtomicBool::new(false));
    let (release, released) = channel();
    let ramp_state = Arc::new(RampState::new(order.workers));
    // It outlives this call where the coordinator has nothing more to say: the process then ends around it.
    let (heard, own) = (Arc::clone(&ramp_state), order.index);
    thread::spawn(move || listen(input, &release, &heard, own));
    let output = Mutex::new(output);
    let door = Door { live: &live, ramp_state: &ramp_state, output: &output, released: Mutex::new(released) };
    let report = thread::scope(|scope| {
        let teller = scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) && door.say(&door.live()).is_ok() {
                thread::park_timeout(TELL);
            }
        });
        let driver = driver::open(&order.target, order.address, order.cell.settings.patience);
        let Order { cell, index, workers, .. } = &order;
        let gate = Gate::through(&door);
        let (index, workers, live, ramp_state) = (*index, *workers, &live, &*ramp_state);
        let task = WorkerTask { cell, index, workers, gate: &gate, live, ramp_state, stop: &STOP };
        let report = match driver.work(&task) {
            Ok(tally) => Report::Tally(Box::new(tally)),
            Err(error) => Report::Failed(error.to_string()),
        };
        is_over.store(true, Ordering::Relaxed);
        teller.thread().unpark();
        report
    });
    door.say(&report)
}

/// The request to end the worker.
static STOP: Stop = Stop::new();

/// Reads the coordinator's messages. When the coordinator has ended, it cancels every wait.
fn listen(input: impl BufRead, release: &Sender<()>, ramp_state: &RampState, own: usize) {
    for said in input.lines().map_while(Result::ok) {
        match serde_json::from_str(&said) {
            Ok(Word::Go) => drop(release.send(())),
            Ok(Word::RampSnapshot(snapshot)) => ramp_state.learn(&snapshot, |worker| worker != own),
            Ok(Word::Stop) | Err(_) => drop(STOP.ask()),
        }
    }
    STOP.ask();
}

/// Where this worker meets the others.
struct Door<'a, W> {
    live: &'a Live,
    ramp_state: &'a RampState,
    output: &'a Mutex<W>,
    released: Mutex<Receiver<()>>,
}

impl<W: Write> Door<'_, W> {
    fn live(&self) -> Report {
        Report::Live(Counts::of(self.live), self.ramp_state.snapshot())
    }

    fn say(&self, report: &Report) -> io::Result<()> {
        let mut output = self.output.lock().unwrap_or_else(PoisonError::into_inner);
        output.write_all(&line(report))?;
        output.flush()
    }
}

impl<W: Write + Send> Meeting for Door<'_, W> {
    fn meet(&self) {
        let said = self.say(&self.live()).and_then(|()| self.say(&Report::Here));
        // A coordinator that has ended does not answer any more, so there is nothing to wait for.
        if said.is_ok() {
            let _ = self.released.lock().unwrap_or_else(PoisonError::into_inner).recv();
        }
    }
}
