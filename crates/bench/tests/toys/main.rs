//! The ruler against servers whose faults are known: what it says must be the truth.

mod http;
mod pages;
mod race;
mod server;
mod silent;
mod slow;
mod uploads;

use std::net::IpAddr;
use std::time::Duration;

use millrace_bench::fault;
use millrace_bench::gate::baseline::{Baseline, Says};
use millrace_bench::gate::threshold::Threshold;
use millrace_bench::gate::{self, Outcome};
use millrace_bench::host::verdict::Bound;
use millrace_bench::plan::Plan;
use millrace_bench::poller::{SELECTORS, Selector};
use millrace_bench::report::{CellReport, Report, html, text};
use millrace_bench::run::{Silent, run};
use millrace_bench::search::{Criterion, search};

use server::{Fault, Toy};

fn measure(toy: &Toy, flags: &[(&str, &str)]) -> Report {
    let always = [("warm-up", "0"), ("patience", "10s")];
    run(&Plan::new(&toy.url(), None, &[&always[..], flags].concat()).unwrap(), &Silent).unwrap()
}

fn only(report: Report) -> CellReport {
    let [cell] = <[CellReport; 1]>::try_from(report.cells).unwrap();
    cell
}

/// Downloads with every byte checked: the one kind of fault that there should be, as often as the toy made it.
fn spoilt_downloads(spoilt: Fault, expected: fault::Fault) {
    let toy = Toy::start(spoilt);
    let flags = [("ops", "retr"), ("size", "4k"), ("users", "8"), ("duration", "2s"), ("verify", "on")];
    let (mut found, mut all) = (0, 0);
    // A slow machine may need more than one measurement until the toy has done its worst once.
    for _ in 0..20 {
        let cell = only(measure(&toy, &flags));
        found += cell.faults.of(expected);
        all += cell.faults.count();
        if toy.faults() > 0 {
            break;
        }
    }
    assert!(toy.faults() > 0, "the toy never got so far");
    assert_eq!((found, all), (toy.faults(), toy.faults()));
}

#[test]
fn a_good_server_has_no_faults() {
    let toy = Toy::start(Fault::Nothing);
    let flags = [
        ("ops", "login,noop,retr,stor"),
        ("size", "0,1,100k"),
        ("users", "5"),
        ("duration", "300ms"),
        ("verify", "on"),
    ];
    for cell in measure(&toy, &flags).cells {
        assert_eq!(cell.faults.count(), 0, "{:?}", cell.faults);
        assert!(cell.ops >= 5, "{:?}", cell.measured);
        let bytes = cell.measured.size.unwrap_or(0) * cell.ops;
        assert_eq!(cell.bytes, bytes, "{:?}", cell.measured);
    }
}

/// Not every kernel and container permits io_uring.
fn is_permitted(selector: Selector) -> bool {
    selector == Selector::Epoll || selector.permitted().is_ok()
}

#[test]
fn whatever_the_selector_every_byte_comes() {
    let toy = Toy::start(Fault::Nothing);
    for (name, _) in SELECTORS.into_iter().filter(|row| is_permitted(row.1)) {
        let flags = [
            ("ops", "login,noop,retr,stor"),
            ("size", "1,1m"),
            ("users", "5"),
            ("count", "2"),
            ("duration", "20s"),
            ("verify", "on"),
            ("selector", name),
        ];
        for cell in measure(&toy, &flags).cells {
            assert_eq!(
                (cell.ops, cell.faults.count()),
                (10, 0),
                "{name}: {:?} {:?}",
                cell.measured,
                cell.faults
            );
        }
        let paced =
            [("ops", "noop"), ("users", "5"), ("rate", "100"), ("duration", "1s"), ("selector", name)];
        let cell = only(measure(&toy, &paced));
        // On a machine that others fill, the last of them may find the time over.
        let missed = cell.faults.of(fault::Fault::Missed);
        assert_eq!((cell.ops + missed, cell.faults.count()), (100, missed), "{name}: {:?}", cell.faults);
        let thrifty = [("ops", "retr"), ("size", "2k"), ("users", "3"), ("count", "1"), ("selector", name)];
        let thrifty = [&thrifty[..], &[("read-rate", "4k"), ("chunk", "1000"), ("duration", "20s")]].concat();
        assert_eq!(only(measure(&toy, &thrifty)).ops, 3, "{name}");
    }
}

#[test]
fn a_block_dropped_once_in_a_thousand_transfers_is_found() {
    spoilt_downloads(Fault::DropsTheEnd(1000), fault::Fault::Truncated);
}

#[test]
fn data_of_another_session_is_found() {
    spoilt_downloads(Fault::SwapsFiles(500), fault::Fault::CrossedOver);
}

#[test]
fn data_that_comes_twice_is_found() {
    spoilt_downloads(Fault::RepeatsTheStart(500), fault::Fault::Doubled);
}

#[test]
fn truncation_is_found_without_looking_at_the_bytes() {
    let toy = Toy::start(Fault::DropsTheEnd(100));
    let cell = only(measure(&toy, &[("ops", "retr"), ("users", "4"), ("duration", "1s")]));
    assert_eq!(cell.faults.of(fault::Fault::Truncated), toy.faults(), "{:?}", cell.faults);
}

