//! A line of progress on standard error.

use std::io::{IsTerminal, Write, stderr};

use millrace_bench::report::CellReport;
use millrace_bench::run::{Progress, Snapshot, Stop};

/// A line that is written over, where a person looks at it; else a line a figure.
pub(super) struct Line {
    is_terminal: bool,
    cells: usize,
}

impl Line {
    pub(super) fn new(cells: usize) -> Self {
        Self { is_terminal: stderr().is_terminal(), cells }
    }
}

impl Progress for Line {
    fn tell(&self, snapshot: &Snapshot<'_>) {
        if !self.is_terminal {
            return;
        }
        let line = format!(
            "{}/{} {} {:.1} s, {} sessions, {} operations, {} errors",
            snapshot.cell.0 + 1,
            self.cells,
            snapshot.what.op,
            snapshot.elapsed.as_secs_f64(),
            snapshot.sessions,
            snapshot.ops,
            snapshot.faults
        );
        let _ = write!(stderr(), "\r{line}\x1b[K");
    }

    fn stop(&self) -> &Stop {
        &super::STOP
    }

    fn cell_done(&self, cell: &CellReport) {
        if self.is_terminal {
            let _ = write!(stderr(), "\r\x1b[K");
        } else {
            let measured = &cell.measured;
            let (ops, errors) = (cell.ops, cell.faults.count());
            let _ = writeln!(
                stderr(),
                "{}, {} users: {ops} operations, {errors} errors",
                measured.op,
                measured.users
            );
        }
    }
}
