//! Which pages of other origins may read answers (CORS: the Fetch standard, section 3.3).
//!
//! A browser sends a preflight before a request with effects, and hides answers from pages of other origins that they
//! do not permit. This does not replace authentication: requests are authenticated as always.

use crate::request::{Field, Head, Method};

/// The permissions of pages of other origins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// The origins of the pages.
    pub origins: Vec<Origin>,
    /// By which methods.
    pub methods: Vec<String>,
    /// With which fields, beyond those that need no leave.
    pub request_fields: Vec<String>,
    /// Which fields of an answer they see, beyond those that need no leave.
    pub exposed: Vec<String>,
    /// Whether the browser may send credentials.
    pub credentials: bool,
    /// Seconds for which a browser remembers this.
    pub max_age: u64,
}

/// A text that is not an origin.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is no origin: expected \"*\", or scheme, host and port without a path, such as \"https://app.example.org\" or \
     \"https://*.example.org\""
)]
pub struct InvalidOrigin(String);

/// Where a page is from: scheme, host and port, as browsers write it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// From anywhere.
    Any,
    /// From exactly there: `https://app.example.org`.
    Exact(String),
    /// From a host beneath: `https://*.example.org` is this scheme with its slashes, and `.example.org`.
    Beneath(String, String),
}

/// The result for an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Leave<'a> {
    /// Every origin, so the answer is the same for all.
    Everybody,
    /// This origin has it.
    Origin(&'a str),
    /// It has not, though others might.
    Denied,
}

impl Origin {
    /// Parses an origin as it is written in a configuration.
    pub fn parse(text: &str) -> Result<Self, InvalidOrigin> {
        let wrong = || Err(InvalidOrigin(text.to_owned()));
        if text == "*" {
            return Ok(Self::Any);
        }
        let Some((scheme, host)) = text.split_once("://") else { return wrong() };
        let is_plain = |part: &str| {
            !part.is_empty()
                && part.bytes().all(|byte| {
                    byte.is_ascii_lowercase() || byte.is_ascii_digit() || b".-_:[]+".contains(&byte)
                })
        };
        match host.strip_prefix('*') {
            _ if !is_plain(scheme) => wrong(),
            None if is_plain(host) => Ok(Self::Exact(text.to_owned())),
            Some(rest) if rest.starts_with('.') && is_plain(rest) => {
                Ok(Self::Beneath(format!("{scheme}://"), rest.to_owned()))
            }
            _ => wrong(),
        }
    }

    fn covers(&self, origin: &str) -> bool {
        match self {
            Self::Any => true,
            Self::Exact(exact) => exact == origin,
            Self::Beneath(scheme, beneath) => origin
                .strip_prefix(scheme.as_str())
                .and_then(|host| host.strip_suffix(beneath.as_str()))
                .is_some_and(|name| {
                    !name.is_empty()
                        && name
                            .bytes()
                            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_'))
                }),
        }
    }
}

/// Returns whether a browser asks what it may send.
pub fn is_preflight(head: &Head) -> bool {
    head.method == Method::Options
        && head.get(Field::Origin).is_some()
        && head.get(Field::AccessControlRequestMethod).is_some()
}

impl Grant {
    /// The header fields of every answer, whatever its status; whole lines.
    pub fn lines(&self, head: &Head, out: &mut String) {
        let leave = self.leave(head);
        if leave != Leave::Everybody {
            out.push_str("Vary: Origin\r\n");
        }
        if self.say(leave, out) && !self.exposed.is_empty() {
            line("Access-Control-Expose-Headers", &self.exposed.join(", "), out);
        }
    }

    /// The header fields of the answer to a preflight; whole lines.
    pub fn preflight_lines(&self, head: &Head, out: &mut String) {
        out.push_str("Vary: Origin, Access-Control-Request-Method, Access-Control-Request-Headers\r\n");
        let asked = head.get(Field::AccessControlRequestMethod).unwrap_or_default();
        let may = self.methods.iter().any(|method| method.as_bytes() == asked);
        if !may || !self.say(self.leave(head), out) {
            return;
        }
        line("Access-Control-Allow-Methods", &self.methods.join(", "), out);
        if !self.request_fields.is_empty() {
            line("Access-Control-Allow-Headers", &self.request_fields.join(", "), out);
        }
        line("Access-Control-Max-Age", &self.max_age.to_string(), out);
    }

