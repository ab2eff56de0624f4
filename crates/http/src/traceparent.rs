//! `traceparent`: which trace a request is a part of (W3C Trace Context). It is read without an allocation.
//!
//! The invariant: whatever a client sends is understood as the specification says, or as if there were no such field.

use crate::{Field, Head};

/// What a caller says of the trace that it calls from. Anyone can say so: it proves nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceParent {
    /// The number of the trace; not zero.
    pub trace: [u8; 16],
    /// The number of the span that has called; not zero.
    pub span: [u8; 8],
    /// Whether the caller records it.
    pub is_sampled: bool,
}

/// Bytes of the parts that are known: `00-`, 32 digits, `-`, 16 digits, `-`, 2 digits.
const KNOWN: usize = 55;

/// The version that no later one has.
const NO_VERSION: u8 = 0xff;

/// The flag of a trace that is recorded.
const SAMPLED: u8 = 1;

impl TraceParent {
    /// Returns what a request says; nothing where it says so more than once.
    pub fn of(head: &Head) -> Option<Self> {
        let mut values = head.all(Field::TraceParent);
        let value = values.next()?;
        match values.next() {
            None => Self::parse(value),
            Some(_) => None,
        }
    }

    /// Reads the value of the field. A later version may have more behind what is known of it; this one may not.
    pub fn parse(value: &[u8]) -> Option<Self> {
        let (known, more) = value.split_first_chunk::<KNOWN>()?;
        let [version] = digits(&known[..2])?;
        let is_whole = match (version, more.first()) {
            (NO_VERSION, _) => false,
            (_, None) => true,
            (0, Some(_)) => false,
            (_, Some(&next)) => next == b'-',
        };
        let is_parted = [2, 35, 52].iter().all(|&at| known[at] == b'-');
        let (trace, span) = (digits(&known[3..35])?, digits(&known[36..52])?);
        let [flags] = digits(&known[53..])?;
        let is_sampled = flags & SAMPLED != 0;
        let is_good = is_whole && is_parted && trace != [0; 16] && span != [0; 8];
        is_good.then_some(Self { trace, span, is_sampled })
    }
}

/// Reads digits of hexadecimal numbers, two a byte. Capital letters are none.
fn digits<const COUNT: usize>(text: &[u8]) -> Option<[u8; COUNT]> {
    let mut bytes = [0; COUNT];
    let (pairs, _) = text.as_chunks::<2>();
    for (byte, &[high, low]) in bytes.iter_mut().zip(pairs) {
        *byte = digit(high)? << 4 | digit(low)?;
    }
    Some(bytes)
}

fn digit(character: u8) -> Option<u8> {
    match character {
        b'0'..=b'9' => Some(character - b'0'),
        b'a'..=b'f' => Some(character - b'a' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::request::parse;

    const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
    const SPAN: &str = "b7ad6b7169203331";

    fn read(value: &str) -> Option<TraceParent> {
        TraceParent::parse(value.as_bytes())
    }

    #[test]
    fn a_caller_names_a_trace_and_a_span_and_says_whether_it_records_them() {
        let parent = read(&format!("00-{TRACE}-{SPAN}-01")).unwrap();
        assert_eq!(u128::from_be_bytes(parent.trace), 0x0af7_6519_16cd_43dd_8448_eb21_1c80_319c);
        assert_eq!(u64::from_be_bytes(parent.span), 0xb7ad_6b71_6920_3331);
        for (flags, is_sampled) in [("00", false), ("01", true), ("02", false), ("ff", true), ("fe", false)] {
            assert_eq!(
                read(&format!("00-{TRACE}-{SPAN}-{flags}")).unwrap().is_sampled,
                is_sampled,
                "{flags}"
            );
        }
    }

    #[test]
    fn a_later_version_may_say_more() {
        let cc = format!("cc-{TRACE}-{SPAN}-01");
        for good in [cc.clone(), format!("{cc}-"), format!("{cc}-what-comes"), cc.replace("cc-", "01-")] {
            assert_eq!(read(&good), read(&format!("00-{TRACE}-{SPAN}-01")), "{good}");
        }
        assert_eq!(read(&format!("{cc}.what-comes")), None);
    }

    #[test]
    fn what_is_malformed_is_as_if_it_were_not_there() {
        let good = format!("00-{TRACE}-{SPAN}-01");
        for bad in [
            String::new(),
            "00".to_owned(),
            good.replacen("00", "ff", 1),
            good.replacen("00", "0", 1),
            good.replacen("00", "0x", 1),
            good.replacen("00", "CC", 1),
            format!("00-{}-{SPAN}-01", "0".repeat(32)),
            format!("00-{TRACE}-{}-01", "0".repeat(16)),
            format!("00-{}-{SPAN}-01", TRACE.to_uppercase()),
            format!("00-{TRACE}-{}-01", SPAN.to_uppercase()),
            format!("00-{TRACE}-{SPAN}-0A"),
            format!("00-{}-{SPAN}-01", &TRACE[1..]),
            format!("00-{TRACE}0-{SPAN}-01"),
            format!("00-{TRACE}-{}-01", &SPAN[1..]),
            format!("00-{TRACE}-{SPAN}-1"),
            format!("00-{TRACE}-{SPAN}-001"),
            format!("00-{TRACE}-{SPAN}"),
            format!("{good}-"),
            format!("{good}-more"),
            format!("{good},{good}"),
            format!(" {good}"),
            good.replace('-', "_"),
            good.replace(TRACE, &TRACE.replace('7', "g")),
        ] {
            assert_eq!(read(&bad), None, "{bad}");
        }
    }

    #[test]
    fn a_request_says_it_once() {
        let line = format!("TraceParent:  00-{TRACE}-{SPAN}-01 \r\n");
        let of = |lines: &str| {
            let text = format!("GET / HTTP/1.1\r\nHost: a\r\n{lines}\r\n");
            TraceParent::of(&parse(text.as_bytes()).unwrap().unwrap().0)
        };
        assert!(of(&line).is_some_and(|parent| parent.is_sampled));
        assert_eq!(of(""), None);
        assert_eq!(of(&line.repeat(2)), None, "not even where both say the same");
        assert_eq!(of("tracestate: a=b\r\n"), None);
    }

    proptest! {
        /// What is understood is what was written, and nothing panics.
        #[test]
        fn whatever_comes_is_read_in_one_way_or_not(value in "[0-9a-fA-F-]{50,60}|[ -~]{0,60}|0[0-2]-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}(-.{0,9})?") {
            if let Some(TraceParent { trace, span, is_sampled }) = read(&value) {
                let (trace, span) = (u128::from_be_bytes(trace), u64::from_be_bytes(span));
                let flags = u8::from_str_radix(&value[53..55], 16).unwrap();
                prop_assert_eq!(&value[2..53], format!("-{trace:032x}-{span:016x}-"));
                prop_assert!(trace != 0 && span != 0 && is_sampled == (flags % 2 == 1));
                prop_assert!(!value.starts_with("ff") && (value.len() == 55 || !value.starts_with("00")));
            }
        }
    }
}
