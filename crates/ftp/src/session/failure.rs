//! Replies to failures: the code, and a text that has translations.
//!
//! The system's own error text is for the log. RFC 959 section 5.4 has the codes.

use std::io::ErrorKind;

use millrace_vfs::{Counted, FileError, OverQuota, QuotaScope};

use super::{TransferError, quoted};
use crate::listing::Unread;
use crate::reply::Part::{Fixed, Own};
use crate::reply::{Part, Reply, code};

/// The reply to a transfer that failed.
pub(super) fn transfer_failure(error: TransferError) -> Reply {
    let because =
        |code, what, why: &str| Reply::of(code, &[what, Own(b": "), Own(why.as_bytes()), Own(b".")]);
    match error {
        TransferError::NoConnection(why) => {
            because(code::NO_DATA_CONNECTION, Fixed("Cannot open the data connection"), &why)
        }
        TransferError::NotSecured(why) => {
            because(code::DATA_NOT_SECURED, Fixed("The data connection is not secure"), &why)
        }
        TransferError::Broken(error) => {
            let kind = error.kind().to_string();
            let parts = [Fixed("The data connection broke"), Own(b" ("), Own(kind.as_bytes()), Own(b").")];
            Reply::of(code::TRANSFER_ABORTED, &parts)
        }
        TransferError::Stalled => {
            Reply::new(code::TRANSFER_ABORTED, "Nothing moved for too long: transfer aborted.")
        }
        TransferError::Aborted => Reply::new(code::TRANSFER_ABORTED, "Transfer aborted."),
        TransferError::Malformed(why) => because(code::TRANSFER_ABORTED, Fixed("Transfer aborted"), &why),
        TransferError::Cut(why) => because(code::LOCAL_ERROR, Fixed("The listing is not whole"), &why),
        TransferError::Refused(reply) => reply,
        TransferError::File(error) => file_failure(Fixed("Transfer failed"), &error),
    }
}

/// The reply to a listing that is whole but for what it could not go into. Programs that list a tree want what there is
/// of it: a 4yz would have some of them ask again and again.
pub(super) fn not_all_read(unread: &Unread) -> Reply {
    let path = quoted(&unread.path);
    let what = [Fixed("Transfer complete, without what could not be read"), Own(b": "), Own(&path)];
    let why = [Own(b" ("), Fixed(told(&unread.why)), Own(b")")];
    let count = unread.more.to_string();
    let more = [Own(b"; "), Own(count.as_bytes()), Own(b" "), Fixed("more")];
    let more = if unread.more > 0 { &more[..] } else { &[] };
    Reply::of(code::CLOSING_DATA, &[&what[..], &why, more, &[Own(b".")]].concat())
}

/// The reply to a file operation that failed, behind what it was about.
pub(super) fn file_failure(about: Part<'_>, error: &FileError) -> Reply {
    let code = match error {
        FileError::NoSpace => code::NO_SPACE,
        FileError::QuotaExceeded | FileError::OverQuota(_) | FileError::TooLarge => code::OVER_QUOTA,
        FileError::InvalidName | FileError::NameTooLong => code::BAD_NAME,
        FileError::Busy | FileError::Exhausted => code::FILE_BUSY,
        FileError::Io(_) | FileError::WouldWait => code::LOCAL_ERROR,
        FileError::Cancelled => code::TRANSFER_ABORTED,
        FileError::OutOfRange => code::BAD_RESTART,
        FileError::Unsupported => code::BAD_PARAMETER,
        _ => code::FILE_UNAVAILABLE,
    };
    match about {
        Own(b"") => Reply::of(code, &[Fixed(told(error)), Own(b".")]),
        about => Reply::of(code, &[about, Own(b": "), Fixed(told(error)), Own(b".")]),
    }
}

