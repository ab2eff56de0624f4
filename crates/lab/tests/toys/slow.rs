//! Users who read slowly, and die of it.

use std::time::Duration;

use millrace_load::fault;
use millrace_load::figure::CellReport;
use millrace_load::selector::SELECTORS;

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
    ("login-concurrency", "1"),
    ("quiet", "4s"),
    ("duration", "60s"),
];

/// The others' downloads take a tenth of a second: they survive a stall of the machine of two seconds.
#[test]
fn a_user_that_is_too_slow_drops_out() {
    let toy = Toy::start(Fault::StarvesDownloads(10, Duration::from_secs(4)));
    // At 4 % of the rate, a download may take two and a half seconds.
    let rule = [("on-death", "drop-out"), ("users", "19"), ("least-rate", "4"), ("quiet", "6s")];
    // The first session made the file, and the second of those who wait is the twentieth.
    let cell = only(measure(&toy, &[&SLOW[..], &rule].concat()));
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
    let flags = [("ops", "retr"), ("size", "50k"), ("users", "5"), ("read-rate", "20k"), ("count", "1")];
    let cell = only(measure(&toy, &flags));
    assert_eq!((cell.ops, cell.faults.count()), (5, 0), "{:?}", cell.faults);
    // 34 chunks of 1500 bytes are paid for before the last is read.
    let fastest = 34.0 * 1500.0 / 20_480.0 * 1e3;
    assert!(cell.flow.unwrap().p50_ms >= fastest - 1.0, "{:?}", cell.flow);
    // The toy is done at once, or, where it has to wait for a processor, long before the two and a half seconds are over.
    assert!(cell.lead_226.unwrap().p50_ms > 500.0, "{:?}", cell.lead_226);
}

#[test]
fn a_transfer_that_stands_still_has_a_byte_gap() {
    const HALT: Duration = Duration::from_secs(1);
    // More than the buffers of both ends hold, or an upload would not notice.
    let flags = [("ops", "retr,stor"), ("size", "32m"), ("users", "2"), ("count", "1")];
    let toy = Toy::start(Fault::Halts(HALT));
    let saw = |cell: &CellReport| cell.gap.is_some_and(|gap| gap.max_ms >= 0.9 * HALT.as_secs_f64() * 1e3);
    // On a machine that others fill, this client may look after a part of the halt only.
    let mut left = vec!["retr", "stor"];
    for _ in 0..10 {
        for cell in measure(&toy, &flags).cells {
            assert_eq!((cell.ops, cell.faults.count()), (2, 0), "{:?}", cell.faults);
            assert_eq!(cell.gap.unwrap().count, 2, "each came in many pieces");
            assert!((cell.fairness.longest_gap_ms - cell.gap.unwrap().max_ms).abs() < 0.01);
            left.retain(|&op| op != cell.measured.op || !saw(&cell));
        }
        if left.is_empty() {
            break;
        }
    }
    assert!(left.is_empty(), "no gap in {left:?}");
    drop(toy);
    let small = [("ops", "retr,noop"), ("size", "100"), ("users", "2"), ("count", "3")];
    for cell in measure(&Toy::start(Fault::Nothing), &small).cells {
        assert_eq!(cell.gap, None, "what comes in one piece has no gap");
        let goodput = cell.fairness.goodput.unwrap();
        assert_eq!(goodput.unit, if cell.measured.op == "retr" { "kB/s" } else { "ops/s" });
        assert!(goodput.min > 0.0 && goodput.min <= goodput.median && goodput.median <= goodput.max);
        let client = &cell.audit.client;
        assert!(!client.threads.is_empty() && !client.cores.is_empty(), "{client:?}");
        assert!(!cell.audit.cores_busy.is_empty(), "{:?}", cell.audit);
    }
}

#[test]
fn both_death_rules_hold_whatever_the_selector() {
    let flags = [
        ("ops", "retr"),
        ("size", "4k"),
        ("read-rate", "400k"),
        ("login-concurrency", "1"),
        ("quiet", "20s"),
    ];
    for (name, _) in SELECTORS.into_iter().filter(|row| is_permitted(row.1)) {
        for (rule, users) in [("drop-out", "4"), ("stop-growth", "9000")] {
            // A file without its end kills the user that gets it, and sooner or later every user.
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

/// Of transfers that take long the throughput over time would else be nothing, and then a needle.
#[test]
fn bytes_are_seen_while_they_move() {
    let toy = Toy::start(Fault::Nothing);
    let slow = [("ops", "retr"), ("size", "60k"), ("users", "2"), ("count", "1"), ("read-rate", "20k")];
    let cell = only(measure(&toy, &[&slow[..], &[("chunk", "1000")]].concat()));
    assert_eq!((cell.ops, cell.bytes), (2, 2 * 60 * 1024), "{:?}", cell.faults);
    let seen = cell.timeline.iter().filter(|moment| moment.ops == 0 && moment.bytes > 0).count();
    assert!(seen >= 1, "{:?}", cell.timeline);
    let last = cell.timeline.last().unwrap();
    assert_eq!((last.ops, last.bytes), (cell.ops, cell.bytes), "the end is there, too");
}

/// The toy runs nothing: what its commands would leave behind comes from the test.
#[test]
fn a_figure_with_commands_takes_until_the_last_has_run() {
    let toy = Toy::start(Fault::Nothing);
    let file = std::env::temp_dir().join(format!("millrace-ran-{}", std::process::id()));
    let name = file.to_str().unwrap().to_owned();
    std::fs::write(&file, "from before").unwrap();
    let few = [("ops", "retr"), ("size", "1k"), ("users", "2"), ("count", "3")];
    let measured = |patience: &str| {
        only(measure(&toy, &[&few[..], &[("ran", &name[..]), ("timeout", patience)]].concat()))
    };
    // No program runs.
    let cell = measured("3s");
    let commands = cell.commands.unwrap();
    assert_eq!((commands.ran, commands.of), (0, cell.ops));
    assert!(cell.warnings.iter().any(|warning| warning.starts_with("only 0 commands were seen to run")));
    // One runs behind each download, and late.
    let (done, place) = (toy.downloads(), file.clone());
    let commands = std::thread::scope(|scope| {
        scope.spawn(|| {
            while toy.downloads() < done + 6 {
                std::thread::sleep(Duration::from_millis(1));
            }
            std::thread::sleep(Duration::from_millis(300));
            std::fs::write(&place, "from before and six.").unwrap();
        });
        let cell = measured("30s");
        assert!(cell.seconds >= 0.3 && cell.ops_per_s <= 20.0, "{} {}", cell.seconds, cell.ops_per_s);
        assert!(cell.warnings.iter().all(|warning| !warning.contains("commands")), "{:?}", cell.warnings);
        cell.commands.unwrap()
    });
    std::fs::remove_file(&file).unwrap();
    assert!(commands.ran >= 6, "{commands:?}");
}
