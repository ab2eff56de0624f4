//! A request that another server answers by HTTP (a reverse proxy): asked by hyper, on this runtime.
//!
//! ```text
//!   the worker  <==records of FastCGI, a socket pair==>  here  <==HTTP/1.1==>  the other server
//! ```
//!
//! The invariant: the forwarded request is built from a strictly parsed head, with a body of known length or chunked,
//! so that no server in between can see different requests (request smuggling). It goes to the address of the
//! configuration, whatever the request says. Hop-by-hop fields are not forwarded, nor is `Upgrade`: protocols other
//! than HTTP end here.

use std::io;
use std::net::IpAddr;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use hyper::client::conn::http1::{Builder, SendRequest};
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, Request, Response, Uri};
use hyper_util::rt::TokioIo;
use millrace_http::target::{self, Target};
use millrace_http::{Field, Head, fastcgi};
use millrace_vfs::VirtualPath;
use tokio::io::Interest;
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::mpsc;

use crate::upstream::{Peer, ProxyRoute, Upstream};

/// How long an idle connection to another server is kept.
const KEPT: Duration = Duration::from_secs(20);

/// How long connecting may take.
const CONNECT: Duration = Duration::from_secs(10);

/// How often it is checked whether a client whose body is not read is still connected.
const LOOK: Duration = Duration::from_secs(1);

/// The size of a read from a worker.
const PIECE: usize = 32 * 1024;

/// Fields of an answer at most: a cookie may be a field each.
const FIELDS: usize = 1000;

/// Hop-by-hop fields (RFC 9110 section 7.6.1), and fields about forwarding.
const NOT_PASSED: [&str; 16] = [
    "connection",
    "keep-alive",
    "proxy-connection",
    "proxy",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "expect",
    "content-length",
    "host",
    "forwarded",
    "x-forwarded-for",
    "x-forwarded-proto",
    "x-forwarded-host",
    "x-forwarded-user",
];

/// Fields of an answer that are about the connection, or mean something else to the worker.
const NOT_RETURNED: [&str; 7] =
    ["connection", "keep-alive", "proxy-connection", "te", "transfer-encoding", "upgrade", "status"];

/// The client.
pub struct Client<'a> {
    /// Its address.
    pub peer: IpAddr,
    /// Whether it came by TLS.
    pub encrypted: bool,
    /// The authenticated user.
    pub user: Option<&'a [u8]>,
}

/// Idle connections to another server, and since when. Locked for a push or a pop.
#[derive(Debug, Default)]
pub struct Kept(Mutex<Vec<(Instant, SendRequest<Given>)>>);

impl Kept {
    fn take(&self) -> Option<SendRequest<Given>> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.retain(|(since, sender)| since.elapsed() < KEPT && !sender.is_closed());
        kept.pop().map(|(_, sender)| sender)
    }

    fn put(&self, sender: SendRequest<Given>, most: usize) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() < most {
            kept.push((Instant::now(), sender));
        }
    }
}

/// A request on its way.
pub struct Forward {
    /// To the worker.
    pub link: StdUnixStream,
    /// The head, as the other server gets it.
    pub request: Request<()>,
    /// Of the body, where that is known.
    pub length: Option<u64>,
    /// The configured upstream.
    pub route: Arc<ProxyRoute>,
    /// Idle connections to it.
    pub kept: Arc<Kept>,
}

