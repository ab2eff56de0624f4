//! Points in time as FTP writes them: `YYYYMMDDHHMMSS`, and the date of an `ls` line.
//!
//! Everything is UTC, as RFC 3659 section 2.3 has it, and nothing here asks the clock: "now" is an
//! argument. The calendar is the Gregorian one, years 1 to 9999; what lies outside is written as the
//! nearest end of that range, so that a column never changes its width.

use millrace_vfs::{Civil, Timestamp};

use crate::decimal::push_two;

const DAY: i64 = 86_400;
/// Half a mean Gregorian year: `ls` shows the time of day of newer files, the year of older ones.
const RECENT: i64 = 31_556_952 / 2;
const MONTHS: [&[u8; 3]; 12] =
    [b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec"];

/// Appends `YYYYMMDDHHMMSS`: the form that every client reads. Fractions are cut off.
pub fn write(time: Timestamp, out: &mut Vec<u8>) {
    let civil = Civil::from_seconds(time.seconds);
    let (century, of_century) = ((civil.year / 100) as u8, (civil.year % 100) as u8);
    for pair in [century, of_century, civil.month, civil.day, civil.hour, civil.minute, civil.second] {
        push_two(pair, out);
    }
}

/// Parses `YYYYMMDDHHMMSS[.fraction]`, the whole of `text`.
pub fn parse(text: &[u8]) -> Option<Timestamp> {
    match parse_prefix(text)? {
        (time, []) => Some(time),
        _ => None,
    }
}

/// Parses a time at the beginning of `text` and answers what follows it, for `MFMT time path` and the
/// old `MDTM time path`.
///
/// After the digits a zone may follow as Serv-U's clients send it, `20020717210715+120`: minutes east of
/// UTC. No time is recognised where a digit follows, so a longer number is not cut in two.
pub fn parse_prefix(text: &[u8]) -> Option<(Timestamp, &[u8])> {
    let (seconds, rest) = parse_digits::<14>(text)?;
    let (nanoseconds, rest) = parse_fraction(rest)?;
    let (offset, rest) = parse_zone(rest)?;
    if rest.first().is_some_and(u8::is_ascii_digit) {
        return None;
    }
    Some((Timestamp { seconds: seconds - offset, nanoseconds }, rest))
}

/// Parses `YYYYMMDDhhmm`, the short form of `SITE UTIME`, the whole of `text`.
pub fn parse_minutes(text: &[u8]) -> Option<Timestamp> {
    match parse_digits::<12>(text)? {
        (seconds, []) => Some(Timestamp { seconds, nanoseconds: 0 }),
        _ => None,
    }
}

/// Appends the date of an `ls` line, twelve bytes: `Jan 1 12:00` for the half year before `now`, `Jan 1 2020` for older
/// and future times.
pub fn write_ls(time: Timestamp, now: Timestamp, out: &mut Vec<u8>) {
    let civil = Civil::from_seconds(time.seconds);
    out.extend_from_slice(MONTHS[usize::from(civil.month) - 1]);
    out.push(b' ');
    push_blank_padded(civil.day, out);
    out.push(b' ');
    if is_recent(time, now) {
        push_two(civil.hour, out);
        out.push(b':');
        push_two(civil.minute, out);
    } else {
        out.push(b' ');
        push_two((civil.year / 100) as u8, out);
        push_two((civil.year % 100) as u8, out);
    }
}

/// Returns true if `ls` shows the time of day of `time`, not its year.
pub fn is_recent(time: Timestamp, now: Timestamp) -> bool {
    time <= now && time.seconds > now.seconds.saturating_sub(RECENT)
}

/// Parses the date of an `ls` line: month, day, and `HH:MM` or a year. A time of day belongs to the last
/// such date that is not after `now` (by more than a day, for servers that write their local time).
pub fn parse_ls(month: &[u8], day: &[u8], clock_or_year: &[u8], now: Timestamp) -> Option<Timestamp> {
    let month = 1 + MONTHS.iter().position(|name| name.eq_ignore_ascii_case(month))? as u8;
    let day = number(day).filter(|day| *day < 32)? as u8;
    let at = |year: u64, hour: u64, minute: u64| {
        let civil = Civil {
            year: u16::try_from(year).ok()?,
            month,
            day,
            hour: u8::try_from(hour).ok()?,
            minute: u8::try_from(minute).ok()?,
            second: 0,
        };
        Some(Timestamp { seconds: civil.seconds()?, nanoseconds: 0 })
    };
    let Some(colon) = clock_or_year.iter().position(|&byte| byte == b':') else {
        return at(number(clock_or_year)?, 0, 0);
    };
    let (hour, minute) = (number(&clock_or_year[..colon])?, number(&clock_or_year[colon + 1..])?);
    let this_year = u64::from(Civil::from_seconds(now.seconds).year);
    // Eight years back, so that a 29 February is found.
    (0..=8)
        .filter_map(|back| at((this_year + 1).checked_sub(back)?, hour, minute))
        .find(|time| time.seconds <= now.seconds.saturating_add(DAY))
}

/// Parses 14 or 12 digits, `YYYYMMDDHHMMSS` or `YYYYMMDDHHMM`, into seconds.
fn parse_digits<const N: usize>(text: &[u8]) -> Option<(i64, &[u8])> {
    let (digits, rest) = text.split_first_chunk::<N>()?;
    if !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let pair = |at: usize| match digits.get(at..at + 2) {
        Some(pair) => (pair[0] - b'0') * 10 + (pair[1] - b'0'),
        None => 0,
    };
    let year = u16::from(pair(0)) * 100 + u16::from(pair(2));
    let civil =
        Civil { year, month: pair(4), day: pair(6), hour: pair(8), minute: pair(10), second: pair(12) };
    Some((civil.seconds()?, rest))
}

/// Parses `.` and digits, as many as there are; digits below a nanosecond are cut off.
fn parse_fraction(text: &[u8]) -> Option<(u32, &[u8])> {
    let Some(text) = text.strip_prefix(b".") else { return Some((0, text)) };
    let length = text.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len());
    if length == 0 {
        return None;
    }
    let digits = text[..length].iter().map(|byte| u32::from(byte - b'0')).chain(std::iter::repeat(0));
    let nanoseconds = digits.take(9).fold(0, |value, digit| value * 10 + digit);
    Some((nanoseconds, &text[length..]))
}

