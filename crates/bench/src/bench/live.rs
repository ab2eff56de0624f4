//! The live view: what the load does now, and what the figures before it said.
//!
//! A few lines below the prompt, written over five times a second; they are gone when the run is over, and the report
//! stands in their place. No keys are read and nothing is to be restored: whatever ends the program leaves a good terminal.

mod screen;

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io::{self, IsTerminal, Stderr, stderr, stdin, stdout};
use std::time::{Duration, Instant};

use millrace_load::figure::CellReport;
use millrace_load::fixture::FixtureStep;
use millrace_load::plan::{Cell, Plan};
use millrace_load::progress::{Progress, Snapshot};
use millrace_load::stop::Stop;
use millrace_load::units::{counted, users};
use millrace_load::verdict::Bound;
use millrace_terminal::has_color;
use rustix::termios::tcgetwinsize;

use self::screen::{Color, Row, Screen};
use super::progress::Between;

/// Lines of the view.
const HEIGHT: usize = 8;
/// The number of figures that stay visible.
const KEPT: usize = 4;
/// Points of the curve: no terminal is wider.
const POINTS: usize = 500;
/// Columns of the current figure's name, before its bar.
const NAME: usize = 40;
/// The width of a terminal that does not tell its own.
const COLUMNS: usize = 80;
/// The curve's levels.
const LEVELS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// The view, on standard error.
pub(super) struct Live {
    screen: RefCell<Screen<Stderr, HEIGHT>>,
    view: RefCell<View>,
    between: Between,
}

impl Live {
    /// `None` without a terminal: all three streams must be one, or its responses would be lost.
    pub(super) fn open(plan: &Plan) -> Option<Self> {
        if !(stdin().is_terminal() && stdout().is_terminal() && stderr().is_terminal()) {
            return None;
        }
        let screen = Screen::new(stderr(), has_color(&stderr()));
        let view = View::new(plan);
        Some(Self { screen: RefCell::new(screen), view: RefCell::new(view), between: Between::default() })
    }

    /// A terminal that has gone is no reason to end a measurement.
    fn draw(&self) {
        let mut screen = self.screen.borrow_mut();
        let columns = match tcgetwinsize(screen.terminal()) {
            Ok(size) if size.ws_col > 0 => usize::from(size.ws_col),
            _ => COLUMNS,
        };
        let _: io::Result<()> = screen.draw(columns, &self.view.borrow().rows(columns));
    }
}

impl Progress for Live {
    fn tell(&self, snapshot: &Snapshot<'_>) {
        self.view.borrow_mut().note(snapshot);
        self.draw();
    }

    fn stop(&self) -> &Stop {
        &super::STOP
    }

    fn between(&self, step: FixtureStep, done: usize, all: usize) {
        if self.between.is_due(step, done) {
            self.view.borrow_mut().between = Some(step.words(done, all));
            self.draw();
        }
    }

    fn cell_done(&self, cell: &CellReport) {
        self.view.borrow_mut().note_done(cell);
        self.draw();
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        let _: io::Result<()> = self.screen.borrow_mut().clear();
    }
}

/// The state of the display.
struct View {
    title: String,
    begun: Instant,
    planned: Duration,
    now: Option<Now>,
    /// The work between two figures.
    between: Option<String>,
    /// Operations a second, the newest last.
    rates: VecDeque<u64>,
    done: VecDeque<Done>,
}

/// The figure that is being taken.
struct Now {
    name: String,
    place: (usize, usize),
    elapsed: Duration,
    length: Duration,
    sessions: u64,
    ops: u64,
    bytes: u64,
    faults: u64,
    waited_us: u64,
    /// Since the last look.
    rate: f64,
    megabytes: f64,
    mean_ms: Option<f64>,
}

/// A figure that was taken.
struct Done {
    text: String,
    bound: Bound,
    is_faulty: bool,
}

impl View {
    fn new(plan: &Plan) -> Self {
        Self {
            title: format!("{}  {}", plan.name, plan.target),
            begun: Instant::now(),
            planned: plan.time(),
            now: None,
            between: None,
            rates: VecDeque::new(),
            done: VecDeque::new(),
        }
    }

    fn note(&mut self, snapshot: &Snapshot<'_>) {
        self.between = None;
        // Another figure begins anew, and so do its counts.
        let last = self.now.take().filter(|now| now.place == snapshot.cell && now.ops <= snapshot.ops);
        if last.is_none() {
            self.rates.clear();
        }
        let (elapsed, ops, bytes, waited) =
            last.map_or((Duration::ZERO, 0, 0, 0), |now| (now.elapsed, now.ops, now.bytes, now.waited_us));
        let seconds = snapshot.elapsed.saturating_sub(elapsed).as_secs_f64().max(1e-3);
        let new = snapshot.ops - ops;
        let rate = new as f64 / seconds;
        self.rates.push_back(rate as u64);
        if self.rates.len() > POINTS {
            self.rates.pop_front();
        }
        self.now = Some(Now {
            name: name(snapshot.what),
            place: snapshot.cell,
            elapsed: snapshot.elapsed,
            length: snapshot.what.settings.duration,
            sessions: snapshot.sessions,
            ops: snapshot.ops,
            bytes: snapshot.bytes,
            faults: snapshot.faults,
            waited_us: snapshot.waited_us,
            rate,
            megabytes: snapshot.bytes.saturating_sub(bytes) as f64 / seconds / 1e6,
            mean_ms: (new > 0).then(|| snapshot.waited_us.saturating_sub(waited) as f64 / new as f64 / 1e3),
        });
    }