/// The request as the other server is asked; `None` where it cannot be written.
pub fn request(
    head: &Head,
    target: &Target<'_>,
    route: &ProxyRoute,
    client: &Client<'_>,
) -> Option<Request<()>> {
    let mut request = Request::new(());
    *request.method_mut() = Method::from_bytes(head.method_text().as_bytes()).ok()?;
    *request.uri_mut() = as_uri(path_and_query(head, target))?;
    let named: Vec<&[u8]> = head
        .all(Field::Connection)
        .flat_map(|line| line.split(|&byte| byte == b','))
        .map(<[u8]>::trim_ascii)
        .collect();
    let is_named = |name: &str| named.iter().any(|other| other.eq_ignore_ascii_case(name.as_bytes()));
    let fields = request.headers_mut();
    for (name, value) in head.fields() {
        let is_ours = NOT_PASSED.iter().any(|other| other.eq_ignore_ascii_case(name));
        // The password of a login here is not forwarded.
        let is_secret = client.user.is_some() && name.eq_ignore_ascii_case("authorization");
        // To many, a name with an underscore is the same as one with a hyphen.
        if !is_ours && !is_secret && !is_named(name) && !name.contains('_') {
            fields.append(HeaderName::try_from(name).ok()?, HeaderValue::from_bytes(value).ok()?);
        }
    }
    let host = target.authority.or(head.get(Field::Host)).unwrap_or(b"localhost");
    let scheme = if client.encrypted { "https" } else { "http" };
    let (host, given) = (HeaderValue::from_bytes(host).ok()?, route.host.as_deref());
    fields.insert(header::HOST, given.map_or(Ok(host.clone()), HeaderValue::from_str).ok()?);
    let forwarded = match client.peer {
        IpAddr::V4(peer) => format!("for={peer};proto={scheme}"),
        IpAddr::V6(peer) => format!("for=\"[{peer}]\";proto={scheme}"),
    };
    let told = [
        ("x-forwarded-for", client.peer.to_string()),
        ("x-forwarded-proto", scheme.to_owned()),
        ("forwarded", forwarded),
    ];
    for (name, value) in told {
        fields.insert(HeaderName::from_static(name), HeaderValue::try_from(value).ok()?);
    }
    fields.insert("x-forwarded-host", host);
    if let Some(user) = client.user {
        fields.insert("x-forwarded-user", HeaderValue::from_bytes(user).ok()?);
    }
    Some(request)
}

/// The path as the client wrote it, if its meaning is unambiguous; else the decoded one, or the hooks' rewrite.
pub fn path_and_query(head: &Head, target: &Target<'_>) -> Vec<u8> {
    let written = target::written_path(head.target());
    let is_plain = |path: &VirtualPath| {
        path.as_bytes() == written.strip_suffix(b"/").filter(|_| !path.is_root()).unwrap_or(written)
    };
    let is_as_sent = target::parse_for_others(head.target())
        .is_ok_and(|sent| (&sent.path, &sent.outer) == (&target.path, &target.outer));
    let hides_dots = written.windows(3).any(|part| part.eq_ignore_ascii_case(b"%2e"));
    let mut out = Vec::new();
    match VirtualPath::parse(written) {
        // Whether a name has a slash in it is for others to say, so it is left to them.
        Ok(_) if is_as_sent && target.outer.is_some() => {
            let parts: Vec<&[u8]> = written.split(|&byte| byte == b'\\').collect();
            out.extend_from_slice(&parts.join(&b"%5C"[..]));
        }
        Ok(path) if is_as_sent && is_plain(&path) && !hides_dots && !written.contains(&b'\\') => {
            out.extend_from_slice(written)
        }
        _ => {
            target::encode(target.path.as_bytes(), &mut out);
            if target.is_directory && !target.path.is_root() {
                out.push(b'/');
            }
        }
    }
    if let Some(query) = target.query {
        out.push(b'?');
        out.extend_from_slice(query);
    }
    out
}

/// Parses a target as a URI. Bytes that a URI may not have, but many clients send, are percent-encoded first.
fn as_uri(written: Vec<u8>) -> Option<Uri> {
    let mut sound = Vec::with_capacity(written.len());
    for byte in &written {
        match byte {
            b'"' | b'<' | b'>' | b'^' | b'`' | b'{' | b'|' | b'}' | 0x7f.. => {
                sound.extend_from_slice(format!("%{byte:02X}").as_bytes());
            }
            _ => sound.push(*byte),
        }
    }
    Uri::try_from(written).or_else(|_| Uri::try_from(sound)).ok()
}

impl Forward {
    /// Forwards the request, and relays the answer to the worker. Ends early if the worker closes the link: the client
    /// has gone.
    pub async fn run(self) {
        let Self { link, request, length, route, kept } = self;
        let Ok(link) = UnixStream::from_std(link) else { return };
        let (give, given) = mpsc::channel(1);
        let body = Given { pieces: given, left: length };
        let answer = async {
            if let Err(why) = ask(&route, &kept, &link, request, body).await {
                // Without an end the worker knows that there is no answer; this it tells the log.
                let mut records = Vec::new();
                fastcgi::stderr(why.to_string().as_bytes(), &mut records);
                let _ = write(&link, &records).await;
            }
        };
        tokio::select! {
            () = answer => {}
            () = take_body(&link, give) => {}
        }
    }
}

