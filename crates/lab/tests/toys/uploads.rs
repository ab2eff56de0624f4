//! Work between figures: uploads are verified, by any hash that the server has or by reading them back; and the user
//! can cancel that, or the removal of test files.

use std::time::Duration;

use millrace_lab::report::text;
use millrace_lab::run::run;
use millrace_load::fault;
use millrace_load::figure::CellReport;
use millrace_load::fixture::FixtureStep;
use millrace_load::plan::Plan;
use millrace_load::progress::{Progress, Silent, Snapshot};
use millrace_load::run::Ending;
use millrace_load::stop::Stop;

use crate::server::{Fault, Hashes, Toy};
use crate::{measure, only};

/// Two uploads of each of four users, checked.
const LOAD: [(&str, &str); 5] =
    [("ops", "stor"), ("users", "4"), ("count", "2"), ("duration", "5m"), ("verify", "on")];

#[test]
fn a_servers_own_hash_spares_reading_uploads_back() {
    for (hashes, by, downloads) in
        [(Hashes::None, "reading back", 4), (Hashes::Hash, "HASH SHA-256", 0), (Hashes::Xcrc, "XCRC", 0)]
    {
        let toy = Toy::start_with(Fault::Nothing, hashes);
        let report = measure(&toy, &LOAD);
        let page = text::render(&report, false);
        let cell = only(report);
        assert_eq!((cell.ops, cell.faults.count(), toy.downloads()), (8, 0, downloads), "{hashes:?}");
        let check = cell.upload_check.unwrap();
        assert_eq!(
            (&check.by[..], check.uploads, check.by_hash + check.by_reading, check.wrong),
            (by, 4, 4, 0)
        );
        assert!(page.contains(&format!("4 of 4 uploads were checked by {by}\n")), "{page}");
    }
}

#[test]
fn an_error_found_by_a_hash_is_classified() {
    for hashes in [Hashes::Hash, Hashes::Xcrc] {
        let toy = Toy::start_with(Fault::LosesUploads, hashes);
        let cell = only(measure(&toy, &LOAD));
        assert_eq!(cell.faults.of(fault::Fault::CrossedOver), 4, "{hashes:?}: {:?}", cell.faults);
        assert_eq!(cell.upload_check.unwrap().wrong, 4);
    }
}

#[test]
fn a_hash_that_is_not_the_files_is_the_servers_fault_and_one_that_is_refused_is_not() {
    let toy = Toy::start_with(Fault::Nothing, Hashes::Wrong);
    let cell = only(measure(&toy, &LOAD));
    assert_eq!(cell.faults.of(fault::Fault::Protocol), 4, "{:?}", cell.faults);
    drop(toy);
    let toy = Toy::start_with(Fault::Nothing, Hashes::Refused);
    let cell = only(measure(&toy, &LOAD));
    let check = cell.upload_check.unwrap();
    assert_eq!((cell.faults.count(), check.by_hash, check.by_reading), (0, 0, 4), "{:?}", cell.faults);
    assert!(check.to_string().contains("4 of them by reading back"), "{check}");
}

#[test]
fn a_logs_uploads_are_checked_in_their_own_sizes() {
    let log = std::env::temp_dir().join(format!("millrace-toys-log-{}", std::process::id()));
    let line = |second: u32, bytes: u32, way: char| {
        format!("Sun Sep  9 01:46:{second} 2001 0 10.0.0.1 {bytes} /f b _ {way} r alice ftp 0 * c\n")
    };
    std::fs::write(&log, line(40, 3000, 'i') + &line(41, 70_000, 'i') + &line(42, 500, 'o')).unwrap();
    let replay = [("replay", log.to_str().unwrap()), ("speed", "10x"), ("verify", "on")];
    for (fault, wrong) in [(Fault::Nothing, 0), (Fault::LosesUploads, 1)] {
        let toy = Toy::start_with(fault, Hashes::Hash);
        let plan = Plan::new(&toy.url(), None, &replay).unwrap();
        let cell = only(run(&plan, &Silent).unwrap());
        let check = cell.upload_check.unwrap();
        assert_eq!((cell.ops, check.uploads, check.wrong), (3, 1, wrong), "{fault:?}: {:?}", cell.faults);
    }
    std::fs::remove_file(&log).unwrap();
}

#[test]
fn all_users_may_write_over_one_file_and_it_is_right() {
    let toy = Toy::start(Fault::Halts(Duration::from_millis(1)));
    let cell = only(measure(&toy, &[&LOAD[..], &[("names", "one")]].concat()));
    assert_eq!((cell.ops, cell.faults.count()), (8, 0), "{:?}", cell.faults);
}

/// Asks to end it when this many of a step are done.
pub(crate) struct Impatient {
    at: (FixtureStep, usize),
    stop: Stop,
}

impl Impatient {
    pub(crate) fn new(step: FixtureStep, done: usize) -> Self {
        Self { at: (step, done), stop: Stop::new() }
    }
}

impl Progress for Impatient {
    fn tell(&self, _: &Snapshot<'_>) {}
    fn cell_done(&self, _: &CellReport) {}
    fn between(&self, step: FixtureStep, done: usize, _: usize) {
        if (step, done) == self.at {
            self.stop.ask();
        }
    }
    fn stop(&self) -> &Stop {
        &self.stop
    }
}

#[test]
fn making_and_removing_test_files_can_be_cancelled() {
    let toy = Toy::start(Fault::Nothing);
    let flags = [("ops", "retr"), ("users", "10"), ("count", "1"), ("duration", "5m"), ("warm-up", "0")];
    let plan = Plan::new(&toy.url(), None, &flags).unwrap();
    let report = run(&plan, &Impatient::new(FixtureStep::Removing, 3)).unwrap();
    // All was measured.
    assert_eq!((report.ending, report.cells[0].ops), (Ending::Complete, 10));
    let warning = report.warnings.last().unwrap();
    assert!(warning.contains("left on the server") && warning.contains("7 are left"), "{warning}");
    let error = run(&plan, &Impatient::new(FixtureStep::Making, 5)).unwrap_err();
    assert!(error.to_string().contains("interrupted, before anything was measured"), "{error}");
    let flags = [&flags[..], &[("ops", "stor"), ("verify", "on")]].concat();
    let plan = Plan::new(&toy.url(), None, &flags).unwrap();
    let report = run(&plan, &Impatient::new(FixtureStep::Checking, 4)).unwrap();
    let check = report.cells[0].upload_check.as_ref().unwrap();
    assert_eq!((check.uploads, check.by_reading, report.ending), (10, 4, Ending::Interrupted), "{check}");
}
