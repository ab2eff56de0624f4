//! The spawner: a small process beside a sandboxed server, which starts programs for it.
//!
//! A sandbox is inherited by child processes, and programs of hooks and of CGI need files and system calls that the
//! server does not. So the server starts the spawner before it enters its sandbox, and [`Start::start`](crate::Start::start)
//! asks it from then on. A server that is taken over could ask, too. So the spawner has a [`Policy`], which the server
//! sends once, at the start: it starts the listed programs with the listed arguments, and refuses everything else.
//!
//! ```text
//!   server                                  spawner
//!     Policy, 8 connections       ------->  starts a thread for each
//!   on a connection, one after the other:
//!     request, 3 descriptors      ------->  checks the policy, starts the program as a child of the server
//!                                 <-------  its process number, or the error
//! ```
//!
//! A program is the server's child (`CLONE_PARENT`), though it inherits nothing of the server's sandbox: the server waits
//! for it as for any other, and the spawner has no part in its end. Where that is not to be had, and for the successor,
//! the program is the spawner's child, and a socket comes with the answer:
//!
//! ```text
//!                                 <-------  its wait status, when it has ended
//!     closes its end              ------->  collects the process: its number is free from here on
//! ```
//!
//! The invariant: until the server has waited for a program, or closed that socket, the process number is that of this
//! program, and of no other.

mod client;
mod policy;
mod request;
mod service;
mod wire;

pub use client::{connect_spawner, has_spawner, start_successor};
pub use policy::{Policy, Word};
pub use request::Request;
pub use service::run_spawner;

pub(crate) use client::{receive, start};

#[cfg(test)]
mod tests;
