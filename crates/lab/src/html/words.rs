//! Words and numbers of a page.
//!
//! A number that a table shows is written by [`number`]: rounded for the eye, and in full, as the JSON has it, in the
//! element's `value`. A test holds these against the JSON.

use std::fmt::Display;

use crate::report::text::ms;
use millrace_load::units::rate;
use millrace_vfs::Civil;

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
    let Civil { year, month, day, hour, minute, .. } =
        Civil::from_seconds(i64::try_from(seconds).unwrap_or(i64::MAX));
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
