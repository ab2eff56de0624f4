//! Request targets (RFC 9112 section 3.2), turned into paths.
//!
//! A target is decoded once, and then resolved by name like every path: the result is a [`VirtualPath`], which cannot
//! lie above the root. Forms that only an attack uses (a path above the root, a NUL, an invalid percent-encoding) are
//! refused rather than repaired; so is an encoded slash, except in targets that are forwarded.

use millrace_vfs::{VirtualPath, hex};

use crate::{Refusal, Status};

/// The parts of a target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target<'a> {
    /// The path, decoded.
    pub path: VirtualPath,
    /// Whether it was written as a directory: with a slash at its end.
    pub is_directory: bool,
    /// The text after the question mark.
    pub query: Option<&'a [u8]>,
    /// The authority of a target in absolute form, which goes before the `Host` field.
    pub authority: Option<&'a [u8]>,
    /// Where a name may have a slash in it, the folder that it lies in: for the upstream server the rest of the path
    /// may be one name.
    pub outer: Option<VirtualPath>,
}

/// Parses a target in origin or absolute form.
pub fn parse(target: &[u8]) -> Result<Target<'_>, Refusal> {
    let target = parse_for_others(target)?;
    if target.outer.is_some() { Err(SLASH) } else { Ok(target) }
}

/// No directory holds such a name.
pub const SLASH: Refusal = Refusal { status: Status::NOT_FOUND, reason: "No name contains a slash." };

/// The same for a target that may be handed on as it is: names may have an encoded slash in them, where it leads nowhere
/// else whether it is one or parts two names.
pub fn parse_for_others(target: &[u8]) -> Result<Target<'_>, Refusal> {
    let (authority, rest) = split_authority(target)?;
    let (path, query) = match memchr::memchr(b'?', rest) {
        Some(at) => (&rest[..at], Some(&rest[at + 1..])),
        None => (rest, None),
    };
    if memchr::memchr(b'#', rest).is_some() {
        return Err(bad("A request target has no fragment."));
    }
    let outer = outer_of(path)?;
    let (path, is_directory) = resolve(path)?;
    Ok(Target { path, is_directory, query, authority, outer })
}

/// The folder of the first name with an encoded slash in it.
fn outer_of(path: &[u8]) -> Result<Option<VirtualPath>, Refusal> {
    let mut escapes = memchr::memchr_iter(b'%', path);
    let is_slash = |at: usize| path.get(at..at + 3).is_some_and(|part| part.eq_ignore_ascii_case(b"%2f"));
    let Some(at) = escapes.find(|&at| is_slash(at)) else { return Ok(None) };
    let mut decoded = Vec::new();
    decode(path, &mut decoded)?;
    let is_plain = |name: &[u8]| !matches!(name, b"" | b"." | b"..");
    let names = decoded.strip_prefix(b"/").unwrap_or(&decoded);
    if !names.strip_suffix(b"/").unwrap_or(names).split(|&byte| byte == b'/').all(is_plain) {
        return Err(SLASH);
    }
    let folder = &path[..path[..at].iter().rposition(|&byte| byte == b'/').unwrap_or(0)];
    Ok(Some(resolve(if folder.is_empty() { b"/" } else { folder })?.0))
}

/// Parses the path of a target: the path, and whether it was written as a directory.
fn resolve(path: &[u8]) -> Result<(VirtualPath, bool), Refusal> {
    let mut decoded = Vec::new();
    let path = match memchr::memchr(b'%', path) {
        None => path,
        Some(_) => {
            decode(path, &mut decoded)?;
            &decoded
        }
    };
    if climbs_above_root(path) {
        return Err(bad("The path leads above the root."));
    }
    let last = path.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
    let is_directory = matches!(last, b"" | b"." | b"..");
    match VirtualPath::parse(path) {
        Ok(path) => Ok((path, is_directory)),
        Err(millrace_vfs::PathError::Nul) => Err(bad("The path contains a NUL byte.")),
        Err(_) => Err(Refusal { status: Status::NOT_FOUND, reason: "No file has so long a name." }),
    }
}

