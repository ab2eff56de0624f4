//! A collector of OpenTelemetry gets the metrics of a scrape and a span for each line of the logs; and one that is away, slow
//! or wrong holds nothing up.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::collector::{Answers, Collector, Post, TAKEN, check};
use crate::counting::{objects, serve_clients};
use crate::site::{Site, eventually};

const SECRET: &str = "Bearer of-many-characters";

pub(crate) fn listen() -> TcpListener {
    TcpListener::bind("127.0.0.1:0").unwrap()
}

/// Starts a collector, and a server that tells it.
fn start(name: &str, answers: Answers) -> (Collector, Site) {
    let collector = Collector::start(listen(), answers);
    let keys = format!(
        "[otlp]\nendpoint = \"http://{}/\"\ninterval = \"1s\"\nheaders = {{ Authorization = \"{SECRET}\" }}\n\
         attributes = {{ \"service.instance.id\" = \"web-1\" }}\n",
        collector.address
    );
    let site = Site::start(name, &keys);
    (collector, site)
}

/// Attributes as pairs.
pub(crate) fn pairs(holder: &Value) -> BTreeMap<String, String> {
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let pair = |one: &Value| {
        let (_, value) = one["value"].as_object().unwrap().iter().next().unwrap();
        (one["key"].as_str().unwrap().to_owned(), text(value))
    };
    holder["attributes"].as_array().unwrap().iter().map(pair).collect()
}

/// The series of a message, as Prometheus writes them, with those of histograms that buckets make.
pub(crate) fn series_of(post: &Post) -> BTreeMap<String, f64> {
    let mut series = BTreeMap::new();
    let number = |value: &Value| value.as_f64().unwrap_or_else(|| value.as_str().unwrap().parse().unwrap());
    for metric in post.body["resourceMetrics"][0]["scopeMetrics"][0]["metrics"].as_array().unwrap() {
        let data = ["gauge", "sum", "histogram"].map(|kind| metric[kind]["dataPoints"].as_array());
        for point in data.into_iter().flatten().flatten() {
            // Their order is that of the table, and lost in a map: no metric has two labels in another order.
            let labels =
                point["attributes"].as_array().unwrap().iter().map(|label| {
                    format!("{}={}", label["key"].as_str().unwrap(), label["value"]["stringValue"])
                });
            let labels: Vec<String> = labels.collect();
            let mut add = |suffix: &str, more: Option<String>, value: f64| {
                let labels: Vec<String> = labels.iter().cloned().chain(more).collect();
                let labels =
                    if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
                series.insert(format!("{}{suffix}{labels}", metric["name"].as_str().unwrap()), value);
            };
            let Some(buckets) = point["bucketCounts"].as_array() else {
                let value = if point["asInt"].is_null() { &point["asDouble"] } else { &point["asInt"] };
                add("", None, number(value));
                continue;
            };
            let bounds = point["explicitBounds"].as_array().unwrap().iter();
            let bounds = bounds.map(|bound| format!("le=\"{:?}\"", bound.as_f64().unwrap()));
            let mut sum = 0.0;
            for (bound, bucket) in bounds.chain(["le=\"+Inf\"".to_owned()]).zip(buckets) {
                sum += number(bucket);
                add("_bucket", Some(bound), sum);
            }
            assert_eq!(number(&point["count"]), sum);
            add("_count", None, sum);
            add("_sum", None, number(&point["sum"]));
        }
    }
    series
}

