//! The page of `millrace bench --search`.

use super::page;
use super::parts::{figure, grid, list, machine, section, table};
use super::plot::{Axis, Scale, Series, lines};
use super::words::{date, escaped, of_count, of_rate};
use crate::search::text;
use crate::search::{Capacity, Sought, Trial};

/// Settings that the title says, or the search itself.
const SHOWN: [&str; 5] = ["ops", "size", "mode", "users", "server-pid"];
/// As `Criterion::default` has it.
const WELL: &str = "where nothing fails, users get on average at least 75 % of the pace that one alone gets, the slowest \
    hundredth of them, too, and at most 1 % get less than half of the median";

/// The page.
pub fn render(capacity: &Capacity) -> String {
    let title = format!("{}: {}", capacity.target, capacity.sought.most());
    let about = format!("{}: {}. {}.", capacity.plan, capacity.what, date(capacity.began));
    let mut body = section("In short", &list("lead card", text::search_sentences(capacity)));
    body += &grid(&figure("Rate against what was asked", &rates(&capacity.trials, unit(capacity))));
    body += &section("Every load, in order", &trials(&capacity.trials, unit(capacity)));
    let told = capacity.settings.iter().filter(|setting| !SHOWN.contains(&setting.0.as_str()));
    let told: Vec<String> = told.map(|(name, value)| format!("--{name} {value}")).collect();
    let settings = [
        ("server", capacity.target.clone()),
        ("each load", format!("{}: {}", capacity.what, told.join(" "))),
        ("it goes well", well(capacity)),
        ("measured by", format!("millrace {}", env!("CARGO_PKG_VERSION"))),
    ];
    body += &machine(&capacity.machine, &settings, &capacity.command);
    page("Millrace bench", &title, &about, &body)
}

/// When a load went well.
fn well(capacity: &Capacity) -> String {
    match capacity.slo {
        Some(slo) => format!("where nothing fails and {} is at most {} ms", slo.percentile, slo.limit_ms),
        None => WELL.to_owned(),
    }
}

/// Loads that went well, and that did not.
fn rates(trials: &[Trial], unit: &'static str) -> String {
    let line = |name: &str, color: usize, is_well: bool| {
        let some = trials.iter().filter(|trial| trial.objection.is_none() == is_well);
        let mut points: Vec<(f64, f64)> =
            some.map(|trial| (f64::from(trial.users), trial.ops_per_s)).collect();
        points.sort_by(|one, other| one.0.total_cmp(&other.0));
        Series { name: name.to_owned(), color, points, knee: None }
    };
    let both = [line("it went well", 0, true), line("it did not", 4, false)];
    let some: Vec<Series> = both.into_iter().filter(|series| !series.points.is_empty()).collect();
    let users = Axis { label: unit, scale: Scale::Log };
    lines(users, Axis { label: "operations a second", scale: Scale::Linear }, &some)
}

/// The unit of what was asked of each load.
fn unit(capacity: &Capacity) -> &'static str {
    if capacity.sought == Sought::Users { "users" } else { "operations a second" }
}

fn trials(trials: &[Trial], unit: &str) -> String {
    let rows = trials.iter().map(|trial| {
        vec![
            match trial.purpose.name() {
                "" => "to find it".to_owned(),
                purpose => escaped(purpose),
            },
            of_count(u64::from(trial.users)),
            of_rate(trial.ops_per_s),
            // One column less: the table is to fit a telephone.
            format!("<span class=\"said\">{}</span>", escaped(&what_came(trial))),
        ]
    });
    table(&["purpose", unit, "ops/s", "what came of it"], &rows.collect::<Vec<_>>())
}

fn what_came(trial: &Trial) -> String {
    match &trial.objection {
        Some(objection) => format!("{objection} ({})", trial.bound),
        None => trial
            .latency_ms
            .map_or_else(|| "it went well".to_owned(), |ms| format!("it went well, in {ms:.2} ms")),
    }
}
