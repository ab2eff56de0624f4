//! tus 1.0: uploads that go on where they were cut (<https://tus.io/protocols/resumable-upload>).
//!
//! What requests say, in fields of their own; what is done about it is the server's.

use crate::{Field, Head, Method, Refusal, Status, base64, request};

/// The version that is spoken.
pub const VERSION: &str = "1.0.0";

/// What is understood beyond the core.
pub const EXTENSIONS: &str =
    "creation,creation-with-upload,creation-defer-length,expiration,termination,checksum";

/// The hashes of `Upload-Checksum`.
pub const ALGORITHMS: &str = "sha1,sha256,sha512,md5,crc32,blake3";

/// The lines that tell clients of all this in the answer to `OPTIONS`.
pub const LINES: &str = concat!(
    "Tus-Resumable: 1.0.0\r\nTus-Version: 1.0.0\r\n",
    "Tus-Extension: creation,creation-with-upload,creation-defer-length,expiration,termination,checksum\r\n",
    "Tus-Checksum-Algorithm: sha1,sha256,sha512,md5,crc32,blake3\r\n",
);

/// The media type of a piece.
const PIECE: &[u8] = b"application/offset+octet-stream";

/// Bytes of `Upload-Metadata` at most.
const MAX_METADATA: usize = 1024;

/// A request for a new upload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Creation<'a> {
    /// Bytes of the whole file; `None` where the client says it later.
    pub length: Option<u64>,
    /// The name that the file is to have, where the client says one.
    pub name: Option<Vec<u8>>,
    /// What the client says of it, for the client.
    pub metadata: &'a [u8],
}

/// What a piece has to hash to: the name of the algorithm, and the hash.
pub type Checksum<'a> = (&'a [u8], Vec<u8>);

/// A request that brings a piece.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece<'a> {
    /// Where it goes.
    pub offset: u64,
    /// Bytes of the whole file, where the client says it only now.
    pub length: Option<u64>,
    /// What it has to hash to, where that is said.
    pub checksum: Option<Checksum<'a>>,
}

const fn bad<T>(reason: &'static str) -> Result<T, Refusal> {
    Err(Refusal { status: Status::BAD_REQUEST, reason })
}

/// A field that may stand once.
fn field<'a>(head: &Head<'a, '_>, name: &str) -> Result<Option<&'a [u8]>, Refusal> {
    let mut values =
        head.fields().filter(|(field, _)| field.eq_ignore_ascii_case(name)).map(|(_, value)| value);
    match (values.next(), values.next()) {
        (value, None) => Ok(value),
        _ => bad("A field that may stand once stands twice."),
    }
}

fn number(head: &Head<'_, '_>, name: &str) -> Result<Option<u64>, Refusal> {
    match field(head, name)?.map(request::decimal) {
        None => Ok(None),
        Some(Some(number)) => Ok(Some(number)),
        Some(None) => bad("A length or offset is not a number."),
    }
}

/// Claims that a request speaks tus.
pub fn speaks(head: &Head<'_, '_>) -> bool {
    head.fields().any(|(name, _)| name.eq_ignore_ascii_case("tus-resumable"))
}

/// Claims that it speaks the version that is understood here.
pub fn speaks_our_version(head: &Head<'_, '_>) -> bool {
    matches!(field(head, "tus-resumable"), Ok(Some(version)) if version == VERSION.as_bytes())
}

/// What is asked of an upload: clients that know only `GET` and `POST` say it in `X-HTTP-Method-Override`.
pub fn method(head: &Head<'_, '_>) -> Method {
    match (head.method, field(head, "x-http-method-override")) {
        (Method::Post, Ok(Some(b"PATCH"))) => Method::Patch,
        (Method::Post, Ok(Some(b"DELETE"))) => Method::Delete,
        (Method::Post, Ok(Some(b"HEAD"))) => Method::Head,
        (method, _) => method,
    }
}

/// Claims that the body is a piece of a file.
pub fn has_piece(head: &Head<'_, '_>) -> bool {
    head.get(Field::ContentType).is_some_and(|said| said.eq_ignore_ascii_case(PIECE))
}

/// What a request for a new upload says.
pub fn creation<'a>(head: &Head<'a, '_>) -> Result<Creation<'a>, Refusal> {
    if field(head, "upload-concat")?.is_some() {
        return bad("This extension of tus is not known here: send one upload a file.");
    }
    let length = match (number(head, "upload-length")?, field(head, "upload-defer-length")?) {
        (Some(length), None) => Some(length),
        (None, Some(b"1")) => None,
        (None, None) => return bad("There is no Upload-Length."),
        _ => return bad("Either there is an Upload-Length, or Upload-Defer-Length is 1."),
    };
    let metadata = field(head, "upload-metadata")?.unwrap_or_default();
    if metadata.len() > MAX_METADATA {
        return Err(Refusal {
            status: Status::HEAD_TOO_LARGE,
            reason: "The Upload-Metadata is longer than 1 KiB.",
        });
    }
    Ok(Creation { length, name: name(metadata)?, metadata })
}

