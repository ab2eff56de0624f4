//! A worker that stands still: health checks say which, and all other pages are served.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use millrace_admin_http::AdminHttp;
use millrace_server::config::LogFormat;
use millrace_server::storage::MemoryStorage;
use millrace_server::{Accounts, Config, Permissions, Server};

fn page(address: SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn a_worker_that_stands_still_is_named_until_it_goes_on() {
    let accounts = Accounts::new().anonymous(Permissions::READ_ONLY, Arc::new(MemoryStorage::new()));
    let config = Config {
        ftp: vec![SocketAddr::from(([127, 0, 0, 1], 0))],
        workers: 2,
        log: LogFormat::Off,
        ..Config::new(Arc::new(accounts))
    };
    let running = Arc::new(Server::start(config).unwrap());
    let admin = AdminHttp::bind(&[SocketAddr::from(([127, 0, 0, 1], 0))], None).unwrap();
    admin.serve(&running, None, false).unwrap();
    let address = admin.addresses()[0];
    assert!(page(address, "/healthz").ends_with("\r\n\r\nok\n"));

    let (go_on, stands) = mpsc::channel::<()>();
    running.ask_worker(1, move || {
        let _ = stands.recv();
    });
    let told = page(address, "/healthz");
    assert!(told.starts_with("HTTP/1.1 503 ") && told.contains("worker 1 has not answered for "), "{told}");
    assert!(page(address, "/readyz").ends_with("\r\n\r\nready\n"));
    let metrics = page(address, "/metrics");
    assert!(metrics.contains("millrace_worker_lag_seconds{worker=\"0\"} 0."), "{metrics}");
    let lag = metrics.split("millrace_worker_lag_seconds{worker=\"1\"} ").nth(1).unwrap();
    assert!(lag.lines().next().unwrap().parse::<f64>().unwrap() >= 2.0, "{lag}");

    go_on.send(()).unwrap();
    assert!(page(address, "/healthz").ends_with("\r\n\r\nok\n"));
    admin.close();
    assert!(TcpStream::connect(address).is_err(), "it listens no longer");
}
