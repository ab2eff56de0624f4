//! `millrace serve`: starts the server, says so, and stops it when told to.

use std::io::{self, Write};
use std::process;
use std::sync::Arc;
use std::thread;

use millrace_server::{Running, Server, StartError};
use millrace_storage::LocalStorage;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::announce;
use crate::args::Serve;
use crate::config::{self, Site};
use crate::failure::Failure;

pub(crate) fn run(arguments: Serve) -> Result<(), Failure> {
    let site = config::load(arguments.written, arguments.config.as_deref())?;
    // Before the server starts: a signal that comes while it does is not lost.
    let signals = Signals::new([SIGINT, SIGTERM])
        .map_err(|error| Failure::Running(format!("cannot listen for signals: {error}")))?;
    let running = Server::start(site.config.clone()).map_err(|error| Failure::Running(advise(&error)))?;
    let running = Arc::new(running);
    announce(&site, &running);
    stop_when_told(signals, Arc::clone(&running))?;
    sweep(site.writable);
    running.wait();
    Ok(())
}

/// Whether somebody still reads what is printed makes no difference to serving.
fn announce(site: &Site, running: &Running) {
    let bound = running.ftp_addresses();
    for warning in announce::warnings(site, bound) {
        let _ = writeln!(io::stderr(), "warning: {warning}");
    }
    let mut out = io::stdout().lock();
    let _ = out.write_all(announce::announcement(site, bound).as_bytes()).and_then(|()| out.flush());
}

/// The first signal asks the transfers to end; the second does not ask.
fn stop_when_told(mut signals: Signals, running: Arc<Running>) -> Result<(), Failure> {
    let listen = move || {
        let mut signals = signals.forever();
        if signals.next().is_some() {
            running.request_shutdown();
        }
        if let Some(signal) = signals.next() {
            process::exit(128 + signal);
        }
    };
    thread::Builder::new()
        .name("millrace-signals".to_owned())
        .spawn(listen)
        .map(drop)
        .map_err(|error| Failure::Running(format!("cannot start a thread: {error}")))
}

/// Removes what a killed server left, while this one already serves.
fn sweep(trees: Vec<Arc<LocalStorage>>) {
    let sweep = move || {
        for tree in trees {
            let report = tree.sweep();
            if report.removed > 0 || report.failed > 0 {
                let _ = writeln!(
                    io::stderr(),
                    "warning: removed {} uploads that a killed server left unfinished; {} could not be removed",
                    report.removed,
                    report.failed
                );
            }
        }
    };
    // Without a thread the leftovers stay, hidden, until the next start.
    let _ = thread::Builder::new().name("millrace-sweep".to_owned()).spawn(sweep);
}

fn advise(error: &StartError) -> String {
    let hint = match error {
        StartError::Listen { address, source } => match source.kind() {
            io::ErrorKind::AddrInUse => {
                format!(
                    "; another program has that port: end it, or choose another, such as --ftp {}:0",
                    address_of(address)
                )
            }
            io::ErrorKind::PermissionDenied => {
                "; ports below 1024 need root or the capability CAP_NET_BIND_SERVICE".to_owned()
            }
            io::ErrorKind::AddrNotAvailable => {
                "; this computer has no such address: 0.0.0.0 stands for all that it has".to_owned()
            }
            _ => String::new(),
        },
        _ => String::new(),
    };
    format!("{error}{hint}.")
}

fn address_of(address: &std::net::SocketAddr) -> String {
    match address {
        std::net::SocketAddr::V4(address) => address.ip().to_string(),
        std::net::SocketAddr::V6(address) => format!("[{}]", address.ip()),
    }
}