#[test]
fn a_transfer_without_226_does_not_count() {
    let toy = Toy::start(Fault::NeverConfirms(50));
    let flags = [("ops", "retr"), ("users", "4"), ("duration", "500ms"), ("patience", "300ms")];
    let cell = only(measure(&toy, &flags));
    assert!(toy.faults() > 0);
    assert_eq!(cell.faults.of(fault::Fault::Timeout), toy.faults(), "{:?}", cell.faults);
}

#[test]
fn an_upload_that_was_confirmed_and_lost_is_found() {
    let toy = Toy::start(Fault::LosesUploads);
    let flags = [("ops", "stor"), ("users", "4"), ("duration", "300ms"), ("verify", "on")];
    let cell = only(measure(&toy, &flags));
    assert!(cell.ops > 8);
    assert_eq!(cell.faults.of(fault::Fault::CrossedOver), 4, "{:?}", cell.faults);
    let said = cell.faults.kinds().next().unwrap().to_string();
    assert!(said.starts_with("4 x bytes of another file: "), "{said}");
    assert!(said.contains("came bytes of another upload to millrace-bench-upload-"), "{said}");
}

#[test]
fn a_stall_moves_the_corrected_percentile_and_not_the_raw_one() {
    let toy = Toy::start(Fault::StallsOnce(300, Duration::from_millis(1400)));
    let flags = [("ops", "noop"), ("users", "4"), ("rate", "200"), ("duration", "4s")];
    let cell = only(measure(&toy, &flags));
    let raw = cell.raw_latency.unwrap();
    assert_eq!((cell.ops + cell.faults.of(fault::Fault::Missed), raw.count), (800, cell.ops));
    assert!(cell.latency.p99_ms > 1000.0, "corrected {:?}", cell.latency);
    assert!(raw.p99_ms < 500.0 && raw.max_ms > 1300.0, "raw {raw:?}");
}

#[test]
fn a_rate_that_is_not_reached_ends_with_its_time_and_is_said() {
    let toy = Toy::start(Fault::StarvesSessions(1, Duration::from_millis(30)));
    let flags = [("ops", "noop"), ("users", "4"), ("rate", "2000"), ("duration", "500ms")];
    let cell = only(measure(&toy, &flags));
    let missed = cell.faults.of(fault::Fault::Missed);
    // Each of four users begins one in 30 ms at most, and none when the time is over.
    assert!(cell.ops > 0 && cell.ops <= 4 * (500 / 30 + 2), "{}", cell.ops);
    assert_eq!(cell.ops + missed, 1000, "{:?}", cell.faults);
    // Whose limit it was is another matter where other programs fill the machine, or lose packets.
    assert_ne!(cell.verdict.bound, Bound::Unsaturated, "{:?}", cell.verdict);
    assert!(!cell.verdict.evidence.iter().any(|why| why.contains("higher rate")), "{:?}", cell.verdict);
}

#[test]
fn users_that_starve_are_named() {
    let toy = Toy::start(Fault::StarvesSessions(100, Duration::from_millis(60)));
    // Each user has an address of its own, by which the toy knows whom it starves.
    let source = ("source", "127.0.0.0/24");
    let flags = [("ops", "noop"), ("users", "100"), ("think", "5ms"), ("duration", "2s"), source];
    let cell = only(measure(&toy, &flags));
    let fairness = &cell.fairness;
    let address = |user: u32| IpAddr::from([127, 0, 0, 1 + user as u8]);
    assert_eq!(fairness.starved_users.iter().map(|&user| address(user)).collect::<Vec<_>>(), toy.starved());
    assert_eq!((fairness.starved, fairness.starved_users.len()), (1, 1), "{fairness:?}");
    assert!(fairness.min_over_median.unwrap() < 0.5 && fairness.jain.unwrap() < 0.999, "{fairness:?}");
    assert_eq!(fairness.longest_waiting_user, fairness.starved_users[0]);
}

#[test]
fn a_throttled_client_is_said_to_be_the_limit() {
    let toy = Toy::start(Fault::Nothing);
    let flags = [("ops", "noop"), ("users", "20"), ("duration", "1s")];
    let cell = only(measure(&toy, &[&flags[..], &[("handicap", "2ms")]].concat()));
    assert_eq!(cell.verdict.bound, Bound::Client, "{:?}", cell.audit);
    let thinking = only(measure(&toy, &[&flags[..], &[("think", "50ms")]].concat()));
    // Not more is claimed: on a machine that others use, even this client may be the limit.
    assert!(thinking.audit.client.busiest_thread < 0.5, "{:?}", thinking.audit);
}

