//! The bodies of WebDAV's requests (RFC 4918 sections 9 and 14).
//!
//! A document type is refused, and with it every attack by entities. Unknown elements are ignored, as section 17
//! requires; a body that cannot be parsed is 400.

use std::borrow::Cow;
use std::collections::HashSet;

use roxmltree::{Document, Node, NodeType};

use super::properties::is_protected;
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

impl Asked {
    /// Returns whether it may be about what clients have told: locks, or properties of theirs.
    pub fn concerns_clients(&self) -> bool {
        match self {
            Self::All(_) | Self::Names => true,
            Self::These(names) => {
                names.iter().any(|name| name.as_dav() == Some("lockdiscovery") || !is_protected(name))
            }
        }
    }
}

/// A change of a property, in the order of the request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// It gets this value: the whole element as XML that stands alone.
    Set(Name, String),
    /// It goes.
    Remove(Name),
}

/// The content of a `LOCK` request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockInfo {
    /// Excludes any other lock beside it.
    pub is_exclusive: bool,
    /// The element that says who holds it, as XML that stands alone.
    pub owner: Option<String>,
}

/// Tags of a body at most, and so elements within one another.
const MOST_TAGS: usize = 1000;

/// Attributes of a body at most, declarations of namespaces among them.
const MOST_ATTRIBUTES: usize = 1000;

/// Declarations of namespaces at most; some clients write one into every element.
const MOST_DECLARATIONS: usize = 250;

/// The longest namespace: answers say it again for every name, and for every member of a folder.
const LONGEST_NAMESPACE: usize = 1024;

/// Bytes that the names asked for may take, each with its namespace.
const MOST_OF_NAMES: usize = 256 * 1024;

/// Bytes that the properties of one body may take, written so that they stand alone.
const MOST_KEPT: usize = 1024 * 1024;

/// The longest description of a lock's owner in bytes: a name or an address, repeated for each member of a locked
/// folder.
const LONGEST_OWNER: usize = 4 * 1024;

fn too_large<T>(reason: &'static str) -> Result<T, Refusal> {
    Err(Refusal { status: Status::CONTENT_TOO_LARGE, reason })
}

/// Refuses what the parser would take too much of something for. It takes stack for each element within another:
/// 80,000 of them have ended a server. It compares each attribute with all before it in the same tag, and for each
/// element that declares a namespace all that are declared above with one another: 12,000 have kept a thread for minutes.
fn bound(body: &[u8]) -> Result<(), Refusal> {
    let (mut tags, mut attributes, mut declarations) = (0, 0, 0);
    // No `<` can stand in a tag, so each begins one, or a comment or the like.
    for start in memchr::memchr_iter(b'<', body) {
        let tag = tag_at(&body[start + 1..]);
        tags += 1;
        attributes += memchr::memchr_iter(b'=', tag).count();
        declarations += memchr::memmem::find_iter(tag, b"xmlns").count();
    }
    match () {
        () if tags > MOST_TAGS => too_large("The body has more than 1000 tags."),
        () if attributes > MOST_ATTRIBUTES => too_large("The body has more than 1000 attributes."),
        () if declarations > MOST_DECLARATIONS => too_large("The body declares more than 250 namespaces."),
        () => Ok(()),
    }
}

/// A tag without its angle brackets, of what begins behind the first of them.
fn tag_at(rest: &[u8]) -> &[u8] {
    let mut quote = None;
    let end = rest.iter().position(|&byte| match (quote, byte) {
        (_, b'<') | (None, b'>') => true,
        (None, b'"' | b'\'') => {
            quote = Some(byte);
            false
        }
        (Some(open), byte) if open == byte => {
            quote = None;
            false
        }
        _ => false,
    });
    &rest[..end.unwrap_or(rest.len())]
}

fn bad<T>(reason: &'static str) -> Result<T, Refusal> {
    Err(Refusal { status: Status::BAD_REQUEST, reason })
}

/// The text of a body. XML is in UTF-8 or, where it begins with the mark of that, in UTF-16.
fn text_of(body: &[u8]) -> Result<Cow<'_, str>, Refusal> {
    let unit: fn([u8; 2]) -> u16 = match body {
        [0xfe, 0xff, ..] => u16::from_be_bytes,
        [0xff, 0xfe, ..] => u16::from_le_bytes,
        _ => match std::str::from_utf8(body) {
            Ok(text) => return Ok(Cow::Borrowed(text)),
            Err(_) => return bad("The body is neither in UTF-8 nor in UTF-16 with its mark."),
        },
    };
    let (pairs, []) = body.as_chunks() else { return bad("The body has a UTF-16 mark, but is not UTF-16.") };
    let units: Vec<u16> = pairs.iter().copied().map(unit).collect();
    match String::from_utf16(&units) {
        Ok(text) => Ok(Cow::Owned(text)),
        Err(_) => bad("The body has a UTF-16 mark, but is not UTF-16."),
    }
}

