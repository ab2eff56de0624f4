//! The bodies of WebDAV's requests (RFC 4918 sections 9 and 14).
//!
//! A document type is refused, and with it all that entities could be used for. What is not known is ignored, as
//! section 17 wants it; what cannot be parsed is 400.

use roxmltree::{Document, Node};

use super::{DAV, Name};
use crate::{Refusal, Status};

/// Which properties `PROPFIND` asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Asked {
    /// All that are worth telling, and these.
    All(Vec<Name>),
    /// The names of all.
    Names,
    /// These.
    These(Vec<Name>),
}

/// A change of a property, in the order of the request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// It gets this value: the whole element as XML that stands alone.
    Set(Name, String),
    /// It goes.
    Remove(Name),
}

/// What `LOCK` asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockInfo {
    /// Nobody else may hold one beside it.
    pub is_exclusive: bool,
    /// The element that says who holds it, as XML that stands alone.
    pub owner: Option<String>,
}

/// Tags of a body at most, and so elements within one another.
const MOST_TAGS: usize = 1000;

fn bad<T>(reason: &'static str) -> Result<T, Refusal> {
    Err(Refusal { status: Status::BAD_REQUEST, reason })
}

fn with_root<T>(
    body: &[u8],
    name: &str,
    read: impl FnOnce(Node<'_, '_>) -> Result<T, Refusal>,
) -> Result<T, Refusal> {
    let Ok(text) = std::str::from_utf8(body) else { return bad("The body is not in UTF-8.") };
    // The parser takes stack for each element within another: 80,000 of them have ended a server.
    if memchr::memchr_iter(b'<', body).count() > MOST_TAGS {
        return Err(Refusal {
            status: Status::CONTENT_TOO_LARGE,
            reason: "The body has more than 1000 tags.",
        });
    }
    let Ok(document) = Document::parse(text.trim_start_matches('\u{feff}')) else {
        return bad("The body is no well-formed XML, or has a document type.");
    };
    // A prefix cannot stand for no namespace (Namespaces in XML, section 5), which the parser lets pass.
    let undeclares =
        |node: Node<'_, '_>| node.namespaces().any(|space| space.name().is_some() && space.uri().is_empty());
    if document.descendants().any(undeclares) {
        return bad("The body has a prefix without a namespace.");
    }
    match document.root_element() {
        root if root.has_tag_name((DAV, name)) => read(root),
        _ => bad("The body is about something else than the request."),
    }
}

fn child<'a, 'i>(node: Node<'a, 'i>, name: &str) -> Option<Node<'a, 'i>> {
    node.children().find(|child| child.has_tag_name((DAV, name)))
}

fn name_of(node: Node<'_, '_>) -> Name {
    let name = node.tag_name();
    Name { space: name.namespace().unwrap_or_default().to_owned(), local: name.name().to_owned() }
}

fn names_in(node: Node<'_, '_>) -> Vec<Name> {
    node.children().filter(Node::is_element).map(name_of).collect()
}

/// The body of a `PROPFIND`; without one all properties are asked for.
pub fn propfind(body: &[u8]) -> Result<Asked, Refusal> {
    if body.trim_ascii().is_empty() {
        return Ok(Asked::All(Vec::new()));
    }
    with_root(body, "propfind", |root| {
        let (all, names, these) = (child(root, "allprop"), child(root, "propname"), child(root, "prop"));
        match (all, names, these) {
            (Some(_), None, None) => Ok(Asked::All(child(root, "include").map(names_in).unwrap_or_default())),
            (None, Some(_), None) => Ok(Asked::Names),
            (None, None, Some(these)) => Ok(Asked::These(names_in(these))),
            _ => bad("The body asks for nothing, or for several things."),
        }
    })
}

/// The body of a `PROPPATCH`.
pub fn propertyupdate(body: &[u8]) -> Result<Vec<Change>, Refusal> {
    with_root(body, "propertyupdate", |root| {
        let mut changes = Vec::new();
        for step in root.children().filter(Node::is_element) {
            let Some(properties) = child(step, "prop") else { continue };
            let elements = properties.children().filter(Node::is_element);
            match () {
                () if step.has_tag_name((DAV, "set")) => {
                    changes.extend(elements.map(|node| Change::Set(name_of(node), alone(node))));
                }
                () if step.has_tag_name((DAV, "remove")) => {
                    changes.extend(elements.map(|node| Change::Remove(name_of(node))));
                }
                () => {}
            }
        }
        Ok(changes)
    })
}

/// The body of a `LOCK`.
pub fn lockinfo(body: &[u8]) -> Result<LockInfo, Refusal> {
    with_root(body, "lockinfo", |root| {
        let scope = child(root, "lockscope");
        let is_exclusive = scope.is_some_and(|scope| child(scope, "exclusive").is_some());
        let is_shared = scope.is_some_and(|scope| child(scope, "shared").is_some());
        let is_for_writing = child(root, "locktype").is_some_and(|kind| child(kind, "write").is_some());
        if is_exclusive == is_shared || !is_for_writing {
            return bad("The lock is neither shared nor exclusive, or not for writing.");
        }
        Ok(LockInfo { is_exclusive, owner: child(root, "owner").map(alone) })
    })
}

/// An element as XML that needs nothing around it: every element says its namespace itself.
fn alone(node: Node<'_, '_>) -> String {
    let mut out = String::new();
    write(node, &mut out);
    out
}

