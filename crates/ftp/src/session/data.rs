//! What a session knows of its next data connection, and how transfers end.

use std::io::ErrorKind;
use std::net::SocketAddr;

use millrace_vfs::FileError;

use super::{TransferError, Via};
use crate::reply::{Reply, code};

/// How the next data connection will come about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DataPlan {
    /// Nothing was agreed.
    None,
    /// The client will connect to the leased passive port.
    Passive,
    /// We connect to the client's address.
    Active(SocketAddr),
}

impl DataPlan {
    /// The connection for a transfer, where one was agreed.
    pub(crate) fn via(self) -> Option<Via> {
        match self {
            Self::Passive => Some(Via::Passive),
            Self::Active(address) => Some(Via::Active(address)),
            Self::None => None,
        }
    }
}

/// The reply to a transfer command before which no data connection was agreed.
pub(super) const NO_PLAN: Reply = Reply::new(code::NO_DATA_CONNECTION, "Use PASV, EPSV, PORT or EPRT first.");

pub(super) fn failure_reply(error: TransferError) -> Reply {
    match error {
        TransferError::NoConnection(why) => {
            Reply::owned(code::NO_DATA_CONNECTION, format!("Cannot open the data connection: {why}."))
        }
        TransferError::NotSecured(why) => {
            Reply::owned(code::DATA_NOT_SECURED, format!("The data connection is not secure: {why}."))
        }
        TransferError::Broken(error) => {
            Reply::owned(code::TRANSFER_ABORTED, format!("The data connection broke ({}).", error.kind()))
        }
        TransferError::Stalled => {
            Reply::new(code::TRANSFER_ABORTED, "Nothing moved for too long: transfer aborted.")
        }
        TransferError::Aborted => Reply::new(code::TRANSFER_ABORTED, "Transfer aborted."),
        TransferError::Malformed(why) => {
            Reply::owned(code::TRANSFER_ABORTED, format!("Transfer aborted: {why}."))
        }
        TransferError::Cut(why) => {
            Reply::owned(code::LOCAL_ERROR, format!("The listing is not whole: {why}."))
        }
        TransferError::Refused(reply) => reply,
        TransferError::File(error) => file_failure(b"Transfer failed: ".to_vec(), &error),
    }
}

/// The reply to a failed file operation, behind what it was about.
pub(super) fn file_failure(about: Vec<u8>, error: &FileError) -> Reply {
    let code = match error {
        FileError::NoSpace => code::NO_SPACE,
        FileError::QuotaExceeded | FileError::OverQuota(_) | FileError::TooLarge => code::OVER_QUOTA,
        FileError::InvalidName | FileError::NameTooLong => code::BAD_NAME,
        FileError::Exhausted => code::FILE_BUSY,
        FileError::Io(_) | FileError::WouldWait => code::LOCAL_ERROR,
        FileError::Cancelled => code::TRANSFER_ABORTED,
        FileError::OutOfRange => code::BAD_RESTART,
        FileError::Unsupported => code::BAD_PARAMETER,
        _ => code::FILE_UNAVAILABLE,
    };
    let mut text = about;
    // What the system said in its own words is for the log; the client is told the kind.
    match error {
        FileError::Io(error) if error.kind() == ErrorKind::NotConnected => {
            text.extend_from_slice(b"where this is kept cannot be reached now; try again later");
        }
        FileError::Io(_) => text.extend_from_slice(b"input/output error on the server"),
        error => text.extend_from_slice(error.to_string().as_bytes()),
    }
    text.push(b'.');
    Reply::owned(code, text)
}
