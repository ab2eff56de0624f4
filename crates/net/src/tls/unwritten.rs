//! Why bytes that were to be read and sealed have not been.

use std::io;

/// Why [`Channel::write_from`](super::Channel::write_from) has written nothing.
#[derive(Debug)]
pub enum Unwritten {
    /// The source of the data could not be read.
    Source(io::Error),
    /// The socket takes nothing: for now, where it is [`io::ErrorKind::WouldBlock`]. Or nothing can be encrypted any more.
    Socket(io::Error),
}

impl Unwritten {
    /// The keys are used up, or worse.
    pub(super) fn sealing(error: rustls::Error) -> Self {
        Self::Socket(io::Error::new(io::ErrorKind::InvalidData, error))
    }
}
