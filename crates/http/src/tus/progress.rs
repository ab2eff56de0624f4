//! How far an upload has come, and what a request may do with it.
//!
//! The invariant: a piece goes where the upload ends, and an upload becomes its file with the byte that its length names, and
//! with no other.

use std::cmp::Ordering;
use std::time::Duration;

use millrace_vfs::{Metadata, Permission, Permissions, VirtualPath, WriteMode};

use super::{Checksum, Piece, bad, checksum, has_piece};
use crate::dav::Touch;
use crate::request::{Framing, Head, Method, Refusal, refuse};
use crate::{Status, conditional, date};

/// There is no such upload, or its time is over.
pub const GONE: Refusal =
    Refusal { status: Status::GONE, reason: "There is no such upload, or not any more." };

/// Another request writes to the upload.
pub const LOCKED: Refusal =
    Refusal { status: Status::LOCKED, reason: "Another request brings a piece of it just now." };

/// The upload is a file, of which hooks have not decided.
pub const UNSETTLED: Refusal =
    Refusal { status: Status::LOCKED, reason: "The file is there, and is looked at just now." };

/// A piece does not begin where the upload ends.
pub const WRONG_OFFSET: Refusal =
    Refusal { status: Status::CONFLICT, reason: "This is not where the upload goes on." };

/// Another length is known.
pub const OTHER_LENGTH: Refusal =
    Refusal { status: Status::BAD_REQUEST, reason: "Another Upload-Length was said before." };

const TOO_LONG: Refusal = Refusal { status: Status::CONTENT_TOO_LARGE, reason: "The file is not that long." };

/// What an upload becomes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UploadKind {
    /// A file.
    File,
    /// A part of one.
    Part,
    /// A file of parts that came before.
    Joined,
}

/// How far an upload has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UploadProgress {
    /// What it becomes.
    pub kind: UploadKind,
    /// Bytes of the whole, where that is known.
    pub length: Option<u64>,
    /// Bytes that are there; `None` where it is the file already.
    pub received: Option<u64>,
}

/// What a request does with an upload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UploadAction {
    /// It asks how far the upload has come.
    Tell,
    /// It brings a piece.
    Append,
    /// It gives the upload up.
    Remove,
}

/// What becomes of a request with a piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PieceAction {
    /// It has no bytes, and none are missing: the client is told the offset.
    Tell,
    /// Its bytes are received; there may be none, where they all came and were not committed.
    Receive,
}

/// Decides what a request does with an upload of this kind.
pub fn action(head: &Head, kind: UploadKind) -> Result<UploadAction, Refusal> {
    match super::method(head) {
        Method::Head => Ok(UploadAction::Tell),
        Method::Patch if kind == UploadKind::Joined => {
            refuse(Status::FORBIDDEN, "This upload is of parts that came before; nothing is added to it.")
        }
        Method::Patch => Ok(UploadAction::Append),
        Method::Delete => Ok(UploadAction::Remove),
        _ => refuse(Status::METHOD_NOT_ALLOWED, "An upload is asked for with HEAD, PATCH and DELETE."),
    }
}

/// Returns whether a new upload comes with its first piece, and the expected hash of that. `length` is that of the whole.
pub fn first_piece<'a>(head: &'a Head, length: Option<u64>) -> Result<(bool, Option<Checksum<'a>>), Refusal> {
    length.map_or(Ok(()), check_length)?;
    let is_there = head.framing != Framing::None;
    if is_there && !has_piece(head) {
        return Err(super::NOT_A_PIECE);
    }
    if let (Framing::Length(bytes), Some(length)) = (head.framing, length)
        && bytes > length
    {
        return Err(TOO_LONG);
    }
    Ok((is_there, checksum(head)?))
}