/// The rest of an absolute-form target after `http://`.
fn behind_scheme(target: &[u8]) -> Option<&[u8]> {
    [&b"http://"[..], b"https://"]
        .iter()
        .find(|scheme| target.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme)))
        .map(|scheme| &target[scheme.len()..])
}

/// Takes an authority from the front of what stands behind a scheme.
fn split_at_path(rest: &[u8]) -> (&[u8], &[u8]) {
    rest.split_at(rest.iter().position(|byte| matches!(byte, b'/' | b'?')).unwrap_or(rest.len()))
}

/// The authority of a target in absolute form, whatever it may be.
pub(crate) fn authority(target: &[u8]) -> Option<&[u8]> {
    behind_scheme(target).map(|rest| split_at_path(rest).0)
}

/// `http://host/path` is taken apart; `/path` has no authority.
fn split_authority(target: &[u8]) -> Result<(Option<&[u8]>, &[u8]), Refusal> {
    if target.first() == Some(&b'/') {
        return Ok((None, target));
    }
    let rest = behind_scheme(target).ok_or(bad("The request target is neither a path nor a URL."))?;
    let (authority, path) = split_at_path(rest);
    if authority.is_empty() || !is_host(authority) {
        return Err(bad("The authority of the request target is malformed."));
    }
    Ok((Some(authority), if path.is_empty() { b"/" } else { path }))
}

/// `uri-host [":" port]`: nothing that would mean something in a log, a redirect or a path.
pub(crate) fn is_host(host: &[u8]) -> bool {
    let is_named =
        |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_' | b'%' | b'~');
    let in_brackets = |byte: &u8| is_named(byte) || *byte == b':';
    let (name, port) = match host.strip_prefix(b"[") {
        Some(rest) => match memchr::memchr(b']', rest) {
            Some(end) if rest[..end].iter().all(in_brackets) => (&rest[..0], &rest[end + 1..]),
            _ => return false,
        },
        None => host.split_at(memchr::memchr(b':', host).unwrap_or(host.len())),
    };
    host.len() <= 255 && name.iter().all(is_named) && (port.is_empty() || is_port(port))
}

/// A colon, and a number that is a port; or none.
fn is_port(port: &[u8]) -> bool {
    let digits = port.strip_prefix(b":");
    digits.is_some_and(|digits| {
        let number = std::str::from_utf8(digits).ok().filter(|_| digits.iter().all(u8::is_ascii_digit));
        digits.is_empty() || number.is_some_and(|number| number.parse::<u16>().is_ok())
    })
}

/// The path and query of a target as they are written.
pub fn written(target: &[u8]) -> &[u8] {
    split_authority(target).map_or(target, |(_, path)| path)
}

/// The path of a target as it is written.
pub fn written_path(target: &[u8]) -> &[u8] {
    written(target).split(|&byte| byte == b'?').next().unwrap_or_default()
}

/// Returns whether two authorities are of one host: letters may differ in case, and a default port equals none.
pub fn is_same_host(one: &[u8], other: &[u8]) -> bool {
    let bare = |host| [&b":80"[..], b":443"].iter().find_map(|port| <[u8]>::strip_suffix(host, *port));
    let [one, other] = [one, other].map(|host| bare(host).unwrap_or(host));
    one.eq_ignore_ascii_case(other)
}

/// Decodes `%XX` once.
fn decode(path: &[u8], out: &mut Vec<u8>) -> Result<(), Refusal> {
    let mut rest = path;
    out.reserve(path.len());
    while let Some(at) = memchr::memchr(b'%', rest) {
        out.extend_from_slice(&rest[..at]);
        let byte = match rest.get(at + 1..at + 3) {
            Some(&[high, low]) => hex::digit(high).zip(hex::digit(low)).map(|(high, low)| high << 4 | low),
            _ => None,
        };
        match byte {
            None => return Err(bad("A percent sign is not followed by two hexadecimal digits.")),
            Some(byte) => out.push(byte),
        }
        rest = &rest[at + 3..];
    }
    out.extend_from_slice(rest);
    Ok(())
}

