//! Every preset, shortened, against Millrace: it runs to its end without a fault, and fills its document's table.

use std::sync::{Arc, Mutex};

use millrace_lab::html;
use millrace_lab::report::{Report, markdown, text};
use millrace_lab::run::run;
use millrace_load::fault::Fault;
use millrace_load::plan::{BUILT_IN, Form, Plan, Preset};
use millrace_load::progress::Silent;
use millrace_server::config::LogFormat;
use millrace_server::{Accounts, Config, Permissions, Running, Server};
use millrace_storage::MemoryStorage;

fn start() -> Running {
    let tree = Arc::new(MemoryStorage::new());
    tree.insert("/listing/a", "what the preset of races lists");
    let accounts = Accounts::new().user("bench", "bench", Permissions::READ_WRITE, tree);
    let config = Config {
        ftp: vec!["127.0.0.1:0".parse().unwrap()],
        log: LogFormat::Warnings,
        ..Config::new(Arc::new(accounts))
    };
    Server::start(config).unwrap()
}

fn measure(name: &str, as_published: bool) -> Report {
    let server = start();
    let url = format!("ftp://bench:bench@{}/", server.ftp_addresses()[0]);
    let preset = Preset::built_in_as(name, Form { as_published, quick: true }).unwrap();
    let pid = std::process::id().to_string();
    let plan = Plan::new(&url, Some(&preset), &[("server-pid", &pid)]).unwrap();
    let report = run(&plan, &Silent).unwrap();
    server.shut_down();
    report
}

#[test]
fn the_quick_form_of_every_preset_runs_without_a_fault() {
    // Those over HTTP are run against a toy.
    let is_ftp = |name: &&str| *name != "http" && !name.starts_with("zb");
    let names: Vec<&str> = BUILT_IN.map(|row| row.0).into_iter().filter(is_ftp).collect();
    // Most of their time is waiting: some of them at a time wait together.
    let rest = Mutex::new(names.into_iter());
    let next = || rest.lock().unwrap().next();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| std::iter::from_fn(next).for_each(run_quickly));
        }
    });
}

fn run_quickly(name: &str) {
    let report = measure(name, false);
    for cell in &report.cells {
        // Users that are too slow and drop out are a result; on a busy machine there may be some.
        let faults = cell.faults.count() - cell.faults.of(Fault::TooSlow);
        assert_eq!(faults + cell.login_faults.count(), 0, "{name}: {:?}", cell.faults);
    }
    let text = text::render(&report, false);
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{name}: {text}");
    // How steady repetitions of a fifth of a second are is the machine's affair.
    let unsteady = " repetitions differ too much to tell a mean";
    let warnings = || report.warnings.iter().filter(|warning| !warning.contains(unsteady));
    assert_eq!(warnings().count(), 0, "{name}: {:?}", report.warnings);
    says_that_it_is_quick(name, &report);
}

/// The quick form's figures must not be taken for the document's, whatever form the report is read in.
fn says_that_it_is_quick(name: &str, report: &Report) {
    let forms = [text::render(report, false), html::run(report), markdown::render(report)];
    for form in forms {
        let lower = form.to_lowercase();
        assert!(
            form.contains(&format!("{name}, QUICK FORM")) && lower.contains("this was the quick form"),
            "{form}"
        );
    }
    let json: serde_json::Value = serde_json::from_str(&report.json()).unwrap();
    assert!(!json["quick"].as_array().unwrap().is_empty(), "{name}");
    for table in &report.tables {
        assert!(table.title.starts_with("QUICK FORM, not the document's load: "), "{name}: {}", table.title);
        let numbers = table.rows.iter().flat_map(|row| &row.numbers);
        assert!(numbers.filter_map(|number| number.plus_minus).count() == 0, "{name}: {}", table.render());
    }
    if name == "pyftpdlib" {
        let rows = &report.tables[0].rows;
        assert!(
            rows.iter().any(|row| row.name == "200 clients (RETR 10.0M file), s [20 users, 1m]"),
            "{rows:?}"
        );
    }
}

#[test]
fn every_table_gets_a_number() {
    for (name, as_published) in [
        ("dkftp-2000-01-13", false),
        ("dkftp-2001-09-14", false),
        ("iitk1996-loop-change", true),
        ("waarp-1k", false),
    ] {
        let report = measure(name, as_published);
        for table in &report.tables {
            let measured = |row: &millrace_lab::report::table::Row| {
                row.numbers.iter().any(|number| number.measured.is_some_and(|number| number > 0.0))
            };
            let is_known = table.rows.iter().any(measured);
            assert!(is_known, "{name}: {}", table.render());
            let page = table.render();
            assert!(page.lines().all(|line| line.chars().count() <= 100), "{name}: {page}");
            if name.starts_with("dkftp-2001") {
                let cpu = |row: &&millrace_lab::report::table::Row| row.name.starts_with("CPU %");
                assert_eq!(table.rows.iter().filter(cpu).count(), 2, "{page}");
                let known = table.rows.iter().filter(cpu).all(|row| row.numbers[0].measured.is_some());
                assert!(known, "{page}");
            }
            if name.starts_with("iitk") {
                assert!(table.title.ends_with("; cache created"), "{}", table.title);
                // The rate, the skew and the sync ratio of users that download the same file, by users.
                let of_same = table.rows.iter().filter(|row| row.name.to_lowercase().contains("same"));
                let of_same: Vec<_> = of_same.collect();
                let known = |row: &&millrace_lab::report::table::Row| {
                    row.numbers.iter().all(|number| number.measured.is_some())
                };
                assert!(of_same.len() == 3 && of_same.iter().all(known), "{page}");
            }
        }
    }
}

