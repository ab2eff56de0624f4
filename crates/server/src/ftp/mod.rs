//! The FTP side: what joins a control session, which decides, to sockets and files.

pub(crate) mod act;
mod control;
mod data;
mod hooking;
mod notes;
mod secure;

pub(crate) use control::{Connection, Reviewed};
pub(crate) use secure::Handshakes;
