//! Sizes, counts and rates as people write them.

/// Bytes as people write them: `1k`, `16m`.
pub fn short_size(bytes: u64) -> String {
    let units = [(30, "g"), (20, "m"), (10, "k")];
    let unit = units.iter().find(|(bits, _)| bytes >= 1 << bits && bytes.is_multiple_of(1 << bits));
    unit.map_or_else(|| bytes.to_string(), |(bits, name)| format!("{}{name}", bytes >> bits))
}

/// The same in words: `1 KiB`, `1666 bytes`.
pub fn size_in_words(bytes: u64) -> String {
    let short = short_size(bytes);
    let units = [('k', "KiB"), ('m', "MiB"), ('g', "GiB")];
    let found = units.iter().find_map(|(short_unit, unit)| Some((short.strip_suffix(*short_unit)?, unit)));
    found.map_or_else(|| counted(bytes, "byte"), |(count, unit)| format!("{count} {unit}"))
}

/// Users as one counts them: `1 user`, `2 users`.
pub fn users(count: u32) -> String {
    counted(count.into(), "user")
}

/// A count with its noun: `1 load`, `2 loads`.
pub fn counted(count: u64, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

/// Three significant digits, no unit.
pub fn rate(value: f64) -> String {
    match value {
        value if value >= 100.0 => format!("{value:.0}"),
        value if value >= 10.0 => format!("{value:.1}"),
        value => format!("{value:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_in_words_have_their_unit() {
        let sizes = [1, 1666, 1 << 10, 10 << 20, 1_024_000, 2 << 30];
        let words = ["1 byte", "1666 bytes", "1 KiB", "10 MiB", "1000 KiB", "2 GiB"];
        assert_eq!(sizes.map(size_in_words), words);
    }

    #[test]
    fn sizes_are_short_where_they_are_round() {
        assert_eq!(
            ["0", "1000", "1k", "1536", "16m", "2g"].map(String::from),
            [0, 1000, 1024, 1536, 16 << 20, 2 << 30].map(short_size)
        );
    }
}
