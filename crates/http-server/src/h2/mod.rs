//! HTTP/2 on a worker: one connection with its socket, and one [`Connection`] without a socket for each stream that runs.
//!
//! ```text
//!   client ==TLS==> Http2Connection (millrace_http::h2::Server) <==heads, bodies==> Connection, one for each stream
//! ```
//!
//! - `connection.rs` has the connection: what it reads, which streams run and which wait, and how it ends.
//! - `frames.rs` takes the output of streams into frames, in turn, as far as windows allow.
//! - `stream.rs` drives a [`Connection`] that is a stream (`crate::stream_context`).
//! - The server's worker has both kinds in its slab, and hands on between them.
//!
//! The invariant: a stream ends as its request did. What is cut resets the stream, and a client that resets a stream cuts
//! the request, so nothing is taken for whole that is not.
//!
//! What one client can hold is bounded: in requests that run ([`REQUESTS`]) and that wait, in bytes of each answer that it
//! does not take, and in time.

mod connection;
mod frames;
mod stream;

pub use connection::Http2Connection;
pub use stream::StreamDriver;

/// Requests that run at a time for one client; browsers take six by HTTP/1.1. What is beyond waits.
const REQUESTS: usize = 16;

/// Bytes of frames that are written together.
const OUT: usize = 64 * 1024;

/// Bytes that wait to be sent from which on nothing more is read.
const BACKLOG: usize = 256 * 1024;
