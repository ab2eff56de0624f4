//! Content negotiation (RFC 9110 section 12): which of several representations a client would rather have.

use crate::request::{Field, Head};

/// A content coding that may lie beside a file, made before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Coding {
    /// As `Content-Encoding` and `Accept-Encoding` name it.
    pub name: &'static str,
    /// Another name of the same, for clients of long ago (RFC 9110 section 8.4.1.3).
    alias: &'static str,
    /// The suffix of the compressed file's name.
    pub suffix: &'static str,
}

/// The codings, the smallest first.
pub const CODINGS: [Coding; 3] = [
    Coding { name: "br", alias: "br", suffix: ".br" },
    Coding { name: "zstd", alias: "zstd", suffix: ".zst" },
    Coding { name: "gzip", alias: "x-gzip", suffix: ".gz" },
];

/// A weight of 0 to 1000 thousandths.
type Weight = u16;

/// The codings that a client takes, best first; of equal weight in the order of [`CODINGS`]. Codings with a lower
/// weight than the unencoded file are left out.
pub fn codings(head: &Head) -> Vec<Coding> {
    if head.get(Field::AcceptEncoding).is_none() {
        return Vec::new();
    }
    let as_it_is = weight(head, Field::AcceptEncoding, &["identity"]).unwrap_or(0);
    let mut accepted: Vec<(Weight, Coding)> = CODINGS
        .into_iter()
        .filter_map(|coding| match weight(head, Field::AcceptEncoding, &[coding.name, coding.alias, "*"]) {
            Some(weight @ 1..) if weight >= as_it_is => Some((weight, coding)),
            _ => None,
        })
        .collect();
    accepted.sort_by_key(|(weight, _)| std::cmp::Reverse(*weight));
    accepted.into_iter().map(|(_, coding)| coding).collect()
}

/// Returns whether the client would rather have a directory as JSON than as a page.
pub fn prefers_json(head: &Head) -> bool {
    let json = weight(head, Field::Accept, &["application/json"]).unwrap_or(0);
    json > 0 && json >= weight(head, Field::Accept, &["text/html", "text/*", "*/*"]).unwrap_or(0)
}

/// The weight of the first of these names that the field lists; `None` where it lists none.
fn weight(head: &Head, field: Field, names: &[&str]) -> Option<Weight> {
    names.iter().find_map(|name| {
        head.all(field).flat_map(|line| line.split(|&byte| byte == b',')).find_map(|item| {
            let mut parts = item.split(|&byte| byte == b';').map(<[u8]>::trim_ascii);
            let matches = parts.next().is_some_and(|item| item.eq_ignore_ascii_case(name.as_bytes()));
            matches.then(|| parts.find_map(quality).unwrap_or(1000))
        })
    })
}

/// `q=0.5`.
fn quality(parameter: &[u8]) -> Option<Weight> {
    let value = parameter.strip_prefix(b"q=").or_else(|| parameter.strip_prefix(b"Q="))?;
    let value: f32 = std::str::from_utf8(value).ok()?.parse().ok()?;
    Some((value.clamp(0.0, 1.0) * 1000.0) as Weight)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with<T>(field: &str, look: impl FnOnce(&Head) -> T) -> T {
        let text = format!("GET / HTTP/1.1\r\nHost: h\r\n{field}\r\n\r\n");
        look(&crate::request::parse(text.as_bytes()).unwrap().unwrap().0)
    }

    #[test]
    fn codings_come_by_weight() {
        for (field, expected) in [
            ("X: y", &[][..]),
            ("Accept-Encoding: gzip, deflate, br, zstd", &["br", "zstd", "gzip"]),
            ("Accept-Encoding: gzip", &["gzip"]),
            ("Accept-Encoding: br;q=0.5, gzip", &["gzip", "br"]),
            ("Accept-Encoding: br;q=0, *", &["zstd", "gzip"]),
            ("Accept-Encoding: identity", &[]),
            ("Accept-Encoding: *;q=0", &[]),
            ("Accept-Encoding: br\r\nAccept-Encoding: gzip;q=0.1", &["br", "gzip"]),
            ("Accept-Encoding: GZIP ; q=1.0", &["gzip"]),
            ("Accept-Encoding: x-gzip", &["gzip"]),
            ("Accept-Encoding: gzip;q=0.5, identity", &[]),
            ("Accept-Encoding: gzip;q=0.5, identity;q=0.4", &["gzip"]),
            ("Accept-Encoding: gzip;q=0.001", &["gzip"]),
            ("Accept-Encoding: gzip;q=nonsense", &["gzip"]),
            ("Accept-Encoding:", &[]),
        ] {
            let names: Vec<&str> = with(field, codings).iter().map(|coding| coding.name).collect();
            assert_eq!(names, expected, "{field}");
        }
    }

    #[test]
    fn json_is_for_those_who_ask() {
        for (field, expected) in [
            ("Accept: application/json", true),
            ("Accept: */*", false),
            ("Accept: text/html,application/xhtml+xml,*/*;q=0.8", false),
            ("Accept: text/html;q=0.5, application/json", true),
            ("Accept: application/json;q=0", false),
            ("Accept: application/json;q=0.1, */*", false),
            ("Accept: application/json, text/plain, */*", true),
            ("Accept: application/json, */*;q=0.5", true),
        ] {
            assert_eq!(with(field, prefers_json), expected, "{field}");
        }
    }
}