/// Returns the file that a new upload becomes, or is a part of: the path of the request, or in a directory the file of this
/// name.
pub fn file_path(
    path: &VirtualPath,
    is_directory: bool,
    name: Option<&[u8]>,
) -> Result<VirtualPath, Refusal> {
    match (is_directory, name) {
        (false, _) => Ok(path.clone()),
        (true, None) => bad("A filename in Upload-Metadata says which file in this folder it is."),
        (true, Some(name)) => match path.join(name) {
            Ok(file) if file.name() == name && file.parent() == *path => Ok(file),
            _ => bad("The filename in Upload-Metadata is no name of a file."),
        },
    }
}

/// Decides whether an upload may become a file where this is, and says what changes there.
pub fn replaces(head: &Head, old: Option<&Metadata>, permissions: Permissions) -> Result<Touch, Refusal> {
    if old.is_some_and(Metadata::is_directory) {
        return refuse(Status::CONFLICT, "There is a directory of this name.");
    }
    conditional::check(head, old)?;
    match old {
        None => Ok(Touch::Name),
        Some(_) if permissions.allows(Permission::Overwrite) => Ok(Touch::Content),
        Some(_) => refuse(Status::FORBIDDEN, "There is a file of this name, which you may not replace."),
    }
}

/// How the file is written that an upload becomes, which may not replace one where it is exclusive.
pub fn write_mode(permissions: Permissions, is_exclusive: bool) -> WriteMode {
    match permissions.allows(Permission::Overwrite) && !is_exclusive {
        true => WriteMode::Replace,
        false => WriteMode::CreateNew,
    }
}

/// Returns the length of the file of these parts, all of which have to be complete.
pub fn joined_length(parts: impl IntoIterator<Item = UploadProgress>) -> Result<u64, Refusal> {
    parts.into_iter().try_fold(0_u64, |sum, part| match part.received {
        None => Err(GONE),
        Some(received) if Some(received) == part.length => Ok(sum.saturating_add(received)),
        Some(_) => refuse(Status::CONFLICT, "One of the parts has not come in full."),
    })
}

/// Returns whether the time of an upload is over that was changed then; both in seconds since 1970.
pub fn is_expired(modified: i64, now: i64, age: Duration) -> bool {
    u64::try_from(now.saturating_sub(modified)).unwrap_or(0) > age.as_secs()
}

/// Returns the value of `Upload-Expires` of an upload that was changed then.
pub fn expires(modified: i64, age: Duration) -> String {
    let mut text = Vec::new();
    date::write(modified.saturating_add(i64::try_from(age.as_secs()).unwrap_or(i64::MAX)), &mut text);
    String::from_utf8_lossy(&text).into_owned()
}

/// Refuses lengths that no file system has.
fn check_length(length: u64) -> Result<(), Refusal> {
    match i64::try_from(length) {
        Ok(_) => Ok(()),
        Err(_) => refuse(Status::CONTENT_TOO_LARGE, "No file can be that long."),
    }
}

impl UploadProgress {
    /// Returns where the upload goes on.
    pub fn offset(&self) -> u64 {
        self.received.or(self.length).unwrap_or(0)
    }

    /// Returns whether all of it has come, and it has not become its file: the server was ended before.
    pub fn is_whole(&self) -> bool {
        self.kind == UploadKind::File
            && self.received.zip(self.length).is_some_and(|(received, length)| received >= length)
    }

    /// Returns whether with this many bytes more it becomes the file.
    pub fn ends_with(&self, bytes: u64) -> Result<bool, Refusal> {
        let Some(length) = self.length else { return Ok(false) };
        match self.offset().saturating_add(bytes).cmp(&length) {
            Ordering::Less => Ok(false),
            Ordering::Equal => Ok(self.kind != UploadKind::Part),
            Ordering::Greater => Err(TOO_LONG),
        }
    }

