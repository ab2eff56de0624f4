//! A client that sends exactly what it is told to, and takes answers apart.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;

use millrace_server::config::LogFormat;
use millrace_server::{Accounts, Config, Permissions, Running, Server};
use millrace_vfs::Storage;

use super::{PATIENCE, Scratch, Secured, connector, policy};
use millrace_net::tls::{Heard, Versions};

/// A running server of HTTP; it ends at once when dropped.
pub(crate) struct ServedHttp {
    pub(crate) running: Running,
    pub(crate) address: SocketAddr,
}

/// The settings of [`serve_http`], to be changed: everyone may read, `u` with password `p` may do everything.
pub(crate) fn http_config(storage: Arc<dyn Storage>) -> Config {
    let accounts = Accounts::new().anonymous(Permissions::READ_ONLY, Arc::clone(&storage)).user(
        "u",
        "p",
        Permissions::READ_WRITE,
        storage,
    );
    Config {
        ftp: vec![SocketAddr::from((Ipv4Addr::LOCALHOST, 0))],
        http: vec![SocketAddr::from((Ipv4Addr::LOCALHOST, 0))],
        passive_ports: super::free_ports(4),
        workers: 1,
        anonymous: true,
        login_delay: std::time::Duration::from_millis(20),
        grace: std::time::Duration::from_secs(5),
        log: LogFormat::Off,
        ..Config::new(Arc::new(accounts))
    }
}

/// [`http_config`], served in TLS as well.
pub(crate) fn https_config(scratch: &Scratch) -> Config {
    Config {
        https: vec![SocketAddr::from((Ipv4Addr::LOCALHOST, 0))],
        tls: Some(policy(scratch)),
        ..http_config(scratch.storage())
    }
}

/// Serves a storage by HTTP, to be read by everyone.
pub(crate) fn serve_http(storage: Arc<dyn Storage>) -> ServedHttp {
    serve_http_with(http_config(storage))
}

pub(crate) fn serve_http_with(config: Config) -> ServedHttp {
    let running = Server::start(config).expect("the server starts");
    ServedHttp { address: running.http_addresses()[0], running }
}

impl ServedHttp {
    pub(crate) fn connect(&self) -> HttpClient {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        HttpClient { stream, secured: None, buffer: Vec::new() }
    }

    /// A client in TLS.
    pub(crate) fn connect_securely(&self) -> HttpClient {
        let stream = TcpStream::connect(self.running.https_addresses()[0]).unwrap();
        let secured = Secured::over(stream.try_clone().unwrap(), &connector(Versions::All)).unwrap();
        HttpClient { stream, secured: Some(secured), buffer: Vec::new() }
    }

    /// The answer to one request on a connection of its own.
    #[track_caller]
    pub(crate) fn ask(&self, request: impl AsRef<[u8]>) -> Response {
        let head_only = request.as_ref().starts_with(b"HEAD ");
        let mut client = self.connect();
        client.send(request);
        client.response_to(head_only)
    }

    /// The answer to a `GET` with these further fields.
    #[track_caller]
    pub(crate) fn get(&self, target: &str, fields: &str) -> Response {
        self.ask(format!("GET {target} HTTP/1.1\r\nHost: h\r\n{fields}\r\n"))
    }
}

pub(crate) struct HttpClient {
    pub(crate) stream: TcpStream,
    /// Where it speaks TLS.
    pub(crate) secured: Option<Secured>,
    buffer: Vec<u8>,
}

/// An answer, its body whole.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) fields: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Response {
    /// The value of a field, by its name in lower case.
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(field, _)| field == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

impl HttpClient {
    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) {
        // A server that has answered may have closed before it read all of this.
        let _ = match &mut self.secured {
            Some(secured) => secured.write_all(bytes.as_ref()),
            None => self.stream.write_all(bytes.as_ref()),
        };
    }

    pub(crate) fn end_writing(&mut self) {
        // Unless the server has closed it already.
        let _ = self.stream.shutdown(Shutdown::Write);
    }

    #[track_caller]
    pub(crate) fn get(&mut self, target: &str) -> Response {
        self.send(format!("GET {target} HTTP/1.1\r\nHost: h\r\n\r\n"));
        self.response()
    }

    /// The next answer to something else than `HEAD`.
    #[track_caller]
    pub(crate) fn response(&mut self) -> Response {
        self.response_to(false)
    }

    #[track_caller]
    pub(crate) fn response_to(&mut self, head_only: bool) -> Response {
        let end = loop {
            if let Some(at) = self.buffer.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
                break at;
            }
            assert!(
                self.more(),
                "the connection ended in a head: {:?}",
                self.buffer.escape_ascii().to_string()
            );
        };
        let head = String::from_utf8(self.buffer[..end].to_vec()).unwrap();
        self.buffer.drain(..end + 4);
        let mut lines = head.split("\r\n");
        let status =
            lines.next().and_then(|line| line.get(9..12)).and_then(|code| code.parse().ok()).unwrap();
        let fields: Vec<(String, String)> = lines
            .map(|line| line.split_once(": ").unwrap_or_else(|| panic!("{line:?}")))
            .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
            .collect();
        let mut response = Response { status, fields, body: Vec::new() };
        if head_only || matches!(status, 100..=199 | 204 | 304) {
            return response;
        }
        response.body = match (response.field("content-length"), response.field("transfer-encoding")) {
            (Some(length), None) => self.take(length.parse().unwrap()),
            (None, Some("chunked")) => self.chunks(),
            (None, None) => self.rest(),
            other => panic!("{other:?}"),
        };
        response
    }

    fn more(&mut self) -> bool {
        if let Some(secured) = &mut self.secured {
            let before = self.buffer.len();
            // The last bytes and the end may come together.
            let heard = secured.read(&mut self.buffer);
            return matches!(heard, Ok(Heard::Bytes { .. })) || self.buffer.len() > before;
        }
        let mut bytes = [0; 65536];
        match self.stream.read(&mut bytes) {
            Ok(0) => false,
            Ok(count) => {
                self.buffer.extend_from_slice(&bytes[..count]);
                true
            }
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => false,
            // A process that was stopped and goes on is told so by a read with a deadline.
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => true,
            Err(error) => panic!("{error}"),
        }
    }

    #[track_caller]
    fn take(&mut self, length: usize) -> Vec<u8> {
        while self.buffer.len() < length {
            assert!(self.more(), "the connection ended after {} of {length} bytes", self.buffer.len());
        }
        self.buffer.drain(..length).collect()
    }

    #[track_caller]
    fn chunks(&mut self) -> Vec<u8> {
        let mut body = Vec::new();
        loop {
            let end = loop {
                match self.buffer.windows(2).position(|bytes| bytes == b"\r\n") {
                    Some(at) => break at,
                    None => assert!(self.more(), "the connection ended in a chunk"),
                }
            };
            let size = usize::from_str_radix(std::str::from_utf8(&self.buffer[..end]).unwrap(), 16).unwrap();
            self.buffer.drain(..end + 2);
            body.extend(self.take(size));
            assert_eq!(self.take(2), b"\r\n");
            if size == 0 {
                return body;
            }
        }
    }

    /// Everything until the connection ends.
    pub(crate) fn rest(&mut self) -> Vec<u8> {
        while self.more() {}
        std::mem::take(&mut self.buffer)
    }

    /// Asserts that the server closes without another byte.
    #[track_caller]
    pub(crate) fn expect_end(&mut self) {
        let rest = self.rest();
        assert!(rest.is_empty(), "{:?}", rest.escape_ascii().to_string());
    }
}
