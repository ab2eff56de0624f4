//! Patterns in file names: `*`, `?`, `[a-z]`, `[!a-z]`, and a backslash that escapes the next character.
//!
//! Our own, and small, because every server that took the C library's paid for it (CVE-2001-0550,
//! CVE-2001-1501, CVE-2011-0762): there is no brace expansion, no tilde and no recursion, and a match
//! takes at most `pattern × name` steps, whatever the pattern. How many *entries* a pattern may visit is
//! bounded by the [`Lister`](crate::listing::Lister).
//!
//! A pattern matches characters: UTF-8 where the name is UTF-8, else single bytes. A `*`, `?` or class at the
//! beginning does not match a leading dot, as in a shell; a pattern that begins with a dot does.

/// A pattern for one component of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Glob {
    tokens: Vec<Token>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Token {
    Literal(u32),
    AnyOne,
    AnyMany,
    Class { negated: bool, ranges: Vec<(u32, u32)> },
}

impl Glob {
    /// Compiles a pattern. Every text is one: a `[` that is never closed stands for itself.
    pub fn new(pattern: &[u8]) -> Self {
        let mut tokens = Vec::new();
        let mut rest = pattern;
        while let Some((character, after)) = split_character(rest) {
            rest = after;
            let token = match u8::try_from(character).unwrap_or(0) {
                b'*' => Token::AnyMany,
                b'?' => Token::AnyOne,
                b'[' => match parse_class(after) {
                    Some((class, after)) => {
                        rest = after;
                        class
                    }
                    None => Token::Literal(character),
                },
                b'\\' => match split_character(after) {
                    Some((escaped, after)) => {
                        rest = after;
                        Token::Literal(escaped)
                    }
                    None => Token::Literal(character),
                },
                _ => Token::Literal(character),
            };
            if token != Token::AnyMany || tokens.last() != Some(&Token::AnyMany) {
                tokens.push(token);
            }
        }
        Self { tokens }
    }

    /// Returns true if a text has anything in it that a pattern gives a meaning to.
    pub fn is_pattern(text: &[u8]) -> bool {
        text.iter().any(|byte| matches!(byte, b'*' | b'?' | b'['))
    }

    /// Returns true if every class which a pattern begins is closed; else its `[` stands for itself.
    pub fn is_closed(pattern: &[u8]) -> bool {
        let mut rest = pattern;
        while let Some((character, after)) = split_character(rest) {
            rest = match u8::try_from(character).unwrap_or(0) {
                b'\\' => split_character(after).map_or(after, |(_, after)| after),
                b'[' => match parse_class(after) {
                    Some((_, after)) => after,
                    None => return false,
                },
                _ => after,
            };
        }
        true
    }

    /// Returns true if one name, and no other, matches.
    pub fn is_literal(&self) -> bool {
        self.tokens.iter().all(|token| matches!(token, Token::Literal(_)))
    }

    /// Returns true if there may be a name which both patterns match. Of two classes that is taken for granted.
    pub fn overlaps(&self, other: &Self) -> bool {
        let (one, two) = (&self.tokens, &other.tokens);
        // Whether the rests of both patterns have a match in common.
        let mut common = vec![vec![false; two.len() + 1]; one.len() + 1];
        for at in (0..=one.len()).rev() {
            for there in (0..=two.len()).rev() {
                common[at][there] = match (one.get(at), two.get(there)) {
                    (None, None) => true,
                    (Some(Token::AnyMany), _) if common[at + 1][there] => true,
                    (_, Some(Token::AnyMany)) if common[at][there + 1] => true,
                    (Some(Token::AnyMany), Some(_)) => common[at][there + 1],
                    (Some(_), Some(Token::AnyMany)) => common[at + 1][there],
                    (Some(a), Some(b)) => a.overlaps(b) && common[at + 1][there + 1],
                    _ => false,
                };
            }
        }
        common[0][0]
    }

    /// Returns true if the pattern begins with a dot, and so may match hidden names.
    pub fn names_hidden(&self) -> bool {
        self.tokens.first() == Some(&Token::Literal(u32::from(b'.')))
    }

