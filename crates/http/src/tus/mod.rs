//! tus 1.0: uploads that go on where they were cut (<https://tus.io/protocols/resumable-upload>).
//!
//! The requests and their header fields; what they may do with an upload ([`UploadProgress`]); and what is remembered of
//! uploads, which the driver looks up ([`UploadShares`], [`FinishedUploads`]).

mod finished;
mod progress;
mod shares;

pub use finished::{FinishedUpload, FinishedUploads, REMEMBERED};
pub use progress::{
    GONE, LOCKED, OTHER_LENGTH, PieceAction, UNSETTLED, UploadAction, UploadKind, UploadProgress,
    WRONG_OFFSET, action, expires, file_path, first_piece, is_expired, joined_length, replaces, write_mode,
};
pub use shares::{MAX_SHARE, MAX_WAITING, UploadShares, sharer};

use crate::{Field, Head, Method, Refusal, Status, base64, request};

/// The version that is spoken.
pub const VERSION: &str = "1.0.0";

/// The supported extensions.
pub const EXTENSIONS: &str =
    "creation,creation-with-upload,creation-defer-length,expiration,termination,checksum,concatenation";

/// The hashes of `Upload-Checksum`.
pub const ALGORITHMS: &str = "sha1,sha256,sha512,md5,crc32,blake3";

/// The lines that tell clients of all this in the answer to `OPTIONS`.
pub const LINES: &str = concat!(
    "Tus-Resumable: 1.0.0\r\nTus-Version: 1.0.0\r\n",
    "Tus-Extension: ",
    "creation,creation-with-upload,creation-defer-length,expiration,termination,checksum,concatenation\r\n",
    "Tus-Checksum-Algorithm: sha1,sha256,sha512,md5,crc32,blake3\r\n",
);

/// The media type of a piece.
const PIECE: &[u8] = b"application/offset+octet-stream";

/// Bytes of `Upload-Metadata` at most.
const MAX_METADATA: usize = 1024;

/// A request for a new upload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Creation<'a> {
    /// Bytes of the whole file; `None` where the client says it later, or it is those of its parts.
    pub length: Option<u64>,
    /// What it becomes.
    pub becomes: Becomes<'a>,
    /// The name that the file is to have, where the client says one.
    pub name: Option<Vec<u8>>,
    /// The client's metadata, returned to the client.
    pub metadata: &'a [u8],
}

/// What a new upload becomes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Becomes<'a> {
    /// A file.
    File,
    /// A part of one (`Upload-Concat: partial`).
    Part,
    /// The file whose parts have come, by their paths; and what the client said.
    Whole {
        /// In this order.
        parts: Vec<&'a [u8]>,
        /// The value of `Upload-Concat`.
        said: &'a [u8],
    },
}

/// The expected hash of a piece: the name of the algorithm, and the hash.
pub type Checksum<'a> = (&'a [u8], Vec<u8>);

/// A request that brings a piece.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece<'a> {
    /// Where it goes.
    pub offset: u64,
    /// Bytes of the whole file, where the client says it only now.
    pub length: Option<u64>,
    /// The expected hash, if any.
    pub checksum: Option<Checksum<'a>>,
}

/// The subject of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Concern {
    /// A new upload.
    Creation,
    /// One that was begun.
    Upload,
}

const NOT_A_PIECE: Refusal = Refusal {
    status: Status::UNSUPPORTED_MEDIA_TYPE,
    reason: "The Content-Type of a piece is application/offset+octet-stream.",
};

const fn bad<T>(reason: &'static str) -> Result<T, Refusal> {
    Err(Refusal { status: Status::BAD_REQUEST, reason })
}

/// A field that may stand once.
fn field<'a>(head: &'a Head, name: &str) -> Result<Option<&'a [u8]>, Refusal> {
    let mut values =
        head.fields().filter(|(field, _)| field.eq_ignore_ascii_case(name)).map(|(_, value)| value);
    match (values.next(), values.next()) {
        (value, None) => Ok(value),
        _ => bad("A field that may stand once stands twice."),
    }
}

