//! A second origin for the files of users: browsers that open such a file as a document are sent to it, so that scripts
//! in the file run where no login is accepted.
//!
//! Fetch Metadata (`Sec-Fetch-Dest`) tells what a browser asks a file for. Browsers send it to trustworthy origins
//! only; without it a navigation is known by its `Accept`.

use crate::request::{Field, Head};

/// What a browser asks for to show it as a document of its own.
const DOCUMENTS: [&[u8]; 5] = [b"document", b"iframe", b"frame", b"embed", b"object"];

/// A text that is not an origin for downloads.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is no origin: expected scheme, host and port without a path, such as \"https://downloads.example.net\""
)]
pub struct InvalidDownloadOrigin(String);

/// The origin that files of users are opened at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DownloadOrigin {
    /// Scheme, host and port.
    origin: String,
    /// Where the host begins in it.
    host_at: usize,
}

impl DownloadOrigin {
    /// Parses an origin as it is written in a configuration.
    pub fn parse(text: &str) -> Result<Self, InvalidDownloadOrigin> {
        let origin = text.trim_end_matches('/').to_ascii_lowercase();
        let is_host = |host: &str| {
            !host.is_empty()
                && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_:[]".contains(&byte))
        };
        match origin.split_once("://") {
            Some((scheme @ ("http" | "https"), host)) if is_host(host) => {
                let host_at = scheme.len() + 3;
                Ok(Self { origin, host_at })
            }
            _ => Err(InvalidDownloadOrigin(text.to_owned())),
        }
    }

    /// Returns whether a request was sent to this origin.
    pub fn is_host_of(&self, head: &Head) -> bool {
        head.get(Field::Host)
            .is_some_and(|host| host.eq_ignore_ascii_case(&self.origin.as_bytes()[self.host_at..]))
    }

    /// Returns the location of a path with its query at this origin.
    pub fn location(&self, path_and_query: &str) -> String {
        format!("{}{path_and_query}", self.origin)
    }
}

/// Returns whether a browser asks for something to show it as a document, and not as a part of a page or for a script.
pub fn opens_document(head: &Head) -> bool {
    match head.get(Field::SecFetchDest) {
        Some(destination) => DOCUMENTS.contains(&destination),
        None => {
            head.get(Field::Accept).is_some_and(|accept| accept.windows(9).any(|part| part == b"text/html"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::parse;

    fn head(fields: &str) -> Head {
        parse(format!("GET / HTTP/1.1\r\n{fields}\r\n").as_bytes()).unwrap().unwrap().0
    }

    #[test]
    fn an_origin_is_scheme_host_and_port() {
        let origin = DownloadOrigin::parse("https://Downloads.example.net:8443/").unwrap();
        assert_eq!(origin.location("/a?b"), "https://downloads.example.net:8443/a?b");
        for (host, is_its) in [
            ("downloads.EXAMPLE.net:8443", true),
            ("downloads.example.net", false),
            ("xdownloads.example.net:8443", false),
            ("example.net", false),
        ] {
            assert_eq!(origin.is_host_of(&head(&format!("Host: {host}\r\n"))), is_its, "{host}");
        }
        for wrong in [
            "",
            "files.example.net",
            "ftp://a",
            "https://",
            "https://a/b",
            "https://u@a",
            "https://*.a",
            "https://a b",
        ] {
            assert!(DownloadOrigin::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_document_is_told_from_a_part_of_a_page() {
        for (fields, is_document) in [
            ("Sec-Fetch-Dest: document\r\nAccept: */*\r\n", true),
            ("Sec-Fetch-Dest: iframe\r\n", true),
            ("Sec-Fetch-Dest: object\r\n", true),
            ("Sec-Fetch-Dest: image\r\nAccept: text/html\r\n", false),
            ("Sec-Fetch-Dest: empty\r\n", false),
            ("Accept: application/xml,text/html;q=0.9\r\n", true),
            ("Accept: */*\r\n", false),
            ("", false),
        ] {
            assert_eq!(opens_document(&head(&format!("Host: h\r\n{fields}"))), is_document, "{fields}");
        }
    }
}
