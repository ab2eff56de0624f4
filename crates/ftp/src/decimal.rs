//! Decimal numbers into byte buffers, without allocation: the inner loop of a listing.

/// Appends a number below 100 as two digits.
pub(crate) fn push_two(value: u8, out: &mut Vec<u8>) {
    debug_assert!(value < 100);
    out.extend_from_slice(&[b'0' + value / 10, b'0' + value % 10]);
}

/// Appends a number.
pub(crate) fn push_decimal(value: u64, out: &mut Vec<u8>) {
    push_right_aligned(value, 0, out);
}

/// Appends a number with blanks before it, so that it fills `width` bytes (at most 20) or more.
pub(crate) fn push_right_aligned(mut value: u64, width: usize, out: &mut Vec<u8>) {
    let mut text = [b' '; 20]; // u64::MAX has 20 digits
    let mut at = text.len();
    loop {
        at -= 1;
        text[at] = b'0' + (value % 10) as u8;
        value /= 10;
        if value == 0 {
            break;
        }
    }
    out.extend_from_slice(&text[at.min(text.len().saturating_sub(width))..]);
}

/// Parses a number of decimal digits that fits; nothing else.
pub(crate) fn parse_decimal(text: &[u8]) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    text.iter().try_fold(0u64, |value, byte| {
        let digit = byte.checked_sub(b'0').filter(|digit| *digit < 10)?;
        value.checked_mul(10)?.checked_add(u64::from(digit))
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn numbers_are_written_as_the_standard_library_writes_them(value: u64, width in 0..20usize) {
            let mut out = Vec::new();
            push_right_aligned(value, width, &mut out);
            prop_assert_eq!(String::from_utf8_lossy(&out), format!("{value:width$}"));
            prop_assert_eq!(parse_decimal(value.to_string().as_bytes()), Some(value));
        }
    }

    #[test]
    fn a_number_that_does_not_fit_is_none() {
        assert_eq!(parse_decimal(b"18446744073709551616"), None);
        assert_eq!(parse_decimal(b""), None);
        assert_eq!(parse_decimal(b"1 "), None);
    }
}
