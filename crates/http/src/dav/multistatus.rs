//! Answers in XML: `207 Multi-Status` and what stands in it (RFC 4918 section 13).

use std::fmt::Write;

use super::body::escape;
use super::{DAV, Name};
use crate::Status;

/// The media type of these answers.
pub const MEDIA_TYPE: &str = "application/xml; charset=utf-8";

/// How an answer begins.
pub const BEGIN: &str = "<?xml version=\"1.0\" encoding=\"utf-8\"?>\n<D:multistatus xmlns:D=\"DAV:\">\n";

/// How it ends.
pub const END: &str = "</D:multistatus>\n";

/// A reported property: its name, and its content as XML; `None` for the name alone.
pub type Property = (Name, Option<Value>);

/// The value of a property.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// XML in which `D` is the namespace of WebDAV.
    Inner(String),
    /// The whole element.
    Element(String),
}

impl Value {
    /// Text.
    pub fn text(text: &str) -> Self {
        let mut inner = String::new();
        escape(text, &mut inner);
        Self::Inner(inner)
    }
}

/// Appends what there is to say of a resource: properties by how asking for them, or changing them, went.
pub fn response(href: &str, groups: &[(Status, Vec<Property>)], out: &mut String) {
    out.push_str("<D:response><D:href>");
    escape(href, out);
    out.push_str("</D:href>");
    for (status, properties) in groups {
        out.push_str("<D:propstat><D:prop>");
        properties.iter().for_each(|(name, value)| property(name, value.as_ref(), out));
        let _ = write!(
            out,
            "</D:prop><D:status>HTTP/1.1 {} {}</D:status></D:propstat>",
            status.0,
            status.reason()
        );
    }
    out.push_str("</D:response>\n");
}

/// Appends that a resource is what an attempt failed on.
pub fn failure(href: &str, status: Status, out: &mut String) {
    out.push_str("<D:response><D:href>");
    escape(href, out);
    let _ =
        write!(out, "</D:href><D:status>HTTP/1.1 {} {}</D:status></D:response>", status.0, status.reason());
}

fn property(name: &Name, value: Option<&Value>, out: &mut String) {
    if let Some(Value::Element(element)) = value {
        return out.push_str(element);
    }
    let inner = match value {
        Some(Value::Inner(inner)) => inner.as_str(),
        _ => "",
    };
    match name.space.as_str() {
        DAV => {
            let _ = write!(out, "<D:{0}>{inner}</D:{0}>", name.local);
        }
        space => {
            let _ = write!(out, "<{} xmlns=\"", name.local);
            escape(space, out);
            let _ = write!(out, "\">{inner}</{}>", name.local);
        }
    }
}

/// A lock that is held, as the property `lockdiscovery` lists it.
#[derive(Debug, Clone, Copy)]
pub struct ActiveLock<'a> {
    /// Excludes any other lock beside it.
    pub is_exclusive: bool,
    /// It holds for all beneath.
    pub is_deep: bool,
    /// The element that says who holds it.
    pub owner: Option<&'a str>,
    /// For this many seconds yet.
    pub seconds: u64,
    /// Its token.
    pub token: &'a str,
    /// The locked path.
    pub root: &'a str,
}

/// Appends a lock.
pub fn active_lock(lock: &ActiveLock<'_>, out: &mut String) {
    let scope = if lock.is_exclusive { "exclusive" } else { "shared" };
    let depth = if lock.is_deep { "infinity" } else { "0" };
    let _ = write!(
        out,
        "<D:activelock><D:locktype><D:write/></D:locktype><D:lockscope><D:{scope}/></D:lockscope>\
         <D:depth>{depth}</D:depth>{}<D:timeout>Second-{}</D:timeout><D:locktoken><D:href>{}</D:href></D:locktoken>\
         <D:lockroot><D:href>",
        lock.owner.unwrap_or_default(),
        lock.seconds,
        lock.token,
    );
    escape(lock.root, out);
    out.push_str("</D:href></D:lockroot></D:activelock>");
}

/// A path as a link within this server: percent-encoded, a directory with a slash at its end.
pub fn href(path: &[u8], is_directory: bool) -> String {
    let mut out = String::new();
    for &byte in path {
        match byte {
            b'/' | b'-' | b'.' | b'_' | b'~' | b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' => {
                out.push(char::from(byte));
            }
            byte => _ = write!(out, "%{byte:02X}"),
        }
    }
    if is_directory && !out.ends_with('/') {
        out.push('/');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_xml_that_says_what_it_should() {
        let mut out = BEGIN.to_owned();
        let other = Name { space: "urn:<".to_owned(), local: "x".to_owned() };
        let groups = [
            (Status::OK, vec![(Name::dav("displayname"), Some(Value::text("a & b")))]),
            (Status::NOT_FOUND, vec![(other, None)]),
        ];
        response(&href(b"/a b/\xc3\xa4", true), &groups, &mut out);
        out.push_str(END);
        let document = roxmltree::Document::parse(&out).unwrap();
        let text = |name: &str| {
            document
                .descendants()
                .find(|node| node.has_tag_name((DAV, name)))
                .unwrap()
                .text()
                .unwrap()
                .to_owned()
        };
        assert_eq!(text("href"), "/a%20b/%C3%A4/");
        assert_eq!(text("displayname"), "a & b");
        assert!(document.descendants().any(|node| node.has_tag_name(("urn:<", "x"))));
    }
}
