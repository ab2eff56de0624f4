//! The FTP side: what joins a control session, which decides, to sockets and files.

pub(crate) mod act;
mod control;
mod data;

pub(crate) use control::{Connection, Reviewed};
