//! The ruler from a command line, until `millrace bench` has it:
//!
//! ```text
//! bench TARGET [PRESET] [--key value | --switch]... [--json FILE] [--csv FILE] [--markdown]
//! bench TARGET --search MOST [--key value]...
//! bench limits | list
//! ```

use std::error::Error;
use std::io::{IsTerminal, Write, stderr, stdout};
use std::process::ExitCode;

use millrace_bench::host::verdict::Bound;
use millrace_bench::limits::limits;
use millrace_bench::plan::{BUILT_IN, KEYS, Plan, Preset};
use millrace_bench::report::{CellReport, csv, markdown, text};
use millrace_bench::run::{Progress, Snapshot, run};
use millrace_bench::search::{Criterion, search};

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let result = match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["limits"] => {
            limits().iter().for_each(|limit| println!("{limit}"));
            Ok(ExitCode::SUCCESS)
        }
        ["list"] => list(),
        [] => {
            help();
            Ok(ExitCode::from(2))
        }
        ref words => bench(words),
    };
    result.unwrap_or_else(|error| {
        eprintln!("bench: {error}");
        ExitCode::from(2)
    })
}

fn list() -> Result<ExitCode, Box<dyn Error>> {
    for (name, _) in BUILT_IN {
        println!("{name:<20} {}", Preset::built_in(name)?.summary);
    }
    Ok(ExitCode::SUCCESS)
}

fn help() {
    eprintln!(
        "bench TARGET [PRESET] [--key value]... [--json FILE] [--csv FILE] [--markdown]; bench limits; bench list"
    );
    for key in &KEYS {
        eprintln!("  --{:<22} {}", format!("{} {}", key.name, key.value), key.help);
    }
}

fn bench(words: &[&str]) -> Result<ExitCode, Box<dyn Error>> {
    let mut flags = Vec::new();
    let (mut target, mut preset, mut json, mut table, mut is_markdown) = (None, None, None, None, false);
    let mut most = None;
    let mut words = words.iter().copied();
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| format!("{word} needs a value"));
        match word.strip_prefix("--") {
            None if target.is_none() => target = Some(word),
            None => preset = Some(Preset::built_in(word)?),
            Some("json") => json = Some(value()?),
            Some("csv") => table = Some(value()?),
            Some("search") => most = Some(value()?.parse()?),
            Some("markdown") => is_markdown = true,
            Some(name) if KEYS.iter().any(|key| key.name == name && key.value.is_empty()) => {
                flags.push((name, "on"))
            }
            Some(name) => flags.push((name, value()?)),
        }
    }
    let plan = Plan::new(target.ok_or("no target")?, preset.as_ref(), &flags)?;
    if let Some(most) = most {
        return find(&plan, most);
    }
    let report = run(&plan, &Line)?;
    let color = stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    print!("{}", if is_markdown { markdown::render(&report) } else { text::render(&report, color) });
    if let Some(file) = json {
        std::fs::write(file, report.json())?;
    }
    if let Some(file) = table {
        std::fs::write(file, csv::render(&report))?;
    }
    let inconclusive = report.cells.iter().any(|cell| cell.verdict.bound == Bound::Client);
    Ok(ExitCode::from(if inconclusive { 3 } else { 0 }))
}

fn find(plan: &Plan, most: u32) -> Result<ExitCode, Box<dyn Error>> {
    let capacity = search(plan, most, Criterion::default(), &Line)?;
    for trial in &capacity.trials {
        let words = trial.objection.as_deref().unwrap_or("well");
        println!("{:>7} users {:>9.0} ops/s  {words}", trial.users, trial.ops_per_s);
    }
    let more = if capacity.is_open { " or more" } else { "" };
    let shaky = if capacity.is_shaky { "; an answer above it did not stand up" } else { "" };
    println!("{} users{more}{shaky}", capacity.users);
    Ok(ExitCode::SUCCESS)
}

/// A line of progress, where a person looks at it.
struct Line;

impl Progress for Line {
    fn tell(&self, snapshot: &Snapshot<'_>) {
        if stderr().is_terminal() {
            let (index, count) = snapshot.cell;
            let _ = write!(
                stderr(),
                "\r{}/{count} {} {:.1} s, {} sessions, {} operations, {} errors ",
                index + 1,
                snapshot.what.op,
                snapshot.elapsed.as_secs_f64(),
                snapshot.sessions,
                snapshot.ops,
                snapshot.faults
            );
        }
    }

    fn cell_done(&self, _: &CellReport) {
        if stderr().is_terminal() {
            let _ = write!(stderr(), "\r\x1b[K");
        }
    }
}
