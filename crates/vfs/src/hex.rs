//! Hexadecimal digits, in lower case when written, in either case when read.

use std::fmt;

/// Displays bytes as two digits each.
#[derive(Debug, Clone, Copy)]
pub struct Hex<'a>(pub &'a [u8]);

impl fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Returns the value of a digit, `None` if it is none.
pub fn digit(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).map(|value| value as u8)
}

/// Reads two digits a byte; `None` for anything else, or half a byte.
pub fn decode(text: &[u8]) -> Option<Vec<u8>> {
    let pair = |pair: &[u8]| match pair {
        &[high, low] => Some(digit(high)? << 4 | digit(low)?),
        _ => None,
    };
    text.chunks(2).map(pair).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_not_whole_bytes_is_refused() {
        for text in ["0", "0g", "+1", "abc", "0 "] {
            assert_eq!(decode(text.as_bytes()), None, "{text}");
        }
        assert_eq!(decode(b"00fFA0"), Some(vec![0, 0xff, 0xa0]));
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            prop_assert_eq!(decode(Hex(&bytes).to_string().as_bytes()), Some(bytes));
        }
    }
}
