//! Bars: figures of several servers, one below the other. They are boxes of the page, not a picture: they follow its
//! width, and their numbers can be copied.

use std::fmt::Write;

use super::words::escaped;

/// One of several.
#[derive(Debug, Clone)]
pub(super) struct Bar {
    pub(super) name: String,
    pub(super) color: usize,
    pub(super) value: Option<f64>,
    /// Markup: the number and its explanation.
    pub(super) words: String,
}

/// A card of bars, the longest of which takes all the room there is.
pub(super) fn card(title: &str, unit: &str, bars: &[Bar]) -> String {
    let most = bars.iter().filter_map(|bar| bar.value).fold(0.0, f64::max);
    let (title, unit) = (escaped(title), escaped(unit));
    let mut out = format!(
        "<div class=\"card\"><h3>{title} <small class=\"soft\">{unit}</small></h3>\n<div class=\"bars\">"
    );
    for Bar { name, color, value, words } in bars {
        let share = value.filter(|_| most > 0.0).map(|value| (value / most).clamp(0.0, 1.0) * 100.0);
        let fill = share.map_or_else(String::new, |share| format!("<i style=\"width:{share:.1}%\"></i>"));
        let _ = writeln!(
            out,
            "<span class=\"who\">{}</span><span class=\"track c{}\">{fill}</span>\
             <span class=\"num\">{words}</span>",
            escaped(name),
            color % 8
        );
    }
    out + "</div></div>\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_as_long_as_their_figures_say() {
        let bar = |name: &str, value| Bar { name: name.to_owned(), color: 9, value, words: "1".to_owned() };
        let bars = [bar("a<b", Some(50.0)), bar("b", Some(200.0)), bar("none", None)];
        let card = card("Logins", "a second", &bars);
        let widths: Vec<&str> =
            card.split("width:").skip(1).map(|rest| rest.split('%').next().unwrap()).collect();
        assert_eq!(widths, ["25.0", "100.0"]);
        assert!(card.contains("a&lt;b") && card.contains("track c1"), "{card}");
        assert!(!super::card("x", "y", &[bar("zero", Some(0.0))]).contains("NaN"));
    }
}