/// The value of a query's parameter, decoded; `None` where a percent sign encodes nothing.
pub fn decode_parameter(value: &[u8]) -> Option<Vec<u8>> {
    let (mut out, mut rest) = (Vec::with_capacity(value.len()), value);
    while let Some(at) = memchr::memchr(b'%', rest) {
        out.extend_from_slice(&rest[..at]);
        let &[high, low] = rest.get(at + 1..at + 3)? else { return None };
        out.push(hex::digit(high)? << 4 | hex::digit(low)?);
        rest = &rest[at + 3..];
    }
    out.extend_from_slice(rest);
    Some(out)
}

fn climbs_above_root(path: &[u8]) -> bool {
    let mut depth = 0_i32;
    path.split(|&byte| byte == b'/').any(|name| {
        match name {
            b"" | b"." => {}
            b".." => depth -= 1,
            _ => depth += 1,
        }
        depth < 0
    })
}

/// Appends a path percent-encoded, except for unreserved characters and slashes.
pub fn encode(path: &[u8], out: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    for &byte in path {
        match byte {
            b'/' | b'-' | b'.' | b'_' | b'~' => out.push(byte),
            _ if byte.is_ascii_alphanumeric() => out.push(byte),
            _ => {
                out.extend_from_slice(&[b'%', DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]])
            }
        }
    }
}

/// The value of a parameter of a query, undecoded.
pub fn parameter<'a>(query: Option<&'a [u8]>, name: &[u8]) -> Option<&'a [u8]> {
    query?.split(|&byte| matches!(byte, b'&' | b';')).find_map(|pair| {
        let (key, value) = match memchr::memchr(b'=', pair) {
            Some(at) => (&pair[..at], &pair[at + 1..]),
            None => (pair, &pair[pair.len()..]),
        };
        (key == name).then_some(value)
    })
}

