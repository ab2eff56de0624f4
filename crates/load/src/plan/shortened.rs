//! Describes what the quick form of a preset left out, so that its figures are not taken for the document's.

use super::Settings;
use crate::units::short_size;

/// A setting that makes a form shorter, and how it is told.
type Told = (&'static str, fn(&Settings) -> String);

const TOLD: [Told; 9] = [
    ("users", |step| in_a_row(&step.users, u32::to_string)),
    ("idle users", |step| step.idlers.to_string()),
    ("sizes", |step| in_a_row(&step.sizes, |&size| short_size(size))),
    ("repetitions", |step| step.repeat.to_string()),
    ("operations of a user", |step| optional(step.count)),
    ("operations in all", |step| optional(step.total)),
    ("seconds", |step| step.duration.as_secs_f64().to_string()),
    ("read rate", |step| step.read_rate.map_or_else(|| "any".to_owned(), short_size)),
    ("warm-up seconds", |step| step.warm_up.as_secs_f64().to_string()),
];

/// `users: 10 for 100, 20 for 200`, for each setting in which the steps that run differ from those in full.
pub(super) fn shortened(ran: &[Settings], full: &[Settings]) -> Vec<String> {
    let of_setting = |&(name, told): &Told| {
        let mut changes: Vec<String> = Vec::new();
        for (ran, full) in ran.iter().zip(full).map(|(ran, full)| (told(ran), told(full))) {
            let change = format!("{ran} for {full}");
            if ran != full && !changes.contains(&change) {
                changes.push(change);
            }
        }
        (!changes.is_empty()).then(|| format!("{name}: {}", changes.join(", ")))
    };
    TOLD.iter().filter_map(of_setting).collect()
}

fn in_a_row<T>(values: &[T], told: impl Fn(&T) -> String) -> String {
    values.iter().map(told).collect::<Vec<_>>().join("+")
}

fn optional(value: Option<u32>) -> String {
    value.map_or_else(|| "any".to_owned(), |value| value.to_string())
}

#[cfg(test)]
mod tests {
    use crate::plan::{Form, Plan, Preset};

    #[test]
    fn the_quick_form_says_what_it_shortened_and_the_full_one_nothing() {
        let shortened = |name: &str, quick: bool, flags: &[(&str, &str)]| {
            let preset = Preset::built_in_as(name, Form { as_published: false, quick }).unwrap();
            Plan::new("ftp://127.0.0.1:2121/", Some(&preset), flags).unwrap().quick
        };
        assert_eq!(
            shortened("waarp-exec", true, &[]),
            ["users: 10 for 100", "operations of a user: 5 for 100", "seconds: 5 for 120"]
        );
        assert_eq!(
            shortened("iitk1996-loop-change", true, &[])[..2],
            ["sizes: 64k for 1m", "repetitions: 2 for 5"]
        );
        assert!(shortened("pyftpdlib", true, &[]).contains(&"users: 20 for 200".to_owned()));
        // A flag applies to both.
        assert_eq!(shortened("waarp-exec", true, &[("users", "7")])[0], "operations of a user: 5 for 100");
        assert!(shortened("waarp-exec", false, &[]).is_empty());
    }
}
