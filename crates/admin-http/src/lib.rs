//! Health and metrics of a running server by HTTP, `/healthz`, `/readyz` and `/metrics`, the admin API beneath `/api/v1/`,
//! and the dashboard that uses it.
//!
//! One thread with a runtime of its own answers. It touches no worker but by reading counts and by its inbox, so that
//! neither can hold up the other. See `docs/metrics.md`, `docs/admin-api.md`
//! and `docs/dashboard.md`.
//!
//! The invariant: whatever clients do, at most [`connections::MOST`] connections are open, and the next one is taken.

mod access;
mod agent;
mod api;
mod arrival;
mod call;
mod configuration;
mod connections;
mod dashboard;
mod encrypted;
mod handlers;
mod logins;
mod openapi;
mod operation;
mod pulse;
mod rates;
mod reply;
mod routes;
mod shared_logins;
mod table;
mod telemetry;
mod wrong_tokens;

use std::convert::Infallible;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime};

use hyper::body::Incoming;
use hyper::service::Service;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use millrace_net::listener::bind_admin;
use millrace_server::{AdminListener, Predecessor, Running, hand_over_also};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use self::call::Api;
use self::connections::{Busy, Connections};
use self::rates::{STEP, Totals};
use self::routes::{Site, service};

pub use self::access::AdminAccess;
pub use self::call::Setup;
pub use self::configuration::ConfigurationFile;
pub use self::telemetry::tell;

/// How long a client may take to send the head of its request.
const HEAD_TIME: Duration = Duration::from_secs(10);

/// How long a connection may last: one that polls, or reads the log.
const CONNECTION_TIME: Duration = Duration::from_secs(3600);

/// How long the end waits for answers that are being made, such as that to the order to end.
const LAST_ANSWERS: Duration = Duration::from_secs(2);

/// The longest head of a request: with the longest arguments that an operation takes, and each of their letters encoded.
const HEAD: usize = 128 * 1024;

/// How soon accepting is tried again when descriptors ran out.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// Threads at most for what waits for a disk.
const WAITING_THREADS: usize = 8;

/// Where health, metrics and the API are served. It ends when this is closed or dropped.
#[derive(Debug)]
pub struct AdminHttp {
    addresses: Vec<SocketAddr>,
    /// Locked for a moment.
    state: Mutex<State>,
}

#[derive(Debug)]
enum State {
    /// It listens, with these sockets for the addresses that were asked for.
    Bound(Vec<(SocketAddr, TcpListener)>),
    /// It answers.
    Serving(Serving),
    Closed,
}

#[derive(Debug)]
struct Serving {
    /// It keeps copies of the listeners for a successor.
    server: Weak<Running>,
    api: Option<Arc<Api>>,
    /// Taken when it is to listen no longer; the thread says there when it does not.
    stop: Option<oneshot::Sender<mpsc::Sender<()>>>,
    thread: JoinHandle<()>,
}

impl AdminHttp {
    /// Listens at these addresses, of which port 0 takes a free one: with the sockets of the predecessor, if there is one, or
    /// beside those that it still has there. Answers come with [`serve`](Self::serve).
    ///
    /// # Errors
    ///
    /// The first address that cannot be had, with the reason.
    pub fn bind(
        addresses: &[SocketAddr],
        mut before: Option<&mut Predecessor>,
    ) -> Result<Self, (SocketAddr, io::Error)> {
        let (mut listeners, mut real) = (Vec::new(), Vec::new());
        for address in addresses {
            let handed = before.as_mut().and_then(|before| before.take_admin(*address));
            let bound = match handed {
                Some(handed) => Ok(handed.socket),
                None => bind_admin(*address, before.is_some()),
            };
            let bound = bound.map(TcpListener::from);
            let bound = bound.and_then(|listener| Ok((listener.local_addr()?, listener)));
            let (own, listener) = bound.map_err(|error| (*address, error))?;
            real.push(own);
            listeners.push((*address, listener));
        }
        Ok(Self { addresses: real, state: Mutex::new(State::Bound(listeners)) })
    }

    /// Answers for this server, with the API where that is set up, and by TLS with the server's certificates if `has_tls`.
    pub fn serve(&self, server: &Arc<Running>, setup: Option<Setup>, has_tls: bool) -> io::Result<()> {
        let mut state = self.state();
        let State::Bound(listeners) = std::mem::replace(&mut *state, State::Closed) else { return Ok(()) };
        if listeners.is_empty() {
            return Ok(());
        }
        hand_over_also(server, listeners.iter().map(copied).collect::<io::Result<_>>()?);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(WAITING_THREADS)
            .thread_name("millrace-admin")
            .build()?;
        let (stop, stopped) = oneshot::channel();
        let api = setup.map(Api::new).transpose()?.map(Arc::new);
        let site = Arc::new(Site::new(server, api.clone(), has_tls));
        let of_thread = api.clone();
        let serve = move || {
            let _ = runtime.block_on(serve(listeners, site, of_thread, stopped));
            // A disk may hold what it waits for.
            runtime.shutdown_background();
        };
        let thread = thread::Builder::new().name("millrace-admin".to_owned()).spawn(serve)?;
        *state = State::Serving(Serving { server: Arc::downgrade(server), api, stop: Some(stop), thread });
        Ok(())
    }

