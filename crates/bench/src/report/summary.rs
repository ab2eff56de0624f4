//! A report in a few plain sentences, for somebody who reads no tables.

use super::text::{ms, rate};
use super::{CellReport, Ending, Report, short_size};
use crate::host::verdict::Bound;

/// From here on a transfer is told by its bytes rather than by its number.
const LARGE: u64 = 1 << 20;

/// Each load at its best, what went wrong, and what the figures are worth.
pub fn sentences(report: &Report) -> Vec<String> {
    let mut sentences = Vec::new();
    // A document's table says it in the document's own way.
    if report.tables.is_empty() {
        sentences.extend(best(&report.cells).into_iter().filter_map(achievement));
    }
    sentences.extend([failures(report), bounds(&report.cells)]);
    sentences.extend(match &report.ending {
        Ending::Complete => None,
        Ending::Interrupted => Some("It was interrupted: not everything was measured.".to_owned()),
        Ending::Failed(error) => Some(format!("It did not end as it should: {error}.")),
    });
    sentences
}

/// Of each load the figure with the highest rate, in the order of the plan.
fn best(cells: &[CellReport]) -> Vec<&CellReport> {
    let mut best: Vec<&CellReport> = Vec::new();
    for cell in cells {
        match best.iter_mut().find(|other| other.measured.name() == cell.measured.name()) {
            Some(other) if cell.ops_per_s > other.ops_per_s => *other = cell,
            Some(_) => {}
            None => best.push(cell),
        }
    }
    best
}

/// What a server did; nothing where it did nothing.
fn achievement(cell: &CellReport) -> Option<String> {
    let measured = &cell.measured;
    let whose = match measured.users {
        1 => "1 user gets".to_owned(),
        users => format!("{users} users get"),
    };
    if measured.op == "idle" {
        let kib = cell.pss_kib_per_session?;
        return Some(format!("A session that does nothing takes {kib:.1} KiB of the server's memory."));
    }
    if cell.ops == 0 {
        return None;
    }
    let (many, bytes) = (rate(cell.ops_per_s), rate(cell.mb_per_s));
    let slowest = format!("99 of 100 take at most {} ms", ms(cell.latency.p99_ms));
    let size = measured.size.map_or_else(String::new, short_size);
    let is_large = measured.size.is_some_and(|size| size >= LARGE);
    Some(match measured.op.as_str() {
        "retr" if is_large => format!("{whose} {bytes} MB a second down, in files of {size}."),
        "stor" if is_large => format!("{whose} {bytes} MB a second up, in files of {size}."),
        "retr" => format!("{whose} {many} files of {size} a second down; {slowest}."),
        "stor" => format!("{whose} {many} files of {size} a second up; {slowest}."),
        "login" => format!("{whose} {many} logins a second; {slowest}."),
        "list" | "nlst" | "mlsd" => {
            format!("{whose} {many} listings a second by {}; {slowest}.", measured.op)
        }
        _ => format!("{whose} {many} answers to {} a second; {slowest}.", measured.name()),
    })
}

fn failures(report: &Report) -> String {
    let ops: u64 = report.cells.iter().map(|cell| cell.ops).sum();
    let faults: u64 = report.cells.iter().map(|cell| cell.faults.count() + cell.login_faults.count()).sum();
    match faults {
        0 if ops == 0 => "Nothing failed.".to_owned(),
        0 => format!("All {ops} operations ended well."),
        _ if report.has_wrong_data() => {
            format!("WRONG DATA was delivered: see above. {faults} failures beside {ops} good operations.")
        }
        _ => format!("{faults} operations or logins failed, beside {ops} that ended well."),
    }
}

fn bounds(cells: &[CellReport]) -> String {
    let count = |bound| cells.iter().filter(|cell| cell.verdict.bound == bound).count();
    let all = cells.len();
    match (count(Bound::Client), count(Bound::Server)) {
        (0, 0) => "Nothing was at its limit: more users or a higher rate may get more.".to_owned(),
        (0, server) => format!("The server was at its limit in {server} of {all} figures."),
        (client, _) => format!(
            "In {client} of {all} figures the measuring side was at its limit, and the server may be faster."
        ),
    }
}
