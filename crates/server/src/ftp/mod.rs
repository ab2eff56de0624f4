//! The FTP side: what joins a control session, which decides, to sockets and files.

pub(crate) mod act;
mod admin;
mod control;
mod data;
mod digest_cache;
mod door;
mod early;
mod hook_wait;
mod hooking;
mod lease;
mod login;
mod message;
mod notes;
mod question;
mod refusals;
mod secure;
mod unique;
mod walk;

pub(crate) use control::Connection;
pub(crate) use door::{Door, Ftp, FtpConfig};
pub(crate) use message::Message;
