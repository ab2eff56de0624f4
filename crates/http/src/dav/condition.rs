//! The fields that WebDAV adds to requests: `If`, `Depth`, `Timeout` (RFC 4918 section 10), and what they require.

use std::time::Duration;

use crate::Status;
use crate::request::{Field, Head, Refusal, refuse};

/// One list of an `If` field: it holds where all of its conditions hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct List<'a> {
    /// The URL that it is about; `None` for that of the request.
    pub resource: Option<&'a [u8]>,
    /// The conditions, all of which have to hold.
    pub conditions: Vec<Condition<'a>>,
}

/// One condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Condition<'a> {
    /// It holds if the state does not match.
    pub is_negated: bool,
    /// The state that is required.
    pub state: State<'a>,
}

/// The state that a condition requires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State<'a> {
    /// The resource has this lock.
    Token(&'a [u8]),
    /// The resource has this entity tag.
    Tag(&'a [u8]),
}

/// How far a request reaches down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Depth {
    /// The resource alone.
    Zero,
    /// And its members.
    One,
    /// And all beneath.
    Infinity,
}

/// The `Depth` field; `None` if it is absent.
pub fn depth(head: &Head) -> Result<Option<Depth>, Refusal> {
    match head.get(Field::Depth) {
        None => Ok(None),
        Some(b"0") => Ok(Some(Depth::Zero)),
        Some(b"1") => Ok(Some(Depth::One)),
        Some(said) if said.eq_ignore_ascii_case(b"infinity") => Ok(Some(Depth::Infinity)),
        Some(_) => Err(Refusal { status: Status::BAD_REQUEST, reason: "The Depth is 0, 1 or infinity." }),
    }
}

/// Decides how far a `PROPFIND` of a file or a directory reaches.
pub fn propfind_depth(head: &Head, is_directory: bool) -> Result<Depth, Refusal> {
    match depth(head)? {
        Some(depth @ (Depth::Zero | Depth::One)) => Ok(depth),
        _ if !is_directory => Ok(Depth::Zero),
        _ => Ok(Depth::Infinity),
    }
}

/// Decides whether a lock is wanted on a resource alone, or on all beneath too.
pub fn lock_is_deep(head: &Head) -> Result<bool, Refusal> {
    match depth(head)? {
        Some(Depth::One) => refuse(Status::BAD_REQUEST, "A lock is of Depth 0 or infinity."),
        depth => Ok(depth != Some(Depth::Zero)),
    }
}

/// How long a lock is wanted for: the first of the `Timeout` field's wishes that is a number, at most `most`.
pub fn timeout(head: &Head, most: Duration) -> Duration {
    let wishes = head.get(Field::Timeout).unwrap_or_default().split(|&byte| byte == b',');
    let seconds = wishes.map(<[u8]>::trim_ascii).find_map(|wish| {
        let number = wish.strip_prefix(b"Second-")?;
        std::str::from_utf8(number).ok()?.parse().ok()
    });
    seconds.map_or(most, |seconds| Duration::from_secs(seconds).min(most))
}

/// The token of a `Lock-Token` field, without its angle brackets.
pub fn lock_token(head: &Head) -> Option<&[u8]> {
    head.get(Field::LockToken)?.trim_ascii().strip_prefix(b"<")?.strip_suffix(b">")
}

/// The `If` field of a request; no lists if it is absent.
pub fn lists<'a>(head: &'a Head) -> Result<Vec<List<'a>>, Refusal> {
    head.get(Field::If).map_or(Ok(Vec::new()), |field| {
        parse(field).ok_or(Refusal { status: Status::BAD_REQUEST, reason: "The If field is malformed." })
    })
}

/// Checks that one of the lists holds, where there are any. `is_so` returns whether a resource has a state, and `None` for
/// one that cannot be of this server, of which nothing holds.
pub fn check<'a>(
    lists: &[List<'a>],
    mut is_so: impl FnMut(Option<&'a [u8]>, State<'a>) -> Option<bool>,
) -> Result<(), Refusal> {
    let mut holds = |resource, condition: &Condition<'a>| {
        is_so(resource, condition.state).is_some_and(|is_so| is_so != condition.is_negated)
    };
    let mut any = |list: &List<'a>| list.conditions.iter().all(|condition| holds(list.resource, condition));
    match lists.is_empty() || lists.iter().any(&mut any) {
        true => Ok(()),
        false => refuse(Status::PRECONDITION_FAILED, "What the If field claims is not so."),
    }
}

/// The tokens of locks that the lists show: the client knows that they are there.
pub fn tokens<'a>(lists: &[List<'a>]) -> Vec<&'a [u8]> {
    let conditions = lists.iter().flat_map(|list| &list.conditions);
    let token = |condition: &Condition<'a>| match condition.state {
        State::Token(token) if !condition.is_negated => Some(token),
        _ => None,
    };
    conditions.filter_map(token).collect()
}

fn parse(field: &[u8]) -> Option<Vec<List<'_>>> {
    let (mut rest, mut resource, mut lists) = (field.trim_ascii(), None, Vec::new());
    while let [first, ..] = rest {
        match first {
            b'<' => {
                let (url, behind) = enclosed(rest, b'<', b'>')?;
                // Tagged lists and others do not mix, and a tag is about something.
                if (resource.is_none() && !lists.is_empty()) || !behind.trim_ascii_start().starts_with(b"(") {
                    return None;
                }
                (resource, rest) = (Some(url), behind.trim_ascii_start());
            }
            b'(' => {
                let (conditions, behind) = list(&rest[1..])?;
                lists.push(List { resource, conditions });
                rest = behind.trim_ascii_start();
            }
            _ => return None,
        }
    }
    (!lists.is_empty()).then_some(lists)
}

