//! Python's ftplib, all of its methods: `ftplib_session.py` says what they must do.

use crate::server::{PASSWORD, Server, USER};
use crate::tool::tool;

const SCRIPT: &str = include_str!("ftplib_session.py");

fn assert_all_methods_work(listen: &str) {
    let Some(python) = tool("python3") else { return };
    let server = Server::on(listen);
    let (host, port) = (server.address.ip().to_string(), server.address.port().to_string());
    std::fs::write(server.local().join("session.py"), SCRIPT).unwrap();
    let said = python.run(&server, &["session.py", &host, &port, USER, PASSWORD]);
    assert!(said.ends_with("all of it works\n"), "{said}");
}

#[test]
fn ftplib_works_with_all_of_its_methods() {
    assert_all_methods_work("127.0.0.1:0");
}

#[test]
fn ftplib_works_over_ipv6() {
    assert_all_methods_work("[::1]:0");
}
