//! A hot upgrade while a collector is told: each span comes once, and no count is lost where two processes can be told apart.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use serde_json::Value;

use crate::collector::{Collector, Post, TAKEN};
use crate::otlp::{listen, pairs, series_of};
use crate::site::{Site, eventually};

/// Which process a post is of, by its identity.
fn identity(post: &Post) -> String {
    pairs(&post.body["resourceMetrics"][0]["resource"])["service.instance.id"].clone()
}

/// When the counters of a post have begun.
fn start_time(post: &Post) -> u64 {
    let metrics = &post.body["resourceMetrics"][0]["scopeMetrics"][0]["metrics"];
    let sums = metrics.as_array().unwrap().iter().filter_map(|metric| metric["sum"]["dataPoints"].as_array());
    let starts: BTreeSet<&str> =
        sums.flatten().map(|point| point["startTimeUnixNano"].as_str().unwrap()).collect();
    assert_eq!(starts.len(), 1, "all counters begin with their process");
    starts.first().unwrap().parse().unwrap()
}

/// Downloads by FTP that a post tells of.
fn downloads(post: &Post) -> u64 {
    let series = series_of(post);
    let key = "millrace_transfers_total{protocol=\"ftp\",direction=\"download\",result=\"complete\"}";
    series.get(key).copied().unwrap_or(0.0) as u64
}

/// Starts a server, has it upgraded with a session that goes on, and has both serve: nine files, each once.
fn upgrade(name: &str, keys: &str) -> (Collector, Site) {
    let collector = Collector::start(listen(), |_| Some(TAKEN));
    let endpoint = &collector.address;
    let keys = format!("grace = \"1h\"\n[otlp]\nendpoint = \"http://{endpoint}\"\ninterval = \"1s\"\n{keys}");
    let mut site = Site::start(name, &keys);
    for number in 0..9 {
        fs::write(site.folder.join(format!("files/f{number}")), "content").unwrap();
    }
    let mut first = site.log_in();
    eventually("the old one tells of itself", || !collector.posts("/v1/metrics").is_empty());
    (0..3).for_each(|number| assert_eq!(first.download(&format!("RETR f{number}")), "content"));
    let upgraded = site.ctl(&["upgrade"]);
    assert!(upgraded.status.success(), "{}{}", String::from_utf8_lossy(&upgraded.stderr), site.read("log"));
    site.hear_ready();
    let mut second = site.log_in();
    (3..5).for_each(|number| assert_eq!(first.download(&format!("RETR f{number}")), "content"));
    (5..9).for_each(|number| assert_eq!(second.download(&format!("RETR f{number}")), "content"));
    let is_told = |posts: &[Post]| posts.iter().any(|post| downloads(post) == 4);
    eventually("the new one tells of itself", || is_told(&collector.posts("/v1/metrics")));
    first.say("QUIT", "221");
    eventually("the old one ends", || site.child.try_wait().unwrap().is_some());
    second.say("QUIT", "221");
    assert!(site.ctl(&["stop"]).status.success());
    eventually("all spans come", || collector.named("FTP session").len() == 2);
    (collector, site)
}

/// Each download has come once, those of a session in one trace.
fn check_spans(collector: &Collector) {
    let spans = collector.spans();
    let ids: BTreeSet<_> = spans.iter().filter_map(|span| span["spanId"].as_str()).collect();
    assert_eq!(ids.len(), spans.len(), "a span came twice");
    let downloads = collector.named("FTP download");
    let traces: BTreeMap<String, &Value> =
        downloads.iter().map(|span| (pairs(span)["file.path"].clone(), &span["traceId"])).collect();
    assert_eq!((downloads.len(), traces.len()), (9, 9), "{traces:?}");
    let of = |number: usize| traces[&format!("/f{number}")];
    assert!((1..5).all(|number| of(number) == of(0)), "the session that went on is one trace: {traces:?}");
    assert!((6..9).all(|number| of(number) == of(5)) && of(5) != of(0), "{traces:?}");
}

#[test]
fn two_processes_that_can_be_told_apart_both_tell_until_they_end() {
    let (collector, _site) = upgrade("otlp-upgrade", "");
    check_spans(&collector);
    let mut last: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    for post in collector.posts("/v1/metrics") {
        let (start, count) = (start_time(&post), downloads(&post));
        let before = last.insert(identity(&post), (start, count)).unwrap_or((start, 0));
        assert!(before.0 == start && before.1 <= count, "{before:?}, then {start} {count}");
    }
    let counts: Vec<u64> = last.values().map(|(_, count)| *count).collect();
    assert_eq!((counts.len(), counts.iter().sum::<u64>()), (2, 9), "{last:?}");
}

#[test]
fn of_two_processes_with_one_identity_the_old_one_is_silent_and_the_counters_begin_anew() {
    let keys = "attributes = { \"service.instance.id\" = \"web-1\" }\n";
    let (collector, _site) = upgrade("otlp-upgrade-one", keys);
    check_spans(&collector);
    let posts = collector.posts("/v1/metrics");
    assert!(posts.iter().all(|post| identity(post) == "web-1"));
    let starts: Vec<u64> = posts.iter().map(start_time).collect();
    assert!(starts.is_sorted(), "the old one told of itself behind the new one: {starts:?}");
    assert_eq!(starts.iter().collect::<BTreeSet<_>>().len(), 2, "{starts:?}");
    assert_eq!(downloads(posts.last().unwrap()), 4);
}
