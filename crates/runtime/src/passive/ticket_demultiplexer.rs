//! Assigns data connections to sessions of one address that share a port, by the ticket in the ClientHello.
//!
//! The client may send nothing before it has the 150, and the session that accepted its connection may be gone by then.
//! So connections wait here, on a thread that lives as long as one of them. A connection is closed unless it begins
//! with a ClientHello that has a ticket of a session waiting on that port: otherwise it cannot be attributed.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use millrace_net::stream;
use millrace_net::tls::Hello;
use rustix::event::{EventfdFlags, eventfd};

use super::port::SharedTenants;

/// How long a connection may say nothing: a transfer that has not begun by then gives its port back, too.
const PATIENCE: Duration = Duration::from_secs(60);

/// How often the thread checks whether sessions still expect the waiting connections.
const LOOK_ROUND: Duration = Duration::from_secs(1);

/// A hello of which a part has come is looked at again after this.
const PAUSE: Duration = Duration::from_millis(5);

/// How many may wait at a time, of all ports together: each is a descriptor.
const MOST: usize = 1024;

/// A ClientHello with everything that clients put into it today, and room to spare.
const HELLO: usize = 16 * 1024 + 5;

/// Receives connections of which the address does not tell whose they are.
#[derive(Clone, Default)]
pub(super) struct TicketDemultiplexer(Arc<Mutex<Hall>>);

#[derive(Default)]
struct Hall {
    /// Connections that the thread has not seen yet.
    newcomers: Vec<Visitor>,
    /// How many wait, the newcomers included.
    count: usize,
    /// Wakes the thread, where there is one.
    bell: Option<Arc<OwnedFd>>,
}

/// A connection whose hello has not all come.
struct Visitor {
    socket: OwnedFd,
    client: IpAddr,
    tenants: SharedTenants,
    due: Instant,
    /// A part of the hello is there, so that there is always something to read.
    has_begun: bool,
}

impl TicketDemultiplexer {
    /// Finds out for which of the tenants a connection is. Called with their lock held, which is taken before the
    /// demultiplexer's own.
    pub(super) fn receive(&self, socket: OwnedFd, client: IpAddr, tenants: &SharedTenants) {
        let due = Instant::now() + PATIENCE;
        let visitor = Visitor { socket, client, tenants: tenants.clone(), due, has_begun: false };
        let mut hall = self.lock();
        if hall.count >= MOST {
            return;
        }
        // Without a descriptor or a thread to spare the connection is closed, as any other is then.
        let Ok(bell) = hall.bell.clone().map_or_else(|| self.begin(), Ok) else { return };
        hall.newcomers.push(visitor);
        hall.count += 1;
        let _ = rustix::io::write(&*bell, &1u64.to_ne_bytes());
        hall.bell = Some(bell);
    }

    fn begin(&self) -> io::Result<Arc<OwnedFd>> {
        let bell = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let (demultiplexer, heard) = (self.clone(), Arc::clone(&bell));
        thread::Builder::new()
            .name("millrace-door".to_owned())
            .spawn(move || demultiplexer.attend(&heard))?;
        Ok(bell)
    }

    fn attend(&self, bell: &OwnedFd) {
        let mut waiting: Vec<Visitor> = Vec::new();
        let mut scratch = vec![0; HELLO];
        loop {
            let mut hall = self.lock();
            waiting.append(&mut hall.newcomers);
            hall.count = waiting.len();
            if waiting.is_empty() {
                hall.bell = None;
                return;
            }
            drop(hall);
            wait(bell, &waiting);
            let now = Instant::now();
            waiting.retain_mut(|visitor| visitor.due > now && visitor.stays(&mut scratch));
        }
    }

    fn lock(&self) -> MutexGuard<'_, Hall> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Waits until a connection has data, or a new one arrives.
fn wait(bell: &OwnedFd, waiting: &[Visitor]) {
    let silent = waiting.iter().filter(|visitor| !visitor.has_begun).map(|visitor| visitor.socket.as_fd());
    let most = match waiting.iter().any(|visitor| visitor.has_begun) {
        true => PAUSE,
        false => LOOK_ROUND,
    };
    if stream::wait_any(std::iter::once(bell.as_fd()).chain(silent), most).is_err() {
        // No memory for the call: not a reason to go round and round.
        thread::sleep(PAUSE);
    }
    let _ = rustix::io::read(bell, &mut [0; 8]);
}

impl Visitor {
    /// Looks at the received bytes, and delivers the connection or closes it. Returns true if there are too few yet.
    fn stays(&mut self, scratch: &mut [u8]) -> bool {
        let heard = match stream::peek(&self.socket, scratch) {
            Ok(0) => return false,
            Ok(count) => &scratch[..count],
            Err(error) => return error.kind() == io::ErrorKind::WouldBlock && self.is_expected(),
        };
        self.has_begun = Hello::is_partial(heard) && heard.len() < HELLO;
        if !self.has_begun
            && let Some(hello) = Hello::peek(heard)
            && let Ok(socket) = self.socket.try_clone()
        {
            self.tenants.lock().show_in(socket, self.client, &hello);
        }
        self.has_begun
    }

    fn is_expected(&self) -> bool {
        self.tenants.lock().list.iter().any(|tenant| tenant.client == self.client)
    }
}
