//! Data connections that begin TLS before the command that they are for.
//!
//! ```text
//!   Nothing --PASV--> Awaited --it connects--> Shaking --> Shaken
//!                                                 +------> Failed        any --a transfer begins--> Nothing
//! ```
//!
//! Most clients wait for the 150 before they speak on a data connection. Some shake hands as soon as they have
//! connected, and send `STOR` behind that (aioftp; Go's jlaffaye/ftp up to 0.2): a server that waits for the command
//! would wait for ever. So under `PROT P` a connection to the passive port is accepted, and answered, at once.

use std::os::fd::OwnedFd;

use millrace_ftp::session::TransferError;
use millrace_runtime::transfer::Socket;

/// The data connection of a transfer that has not begun.
#[derive(Debug, Default)]
pub(super) enum Early {
    /// There is no passive port, or what connects to it is not to be encrypted.
    #[default]
    Nothing,
    /// The client is to connect. The descriptor is a second one of the listener's, known to the reactor.
    Awaited(OwnedFd),
    /// TLS begins.
    Shaking(Socket),
    /// It has begun.
    Shaken(Socket),
    /// The transfer is to be told so.
    Failed(TransferError),
}
