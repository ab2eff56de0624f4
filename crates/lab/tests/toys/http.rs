//! The benchmark's HTTP client against a toy whose faults are known.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use millrace_lab::report::{Report, csv, text, zb};
use millrace_lab::run::run;
use millrace_load::fault;
use millrace_load::figure::CellReport;
use millrace_load::plan::{Form, Plan, Preset};
use millrace_load::progress::Silent;
use millrace_load::selector::SELECTORS;

use crate::is_permitted;

const DOCUMENT: usize = 1666;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Flaw {
    Nothing,
    /// One in this many documents is a byte longer.
    Longer(u64),
    /// One in this many requests is refused with a page of another length; all of them, of 1.
    Refuses(u64),
    /// One in this many documents ends early.
    Truncates(u64),
    /// Every document is a file's.
    OfFile,
    /// Every kept connection is closed after this many responses, without a word.
    Closes(u64),
}

/// A server that runs until its process ends; it answers where it listens.
fn start(flaw: Flaw) -> String {
    start_counting(flaw).0
}

/// The first lines of all requests that a toy has served.
type Heard = Arc<Mutex<Vec<String>>>;

/// The same, and what it hears.
fn start_counting(flaw: Flaw) -> (String, Heard) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/index.html", listener.local_addr().unwrap());
    let (served, heard) = (Arc::new(AtomicU64::new(0)), Heard::default());
    let hears = Arc::clone(&heard);
    std::thread::spawn(move || {
        for socket in listener.incoming().flatten() {
            let (served, heard) = (Arc::clone(&served), Arc::clone(&hears));
            std::thread::spawn(move || serve(socket, flaw, &served, &heard));
        }
    });
    (url, heard)
}

fn serve(mut socket: TcpStream, flaw: Flaw, served: &AtomicU64, heard: &Mutex<Vec<String>>) {
    socket.set_nodelay(true).unwrap();
    let mut lines = BufReader::new(socket.try_clone().unwrap()).lines().map_while(Result::ok);
    let mut here = 0;
    while let Some(first) = lines.next() {
        let rest: Vec<String> = lines.by_ref().take_while(|line| !line.is_empty()).collect();
        assert!(first.starts_with("GET /index.html HTTP/1."), "{first}");
        heard.lock().unwrap().push(first.clone());
        let says = |what: &str| rest.iter().any(|line| line.eq_ignore_ascii_case(what));
        let keeps =
            if first.ends_with("1.1") { !says("Connection: close") } else { says("Connection: Keep-Alive") };
        let number = served.fetch_add(1, Ordering::SeqCst) + 1;
        let is_spoilt = |every: u64| number.is_multiple_of(every);
        let length =
            if matches!(flaw, Flaw::Longer(every) if is_spoilt(every)) { DOCUMENT + 1 } else { DOCUMENT };
        let sent =
            if matches!(flaw, Flaw::Truncates(every) if is_spoilt(every)) { length / 2 } else { length };
        let is_refused = matches!(flaw, Flaw::Refuses(every) if is_spoilt(every));
        let (status, length, sent) = if is_refused { ("401 No", 187, 187) } else { ("200 OK", length, sent) };
        let dated =
            if flaw == Flaw::OfFile { "Last-Modified: Sun, 09 Sep 2001 01:46:40 GMT\r\n" } else { "" };
        let connection = if keeps { "Keep-Alive" } else { "close" };
        let head = format!(
            "HTTP/1.0 {status}\r\nServer: Toy\r\n{dated}Content-Length: {length}\r\nConnection: {connection}\r\n\r\n"
        );
        let _ = socket.write_all(&[head.into_bytes(), vec![b'x'; sent]].concat());
        here += 1;
        if !keeps || sent < length || matches!(flaw, Flaw::Closes(most) if here == most) {
            return;
        }
    }
}

fn measure_all(flaw: Flaw, flags: &[(&str, &str)]) -> Report {
    let always = [("ops", "get"), ("warm-up", "0"), ("duration", "5m"), ("users", "4")];
    run(&Plan::new(&start(flaw), None, &[&always[..], flags].concat()).unwrap(), &Silent).unwrap()
}

fn measure(flaw: Flaw, flags: &[(&str, &str)]) -> CellReport {
    let [cell] = <[CellReport; 1]>::try_from(measure_all(flaw, flags).cells).unwrap();
    cell
}

#[test]
fn whatever_the_selector_every_response_comes() {
    for (name, _) in SELECTORS.into_iter().filter(|row| is_permitted(row.1)) {
        for keep_alive in ["on", "off"] {
            let flags = [("total", "100"), ("keep-alive", keep_alive), ("selector", name)];
            let cell = measure(Flaw::Closes(7), &flags);
            assert_eq!((cell.ops, cell.faults.count()), (100, 0), "{name} {keep_alive}: {:?}", cell.faults);
        }
    }
}

#[test]
fn every_request_is_answered_on_kept_and_on_new_connections() {
    for (keep_alive, connects) in [("on", 4), ("off", 300)] {
        for http in ["1.0", "1.1"] {
            let cell =
                measure(Flaw::Nothing, &[("total", "300"), ("keep-alive", keep_alive), ("http", http)]);
            let figures = cell.http.unwrap();
            assert_eq!((cell.ops, cell.faults.count()), (300, 0), "{:?}", cell.faults);
            assert_eq!(figures.connect.count, connects, "{keep_alive} {http}");
            assert_eq!(figures.kept_alive, if keep_alive == "on" { 300 } else { 0 });
            assert_eq!((cell.bytes, figures.document_bytes), (300 * DOCUMENT as u64, DOCUMENT as u64));
            assert!(figures.wire_bytes > cell.bytes && figures.server == "Toy");
        }
    }
}

