//! The gate's results for a terminal: at most 100 columns.

use std::fmt::Write;

use super::GateOutcome;
use super::baseline::{BaselineComparison, Says};
use super::metric::METRICS;
use super::threshold::Ruling;
use crate::terminal::cut;

const HEAD: &str = "against the baseline            metric           then       now  change            says";

/// Comparisons as a table, a line each, and below it why something cannot be told.
pub fn comparisons(comparisons: &[BaselineComparison], cautions: &[String]) -> String {
    let mut out = match comparisons {
        [] => {
            "cannot tell: the baseline has no figure of the same operation, size, mode and users\n".to_owned()
        }
        _ => format!("{HEAD}\n"),
    };
    let mut reasons: Vec<&str> = Vec::new();
    for comparison in comparisons {
        let unit = METRICS.iter().find(|metric| metric.name == comparison.metric).map(|metric| metric.unit);
        let show = |value: f64| unit.map_or_else(String::new, |unit| unit.show(value));
        let _ = writeln!(
            out,
            "{:<31} {:<10} {:>10} {:>9}  {:<17} {}",
            comparison.figure,
            comparison.metric,
            show(comparison.then),
            show(comparison.now),
            change(comparison),
            comparison.says.name(),
        );
        reasons.extend(comparison.why.as_deref().filter(|_| comparison.says == Says::CannotTell));
    }
    reasons.sort_unstable();
    reasons.dedup();
    for reason in reasons {
        let _ = writeln!(out, "{}", cut(&format!("cannot tell: {reason}")));
    }
    for caution in cautions {
        let _ = writeln!(out, "{}", cut(&format!("! {caution}")));
    }
    out
}

/// The results of thresholds, a line each.
pub fn rulings(rulings: &[Ruling]) -> String {
    rulings.iter().fold(String::new(), |mut out, ruling| {
        let word = match ruling.outcome {
            GateOutcome::Passed => "passed",
            GateOutcome::Inconclusive => "unclear",
            GateOutcome::Failed => "FAILED",
        };
        let _ = writeln!(out, "{}", cut(&format!("{word:<8} {}", ruling.text)));
        out
    })
}

/// `-29 % -31..-27`: the change, and between which ends the truth lies.
fn change(comparison: &BaselineComparison) -> String {
    let percent = |ratio: f64| (ratio - 1.0) * 100.0;
    match &comparison.ratio {
        Some(ratio) => {
            format!("{:+.0} % {:+.0}..{:+.0}", percent(ratio.middle), percent(ratio.low), percent(ratio.high))
        }
        None if comparison.then > 0.0 => format!("{:+.0} %", percent(comparison.now / comparison.then)),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use millrace_stats::Interval;

    #[test]
    fn a_comparison_is_a_line_that_fits() {
        let comparison = BaselineComparison {
            figure: "retr 1000m pasv @1000, 10000 users".to_owned(),
            metric: "server-us",
            then: 1234.5,
            now: 864.0,
            ratio: Some(Interval { low: 0.69, middle: 0.7, high: 0.73 }),
            says: Says::CannotTell,
            why: Some("the client was at its limit".to_owned()),
        };
        let nothing = comparisons(&[], &[]);
        assert!(nothing.starts_with("cannot tell: the baseline has no figure of the same"), "{nothing}");
        let text = comparisons(&[comparison.clone(), comparison], &["the kernel was 6, and is 7".to_owned()]);
        assert!(text.contains(" -30 % -31..-27 ") && text.matches("at its limit").count() == 1, "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    }
}
