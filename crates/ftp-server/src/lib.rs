//! Connections of FTP: what joins a control session, which decides, to sockets and files.

mod connection;
mod files;

pub use connection::Connection;
pub use connection::door::{Administration, Door, Ftp, FtpConfig};
pub use connection::hosts::FtpHost;
pub use connection::message::Message;
