use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};

use rustls::pki_types::PrivateKeyDer;
use rustls::{ServerConfig, ServerConnection};

use super::*;

type Connection = BufReader<StreamOwned<ServerConnection, TcpStream>>;

/// A collector that accepts any client; its certificate is in a file.
struct Collector {
    listener: TcpListener,
    tls: Arc<ServerConfig>,
    authority: PathBuf,
}

impl Collector {
    fn new(name: &str) -> Self {
        let made = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
        let authority = std::env::temp_dir().join(format!("millrace-syslog-{}-{name}.pem", process::id()));
        fs::write(&authority, made.cert.pem()).unwrap();
        let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
        let tls = ServerConfig::builder().with_no_client_auth();
        let tls = Arc::new(tls.with_single_cert(vec![made.cert.der().clone()], key).unwrap());
        Self { listener: TcpListener::bind("127.0.0.1:0").unwrap(), tls, authority }
    }

    fn address(&self) -> SocketAddr {
        self.listener.local_addr().unwrap()
    }

    fn settings(&self, authority: &Path) -> SyslogSettings {
        let collector = self.address().to_string();
        SyslogSettings::new(&collector, Trust::Authorities(authority), None, false).unwrap()
    }

    fn accept(&self) -> Connection {
        let (socket, _) = self.listener.accept().unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        let session = ServerConnection::new(Arc::clone(&self.tls)).unwrap();
        BufReader::new(StreamOwned::new(session, socket))
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.authority);
    }
}

/// The next message: as many bytes as are said before the first space.
fn message(connection: &mut Connection) -> String {
    let mut length = Vec::new();
    connection.read_until(b' ', &mut length).unwrap();
    let length: usize = str::from_utf8(&length).unwrap().trim_end().parse().unwrap();
    let mut message = vec![0; length];
    connection.read_exact(&mut message).unwrap();
    String::from_utf8(message).unwrap()
}

const RECORD: &str = "{\"time\":\"2026-11-24T18:00:00.123Z\",\"event\":\"kicked\"}\n";

#[test]
fn a_message_is_counted_and_says_what_it_is() {
    let collector = Collector::new("framed");
    let syslog = Syslog::start(&collector.settings(&collector.authority), None).unwrap();
    syslog.push_records(RECORD.as_bytes());
    syslog.push_events(b"2026-11-24T18:00:01.000Z - - - warning text=\"\xc3\xa4\"\n");
    syslog.push_events(b"2026-11-24T18:00:02.000Z #7 192.0.2.7:1 - login-failed tried=\"warning\"\n");
    syslog.push_events(b"2026-11-24T18:00:02.000Z #7 192.0.2.7:1 ann login by=\"password\"\n");
    syslog.push_events(b"{\"time\":\"2026-11-24T18:00:02.000Z\",\"event\":\"banned\",\"session\":7}\n");
    let mut connection = collector.accept();
    let (computer, pid) = (computer(), process::id());
    assert_eq!(
        message(&mut connection),
        format!("<110>1 2026-11-24T18:00:00.123Z {computer} millrace {pid} audit - {}", RECORD.trim_end())
    );
    assert_eq!(
        message(&mut connection),
        format!(
            "<28>1 2026-11-24T18:00:01.000Z {computer} millrace {pid} event - 2026-11-24T18:00:01.000Z - - - warning \
             text=\"ä\""
        )
    );
    for priority in ["<29>1 ", "<30>1 ", "<29>1 "] {
        let message = message(&mut connection);
        assert!(message.starts_with(priority), "{message}");
    }
    syslog.close();
}

#[test]
fn a_collector_that_was_away_gets_what_waited_and_how_much_found_no_room() {
    const LINES: usize = 40_000;
    let collector = Collector::new("away");
    let syslog = Syslog::start(&collector.settings(&collector.authority), None).unwrap();
    // One message, and it goes away.
    syslog.push_records(RECORD.as_bytes());
    let mut first = collector.accept();
    message(&mut first);
    first.get_mut().conn.send_close_notify();
    first.get_mut().flush().unwrap();
    drop(first);
    for _ in 0..LINES {
        syslog.push_records(RECORD.as_bytes());
    }
    let mut second = collector.accept();
    let (mut whole, mut missing) = (0, 0);
    while whole + missing < LINES {
        let message = message(&mut second);
        match message.split_once("\"text\":\"").filter(|_| message.starts_with("<28>")) {
            Some((_, text)) => missing += text.split(' ').next().unwrap().parse::<usize>().unwrap(),
            None => whole += 1,
        }
    }
    assert_eq!(whole + missing, LINES);
    assert!(missing > 0 && whole > 1000, "{whole} whole, {missing} missing");
    syslog.close();
}

#[test]
fn a_collector_that_is_not_trusted_gets_nothing() {
    let (collector, other) = (Collector::new("untrusted"), Collector::new("other"));
    let syslog = Syslog::start(&collector.settings(&other.authority), None).unwrap();
    syslog.push_records(RECORD.as_bytes());
    let mut connection = collector.accept();
    let mut byte = [0];
    assert!(connection.read_exact(&mut byte).is_err());
    syslog.close();
}

#[test]
fn a_collector_is_named_with_or_without_a_port() {
    let named = |text: &str| {
        SyslogSettings::new(text, Trust::Public, None, false).ok().map(|named| (named.host, named.port))
    };
    assert_eq!(named("logs.example"), Some(("logs.example".to_owned(), 6514)));
    assert_eq!(named("logs.example:601"), Some(("logs.example".to_owned(), 601)));
    assert_eq!(named("[::1]:601"), Some(("::1".to_owned(), 601)));
    assert_eq!(named("::1"), Some(("::1".to_owned(), 6514)));
    for wrong in ["", ":6514", "logs.example:", "logs.example:x", "a b"] {
        assert_eq!(named(wrong), None, "{wrong:?}");
    }
}