/// Parses `+minutes` or `-minutes`, up to a day, into seconds.
fn parse_zone(text: &[u8]) -> Option<(i64, &[u8])> {
    let sign = match text.first() {
        Some(b'+') => 1,
        Some(b'-') => -1,
        _ => return Some((0, text)),
    };
    let text = &text[1..];
    let length = text.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len());
    let minutes = number(&text[..length]).filter(|minutes| *minutes <= 24 * 60)?;
    Some((sign * minutes as i64 * 60, &text[length..]))
}

fn number(text: &[u8]) -> Option<u64> {
    let all_digits = !text.is_empty() && text.len() <= 4 && text.iter().all(u8::is_ascii_digit);
    all_digits.then(|| text.iter().fold(0, |value, byte| value * 10 + u64::from(byte - b'0')))
}

fn push_blank_padded(value: u8, out: &mut Vec<u8>) {
    out.push(if value < 10 { b' ' } else { b'0' + value / 10 });
    out.push(b'0' + value % 10);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// `0001-01-01 00:00:00` and `9999-12-31 23:59:59` in seconds from 1970.
    const FIRST: i64 = -62_135_596_800;
    const LAST: i64 = 253_402_300_799;

    fn at(seconds: i64) -> Timestamp {
        Timestamp { seconds, nanoseconds: 0 }
    }

    fn written(time: Timestamp) -> String {
        let mut out = Vec::new();
        write(time, &mut out);
        String::from_utf8(out).unwrap()
    }

    fn ls(time: i64, now: i64) -> String {
        let mut out = Vec::new();
        write_ls(at(time), at(now), &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn known_instants_are_written_as_date_u_writes_them() {
        for (seconds, expected) in [
            (0, "19700101000000"),
            (-1, "19691231235959"),
            (951_782_400, "20000229000000"),
            (1_709_210_096, "20240229123456"),
            (4_107_542_400, "21000301000000"),
            (FIRST, "00010101000000"),
            (LAST, "99991231235959"),
            (i64::MIN, "00010101000000"),
            (i64::MAX, "99991231235959"),
        ] {
            assert_eq!(written(at(seconds)), expected);
        }
        assert_eq!(written(Timestamp { seconds: 0, nanoseconds: 999_999_999 }), "19700101000000");
    }

    #[test]
    fn invalid_dates_are_refused() {
        for text in [
            "",
            "1970",
            "19700101",
            "1970010100000",
            "197001010000000",
            "00000101000000",
            "19701301000000",
            "19700001000000",
            "19700100000000",
            "19700132000000",
            "20230229000000",
            "21000229000000",
            "19700101240000",
            "19700101006000",
            "19700101000061",
            "19700101000000.",
            "19700101000000.x",
            "19700101000000 ",
            "+9700101000000",
            "19700101000000+99999",
        ] {
            assert_eq!(parse(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn a_leap_second_is_the_first_of_the_next_minute() {
        assert_eq!(parse(b"20161231235960"), parse(b"20170101000000"));
        assert_eq!(parse(b"99991231235960"), Some(at(LAST)));
    }

    #[test]
    fn a_time_before_a_path_is_split_from_it() {
        assert_eq!(parse_prefix(b"19700101000001 a b"), Some((at(1), &b" a b"[..])));
        assert_eq!(parse_prefix(b"19700101020000+120 a"), Some((at(0), &b" a"[..])));
        assert_eq!(parse_prefix(b"19700101000000-60 a"), Some((at(3600), &b" a"[..])));
        let half = Timestamp { seconds: 0, nanoseconds: 500_000_000 };
        assert_eq!(parse_prefix(b"19700101000000.5 a"), Some((half, &b" a"[..])));
        assert_eq!(
            parse_prefix(b"19700101000000.1234567899").map(|(time, _)| time.nanoseconds),
            Some(123_456_789)
        );
        assert_eq!(parse_prefix(b"197001010000001"), None);
        assert_eq!(parse_minutes(b"197001010001"), Some(at(60)));
        assert_eq!(parse_minutes(b"19700101000100"), None);
    }

    #[test]
    fn ls_shows_the_time_of_the_last_half_year_and_the_year_of_the_rest() {
        let now = 1_709_210_096; // 2024-02-29 12:34:56
        assert_eq!(ls(now, now), "Feb 29 12:34");
        assert_eq!(ls(now - RECENT + 1, now), "Aug 30 21:40");
        assert_eq!(ls(now - RECENT, now), "Aug 30  2023");
        assert_eq!(ls(now + 1, now), "Feb 29  2024");
        assert_eq!(ls(0, now), "Jan  1  1970");
        assert_eq!(ls(i64::MIN, now), "Jan  1  0001");
    }

    #[test]
    fn a_time_without_a_year_is_in_the_last_year_that_fits() {
        let now = at(1_704_067_200); // 2024-01-01 00:00
        assert_eq!(parse_ls(b"Dec", b"31", b"23:59", now), Some(at(1_704_067_200 - 60)));
        assert_eq!(parse_ls(b"Jan", b"1", b"20:00", now), Some(at(1_704_067_200 + 20 * 3600)));
        assert_eq!(parse_ls(b"feb", b"29", b"00:00", now), parse(b"20200229000000"));
        assert_eq!(parse_ls(b"Feb", b"30", b"00:00", now), None);
        assert_eq!(parse_ls(b"Feb", b"1", b"2020", now), parse(b"20200201000000"));
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(seconds in FIRST..=LAST, nanoseconds in 0..1_000_000_000u32) {
            let text = written(Timestamp { seconds, nanoseconds });
            prop_assert_eq!(parse(text.as_bytes()), Some(at(seconds)));
        }

        #[test]
        fn dates_of_ls_are_read_back(seconds in FIRST..=LAST, now in FIRST..=LAST) {
            let text = ls(seconds, now);
            let fields: Vec<&[u8]> = text.as_bytes().split(|byte| *byte == b' ').filter(|field| !field.is_empty()).collect();
            let unit = if is_recent(at(seconds), at(now)) { 60 } else { DAY };
            let back = parse_ls(fields[0], fields[1], fields[2], at(now));
            prop_assert_eq!(back, Some(at(seconds - seconds.rem_euclid(unit))), "{}", text);
        }

        #[test]
        fn any_bytes_are_a_time_or_none(text in prop::collection::vec(any::<u8>(), 0..24), digits in "[0-9.+ -]{0,24}") {
            let _ = parse_prefix(&text);
            let _ = parse_prefix(digits.as_bytes());
            let _ = parse_minutes(digits.as_bytes());
            let _ = parse_ls(&text, digits.as_bytes(), digits.as_bytes(), at(0));
        }
    }
}