/// Takes the body from the worker, then waits until that closes the link.
async fn take_body(link: &UnixStream, give: mpsc::Sender<Piece>) {
    let (mut decoder, mut give, mut wire) = (fastcgi::Decoder::default(), Some(give), vec![0; PIECE]);
    loop {
        let count = match link.readable().await.and_then(|()| link.try_read(&mut wire)) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
            Ok(0) | Err(_) => return,
            Ok(count) => count,
        };
        let (mut bytes, mut is_over) = (Vec::new(), false);
        let taken = decoder.take(&wire[..count], &mut |said| match said {
            fastcgi::Said::Stdin(b"") => is_over = true,
            fastcgi::Said::Stdin(more) => bytes.extend_from_slice(more),
            _ => {}
        });
        if taken.is_err() {
            return;
        }
        let pieces = [(!bytes.is_empty()).then(|| Piece::Bytes(bytes.into())), is_over.then_some(Piece::End)];
        for piece in pieces.into_iter().flatten() {
            if let Some(give) = &give
                && !hand_on(link, give, piece).await
            {
                return;
            }
        }
        if is_over {
            give = None;
        }
    }
}

/// Gives a piece of the body to the other server, once that takes it; answers whether the client is still there.
async fn hand_on(link: &UnixStream, give: &mpsc::Sender<Piece>, piece: Piece) -> bool {
    let mut giving = std::pin::pin!(give.send(piece));
    // A server that refuses the body may answer all the same.
    while tokio::time::timeout(LOOK, &mut giving).await.is_err() {
        let ready = tokio::time::timeout(Duration::ZERO, link.ready(Interest::READABLE)).await;
        if matches!(ready, Ok(Err(_))) || matches!(ready, Ok(Ok(ready)) if ready.is_read_closed()) {
            return false;
        }
    }
    true
}

