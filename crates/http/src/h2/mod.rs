//! HTTP/2 on one connection, as values without I/O (RFC 9113).
//!
//! [`Server`] and [`Client`] take bytes of the peer and give events; what they have to say is appended to one buffer of
//! the caller's. A body is not copied: an event names the bytes of the input that belong to it, and a caller puts a body
//! behind the head of its frame in the same buffer.
//!
//! - [`frame`] and [`hpack`] are the two codecs, [`Fields`] what a block of fields holds.
//! - [`request`] reads the head of a request from them, the same value as that of HTTP/1.1.
//! - [`stream`] has the states and windows of streams, [`connection`] the handling of frames on both sides, [`heads`]
//!   and [`payload`] their meaning, [`sending`] the output.
//! - [`fault`] is what ends either, and [`budget`] bounds what a peer can cause besides what it is sent.
//!
//! Priorities are read and passed over (RFC 9113 section 5.3.2), and no side pushes.

mod budget;
mod client;
mod connection;
mod fault;
mod fields;
mod frame;
mod heads;
pub mod hpack;
mod payload;
mod request;
mod sending;
mod server;
mod settings;
mod stream;
#[cfg(test)]
mod tests;

pub use client::Client;
pub use connection::{ConnectionError, ReceivedFrames, StreamEvent};
pub use fields::{Fields, Pseudo};
pub use frame::{ErrorCode, FRAME_HEAD, FRAME_SIZE, PREFACE};
pub use server::Server;
pub use settings::ConnectionLimits;