#[test]
fn the_collector_gets_what_a_scrape_and_the_logs_tell() {
    let (collector, mut site) = start("otlp", |_| Some(TAKEN));
    serve_clients(&site);
    // The first reading has them asked.
    eventually("disks are read", || {
        site.scrape().keys().any(|key| key.starts_with("millrace_disk_free_bytes"))
    });
    let (scraped, before) = (site.scrape(), collector.posts("/v1/metrics").len());
    // The first of these may have been read before the scrape.
    eventually("metrics are sent", || collector.posts("/v1/metrics").len() > before + 1);
    let sent = series_of(collector.posts("/v1/metrics").last().unwrap());
    site.stop();
    let (log, access) = (objects(&site.read("log")), objects(&site.read("access")));

    let posts = collector.posts("/v1/metrics");
    for Post { head, body, .. } in posts.iter().chain(&collector.posts("/v1/traces")) {
        assert!(
            head.contains("\ncontent-type: application/json\r") && head.contains("\nuser-agent: millrace/")
        );
        assert!(head.contains(&format!("\nauthorization: {}\r", SECRET.to_lowercase())), "{head}");
        let is_metrics = body["resourceMetrics"].is_array();
        check(if is_metrics { "ExportMetricsServiceRequest" } else { "ExportTraceServiceRequest" }, body);
        let resource =
            pairs(&body[if is_metrics { "resourceMetrics" } else { "resourceSpans" }][0]["resource"]);
        assert_eq!(resource["service.name"], "millrace");
        assert_eq!(resource["service.instance.id"], "web-1");
        assert!(resource.contains_key("service.version") && resource.contains_key("host.name"));
    }
    assert!(!site.read("log").contains(SECRET));

    let lacks = |one: &BTreeMap<String, f64>, other: &BTreeMap<String, f64>| -> Vec<String> {
        other.keys().filter(|key| !one.contains_key(*key)).cloned().collect()
    };
    assert_eq!((lacks(&sent, &scraped), lacks(&scraped, &sent)), (vec![], vec![]));
    assert!(sent.len() > 400, "{}", sent.len());
    for name in
        ["millrace_transfer", "millrace_http_", "millrace_ftp_", "millrace_logins_", "millrace_connections_"]
    {
        let of = |series: &BTreeMap<String, f64>| -> Vec<_> {
            series.iter().filter(|(key, _)| key.starts_with(name)).map(|(k, v)| (k.clone(), *v)).collect()
        };
        assert_eq!(of(&sent), of(&scraped));
    }

    let spans = collector.spans();
    let told: Vec<_> = spans.iter().map(|span| (span["name"].as_str().unwrap(), pairs(span))).collect();
    let is_transfer =
        |event: &&Value| ["download", "upload", "listing"].iter().any(|name| event["event"] == *name);
    let transfers: Vec<&Value> = log.iter().filter(is_transfer).collect();
    let expect = |protocol: &str, of: &[&Value], key: &str| {
        let (lines, sum) = (of.len(), of.iter().map(|line| line["bytes"].as_u64().unwrap()).sum::<u64>());
        let is_meant =
            |pairs: &BTreeMap<_, _>| pairs["network.protocol.name"] == protocol && pairs.contains_key(key);
        let spans = told.iter().filter(|(_, pairs)| is_meant(pairs));
        let bytes: Vec<u64> = spans.map(|(_, pairs)| pairs[key].parse().unwrap()).collect();
        assert_eq!((bytes.len(), bytes.iter().sum::<u64>()), (lines, sum), "{protocol}");
        assert!(lines > 8, "{lines}");
    };
    expect("ftp", &transfers, "millrace.transfer.bytes");
    expect("http", &access.iter().collect::<Vec<_>>(), "http.response.body.size");
    for (event, result) in [("login", "success"), ("login-failed", "failed")] {
        let lines = log.iter().filter(|line| line["event"] == event).count();
        let spans = told
            .iter()
            .filter(|(_, pairs)| pairs.get("millrace.login.result").is_some_and(|told| told == result));
        assert_eq!(spans.count(), lines, "{event}");
        assert!(lines > 0, "{event}");
    }
    let ended = log.iter().filter(|line| line["event"] == "disconnected").count();
    assert_eq!(collector.named("FTP session").len(), ended);
    let find = |name: &str, key: &str, value: &str| {
        let found =
            told.iter().find(|(span, pairs)| *span == name && pairs.get(key).is_some_and(|v| v == value));
        found.map(|(_, pairs)| pairs.clone()).unwrap_or_else(|| panic!("no {name} with {key} {value}"))
    };
    let upload = find("FTP upload", "file.path", "/up");
    assert_eq!((&*upload["user.name"], &*upload["millrace.transfer.result"]), ("u", "complete"));
    let put = find("PUT", "url.path", "/put");
    assert_eq!((&*put["millrace.transfer.bytes"], &*put["http.response.status_code"]), ("5", "201"));
    assert_eq!(find("HTTP", "http.request.method_original", "BREW")["http.request.method"], "_OTHER");
    let (start, end) = (&spans[0]["startTimeUnixNano"], &spans[0]["endTimeUnixNano"]);
    assert!(start.as_str() <= end.as_str() && start.as_str().unwrap().len() == 19, "{start} {end}");
    read_by_google(&posts.last().unwrap().body, &collector.posts("/v1/traces")[0].body);
}

/// Has the official definitions read messages. Where they are missing, says so; a failure where clients are required.
fn read_by_google(metrics: &Value, traces: &Value) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/metrics/otlp_check.py");
    let python = Command::new("otlp-python").arg(script).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let mut child = match python {
        Ok(child) => child,
        Err(error) => {
            let is_required = std::env::var_os("MILLRACE_REQUIRE_CLIENTS").is_some_and(|value| value != "0");
            assert!(!is_required, "otlp-python: {error}");
            let _ = writeln!(std::io::stderr(), "left out: otlp-python: {error}");
            return;
        }
    };
    let both = json!({ "metrics": metrics, "traces": traces });
    child.stdin.take().unwrap().write_all(both.to_string().as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let counts: Value = serde_json::from_slice(&output.stdout).unwrap();
    let all = |value: &Value| value.as_array().unwrap().len();
    assert!(output.status.success());
    assert_eq!(counts["metrics"], all(&metrics["resourceMetrics"][0]["scopeMetrics"][0]["metrics"]));
    assert_eq!(counts["spans"], all(&traces["resourceSpans"][0]["scopeSpans"][0]["spans"]));
}