/// Why another server's answer cannot be relayed.
#[derive(Debug, thiserror::Error)]
enum ForwardError {
    #[error("it cannot be connected to: {0}")]
    Connect(#[from] io::Error),
    #[error("it did not answer: {}", chain(.0))]
    Unanswered(hyper::Error),
    #[error("its answer has a transfer coding that is not known here")]
    Coding,
    #[error("its answer was cut: {}", chain(.0))]
    Cut(hyper::Error),
    #[error("the client has gone")]
    ClientGone,
}

async fn ask(
    config: &ProxyRoute,
    kept: &Kept,
    link: &UnixStream,
    request: Request<()>,
    body: Given,
) -> Result<(), ForwardError> {
    let Upstream::Http(peer) = &config.to else { return Ok(()) };
    let (is_head, has_body) = (request.method() == Method::HEAD, body.left != Some(0));
    let (mut sender, answer) = send(peer, kept, request, body).await?;
    let (head, mut content) = answer.into_parts();
    if head.headers.get_all(header::TRANSFER_ENCODING).iter().any(|coding| !is_chunked(coding)) {
        return Err(ForwardError::Coding);
    }
    let mut out = format!("Status: {}\r\n", head.status.as_u16()).into_bytes();
    let lines = fields_to_return(&head.headers);
    lines.for_each(|(name, value)| {
        out.extend_from_slice(&[name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"].concat());
    });
    out.extend_from_slice(b"\r\n");
    tell(link, &out).await?;
    while let Some(frame) = std::future::poll_fn(|cx| Pin::new(&mut content).poll_frame(cx)).await {
        let frame = frame.map_err(ForwardError::Cut)?;
        if let Ok(bytes) = frame.into_data()
            && !is_head
        {
            tell(link, &bytes).await?;
        }
    }
    let mut end = Vec::new();
    fastcgi::end(&mut end);
    // The client's next request may come as soon as it hears of the end, and finds this connection then; but one that
    // still takes a body is not waited for.
    if has_body {
        write(link, &end).await?;
    }
    if config.keep && sender.ready().await.is_ok() {
        kept.put(sender, config.most);
    }
    if has_body { Ok(()) } else { write(link, &end).await }
}

/// Sends the request by a connection that was used before, or by a new one.
async fn send(
    peer: &Peer,
    kept: &Kept,
    request: Request<()>,
    body: Given,
) -> Result<(SendRequest<Given>, Response<Incoming>), ForwardError> {
    let (head, ()) = request.into_parts();
    let mut request = Request::from_parts(head.clone(), body);
    if let Some(mut sender) = kept.take() {
        let may_repeat =
            request.body().left == Some(0) && (head.method == Method::GET || head.method == Method::HEAD);
        match sender.try_send_request(request).await {
            Ok(answer) => return Ok((sender, answer)),
            Err(mut error) => match error.take_message() {
                // It was closed before anything was sent; or, for all that we know, before this was read.
                Some(unsent) => request = unsent,
                None if may_repeat => {
                    let (_, nothing) = mpsc::channel(1);
                    request = Request::from_parts(head, Given { pieces: nothing, left: Some(0) });
                }
                None => return Err(ForwardError::Unanswered(error.into_error())),
            },
        }
    }
    let connecting = tokio::time::timeout(CONNECT, connect(peer));
    let mut sender = match connecting.await {
        Ok(connected) => connected?,
        Err(_) => return Err(io::Error::from(io::ErrorKind::TimedOut).into()),
    };
    let answer = sender.send_request(request).await.map_err(ForwardError::Unanswered)?;
    Ok((sender, answer))
}

/// An error, with its cause.
fn chain(error: &hyper::Error) -> String {
    match std::error::Error::source(error) {
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
    }
}

async fn connect(peer: &Peer) -> io::Result<SendRequest<Given>> {
    match peer {
        Peer::Tcp(address) => {
            let socket = TcpStream::connect(address).await?;
            socket.set_nodelay(true)?;
            begin(TokioIo::new(socket)).await
        }
        Peer::Unix(path) => begin(TokioIo::new(UnixStream::connect(path).await?)).await,
    }
}

async fn begin<S>(socket: S) -> io::Result<SendRequest<Given>>
where
    S: hyper::rt::Read + hyper::rt::Write + Unpin + Send + 'static,
{
    let mut builder = Builder::new();
    builder.max_headers(FIELDS);
    let (sender, connection) = builder.handshake(socket).await.map_err(io::Error::other)?;
    tokio::spawn(connection);
    Ok(sender)
}

/// Returns true if the chunked coding is the only one to decode.
fn is_chunked(coding: &HeaderValue) -> bool {
    coding.as_bytes().trim_ascii().eq_ignore_ascii_case(b"chunked")
}

fn fields_to_return(fields: &HeaderMap) -> impl Iterator<Item = (&HeaderName, &HeaderValue)> {
    let named: Vec<String> = fields
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|line| line.to_str().ok())
        .flat_map(|line| line.split(','))
        .map(|name| name.trim().to_ascii_lowercase())
        .collect();
    fields.iter().filter(move |(name, _)| {
        !NOT_RETURNED.contains(&name.as_str()) && !named.iter().any(|other| other == name.as_str())
    })
}

/// Tells the worker bytes of the answer.
async fn tell(link: &UnixStream, bytes: &[u8]) -> Result<(), ForwardError> {
    let mut records = Vec::with_capacity(bytes.len() + 64);
    fastcgi::stdout(bytes, &mut records);
    write(link, &records).await
}

async fn write(link: &UnixStream, bytes: &[u8]) -> Result<(), ForwardError> {
    let mut rest = bytes;
    while !rest.is_empty() {
        match link.writable().await.and_then(|()| link.try_write(rest)) {
            Ok(count) => rest = &rest[count..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => return Err(ForwardError::ClientGone),
        }
    }
    Ok(())
}

/// A piece of a request's body.
#[derive(Debug)]
enum Piece {
    Bytes(Bytes),
    /// That was all. Where this does not come, the client has gone before its end, and what came is not the whole.
    End,
}

/// The body of a request, as the worker gives it.
#[derive(Debug)]
pub struct Given {
    pieces: mpsc::Receiver<Piece>,
    /// How much of it is to come, where that is known.
    left: Option<u64>,
}

impl Body for Given {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        if self.left == Some(0) {
            return Poll::Ready(None);
        }
        self.pieces.poll_recv(cx).map(|piece| match piece {
            Some(Piece::Bytes(bytes)) => {
                self.left = self.left.map(|left| left.saturating_sub(bytes.len() as u64));
                Some(Ok(Frame::data(bytes)))
            }
            Some(Piece::End) if self.left.is_none() => {
                self.left = Some(0);
                None
            }
            Some(Piece::End) | None => Some(Err(io::ErrorKind::UnexpectedEof.into())),
        })
    }

    fn is_end_stream(&self) -> bool {
        self.left == Some(0)
    }

    fn size_hint(&self) -> SizeHint {
        self.left.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use millrace_http::request as parsing;

    fn asked(text: &str, host: Option<&str>, user: Option<&[u8]>) -> Option<Vec<String>> {
        let (head, _) = parsing::parse(text.as_bytes()).unwrap().unwrap();
        let target = target::parse_for_others(head.target()).unwrap();
        let to = Upstream::Http(Peer::Tcp("127.0.0.1:1".parse().unwrap()));
        let route = ProxyRoute { host: host.map(str::to_owned), ..ProxyRoute::new(to) };
        let client = Client { peer: "2001:db8::1".parse().unwrap(), encrypted: true, user };
        let request = request(&head, &target, &route, &client)?;
        let mut lines = vec![format!("{} {}", request.method(), request.uri())];
        let fields = request.headers().iter();
        let mut fields: Vec<_> =
            fields.map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect();
        fields.sort();
        lines.extend(fields);
        Some(lines)
    }

    /// The other server's connection is then closed, and its place is free.
    #[test]
    fn a_client_that_leaves_is_noticed_while_its_body_is_not_read() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (worker, link) = UnixStream::pair().unwrap();
            let (give, given) = mpsc::channel(1);
            give.try_send(Piece::Bytes("unread data".into())).unwrap();
            let mut record = Vec::new();
            fastcgi::stdin(b"what comes behind it", &mut record);
            worker.writable().await.unwrap();
            worker.try_write(&record).unwrap();
            let taking = tokio::spawn(async move { take_body(&link, give).await });
            drop(worker);
            tokio::time::timeout(Duration::from_secs(30), taking).await.expect("it ends").unwrap();
            drop(given);
        });
    }

