//! The spawner: a small process beside a sandboxed server, which starts programs for it.
//!
//! A sandbox is inherited by child processes, and programs of hooks and of CGI need files and system calls that the
//! server does not. So the server starts the spawner before it enters its sandbox, and [`Start::start`](crate::Start::start)
//! asks it from then on. A server that is taken over could ask, too. So the spawner has a [`Policy`], which the server
//! sends once, at the start: it starts the listed programs with the listed arguments, and refuses everything else.
//!
//! ```text
//!   server                                  spawner
//!     Policy                      ------->
//!     request, 4 descriptors      ------->  checks the policy, starts the program
//!                                 <-------  its process number, or the error       (on the fourth descriptor)
//!                                 <-------  its wait status, when it has ended
//!     closes its end              ------->  collects the process: its number is free from here on
//! ```
//!
//! The invariant: while the server holds its end, the process number is that of this program, and of no other.

mod client;
mod policy;
mod service;
mod wire;

pub use client::{connect_spawner, has_spawner, start_successor};
pub use policy::{Policy, Word};
pub use service::run_spawner;

pub(crate) use client::{receive, start};

#[cfg(test)]
mod tests;
