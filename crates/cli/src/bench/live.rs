//! The live view: what the load does now, and what the figures before it said.
//!
//! A few lines below the prompt, written over five times a second; they are gone when the run is over, and the report
//! stands in their place. No keys are read and nothing is to be restored: whatever ends the program leaves a good terminal.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io::{self, IsTerminal, Stderr, stderr, stdin, stdout};
use std::time::{Duration, Instant};

use millrace_load::figure::CellReport;
use millrace_load::fixture::FixtureStep;
use millrace_load::plan::{Cell, Plan};
use millrace_load::progress::{Progress, Snapshot};
use millrace_load::stop::Stop;
use millrace_load::verdict::Bound;
use ratatui::backend::CrosstermBackend;
use ratatui::layout::{Constraint, Layout, Position};
use ratatui::style::{Color, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Gauge, Sparkline};
use ratatui::{Frame, Terminal, TerminalOptions, Viewport};

use super::output::has_color;
use super::progress::Between;

/// Lines of the view.
const HEIGHT: u16 = 8;
/// The number of figures that stay visible.
const KEPT: usize = 4;
/// Points of the curve: no terminal is wider.
const POINTS: usize = 500;

/// The view, on standard error.
pub(super) struct Live {
    terminal: RefCell<Terminal<CrosstermBackend<Stderr>>>,
    view: RefCell<View>,
    between: Between,
}

impl Live {
    /// `None` without a terminal: all three streams must be one, or its responses would be lost.
    pub(super) fn open(plan: &Plan) -> Option<Self> {
        if !(stdin().is_terminal() && stdout().is_terminal() && stderr().is_terminal()) {
            return None;
        }
        let options = TerminalOptions { viewport: Viewport::Inline(HEIGHT) };
        let terminal = Terminal::with_options(CrosstermBackend::new(stderr()), options).ok()?;
        let view = View::new(plan, has_color(&stderr()));
        Some(Self { terminal: RefCell::new(terminal), view: RefCell::new(view), between: Between::default() })
    }

    /// A terminal that has gone is no reason to end a measurement.
    fn draw(&self) {
        let view = self.view.borrow();
        let _: io::Result<_> = self.terminal.borrow_mut().draw(|frame| view.draw(frame)).map(drop);
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
        let _ = self.terminal.borrow_mut().clear();
    }
}

/// The state of the display.
struct View {
    title: String,
    begun: Instant,
    planned: Duration,
    has_color: bool,
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
    fn new(plan: &Plan, has_color: bool) -> Self {
        Self {
            title: format!("{}  {}", plan.name, plan.target),
            begun: Instant::now(),
            planned: plan.time(),
            has_color,
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

    fn draw(&self, frame: &mut Frame<'_>) {
        let rows = Layout::vertical([Constraint::Length(1); HEIGHT as usize]).split(frame.area());
        let spent = self.begun.elapsed().as_secs();
        let title = format!("{}  {spent} s of about {} s", self.title, self.planned.as_secs());
        frame.render_widget(Line::from(title), rows[0]);
        if let Some(between) = &self.between {
            frame.render_widget(Line::from(between.as_str()), rows[1]);
        } else if let Some(now) = &self.now {
            let [name, bar] =
                Layout::horizontal([Constraint::Length(40), Constraint::Min(10)]).areas(rows[1]);
            let (number, count) = (now.place.0 + 1, now.place.1);
            frame.render_widget(Line::from(format!("{number}/{count} {}", now.name)), name);
            let share = now.elapsed.as_secs_f64() / now.length.as_secs_f64().max(1e-3);
            let gauge = Gauge::default().ratio(share.clamp(0.0, 1.0)).label(format!(
                "{:.1} of {:.1} s",
                now.elapsed.as_secs_f64(),
                now.length.as_secs_f64()
            ));
            frame.render_widget(gauge.gauge_style(self.style(Color::Cyan)), bar);
            let width = usize::from(rows[2].width);
            let newest = self.rates.iter().copied().skip(self.rates.len().saturating_sub(width));
            frame.render_widget(Sparkline::default().data(newest).style(self.style(Color::Cyan)), rows[2]);
            frame.render_widget(self.numbers(now), rows[3]);
        }
        for (done, row) in self.done.iter().zip(&rows[4..]) {
            let color = match done.bound {
                _ if done.is_faulty => Color::Red,
                bound if bound.hides_the_server() => Color::Yellow,
                _ => Color::Reset,
            };
            frame.render_widget(Line::styled(&*done.text, self.style(color)), *row);
        }
        // The cursor is visible again before Ctrl-C ends the program.
        let last = rows[usize::from(HEIGHT) - 1];
        frame.set_cursor_position(Position::new(last.x, last.y));
    }

    fn numbers(&self, now: &Now) -> Line<'static> {
        let mean = now.mean_ms.map_or_else(|| "-".to_owned(), |mean| format!("{mean:.2}"));
        let numbers = format!(
            "{:.0} ops/s   {:.1} MB/s   mean {mean} ms   {} users   ",
            now.rate, now.megabytes, now.sessions
        );
        let errors = match now.faults {
            0 => Span::raw("0 errors"),
            count => Span::styled(format!("{count} errors"), self.style(Color::Red)),
        };
        Line::from(vec![Span::raw(numbers), errors])
    }

    fn style(&self, color: Color) -> Style {
        if self.has_color { Style::new().fg(color) } else { Style::new() }
    }
}

fn name(cell: &Cell) -> String {
    let mode = cell.mode.map_or_else(String::new, |mode| format!(" {mode}"));
    let size = cell.size.map_or_else(String::new, |size| format!(" {size} B"));
    format!("{}{size}{mode}, {} users", cell.op, cell.users)
}

#[cfg(test)]
mod tests {
    use ratatui::backend::TestBackend;

    use super::*;

    fn screen(view: &View) -> String {
        let mut terminal = Terminal::new(TestBackend::new(100, HEIGHT)).unwrap();
        terminal.draw(|frame| view.draw(frame)).unwrap();
        terminal.backend().to_string()
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
        let mut view = View::new(&plan, false);
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
        view.between = Some(FixtureStep::Removing.words(3, 40_000));
        assert!(screen(&view).contains("removing test files: 3 of 40000; Ctrl-C leaves them there"));
        // The next figure counts from nothing again.
        view.note(&Snapshot { cell: (1, 2), ..snapshot(cell, 1, 7, 0) });
        assert!(screen(&view).contains("7 ops/s"));
    }
}
