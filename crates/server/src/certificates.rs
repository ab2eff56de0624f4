//! Certificates that the server fetches and renews itself: what the renewal needs of the server.

use std::sync::Arc;

use millrace_acme::{Acme, Host, Renewal, renew};
use millrace_net::tls::{Acceptor, LoadError};

use crate::state::ServerState;
use crate::tls::Security;

impl Host for ServerState {
    fn renewal(&self) -> &Renewal {
        &self.acme
    }

    fn acceptor(&self) -> Option<&Acceptor> {
        self.tls.as_ref().map(|tls| &tls.acceptor)
    }

    fn reload_certificates(&self) -> Result<(), LoadError> {
        self.tls.as_ref().map_or(Ok(()), Security::reload)
    }

    fn warn(&self, text: &str) {
        self.log.warn(text);
    }
}

/// Puts settings in force from now on; the renewal runs beside the workers until the server closes.
pub(crate) fn configure(server: &Arc<ServerState>, settings: Option<&Acme>) {
    if server.acme.configure(settings) {
        let shared = Arc::clone(server);
        server.shared.side.spawn(move |mut ending| async move {
            tokio::select! {
                () = renew(shared) => {}
                _ = ending.wait_for(|is_ending| *is_ending) => {}
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{SocketAddr, TcpStream};
    use std::sync::Arc;
    use std::time::Duration;

    use millrace_acme::Shown;
    use millrace_storage::MemoryStorage;

    use crate::config::LogFormat;
    use crate::{Accounts, Config, Permissions, Server};

    /// The answer is given before anything else is looked at; not before it is known whether a body is in the way.
    #[test]
    fn what_stands_in_the_body_of_a_request_for_a_token_is_no_request() {
        let accounts = Accounts::new().anonymous(Permissions::READ_ONLY, Arc::new(MemoryStorage::new()));
        let running = Server::start(Config {
            ftp: Vec::new(),
            http: vec![SocketAddr::from(([127, 0, 0, 1], 0))],
            workers: 1,
            anonymous: true,
            log: LogFormat::Off,
            ..Config::new(Arc::new(accounts))
        })
        .unwrap();
        let _shown = Shown::token(&running.state.acme.tokens, "abc", "abc.thumb");
        let ask = |line: &str, body: &str| {
            format!("{line} HTTP/1.1\r\nHost: h\r\nContent-Length: {}\r\n\r\n{body}", body.len())
        };
        let before = ask("PROPFIND /", "<propfind xmlns=\"DAV:\"><allprop/></propfind>");
        let asked = ask("GET /.well-known/acme-challenge/abc", &ask("GET /never", ""));
        let mut client = TcpStream::connect(running.http_addresses()[0]).unwrap();
        client.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        client.write_all((before + &asked).as_bytes()).unwrap();
        let mut answers = String::new();
        client.read_to_string(&mut answers).expect("the connection ends behind the token");
        assert!(answers.ends_with("\r\n\r\nabc.thumb"), "{answers}");
    }
}