#[test]
fn documents_of_another_length_have_failed() {
    let cell = measure(Flaw::Longer(10), &[("total", "100")]);
    assert_eq!((cell.ops, cell.faults.of(fault::Fault::OtherLength)), (90, 10), "{:?}", cell.faults);
}

#[test]
fn the_block_of_zeusbench_is_of_complete_requests_only() {
    let refused = [("total", "40"), ("keep-alive", "off")];
    let report = measure_all(Flaw::Refuses(1), &refused);
    let block = zb::render(&report, zb::Spelling::Modern);
    assert!(block.contains("Document Length:        -\n") && !block.contains("Total"), "{block}");
    assert!(block.ends_with("No request ended well: there are no times.\n"), "{block}");
    let page = text::render(&report, false);
    assert!(!page.contains("more users or a higher rate"), "{page}");
    let [cell] = <[CellReport; 1]>::try_from(report.cells).unwrap();
    let http = cell.http.unwrap();
    assert_eq!((cell.ops, cell.faults.count()), (0, 40), "{:?}", cell.faults);
    assert_eq!((http.connect.count, http.document_bytes, http.wire_bytes), (0, 0, 0), "{http:?}");
    let cell = measure(Flaw::Refuses(4), &refused);
    let http = cell.http.unwrap();
    assert_eq!((cell.ops, http.connect.count, http.document_bytes), (30, 30, DOCUMENT as u64), "{http:?}");
    assert!(http.wire_bytes > cell.bytes && http.wire_bytes < cell.bytes + 30 * 200, "{http:?}");
}

#[test]
fn documents_that_end_early_are_truncated() {
    let cell = measure(Flaw::Truncates(10), &[("total", "100")]);
    assert_eq!((cell.ops, cell.faults.of(fault::Fault::Truncated)), (90, 10), "{:?}", cell.faults);
}

#[test]
fn a_kept_connection_may_be_closed_between_two_requests() {
    let cell = measure(Flaw::Closes(5), &[("total", "200")]);
    assert_eq!((cell.ops, cell.faults.count()), (200, 0), "{:?}", cell.faults);
    assert!(cell.http.unwrap().connect.count >= 40);
}

fn preset(name: &str) -> Report {
    let preset = Preset::built_in_as(name, Form { quick: true, ..Form::default() }).unwrap();
    run(&Plan::new(&start(Flaw::Nothing), Some(&preset), &[]).unwrap(), &Silent).unwrap()
}

#[test]
fn zeusbench_prints_its_block_letter_by_letter() {
    let report = preset("zb-tux");
    let text = zb::compat(&report);
    assert!(text.starts_with("This was the quick form"), "{text}");
    let csv = csv::render(&report);
    assert!(csv.lines().next().unwrap().ends_with(",form"), "{csv}");
    assert!(csv.lines().skip(1).all(|line| line.ends_with(",quick")), "{csv}");
    let full = zb::compat(&Report { quick: Vec::new(), ..report });
    assert!(text.ends_with(&full) && full.trim_start().starts_with("Server: "), "{full}");
    for line in [
        "Doucment Length:        1666 bytes",
        "Concurency Level:       20",
        "Complete requests:      500",
        "Failed requests:        0",
        "HTML transfered:        833000 bytes",
        "Connnection Times (ms)",
    ] {
        assert!(text.lines().any(|found| found == line), "{line:?} is not in:\n{text}");
    }
}

#[test]
fn a_file_is_no_answer_of_a_program() {
    let preset = Preset::built_in_as("zb-tux-cgi", Form { quick: true, ..Form::default() }).unwrap();
    let error = run(&Plan::new(&start(Flaw::OfFile), Some(&preset), &[]).unwrap(), &Silent).unwrap_err();
    assert!(error.is_usage(), "{error}");
    let said = error.to_string();
    assert!(said.contains("is answered out of a file (the answer has last-modified)"), "{said}");
    assert_eq!(measure(Flaw::OfFile, &[("total", "20")]).ops, 20, "elsewhere files are what is asked for");
}

/// Asked as the load asks, and once: to ask a program is to run it.
#[test]
fn the_probe_sends_the_same_request_as_the_load() {
    for (cgi, http, repeat) in [("on", "1.0", "3"), ("off", "1.0", "1"), ("off", "1.1", "1")] {
        let (url, heard) = start_counting(Flaw::Nothing);
        let flags = [("ops", "get"), ("cgi", cgi), ("http", http), ("keep-alive", "off"), ("repeat", repeat)];
        let few = [("total", "20"), ("users", "2"), ("duration", "5m"), ("warm-up", "0")];
        let report = run(&Plan::new(&url, None, &[&flags[..], &few].concat()).unwrap(), &Silent).unwrap();
        let asked: u64 = report.cells.iter().map(|cell| cell.ops).sum();
        let heard = heard.lock().unwrap();
        assert_eq!(heard.len() as u64, asked + 1, "one was to see who is there");
        let version = format!("HTTP/{http}");
        assert!(heard.iter().all(|line| line.ends_with(&version)), "{:?}", heard.first());
    }
}

#[test]
fn the_presets_over_http_run_without_a_fault() {
    for name in ["http", "zb-tux", "zb-tux-cgi"] {
        let report = preset(name);
        assert!(report.cells.iter().all(|cell| cell.faults.count() == 0 && cell.ops > 0), "{name}");
        let is_full = |table: &millrace_lab::report::table::Table| {
            table.rows.iter().all(|row| row.numbers[0].measured.is_some())
        };
        assert!(report.tables.iter().all(is_full), "{name}");
    }
}
