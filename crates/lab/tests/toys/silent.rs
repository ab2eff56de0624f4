//! Servers that are silent or answer wrongly: the user can cancel every wait for them.

use std::net::TcpListener;

use millrace_lab::run::run;
use millrace_load::fixture::FixtureStep;
use millrace_load::plan::Plan;
use millrace_load::progress::Silent;

use crate::server::{Fault, Toy};
use crate::uploads::Impatient;

const SCHEMES: [(&str, &str); 4] = [("ftp", "noop"), ("ftps", "noop"), ("ftpes", "noop"), ("http", "get")];

/// A listener whose connections are never accepted.
fn mute() -> TcpListener {
    TcpListener::bind("127.0.0.1:0").unwrap()
}

fn plan(scheme: &str, op: &str, server: &TcpListener, patience: &str) -> Plan {
    let url = format!("{scheme}://{}/", server.local_addr().unwrap());
    Plan::new(&url, None, &[("ops", op), ("timeout", patience)]).unwrap()
}

#[test]
fn the_wait_for_a_silent_server_can_be_cancelled() {
    let server = mute();
    for (scheme, op) in SCHEMES {
        let impatient = Impatient::new(FixtureStep::Reaching, 0);
        let error = run(&plan(scheme, op, &server, "10m"), &impatient).unwrap_err();
        assert!(error.to_string().contains("interrupted, before anything was measured"), "{scheme}: {error}");
    }
}

#[test]
fn patience_holds_before_anything_is_measured() {
    let server = mute();
    for (scheme, op) in SCHEMES {
        let error = run(&plan(scheme, op, &server, "300ms"), &Silent).unwrap_err().to_string();
        let said = if scheme == "ftps" { "timed out" } else { "said nothing for 300ms" };
        assert!(error.contains(said), "{scheme}: {error}");
    }
}

#[test]
fn a_server_that_speaks_in_the_clear_is_not_for_ftps() {
    let toy = Toy::start(Fault::Nothing);
    let url = toy.url().replace("ftp://", "ftps://");
    let error = run(&Plan::new(&url, None, &[("ops", "noop")]).unwrap(), &Silent).unwrap_err().to_string();
    assert!(error.contains("does not begin with TLS") && error.contains("ftpes://"), "{error}");
}
