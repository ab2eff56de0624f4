//! Races between toys of which it is known whether they differ.

use millrace_lab::gate::threshold::Threshold;
use millrace_lab::gate::{GateOutcome, interleaved};
use millrace_lab::race::{Entrant, Outcome, Race, RaceReport, Settings, text};
use millrace_load::plan::Form;
use millrace_load::progress::Silent;
use millrace_load::run::Ending;
use millrace_load::stop::Stop;

use crate::server::{Fault, Toy};

fn race(urls: &[&str], seed: u64, blocks: u32, flags: &[(&str, &str)]) -> RaceReport {
    let entrants = urls.iter().map(|url| Entrant::parse(url).unwrap()).collect();
    let settings = Settings { blocks: Some(blocks), seed, ..Settings::default() };
    Race::new(entrants, None, flags, settings).unwrap().run(&Silent).unwrap()
}

const QUICK: [(&str, &str); 4] = [("ops", "noop"), ("users", "4"), ("duration", "40ms"), ("warm-up", "0")];

/// At forty answers a second it is slower than any noise could make the other: five blocks show it even if noise
/// doubles a figure.
#[test]
fn a_server_that_is_slower_is_found_out() {
    let toy = Toy::start_alone(Fault::Nothing);
    let slow = Toy::start_beside(Fault::StarvesSessions(1, std::time::Duration::from_millis(25)));
    let flags = [&QUICK[..], &[("duration", "400ms")]].concat();
    let report = race(&[&toy.url(), &slow.url()], 1, 5, &flags);
    let main = report.scenarios[0].standings[1].main().unwrap();
    assert_eq!(main.outcome, Some(Outcome::Worse), "{main:?}");
    assert_eq!(main.samples.len(), 5);
    assert!(report.conclusions[0].contains("is worse than"), "{:?}", report.conclusions);
    assert!(!report.has_gaps() && !report.is_inconclusive());
}

/// A wait of 25 ms an answer is slower than any noise, and a server is not two times as slow as itself.
#[test]
fn a_server_is_held_against_another_at_the_same_time() {
    let toy = Toy::start_alone(Fault::Nothing);
    let slow = Toy::start_beside(Fault::StarvesSessions(1, std::time::Duration::from_millis(25)));
    let threshold = Threshold::parse("p50 > 3x").unwrap();
    let against_the_toy = |url: &str| {
        let entrants = [&toy.url(), url].map(|url| Entrant::parse(url).unwrap()).to_vec();
        let flags = [&QUICK[..], &[("duration", "100ms")]].concat();
        let race = Race::new(entrants, None, &flags, Settings::default()).unwrap();
        interleaved::compare(&race, std::slice::from_ref(&threshold), &Silent).unwrap()
    };
    let found = against_the_toy(&slow.url());
    assert_eq!((found.outcome(), found.more_failures), (GateOutcome::Failed, 0), "{found:?}");
    assert_eq!(found.ratios[0].len(), 6, "six blocks are enough: {found:?}");
    assert_ne!(against_the_toy(&toy.url()).outcome(), GateOutcome::Failed);
}

#[test]
fn a_race_in_which_operations_fail_has_failed() {
    let toy = Toy::start(Fault::Nothing);
    let other = Toy::start_beside(Fault::DropsTheEnd(3));
    let flags = [("ops", "retr"), ("users", "2"), ("count", "6"), ("duration", "5m"), ("warm-up", "0")];
    let report = race(&[&toy.url(), &other.url()], 1, 2, &flags);
    assert!(report.has_failures() && !report.has_gaps());
    let said = &report.conclusions[0];
    assert!(
        said.starts_with("OPERATIONS FAILED")
            && said.contains(&format!(" of {}", other.url().replace(":toy@", "@"))),
        "{said}"
    );
    assert!(!said.contains(&toy.url().replace(":toy@", "@")), "{said}");
    assert!(millrace_lab::html::race(&report).contains("OPERATIONS FAILED"));
    assert!(!race(&[&toy.url(), &toy.url()], 1, 2, &flags).has_failures());
}

#[test]
fn a_quick_race_needs_no_preset_and_says_that_it_was() {
    let toy = Toy::start(Fault::Nothing);
    let url = toy.url();
    let entrants = || [&url, &url].map(|url| Entrant::parse(url).unwrap()).to_vec();
    let form = Form { quick: true, ..Form::default() };
    let settings = || Settings { blocks: Some(2), form, ..Settings::default() };
    let report = Race::new(entrants(), None, &[], settings()).unwrap().run(&Silent).unwrap();
    assert_eq!(report.titled(), "race, QUICK FORM");
    let csv = text::csv(&report);
    assert!(csv.lines().next().unwrap().ends_with(",form"), "{csv}");
    assert!(csv.lines().skip(1).all(|line| line.ends_with(",quick")), "{csv}");
    let own = Race::new(entrants(), None, &QUICK[..1], settings()).unwrap();
    assert!(own.time() <= std::time::Duration::from_secs(2), "{:?}", own.time());
    assert_eq!(own.run(&Silent).unwrap().titled(), "custom, QUICK FORM");
    let form = Form { as_published: true, ..form };
    let published = Settings { form, ..Settings::default() };
    let error = Race::new(entrants(), None, &QUICK, published).unwrap_err();
    assert!(
        error.is_usage() && error.to_string().starts_with("--as-published is a form of a preset"),
        "{error}"
    );
}

