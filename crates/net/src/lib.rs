//! Sockets and bytes: the one place that talks to the kernel about the network.
//!
//! - [`listener`] binds control and data listeners, [`stream`] reads and writes sockets without blocking.
//! - [`copy`] moves file bytes: `sendfile`, `splice`, and reads that never wait for a disk.
//! - [`relay`] passes the bytes of one connection on to another.
//! - [`timer`] keeps many deadlines cheaply, [`inbox`] is how other threads reach a reactor.
//! - [`fd_passing`] gives descriptors to another process.
//! - [`Wire`] is bytes on their way to one.
//! - [`tls`] is TLS over such sockets, [`proxy`] what a proxy says before anything else comes.
//! - [`host_address`] is an address that a virtual host is known by.
//! - [`limits`] is what the process is allowed.

pub mod copy;
pub mod fd_passing;
pub mod host_address;
pub mod inbox;
pub mod limits;
pub mod listener;
pub mod proxy;
pub mod relay;
pub mod stream;
pub mod timer;
pub mod tls;
mod wire;

pub use wire::Wire;

/// What [`inbox`] shares between threads; `tests/loom.rs` tries every order instead.
mod sync {
    pub(crate) use std::sync::{Mutex, MutexGuard};
}
