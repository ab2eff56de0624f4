//! Conditional requests (RFC 9110 section 13): whether a request applies to the present content.

use std::fmt;

use millrace_vfs::{Metadata, Timestamp};

use crate::request::{Field, Head, Method, Refusal, refuse};
use crate::{Status, date};

/// A strong entity tag: equal for equal content of one file, and for nothing else.
///
/// Made of values that change with the content: the inode (a staged upload is a new one), the length, and the time of
/// the last change in nanoseconds (`ctime`, which cannot be set), where that is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ETag {
    file: u64,
    size: u64,
    changed: Timestamp,
    /// Distinguishes the codings of one resource.
    coding: &'static str,
}

/// The properties by which representations are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Validators {
    /// Its tag.
    pub etag: ETag,
    /// Its last change, in seconds since 1970. A modification time after the last change is replaced by that: such a
    /// date would lie in the future (RFC 9110 section 8.8.2.1).
    pub modified: i64,
}

/// The result of a conditional request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It is performed.
    Proceed,
    /// The client has it already: 304.
    NotModified,
    /// It was meant for something else: 412.
    Failed,
}

impl Validators {
    /// Of a file.
    pub fn of(metadata: &Metadata) -> Self {
        Self::new(metadata.identity.1, metadata.size, metadata.modified, metadata.changed)
    }

    /// Of the file with this number, length, last change of its content, and last change of anything.
    pub fn new(file: u64, size: u64, modified: Timestamp, changed: Option<Timestamp>) -> Self {
        let changed = changed.unwrap_or(modified);
        Self {
            etag: ETag { file, size, changed, coding: "" },
            modified: modified.seconds.min(changed.seconds),
        }
    }

    /// With a date that is not in the future.
    pub fn no_later_than(self, now: i64) -> Self {
        Self { modified: self.modified.min(now), ..self }
    }

    /// Of the same in a content coding.
    pub fn coded(self, coding: &'static str) -> Self {
        Self { etag: ETag { coding, ..self.etag }, ..self }
    }
}

impl ETag {
    /// Returns whether a tag as a client wrote it, quotes and all, is this one.
    pub fn is(&self, written: &[u8]) -> bool {
        self.to_string().as_bytes() == written
    }
}

impl fmt::Display for ETag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanoseconds =
            i128::from(self.changed.seconds) * 1_000_000_000 + i128::from(self.changed.nanoseconds);
        write!(f, "\"{:x}-{:x}-{:x}", self.file, self.size, nanoseconds.unsigned_abs())?;
        if !self.coding.is_empty() {
            write!(f, "-{}", self.coding)?;
        }
        f.write_str("\"")
    }
}

/// Evaluates the preconditions of a request in the order of section 13.2.2. `current` is the existing content, if any.
pub fn evaluate(head: &Head, current: Option<&Validators>) -> Verdict {
    judge(head, current.is_some(), current)
}

/// Checks the preconditions of a request that changes something against the present content.
pub fn check(head: &Head, current: Option<&Metadata>) -> Result<(), Refusal> {
    match evaluate(head, current.map(Validators::of).as_ref()) {
        Verdict::Proceed => Ok(()),
        Verdict::NotModified | Verdict::Failed => {
            refuse(Status::PRECONDITION_FAILED, "The resource does not meet the condition of the request.")
        }
    }
}

/// The same for content without tag and date: a page that is generated for each request.
pub fn evaluate_untagged(head: &Head) -> Verdict {
    judge(head, true, None)
}

fn judge(head: &Head, exists: bool, current: Option<&Validators>) -> Verdict {
    let matches = |field, comparison| exists && any_matches(head, field, current, comparison);
    if head.get(Field::IfMatch).is_some() {
        if !matches(Field::IfMatch, Comparison::Strong) {
            return Verdict::Failed;
        }
    } else if let Some(since) = head.get(Field::IfUnmodifiedSince).and_then(date::parse)
        && current.map_or(!exists, |current| current.modified > since)
    {
        return Verdict::Failed;
    }
    let reads = matches!(head.method, Method::Get | Method::Head);
    if head.get(Field::IfNoneMatch).is_some() {
        match (matches(Field::IfNoneMatch, Comparison::Weak), reads) {
            (false, _) => {}
            (true, true) => return Verdict::NotModified,
            (true, false) => return Verdict::Failed,
        }
    } else if let Some(since) = head.get(Field::IfModifiedSince).and_then(date::parse)
        && reads
        && current.is_some_and(|current| current.modified <= since)
    {
        return Verdict::NotModified;
    }
    Verdict::Proceed
}

