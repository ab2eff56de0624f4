//! Lengths of time, as people write them.

use std::time::Duration;

/// Reads `500ms`, `30s`, `5m`, `2h`, `7d`; a number alone counts seconds.
pub fn parse(text: &str) -> Option<Duration> {
    let end = text.find(|char: char| !char.is_ascii_digit()).unwrap_or(text.len());
    let (digits, unit) = text.split_at(end);
    let milliseconds = match unit.trim_start() {
        "ms" => 1,
        "" | "s" => 1000,
        "m" | "min" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(milliseconds).map(Duration::from_millis)
}

/// Returns `30 s`, `5 min`: the largest unit that needs no fraction.
pub fn in_words(period: Duration) -> String {
    let milliseconds = period.as_millis();
    let units = [(86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1000, "s")];
    let fits = |(size, _): &&(u128, &str)| milliseconds >= *size && milliseconds.is_multiple_of(*size);
    match units.iter().find(fits) {
        Some((size, unit)) => format!("{} {unit}", milliseconds / size),
        None if milliseconds == 0 => "no time".to_owned(),
        None => format!("{milliseconds} ms"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn periods_take_units() {
        let seconds = |seconds| Some(Duration::from_secs(seconds));
        let table = [
            ("30", seconds(30)),
            ("30s", seconds(30)),
            ("5m", seconds(300)),
            ("5 min", seconds(300)),
            ("2h", seconds(7200)),
            ("1d", seconds(86_400)),
            ("0", seconds(0)),
            ("250ms", Some(Duration::from_millis(250))),
            ("", None),
            ("s", None),
            ("half an hour", None),
            ("1h30m", None),
            ("-5s", None),
            ("99999999999999999d", None),
        ];
        for (text, expected) in table {
            assert_eq!(parse(text), expected, "{text:?}");
        }
    }
}
