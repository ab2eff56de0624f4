//! The fields that WebDAV adds to requests: `If`, `Depth`, `Timeout` (RFC 4918 section 10).

use std::time::Duration;

use crate::request::{Field, Head};
use crate::{Refusal, Status};

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
}
