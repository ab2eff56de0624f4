//! Plots as SVG that a page contains: lines over two axes, and intervals of ratios.
//!
//! Colors are the style sheet's, so that a plot follows the page into the dark.

use std::fmt::Write;

use super::words::{escaped, short};

const WIDTH: f64 = 480.0;
const HEIGHT: f64 = 270.0;
const LEFT: f64 = 58.0;
const RIGHT: f64 = 14.0;
const TOP: f64 = 26.0;
const BOTTOM: f64 = 42.0;

/// The width of a character where the page is narrow and the style sheet enlarges the text.
const LETTER: f64 = 8.2;
/// Between two words.
const SPACE: f64 = 9.0;

/// An axis.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Axis<'a> {
    /// The quantity, with its unit.
    pub(super) label: &'a str,
    pub(super) scale: Scale,
}

/// How values become places.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scale {
    /// From 0.
    Linear,
    /// Equal factors take equal room.
    Log,
    /// Numbers of things that are counted from 1.
    Ordinal,
    /// Shares below 1: 0.9, 0.99 and 0.999 lie equally far apart.
    Nines,
}

/// A line: its name, its color's number, and its points from left to right.
#[derive(Debug, Clone)]
pub(super) struct Series {
    pub(super) name: String,
    pub(super) color: usize,
    pub(super) points: Vec<(f64, f64)>,
    /// A point with a ring around it.
    pub(super) knee: Option<usize>,
}

/// Lines over two axes, and the key to them; nothing where no line has two points: a lone dot says less than its number,
/// which the tables have.
pub(super) fn lines(x: Axis<'_>, y: Axis<'_>, series: &[Series]) -> String {
    let series: Vec<&Series> = series.iter().filter(|line| !line.points.is_empty()).collect();
    if series.iter().all(|line| line.points.len() < 2) {
        return String::new();
    }
    plot(x, y, &series) + &key(&series)
}