    #[test]
    fn the_other_server_is_told_who_asks_and_nothing_about_this_connection() {
        let told = asked(
            "POST /app/x?q=1 HTTP/1.1\r\nHost: example.org:8443\r\nConnection: close, X-Hop\r\nX-Hop: a\r\n\
             Keep-Alive: 5\r\nTE: trailers\r\nUpgrade: websocket\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\
             X-Forwarded-For: 1.2.3.4\r\nForwarded: for=1.2.3.4\r\nX_Forwarded_For: 1.2.3.4\r\nProxy: evil\r\n\
             Authorization: Basic x\r\nX-Forwarded-User: root\r\nCookie: a=b\r\nAccept: */*\r\nAccept: a/b\r\n\r\n",
            None,
            Some(b"alice"),
        );
        let expected = [
            "POST /app/x?q=1",
            "accept: */*",
            "accept: a/b",
            "cookie: a=b",
            "forwarded: for=\"[2001:db8::1]\";proto=https",
            "host: example.org:8443",
            "x-forwarded-for: 2001:db8::1",
            "x-forwarded-host: example.org:8443",
            "x-forwarded-proto: https",
            "x-forwarded-user: alice",
        ];
        assert_eq!(told.unwrap(), expected);
        let unreachable =
            asked("GET / HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer x\r\n\r\n", Some("other"), None);
        let lines = unreachable.unwrap();
        assert!(
            lines.contains(&"authorization: Bearer x".to_owned())
                && lines.contains(&"host: other".to_owned())
        );
    }

    #[test]
    fn a_path_that_others_could_understand_otherwise_is_written_anew() {
        for (written, sent) in [
            ("/app/a%20b;c=d/?q=%2e", "/app/a%20b;c=d/?q=%2e"),
            ("/app", "/app"),
            ("/", "/"),
            ("/x/../app/y", "/app/y"),
            ("/app//y/", "/app/y/"),
            ("/app/./y", "/app/y"),
            ("/x/%2e%2E/app", "/app"),
            ("http://h/app/y?z", "/app/y?z"),
            ("http://h/app/a%2fb%20c?z=%2F", "/app/a%2fb%20c?z=%2F"),
            ("/app/a%2Fb\\c%2ed/", "/app/a%2Fb%5Cc%2ed/"),
            // Characters that are not allowed in a URI.
            ("/app/\"a<b>?q=\"<c>\"", "/app/%22a%3Cb%3E?q=%22%3Cc%3E%22"),
            ("/app/{x}|y^z?a={b}", "/app/{x}|y^z?a={b}"),
        ] {
            let lines = asked(&format!("GET {written} HTTP/1.1\r\nHost: h\r\n\r\n"), None, None).unwrap();
            assert_eq!(lines[0], format!("GET {sent}"), "{written}");
        }
    }
}
