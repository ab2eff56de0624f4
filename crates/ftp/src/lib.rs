//! FTP as a value: a control session that is given lines, answers and times, and says what to reply
//! and what to do.
//!
//! Nothing here opens a socket, reads a file or asks the clock, so whole conversations are tested in
//! memory. Where to look:
//!
//! - [`Session`] decides ([`session`] has the state diagram); [`commands`] is the table of verbs.
//! - [`client::ClientSession`] is the other side, for load and for tests.
//! - [`mod@line`] reads command lines, [`reply`] writes replies, [`address`] the four ways to name an address.
//! - [`codec`] turns file bytes into wire bytes: types, structures and modes.
//! - [`listing`] writes and parses `LIST`, `NLST` and `MLSD`.

// Tests may read a clock and files.
#![cfg_attr(test, allow(clippy::disallowed_methods))]

pub mod address;
pub mod ascii;
pub mod client;
pub mod codec;
mod decimal;
pub mod digest;
pub mod ebcdic;
pub mod escape;
pub mod glob;
mod language;
pub mod line;
pub mod listing;
pub mod reply;
pub mod session;
pub mod time;

pub use session::{Session, Settings, commands};
