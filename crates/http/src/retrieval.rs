//! What a `GET` or `HEAD` is answered with: which part of a file, and which file of a directory.

use std::ops::Range;

use millrace_vfs::FileError;

use crate::Status;
use crate::conditional::{self, Validators, Verdict};
use crate::range::{self, Ranges};
use crate::request::{Field, Head, Method, Refusal, refuse};

/// The part of a file that answers a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileAnswer {
    /// The client has the file already: 304.
    NotModified,
    /// All of it: 200.
    Whole,
    /// A range of it: 206.
    Part(Range<u64>),
    /// Several ranges of it, as `multipart/byteranges`: 206.
    Parts(Vec<Range<u64>>),
    /// The file has none of the ranges: 416.
    Unsatisfiable,
}

/// Whether a file can be sent in several parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Multipart {
    /// It can.
    Possible,
    /// It is read once, from one place; or its content coding is not that of its parts.
    Impossible,
}

/// Decides which part of a file of `size` bytes answers a request, at this second since 1970.
pub fn file(
    head: &Head,
    validators: &Validators,
    size: u64,
    multipart: Multipart,
    now: i64,
) -> Result<FileAnswer, Refusal> {
    match conditional::evaluate(head, Some(validators)) {
        Verdict::Proceed => {}
        Verdict::NotModified => return Ok(FileAnswer::NotModified),
        Verdict::Failed => {
            return refuse(
                Status::PRECONDITION_FAILED,
                "The file does not meet the condition of the request.",
            );
        }
    }
    let field = head.get(Field::Range).filter(|_| head.method == Method::Get);
    let field = field.filter(|_| conditional::range_applies(head, validators, now));
    Ok(match field.map_or(Ranges::Whole, |field| range::parse(field, size)) {
        Ranges::One(range) => FileAnswer::Part(range),
        Ranges::Many(ranges) if multipart == Multipart::Possible => FileAnswer::Parts(ranges),
        Ranges::Whole | Ranges::Many(_) => FileAnswer::Whole,
        Ranges::Unsatisfiable => FileAnswer::Unsatisfiable,
    })
}

/// Decides by how a candidate for the index of a directory was opened whether it answers; `None` where the next one is
/// tried.
pub fn index<T>(opened: Result<T, FileError>) -> Option<Result<T, FileError>> {
    match opened {
        Err(FileError::NotFound | FileError::IsDirectory | FileError::NotRegular) => None,
        // The path is named as a directory, and is none.
        Err(FileError::NotDirectory) => Some(Err(FileError::NotFound)),
        opened => Some(opened),
    }
}

#[cfg(test)]
mod tests {
    use millrace_vfs::Timestamp;
    use proptest::prelude::*;

    use super::*;
    use crate::request;

    const SIZE: u64 = 1000;

    fn validators() -> Validators {
        Validators::new(1, SIZE, Timestamp { seconds: 784_111_777, nanoseconds: 0 }, None)
    }

    fn head(method: &str, fields: &str) -> Head {
        let text = format!("{method} /f HTTP/1.1\r\nHost: h\r\n{fields}\r\n");
        request::parse(text.as_bytes()).unwrap().unwrap().0
    }

    fn answer(method: &str, fields: &str, multipart: Multipart) -> Result<FileAnswer, u16> {
        let decided = file(&head(method, fields), &validators(), SIZE, multipart, 800_000_000);
        decided.map_err(|refusal| refusal.status.0)
    }

    #[test]
    fn conditions_come_before_ranges() {
        use FileAnswer::{NotModified, Part, Parts, Unsatisfiable, Whole};
        use Multipart::{Impossible, Possible};
        let tag = validators().etag;
        for (method, fields, multipart, expected) in [
            ("GET", String::new(), Possible, Ok(Whole)),
            ("HEAD", String::new(), Possible, Ok(Whole)),
            ("GET", "Range: bytes=5-9\r\n".to_owned(), Possible, Ok(Part(5..10))),
            ("GET", "Range: bytes=5-9\r\n".to_owned(), Impossible, Ok(Part(5..10))),
            ("HEAD", "Range: bytes=5-9\r\n".to_owned(), Possible, Ok(Whole)),
            ("GET", "Range: bytes=1000-\r\n".to_owned(), Possible, Ok(Unsatisfiable)),
            ("GET", "Range: bytes=0-0,500-509\r\n".to_owned(), Possible, Ok(Parts(vec![0..1, 500..510]))),
            ("GET", "Range: bytes=0-0,500-509\r\n".to_owned(), Impossible, Ok(Whole)),
            ("GET", "Range: lines=1-2\r\n".to_owned(), Possible, Ok(Whole)),
            ("GET", format!("If-Range: {tag}\r\nRange: bytes=5-9\r\n"), Possible, Ok(Part(5..10))),
            ("GET", "If-Range: \"x\"\r\nRange: bytes=5-9\r\n".to_owned(), Possible, Ok(Whole)),
            ("GET", format!("If-None-Match: {tag}\r\nRange: bytes=5-9\r\n"), Possible, Ok(NotModified)),
            ("GET", "If-Match: \"x\"\r\nRange: bytes=5-9\r\n".to_owned(), Possible, Err(412)),
            ("GET", "If-Match: \"x\"\r\nRange: bytes=1000-\r\n".to_owned(), Possible, Err(412)),
        ] {
            assert_eq!(answer(method, &fields, multipart), expected, "{method} {fields} {multipart:?}");
        }
    }

    #[test]
    fn the_first_index_that_is_a_file_answers() {
        for (opened, expected) in [
            (Ok(1), Some(Ok(1))),
            (Err(FileError::NotFound), None),
            (Err(FileError::IsDirectory), None),
            (Err(FileError::NotRegular), None),
            (Err(FileError::NotDirectory), Some(Err("not found"))),
            (Err(FileError::PermissionDenied), Some(Err("another"))),
            (Err(FileError::WouldWait), Some(Err("another"))),
        ] {
            let told = |error: FileError| match error {
                FileError::NotFound => "not found",
                _ => "another",
            };
            let text = format!("{opened:?}");
            assert_eq!(index(opened).map(|decided| decided.map_err(told)), expected, "{text}");
        }
    }

    proptest! {
        /// Whatever a client asks for, it gets bytes of the file: no range is empty or goes beyond its end.
        #[test]
        fn parts_lie_within_the_file(set in "[-0-9, ]{0,30}", size in 0_u64..50) {
            let head = head("GET", &format!("Range: bytes={set}\r\n"));
            let parts = match file(&head, &validators(), size, Multipart::Possible, 0) {
                Ok(FileAnswer::Part(part)) => vec![part],
                Ok(FileAnswer::Parts(parts)) => parts,
                _ => Vec::new(),
            };
            prop_assert!(parts.iter().all(|part| part.start < part.end && part.end <= size));
        }
    }
}
