//! The user of this computer that changes something.

use std::net::IpAddr;
use std::{env, fs};

/// The user of this computer that changes something, by `millrace ctl` or by another command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Actor {
    /// The user that the command runs as.
    pub uid: u32,
    /// The user that has logged in, who may have become another since (`loginuid` of Linux's audit).
    pub login_uid: Option<u32>,
    /// The address from which that user came by SSH, as the environment says.
    pub from: Option<IpAddr>,
}

/// Who administers a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Administrator<'a> {
    /// A user of this computer.
    Local(Actor),
    /// An account or a token of the admin API.
    Remote {
        /// Its name; that of a token begins with `token `.
        name: &'a str,
        /// The address that it came from.
        from: IpAddr,
    },
}

impl Actor {
    /// The peer of a socket, of which only the user is known.
    pub fn of_uid(uid: u32) -> Self {
        Self { uid, login_uid: None, from: None }
    }

    /// The user that runs this process.
    pub fn present() -> Self {
        let login = fs::read_to_string("/proc/self/loginuid").ok();
        let from = env::var("SSH_CONNECTION").ok();
        Self {
            uid: rustix::process::getuid().as_raw(),
            login_uid: login.and_then(|text| text.trim().parse().ok()).filter(|uid| *uid != u32::MAX),
            from: from.and_then(|text| text.split(' ').next()?.parse().ok()),
        }
    }
}
