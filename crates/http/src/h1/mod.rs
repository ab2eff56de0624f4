//! HTTP/1.1 and 1.0 on one connection (RFC 9112), as values.
//!
//! - [`Version`] and [`Framing`] describe a head; [`BodyDecoder`] decodes the body after it, and [`ChunkDecoder`] a
//!   chunked one.
//! - [`ClientConnection`] is the client's side as a value.
//! - [`ServerConnection`] is the server's side of a connection.
//! - [`Heads`] has room for heads of requests, which is used again.
//! - [`write_chunk`] and [`LAST_CHUNK`] put a chunked body together.

mod body;
mod chunked;
pub mod client;
mod heads;
mod server;
#[cfg(test)]
mod server_tests;
mod step;

pub use crate::request::{Framing, Version};
pub use body::BodyDecoder;
pub use chunked::{ChunkDecoder, ChunkError, LAST_CHUNK, write_chunk};
pub use client::ClientConnection;
pub use heads::Heads;
pub use server::{LINGER, MAX_LINGER, ServerConnection};
pub use step::{Act, AnswerFraming, Input, Step, Timeouts, Unread};