#[test]
fn where_users_die_a_race_is_for_those_who_are_left() {
    let toys = [Toy::start(Fault::Nothing), Toy::start_beside(Fault::DropsTheEnd(3))];
    let urls = toys.each_ref().map(Toy::url);
    let how =
        [("ops", "retr"), ("size", "4k"), ("read-rate", "400k"), ("login-concurrency", "1"), ("quiet", "4s")];
    let rule = [("on-death", "drop-out"), ("users", "3"), ("duration", "5m"), ("warm-up", "0")];
    let long = [("label", "a load with a name that is long")];
    let report = race(&[&urls[0], &urls[1]], 1, 2, &[&how[..], &rule, &long].concat());
    let [all, none] = [0, 1].map(|at| report.scenarios[0].standings[at].main().unwrap());
    assert_eq!((&all.metric[..], all.median, none.median), ("users left", 3.0, 0.0));
    assert!(!report.has_failures(), "to die is what it is about");
    let page = text::render(&report, false);
    assert!(page.contains("retr 4k pasv a load with a name that is long, 3 users\n"), "{page}");
    assert!(page.lines().all(|line| line.chars().count() <= 100), "{page}");
}

#[test]
fn equal_seeds_draw_equal_orders() {
    let toy = Toy::start(Fault::Nothing);
    let url = toy.url();
    let flags = [("ops", "noop,login"), ("users", "1,2"), ("duration", "10ms"), ("warm-up", "0")];
    let order = |seed| {
        let order = Order::default();
        let entrants = [&url, &url].map(|url| Entrant::parse(url).unwrap()).to_vec();
        let settings = Settings { blocks: Some(3), seed, ..Settings::default() };
        Race::new(entrants, None, &flags, settings).unwrap().run(&order).unwrap();
        order.0.into_inner()
    };
    let first = order(1);
    assert_eq!(first.len(), 3 * 2 * 4);
    assert_eq!(first, order(1));
    assert_ne!(first, order(2));
}

/// Records the order of measurements.
#[derive(Default)]
struct Order(std::cell::RefCell<Vec<String>>);

impl millrace_lab::race::Watcher for Order {
    fn begins(&self, turn: &millrace_lab::race::Turn<'_>) {
        let what = format!("{} {} {}", turn.entrant, turn.cell.op, turn.cell.users);
        self.0.borrow_mut().push(what);
    }
}

#[test]
fn a_race_that_is_interrupted_keeps_its_whole_figures() {
    let toy = Toy::start(Fault::Nothing);
    let url = toy.url();
    let entrants = || [&url, &url].map(|url| Entrant::parse(url).unwrap()).to_vec();
    let settings = || Settings { blocks: Some(5), ..Settings::default() };
    let impatient = Impatient { patience: 6, ..Impatient::default() };
    let report = Race::new(entrants(), None, &QUICK, settings()).unwrap().run(&impatient).unwrap();
    assert_eq!((&report.ending, report.blocks), (&Ending::Interrupted, 5));
    // It was asked while the sixth was about to be taken, in the third block.
    let cells = report.scenarios[0].standings.iter().map(|standing| standing.cells.len()).sum::<usize>();
    assert_eq!(cells, 5);
    let main = report.scenarios[0].standings[1].main().unwrap();
    assert!(main.ratio.is_some() && main.samples.len() == 5, "{main:?}");
    assert!(!report.has_gaps() && !report.has_wrong_data());
    let last = report.conclusions.last().unwrap();
    assert!(last.contains("interrupted: 5 of 10 figures"), "{last}");
    assert_eq!(RaceReport::parse(&report.json()).unwrap().ending, Ending::Interrupted);
    let at_once = Impatient { patience: 1, ..Impatient::default() };
    let error = Race::new(entrants(), None, &QUICK, settings()).unwrap().run(&at_once).unwrap_err();
    assert!(error.to_string().contains("interrupted, before anything was measured"), "{error}");
}

/// Asks to end it when this many figures have begun.
#[derive(Default)]
struct Impatient {
    patience: usize,
    begun: std::cell::Cell<usize>,
    stop: Stop,
}

impl millrace_lab::race::Watcher for Impatient {
    fn begins(&self, _: &millrace_lab::race::Turn<'_>) {
        self.begun.set(self.begun.get() + 1);
        if self.begun.get() == self.patience {
            self.stop.ask();
        }
    }

    fn stop(&self) -> &Stop {
        &self.stop
    }
}
