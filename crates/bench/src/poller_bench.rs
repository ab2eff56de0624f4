//! `millrace poller-bench`: what waiting for many sockets costs, by poll, epoll and io_uring.

use std::fmt::Write;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use millrace_lab::poller::{Answer, Question, compare, most_pairs};
use millrace_load::selector::SELECTORS;
use millrace_terminal::Failure;

/// `millrace poller-bench`.
#[derive(Debug, Args)]
pub struct PollerBench {
    /// How many sockets are watched [default: 100,1000,9000, as far as descriptors go]
    #[arg(long, value_name = "N,...", value_delimiter = ',',
          value_parser = clap::value_parser!(u32).range(1..))]
    sockets: Vec<u32>,

    /// How many of them become ready in each round
    #[arg(long, value_name = "K,...", value_delimiter = ',', default_value = "1,10,100",
          value_parser = clap::value_parser!(u32).range(1..))]
    active: Vec<u32>,

    /// Seconds for each figure
    #[arg(long, value_name = "SECONDS", default_value = "0.5")]
    time: f64,

    /// Print JSON rather than tables
    #[arg(long)]
    json: bool,
}

/// The default numbers.
const USUAL: [u32; 3] = [100, 1000, 9000];

/// A column of a table: this many sockets, and what each selector says.
struct Column {
    sockets: u32,
    answers: Vec<Answer>,
}

/// Runs the command.
pub fn run(arguments: &PollerBench) -> Result<ExitCode, Failure> {
    let most = most_pairs();
    if let Some(many) = arguments.sockets.iter().find(|&&sockets| sockets as usize > most) {
        let text =
            format!("{many} sockets need {} descriptors; this process may have {most} sockets.", 2 * many);
        return Err(Failure::Configuration(text));
    }
    if !(0.001..=60.0).contains(&arguments.time) {
        return Err(Failure::Configuration("--time takes 0.001 to 60 seconds.".to_owned()));
    }
    let mut sockets = arguments.sockets.clone();
    if sockets.is_empty() {
        sockets.extend(USUAL.iter().filter(|&&usual| usual as usize <= most));
    }
    let largest = sockets.iter().max().copied().unwrap_or_default();
    if let Some(active) = arguments.active.iter().find(|&&active| active > largest) {
        let text = format!("--active {active}: of {largest} sockets no more can be ready.");
        return Err(Failure::Configuration(text));
    }
    for &active in &arguments.active {
        let sockets = sockets.iter().filter(|&&sockets| sockets >= active);
        let columns = sockets.map(|&sockets| column(sockets, active, arguments.time));
        let columns = columns.collect::<Result<Vec<_>, _>>()?;
        match arguments.json {
            true => columns.iter().for_each(|column| println!("{}", json(active, column))),
            false => print!("{}", table(active, &columns)),
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn column(sockets: u32, active: u32, seconds: f64) -> Result<Column, Failure> {
    let time = Duration::from_secs_f64(seconds);
    let question = Question { pairs: sockets as usize, active: active as usize, time };
    let answers = compare(&question)
        .map_err(|error| Failure::Running(format!("{sockets} pairs of sockets cannot be made: {error}.")))?;
    Ok(Column { sockets, answers })
}

/// As the table of 2001 had it: a selector a line, a number of sockets a column.
fn table(active: u32, columns: &[Column]) -> String {
    let mut out = format!("\nmicroseconds to detect {active} ready sockets and read them, of\n{:<12}", "");
    for column in columns {
        let _ = write!(out, "{:>12}", column.sockets);
    }
    out.push('\n');
    let mut refusals = Vec::new();
    for (at, (name, _)) in SELECTORS.iter().enumerate() {
        let _ = write!(out, "{name:<12}");
        for column in columns {
            let answer = &column.answers[at];
            let cell = answer.us_per_round.map_or_else(|| "-".to_owned(), |us| format!("{us:.1}"));
            let _ = write!(out, "{cell:>12}");
            refusals.extend(answer.refused.as_ref().map(|why| format!("{name} is not available: {why}\n")));
        }
        out.push('\n');
    }
    refusals.dedup();
    out + &refusals.concat()
}

/// A line for each number of sockets.
fn json(active: u32, column: &Column) -> String {
    let answers = column.answers.iter().map(|answer| {
        let us = answer.us_per_round.map_or_else(|| "null".to_owned(), |us| us.to_string());
        format!("\"{}\": {us}", answer.selector.name())
    });
    let answers = answers.collect::<Vec<_>>().join(", ");
    format!("{{\"sockets\": {}, \"active\": {active}, \"us_per_round\": {{{answers}}}}}", column.sockets)
}