#[test]
fn a_collector_that_is_away_is_warned_of_once_and_told_again_when_it_is_back() {
    let dead = listen();
    let address = dead.local_addr().unwrap();
    drop(dead);
    let site =
        Site::start("otlp-away", &format!("[otlp]\nendpoint = \"http://{address}\"\ninterval = \"1s\"\n"));
    fs::write(site.folder.join("files/f"), "content").unwrap();
    let warnings = |text: &str| site.read("log").matches(text).count();
    site.log_in().download("RETR f");
    for signal in ["metrics", "traces"] {
        let text = format!("OTLP, {signal} to http://{address}/v1/{signal}: ");
        eventually("there is no warning", || warnings(&text) > 0);
    }
    assert_eq!(warnings("OTLP, "), 2);
    let collector = Collector::start(TcpListener::bind(address).unwrap(), |_| Some(TAKEN));
    eventually("the span is sent again", || collector.named("FTP download").len() == 1);
    eventually("the log tells of it", || warnings("takes all of it again") == 2);
    assert!(!collector.posts("/v1/metrics").is_empty());
    assert_eq!(site.scrape()["millrace_otlp_spans_dropped_total"], 0.0);
}

#[test]
fn spans_that_a_collector_refuses_are_counted_and_not_sent_again() {
    const REFUSED: &str = "HTTP/1.1 400 Bad Request\r\nContent-Length: 17\r\n\r\n{\"message\":\"no\"}\n";
    let (collector, site) =
        start("otlp-refused", |path| Some(if path == "/v1/traces" { REFUSED } else { TAKEN }));
    fs::write(site.folder.join("files/f"), "content").unwrap();
    let mut client = site.log_in();
    let dropped = || site.scrape()["millrace_otlp_spans_dropped_total"];
    eventually("the span of the login is refused", || dropped() == 1.0);
    client.download("RETR f");
    eventually("the span of the download is refused", || dropped() == 2.0);
    assert_eq!(collector.spans().len(), 2);
    let log = site.read("log");
    assert_eq!(log.matches("OTLP, ").count(), 1);
    assert!(log.contains("/v1/traces: it answers 400: no"), "{log}");
    eventually("metrics tell of it", || {
        let metrics = collector.posts("/v1/metrics");
        series_of(metrics.last().unwrap())["millrace_otlp_spans_dropped_total"] == 2.0
    });
}

#[test]
fn a_collector_that_does_not_answer_holds_up_neither_transfers_nor_the_end() {
    let (collector, mut site) = start("otlp-stuck", |_| None);
    fs::write(site.folder.join("files/f"), "content").unwrap();
    eventually("metrics are posted", || !collector.posts("/v1/metrics").is_empty());
    let mut client = site.log_in();
    (0..100).for_each(|_| assert_eq!(client.download("RETR f"), "content"));
    eventually("spans are posted", || !collector.spans().is_empty());
    client.say("QUIT", "221");
    let stopped = Instant::now();
    site.stop();
    // A post may take 10 seconds.
    assert!(stopped.elapsed() < Duration::from_secs(8), "{:?}", stopped.elapsed());
}

#[test]
fn a_collector_that_wants_posts_later_is_left_alone_so_long_and_does_not_hold_up_the_end() {
    const LATER: &str = "HTTP/1.1 429 Too Many Requests\r\nRetry-After: 600\r\nContent-Length: 0\r\n\r\n";
    let (collector, mut site) = start("otlp-later", |_| Some(LATER));
    fs::write(site.folder.join("files/f"), "content").unwrap();
    let mut client = site.log_in();
    (0..20).for_each(|_| assert_eq!(client.download("RETR f"), "content"));
    for signal in ["metrics", "traces"] {
        let text = format!("/v1/{signal}: it answers 429; tried again");
        eventually("the log tells of it", || site.read("log").contains(&text));
    }
    client.say("QUIT", "221");
    let stopped = Instant::now();
    site.stop();
    assert!(stopped.elapsed() < Duration::from_secs(60), "{:?}", stopped.elapsed());
    let count = |path: &str| collector.posts(path).len();
    assert_eq!((count("/v1/metrics"), count("/v1/traces")), (1, 1));
}