    /// Returns true if `name` matches, hidden or not.
    pub fn matches(&self, name: &[u8]) -> bool {
        let (mut token, mut rest) = (0, name);
        // Where to go on when what follows the last `*` does not match: one character further. Earlier
        // stars need no second try, for whatever they could give the last one can take itself.
        let mut retry: Option<(usize, &[u8])> = None;
        loop {
            match (self.tokens.get(token), split_character(rest)) {
                (Some(Token::AnyMany), _) => {
                    retry = Some((token + 1, rest));
                    token += 1;
                    continue;
                }
                (None, None) => return true,
                (Some(wanted), Some((character, after))) if wanted.matches(character) => {
                    (token, rest) = (token + 1, after);
                    continue;
                }
                _ => {}
            }
            let Some((after_star, from)) = retry else { return false };
            let Some((_, from)) = split_character(from) else { return false };
            retry = Some((after_star, from));
            (token, rest) = (after_star, from);
        }
    }
}

impl Token {
    /// Returns true if there may be a character which both match.
    fn overlaps(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Literal(one), token) | (token, Self::Literal(one)) => token.matches(*one),
            _ => true,
        }
    }

    fn matches(&self, character: u32) -> bool {
        match self {
            Self::Literal(literal) => *literal == character,
            Self::AnyOne | Self::AnyMany => true,
            Self::Class { negated, ranges } => {
                ranges.iter().any(|(low, high)| (*low..=*high).contains(&character)) != *negated
            }
        }
    }
}

/// Parses what follows a `[`: the class, and the pattern after its `]`. A `]` that comes first is a member.
fn parse_class(pattern: &[u8]) -> Option<(Token, &[u8])> {
    let negated = matches!(pattern.first(), Some(b'!' | b'^'));
    let mut rest = &pattern[usize::from(negated)..];
    let mut ranges = Vec::new();
    loop {
        if rest.first() == Some(&b']') && !ranges.is_empty() {
            return Some((Token::Class { negated, ranges }, &rest[1..]));
        }
        let (low, after) = class_member(rest)?;
        rest = after;
        let mut high = low;
        if rest.first() == Some(&b'-') && rest.get(1).is_some_and(|&next| next != b']') {
            (high, rest) = class_member(&rest[1..])?;
        }
        ranges.push((low, high));
    }
}

fn class_member(text: &[u8]) -> Option<(u32, &[u8])> {
    match text {
        [b'\\', after @ ..] if !after.is_empty() => split_character(after),
        _ => split_character(text),
    }
}

