//! Answers from elsewhere: CGI programs, applications by FastCGI, and other servers by HTTP (a reverse proxy).
//!
//! - [`cgi`] starts the program that a request is for; [`program`] has its process, [`programs`] all of a worker's.
//! - [`application`] asks an application by FastCGI; [`conversation`] exchanges records with it; [`connections`] keeps idle connections to it.
//! - [`forward`] asks another server by HTTP, on the runtime of [`runtime`].
//! - [`answerer`] is what drivers see of either: something that takes a body and gives an answer.
//! - [`settings`] and [`upstream`] are what an operator configures.

pub mod answerer;
pub mod application;
pub mod cgi;
pub mod connections;
pub mod conversation;
pub mod forward;
mod lane;
pub mod program;
pub mod programs;
pub mod request;
pub mod runtime;
pub mod settings;
pub mod upstream;

/// What places of programs share between threads; `tests/loom.rs` tries every order instead.
mod sync {
    pub(crate) use std::sync::Arc;
    pub(crate) use std::sync::atomic::{AtomicUsize, Ordering};
}
