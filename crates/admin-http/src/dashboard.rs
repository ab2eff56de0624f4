//! The dashboard: the files that `web/build` makes of `web/src`, which are in the program, plain and compressed.
//!
//! They are the same for everyone: what they show, their scripts ask the API for.

use hyper::StatusCode;
use hyper::body::Bytes;
use hyper::header::{
    ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_SECURITY_POLICY, HeaderMap, REFERRER_POLICY,
    VARY,
};

use super::reply::{Body, Reply};

/// What a browser lets the pages do: use what comes from here, and nothing else.
const POLICY: &str =
    "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; object-src 'none'";

/// Browsers keep a file whose address has its version.
const KEPT: &str = "public, max-age=31536000, immutable";

/// A file.
struct File {
    path: &'static str,
    media_type: &'static str,
    plain: &'static [u8],
    compressed: &'static [u8],
}

/// All of them.
const FILES: [File; 4] = [
    File {
        path: "/",
        media_type: "text/html; charset=utf-8",
        plain: include_bytes!("dashboard/index.html"),
        compressed: include_bytes!("dashboard/index.html.gz"),
    },
    File {
        path: "/dashboard.js",
        media_type: "text/javascript; charset=utf-8",
        plain: include_bytes!("dashboard/dashboard.js"),
        compressed: include_bytes!("dashboard/dashboard.js.gz"),
    },
    File {
        path: "/dashboard.css",
        media_type: "text/css; charset=utf-8",
        plain: include_bytes!("dashboard/dashboard.css"),
        compressed: include_bytes!("dashboard/dashboard.css.gz"),
    },
    File {
        path: "/dashboard.svg",
        media_type: "image/svg+xml",
        plain: include_bytes!("dashboard/dashboard.svg"),
        compressed: include_bytes!("dashboard/dashboard.svg.gz"),
    },
];

/// Returns the file of a path, compressed for those that take it so.
pub(crate) fn file(path: &str, query: Option<&str>, fields: &HeaderMap) -> Option<Reply> {
    let file = FILES.iter().find(|file| file.path == path)?;
    let is_compressed = accepts_gzip(fields);
    let bytes = if is_compressed { file.compressed } else { file.plain };
    let body = Body::Whole(Some(Bytes::from_static(bytes)));
    let mut reply = Reply::new(StatusCode::OK, file.media_type, body)
        .with(CONTENT_SECURITY_POLICY, POLICY)
        .with(REFERRER_POLICY, "no-referrer")
        .with(VARY, "accept-encoding");
    if is_compressed {
        reply = reply.with(CONTENT_ENCODING, "gzip");
    }
    match query.is_some_and(|query| query.starts_with("v=")) {
        true => Some(reply.with(CACHE_CONTROL, KEPT)),
        false => Some(reply),
    }
}

/// Returns whether a client takes gzip (RFC 9110, section 12.5.3).
fn accepts_gzip(fields: &HeaderMap) -> bool {
    let accepted = fields.get_all(ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    accepted.flat_map(|codings| codings.split(',')).any(|coding| {
        let (name, weight) = coding.split_once(';').unwrap_or((coding, ""));
        let is_refused = weight.trim().strip_prefix("q=").and_then(|weight| weight.parse().ok()) == Some(0.0);
        name.trim().eq_ignore_ascii_case("gzip") && !is_refused
    })
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderValue;

    use super::*;

    fn accepting(codings: &'static str) -> HeaderMap {
        HeaderMap::from_iter([(ACCEPT_ENCODING, HeaderValue::from_static(codings))])
    }

    fn value<'a>(reply: &'a Reply, name: &str) -> Option<&'a str> {
        reply.fields.iter().find(|(own, _)| own == name).and_then(|(_, value)| value.to_str().ok())
    }

    #[test]
    fn gzip_is_sent_to_those_that_take_it() {
        for (codings, takes) in [
            ("gzip, deflate, br", true),
            ("br;q=1, GZIP;q=0.5", true),
            ("gzip;q=0", false),
            ("gzip; q=0.000, br", false),
            ("br", false),
        ] {
            let reply = file("/", None, &accepting(codings)).unwrap();
            assert_eq!(value(&reply, "content-encoding").is_some(), takes, "{codings}");
        }
        assert!(value(&file("/", None, &HeaderMap::new()).unwrap(), "content-encoding").is_none());
    }

    #[test]
    fn the_first_load_is_small() {
        let sum: usize = FILES.iter().map(|file| file.compressed.len()).sum();
        assert!(sum <= 80_000, "{sum} bytes");
    }

    #[test]
    fn a_page_runs_nothing_from_elsewhere_and_its_files_are_kept_by_version() {
        let page = file("/", None, &HeaderMap::new()).unwrap();
        assert_eq!(value(&page, "content-security-policy"), Some(POLICY));
        assert_eq!(value(&page, "cache-control"), None);
        let text = std::str::from_utf8(FILES[0].plain).unwrap();
        for own in text.split('"').filter(|part| part.starts_with('/')) {
            let (path, query) = own.split_once('?').unwrap();
            let reply = file(path, Some(query), &HeaderMap::new()).unwrap();
            assert_eq!(value(&reply, "cache-control"), Some(KEPT), "{own}");
        }
        assert!(!text.contains("<style") && !text.contains("style=") && !text.contains("://"));
    }
}
