//! Header fields that an administrator adds: `Cache-Control`, security fields for browsers, others.
//!
//! The first rule that matches a file and names a field decides it; a rule with an empty value leaves the field out. So a
//! special case is written before the general one, and the defaults come last.

use std::time::Duration;

use millrace_hooks::PathPattern;
use millrace_vfs::VirtualPath;

use crate::web::covers;

/// What browsers are told where nothing else is said: not to guess types (so that no upload becomes a page), to show
/// pages within those of this server only, and to tell other servers nothing of the path.
const SAFE: [(&str, &str); 3] = [
    ("X-Content-Type-Options", "nosniff"),
    ("X-Frame-Options", "SAMEORIGIN"),
    ("Referrer-Policy", "same-origin"),
];

/// Fields that say what an answer is, and so are the server's to write.
const OURS: [&str; 19] = [
    "Accept-Ranges",
    "Allow",
    "Connection",
    "Content-Encoding",
    "Content-Length",
    "Content-Range",
    "Content-Type",
    "Date",
    "ETag",
    "Keep-Alive",
    "Last-Modified",
    "Location",
    "Repr-Digest",
    "Server",
    "Trailer",
    "Transfer-Encoding",
    "Upgrade",
    "Vary",
    "WWW-Authenticate",
];

/// Fields of answers.
#[derive(Debug, Clone, Default)]
pub struct Fields {
    rules: Vec<FieldRule>,
    /// For how long browsers are to come by HTTPS only.
    pub transport_security: Option<Duration>,
}

/// Fields for some answers.
#[derive(Debug, Clone, Default)]
pub struct FieldRule {
    /// For files at these paths; empty: whatever the path.
    pub paths: Vec<PathPattern>,
    /// For files of these media types, such as `text/css` or `image/*`; empty: whatever the type.
    pub types: Vec<String>,
    /// Names and values; the empty value leaves the field out.
    pub fields: Vec<(String, String)>,
}

/// What cannot be said in a field.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)]
pub enum FieldError {
    #[error("{0:?} is no name of a field: expected letters, digits and hyphens")]
    Name(String),
    #[error("the field {0} is written by the server, which alone knows what is right")]
    Ours(String),
    #[error("the value of {0} has a control character in it, or is not ASCII")]
    Value(String),
}

impl Fields {
    /// These rules, and behind them what keeps browsers safe, where that is wanted.
    pub fn new(mut rules: Vec<FieldRule>, safe: bool) -> Result<Self, FieldError> {
        rules.iter().flat_map(|rule| &rule.fields).try_for_each(|(name, value)| check(name, value))?;
        if safe {
            let fields = SAFE.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
            rules.push(FieldRule { fields, ..FieldRule::default() });
        }
        Ok(Self { rules, transport_security: None })
    }

    /// The same, with a sandboxing `Content-Security-Policy` for files without another one: an uploaded script would
    /// otherwise run with the rights of a user that opens it, on the origin of that login. PDFs are exempt: browsers do
    /// not show them in a sandbox, and run none of their scripts on the origin.
    pub fn sandboxed(mut self) -> Self {
        let rule = |media_type: &str, fields: &[(&str, &str)]| FieldRule {
            types: vec![media_type.to_owned()],
            fields: fields.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect(),
            ..FieldRule::default()
        };
        let nosniff = SAFE[0];
        self.rules.push(rule("application/pdf", &[("Content-Security-Policy", ""), nosniff]));
        self.rules.push(rule("*", &[("Content-Security-Policy", "sandbox"), nosniff]));
        self
    }

    /// The same, with `Cache-Control: private` for files without another one: no proxy keeps what a link gives.
    pub fn private(mut self) -> Self {
        let fields = vec![("Cache-Control".to_owned(), "private".to_owned())];
        self.rules.push(FieldRule { types: vec!["*".to_owned()], fields, ..FieldRule::default() });
        self
    }

    /// The lines of answers with a file.
    pub(crate) fn of_file(&self, path: &VirtualPath, media_type: &str) -> Vec<u8> {
        lines(self.rules.iter().filter(|rule| {
            covers(&rule.paths, path)
                && (rule.types.is_empty() || rule.types.iter().any(|one| is_of_type(media_type, one)))
        }))
    }

    /// The lines of other answers: of rules that ask for no path and no type.
    pub(crate) fn of_others(&self) -> Vec<u8> {
        lines(self.rules.iter().filter(|rule| rule.paths.is_empty() && rule.types.is_empty()))
    }
}

/// Returns true if a media type is this one, or matches a pattern that ends in `/*`.
fn is_of_type(media_type: &str, wanted: &str) -> bool {
    let essence = media_type.split(';').next().unwrap_or_default().trim();
    match wanted.strip_suffix('*') {
        Some(kind) => essence.get(..kind.len()).is_some_and(|start| start.eq_ignore_ascii_case(kind)),
        None => essence.eq_ignore_ascii_case(wanted),
    }
}