/// The first character: a Unicode one where the text begins with its UTF-8, else a byte, numbered beyond
/// all of Unicode.
fn split_character(text: &[u8]) -> Option<(u32, &[u8])> {
    const BEYOND_UNICODE: u32 = 0x11_0000;
    let (&first, rest) = text.split_first()?;
    let length = match first {
        0..=0x7f => return Some((u32::from(first), rest)),
        0xc2..=0xdf => 2,
        0xe0..=0xef => 3,
        0xf0..=0xf4 => 4,
        _ => 1,
    };
    let character = text.get(..length).and_then(|bytes| std::str::from_utf8(bytes).ok()?.chars().next());
    Some(match character {
        Some(character) => (u32::from(character), &text[length..]),
        None => (BEYOND_UNICODE + u32::from(first), rest),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn matches(pattern: &str, name: &str) -> bool {
        Glob::new(pattern.as_bytes()).matches(name.as_bytes())
    }

    #[test]
    fn patterns_match_as_in_a_shell() {
        for (pattern, name, expected) in [
            ("", "", true),
            ("", "a", false),
            ("*", "", true),
            ("*.txt", "a.txt", true),
            ("*.txt", "a.txt.gz", false),
            ("a*b*c", "a-b-b-c", true),
            ("a*b*c", "a-b-b-d", false),
            ("?", "é", true),
            ("??", "é", false),
            ("[a-c]x", "bx", true),
            ("[!a-c]x", "bx", false),
            ("[^a-c]x", "dx", true),
            ("[]]", "]", true),
            ("[!]]", "a", true),
            ("[a-]", "-", true),
            ("[é-ü]", "ö", true),
            ("[\\]]", "]", true),
            ("[abc", "[abc", true),
            ("\\*", "*", true),
            ("\\*", "a", false),
            ("\\", "\\", true),
            ("{a,b}", "a", false),
            ("{a,b}", "{a,b}", true),
        ] {
            assert_eq!(matches(pattern, name), expected, "{pattern} {name}");
        }
        assert!(Glob::new(b"?\xff[\xfe]").matches(b"\x80\xff\xfe"));
    }

    #[test]
    fn a_pattern_of_many_stars_is_no_slower_than_one() {
        // Steps of a matcher that tries everything: more than the age of the universe.
        let pattern = "*a".repeat(100) + "*b";
        let started = std::time::Instant::now();
        assert!(!matches(&pattern, &"a".repeat(255)));
        assert!(started.elapsed().as_millis() < 500);
    }

    #[test]
    fn only_wildcards_make_a_pattern() {
        assert!(!Glob::is_pattern(b"a{b}~!\\]"));
        assert!(Glob::is_pattern(b"a*") && Glob::is_pattern(b"?") && Glob::is_pattern(b"[a"));
        for (pattern, is_closed) in
            [("[a-z]x", true), ("[]]", true), ("\\[a", true), ("[a", false), ("x[", false)]
        {
            assert_eq!(Glob::is_closed(pattern.as_bytes()), is_closed, "{pattern}");
        }
        assert!(Glob::new(b".*").names_hidden() && !Glob::new(b"*").names_hidden());
    }

    /// The definition, tried every way.
    fn naive(tokens: &[Token], name: &[u8]) -> bool {
        match (tokens.split_first(), split_character(name)) {
            (None, character) => character.is_none(),
            (Some((Token::AnyMany, after)), character) => {
                naive(after, name) || character.is_some_and(|(_, rest)| naive(tokens, rest))
            }
            (Some(_), None) => false,
            (Some((token, after)), Some((character, rest))) => token.matches(character) && naive(after, rest),
        }
    }

    #[test]
    fn patterns_overlap_where_a_name_matches_both() {
        for (one, two, expected) in [
            ("keep", "k?ep", true),
            ("keep", "k*", true),
            ("keep", "kee", false),
            ("*.zip", "*.txt", false),
            ("a*", "*b", true),
            ("a*c", "ab", false),
            ("*", "", true),
            ("?", "", false),
            ("[a-c]x", "bx", true),
            ("[a-c]x", "dx", false),
            ("*a*b*c*", "x?y*", true),
        ] {
            let (one, two) = (Glob::new(one.as_bytes()), Glob::new(two.as_bytes()));
            assert_eq!((one.overlaps(&two), two.overlaps(&one)), (expected, expected), "{one:?} {two:?}");
        }
    }

    proptest! {
        #[test]
        fn it_matches_what_the_definition_matches(pattern in "[ab*?é]{0,8}", name in "[abé]{0,10}") {
            let glob = Glob::new(pattern.as_bytes());
            prop_assert_eq!(glob.matches(name.as_bytes()), naive(&glob.tokens, name.as_bytes()));
        }

        #[test]
        fn any_bytes_are_a_pattern(pattern in prop::collection::vec(any::<u8>(), 0..40), name in prop::collection::vec(any::<u8>(), 0..40)) {
            Glob::new(&pattern).matches(&name);
        }

        #[test]
        fn a_literal_matches_itself_alone(name in prop::collection::vec(any::<u8>(), 1..20), other in prop::collection::vec(any::<u8>(), 1..20)) {
            let escaped: Vec<u8> = name.iter().flat_map(|byte| if b"*?[\\".contains(byte) { vec![b'\\', *byte] } else { vec![*byte] }).collect();
            let glob = Glob::new(&escaped);
            prop_assert!(glob.matches(&name));
            prop_assert_eq!(glob.matches(&other), name == other);
        }
    }
}
