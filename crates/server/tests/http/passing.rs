//! Paths that others answer: FastCGI applications, and other servers by HTTP.

mod applications;
mod servers;
mod under_way;

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;

use millrace_http::fastcgi::{self, Decoder, Said};
use millrace_server::config::{Peer, ProxyRoute, Upstream};
use millrace_server::{Account, Attempt, Authenticator, Config, Decision};
use millrace_vfs::VirtualPath;

use crate::kit::{PATIENCE, Scratch, ServedHttp, http_config, serve_http_with};

pub(super) fn site(proxy_routes: Vec<ProxyRoute>) -> (Scratch, ServedHttp) {
    let scratch = Scratch::new();
    scratch.write("file.txt", b"a file");
    let served = serve_http_with(Config { proxy_routes, ..http_config(scratch.storage()) });
    (scratch, served)
}

pub(super) fn beneath(path: &str, to: Upstream) -> ProxyRoute {
    ProxyRoute {
        path: VirtualPath::parse(path.as_bytes()).unwrap(),
        silence: PATIENCE,
        ..ProxyRoute::new(to)
    }
}

/// Accepts on a free port; each connection has a thread of its own.
fn listen(serve: impl Fn(TcpStream) + Send + Sync + 'static) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let serve = Arc::new(serve);
    thread::spawn(move || {
        for socket in listener.incoming().map_while(Result::ok) {
            socket.set_read_timeout(Some(PATIENCE)).unwrap();
            socket.set_write_timeout(Some(PATIENCE)).unwrap();
            let serve = Arc::clone(&serve);
            thread::spawn(move || serve(socket));
        }
    });
    address
}

/// What an application heard of a request.
#[derive(Debug, Default)]
pub(super) struct Heard {
    wire: Vec<u8>,
    body: Vec<u8>,
    is_whole: bool,
    was_aborted: bool,
}

impl Heard {
    pub(super) fn variable(&self, name: &str) -> Option<String> {
        // Names and values of the tests are short: one byte says how long they are.
        let at = self.wire.windows(name.len()).position(|part| part == name.as_bytes())?;
        let length = usize::from(self.wire[at - 1]);
        let value = &self.wire[at + name.len()..][..length];
        Some(String::from_utf8_lossy(value).into_owned())
    }
}

/// Hears a request out; `None` where the connection ended before it began.
pub(super) fn hear(socket: &mut impl Read) -> Option<Heard> {
    let (mut decoder, mut heard) = (Decoder::default(), Heard::default());
    let mut bytes = [0; 16 * 1024];
    while !heard.is_whole && !heard.was_aborted {
        let count = socket.read(&mut bytes).unwrap_or(0);
        if count == 0 {
            return (!heard.wire.is_empty()).then_some(heard);
        }
        if heard.wire.len() < 16 * 1024 {
            heard.wire.extend_from_slice(&bytes[..count]);
        }
        let Heard { body, is_whole, was_aborted, .. } = &mut heard;
        let taken = decoder.take(&bytes[..count], &mut |said| match said {
            Said::Stdin(b"") => *is_whole = true,
            Said::Stdin(more) => body.extend_from_slice(more),
            Said::Abort => *was_aborted = true,
            _ => {}
        });
        taken.unwrap();
    }
    Some(heard)
}

pub(super) fn answer(socket: &mut impl Write, text: &[u8]) {
    let mut records = Vec::new();
    fastcgi::stdout(text, &mut records);
    fastcgi::end(&mut records);
    let _ = socket.write_all(&records);
}

pub(super) fn fastcgi_at(serve: impl Fn(TcpStream) + Send + Sync + 'static) -> Upstream {
    Upstream::FastCgi(Peer::Tcp(listen(serve)))
}

pub(super) fn http_at(serve: impl Fn(TcpStream) + Send + Sync + 'static) -> Upstream {
    Upstream::Http(Peer::Tcp(listen(serve)))
}

/// A request for a script is one for a file: a script that the user may not read, or that lies elsewhere in the user's
/// tree, is not run. `carl` has the first account, `bob` the second.
#[derive(Debug)]
pub(super) struct People(pub(super) Account, pub(super) Account);

impl Authenticator for People {
    fn authenticate(&self, attempt: &Attempt<'_>) -> Decision {
        match attempt.user {
            b"carl" => Decision::Granted(self.0.clone()),
            b"bob" => Decision::Granted(self.1.clone()),
            _ => Decision::Denied,
        }
    }
}

/// The head of a request of HTTP, and what came with it of the body.
fn read_head(socket: &mut TcpStream) -> Option<(String, Vec<u8>)> {
    let mut bytes = Vec::new();
    loop {
        if let Some(at) = bytes.windows(4).position(|part| part == b"\r\n\r\n") {
            let body = bytes.split_off(at + 4);
            return Some((String::from_utf8(bytes).unwrap(), body));
        }
        let mut piece = [0; 4096];
        match socket.read(&mut piece) {
            Ok(0) | Err(_) => return None,
            Ok(count) => bytes.extend_from_slice(&piece[..count]),
        }
    }
}