fn with_root<T>(
    body: &[u8],
    name: &str,
    read: impl FnOnce(Node<'_, '_>) -> Result<T, Refusal>,
) -> Result<T, Refusal> {
    let text = text_of(body)?;
    bound(text.as_bytes())?;
    let Ok(document) = Document::parse(text.trim_start_matches('\u{feff}')) else {
        return bad("The body is no well-formed XML, or has a document type.");
    };
    for space in document.descendants().flat_map(|node| node.namespaces()) {
        // A prefix cannot stand for no namespace (Namespaces in XML, section 5), which the parser lets pass.
        if space.name().is_some() && space.uri().is_empty() {
            return bad("The body has a prefix without a namespace.");
        }
        if space.uri().len() > LONGEST_NAMESPACE {
            return too_large("The body has a namespace of more than 1024 bytes.");
        }
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

/// The names of the elements in one, each once: what was asked for twice is told once.
fn names_in(node: Node<'_, '_>) -> Result<Vec<Name>, Refusal> {
    let (mut names, mut seen, mut bytes) = (Vec::new(), HashSet::new(), 0);
    for child in node.children().filter(Node::is_element) {
        if seen.insert((child.tag_name().namespace(), child.tag_name().name())) {
            let name = name_of(child);
            bytes += name.space.len() + name.local.len();
            names.push(name);
        }
    }
    if bytes > MOST_OF_NAMES {
        return too_large("The names asked for are more than 256 KiB, with their namespaces.");
    }
    Ok(names)
}

/// The body of a `PROPFIND`; without one all properties are asked for.
pub fn propfind(body: &[u8]) -> Result<Asked, Refusal> {
    if body.trim_ascii().is_empty() {
        return Ok(Asked::All(Vec::new()));
    }
    with_root(body, "propfind", |root| {
        let (all, names, these) = (child(root, "allprop"), child(root, "propname"), child(root, "prop"));
        match (all, names, these) {
            (Some(_), None, None) => {
                let more = child(root, "include").map(names_in).transpose()?;
                Ok(Asked::All(more.unwrap_or_default()))
            }
            (None, Some(_), None) => Ok(Asked::Names),
            (None, None, Some(these)) => Ok(Asked::These(names_in(these)?)),
            _ => bad("The body asks for nothing, or for several things."),
        }
    })
}

/// The body of a `PROPPATCH`.
pub fn propertyupdate(body: &[u8]) -> Result<Vec<Change>, Refusal> {
    with_root(body, "propertyupdate", |root| {
        let (mut changes, mut room) = (Vec::new(), MOST_KEPT);
        for step in root.children().filter(Node::is_element) {
            let Some(properties) = child(step, "prop") else { continue };
            for node in properties.children().filter(Node::is_element) {
                match () {
                    () if step.has_tag_name((DAV, "set")) => {
                        changes.push(Change::Set(name_of(node), alone(node, &mut room)?));
                    }
                    () if step.has_tag_name((DAV, "remove")) => changes.push(Change::Remove(name_of(node))),
                    () => {}
                }
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
        let mut room = LONGEST_OWNER;
        let owner = child(root, "owner").map(|owner| alone(owner, &mut room)).transpose()?;
        Ok(LockInfo { is_exclusive, owner })
    })
}

/// An element as XML that needs nothing around it, where there is `room` for it.
fn alone(node: Node<'_, '_>, room: &mut usize) -> Result<String, Refusal> {
    let mut out = String::new();
    write(node, "", *room, &mut out)?;
    *room -= out.len();
    Ok(out)
}

/// Writes an element into one whose names without a prefix are of a namespace; at most this many bytes.
fn write(node: Node<'_, '_>, around: &str, room: usize, out: &mut String) -> Result<(), Refusal> {
    match node.node_type() {
        NodeType::Text => escape(node.text().unwrap_or_default(), out),
        NodeType::Element => {
            begin(node, around, out);
            let space = node.tag_name().namespace().unwrap_or_default();
            node.children().try_for_each(|child| write(child, space, room, out))?;
            out.push_str("</");
            out.push_str(node.tag_name().name());
            out.push('>');
        }
        _ => {}
    }
    match out.len() > room {
        true => too_large("What is to be kept is too long."),
        false => Ok(()),
    }
}

fn begin(node: Node<'_, '_>, around: &str, out: &mut String) {
    let space = node.tag_name().namespace().unwrap_or_default();
    out.push('<');
    out.push_str(node.tag_name().name());
    if space != around {
        out.push_str(" xmlns=\"");
        escape(space, out);
        out.push('"');
    }
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
}

/// Appends text so that it is nothing but text in XML.
pub(super) fn escape(text: &str, out: &mut String) {
    for character in text.chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            // Characters that XML cannot express come from a name, never from a document.
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
    fn a_body_may_be_in_utf_16() {
        let body = "\u{feff}<?xml version=\"1.0\" encoding=\"utf-16\"?><propfind xmlns=\"DAV:\"><prop><\u{e4}/></prop></propfind>";
        let expected = Ok(Asked::These(vec![Name::dav("\u{e4}")]));
        for bytes in [u16::to_be_bytes, u16::to_le_bytes] {
            let body: Vec<u8> = body.encode_utf16().flat_map(bytes).collect();
            assert_eq!(propfind(&body), expected);
            // A text cut within a character is invalid.
            assert_eq!(propfind(&body[..body.len() - 1]).unwrap_err().status, Status::BAD_REQUEST);
        }
        assert!(propfind(&[0xff, 0xfe, 0x00, 0xd8]).is_err());
    }

    #[test]
    fn unexpected_xml_is_refused() {
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

    /// Bodies that would have taken all memory of a server or a thread of it for minutes.
    #[test]
    fn bodies_that_expand_are_refused() {
        let names = |most: u32, name: fn(u32) -> String| (0..most).map(name).collect::<String>();
        let space = "u".repeat(1000);
        let long = format!("{space}{space}");
        let elements = names(900, |n| format!("<a:b{n}/>"));
        let attributes = names(20_000, |n| format!(" a{n}=\">\""));
        let declarations = names(8000, |n| format!(" xmlns:n{n}='n>{n}'"));
        let nested = names(400, |n| format!("<a xmlns:n{n}=\"n{n}\">")) + &"</a>".repeat(400);
        for (root, inner) in [
            (format!("xmlns:a=\"{long}\""), "<a:b/>"),
            (format!("xmlns:a=\"{space}\""), &*elements),
            (attributes, ""),
            (declarations, ""),
            (String::new(), &nested),
        ] {
            for comment in ["", "<!-- ' -->"] {
                let body =
                    format!("{comment}<propfind xmlns=\"DAV:\" {root}><prop>{inner}</prop></propfind>");
                let status = propfind(body.as_bytes()).map_err(|refusal| refusal.status);
                assert_eq!(status, Err(Status::CONTENT_TOO_LARGE), "{}", &body[..100]);
            }
        }
    }

    #[test]
    fn many_names_and_namespaces_are_no_trouble() {
        let inner: String = (0..240).map(|n| format!("<a xmlns=\"urn:{n}\" b='='>=\" x=\"</a>")).collect();
        let body = format!("<D:propfind xmlns:D=\"DAV:\"><D:prop>{inner}</D:prop></D:propfind>");
        let Ok(Asked::These(names)) = propfind(body.as_bytes()) else {
            panic!("{:?}", propfind(body.as_bytes()))
        };
        assert_eq!(names.len(), 240);
    }

    #[test]
    fn duplicate_properties_are_reported_once() {
        let body = "<propfind xmlns=\"DAV:\"><prop><a/><b/><a/><a xmlns=\"x\"/></prop></propfind>";
        let other = Name { space: "x".to_owned(), local: "a".to_owned() };
        let expected = Asked::These(vec![Name::dav("a"), Name::dav("b"), other]);
        assert_eq!(propfind(body.as_bytes()), Ok(expected));
    }

    #[test]
    fn stored_data_is_bounded() {
        let space = "u".repeat(1000);
        // A namespace that each element has to say again.
        let value = "<a:x><y/></a:x>".repeat(300);
        let root = format!("xmlns=\"DAV:\" xmlns:a=\"{space}\"");
        let lock = |owner: &str| {
            let kind = "<lockscope><shared/></lockscope><locktype><write/></locktype>";
            lockinfo(format!("<lockinfo {root}>{kind}<owner>{owner}</owner></lockinfo>").as_bytes())
        };
        let set = |value: &str| {
            let inner = format!("<set><prop><v>{value}</v></prop></set>");
            propertyupdate(format!("<propertyupdate {root}>{inner}</propertyupdate>").as_bytes())
        };
        assert!(lock(&"x".repeat(4000)).is_ok());
        assert_eq!(lock(&value).unwrap_err().status, Status::CONTENT_TOO_LARGE);
        assert_eq!(lock(&"x".repeat(5000)).unwrap_err().status, Status::CONTENT_TOO_LARGE);
        assert!(set(&value).is_ok());
        let twice = format!("{}{}", "x".repeat(400_000), "\"".repeat(200_000));
        assert_eq!(set(&twice).unwrap_err().status, Status::CONTENT_TOO_LARGE);
    }

    #[test]
    fn a_namespace_is_said_where_it_changes() {
        let owner = "<a><z:b xmlns:z=\"z\"><z:c/></z:b><d xmlns=\"\"><e/></d></a>";
        let kind = "<lockscope><shared/></lockscope><locktype><write/></locktype>";
        let body = format!("<lockinfo xmlns=\"DAV:\">{kind}<owner>{owner}</owner></lockinfo>");
        let expected =
            "<owner xmlns=\"DAV:\"><a><b xmlns=\"z\"><c></c></b><d xmlns=\"\"><e></e></d></a></owner>";
        assert_eq!(lockinfo(body.as_bytes()).unwrap().owner.as_deref(), Some(expected));
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
        // Written output parses to the same value.
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