fn bad(reason: &'static str) -> Refusal {
    Refusal { status: Status::BAD_REQUEST, reason }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn targets_name_what_they_say() {
        let table: [(&str, &[u8], bool); 14] = [
            ("/", b"/", true),
            ("/a", b"/a", false),
            ("/a/", b"/a", true),
            ("/a/b.txt", b"/a/b.txt", false),
            ("//a//b", b"/a/b", false),
            ("/a/./b/../c", b"/a/c", false),
            ("/a/b/..", b"/a", true),
            ("/a/%2e%2e/b", b"/b", false),
            ("/a%20b", b"/a b", false),
            ("/%e4%f6", b"/\xe4\xf6", false),
            ("/a\\b", b"/a\\b", false),
            ("/..%5c..%5cetc", b"/..\\..\\etc", false),
            ("http://example.org", b"/", true),
            ("HTTP://example.org:8080/x", b"/x", false),
        ];
        for (text, path, is_directory) in table {
            let target = parse(text.as_bytes()).unwrap_or_else(|refusal| panic!("{text}: {refusal:?}"));
            assert_eq!(target.path.as_bytes(), path, "{text}");
            assert_eq!(target.is_directory, is_directory, "{text}");
        }
    }

    #[test]
    fn forms_used_only_by_attacks_are_refused() {
        for (text, status) in [
            ("/..", 400),
            ("/../etc/passwd", 400),
            ("/a/../../etc", 400),
            ("/%2e%2e/etc", 400),
            ("/%2E./etc", 400),
            ("/.%2e/%2e%2e/etc", 400),
            ("/a%00", 400),
            ("/%", 400),
            ("/%4", 400),
            ("/%zz", 400),
            ("/..%2f..%2fetc", 404),
            ("/a%2Fb", 404),
            ("/a#b", 400),
            ("a", 400),
            ("", 400),
            ("ftp://host/", 400),
            ("http://", 400),
            ("http://user@host/", 400),
            ("http://h\"<x>/", 400),
            ("http://h\\x/", 400),
        ] {
            assert_eq!(parse(text.as_bytes()).map_err(|refusal| refusal.status.0), Err(status), "{text}");
        }
        let long = [&b"/"[..], &[b'n'; 256]].concat();
        assert_eq!(parse(&long).map_err(|refusal| refusal.status), Err(Status::NOT_FOUND));
    }

    #[test]
    fn an_encoded_slash_is_for_others_where_it_leads_nowhere_else() {
        for (text, path, outer) in [
            ("/app/a%2Fb", "/app/a/b", "/app"),
            ("/app/x/a%2fb/c%2Fd/", "/app/x/a/b/c/d", "/app/x"),
            ("/app%2Fa/b", "/app/a/b", "/"),
            ("/a%20b/group%2Fproject?ref=a%2Fb", "/a b/group/project", "/a b"),
        ] {
            let target = parse_for_others(text.as_bytes()).unwrap();
            let outer = VirtualPath::parse(outer.as_bytes()).unwrap();
            assert_eq!((target.path.as_bytes(), target.outer), (path.as_bytes(), Some(outer)), "{text}");
            assert_eq!(parse(text.as_bytes()), Err(SLASH), "{text}");
        }
        for text in [
            "/app/a%2F..%2Fb",
            "/app/..%2Fb",
            "/app/%2Fb",
            "/app/a%2F/b",
            "/app/a%2F%2Fb",
            "/app/a/../b%2Fc",
            "/app/a%2F%2e%2E",
            "/app/a%2F.",
            "/app//a%2Fb",
        ] {
            assert_eq!(parse_for_others(text.as_bytes()), Err(SLASH), "{text}");
        }
        let (plain, in_query) = (parse_for_others(b"/a%20b").unwrap(), parse(b"/a?b=c%2Fd").unwrap());
        assert_eq!((plain.outer, in_query.outer), (None, None));
    }

    /// Doubly encoded and overlong forms are decoded once, into names that hold no separator.
    #[test]
    fn decoding_happens_once() {
        for (text, path) in [
            ("/%252e%252e/x", &b"/%2e%2e/x"[..]),
            ("/%c0%ae%c0%ae/x", b"/\xc0\xae\xc0\xae/x"),
            ("/%c0%af", b"/\xc0\xaf"),
            ("/%e0%80%af", b"/\xe0\x80\xaf"),
            ("/+", b"/+"),
        ] {
            assert_eq!(parse(text.as_bytes()).unwrap().path.as_bytes(), path, "{text}");
        }
    }

    #[test]
    fn a_usual_port_is_as_good_as_none() {
        for (one, other, is_same) in [
            ("h", "H", true),
            ("h:80", "h", true),
            ("h", "h:443", true),
            ("h:8080", "h", false),
            ("h:8080", "h:8080", true),
            ("h", "i", false),
            ("[::1]:80", "[::1]", true),
        ] {
            assert_eq!(is_same_host(one.as_bytes(), other.as_bytes()), is_same, "{one} {other}");
        }
    }

    #[test]
    fn queries_are_kept_apart() {
        let target = parse(b"/a?sort=size&desc&x=%20").unwrap();
        assert_eq!(target.query, Some(&b"sort=size&desc&x=%20"[..]));
        assert_eq!(parameter(target.query, b"sort"), Some(&b"size"[..]));
        assert_eq!(parameter(target.query, b"desc"), Some(&b""[..]));
        assert_eq!(parameter(target.query, b"so"), None);
        assert_eq!(parse(b"/a").unwrap().query, None);
        assert_eq!(parse(b"http://h?x").unwrap().query, Some(&b"x"[..]));
    }

    proptest! {
        #[test]
        fn an_encoded_name_comes_back(name in prop::collection::vec(1..=255_u8, 1..40)) {
            prop_assume!(!name.contains(&b'/') && name != b"." && name != b"..");
            let mut text = b"/".to_vec();
            encode(&name, &mut text);
            let target = parse(&text).unwrap();
            prop_assert_eq!(target.path.name(), &name[..]);
        }

        #[test]
        fn no_target_panics(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            if let Ok(target) = parse(&bytes) {
                prop_assert!(target.path.components().all(|name| name != b".."));
            }
        }
    }
}