#[test]
fn a_hard_limit_of_users_is_found_within_two_percent() {
    let toy = Toy::start(Fault::HoldsAtMost(137));
    let flags = [("ops", "noop"), ("think", "50ms"), ("duration", "200ms"), ("warm-up", "0")];
    let plan = Plan::new(&toy.url(), None, &flags).unwrap();
    // Only the limit is to count, not how busy this machine is.
    let criterion = Criterion { pace: 0.0, starved: 1.0 };
    let capacity = search(&plan, 1000, criterion, &Silent).unwrap();
    assert!((135..=137).contains(&capacity.users), "{capacity:?}");
    let refused = capacity.trials.iter().find_map(|trial| trial.objection.as_ref()).unwrap();
    assert!(refused.contains("421 Full."), "{refused}");
}

/// Each figure of a load is held against the same one of a user alone: against all of them together, each of six would be
/// at a sixth of the pace, whatever the server does. A machine that stands still for most of a figure does not do that.
#[test]
fn a_search_of_several_figures_finds_users_too() {
    let toy = Toy::start(Fault::Nothing);
    let flags =
        [("ops", "noop"), ("think", "20ms"), ("duration", "200ms"), ("warm-up", "0"), ("repeat", "6")];
    let criterion = Criterion { pace: 0.2, starved: 1.0 };
    let capacity = search(&Plan::new(&toy.url(), None, &flags).unwrap(), 2, criterion, &Silent).unwrap();
    assert!(capacity.users >= 1, "{capacity:?}");
}

#[test]
fn a_search_of_users_that_do_nothing_says_so_and_whose_limit_ended_it() {
    let toy = Toy::start(Fault::Nothing);
    let flags = [("ops", "idle"), ("duration", "20ms"), ("warm-up", "0")];
    let mut capacity =
        search(&Plan::new(&toy.url(), None, &flags).unwrap(), 4, Criterion::default(), &Silent).unwrap();
    let unfolded = |text: String| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let said = unfolded(text::capacity(&capacity));
    assert!(said.contains("4 users or more; they only logged in and did nothing"), "{said}");
    assert!(said.contains("4 users logged in") && !said.contains("ops/s"), "{said}");
    capacity.ceiling = Some("this client has no more".to_owned());
    let said = unfolded(text::capacity(&capacity));
    assert!(said.contains("4 users or more: this client has no more; they only logged in"), "{said}");
    assert!(html::search(&capacity).contains("4 users or more: this client has no more"));
}

#[test]
fn sessions_that_were_not_let_in_are_failures_and_the_others_are_held() {
    let toy = Toy::start(Fault::HoldsAtMost(5));
    let flags = [("ops", "idle"), ("users", "9"), ("duration", "20ms"), ("connecting", "1")];
    let report = measure(&toy, &flags);
    let said = text::render(&report, false);
    let cell = &report.cells[0];
    let turned_away = cell.failures();
    // The session that looked whether the server is there may not yet have gone.
    assert!(
        (4..=5).contains(&turned_away) && cell.held() == Some(9 - turned_away),
        "{:?}",
        cell.login_faults
    );
    assert!(!cell.is_barren() && cell.has_failures());
    let beside = format!(
        "{turned_away} logins or sessions failed, beside {} sessions that were held.",
        9 - turned_away
    );
    assert!(said.contains(&beside), "{said}");
    let row = said.lines().find(|line| line.starts_with("idle ")).unwrap();
    assert!(row.trim_end().ends_with(&format!(" {turned_away}")), "{row}");
}

#[test]
fn a_slower_server_does_not_pass_the_gate() {
    let flags = [("ops", "noop"), ("users", "4"), ("think", "5ms"), ("duration", "300ms"), ("repeat", "3")];
    let then = measure(&Toy::start(Fault::Nothing), &flags);
    let now = measure(&Toy::start(Fault::StarvesSessions(1, Duration::from_millis(30))), &flags);
    let then = then.json();
    let encrypted = Baseline::parse(&then.replace("\"ftp://", "\"ftpes://")).unwrap().cautions(&now);
    assert!(encrypted.contains(&"the target was ftpes://, and is ftp://".to_owned()), "{encrypted:?}");
    let comparisons = Baseline::parse(&then).unwrap().compare(&now);
    for comparison in &comparisons {
        // On a machine that others fill nothing can be told; but nothing else may be said.
        let is_excused = comparison.says == Says::CannotTell && comparison.why.is_some();
        assert!(comparison.says == Says::Worse || is_excused, "{comparison:?}");
    }
    assert!(comparisons.iter().any(|comparison| comparison.metric == "p99"), "{comparisons:?}");
    assert!(gate::baseline::outcome(&comparisons) > Outcome::Passed);
}

#[test]
fn a_threshold_is_held_against_what_happened() {
    let toy = Toy::start(Fault::DropsTheEnd(3));
    let flags = [("ops", "retr"), ("size", "4k"), ("users", "2"), ("count", "6"), ("verify", "on")];
    let report = measure(&toy, &flags);
    let outcome = |text: &str| Threshold::parse(text).unwrap().judge(&report)[0].outcome;
    assert_eq!(outcome("retr.4k.wrong-data > 3"), Outcome::Failed);
    assert_eq!(outcome("errors > 4"), Outcome::Passed);
    assert_eq!(outcome("error-share > 0.5"), Outcome::Passed);
    assert_eq!(outcome("memory > 1KiB"), Outcome::Inconclusive);
}