    fn leave<'a>(&self, head: &'a Head) -> Leave<'a> {
        if !self.credentials && self.origins.contains(&Origin::Any) {
            return Leave::Everybody;
        }
        let origin = head.get(Field::Origin).and_then(|origin| std::str::from_utf8(origin).ok());
        match origin.filter(|origin| self.origins.iter().any(|one| one.covers(origin))) {
            Some(origin) => Leave::Origin(origin),
            None => Leave::Denied,
        }
    }

    /// Writes which origin may read the answer; returns whether any may.
    fn say(&self, leave: Leave<'_>, out: &mut String) -> bool {
        let origin = match leave {
            Leave::Denied => return false,
            Leave::Everybody => "*",
            Leave::Origin(origin) => origin,
        };
        line("Access-Control-Allow-Origin", origin, out);
        if self.credentials {
            line("Access-Control-Allow-Credentials", "true", out);
        }
        true
    }
}

fn line(name: &str, value: &str, out: &mut String) {
    out.extend([name, ": ", value, "\r\n"]);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grant(origins: &[&str], credentials: bool) -> Grant {
        Grant {
            origins: origins.iter().map(|origin| Origin::parse(origin).unwrap()).collect(),
            methods: vec!["GET".to_owned(), "PUT".to_owned()],
            request_fields: vec!["Range".to_owned()],
            exposed: vec!["ETag".to_owned()],
            credentials,
            max_age: 600,
        }
    }

    fn said(grant: &Grant, method: &str, fields: &str) -> String {
        let text = format!("{method} / HTTP/1.1\r\nHost: h\r\n{fields}\r\n");
        let (head, _) = crate::request::parse(text.as_bytes()).unwrap().unwrap();
        let mut out = String::new();
        match is_preflight(&head) {
            true => grant.preflight_lines(&head, &mut out),
            false => grant.lines(&head, &mut out),
        }
        out
    }

    #[test]
    fn origins_get_what_they_were_granted_and_others_nothing() {
        let open = grant(&["*"], false);
        let all = "Access-Control-Allow-Origin: *\r\nAccess-Control-Expose-Headers: ETag\r\n";
        assert_eq!(said(&open, "GET", ""), all);
        assert_eq!(said(&open, "GET", "Origin: https://evil.example\r\n"), all);

        let named = grant(&["https://app.example", "https://*.example.org"], true);
        let granted = |origin: &str| {
            said(&named, "GET", &format!("Origin: {origin}\r\n")).contains("Access-Control-Allow-Origin")
        };
        for (origin, expected) in [
            ("https://app.example", true),
            ("https://a.example.org", true),
            ("https://a.b.example.org", true),
            ("https://example.org", false),
            ("https://.example.org", false),
            ("https://evil.example/.example.org", false),
            ("https://evil@a.example.org", false),
            ("http://app.example", false),
            ("https://app.example:444", false),
            ("https://app.example.evil", false),
            ("https://APP.example", false),
            ("null", false),
            ("\u{ff}", false),
        ] {
            assert_eq!(granted(origin), expected, "{origin}");
        }
        // Caches are told in any case that it depends.
        assert_eq!(said(&named, "GET", ""), "Vary: Origin\r\n");
        assert_eq!(
            said(&named, "GET", "Origin: https://app.example\r\n"),
            "Vary: Origin\r\nAccess-Control-Allow-Origin: https://app.example\r\n\
             Access-Control-Allow-Credentials: true\r\nAccess-Control-Expose-Headers: ETag\r\n"
        );
    }

    #[test]
    fn a_preflight_hears_what_may_be_sent() {
        let named = grant(&["https://app.example"], false);
        let vary = "Vary: Origin, Access-Control-Request-Method, Access-Control-Request-Headers\r\n";
        let ask = |origin: &str, method: &str| {
            let fields = format!("Origin: {origin}\r\nAccess-Control-Request-Method: {method}\r\n");
            said(&named, "OPTIONS", &fields)
        };
        assert_eq!(
            ask("https://app.example", "PUT"),
            format!(
                "{vary}Access-Control-Allow-Origin: https://app.example\r\nAccess-Control-Allow-Methods: GET, PUT\r\n\
                 Access-Control-Allow-Headers: Range\r\nAccess-Control-Max-Age: 600\r\n"
            )
        );
        assert_eq!(ask("https://app.example", "DELETE"), vary);
        assert_eq!(ask("https://app.example", "put"), vary);
        assert_eq!(ask("https://evil.example", "PUT"), vary);
    }

    #[test]
    fn invalid_origins_are_refused() {
        for text in
            ["", "example.org", "https://", "https://a/", "https://a b", "https://*", "https://*a", "://a"]
        {
            assert!(Origin::parse(text).is_err(), "{text}");
        }
        for text in ["*", "https://a", "http://a:8080", "http://[::1]:80", "https://*.a.b"] {
            assert!(Origin::parse(text).is_ok(), "{text}");
        }
    }
}
