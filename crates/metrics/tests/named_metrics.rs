//! `docs/metrics.md`, the rules and the dashboard name metrics that there are.

use std::fs;
use std::path::{Path, PathBuf};

use millrace_metrics::{Kind, ROWS, Row, page};

fn document(name: &str) -> (PathBuf, String) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name);
    let text = fs::read_to_string(&path).unwrap();
    (path, text)
}

#[test]
fn the_table_of_metrics_is_that_of_the_code() {
    let (path, text) = document("metrics.md");
    let marker = "<!-- metrics -->\n\n";
    let at = text.find(marker).expect("the page has a place for the table") + marker.len();
    let old: usize =
        text[at..].split_inclusive('\n').take_while(|line| line.starts_with('|')).map(str::len).sum();
    let mut made = text.clone();
    made.replace_range(at..at + old, &page());
    if std::env::var_os("MILLRACE_GOLDEN").is_some_and(|what| what == "write") {
        fs::write(path, made).unwrap();
    } else {
        let hint = "MILLRACE_GOLDEN=write cargo test --workspace --test named_metrics writes it";
        assert!(made == text, "docs/metrics.md differs from the table of metrics: {hint}");
    }
}

/// Finds the row of a name, which may be that of a part of a histogram.
fn row(name: &str) -> Option<&'static Row> {
    let is_part = |row: &&Row| {
        let rest = name.strip_prefix(row.name);
        row.kind == Kind::Histogram && rest.is_some_and(|rest| ["_bucket", "_sum", "_count"].contains(&rest))
    };
    let is_it = |row: &&Row| row.kind != Kind::Histogram && row.name == name;
    ROWS.iter().find(is_it).or_else(|| ROWS.iter().find(is_part))
}

/// Says which metrics, labels and values of labels of a text there are none of.
fn faults(text: &str) -> (usize, Vec<String>) {
    let is_of_name = |character: char| character.is_ascii_alphanumeric() || character == '_';
    let text = text.replace("\\\"", "\"");
    let (mut found, mut faults) = (0, Vec::new());
    for prefix in ["millrace_", "process_"] {
        for (at, _) in text.match_indices(prefix) {
            if text[..at].ends_with(is_of_name) {
                continue;
            }
            let end = text[at..].find(|character| !is_of_name(character)).map_or(text.len(), |end| at + end);
            let (name, rest) = (&text[at..end], &text[end..]);
            found += 1;
            let Some(row) = row(name) else {
                faults.push(format!("there is no {name}"));
                continue;
            };
            let matchers =
                rest.strip_prefix('{').and_then(|rest| rest.split_once('}')).map_or("", |one| one.0);
            for (label, value) in matchers.split(',').filter_map(|matcher| matcher.split_once('=')) {
                let is_of_the_target = ["instance", "job"].contains(&label);
                let value = value.trim_start_matches('~').trim_matches('"');
                let known = row.labels.iter().find(|known| known.name == label);
                let has_value = |values: &[&str]| values.is_empty() || values.contains(&value);
                if !is_of_the_target && !known.is_some_and(|known| has_value(known.values)) {
                    faults.push(format!("{name} has no {label}=\"{value}\""));
                }
            }
        }
    }
    (found, faults)
}

#[test]
fn rules_and_the_dashboard_name_metrics_that_there_are() {
    for name in ["alerts.yml", "grafana.json"] {
        let (found, faults) = faults(&document(name).1);
        assert!(found > 10 && faults.is_empty(), "{name}: {faults:?}");
    }
}

#[test]
fn the_dashboard_shows_every_metric() {
    let board = document("grafana.json").1;
    let missing: Vec<_> = ROWS.iter().map(|row| row.name).filter(|name| !board.contains(name)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn a_name_that_is_none_is_found() {
    for (text, fault) in [
        ("rate(millrace_login_total[5m])", "there is no millrace_login_total"),
        ("millrace_worker_turn_seconds", "there is no millrace_worker_turn_seconds"),
        ("millrace_logins_total{result=\"fail\"}", "millrace_logins_total has no result=\"fail\""),
        ("millrace_logins_total{user=\"u\",job=\"j\"}", "millrace_logins_total has no user=\"u\""),
    ] {
        assert_eq!(faults(text), (1, vec![fault.to_owned()]));
    }
    let right = "a_millrace_b millrace_logins_total{result=\"failed\"} millrace_worker_turn_seconds_count";
    assert_eq!(faults(right), (2, Vec::new()));
}
