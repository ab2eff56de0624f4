//! A URL as a QR code of half blocks, for a phone that is held to the terminal.

use qrcode::QrCode;
use qrcode::render::unicode::Dense1x2;

/// White on black, whatever the terminal has.
const COLORS: &str = "\x1b[40;97m";
const RESET: &str = "\x1b[0m";

/// Returns the lines of the code; none for a URL that is too long for one.
pub(crate) fn lines(url: &str, color: bool) -> Vec<String> {
    let Ok(code) = QrCode::new(url) else { return Vec::new() };
    // Light modules are drawn, as most terminals are dark.
    let text = code.render::<Dense1x2>().dark_color(Dense1x2::Light).light_color(Dense1x2::Dark).build();
    let (before, after) = if color { (COLORS, RESET) } else { ("", "") };
    text.lines().map(|line| format!("{before}{line}{after}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_is_a_square_of_half_blocks_with_a_light_margin() {
        let lines = lines("http://192.168.1.20:8080/", false);
        let width = lines[0].chars().count();
        assert_eq!(width, lines.len() * 2 - usize::from(lines.len() * 2 > width), "two rows a line");
        assert!(lines.iter().all(|line| line.chars().count() == width));
        assert_eq!(lines[0], "█".repeat(width));
        assert!(super::lines("http://h/", true)[0].starts_with(COLORS));
        assert!(super::lines(&"x".repeat(10_000), false).is_empty());
    }
}