    fn note_done(&mut self, cell: &CellReport) {
        let (measured, errors) = (&cell.measured, cell.failures());
        let text = format!(
            "{:<18} {:>6} users {:>8.0} ops/s  p99 {:>8.2} ms  {errors:>4} errors  {}",
            format!("{} {}", measured.op, measured.size.map_or_else(String::new, |size| size.to_string())),
            measured.users,
            cell.ops_per_s,
            cell.latency.p99_ms,
            cell.verdict.bound.name()
        );
        self.done.push_back(Done { text, bound: cell.verdict.bound, is_faulty: errors > 0 });
        if self.done.len() > KEPT {
            self.done.pop_front();
        }
    }

    fn rows(&self, columns: usize) -> [Row; HEIGHT] {
        let mut rows = std::array::from_fn(|_| Row::default());
        let spent = self.begun.elapsed().as_secs();
        rows[0] = Row::plain(format!("{}  {spent} s of about {} s", self.title, self.planned.as_secs()));
        if let Some(between) = &self.between {
            rows[1] = Row::plain(between.as_str());
        } else if let Some(now) = &self.now {
            rows[1] = now.bar(columns);
            rows[2] = Row::colored(Color::Cyan, self.curve(columns));
            rows[3] = now.numbers();
        }
        for (done, row) in self.done.iter().zip(&mut rows[HEIGHT - KEPT..]) {
            *row = done.row();
        }
        rows
    }

    /// The newest rates, one a column, against the highest of them.
    fn curve(&self, columns: usize) -> String {
        let newest = || self.rates.iter().skip(self.rates.len().saturating_sub(columns));
        let highest = newest().copied().max().unwrap_or(0).max(1);
        let level = |rate: &u64| rate.saturating_mul(LEVELS.len() as u64 - 1) / highest;
        newest().map(|rate| LEVELS[level(rate) as usize]).collect()
    }
}

impl Now {
    /// The figure's name, and how much of its time is over.
    fn bar(&self, columns: usize) -> Row {
        let name = format!("{}/{} {}", self.place.0 + 1, self.place.1, self.name);
        let (elapsed, length) = (self.elapsed.as_secs_f64(), self.length.as_secs_f64());
        let label = format!(" {elapsed:.1} of {length:.1} s");
        let width = columns.saturating_sub(NAME + label.len());
        let share = (elapsed / length.max(1e-3)).clamp(0.0, 1.0);
        let filled = (share * width as f64) as usize;
        let bar = "█".repeat(filled) + &"░".repeat(width - filled);
        Row::plain(format!("{name:<NAME$.NAME$}")).and(Color::Cyan, bar).and(Color::Plain, label)
    }

    fn numbers(&self) -> Row {
        let mean = self.mean_ms.map_or_else(|| "-".to_owned(), |mean| format!("{mean:.2}"));
        let numbers = format!(
            "{:.0} ops/s   {:.1} MB/s   mean {mean} ms   {}   ",
            self.rate,
            self.megabytes,
            counted(self.sessions, "user")
        );
        let color = if self.faults > 0 { Color::Red } else { Color::Plain };
        Row::plain(numbers).and(color, counted(self.faults, "error"))
    }
}

impl Done {
    fn row(&self) -> Row {
        let color = match self.bound {
            _ if self.is_faulty => Color::Red,
            bound if bound.hides_the_server() => Color::Yellow,
            _ => Color::Plain,
        };
        Row::colored(color, self.text.as_str())
    }
}

fn name(cell: &Cell) -> String {
    let mode = cell.mode.map_or_else(String::new, |mode| format!(" {mode}"));
    let size = cell.size.map_or_else(String::new, |size| format!(" {size} B"));
    format!("{}{size}{mode}, {}", cell.op, users(cell.users))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn screen(view: &View) -> String {
        let mut screen = Screen::new(Vec::new(), false);
        screen.draw(100, &view.rows(100)).unwrap();
        String::from_utf8(screen.terminal().clone()).unwrap()
    }

    fn snapshot(what: &Cell, seconds: u64, ops: u64, faults: u64) -> Snapshot<'_> {
        let elapsed = Duration::from_secs(seconds);
        Snapshot {
            cell: (0, 2),
            what,
            elapsed,
            sessions: 100,
            ops,
            bytes: ops * 1_000_000,
            faults,
            waited_us: ops * 2500,
        }
    }

    #[test]
    fn the_view_says_what_happened_since_the_last_look() {
        let plan = Plan::new("ftp://me:secret@127.0.0.1:1/", None, &[("ops", "retr"), ("duration", "4s")]);
        let plan = plan.unwrap();
        let cell = &plan.cells()[0];
        let mut view = View::new(&plan);
        assert!(screen(&view).contains("custom  ftp://me@127.0.0.1:1/"), "and before anything has");
        view.note(&snapshot(cell, 1, 500, 0));
        view.note(&snapshot(cell, 2, 800, 3));
        let shown = screen(&view);
        for part in
            ["1/2 retr 1024 B pasv, 100 users", "2.0 of 4.0 s", "300 ops/s", "300.0 MB/s", "mean 2.50 ms"]
        {
            assert!(shown.contains(part), "{part}: {shown}");
        }
        assert!(shown.contains("3 errors") && !shown.contains("secret"), "{shown}");
        assert!(
            shown.contains(&format!("{}{} 2.0 of", "█".repeat(23), "░".repeat(24))),
            "half of the time: {shown}"
        );
        assert!(shown.contains("\r\n█▄\x1b[K"), "500 a second, then 300: {shown}");
        view.between = Some(FixtureStep::Removing.words(3, 40_000));
        assert!(screen(&view).contains("removing test files: 3 of 40000; Ctrl-C leaves them there"));
        // The next figure counts from nothing again.
        view.note(&Snapshot { cell: (1, 2), ..snapshot(cell, 1, 7, 0) });
        assert!(screen(&view).contains("7 ops/s"));
    }
}
