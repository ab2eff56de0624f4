//! The generator's side: a process that does the shares it is ordered to, and ends with its input.

use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::process;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use millrace_load::driver::Meeting;
use millrace_load::elsewhere::{Door, LoadOrder, generate};
use millrace_load::figure::Figures;
use millrace_load::limits::descriptors;
use millrace_load::moment;
use millrace_load::stop::Stop;
use millrace_load::tally::Counts;

use crate::protocol::{Done, Hello, Order, PROTOCOL, Report, line};

/// After the input has ended, a load that does not end by itself has so long.
const GRACE: Duration = Duration::from_secs(3);

/// Does what `input` orders and reports to `output`, until the input ends; an error is of these two.
pub fn serve(input: impl Read + Send + 'static, output: impl Write + Send + 'static) -> io::Result<()> {
    let output = Arc::new(Mutex::new(output));
    say(&output, &Report::Hello(Hello::of_this_process()))?;
    let ((order, orders), (go, gone)) = (channel(), channel());
    let listener = Listener { order, go, output: Arc::clone(&output) };
    thread::spawn(move || listener.listen(BufReader::new(input)));
    let passage = Passage { output: &output, gone: Mutex::new(gone) };
    for order in orders {
        let report = match generate(&order, &passage, &STOP) {
            Ok(Figures { tally, timeline, audit, .. }) => {
                Report::Done(Box::new(Done { tally, timeline, audit }))
            }
            Err(error) => Report::Failed(error.to_string()),
        };
        say(&output, &report)?;
    }
    Ok(())
}

/// The request to end the load.
static STOP: Stop = Stop::new();

impl Hello {
    /// Describes this process.
    pub(crate) fn of_this_process() -> Self {
        let name =
            |path: &str| fs::read_link(path).map_or_else(|_| String::new(), |to| to.display().to_string());
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let machine = format!("{} {}", boot.trim(), name("/proc/self/ns/pid"));
        Self {
            protocol: PROTOCOL,
            host: rustix::system::uname().nodename().to_string_lossy().into_owned(),
            network: format!("{machine} {}", name("/proc/self/ns/net")),
            machine,
            cores: thread::available_parallelism().map_or(1, usize::from),
            descriptors: descriptors(),
        }
    }
}

/// Reads the orders, and answers those that cannot wait.
struct Listener<W> {
    order: Sender<LoadOrder>,
    go: Sender<u64>,
    output: Arc<Mutex<W>>,
}

impl<W: Write> Listener<W> {
    /// Reads until the input ends. The leading process has ended then, and so does the load, if need be with the process.
    fn listen(self, input: impl BufRead) {
        for said in input.lines().map_while(Result::ok) {
            match serde_json::from_str(&said) {
                Ok(Order::Ping(number)) => {
                    let now = moment::now().0.as_nanos() as u64;
                    let _ = say(&self.output, &Report::Pong(number, now)); // a leading process that does not hear it has ended
                }
                Ok(Order::Load(order)) => drop(self.order.send(*order)),
                Ok(Order::Go(at)) => drop(self.go.send(at)),
                Ok(Order::Stop) | Err(_) => drop(STOP.ask()),
            }
        }
        STOP.ask();
        let Self { order, go, .. } = self;
        drop((order, go)); // waits for either end
        thread::sleep(GRACE);
        process::exit(1);
    }
}

/// A generator's way to the leading process.
struct Passage<'a, W> {
    output: &'a Mutex<W>,
    gone: Mutex<Receiver<u64>>,
}

impl<W: Write + Send> Door for Passage<'_, W> {
    fn tell(&self, counts: &[Counts]) {
        if say(self.output, &Report::Live(counts.to_vec())).is_err() {
            STOP.ask();
        }
    }
}

impl<W: Write + Send> Meeting for Passage<'_, W> {
    fn meet(&self) {
        if say(self.output, &Report::Here).is_err() {
            return;
        }
        let at = self.gone.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let now = moment::now().0.as_nanos() as u64;
        thread::sleep(Duration::from_nanos(at.unwrap_or(0).saturating_sub(now)));
    }
}

fn say(output: &Mutex<impl Write>, report: &Report) -> io::Result<()> {
    let mut output = output.lock().unwrap_or_else(PoisonError::into_inner);
    output.write_all(&line(report))?;
    output.flush()
}
