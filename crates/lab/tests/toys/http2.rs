//! The benchmark's HTTP/2 client by prior knowledge, without TLS, against a toy whose faults are known.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use millrace_http::Status;
use millrace_http::h2::{ConnectionLimits, ErrorCode, Pseudo, Server, StreamEvent};
use millrace_lab::run::run;
use millrace_load::fault::Fault;
use millrace_load::figure::CellReport;
use millrace_load::plan::Plan;
use millrace_load::progress::Silent;
use millrace_load::selector::SELECTORS;

use crate::is_permitted;

/// More than a flow-control window that stays closed.
const DOCUMENT: usize = 100_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Flaw {
    Nothing,
    /// One in this many streams is reset in the middle of the document.
    Resets(u64),
    /// Every connection serves this many streams, and says so.
    Leaves(usize),
    /// One in this many connections ends in the middle of a document.
    Cuts(u64),
}

/// A server that runs until its process ends; it answers where it listens.
fn start(flaw: Flaw) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/index.html", listener.local_addr().unwrap());
    let served = Arc::new(AtomicU64::new(0));
    std::thread::spawn(move || {
        for socket in listener.incoming().flatten() {
            let served = Arc::clone(&served);
            std::thread::spawn(move || serve(socket, flaw, &served));
        }
    });
    url
}

/// Ends where the client does, or where the flaw has it end.
fn serve(mut socket: TcpStream, flaw: Flaw, served: &AtomicU64) -> Option<()> {
    socket.set_nodelay(true).unwrap();
    let (mut out, mut buffer, mut here) = (Vec::new(), vec![0; 64 * 1024], 0);
    let mut server = Server::new(ConnectionLimits::default(), &mut out);
    let mut bodies: Vec<(u32, usize)> = Vec::new();
    loop {
        socket.write_all(&out).ok()?;
        out.clear();
        let count = socket.read(&mut buffer).ok().filter(|count| *count > 0)?;
        let mut input = &buffer[..count];
        loop {
            let received = server.receive(input, Instant::now(), &mut out).ok()?;
            input = &input[received.taken..];
            let Some(event) = received.event else { break };
            let StreamEvent::Head { stream, ends: true } = event else { continue };
            assert_eq!(server.fields().pseudo(Pseudo::Path), Some(&b"/index.html"[..]));
            let number = served.fetch_add(1, Ordering::SeqCst) + 1;
            here += 1;
            server.head(stream, false, &mut out, |fields| {
                fields.status(Status::OK).field("server", b"Toy").length(DOCUMENT as u64);
            });
            let is_spoilt = |every: u64| number.is_multiple_of(every);
            if matches!(flaw, Flaw::Resets(every) | Flaw::Cuts(every) if is_spoilt(every)) {
                server.data_head(stream, 7, false, &mut out);
                out.extend_from_slice(b"1234567");
                if matches!(flaw, Flaw::Cuts(_)) {
                    return socket.write_all(&out).ok();
                }
                server.reset(stream, ErrorCode::INTERNAL_ERROR, &mut out);
            } else {
                bodies.push((stream, DOCUMENT));
            }
            if flaw == Flaw::Leaves(here) {
                server.shut_down(ErrorCode::NO_ERROR, &mut out);
            }
        }
        while let Some((stream, room)) = server.next_body() {
            let at = bodies.iter().position(|(other, _)| *other == stream)?;
            let count = room.min(bodies[at].1);
            bodies[at].1 -= count;
            server.data_head(stream, count, bodies[at].1 == 0, &mut out);
            out.resize(out.len() + count, b'x');
        }
    }
}

fn measure(flaw: Flaw, flags: &[(&str, &str)]) -> CellReport {
    let always = [("ops", "get"), ("warm-up", "0"), ("duration", "5m"), ("users", "4"), ("http2", "on")];
    let report =
        run(&Plan::new(&start(flaw), None, &[&always[..], flags].concat()).unwrap(), &Silent).unwrap();
    let [cell] = <[CellReport; 1]>::try_from(report.cells).unwrap();
    cell
}

#[test]
fn every_document_comes_whatever_the_selector() {
    for (name, _) in SELECTORS.into_iter().filter(|row| is_permitted(row.1)) {
        for (keep_alive, connects) in [("on", 4), ("off", 60)] {
            let flags = [("total", "60"), ("keep-alive", keep_alive), ("selector", name)];
            let cell = measure(Flaw::Nothing, &flags);
            let http = cell.http.unwrap();
            assert_eq!((cell.ops, cell.faults.count()), (60, 0), "{flags:?}: {:?}", cell.faults);
            assert_eq!((cell.bytes, http.connect.count), (60 * DOCUMENT as u64, connects), "{flags:?}");
            assert_eq!(http.kept_alive, if keep_alive == "on" { 60 } else { 0 }, "{flags:?}");
            assert!(http.wire_bytes > cell.bytes && http.server == "Toy", "{http:?}");
        }
    }
}

#[test]
fn a_stream_that_is_reset_is_a_fault_and_the_next_is_none() {
    let cell = measure(Flaw::Resets(10), &[("total", "100")]);
    assert_eq!((cell.ops, cell.faults.of(Fault::Protocol)), (90, 10), "{:?}", cell.faults);
    let cell = measure(Flaw::Cuts(10), &[("total", "100")]);
    // The toy's socket closes with a reset where the client's next bytes have come already; it may overtake the data.
    let cut = cell.faults.of(Fault::Truncated) + cell.faults.of(Fault::ControlLost);
    assert_eq!((cell.ops, cut), (90, 10), "{:?}", cell.faults);
}

#[test]
fn a_server_that_leaves_is_asked_on_a_new_connection() {
    let cell = measure(Flaw::Leaves(5), &[("total", "200")]);
    assert_eq!((cell.ops, cell.faults.count()), (200, 0), "{:?}", cell.faults);
    assert!(cell.http.unwrap().connect.count >= 40);
}

#[test]
fn a_server_of_http_1_is_none() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for mut socket in listener.incoming().flatten() {
            let _ = socket.read(&mut [0; 1024]);
            let _ = socket.write_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
        }
    });
    let plan = Plan::new(&url, None, &[("ops", "get"), ("http2", "on")]).unwrap();
    let error = run(&plan, &Silent).unwrap_err().to_string();
    assert!(error.contains("answered, but HTTP/2 error"), "{error}");
}