    /// Returns where it listens, with the real ports.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Has others log in from now on.
    pub fn configure(&self, access: AdminAccess) {
        if let State::Serving(Serving { api: Some(api), .. }) = &*self.state() {
            api.configure(access);
        }
    }

    /// Listens no longer. Answers that are being made are still sent.
    pub fn stop_listening(&self) {
        let stop = match &mut *self.state() {
            State::Serving(serving) => {
                if let Some(server) = serving.server.upgrade() {
                    hand_over_also(&server, Vec::new());
                }
                serving.stop.take()
            }
            _ => None,
        };
        let (sender, stopped) = mpsc::channel();
        if stop.is_some_and(|stop| stop.send(sender).is_ok()) {
            let _ = stopped.recv_timeout(LAST_ANSWERS);
        }
    }

    /// Listens no longer, and waits a moment for answers that are being made.
    pub fn close(&self) {
        self.stop_listening();
        let state = std::mem::replace(&mut *self.state(), State::Closed);
        if let State::Serving(serving) = state {
            let _ = serving.thread.join();
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for AdminHttp {
    fn drop(&mut self) {
        self.close();
    }
}

/// Copies a listener for a successor.
fn copied((asked, listener): &(SocketAddr, TcpListener)) -> io::Result<AdminListener> {
    Ok(AdminListener { asked: *asked, bound: listener.local_addr()?, socket: listener.try_clone()?.into() })
}

/// Accepts until told to stop, then answers for a moment what is being asked.
async fn serve(
    listeners: Vec<(SocketAddr, TcpListener)>,
    site: Arc<Site>,
    api: Option<Arc<Api>>,
    stopped: oneshot::Receiver<mpsc::Sender<()>>,
) -> io::Result<()> {
    let connections = Arc::new(Connections::default());
    let mut doors = JoinSet::new();
    for (_, listener) in listeners {
        let listener = tokio::net::TcpListener::from_std(listener)?;
        doors.spawn(accept(listener, Arc::clone(&site), Arc::clone(&connections)));
    }
    let measured = tokio::spawn(measure(api));
    let told = stopped.await;
    doors.shutdown().await;
    measured.abort();
    let _ = told.map(|told| told.send(()));
    connections.finish(LAST_ANSWERS).await;
    Ok(())
}

/// Adds points to the figures of the last hour.
async fn measure(api: Option<Arc<Api>>) {
    let Some(api) = api else { return };
    let mut last = Instant::now();
    loop {
        let administration = Arc::clone(&api.administration);
        let totals = move || administration.running().map(|running| Totals::of(&running));
        if let Ok(Some(totals)) = tokio::task::spawn_blocking(totals).await {
            let now = Instant::now();
            api.rates.add(totals, SystemTime::now(), now.duration_since(last));
            last = now;
        }
        tokio::time::sleep(STEP).await;
    }
}

async fn accept(listener: tokio::net::TcpListener, site: Arc<Site>, connections: Arc<Connections>) {
    loop {
        let Ok((stream, peer)) = listener.accept().await else {
            tokio::time::sleep(ACCEPT_RETRY).await;
            continue;
        };
        let Ok(local) = stream.local_addr() else { continue };
        let site = Arc::clone(&site);
        connections.add(|busy| {
            let connection = talk(stream, [peer, local], site, busy);
            tokio::spawn(async { drop(tokio::time::timeout(CONNECTION_TIME, connection).await) })
        });
    }
}

/// Answers the requests of a connection between these addresses, or the question of a load balancer.
async fn talk(stream: TcpStream, ends: [SocketAddr; 2], site: Arc<Site>, busy: Busy) {
    let mut first = [0];
    let begun = tokio::time::timeout(HEAD_TIME, stream.peek(&mut first)).await;
    if !matches!(begun, Ok(Ok(1))) {
        return;
    }
    if agent::is_asked(first[0]) {
        let server = site.running();
        let _ = tokio::time::timeout(HEAD_TIME, agent::answer(stream, server.as_deref())).await;
    } else if !site.has_tls {
        exchange(stream, service(site, ends, None, busy)).await;
    } else if encrypted::is_tls(first[0]) {
        let config = site.running().and_then(|server| server.tls_config());
        let Some(config) = config else { return };
        let accepted = tokio::time::timeout(HEAD_TIME, encrypted::accept(stream, config)).await;
        let Ok(Ok((stream, names))) = accepted else { return };
        exchange(stream, service(site, ends, Some(names), busy)).await;
    } else {
        let _ = tokio::time::timeout(HEAD_TIME, encrypted::refuse(stream)).await;
    }
}

/// Answers the requests of a connection.
async fn exchange<S, B>(stream: impl AsyncRead + AsyncWrite + Unpin, service: S)
where
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible>,
    B: hyper::body::Body<Error: Into<Box<dyn std::error::Error + Send + Sync>>> + 'static,
{
    // A client that hangs up, or is too slow, is not an error.
    let _ = hyper::server::conn::http1::Builder::new()
        .max_buf_size(HEAD)
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME)
        .serve_connection(TokioIo::new(stream), service)
        .await;
}