fn lines<'a>(rules: impl Iterator<Item = &'a FieldRule>) -> Vec<u8> {
    let mut decided: Vec<&str> = Vec::new();
    let mut lines = Vec::new();
    for (name, value) in rules.flat_map(|rule| &rule.fields) {
        if decided.iter().any(|other| other.eq_ignore_ascii_case(name)) {
            continue;
        }
        decided.push(name);
        if !value.is_empty() {
            lines.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
        }
    }
    lines
}

fn check(name: &str, value: &str) -> Result<(), FieldError> {
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    if name.is_empty() || !name.bytes().all(is_token) {
        return Err(FieldError::Name(name.to_owned()));
    }
    if OURS.iter().any(|ours| ours.eq_ignore_ascii_case(name)) {
        return Err(FieldError::Ours(name.to_owned()));
    }
    match value.bytes().all(|byte| matches!(byte, b' '..=b'~')) {
        true => Ok(()),
        false => Err(FieldError::Value(name.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(paths: &[&str], types: &[&str], fields: &[(&str, &str)]) -> FieldRule {
        FieldRule {
            paths: paths.iter().map(|path| PathPattern::new(path)).collect(),
            types: types.iter().map(|&one| one.to_owned()).collect(),
            fields: fields.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect(),
        }
    }

    #[test]
    fn the_first_rule_for_a_file_decides_about_a_field() {
        let rules = vec![
            rule(&["/assets/**"], &[], &[("Cache-Control", "immutable")]),
            rule(&["/embed/**"], &[], &[("x-frame-options", "")]),
            rule(&[], &["image/*", "text/css"], &[("Cache-Control", "max-age=60")]),
            rule(&[], &[], &[("Cache-Control", "no-cache")]),
        ];
        let fields = Fields::new(rules, true).unwrap();
        let safe = "X-Content-Type-Options: nosniff\r\nX-Frame-Options: SAMEORIGIN\r\nReferrer-Policy: same-origin\r\n";
        for (path, media_type, expected) in [
            ("/assets/a/b.png", "image/png", format!("Cache-Control: immutable\r\n{safe}")),
            ("/b.png", "image/png", format!("Cache-Control: max-age=60\r\n{safe}")),
            ("/b.css", "text/css; charset=utf-8", format!("Cache-Control: max-age=60\r\n{safe}")),
            ("/b.html", "text/html", format!("Cache-Control: no-cache\r\n{safe}")),
            (
                "/embed/a",
                "text/html",
                "Cache-Control: no-cache\r\nX-Content-Type-Options: nosniff\r\nReferrer-Policy: same-origin\r\n"
                    .to_owned(),
            ),
        ] {
            let path = VirtualPath::parse(path.as_bytes()).unwrap();
            assert_eq!(String::from_utf8(fields.of_file(&path, media_type)).unwrap(), expected, "{path}");
        }
        assert_eq!(
            String::from_utf8(fields.of_others()).unwrap(),
            format!("Cache-Control: no-cache\r\n{safe}")
        );
        assert!(Fields::new(Vec::new(), false).unwrap().of_others().is_empty());
    }

    #[test]
    fn files_run_nothing_in_a_browser_unless_a_rule_says_so() {
        let rules = vec![rule(&["/app/**"], &[], &[("content-security-policy", "default-src 'self'")])];
        let fields = Fields::new(rules, false).unwrap().sandboxed();
        let of = |path: &str, media_type: &str| {
            let path = VirtualPath::parse(path.as_bytes()).unwrap();
            String::from_utf8(fields.of_file(&path, media_type)).unwrap()
        };
        let (sandbox, nosniff) =
            ("Content-Security-Policy: sandbox\r\n", "X-Content-Type-Options: nosniff\r\n");
        for media_type in ["text/html; charset=utf-8", "image/svg+xml", "application/xhtml+xml", "x/y", ""] {
            assert_eq!(of("/a", media_type), format!("{sandbox}{nosniff}"), "{media_type}");
        }
        assert_eq!(of("/a", "application/pdf"), nosniff);
        assert_eq!(
            of("/app/a", "text/html"),
            format!("content-security-policy: default-src 'self'\r\n{nosniff}")
        );
        assert!(fields.of_others().is_empty(), "our own pages have a policy of their own");
    }

    #[test]
    fn a_field_adds_one_line_and_not_one_of_ours() {
        let one =
            |name: &str, value: &str| Fields::new(vec![rule(&[], &[], &[(name, value)])], false).map(|_| ());
        assert_eq!(one("X-A", "b c"), Ok(()));
        for (name, value) in
            [("", "b"), ("X A", "b"), ("X:", "b"), ("X\r\nY", "b"), ("content-length", "1"), ("ETag", "x")]
        {
            assert!(one(name, value).is_err(), "{name}");
        }
        for value in ["a\r\nX: y", "a\nb", "\0", "\u{fc}"] {
            assert_eq!(one("X-A", value), Err(FieldError::Value("X-A".to_owned())), "{value:?}");
        }
    }
}