/// Whether `If-Range` lets a range be served, at this time in seconds since 1970: there is none, or it matches the
/// content (section 13.1.5).
pub fn range_applies(head: &Head, current: &Validators, now: i64) -> bool {
    match head.get(Field::IfRange) {
        None => true,
        Some(tag) if tag.starts_with(b"\"") || tag.starts_with(b"W/") => current.etag.is(tag),
        // Exactly the same date, not a later one; and within its second the file may change again (section 8.8.2.2).
        Some(date) => date::parse(date) == Some(current.modified) && current.modified < now,
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Comparison {
    Strong,
    Weak,
}

fn any_matches(head: &Head, field: Field, current: Option<&Validators>, comparison: Comparison) -> bool {
    let tag = current.map(|current| current.etag.to_string());
    head.all(field).any(|line| {
        line.trim_ascii() == b"*"
            || Tags(line).any(|(weak, written)| {
                tag.as_ref().is_some_and(|tag| written == tag.as_bytes())
                    && !(weak && comparison == Comparison::Strong)
            })
    })
}

/// The entity tags of a list: whether weak, and the quoted part. A tag may hold commas.
struct Tags<'a>(&'a [u8]);

impl<'a> Iterator for Tags<'a> {
    type Item = (bool, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let start = memchr::memchr(b'"', self.0)?;
        let end = start + 1 + memchr::memchr(b'"', &self.0[start + 1..])? + 1;
        let weak = self.0[..start].ends_with(b"W/");
        let tag = &self.0[start..end];
        self.0 = &self.0[end..];
        Some((weak, tag))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MODIFIED: Timestamp = Timestamp { seconds: 784_111_777, nanoseconds: 5 };

    fn verdict(method: &str, fields: &str, exists: bool) -> Verdict {
        let current = Validators::new(0x10, 0x2a, MODIFIED, None);
        let text = format!("{method} / HTTP/1.1\r\nHost: h\r\n{fields}\r\n");
        let (head, _) = crate::request::parse(text.as_bytes()).unwrap().unwrap();
        evaluate(&head, exists.then_some(&current))
    }

    #[test]
    fn preconditions_are_evaluated_in_their_order() {
        use Verdict::{Failed, NotModified, Proceed};
        let tag = Validators::new(0x10, 0x2a, MODIFIED, None).etag.to_string();
        assert_eq!(tag, "\"10-2a-ae1b981bc490a05\"");
        let (same, earlier, later) = (
            "Sun, 06 Nov 1994 08:49:37 GMT",
            "Sun, 06 Nov 1994 08:49:36 GMT",
            "Sun, 06 Nov 1994 08:49:38 GMT",
        );
        let table = [
            ("GET", String::new(), Proceed),
            ("GET", format!("If-Match: {tag}\r\n"), Proceed),
            ("GET", format!("If-Match: \"x\", {tag}\r\n"), Proceed),
            ("GET", format!("If-Match: \"x\"\r\nIf-Match: {tag}\r\n"), Proceed),
            ("GET", format!("If-Match: W/{tag}\r\n"), Failed),
            ("GET", "If-Match: *\r\n".to_owned(), Proceed),
            ("GET", "If-Match: \"x\"\r\n".to_owned(), Failed),
            ("GET", format!("If-Unmodified-Since: {same}\r\n"), Proceed),
            ("GET", format!("If-Unmodified-Since: {earlier}\r\n"), Failed),
            ("GET", "If-Unmodified-Since: garbage\r\n".to_owned(), Proceed),
            // If-Match goes before If-Unmodified-Since.
            ("GET", format!("If-Match: {tag}\r\nIf-Unmodified-Since: {earlier}\r\n"), Proceed),
            ("GET", format!("If-None-Match: {tag}\r\n"), NotModified),
            ("GET", format!("If-None-Match: W/{tag}\r\n"), NotModified),
            ("HEAD", format!("If-None-Match: {tag}\r\n"), NotModified),
            ("PUT", format!("If-None-Match: {tag}\r\n"), Failed),
            ("PUT", "If-None-Match: *\r\n".to_owned(), Failed),
            ("GET", "If-None-Match: \"a,b\", \"x\"\r\n".to_owned(), Proceed),
            ("GET", format!("If-Modified-Since: {same}\r\n"), NotModified),
            ("GET", format!("If-Modified-Since: {later}\r\n"), NotModified),
            ("GET", format!("If-Modified-Since: {earlier}\r\n"), Proceed),
            ("GET", "If-Modified-Since: 0\r\n".to_owned(), Proceed),
            ("PUT", format!("If-Modified-Since: {same}\r\n"), Proceed),
            // If-None-Match goes before If-Modified-Since.
            ("GET", format!("If-None-Match: \"x\"\r\nIf-Modified-Since: {same}\r\n"), Proceed),
            ("GET", format!("If-Match: {tag}\r\nIf-None-Match: {tag}\r\n"), NotModified),
        ];
        for (method, fields, expected) in table {
            assert_eq!(verdict(method, &fields, true), expected, "{method} {fields}");
        }
    }

    #[test]
    fn a_tag_changes_with_ctime_and_no_date_lies_in_the_future() {
        let later = Timestamp { seconds: MODIFIED.seconds + 9, ..MODIFIED };
        let tag = |modified, changed| Validators::new(1, 2, modified, Some(changed)).etag;
        assert_ne!(tag(MODIFIED, MODIFIED), tag(MODIFIED, later), "the date was put back");
        for (modified, changed, shown) in
            [(MODIFIED, later, MODIFIED), (later, MODIFIED, MODIFIED), (later, later, later)]
        {
            assert_eq!(Validators::new(1, 2, modified, Some(changed)).modified, shown.seconds);
        }
    }

    #[test]
    fn nothing_there_matches_nothing() {
        assert_eq!(verdict("PUT", "If-None-Match: *\r\n", false), Verdict::Proceed);
        assert_eq!(verdict("PUT", "If-Match: *\r\n", false), Verdict::Failed);
        let since = "If-Unmodified-Since: Sun, 06 Nov 1994 08:49:37 GMT\r\n";
        assert_eq!(verdict("PUT", since, false), Verdict::Failed);
    }

    #[test]
    fn content_without_a_tag_matches_the_wildcard_only() {
        use Verdict::{Failed, NotModified, Proceed};
        for (fields, expected) in [
            ("", Proceed),
            ("If-Match: *\r\n", Proceed),
            ("If-Match: \"x\"\r\n", Failed),
            ("If-None-Match: *\r\n", NotModified),
            ("If-None-Match: \"x\"\r\n", Proceed),
            ("If-Modified-Since: Sun, 06 Nov 1994 08:49:37 GMT\r\n", Proceed),
            ("If-Unmodified-Since: Sun, 06 Nov 1994 08:49:37 GMT\r\n", Proceed),
        ] {
            let text = format!("GET / HTTP/1.1\r\nHost: h\r\n{fields}\r\n");
            let (head, _) = crate::request::parse(text.as_bytes()).unwrap().unwrap();
            assert_eq!(evaluate_untagged(&head), expected, "{fields}");
        }
    }

    #[test]
    fn if_range_wants_exactly_what_is_there() {
        let current = Validators::new(1, 2, MODIFIED, None);
        let table = [
            (current.etag.to_string(), true),
            (format!("W/{}", current.etag), false),
            ("\"x\"".to_owned(), false),
            ("Sun, 06 Nov 1994 08:49:37 GMT".to_owned(), true),
            ("Sun, 06 Nov 1994 08:49:38 GMT".to_owned(), false),
            ("nonsense".to_owned(), false),
        ];
        for (value, expected) in table {
            let text = format!("GET / HTTP/1.1\r\nHost: h\r\nIf-Range: {value}\r\n\r\n");
            let (head, _) = crate::request::parse(text.as_bytes()).unwrap().unwrap();
            assert_eq!(range_applies(&head, &current, MODIFIED.seconds + 1), expected, "{value}");
            let is_tag = value.starts_with('"');
            assert_eq!(
                range_applies(&head, &current, MODIFIED.seconds),
                expected && is_tag,
                "{value} at once"
            );
        }
    }
}