/// `filename d29ybGQ=,filetype dGV4dA==,flag`; some clients call it `name`.
fn name(metadata: &[u8]) -> Result<Option<Vec<u8>>, Refusal> {
    let (mut name, mut filename) = (None, None);
    for pair in metadata.split(|&byte| byte == b',') {
        let pair = pair.trim_ascii();
        let (key, value) = match memchr::memchr(b' ', pair) {
            Some(at) => (&pair[..at], &pair[at + 1..]),
            None => (pair, &b""[..]),
        };
        let place = match key {
            b"filename" => &mut filename,
            b"name" => &mut name,
            _ => continue,
        };
        match base64::decode(value.trim_ascii()) {
            Some(value) => *place = Some(value),
            None => return bad("The Upload-Metadata is malformed."),
        }
    }
    Ok(filename.or(name))
}

/// What a request that brings a piece says.
pub fn piece<'a>(head: &Head<'a, '_>) -> Result<Piece<'a>, Refusal> {
    if !has_piece(head) {
        let reason = "The Content-Type of a piece is application/offset+octet-stream.";
        return Err(Refusal { status: Status::UNSUPPORTED_MEDIA_TYPE, reason });
    }
    let Some(offset) = number(head, "upload-offset")? else {
        return bad("There is no Upload-Offset.");
    };
    Ok(Piece { offset, length: number(head, "upload-length")?, checksum: checksum(head)? })
}

/// `Upload-Checksum: sha1 Kq5sNclPz7QV2+lfQIuc6R7oRu0=`
pub fn checksum<'a>(head: &Head<'a, '_>) -> Result<Option<Checksum<'a>>, Refusal> {
    let Some(said) = field(head, "upload-checksum")? else { return Ok(None) };
    let parts =
        memchr::memchr(b' ', said).map(|at| (&said[..at], base64::decode(said[at + 1..].trim_ascii())));
    match parts {
        Some((algorithm, Some(value))) => Ok(Some((algorithm, value))),
        _ => bad("The Upload-Checksum is malformed."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Slots;

    fn with_head<T>(fields: &str, ask: impl FnOnce(&Head<'_, '_>) -> T) -> T {
        let text = format!("POST / HTTP/1.1\r\nHost: h\r\n{fields}\r\n");
        let mut slots = Slots::new();
        ask(&request::parse(text.as_bytes(), &mut slots).unwrap().unwrap().0)
    }

    #[test]
    fn a_creation_says_how_long_the_file_is_and_maybe_its_name() {
        let said = |fields: &str| {
            with_head(fields, |head| {
                creation(head).map(|said| (said.length, said.name)).map_err(|refusal| refusal.status.0)
            })
        };
        let named = |name: &str| Ok((Some(5), Some(name.as_bytes().to_vec())));
        for (fields, expected) in [
            ("Upload-Length: 5\r\n", Ok((Some(5), None))),
            ("Upload-Length: 5\r\nUpload-Metadata: filename d29ybGQ=\r\n", named("world")),
            ("Upload-Length: 5\r\nUpload-Metadata: is_secret,name d29ybGQ=, filename YQ==\r\n", named("a")),
            ("Upload-Length: 5\r\nUpload-Metadata: filename\r\n", named("")),
            ("Upload-Length: 5\r\nUpload-Metadata: filename ?\r\n", Err(400)),
            ("Upload-Length: 5\r\nUpload-Length: 6\r\n", Err(400)),
            ("Upload-Length: -5\r\n", Err(400)),
            ("Upload-Defer-Length: 1\r\n", Ok((None, None))),
            ("Upload-Defer-Length: 0\r\n", Err(400)),
            ("Upload-Defer-Length: 1\r\nUpload-Length: 5\r\n", Err(400)),
            ("Upload-Concat: partial\r\nUpload-Length: 5\r\n", Err(400)),
            ("", Err(400)),
        ] {
            assert_eq!(said(fields), expected, "{fields}");
        }
    }

    #[test]
    fn a_piece_says_where_it_goes_and_maybe_what_it_hashes_to() {
        let kind = "Content-Type: application/offset+octet-stream\r\n";
        let said = |fields: &str| {
            with_head(fields, |head| {
                let said = piece(head).map_err(|refusal| refusal.status.0)?;
                Ok((said.offset, said.checksum.map(|(name, value)| (name.to_vec(), value))))
            })
        };
        assert_eq!(said(&format!("{kind}Upload-Offset: 7\r\n")), Ok((7, None)));
        let hashed = said(&format!("{kind}Upload-Offset: 0\r\nUpload-Checksum: sha1 Zm9v\r\n"));
        assert_eq!(hashed, Ok((0, Some((b"sha1".to_vec(), b"foo".to_vec())))));
        assert_eq!(said(kind), Err(400));
        assert_eq!(said(&format!("{kind}Upload-Offset: 0\r\nUpload-Checksum: sha1\r\n")), Err(400));
        assert_eq!(said("Upload-Offset: 7\r\n"), Err(415));
    }

    #[test]
    fn old_clients_say_the_method_in_a_field() {
        with_head("X-HTTP-Method-Override: PATCH\r\n", |head| assert_eq!(method(head), Method::Patch));
        with_head("X-HTTP-Method-Override: GET\r\n", |head| assert_eq!(method(head), Method::Post));
        assert!(LINES.contains(EXTENSIONS) && LINES.contains(ALGORITHMS) && LINES.contains(VERSION));
    }
}