#[test]
fn the_script_of_pyftpdlib_is_followed_as_published() {
    let report = measure("pyftpdlib", true);
    let [rows, _] = &report.tables[..] else { panic!("{:?}", report.tables) };
    let known = |name: &str| {
        let row = rows.rows.iter().find(|row| row.name.starts_with(name)).unwrap();
        row.numbers.iter().filter(|number| number.measured.is_some()).count()
    };
    // The value, and four kinds of memory.
    let clients = ["connect", "RETR", "STOR", "QUIT"].map(|what| format!("200 clients ({what}"));
    for name in ["STOR (client", "RETR (server"].into_iter().chain(clients.iter().map(String::as_str)) {
        assert_eq!(known(name), 5, "{name}: {}", rows.render());
    }
    assert_eq!(known("the same at once"), 0, "{}", rows.render());
}

#[test]
fn ipv6_is_measured_in_every_mode() {
    let tree = Arc::new(MemoryStorage::new());
    let accounts = Accounts::new().user("bench", "bench", Permissions::READ_WRITE, tree);
    let ftp = vec!["[::1]:0".parse().unwrap()];
    let config = Config { ftp, log: LogFormat::Warnings, ..Config::new(Arc::new(accounts)) };
    let server = Server::start(config).unwrap();
    let url = format!("ftp://bench:bench@{}/", server.ftp_addresses()[0]);
    let flags = [
        ("ops", "retr,stor,list"),
        ("mode", "pasv,eprt"),
        ("users", "3"),
        ("count", "5"),
        ("warm-up", "0"),
        ("verify", "on"),
    ];
    let report = run(&Plan::new(&url, None, &flags).unwrap(), &Silent).unwrap();
    server.shut_down();
    assert_eq!(report.cells.len(), 6);
    for cell in &report.cells {
        assert_eq!((cell.ops, cell.faults.count()), (15, 0), "{:?}", cell.faults);
        assert!(["epsv", "eprt"].contains(&cell.measured.mode.as_deref().unwrap()));
    }
}

#[test]
fn a_log_is_replayed_in_its_order_sizes_and_directions() {
    let server = start();
    let url = format!("ftp://bench:bench@{}/", server.ftp_addresses()[0]);
    let log = concat!(env!("CARGO_MANIFEST_DIR"), "/../load/tests/xferlog");
    let flags = [("replay", log), ("speed", "30"), ("verify", "on")];
    let report = run(&Plan::new(&url, None, &flags).unwrap(), &Silent).unwrap();
    server.shut_down();
    let [cell] = &report.cells[..] else { panic!("{report:?}") };
    let replay = cell.replay.as_ref().unwrap();
    assert_eq!((replay.transfers, replay.failed, replay.logged.skipped), (60, 0, 1), "{:?}", cell.faults);
    assert_eq!((replay.logged.transfers, replay.bytes), (60, replay.logged.bytes));
    assert!(cell.seconds >= replay.logged.seconds / 30.0 * 0.9, "{} {}", cell.seconds, replay.logged.seconds);
    assert!(text::render(&report, false).contains("60 of 60 transfers"));
}

#[test]
fn the_presets_over_http_run_against_millrace() {
    let tree = Arc::new(MemoryStorage::new());
    tree.insert("/index.html", [b'x'; 1666]);
    let accounts = Accounts::new().user("bench", "bench", Permissions::READ_WRITE, tree);
    let http = vec!["127.0.0.1:0".parse().unwrap()];
    let config = Config { http, log: LogFormat::Warnings, ..Config::new(Arc::new(accounts)) };
    let server = Server::start(config).unwrap();
    let url = format!("http://bench:bench@{}/index.html", server.http_addresses()[0]);
    for name in ["http", "zb-tux"] {
        let preset = Preset::built_in_as(name, Form { as_published: false, quick: true }).unwrap();
        let report = run(&Plan::new(&url, Some(&preset), &[]).unwrap(), &Silent).unwrap();
        for cell in &report.cells {
            assert!(cell.ops > 0 && cell.faults.count() == 0, "{name}: {:?}", cell.faults);
            let http = cell.http.as_ref().unwrap();
            let keeps = cell.measured.label.as_deref() == Some("keep-alive");
            assert_eq!(http.kept_alive, if keeps { cell.ops } else { 0 }, "{name}: {:?}", cell.measured);
            assert_eq!(cell.bytes, cell.ops * 1666, "{name}");
        }
    }
    server.shut_down();
}
