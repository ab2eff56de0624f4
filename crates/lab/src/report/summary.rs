//! A report in a few plain sentences, for readers who skip the tables. They stand at the top of a page and at the end
//! of a terminal's report.

use std::collections::BTreeSet;

use super::text::ms;
use super::{CellReport, Ending, Report, quick_sentence};
use millrace_load::figure::GeneratorShare;
use millrace_load::ramp_up::RampOutcome;
use millrace_load::series::{LoadSeries, loads};
use millrace_load::units::{counted, rate, short_size, users};
use millrace_load::verdict::Bound;

/// With fewer operations a hundredth part is less than one operation.
const FEW: u64 = 100;
/// Generators begin within this many milliseconds of one another.
const MOST_APART_MS: f64 = 10.0;
/// Above this number of loads, only the tables describe them.
const MOST_LOADS: usize = 8;

/// Each load with the users that got most, what went wrong, and what the figures are worth.
pub fn sentences(report: &Report) -> Vec<String> {
    let loads = loads(&report.cells);
    let mut sentences: Vec<String> = quick_sentence(&report.quick).into_iter().collect();
    sentences.extend(if !report.tables.is_empty() {
        let tables = "The tables of the published experiment have its numbers next to today's.";
        let first = loads.iter().filter_map(of_load).take(MOST_LOADS);
        [tables.to_owned()].into_iter().chain(first).collect()
    } else if loads.len() > MOST_LOADS {
        vec![format!("{} loads were measured: the table has them all.", loads.len())]
    } else {
        loads.iter().filter_map(of_load).collect::<Vec<_>>()
    });
    // Steps that differ in their names alone may have the same to say.
    let mut said = BTreeSet::new();
    sentences.retain(|sentence| said.insert(sentence.clone()));
    sentences.extend(unfaithful(&report.cells));
    sentences.push(failures(report));
    sentences.extend(generators(&report.cells));
    sentences.extend(bounds(&report.cells));
    sentences.extend(match &report.ending {
        Ending::Complete => None,
        Ending::Interrupted => Some("It was interrupted: not everything was measured.".to_owned()),
        Ending::Invalid(error) => Some(format!("It ended early, and {error}.")),
        // A server's text ends in a full stop of its own.
        Ending::Failed(error) => {
            Some(format!("It did not end as it should: {}.", error.trim_end_matches('.')))
        }
    });
    sentences
}

/// What the generators say of the figures: how far apart they began, and that a limit of theirs makes all invalid.
pub(super) fn generators(cells: &[CellReport]) -> Vec<String> {
    let divided = || cells.iter().filter(|cell| !cell.generators.is_empty());
    let Some(most) = divided().map(|cell| cell.generators.len()).max() else { return Vec::new() };
    let spread = divided().map(|cell| GeneratorShare::spread_ms(&cell.generators)).fold(0.0, f64::max);
    let mut said = vec![format!(
        "{most} generators put the load on, and began within {} ms of one another.",
        ms(spread)
    )];
    if divided().any(CellReport::is_of_its_generators) {
        said.push("The result is invalid: the generators were the limit, and not the server.".to_owned());
    }
    if spread > MOST_APART_MS {
        said.push(format!("They should begin within {MOST_APART_MS} ms: short loads tell little."));
    }
    said
}

/// The server's result with the number of users that got most, and whether fewer would have got as much.
fn of_load(load: &LoadSeries<'_>) -> Option<String> {
    let (best, repetitions) = load.best()?;
    let mut said = of_cell(best)?;
    if repetitions > 2 {
        said += &format!(" That is the middle one of {repetitions} repetitions.");
    }
    let knee = load.knee().filter(|&users| users < best.measured.users);
    Some(match knee {
        Some(1) => format!("{said} 1 user alone gets nine tenths of that: more only wait longer."),
        Some(users) => format!("{said} {users} get nine tenths of that: more only wait longer."),
        None => said,
    })
}