fn write(node: Node<'_, '_>, out: &mut String) {
    if let Some(text) = node.text().filter(|_| node.is_text()) {
        return escape(text, out);
    }
    if !node.is_element() {
        return;
    }
    let name = node.tag_name();
    out.push('<');
    out.push_str(name.name());
    out.push_str(" xmlns=\"");
    escape(name.namespace().unwrap_or_default(), out);
    out.push('"');
    for (number, attribute) in node.attributes().enumerate() {
        match attribute.namespace() {
            None => out.push(' '),
            Some("http://www.w3.org/XML/1998/namespace") => out.push_str(" xml:"),
            Some(space) => {
                out.push_str(&format!(" xmlns:a{number}=\""));
                escape(space, out);
                out.push_str(&format!("\" a{number}:"));
            }
        }
        out.push_str(attribute.name());
        out.push_str("=\"");
        escape(attribute.value(), out);
        out.push('"');
    }
    out.push('>');
    node.children().for_each(|child| write(child, out));
    out.push_str("</");
    out.push_str(name.name());
    out.push('>');
}

/// Appends text so that it is nothing but text in XML.
pub(super) fn escape(text: &str, out: &mut String) {
    for character in text.chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            // What XML cannot say at all was in a name, never in a document.
            '\t' | '\n' | '\r' => out.push_str(&format!("&#{};", character as u32)),
            '\0'..'\u{20}' | '\u{fffe}' | '\u{ffff}' => out.push('\u{fffd}'),
            character => out.push(character),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn propfind_asks_for_all_for_names_or_for_some() {
        let name = |space: &str, local: &str| Name { space: space.to_owned(), local: local.to_owned() };
        for (inner, expected) in [
            ("<D:allprop/>", Asked::All(vec![])),
            ("<D:allprop/><D:include><D:x/></D:include>", Asked::All(vec![Name::dav("x")])),
            ("<D:propname/>", Asked::Names),
            (
                "<D:prop><D:getetag/><z:a xmlns:z=\"http://z/\"/><b xmlns=\"\"/></D:prop>",
                Asked::These(vec![Name::dav("getetag"), name("http://z/", "a"), name("", "b")]),
            ),
        ] {
            let body = format!("<?xml version=\"1.0\"?><D:propfind xmlns:D=\"DAV:\">{inner}</D:propfind>");
            assert_eq!(propfind(body.as_bytes()), Ok(expected), "{inner}");
        }
        assert_eq!(propfind(b" \r\n"), Ok(Asked::All(vec![])));
    }

    #[test]
    fn what_is_no_xml_of_ours_is_refused() {
        for body in [
            "<propfind/>",
            "<D:propfind xmlns:D=\"DAV:\"/>",
            "<D:propfind xmlns:D=\"DAV:\"><D:propname/><D:allprop/></D:propfind>",
            "<D:propfind xmlns:D=\"DAV:\"><D:propname/>",
            "<D:propfind xmlns:D=\"DAV:\"><D:prop><bar:foo/></D:prop></D:propfind>",
            "<D:propfind xmlns:D=\"DAV:\"><D:prop><a xmlns:b=\"\"/></D:prop></D:propfind>",
            "<!DOCTYPE x [<!ENTITY a \"b\">]><D:propfind xmlns:D=\"DAV:\"><D:propname/></D:propfind>",
            "text",
        ] {
            assert_eq!(propfind(body.as_bytes()).unwrap_err().status, Status::BAD_REQUEST, "{body}");
        }
        assert!(propfind(b"\xff").is_err());
    }

    #[test]
    fn values_stand_alone() {
        let body = "<D:propertyupdate xmlns:D=\"DAV:\" xmlns:z=\"urn:z\"><D:set><D:prop><z:a xml:lang=\"de\" \
                    z:b=\"&lt;\">x &amp; <i>y</i></z:a></D:prop></D:set><D:remove><D:prop><z:c/></D:prop></D:remove>\
                    </D:propertyupdate>";
        let name = |local: &str| Name { space: "urn:z".to_owned(), local: local.to_owned() };
        let value = "<a xmlns=\"urn:z\" xml:lang=\"de\" xmlns:a1=\"urn:z\" a1:b=\"&lt;\">x &amp; <i xmlns=\"\">y</i></a>";
        let expected = vec![Change::Set(name("a"), value.to_owned()), Change::Remove(name("c"))];
        assert_eq!(propertyupdate(body.as_bytes()), Ok(expected));
        // What was written is read again as the same.
        assert!(Document::parse(value).is_ok());
    }

    #[test]
    fn a_lock_says_what_it_is() {
        let lock = |scope: &str| {
            let body = format!(
                "<D:lockinfo xmlns:D=\"DAV:\"><D:lockscope>{scope}</D:lockscope><D:locktype><D:write/></D:locktype>\
                 <D:owner>me</D:owner></D:lockinfo>"
            );
            lockinfo(body.as_bytes())
        };
        let owner = Some("<owner xmlns=\"DAV:\">me</owner>".to_owned());
        assert_eq!(lock("<D:exclusive/>"), Ok(LockInfo { is_exclusive: true, owner: owner.clone() }));
        assert_eq!(lock("<D:shared/>"), Ok(LockInfo { is_exclusive: false, owner }));
        assert!(lock("").is_err());
    }
}
