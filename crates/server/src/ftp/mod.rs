//! The FTP side: what joins a control session, which decides, to sockets and files.

pub(crate) mod act;
mod admin;
mod asked;
mod control;
mod data;
mod early;
mod hooking;
mod lease;
mod login;
mod lore;
mod notes;
mod question;
mod refusals;
mod secure;
mod unique;
mod walk;

pub(crate) use control::Connection;
pub(crate) use login::Reviewed;
pub(crate) use lore::Lore;
pub(crate) use unique::Promises;