    /// Decides a request with a piece, which may say the length of the whole: that is known from then on.
    pub fn append(&mut self, piece: &Piece<'_>, framing: Framing) -> Result<PieceAction, Refusal> {
        if self.offset() != piece.offset {
            return Err(WRONG_OFFSET);
        }
        if let Some(length) = piece.length {
            check_length(length)?;
            if piece.offset > length {
                return Err(TOO_LONG);
            }
            if *self.length.get_or_insert(length) != length {
                return Err(OTHER_LENGTH);
            }
        }
        let bytes = match framing {
            Framing::Length(bytes) => bytes,
            Framing::None | Framing::Chunked => 0,
        };
        match self.received {
            None if matches!(framing, Framing::None | Framing::Length(0)) => Ok(PieceAction::Tell),
            None => Err(TOO_LONG),
            Some(_) if framing == Framing::None && !self.is_whole() => Ok(PieceAction::Tell),
            Some(_) => self.ends_with(bytes).map(|_| PieceAction::Receive),
        }
    }

    /// Returns the fields that tell of it, but for the offset: `parts` is what the client said of those that it was joined
    /// from, `metadata` what the client said of it.
    pub fn describe(&self, parts: Option<&[u8]>, metadata: &[u8]) -> Vec<(&'static str, String)> {
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        let mut fields = super::answer_fields();
        fields.push(match self.length {
            Some(length) => ("Upload-Length", length.to_string()),
            None => ("Upload-Defer-Length", "1".to_owned()),
        });
        let concat = if self.kind == UploadKind::Part { Some(&b"partial"[..]) } else { parts };
        fields.extend(concat.map(|concat| ("Upload-Concat", text(concat))));
        fields.extend((!metadata.is_empty()).then(|| ("Upload-Metadata", text(metadata))));
        fields
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::UploadKind::{File, Joined, Part};
    use super::*;
    use crate::request;

    fn head(method: &str, fields: &str) -> Head {
        let text = format!("{method} / HTTP/1.1\r\nHost: h\r\n{fields}\r\n");
        request::parse(text.as_bytes()).unwrap().unwrap().0
    }

    fn status<T>(decided: Result<T, Refusal>) -> Result<T, u16> {
        decided.map_err(|refusal| refusal.status.0)
    }

    fn progress(kind: UploadKind, length: Option<u64>, received: Option<u64>) -> UploadProgress {
        UploadProgress { kind, length, received }
    }

    #[test]
    fn methods_ask_for_an_upload_or_bring_or_remove_it() {
        for (method, kind, expected) in [
            ("HEAD", File, Ok(UploadAction::Tell)),
            ("HEAD", Joined, Ok(UploadAction::Tell)),
            ("PATCH", File, Ok(UploadAction::Append)),
            ("PATCH", Part, Ok(UploadAction::Append)),
            ("PATCH", Joined, Err(403)),
            ("DELETE", Part, Ok(UploadAction::Remove)),
            ("GET", File, Err(405)),
            ("POST", File, Err(405)),
        ] {
            assert_eq!(status(action(&head(method, ""), kind)), expected, "{method} {kind:?}");
        }
    }

    #[test]
    fn a_piece_goes_where_the_upload_ends() {
        use Framing::{Chunked, Length, None as Empty};
        use PieceAction::{Receive, Tell};
        const FAR: u64 = i64::MAX as u64 + 1;
        for (kind, known, received, (offset, said), framing, expected) in [
            (File, Some(9), Some(4), (4, None), Length(3), Ok(Receive)),
            (File, Some(9), Some(4), (4, None), Length(5), Ok(Receive)),
            (File, Some(9), Some(4), (4, None), Length(6), Err(413)),
            (File, Some(9), Some(4), (3, None), Length(3), Err(409)),
            (File, Some(9), Some(4), (5, None), Length(3), Err(409)),
            (File, Some(9), Some(4), (4, None), Chunked, Ok(Receive)),
            (File, Some(9), Some(4), (4, None), Empty, Ok(Tell)),
            (Part, Some(9), Some(4), (4, None), Length(6), Err(413)),
            // All came, and the server was ended before it became the file.
            (File, Some(9), Some(9), (9, None), Empty, Ok(Receive)),
            (Part, Some(9), Some(9), (9, None), Empty, Ok(Tell)),
            // It is the file already.
            (File, Some(9), None, (9, None), Empty, Ok(Tell)),
            (File, Some(9), None, (9, None), Length(0), Ok(Tell)),
            (File, Some(9), None, (9, None), Length(1), Err(413)),
            (File, Some(9), None, (9, None), Chunked, Err(413)),
            (File, Some(9), None, (8, None), Empty, Err(409)),
            // The length is said late.
            (File, None, Some(4), (4, None), Length(100), Ok(Receive)),
            (File, None, Some(4), (4, Some(9)), Length(5), Ok(Receive)),
            (File, None, Some(4), (4, Some(9)), Length(6), Err(413)),
            (File, None, Some(4), (4, Some(4)), Empty, Ok(Receive)),
            (File, None, Some(4), (4, Some(3)), Empty, Err(413)),
            (File, None, Some(4), (4, Some(FAR)), Empty, Err(413)),
            (File, Some(9), Some(4), (4, Some(9)), Length(5), Ok(Receive)),
            (File, Some(9), Some(4), (4, Some(8)), Length(4), Err(400)),
        ] {
            let mut upload = progress(kind, known, received);
            let piece = Piece { offset, length: said, checksum: None };
            let decided = status(upload.append(&piece, framing));
            assert_eq!(decided, expected, "{kind:?} {known:?} {received:?} {piece:?} {framing:?}");
            assert!(decided.is_err() || upload.length == known.or(said));
        }
    }

    #[test]
    fn an_upload_becomes_its_file_with_its_last_byte() {
        for (kind, length, bytes, expected) in [
            (File, Some(9), 4, Ok(false)),
            (File, Some(9), 5, Ok(true)),
            (File, Some(9), 6, Err(413)),
            (File, Some(9), u64::MAX, Err(413)),
            (File, None, u64::MAX, Ok(false)),
            (Part, Some(9), 5, Ok(false)),
            (Part, Some(9), 6, Err(413)),
            (Joined, Some(4), 0, Ok(true)),
        ] {
            let decided = status(progress(kind, length, Some(4)).ends_with(bytes));
            assert_eq!(decided, expected, "{kind:?} {length:?} {bytes}");
        }
    }

    #[test]
    fn a_first_piece_fits_in_its_upload() {
        const PIECE: &str = "Content-Type: application/offset+octet-stream\r\n";
        for (fields, length, expected) in [
            ("".to_owned(), Some(5), Ok(false)),
            ("".to_owned(), None, Ok(false)),
            ("".to_owned(), Some(u64::MAX), Err(413)),
            (format!("{PIECE}Content-Length: 5\r\n"), Some(5), Ok(true)),
            (format!("{PIECE}Content-Length: 5\r\n"), None, Ok(true)),
            (format!("{PIECE}Content-Length: 6\r\n"), Some(5), Err(413)),
            (format!("{PIECE}Transfer-Encoding: chunked\r\n"), Some(5), Ok(true)),
            ("Content-Length: 5\r\n".to_owned(), Some(5), Err(415)),
            (format!("{PIECE}Content-Length: 5\r\nUpload-Checksum: x\r\n"), Some(5), Err(400)),
        ] {
            let head = head("POST", &fields);
            let decided = status(first_piece(&head, length)).map(|(is_there, _)| is_there);
            assert_eq!(decided, expected, "{fields} {length:?}");
        }
    }

    #[test]
    fn a_file_lies_directly_in_the_directory_of_the_request() {
        let parse = |text: &str| VirtualPath::parse(text.as_bytes()).unwrap();
        for (path, is_directory, name, expected) in [
            ("/d", false, None, Ok("/d")),
            ("/d", false, Some("x"), Ok("/d")),
            ("/d", true, Some("x"), Ok("/d/x")),
            ("/", true, Some("x"), Ok("/x")),
            ("/d", true, None, Err(400)),
            ("/d", true, Some(""), Err(400)),
            ("/d", true, Some(".."), Err(400)),
            ("/d", true, Some("../x"), Err(400)),
            ("/d", true, Some("a/b"), Err(400)),
            ("/d", true, Some("/x"), Err(400)),
            ("/d", true, Some("a\0"), Err(400)),
        ] {
            let decided = status(file_path(&parse(path), is_directory, name.map(str::as_bytes)));
            assert_eq!(decided, expected.map(parse), "{path} {name:?}");
        }
    }

    #[test]
    fn parts_make_a_file_when_all_have_come() {
        let part = |length, received| progress(Part, length, received);
        for (parts, expected) in [
            (vec![part(Some(3), Some(3)), part(Some(4), Some(4))], Ok(7)),
            (vec![part(Some(3), Some(3)), part(Some(4), Some(2))], Err(409)),
            (vec![part(None, Some(3))], Err(409)),
            (vec![part(Some(3), None)], Err(410)),
            (vec![], Ok(0)),
        ] {
            assert_eq!(status(joined_length(parts.clone())), expected, "{parts:?}");
        }
    }

    #[test]
    fn an_upload_expires_when_it_was_not_changed_for_its_age() {
        let day = Duration::from_secs(86_400);
        for (modified, now, expected) in
            [(0, 86_400, false), (0, 86_401, true), (10, 0, false), (i64::MIN, i64::MAX, true)]
        {
            assert_eq!(is_expired(modified, now, day), expected, "{modified} {now}");
        }
        assert_eq!(expires(784_111_777 - 86_400, day), "Sun, 06 Nov 1994 08:49:37 GMT");
    }

    #[test]
    fn a_client_is_told_what_it_said() {
        let told = |upload: UploadProgress, parts, metadata| {
            upload.describe(parts, metadata)[2..]
                .iter()
                .map(|(name, value)| format!("{name}: {value}"))
                .collect::<Vec<_>>()
        };
        assert_eq!(told(progress(File, Some(5), None), None, b""), ["Upload-Length: 5"]);
        assert_eq!(
            told(progress(Part, None, Some(1)), None, b"a YQ=="),
            ["Upload-Defer-Length: 1", "Upload-Concat: partial", "Upload-Metadata: a YQ=="]
        );
        assert_eq!(
            told(progress(Joined, Some(5), None), Some(b"final;/a"), b""),
            ["Upload-Length: 5", "Upload-Concat: final;/a"]
        );
    }

    proptest! {
        /// However a file is cut into pieces, each is received where the one before ended, and with the last byte, and no
        /// sooner, it becomes the file.
        #[test]
        fn pieces_make_a_file(sizes in prop::collection::vec(1_u64..1000, 1..20), says_late: bool) {
            let length: u64 = sizes.iter().sum();
            let mut upload = progress(File, (!says_late).then_some(length), Some(0));
            for (number, size) in (1..).zip(&sizes) {
                let is_last = number == sizes.len();
                let said = (is_last && says_late).then_some(length);
                let piece = Piece { offset: upload.offset(), length: said, checksum: None };
                prop_assert!(!upload.is_whole());
                prop_assert_eq!(upload.append(&piece, Framing::Length(*size)), Ok(PieceAction::Receive));
                prop_assert_eq!(upload.ends_with(*size), Ok(is_last));
                upload.received = Some(upload.offset() + size);
                // The same piece again is refused, unless it fits where the upload goes on.
                prop_assert_eq!(upload.append(&piece, Framing::Length(*size)), Err(WRONG_OFFSET));
            }
            prop_assert!(upload.is_whole() && upload.ends_with(1).is_err());
            upload.received = None;
            prop_assert_eq!(upload.offset(), length);
        }
    }
}
