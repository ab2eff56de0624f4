//! Periods of time, in words.

use std::time::Duration;

/// `30 s`, `5 min`: the largest unit that needs no fraction.
pub(crate) fn time(period: Duration) -> String {
    let milliseconds = period.as_millis();
    let units = [(86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1000, "s")];
    let fits = |(size, _): &&(u128, &str)| milliseconds >= *size && milliseconds.is_multiple_of(*size);
    match units.iter().find(fits) {
        Some((size, unit)) => format!("{} {unit}", milliseconds / size),
        None if milliseconds == 0 => "no time".to_owned(),
        None => format!("{milliseconds} ms"),
    }
}