fn number(head: &Head, name: &str) -> Result<Option<u64>, Refusal> {
    match field(head, name)?.map(request::decimal) {
        None => Ok(None),
        Some(Some(number)) => Ok(Some(number)),
        Some(None) => bad("A length or offset is not a number."),
    }
}

/// Returns whether a request speaks tus.
pub fn speaks(head: &Head) -> bool {
    head.fields().any(|(name, _)| name.eq_ignore_ascii_case("tus-resumable"))
}

/// Returns whether it speaks the version that is understood here.
pub fn speaks_our_version(head: &Head) -> bool {
    matches!(field(head, "tus-resumable"), Ok(Some(version)) if version == VERSION.as_bytes())
}

/// Returns the subject of a request, if it is one of tus: of a path that is an upload's address, or of another.
pub fn concern(head: &Head, is_address: bool) -> Option<Concern> {
    match head.method {
        Method::Options => None,
        _ if is_address => Some(Concern::Upload),
        Method::Post if speaks(head) => Some(Concern::Creation),
        _ => None,
    }
}

/// Returns whether a request puts a file together.
pub fn joins(head: &Head) -> bool {
    creation(head).is_ok_and(|creation| matches!(creation.becomes, Becomes::Whole { .. }))
}

/// Returns the fields of every answer.
pub fn answer_fields() -> Vec<(&'static str, String)> {
    vec![("Tus-Resumable", VERSION.to_owned()), ("Cache-Control", "no-store".to_owned())]
}

/// The method of a request: clients limited to `GET` and `POST` send it in `X-HTTP-Method-Override`.
pub fn method(head: &Head) -> Method {
    match (head.method, field(head, "x-http-method-override")) {
        (Method::Post, Ok(Some(b"PATCH"))) => Method::Patch,
        (Method::Post, Ok(Some(b"DELETE"))) => Method::Delete,
        (Method::Post, Ok(Some(b"HEAD"))) => Method::Head,
        (method, _) => method,
    }
}

/// The same by its name.
pub fn method_text(head: &Head) -> &str {
    match method(head) {
        Method::Patch => "PATCH",
        Method::Delete => "DELETE",
        Method::Head => "HEAD",
        _ => head.method_text(),
    }
}

/// Returns whether the body is a piece of a file.
pub fn has_piece(head: &Head) -> bool {
    head.get(Field::ContentType).is_some_and(|said| said.eq_ignore_ascii_case(PIECE))
}

/// Parses a request for a new upload.
pub fn creation<'a>(head: &'a Head) -> Result<Creation<'a>, Refusal> {
    let becomes = becomes(head)?;
    let length = match (number(head, "upload-length")?, field(head, "upload-defer-length")?) {
        (None, None) if matches!(becomes, Becomes::Whole { .. }) => None,
        _ if matches!(becomes, Becomes::Whole { .. }) => {
            return bad("The length of a final upload is that of its parts, and not said.");
        }
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
    Ok(Creation { length, becomes, name: name(metadata)?, metadata })
}

/// `Upload-Concat: partial`, or `final;/files/a https://example.org/files/b`.
fn becomes<'a>(head: &'a Head) -> Result<Becomes<'a>, Refusal> {
    const MALFORMED: &str = "The Upload-Concat is malformed.";
    let Some(said) = field(head, "upload-concat")? else { return Ok(Becomes::File) };
    if said == b"partial" {
        return Ok(Becomes::Part);
    }
    let Some(urls) = said.strip_prefix(b"final;") else { return bad(MALFORMED) };
    let urls = urls.split(|&byte| byte == b' ').filter(|url| !url.is_empty());
    match urls.map(path_of).collect::<Option<Vec<_>>>() {
        Some(parts) if !parts.is_empty() => Ok(Becomes::Whole { parts, said }),
        _ => bad(MALFORMED),
    }
}

/// The path in a URL, which may be no more than that.
fn path_of(url: &[u8]) -> Option<&[u8]> {
    let path = match memchr::memmem::find(url, b"://") {
        Some(at) => url.get(at + 3..)?,
        None => return url.starts_with(b"/").then_some(url),
    };
    memchr::memchr(b'/', path).map(|slash| &path[slash..])
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

/// Parses a request with a piece.
pub fn piece<'a>(head: &'a Head) -> Result<Piece<'a>, Refusal> {
    if !has_piece(head) {
        return Err(NOT_A_PIECE);
    }
    let Some(offset) = number(head, "upload-offset")? else {
        return bad("There is no Upload-Offset.");
    };
    Ok(Piece { offset, length: number(head, "upload-length")?, checksum: checksum(head)? })
}