/// A list, up to and with the parenthesis at its end.
fn list(bytes: &[u8]) -> Option<(Vec<Condition<'_>>, &[u8])> {
    let (mut rest, mut conditions) = (bytes.trim_ascii_start(), Vec::new());
    loop {
        let is_negated = rest.get(..3).is_some_and(|word| word.eq_ignore_ascii_case(b"Not"));
        if is_negated {
            rest = rest[3..].trim_ascii_start();
        }
        let (state, behind) = match rest.first()? {
            b')' if !is_negated && !conditions.is_empty() => return Some((conditions, &rest[1..])),
            b'<' => enclosed(rest, b'<', b'>').map(|(token, behind)| (State::Token(token), behind))?,
            b'[' => enclosed(rest, b'[', b']').map(|(tag, behind)| (State::Tag(tag.trim_ascii()), behind))?,
            _ => return None,
        };
        conditions.push(Condition { is_negated, state });
        rest = behind.trim_ascii_start();
    }
}

/// The text between two brackets, and the rest after them.
fn enclosed(bytes: &[u8], open: u8, close: u8) -> Option<(&[u8], &[u8])> {
    let inner = bytes.strip_prefix(&[open])?;
    let end = memchr::memchr(close, inner)?;
    Some((&inner[..end], &inner[end + 1..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn if_is_read_as_it_is_written() {
        let token = |is_negated, token| Condition { is_negated, state: State::Token(token) };
        let tag = |is_negated, tag| Condition { is_negated, state: State::Tag(tag) };
        let list =
            |resource, conditions: &[Condition<'static>]| List { resource, conditions: conditions.to_vec() };
        for (field, expected) in [
            (&b"(<urn:a>)"[..], Some(vec![list(None, &[token(false, b"urn:a")])])),
            (
                b"(<urn:a> [\"t\"]) (Not <urn:b> not[W/\"u\"])",
                Some(vec![
                    list(None, &[token(false, b"urn:a"), tag(false, b"\"t\"")]),
                    list(None, &[token(true, b"urn:b"), tag(true, b"W/\"u\"")]),
                ]),
            ),
            (
                b"<http://h/a> (<x>)(<y>) </b> (<z>)",
                Some(vec![
                    list(Some(b"http://h/a"), &[token(false, b"x")]),
                    list(Some(b"http://h/a"), &[token(false, b"y")]),
                    list(Some(b"/b"), &[token(false, b"z")]),
                ]),
            ),
            (b"", None),
            (b"()", None),
            (b"(Not)", None),
            (b"(<a>", None),
            (b"(<a)", None),
            (b"<http://h/>", None),
            (b"(<a>) <b> (<c>)", None),
            (b"a", None),
        ] {
            assert_eq!(parse(field), expected, "{}", field.escape_ascii());
        }
    }

    /// `/locked` has the lock `a` and the tag `"1"`, `/free` no lock and the tag `"2"`, and others are not of this server.
    fn fact(resource: Option<&[u8]>, state: State<'_>) -> Option<bool> {
        match resource {
            None | Some(b"/locked") => Some(matches!(state, State::Token(b"a") | State::Tag(b"\"1\""))),
            Some(b"/free") => Some(matches!(state, State::Tag(b"\"2\""))),
            Some(_) => None,
        }
    }

    #[test]
    fn one_of_the_lists_has_to_hold() {
        for (field, expected) in [
            ("(<a>)", true),
            ("(<b>)", false),
            ("(<a> [\"1\"])", true),
            ("(<a> [\"2\"])", false),
            ("(<b>) ([\"1\"])", true),
            ("(Not <b>)", true),
            ("(Not <a>)", false),
            ("(Not <DAV:no-lock> <a>)", true),
            ("</free> ([\"2\"])", true),
            ("</free> (<a>)", false),
            ("</free> (<a>) </locked> (<a>)", true),
            // Nothing holds of what is elsewhere, and so not the contrary either.
            ("<http://other/> (Not <a>)", false),
            ("<http://other/> (Not <a>) </free> (Not <a>)", true),
        ] {
            let lists = parse(field.as_bytes()).unwrap();
            assert_eq!(check(&lists, fact).is_ok(), expected, "{field}");
        }
        assert_eq!(check(&[], |_, _| None), Ok(()));
    }

    #[test]
    fn tokens_are_shown_by_what_requires_them() {
        let lists = parse(b"(<a> [\"t\"]) (Not <b> <c>)").unwrap();
        assert_eq!(tokens(&lists), [b"a", b"c"]);
    }

    #[test]
    fn a_depth_is_one_that_the_method_has() {
        use Depth::{Infinity, One, Zero};
        for (field, of_file, of_directory, deep) in [
            ("", Ok(Zero), Ok(Infinity), Ok(true)),
            ("Depth: 0\r\n", Ok(Zero), Ok(Zero), Ok(false)),
            ("Depth: 1\r\n", Ok(One), Ok(One), Err(400)),
            ("Depth: Infinity\r\n", Ok(Zero), Ok(Infinity), Ok(true)),
            ("Depth: 2\r\n", Err(400), Err(400), Err(400)),
        ] {
            let text = format!("PROPFIND / HTTP/1.1\r\nHost: h\r\n{field}\r\n");
            let (head, _) = crate::request::parse(text.as_bytes()).unwrap().unwrap();
            let status = |refusal: Refusal| refusal.status.0;
            assert_eq!(propfind_depth(&head, false).map_err(status), of_file, "{field}");
            assert_eq!(propfind_depth(&head, true).map_err(status), of_directory, "{field}");
            assert_eq!(lock_is_deep(&head).map_err(status), deep, "{field}");
        }
    }
}