/// The error in words that are always the same: those in which it shows itself, but for what the system said.
pub(crate) fn told(error: &FileError) -> &'static str {
    match error {
        FileError::NotFound => "no such file or directory",
        FileError::PermissionDenied => "permission denied",
        FileError::IsDirectory => "is a directory",
        FileError::NotDirectory => "not a directory",
        FileError::NotRegular => "not a regular file",
        FileError::AlreadyExists => "already exists",
        FileError::NotEmpty => "directory not empty",
        FileError::InvalidName => "name not allowed",
        FileError::NameTooLong => "file name too long",
        FileError::Loop => "too many levels of symbolic links",
        FileError::ReadOnly => "read-only",
        FileError::NoSpace => "no space left on device",
        FileError::QuotaExceeded => "quota exceeded",
        FileError::OverQuota(over) => told_quota(over),
        FileError::TooLarge => "file too large",
        FileError::OutOfRange => "offset is beyond the end of the file",
        FileError::Exhausted => "server is out of resources",
        FileError::CrossDevice => "it is in another place; copy it and delete it",
        FileError::Unsupported => "not supported",
        FileError::Busy => "in use; try again later",
        FileError::Cancelled => "cancelled",
        FileError::WouldWait => "would wait for the device",
        FileError::Io(error) if error.kind() == ErrorKind::NotConnected => {
            "where this is kept cannot be reached now; try again later"
        }
        FileError::Io(_) => "input/output error on the server",
    }
}

fn told_quota(over: &OverQuota) -> &'static str {
    let is_own = matches!(over.scope, QuotaScope::Account);
    match (over.counted, is_own) {
        (Counted::Bytes, true) => "the quota of bytes of this account is used up",
        (Counted::Bytes, false) => "the quota of bytes of this folder is used up",
        (Counted::Files, true) => "the quota of files of this account is used up",
        (Counted::Files, false) => "the quota of files of this folder is used up",
        (Counted::Uploaded, true) => "this account may upload no more for now",
        (Counted::Uploaded, false) => "this folder may upload no more for now",
        (Counted::Downloaded, true) => "this account may download no more for now",
        (Counted::Downloaded, false) => "this folder may download no more for now",
        (Counted::Moved, true) => "this account may transfer no more for now",
        (Counted::Moved, false) => "this folder may transfer no more for now",
        (Counted::Ratio, true) => "this account has to upload before it may download more",
        (Counted::Ratio, false) => "this folder has to upload before it may download more",
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::io;

    use super::*;

    /// One of each.
    pub(crate) fn errors() -> Vec<FileError> {
        let mut errors = vec![
            FileError::NotFound,
            FileError::PermissionDenied,
            FileError::IsDirectory,
            FileError::NotDirectory,
            FileError::NotRegular,
            FileError::AlreadyExists,
            FileError::NotEmpty,
            FileError::InvalidName,
            FileError::NameTooLong,
            FileError::Loop,
            FileError::ReadOnly,
            FileError::NoSpace,
            FileError::QuotaExceeded,
            FileError::TooLarge,
            FileError::OutOfRange,
            FileError::Exhausted,
            FileError::CrossDevice,
            FileError::Unsupported,
            FileError::Busy,
            FileError::Cancelled,
            FileError::WouldWait,
            FileError::Io(io::Error::other("x")),
            FileError::Io(ErrorKind::NotConnected.into()),
        ];
        for counted in [
            Counted::Bytes,
            Counted::Files,
            Counted::Uploaded,
            Counted::Downloaded,
            Counted::Moved,
            Counted::Ratio,
        ] {
            for scope in [QuotaScope::Account, QuotaScope::Folder("/in".to_owned())] {
                errors.push(OverQuota { scope, counted, most: 1 }.into());
            }
        }
        errors
    }

    #[test]
    fn a_client_is_told_what_an_error_shows() {
        for error in errors().iter().filter(|error| !matches!(error, FileError::Io(_))) {
            assert_eq!(told(error), error.to_string());
        }
    }

    #[test]
    fn temporary_failures_have_temporary_codes() {
        for error in errors().iter().filter(|error| error.is_transient()) {
            let code = file_failure(Own(b""), error).code();
            assert!((400..500).contains(&code), "{error}: {code}");
        }
        assert_eq!(file_failure(Own(b"/a"), &FileError::Busy).code(), code::FILE_BUSY);
    }

    #[test]
    fn a_failure_names_its_path_where_it_has_one() {
        let text = |about| file_failure(about, &FileError::NotFound).text().to_vec();
        assert_eq!(text(Own(b"/a")), b"/a: no such file or directory.");
        assert_eq!(text(Own(b"")), b"no such file or directory.");
    }
}