/// `Upload-Checksum: sha1 Kq5sNclPz7QV2+lfQIuc6R7oRu0=`
pub fn checksum<'a>(head: &'a Head) -> Result<Option<Checksum<'a>>, Refusal> {
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

    fn with_head<T>(fields: &str, ask: impl FnOnce(&Head) -> T) -> T {
        let text = format!("POST / HTTP/1.1\r\nHost: h\r\n{fields}\r\n");
        ask(&request::parse(text.as_bytes()).unwrap().unwrap().0)
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
            ("Upload-Concat: partial\r\nUpload-Length: 5\r\n", Ok((Some(5), None))),
            ("Upload-Concat: partial\r\n", Err(400)),
            ("Upload-Concat: final;/a\r\nUpload-Length: 5\r\n", Err(400)),
            ("Upload-Concat: final;/a\r\nUpload-Defer-Length: 1\r\n", Err(400)),
            ("", Err(400)),
        ] {
            assert_eq!(said(fields), expected, "{fields}");
        }
    }

    #[test]
    fn a_creation_says_what_the_upload_becomes() {
        let said = |concat: &str| {
            let length = if concat.starts_with("final") { "" } else { "Upload-Length: 5\r\n" };
            with_head(&format!("{length}Upload-Concat: {concat}\r\n"), |head| match creation(head)?.becomes {
                Becomes::Whole { parts, said } => {
                    assert_eq!(said, concat.as_bytes());
                    Ok(Some(parts.into_iter().map(<[u8]>::to_vec).collect::<Vec<_>>()))
                }
                Becomes::Part => Ok(None),
                Becomes::File => panic!("it is said"),
            })
            .map_err(|refusal: Refusal| refusal.status.0)
        };
        let paths = |paths: &[&str]| Ok(Some(paths.iter().map(|path| path.as_bytes().to_vec()).collect()));
        for (concat, expected) in [
            ("partial", Ok(None)),
            ("final;/a/b /c", paths(&["/a/b", "/c"])),
            ("final; https://h:1/a  /c", paths(&["/a", "/c"])),
            ("final;", Err(400)),
            ("final", Err(400)),
            ("final;a", Err(400)),
            ("final;http://h", Err(400)),
            ("final;/a http://", Err(400)),
            ("Partial", Err(400)),
            ("partial;/a", Err(400)),
        ] {
            assert_eq!(said(concat), expected, "{concat}");
        }
        with_head("Upload-Length: 5\r\n", |head| {
            assert_eq!(creation(head).unwrap().becomes, Becomes::File);
        });
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
    fn a_request_is_about_a_new_upload_or_one_that_was_begun() {
        for (method, fields, is_address, expected) in [
            ("POST", "Tus-Resumable: 1.0.0\r\n", false, Some(Concern::Creation)),
            ("POST", "", false, None),
            ("PUT", "Tus-Resumable: 1.0.0\r\n", false, None),
            ("POST", "", true, Some(Concern::Upload)),
            ("GET", "", true, Some(Concern::Upload)),
            ("OPTIONS", "Tus-Resumable: 1.0.0\r\n", true, None),
        ] {
            let text = format!("{method} / HTTP/1.1\r\nHost: h\r\n{fields}\r\n");
            let (head, _) = request::parse(text.as_bytes()).unwrap().unwrap();
            assert_eq!(concern(&head, is_address), expected, "{method} {fields} {is_address}");
        }
    }

    #[test]
    fn old_clients_say_the_method_in_a_field() {
        with_head("X-HTTP-Method-Override: PATCH\r\n", |head| assert_eq!(method(head), Method::Patch));
        with_head("X-HTTP-Method-Override: GET\r\n", |head| assert_eq!(method(head), Method::Post));
        assert!(LINES.contains(EXTENSIONS) && LINES.contains(ALGORITHMS) && LINES.contains(VERSION));
    }
}
