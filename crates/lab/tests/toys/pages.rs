//! Pages say what the JSON says.

use std::collections::HashSet;

use millrace_lab::html;
use millrace_lab::race::{Entrant, Race, RaceReport, Settings};
use millrace_lab::report::{Report, markdown, summary, text};
use millrace_lab::run::run;
use millrace_load::plan::Plan;
use millrace_load::progress::Silent;
use serde_json::Value;

use crate::server::{Fault, Toy};

/// Every number of a document, as bits: they are equal or they are not.
fn numbers(value: &Value, into: &mut HashSet<u64>) {
    match value {
        Value::Number(number) => {
            into.extend(number.as_f64().map(f64::to_bits));
        }
        Value::Array(items) => items.iter().for_each(|item| numbers(item, into)),
        Value::Object(fields) => fields.values().for_each(|field| numbers(field, into)),
        _ => {}
    }
}

/// Holds every number that a page shows against the JSON; answers how many there are.
fn holds_only_what_json_holds(page: &str, json: &str) -> usize {
    let mut known = HashSet::new();
    numbers(&serde_json::from_str(json).unwrap(), &mut known);
    let shown: Vec<f64> = page
        .split("<data value=\"")
        .skip(1)
        .map(|rest| rest.split_once('"').unwrap().0.parse().unwrap())
        .collect();
    for number in &shown {
        assert!(known.contains(&number.to_bits()), "the page shows {number}, which the JSON has nowhere");
    }
    shown.len()
}

#[test]
fn a_runs_page_has_the_numbers_of_its_json() {
    let toy = Toy::start(Fault::Nothing);
    let flags = [("ops", "noop,retr,idle"), ("users", "1,4"), ("duration", "60ms"), ("warm-up", "0")];
    let report = run(&Plan::new(&toy.url(), None, &flags).unwrap(), &Silent).unwrap();
    let page = html::run(&report);
    assert!(holds_only_what_json_holds(&page, &report.json()) > 60);
    let again = Report::parse(&report.json()).unwrap();
    assert_eq!(html::run(&again), page, "a run that is read again is the same");
    assert_eq!(text::render(&again, false), text::render(&report, false));
    for part in ["In short", "Every figure", "Rate against users", "<svg", "Machine and settings"] {
        assert!(page.contains(part), "{part}");
    }
}

#[test]
fn a_races_page_has_the_numbers_of_its_json() {
    let toy = Toy::start(Fault::Nothing);
    let entrants = [toy.url(), toy.url()].map(|url| Entrant::parse(&url).unwrap()).to_vec();
    let flags = [("ops", "noop,login"), ("users", "2"), ("duration", "20ms"), ("warm-up", "0")];
    let settings = Settings { blocks: Some(3), ..Settings::default() };
    let report = Race::new(entrants, None, &flags, settings).unwrap().run(&Silent).unwrap();
    let page = html::race(&report);
    assert!(holds_only_what_json_holds(&page, &report.json()) > 30);
    assert!(page.contains("Every load at a glance") && page.contains("class=\"interval"));
    let mut again = RaceReport::parse(&report.json()).unwrap();
    assert_eq!(html::race(&again), page, "a race that is read again is the same");
    let comparisons = again.scenarios.iter_mut().flat_map(|scenario| &mut scenario.standings);
    for ratio in
        comparisons.flat_map(|standing| &mut standing.comparisons).filter_map(|one| one.ratio.as_mut())
    {
        (ratio.low, ratio.high) = (0.0001, 12_569_267_184_836_702.0);
    }
    let page = html::race(&again);
    assert!(
        page.contains(">&gt;100</data>") && !page.contains(">12569267184836702<"),
        "no end is of sixteen digits"
    );
}

#[test]
fn every_form_says_the_same_sentences() {
    let toy = Toy::start(Fault::Nothing);
    let flags =
        [("ops", "noop,retr"), ("users", "1,4,8"), ("count", "5"), ("duration", "5m"), ("warm-up", "0")];
    let mut report = run(&Plan::new(&toy.url(), None, &flags).unwrap(), &Silent).unwrap();
    for (cell, rate) in report.cells.iter_mut().zip([100.0, 950.0, 1000.0]) {
        cell.ops_per_s = rate;
    }
    let sentences = summary::sentences(&report);
    assert_eq!(
        sentences[0].split_once("; ").unwrap().0,
        "8 users get 1000 answers to noop a second",
        "{sentences:?}"
    );
    assert!(sentences[0].ends_with("4 get nine tenths of that: more only wait longer."), "{sentences:?}");
    assert!(sentences.contains(&"All 130 operations ended well.".to_owned()), "{sentences:?}");
    let unfolded = |text: String| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let forms = [text::render(&report, false), markdown::render(&report), html::run(&report)].map(unfolded);
    for (form, sentence) in forms.iter().flat_map(|form| sentences.iter().map(move |one| (form, one))) {
        assert!(form.contains(sentence.as_str()), "{sentence} is not in {form}");
    }
}

/// Of repetitions and of more users the load is named once; no card is empty, and nothing is said twice.
#[test]
fn a_page_names_a_load_once_and_has_no_card_without_a_picture() {
    let toy = Toy::start(Fault::Nothing);
    // A user each has one operation: no curve has two points.
    let flags = [("ops", "noop"), ("users", "1"), ("count", "1"), ("repeat", "3"), ("duration", "5m")];
    let report = run(&Plan::new(&toy.url(), None, &flags).unwrap(), &Silent).unwrap();
    let page = html::run(&report);
    assert_eq!(
        page.matches("<th>Answers (by NOOP)</th>").count(),
        2 + 2 * 3,
        "two tables of figures, two of rows"
    );
    for figure in page.split("<figure").skip(1) {
        assert!(figure.split("</figure>").next().unwrap().contains("<svg"), "{figure}");
    }
    let url = toy.url();
    let entrants = [&url, &url].map(|url| Entrant::parse(url).unwrap()).to_vec();
    let settings = Settings { blocks: Some(3), ..Settings::default() };
    let short = [("ops", "noop"), ("users", "1"), ("count", "1"), ("duration", "5m")];
    let mut race = Race::new(entrants, None, &short, settings).unwrap().run(&Silent).unwrap();
    race.sentinel.words = "The machine was restless, as this test has it.".to_owned();
    race.warnings.push(format!("{} An earlier build warned of it, too.", race.sentinel.words));
    let page = html::race(&RaceReport::parse(&race.json()).unwrap());
    assert_eq!(page.matches("The machine was restless").count(), 1, "{page}");
}