/// A server's result, in a sentence.
pub(super) fn of_cell(cell: &CellReport) -> Option<String> {
    let measured = &cell.measured;
    let whose = format!("{} {}", users(measured.users), if measured.users == 1 { "gets" } else { "get" });
    if measured.op == "idle" {
        return match cell.pss_kib_per_session {
            Some(kib) => {
                Some(format!("A session that does nothing takes {kib:.1} KiB of the server's memory."))
            }
            None => cell.hides_its_memory().then(|| {
                format!(
                    "What memory {} that do nothing take {UNSEEN}.",
                    counted(measured.users.into(), "session")
                )
            }),
        };
    }
    if let Some(standing) = &cell.standing {
        return Some(stood(cell, standing));
    }
    if cell.ops == 0 {
        return Some(format!("{} by {}: nothing ended well.", measured.name(), users(measured.users)));
    }
    let (many, bytes) = (rate(cell.ops_per_s), rate(cell.mb_per_s));
    let slowest = match cell.ops {
        ..FEW => format!("the slowest takes {} ms", ms(cell.latency.max_ms)),
        _ => format!("99 of 100 take at most {} ms", ms(cell.latency.p99_ms)),
    };
    let size = measured.size.map_or_else(String::new, |size| format!(" of {}", short_size(size)));
    let is_large = cell.is_of_bytes();
    let how = how(cell);
    if measured.endless {
        let way = if measured.op == "stor" { "up" } else { "down" };
        let each = if measured.users == 1 { "one transfer" } else { "one transfer each" };
        return Some(format!("{whose} {bytes} MB a second {way}, in {each} that was cut off{how}."));
    }
    Some(match measured.op.as_str() {
        "retr" if is_large => format!("{whose} {bytes} MB a second down, in files{size}{how}."),
        "stor" if is_large => format!("{whose} {bytes} MB a second up, in files{size}{how}."),
        "retr" => format!("{whose} {many} files{size} a second down{how}; {slowest}."),
        "stor" => format!("{whose} {many} files{size} a second up{how}; {slowest}."),
        "login" => format!("{whose} {many} logins a second{how}; {slowest}."),
        "list" | "nlst" | "mlsd" => {
            format!("{whose} {many} listings a second by {}{how}; {slowest}.", measured.op)
        }
        "get" => format!("{whose} {many} requests answered a second{how}; {slowest}."),
        "replay" => format!("{whose} {many} transfers of the log a second{how}; {slowest}."),
        op => format!("{whose} {many} answers to {op} a second{how}; {slowest}."),
    })
}

/// Describes the remaining users, where a user that fails is out.
fn stood(cell: &CellReport, standing: &RampOutcome) -> String {
    let RampOutcome { started, left, first_death, .. } = standing;
    let asked = cell.measured.users;
    let what = format!("{}{}", cell.measured.name(), how(cell));
    let some = format!("{left} of the {started} users that began were left standing, of {asked} asked for");
    // A death for another reason is not the server's doing.
    let whose = match cell.verdict.bound {
        _ if first_death.is_none() && *started == asked => "",
        Bound::Client => " THAT IS THIS CLIENT'S LIMIT, and no answer on the server.",
        Bound::Others => " OTHER PROGRAMS HAD THE PROCESSORS, so that is no answer on the server.",
        Bound::Unknown => " WHOSE LIMIT THAT IS CANNOT BE TOLD without --server-pid.",
        _ => "",
    };
    match first_death {
        None if *started == asked => format!("All {} were left standing: {what}.", users(asked)),
        None => format!("{some}: {what}.{whose}"),
        Some(death) => format!("{some}: {what}.{whose} The first died of: {}.", death.why),
    }
}

/// Of memory that did not grow, though there were more sessions: it was there before.
pub(super) const UNSEEN: &str = "cannot be seen: start the server afresh";

