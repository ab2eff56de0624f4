//! Bad users beside good ones, against Millrace. One test: it counts the descriptors of its own process.

use std::sync::Arc;

use millrace_lab::report::{Report, text};
use millrace_lab::run::run;
use millrace_load::chaos::{Deed, MISCHIEFS, Mischief};
use millrace_load::plan::Plan;
use millrace_load::progress::Silent;
use millrace_server::config::LogFormat;
use millrace_server::{Accounts, Config, Permissions, Server};
use millrace_storage::MemoryStorage;

#[test]
fn good_users_are_served_amid_bad_ones_and_nothing_leaks() {
    let accounts =
        Accounts::new().user("bench", "bench", Permissions::READ_WRITE, Arc::new(MemoryStorage::new()));
    let ftp = vec!["127.0.0.1:0".parse().unwrap()];
    let config = Config { ftp, log: LogFormat::Warnings, ..Config::new(Arc::new(accounts)) };
    let server = Server::start(config).unwrap();
    let url = format!("ftp://bench:bench@{}/", server.ftp_addresses()[0]);
    let pid = std::process::id().to_string();
    let flags = [
        ("ops", "retr"),
        ("users", "5"),
        ("think", "5ms"),
        ("duration", "3s"),
        ("chaos", "100%"),
        ("server-pid", &pid),
    ];
    let plan = Plan::new(&url, None, &flags).unwrap();
    // On a machine that others fill, a bad user may not get to its deed, nor the server to its end, the first time.
    let is_telling = |report: &Report| {
        let chaos = report.cells.last().and_then(|cell| cell.chaos.as_ref());
        chaos.is_some_and(|chaos| {
            let has_come_through =
                |deed: &Deed| deed.kind != Mischief::Abor || deed.times > deed.ended_by_server;
            let deeds = &chaos.deeds;
            deeds.iter().all(|deed| deed.times > 0 && has_come_through(deed))
                && chaos.leaked() == Some((0, 0))
        })
    };
    let mut report = run(&plan, &Silent).unwrap();
    for _ in 0..4 {
        if !is_telling(&report) {
            report = run(&plan, &Silent).unwrap();
        }
    }
    server.shut_down();

    let [calm, amid] = &report.cells[..] else { panic!("{report:?}") };
    assert!(calm.chaos.is_none());
    for cell in [calm, amid] {
        assert_eq!(cell.faults.count() + cell.login_faults.count(), 0, "{:?}", cell.faults);
        assert!(cell.ops > 5, "{}", cell.ops);
    }
    let chaos = amid.chaos.as_ref().unwrap();
    assert_eq!((chaos.users, chaos.calm_p99_ms), (7, Some(calm.latency.p99_ms)));
    assert!(chaos.deeds.iter().all(|deed| deed.times > 0), "{:?}", chaos.deeds);
    assert_eq!(chaos.deeds.len(), MISCHIEFS.len());
    // Millrace answers an ABOR with 426 and 226, and the session goes on.
    let abor = chaos.deeds.iter().find(|deed| deed.kind == Mischief::Abor).unwrap();
    assert!(abor.times > abor.ended_by_server, "{abor:?}");
    assert_eq!(chaos.leaked(), Some((0, 0)), "{chaos:?}");
    assert!(text::render(&report, false).contains("amid 7 bad users"));
}