fn plot(x: Axis<'_>, y: Axis<'_>, series: &[&Series]) -> String {
    let across = series.iter().flat_map(|line| line.points.iter().map(|point| point.0));
    let up = series.iter().flat_map(|line| line.points.iter().map(|point| point.1));
    let (Some(columns), Some(rows)) = (Span::of(across, x.scale), Span::of(up, y.scale)) else {
        return String::new();
    };
    let at_x = |value: f64| LEFT + columns.place(value) * (WIDTH - LEFT - RIGHT);
    let at_y = |value: f64| HEIGHT - BOTTOM - rows.place(value) * (HEIGHT - TOP - BOTTOM);
    let mut out =
        format!(r#"<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{}">"#, escaped(y.label));
    for tick in rows.ticks() {
        let at = at_y(tick);
        let _ = write!(
            out,
            r#"<line class="axis" x1="{LEFT}" x2="{:.1}" y1="{at:.1}" y2="{at:.1}"/><text x="{:.1}" y="{:.1}" text-anchor="end">{}</text>"#,
            WIDTH - RIGHT,
            LEFT - 6.0,
            at + 4.0,
            rows.words(tick)
        );
    }
    for Tick { at, middle, words } in
        apart(columns.ticks().into_iter().map(|tick| (at_x(tick), columns.words(tick))))
    {
        let (bottom, below) = (HEIGHT - BOTTOM, HEIGHT - BOTTOM + 17.0);
        let _ = write!(
            out,
            r#"<line class="axis" x1="{at:.1}" x2="{at:.1}" y1="{bottom:.1}" y2="{:.1}"/><text x="{middle:.1}" y="{below:.1}" text-anchor="middle">{words}</text>"#,
            bottom + 4.0,
        );
    }
    let middle = (LEFT + WIDTH - RIGHT) / 2.0;
    let _ = write!(
        out,
        r#"<text x="{middle:.1}" y="{:.1}" text-anchor="middle">{}</text><text x="4" y="13">{}</text>"#,
        HEIGHT - 5.0,
        escaped(x.label),
        escaped(y.label)
    );
    for line in series {
        let _ = write!(out, r#"<g class="c{}">"#, line.color % 8);
        let path = line.points.iter().map(|(x, y)| format!("{:.1},{:.1}", at_x(*x), at_y(*y)));
        let _ = write!(out, r#"<polyline class="l" points="{}"/>"#, path.collect::<Vec<_>>().join(" "));
        // Of a dense curve single points would be a smear.
        if line.points.len() <= 40 {
            for (x, y) in &line.points {
                let title = format!("{}: {}, {}", line.name, short(*x), short(*y));
                let _ = write!(
                    out,
                    r#"<circle class="d" r="3" cx="{:.1}" cy="{:.1}"><title>{}</title></circle>"#,
                    at_x(*x),
                    at_y(*y),
                    escaped(&title)
                );
            }
        }
        if let Some((x, y)) = line.knee.and_then(|at| line.points.get(at)) {
            let _ = write!(out, r#"<circle class="knee" r="8" cx="{:.1}" cy="{:.1}"/>"#, at_x(*x), at_y(*y));
        }
        out.push_str("</g>");
    }
    out + "</svg>"
}

/// A tick below a plot, and the middle of its words: within the picture.
struct Tick {
    at: f64,
    middle: f64,
    words: String,
}

/// Of ticks from left to right, those whose words do not run into one another: the rightmost first.
fn apart(ticks: impl DoubleEndedIterator<Item = (f64, String)>) -> Vec<Tick> {
    let (mut kept, mut free) = (Vec::new(), WIDTH + SPACE);
    for (at, words) in ticks.rev() {
        let half = words.chars().count() as f64 * LETTER / 2.0;
        let middle = at.min(WIDTH - half);
        if middle + half + SPACE <= free {
            free = middle - half;
            kept.push(Tick { at, middle, words });
        }
    }
    kept
}

fn key(series: &[&Series]) -> String {
    let entries = series
        .iter()
        .map(|line| format!(r#"<span class="c{}"><i></i>{}</span>"#, line.color % 8, escaped(&line.name)));
    format!(r#"<div class="key">{}</div>"#, entries.collect::<String>())
}

/// A ratio's interval around 1, between a tenth and ten times; `margin` is the band in which it makes no difference.
pub(super) fn interval(low: f64, middle: f64, high: f64, margin: f64, color: usize) -> String {
    const LENGTH: f64 = 150.0;
    // The ends leave room for a dot.
    let at = |ratio: f64| LENGTH * (0.5 + 0.46 * ratio.clamp(0.1, 10.0).log10());
    let (band, wide) = (at(1.0 / (1.0 + margin)), at(1.0 + margin) - at(1.0 / (1.0 + margin)));
    format!(
        r#"<svg class="interval c{}" viewBox="0 0 150 20" role="img" aria-label="interval"><rect class="band" x="{band:.1}" y="0" width="{wide:.1}" height="20"/><line class="one" x1="75" x2="75" y1="0" y2="20"/><line class="l" x1="{:.1}" x2="{:.1}" y1="10" y2="10"/><circle class="d" r="4.5" cx="{:.1}" cy="10"/></svg>"#,
        color % 8,
        at(low),
        at(high),
        at(middle)
    )
}

/// Which values an axis goes through.
struct Span {
    low: f64,
    high: f64,
    scale: Scale,
}

impl Span {
    fn of(values: impl Iterator<Item = f64>, scale: Scale) -> Option<Self> {
        let fits = |value: &f64| value.is_finite() && (matches!(scale, Scale::Linear) || *value > 0.0);
        let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
        for value in values.filter(fits) {
            (low, high) = (low.min(value), high.max(value));
        }
        if low > high {
            return None;
        }
        let (low, high) = match scale {
            Scale::Linear if low >= 0.0 => (0.0, if high > 0.0 { high * 1.06 } else { 1.0 }),
            Scale::Linear => (low, high.max(low + 1.0)),
            Scale::Log if high > low * 1.5 => (low, high),
            Scale::Log => (low / 2.0, high * 2.0),
            Scale::Ordinal => (low - 0.4, high + 0.4),
            Scale::Nines => (0.0, high.max(0.9)),
        };
        Some(Self { low, high, scale })
    }

    /// From 0 to 1.
    fn place(&self, value: f64) -> f64 {
        let on = |value: f64| match self.scale {
            Scale::Linear | Scale::Ordinal => value,
            Scale::Log => value.max(self.low).ln(),
            Scale::Nines => -(1.0 - value.min(self.high)).max(1e-9).log10(),
        };
        let (low, high) = (on(self.low), on(self.high));
        ((on(value) - low) / (high - low)).clamp(0.0, 1.0)
    }

    fn ticks(&self) -> Vec<f64> {
        match self.scale {
            Scale::Linear => linear_ticks(self.low, self.high, round_step(self.high - self.low)),
            Scale::Ordinal => {
                let step = ((self.high - self.low) / 12.0).ceil().max(1.0);
                let ticks = linear_ticks(self.low, self.high, step);
                ticks.into_iter().filter(|tick| *tick >= 1.0).collect()
            }
            Scale::Log => log_ticks(self.low, self.high),
            Scale::Nines => {
                [0.0, 0.5, 0.9, 0.99, 0.999, 0.9999].into_iter().filter(|tick| *tick <= self.high).collect()
            }
        }
    }

    fn words(&self, tick: f64) -> String {
        match self.scale {
            Scale::Nines => format!("{} %", short(tick * 100.0)),
            _ => short(tick),
        }
    }
}

/// A round number of which there are two to five in a span.
fn round_step(span: f64) -> f64 {
    let rough = span / 5.0;
    let power = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].map(|factor| factor * power).into_iter().find(|step| *step >= rough);
    step.unwrap_or(rough)
}

/// Multiples of a step, of which the first is not below `low`.
fn linear_ticks(low: f64, high: f64, step: f64) -> Vec<f64> {
    let first = (low / step).ceil() as i64;
    (first..).map(|at| at as f64 * step).take_while(|tick| *tick <= high).collect()
}

/// Powers of ten; where these are few, with 2 and 5 between them; where they are many, every second.
fn log_ticks(low: f64, high: f64) -> Vec<f64> {
    let decades = high.log10() - low.log10();
    let between: &[f64] = if decades < 3.2 { &[1.0, 2.0, 5.0] } else { &[1.0] };
    let every = if decades > 7.0 { 2 } else { 1 };
    let powers = (low.log10().floor() as i32..=high.log10().ceil() as i32).step_by(every);
    let ticks = powers.flat_map(|power| between.iter().map(move |factor| factor * 10f64.powi(power)));
    ticks.filter(|tick| (low * 0.999..=high * 1.001).contains(tick)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_few() {
        let linear = |low, high| linear_ticks(low, high, round_step(high - low));
        assert_eq!(linear(0.0, 9.0), [0.0, 2.0, 4.0, 6.0, 8.0]);
        assert_eq!(linear(0.0, 100.0), [0.0, 20.0, 40.0, 60.0, 80.0, 100.0]);
        assert_eq!(linear(0.0, 26.0), [0.0, 10.0, 20.0]);
        let blocks = Span::of([1.0, 3.0].into_iter(), Scale::Ordinal).unwrap();
        assert_eq!(blocks.ticks(), [1.0, 2.0, 3.0]);
        assert_eq!(log_ticks(1.0, 1e4), [1.0, 10.0, 100.0, 1000.0, 1e4]);
        assert_eq!(log_ticks(0.9, 6.0), [1.0, 2.0, 5.0]);
    }

    #[test]
    fn places_are_within_the_plot() {
        for scale in [Scale::Linear, Scale::Ordinal, Scale::Log, Scale::Nines] {
            let span = Span::of([0.1, 0.5, 0.99].into_iter(), scale).unwrap();
            for value in [0.0, 0.1, 0.5, 0.99, 1.0, 7.0] {
                assert!((0.0..=1.0).contains(&span.place(value)), "{scale:?} {value}");
            }
        }
        assert!(Span::of([f64::NAN].into_iter(), Scale::Linear).is_none());
    }

    #[test]
    fn nothing_to_show_is_no_plot() {
        let axis = Axis { label: "x", scale: Scale::Log };
        assert_eq!(lines(axis, axis, &[]), "");
    }

    #[test]
    fn words_below_a_plot_stay_apart_and_inside() {
        let shares = [0.0, 0.5, 0.9, 0.99, 0.999, 0.9999];
        for high in [0.5, 0.95, 0.9995, 0.99999, 0.9999999] {
            let span = Span::of([high].into_iter(), Scale::Nines).unwrap();
            let at_x = |value: f64| LEFT + span.place(value) * (WIDTH - LEFT - RIGHT);
            let kept = apart(
                shares
                    .into_iter()
                    .filter(|tick| *tick <= span.high)
                    .map(|tick| (at_x(tick), span.words(tick))),
            );
            let half = |tick: &Tick| tick.words.chars().count() as f64 * LETTER / 2.0;
            assert!(kept.len() > 1 && kept.iter().all(|tick| tick.middle + half(tick) <= WIDTH), "{high}");
            // From right to left.
            let far = |pair: &[Tick]| pair[1].middle + half(&pair[1]) < pair[0].middle - half(&pair[0]);
            assert!(kept.windows(2).all(far), "{high}");
        }
    }

    #[test]
    fn a_single_point_is_no_plot_and_what_has_none_is_not_in_the_key() {
        let axis = |label| Axis { label, scale: Scale::Linear };
        let series = |name: &str, points: &[(f64, f64)]| Series {
            name: name.to_owned(),
            color: 0,
            points: points.to_vec(),
            knee: None,
        };
        let one = lines(axis("seconds"), axis("ms"), &[series("1 user", &[(0.2, 4.5)]), series("none", &[])]);
        assert_eq!(one, "");
        let both = [series("server", &[]), series("client", &[(1.0, 1.0), (2.0, 1.0)])];
        let two = lines(axis("users"), axis("us"), &both);
        assert!(two.contains("</i>client</span>") && !two.contains("server"), "{two}");
    }

    #[test]
    fn names_cannot_leave_the_picture() {
        let axis = Axis { label: "x", scale: Scale::Linear };
        let series = Series {
            name: "<script>".to_owned(),
            color: 0,
            points: vec![(1.0, 1.0), (2.0, 1.0)],
            knee: Some(0),
        };
        let plot = lines(axis, axis, &[series]);
        assert!(!plot.contains("<script>") && plot.contains("class=\"knee\""));
    }
}
