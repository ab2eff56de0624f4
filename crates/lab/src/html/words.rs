//! Words and numbers of a page.
//!
//! A number that a table shows is written by [`number`]: rounded for the eye, and in full, as the JSON has it, in the
//! element's `value`. A test holds these against the JSON.

use std::fmt::Display;
use std::time::{Duration, UNIX_EPOCH};

use crate::report::text::ms;
use millrace_load::units::rate;

/// Text that cannot end an element or an attribute.
pub(super) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// A number of the report, and how it is shown.
pub(super) fn number(value: f64, shown: impl Display) -> String {
    format!(r#"<data value="{value}">{shown}</data>"#)
}

/// A rate, or any other number of which three digits matter.
pub(super) fn of_rate(value: f64) -> String {
    number(value, rate(value))
}

/// Milliseconds.
pub(super) fn of_ms(value: f64) -> String {
    number(value, ms(value))
}

/// A count.
pub(super) fn of_count(value: u64) -> String {
    number(value as f64, value)
}

/// For an axis: 1500 is 1.5k.
pub(super) fn short(value: f64) -> String {
    let (scaled, unit) = match value.abs() {
        size if size >= 1e9 => (value / 1e9, "G"),
        size if size >= 1e6 => (value / 1e6, "M"),
        size if size >= 1e4 => (value / 1e3, "k"),
        _ => (value, ""),
    };
    let digits = match scaled.abs() {
        size if size >= 100.0 || size == 0.0 => 0,
        size if size >= 10.0 => 2,
        size if size >= 0.1 => 3,
        _ => 4,
    };
    let text = format!("{scaled:.digits$}");
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("{text}{unit}")
}

/// A time in seconds since 1970 as a date and a time of day (UTC).
pub(super) fn date(seconds: u64) -> String {
    let since = UNIX_EPOCH + Duration::from_secs(seconds);
    let days = since.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() / 86_400) as i64;
    // H. Hinnant: chrono-compatible low-level date algorithms, civil_from_days.
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    let (hour, minute) = (seconds / 3600 % 24, seconds / 60 % 60);
    format!("{year}-{month:02}-{day:02} {hour:02}:{minute:02} UTC")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_are_short() {
        let shown = [0.0, 0.05, 1.5, 20.0, 1500.0, 25_000.0, 3e6].map(short);
        assert_eq!(shown, ["0", "0.05", "1.5", "20", "1500", "25k", "3M"]);
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        assert_eq!(date(0), "1970-01-01 00:00 UTC");
        assert_eq!(date(1_795_274_100), "2026-11-21 15:15 UTC");
        assert_eq!(date(951_782_400), "2000-02-29 00:00 UTC");
    }

    #[test]
    fn numbers_keep_their_value() {
        assert_eq!(of_ms(1234.5678), r#"<data value="1234.5678">1235</data>"#);
        assert_eq!(escaped("a<b>\"&"), "a&lt;b&gt;&quot;&amp;");
    }
}