/// The load's unusual settings: without them, two sentences might differ in their numbers only.
fn how(cell: &CellReport) -> String {
    let measured = &cell.measured;
    let mode = measured.mode.as_deref().filter(|&mode| mode != "pasv").map(|mode| format!("by {mode}"));
    let paced = measured.rate.map(|rate| format!("of {rate} asked for"));
    let bad = (measured.bad_users > 0).then(|| format!("amid {} bad users", measured.bad_users));
    let selector = measured.selector_unsaid().map(|selector| format!("heard by {selector}"));
    let said = [measured.label.clone(), mode, paced, bad, selector];
    let said: Vec<String> = said.into_iter().flatten().collect();
    if said.is_empty() { String::new() } else { format!(" ({})", said.join(", ")) }
}

fn failures(report: &Report) -> String {
    let ops: u64 = report.cells.iter().map(|cell| cell.ops).sum();
    let faults: u64 = report.cells.iter().map(CellReport::failures).sum();
    let held: u64 = report.cells.iter().filter_map(CellReport::held).sum();
    match faults {
        0 if ops == 0 => "Nothing failed.".to_owned(),
        0 if ops == 1 => "The operation ended well.".to_owned(),
        0 => format!("All {ops} operations ended well."),
        _ if report.has_wrong_data() => format!(
            "WRONG DATA was delivered: the notes on the figures say how. {} beside {}.",
            counted(faults, "failure"),
            counted(ops, "good operation")
        ),
        _ if ops == 0 && held > 0 => {
            format!("{faults} logins or sessions failed, beside {} held.", counted(held, "session"))
        }
        _ => format!("{faults} operations or logins failed, beside {ops} that ended well."),
    }
}

/// The limits that the figures show: those that invalidate every other finding come first.
fn bounds(cells: &[CellReport]) -> Vec<String> {
    const LIMITS: [(Bound, &str); 7] = [
        (Bound::Client, "the measuring side was at its limit, and the server may be faster"),
        (
            Bound::Others,
            "other programs or virtual machines had the processors, and the server may be faster",
        ),
        (
            Bound::Unknown,
            "this machine was at its limit, and whether by the server cannot be told: --server-pid names its process",
        ),
        (Bound::Server, "the server was at its limit"),
        (Bound::Network, "the network was at its limit: packets were lost"),
        (Bound::Disk, "a disk was at its limit"),
        (Bound::Waiting, "nothing was at its limit, and fewer users got as much: more only wait longer"),
    ];
    let count = |bound| cells.iter().filter(|cell| cell.verdict.bound == bound).count();
    let told = LIMITS.iter().filter_map(|&(bound, said)| match (count(bound), cells.len()) {
        (0, _) => None,
        (1, 1) => Some(format!("In this figure {said}.")),
        (some, all) => Some(format!("In {some} of {all} figures {said}.")),
    });
    let told: Vec<String> = told.collect();
    if told.is_empty() { vec![no_bounds(cells)] } else { told }
}

fn no_bounds(cells: &[CellReport]) -> String {
    match cells.iter().any(|cell| cell.is_barren() || cell.has_failures()) {
        true => "No limit of this machine was seen: why operations failed stands with them.".to_owned(),
        // A log or a count determines the whole load.
        false if cells.iter().all(|cell| cell.replay.is_some()) => "Nothing was at its limit.".to_owned(),
        false => "Nothing was at its limit: more users or a higher rate may get more.".to_owned(),
    }
}

/// A log that was not followed is not what was measured.
fn unfaithful(cells: &[CellReport]) -> Option<String> {
    let replay = cells.iter().filter_map(|cell| cell.replay.as_ref()).find(|replay| !replay.is_faithful())?;
    Some(format!(
        "THE LOG WAS NOT FOLLOWED: {} of its {} transfers were made, begun late by up to {:.1} s. A lower --speed may do.",
        replay.transfers,
        replay.logged.transfers,
        replay.late.max_ms / 1e3
    ))
}
