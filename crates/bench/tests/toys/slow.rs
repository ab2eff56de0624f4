//! Users who read slowly, and die of it.

use std::time::Duration;

use millrace_bench::fault;
use millrace_bench::poller::SELECTORS;

use crate::server::{Fault, Toy};
use crate::{is_permitted, measure, only};

/// Downloads of 1000 bytes at 10,000 a second, of which every tenth user gets a tenth.
const SLOW: [(&str, &str); 9] = [
    ("ops", "retr"),
    ("size", "1000"),
    ("read-rate", "10000"),
    ("chunk", "100"),
    ("least-rate", "15"),
    ("clock", "command"),
    ("connecting", "1"),
    ("quiet", "4s"),
    ("duration", "60s"),
];

#[test]
fn who_is_too_slow_drops_out() {
    let toy = Toy::start(Fault::StarvesSessions(10, Duration::from_secs(1)));
    // The first session made the file, and the second of those who wait is the twentieth.
    let cell = only(measure(&toy, &[&SLOW[..], &[("on-death", "drop-out"), ("users", "19")]].concat()));
    let standing = cell.standing.unwrap();
    assert_eq!((standing.started, standing.left), (19, 17), "{standing:?}");
    assert_eq!(cell.faults.of(fault::Fault::TooSlow), 2, "{:?}", cell.faults);
    assert!(standing.is_settled && cell.ops > 17, "{standing:?}");
    assert!(standing.first_death.unwrap().why.contains("B/s"));
}

#[test]
fn the_first_death_ends_the_growth() {
    let toy = Toy::start(Fault::StarvesSessions(10, Duration::from_secs(1)));
    let cell = only(measure(&toy, &[&SLOW[..], &[("on-death", "stop-growth"), ("users", "9000")]].concat()));
    let standing = cell.standing.unwrap();
    assert!(standing.started < 9000 && standing.left < standing.started, "{standing:?}");
}

#[test]
fn a_slow_reader_takes_its_time() {
    let toy = Toy::start(Fault::Nothing);
    let flags = [("ops", "retr"), ("size", "20k"), ("users", "5"), ("read-rate", "20k"), ("duration", "1s")];
    let cell = only(measure(&toy, &flags));
    assert_eq!(cell.faults.count(), 0, "{:?}", cell.faults);
    // 13 chunks of 1500 bytes are paid for before the last is read.
    let fastest = 13.0 * 1500.0 / 20_480.0 * 1e3;
    assert!(cell.flow.unwrap().p50_ms >= fastest - 1.0, "{:?}", cell.flow);
    assert!(cell.lead_226.unwrap().p50_ms > 500.0, "the toy was done at once: {:?}", cell.lead_226);
}

#[test]
fn both_death_rules_hold_whatever_the_selector() {
    let flags =
        [("ops", "retr"), ("size", "4k"), ("read-rate", "400k"), ("connecting", "1"), ("quiet", "20s")];
    for (name, _) in SELECTORS.into_iter().filter(|row| is_permitted(row.1)) {
        for (rule, users) in [("drop-out", "4"), ("stop-growth", "9000")] {
            // Whoever gets a file without its end dies, and sooner or later everybody does.
            let toy = Toy::start_beside(Fault::DropsTheEnd(3));
            let how = [("selector", name), ("on-death", rule), ("users", users), ("duration", "60s")];
            let standing = only(measure(&toy, &[&flags[..], &how].concat())).standing.unwrap();
            assert_eq!((standing.left, standing.is_settled), (0, true), "{name} {rule}: {standing:?}");
            let all_began = standing.started.to_string() == users;
            assert_eq!(all_began, rule == "drop-out", "{name}: {standing:?}");
            let death = standing.first_death.unwrap();
            assert!(death.why.contains("truncated"), "{name} {rule}: {death:?}");
        }
    }
}
