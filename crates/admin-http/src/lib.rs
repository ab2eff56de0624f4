//! Health and metrics of a running server by HTTP: `/healthz`, `/readyz` and `/metrics`.
//!
//! One thread with a runtime of its own answers. It touches no worker but by reading counts and by its inbox, so that
//! neither can hold up the other. See `docs/metrics.md`.
//!
//! The invariant: whatever clients do, at most [`connections::MOST`] connections are open, and the next one is taken.

mod connections;
mod pulse;
mod routes;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use hyper_util::rt::{TokioIo, TokioTimer};
use millrace_net::listener::bind_admin;
use millrace_server::Running;
use tokio::sync::oneshot;

use self::connections::Connections;
use self::routes::{Site, service};

/// How long a client may take to send the head of its request.
const HEAD_TIME: Duration = Duration::from_secs(10);

/// How long a connection may take in all. It has one request.
const CONNECTION_TIME: Duration = Duration::from_secs(30);

/// The longest head of a request.
const HEAD: usize = 16 * 1024;

/// How soon accepting is tried again when descriptors ran out.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// Threads at most for what waits for a disk.
const WAITING_THREADS: usize = 2;

/// A listener that answers. It ends when this is closed or dropped.
#[derive(Debug)]
pub struct AdminHttp {
    addresses: Vec<SocketAddr>,
    /// Taken when it is closed.
    running: Mutex<Option<(oneshot::Sender<()>, JoinHandle<()>)>>,
}

impl AdminHttp {
    /// Listens at these addresses, of which port 0 takes a free one. With `beside`, another process may still listen
    /// there: the predecessor of this one.
    ///
    /// # Errors
    ///
    /// The first address that cannot be had, with the reason.
    pub fn open(
        addresses: &[SocketAddr],
        beside: bool,
        server: &Arc<Running>,
    ) -> Result<Self, (SocketAddr, io::Error)> {
        let mut listeners = Vec::new();
        for address in addresses {
            let bound = bind_admin(*address, beside).map(TcpListener::from);
            listeners.push(bound.map_err(|error| (*address, error))?);
        }
        let Some(first) = addresses.first() else {
            return Ok(Self { addresses: Vec::new(), running: Mutex::default() });
        };
        Self::begin(listeners, server).map_err(|error| (*first, error))
    }

    fn begin(listeners: Vec<TcpListener>, server: &Arc<Running>) -> io::Result<Self> {
        let addresses = listeners.iter().map(TcpListener::local_addr).collect::<io::Result<_>>()?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(WAITING_THREADS)
            .thread_name("millrace-admin")
            .build()?;
        let (stop, stopped) = oneshot::channel();
        let site = Arc::new(Site::new(Arc::downgrade(server), server.worker_count()));
        let serve = move || {
            let _ = runtime.block_on(serve(listeners, site, stopped));
            // A disk may hold what it waits for.
            runtime.shutdown_background();
        };
        let thread = thread::Builder::new().name("millrace-admin".to_owned()).spawn(serve)?;
        Ok(Self { addresses, running: Mutex::new(Some((stop, thread))) })
    }

    /// Returns where it listens, with the real ports.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Listens no longer.
    pub fn close(&self) {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some((stop, thread)) = running {
            let _ = stop.send(());
            let _ = thread.join();
        }
    }
}

impl Drop for AdminHttp {
    fn drop(&mut self) {
        self.close();
    }
}

/// Accepts until told to stop.
async fn serve(
    listeners: Vec<TcpListener>,
    site: Arc<Site>,
    mut stopped: oneshot::Receiver<()>,
) -> io::Result<()> {
    let connections = Arc::new(Connections::default());
    for listener in listeners {
        let listener = tokio::net::TcpListener::from_std(listener)?;
        tokio::spawn(accept(listener, Arc::clone(&site), Arc::clone(&connections)));
    }
    let _ = (&mut stopped).await;
    Ok(())
}

async fn accept(listener: tokio::net::TcpListener, site: Arc<Site>, connections: Arc<Connections>) {
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(ACCEPT_RETRY).await;
            continue;
        };
        let site = Arc::clone(&site);
        connections.add(|busy| {
            let connection = hyper::server::conn::http1::Builder::new()
                .keep_alive(false)
                .max_buf_size(HEAD)
                .timer(TokioTimer::new())
                .header_read_timeout(HEAD_TIME)
                .serve_connection(TokioIo::new(stream), service(site, busy));
            // A client that hangs up, or is too slow, is not an error.
            tokio::spawn(async { drop(tokio::time::timeout(CONNECTION_TIME, connection).await) })
        });
    }
}

/// A server that its listener does not keep alive.
type Server = Weak<Running>;
