//! Dates as HTTP writes them (RFC 9110 section 5.6.7): `Sun, 06 Nov 1994 08:49:37 GMT`.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The length of a date as it is written.
pub const LENGTH: usize = 29;

/// The latest date that has four digits for its year.
const LAST: u64 = 253_402_300_799;

/// Writes a number of seconds since 1970. Times outside 1970 to 9999 are clamped.
pub fn write(seconds: i64, out: &mut Vec<u8>) {
    use std::io::Write;
    let seconds = u64::try_from(seconds).unwrap_or(0).min(LAST);
    let _ = write!(out, "{}", httpdate::HttpDate::from(UNIX_EPOCH + Duration::from_secs(seconds)));
}

/// Reads a date in any of the three forms; seconds since 1970.
pub fn parse(text: &[u8]) -> Option<i64> {
    let text = std::str::from_utf8(text).ok()?;
    let time: SystemTime = httpdate::parse_http_date(text).ok()?;
    i64::try_from(time.duration_since(UNIX_EPOCH).ok()?.as_secs()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_three_forms_are_one_moment() {
        for text in
            ["Sun, 06 Nov 1994 08:49:37 GMT", "Sunday, 06-Nov-94 08:49:37 GMT", "Sun Nov  6 08:49:37 1994"]
        {
            assert_eq!(parse(text.as_bytes()), Some(784_111_777), "{text}");
        }
        let mut text = Vec::new();
        write(784_111_777, &mut text);
        assert_eq!(text, b"Sun, 06 Nov 1994 08:49:37 GMT");
    }

    #[test]
    fn invalid_dates_are_none() {
        for text in ["", "yesterday", "0", "Sun, 32 Nov 1994 08:49:37 GMT", "\u{ff}"] {
            assert_eq!(parse(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn the_length_is_the_same_for_every_moment() {
        for seconds in [i64::MIN, -1, 0, 784_111_777, i64::MAX] {
            let mut text = Vec::new();
            write(seconds, &mut text);
            assert_eq!(text.len(), LENGTH, "{seconds}");
        }
    }
}
