//! The words for figures in a row and in a sentence.

use std::time::{Duration, Instant};

use millrace_load::figure::{Figures, GeneratorShare};
use millrace_load::host::Audit;
use millrace_load::plan::{Cell, Plan};
use millrace_load::ramp_up::RampOutcome;
use millrace_load::tally::Tally;

use super::{CellReport, summary, text};

fn figures(tally: Tally) -> Figures {
    Figures {
        tally,
        audit: Audit::default(),
        login_seconds: 0.0,
        timeline: Vec::new(),
        chaos: None,
        commands: None,
        generators: Vec::new(),
    }
}

fn cell(flags: &[(&str, &str)]) -> Cell {
    Plan::new("ftp://127.0.0.1:2121/", None, flags).unwrap().cells().remove(0)
}

#[test]
fn memory_that_did_not_grow_is_no_figure_of_a_session() {
    let row = |grown: u64| {
        let pss_kib_before = 9000;
        let server = millrace_load::host::ServerAudit {
            pss_kib_before,
            pss_kib_after: pss_kib_before + grown,
            ..Default::default()
        };
        let audit = Audit { server: Some(server), ..Audit::default() };
        let flags = [("ops", "idle"), ("users", "100")];
        let report = CellReport::new(&cell(&flags), Figures { audit, ..figures(Tally::default()) });
        (report.pss_kib_per_session, text::row(&report, false))
    };
    assert_eq!(row(800).0, Some(8.0));
    for grown in [0, 4, 24] {
        let (kib, row) = row(grown);
        assert_eq!(kib, None, "{grown}");
        assert!(row.contains("memory cannot be seen: start the server afresh"), "{row}");
    }
}

/// The record of 2026-11-22: one thread read as much as it could.
#[test]
fn users_who_die_of_the_client_are_no_answer_on_the_server() {
    let standing = |bound, first_death: Option<&str>| {
        let flags = [("ops", "retr"), ("size", "64m"), ("users", "1000"), ("on-death", "stop-growth")];
        let death = |why: &str| millrace_load::ramp_up::Death { at_s: 5.9, alive: 265, why: why.to_owned() };
        let started = if first_death.is_some() { 265 } else { 1000 };
        let standing =
            RampOutcome { started, left: 211, first_death: first_death.map(death), is_settled: true };
        let tally = Tally { standing: Some(standing), ..Tally::default() };
        let mut cell = CellReport::new(&cell(&flags), figures(tally));
        cell.verdict.bound = bound;
        summary::of_cell(&cell).unwrap()
    };
    use millrace_load::verdict::Bound::{Client, Others, Server};
    assert_eq!(
        standing(Client, Some("too slow")),
        "211 of the 265 users that began were left standing, of 1000 asked for: retr 64m pasv. \
         THAT IS THIS CLIENT'S LIMIT, and no answer on the server. The first died of: too slow."
    );
    let of_others = standing(Others, Some("too slow"));
    assert!(of_others.contains("OTHER PROGRAMS HAD THE PROCESSORS"), "{of_others}");
    for (bound, death) in [(Server, Some("too slow")), (Client, None), (Others, None)] {
        let said = standing(bound, death);
        assert!(!said.contains("CLIENT") && !said.contains("OTHER"), "{bound:?} {death:?}");
    }
}

#[test]
fn an_endless_transfer_has_bytes_and_neither_a_size_nor_a_rate_of_operations() {
    let mut tally = Tally { bytes: 280_000_000, ..Tally::default() };
    tally.latency.record(Duration::from_millis(520));
    let opened = Instant::now();
    (tally.opened, tally.ended) = (Some(opened), Some(opened + Duration::from_millis(500)));
    let server = millrace_load::host::ServerAudit { cpu_seconds: 0.3, ..Default::default() };
    let audit = Audit { server: Some(server), ..Audit::default() };
    let flags = [("ops", "stor"), ("size", "1m"), ("users", "1"), ("endless", "on")];
    let report = CellReport::new(&cell(&flags), Figures { audit, ..figures(tally) });
    assert_eq!((&report.measured.name()[..], report.measured.size), ("stor endless pasv", None));
    assert_eq!((report.mb_per_s, report.server_us_per_op), (560.0, None));
    let row = text::row(&report, false);
    let shown: Vec<&str> = row.split_whitespace().collect();
    assert_eq!(shown[3..11], ["1", "-", "560", "-", "-", "-", "0", "-"], "{row}");
    assert_eq!(
        summary::of_cell(&report).unwrap(),
        "1 user gets 560 MB a second up, in one transfer that was cut off."
    );
}

#[test]
fn a_generator_that_was_the_limit_makes_the_result_invalid() {
    let said = |limit: Option<&str>, last_ms: f64| {
        let share = |number: usize, start_ms| GeneratorShare {
            number,
            start_ms,
            limit: limit.filter(|_| number == 2).map(str::to_owned),
            ..GeneratorShare::default()
        };
        let generators = vec![share(1, 0.25), share(2, last_ms)];
        let flags = [("ops", "retr"), ("users", "2")];
        let report = CellReport::new(&cell(&flags), Figures { generators, ..figures(Tally::default()) });
        summary::generators(&[report]).join(" ")
    };
    assert_eq!(said(None, 0.5), "2 generators put the load on, and began within 0.250 ms of one another.");
    assert!(
        said(Some("a thread was full"), 0.5).contains("The result is invalid: the generators were the limit")
    );
    assert!(said(None, 12.0).ends_with("They should begin within 10 ms: short loads tell little."));
}
