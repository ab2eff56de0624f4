//! Which trace a span is in: logins and transfers are parts of their session, a login by HTTP of its request, and that of the
//! trace that its client names.

use std::fs;

use serde_json::{Value, json};

use crate::collector::{Collector, TAKEN};
use crate::otlp::{listen, pairs};
use crate::site::{Site, eventually, get};

/// `u:password`.
const LOGIN: &str = "Authorization: Basic dTpwYXNzd29yZA==\r\n";

/// `u:wrong`.
const WRONG: &str = "Authorization: Basic dTp3cm9uZw==\r\n";

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const CALLER: &str = "b7ad6b7169203331";

fn start(name: &str, keys: &str) -> (Collector, Site) {
    let collector = Collector::start(listen(), |_| Some(TAKEN));
    let site = Site::start(name, &format!("[otlp]\nendpoint = \"http://{}\"\n{keys}", collector.address));
    fs::write(site.folder.join("files/f"), "content").unwrap();
    (collector, site)
}

/// The length of a span in nanoseconds.
fn length(span: &Value) -> u64 {
    let at = |key: &str| span[key].as_str().unwrap().parse::<u64>().unwrap();
    at("endTimeUnixNano") - at("startTimeUnixNano")
}

#[test]
fn a_session_of_ftp_is_a_trace_of_its_logins_and_transfers() {
    let (collector, mut site) = start("otlp-session", "");
    let mut client = site.log_in();
    client.download("RETR f");
    client.say("REIN", "220");
    client.say("USER secret-in-the-wrong-field", "331");
    client.say("PASS wrong", "530");
    client.say("QUIT", "221");
    site.stop();
    let spans = collector.spans();
    let names: Vec<_> = spans.iter().map(|span| span["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["FTP login", "FTP download", "FTP login", "FTP session"]);
    let session = &spans[3];
    assert_eq!(session["parentSpanId"], Value::Null);
    for part in &spans[..3] {
        assert_eq!(
            (&part["traceId"], &part["parentSpanId"]),
            (&session["traceId"], &session["spanId"]),
            "{part}"
        );
        assert!(session["startTimeUnixNano"].as_str() <= part["startTimeUnixNano"].as_str());
        assert!(part["endTimeUnixNano"].as_str() <= session["endTimeUnixNano"].as_str());
    }
    let [good, bad] = [&spans[0], &spans[2]].map(pairs);
    assert_eq!((&*good["millrace.login.result"], &*good["user.name"]), ("success", "u"));
    assert_eq!((&*good["client.address"], &*good["network.protocol.name"]), ("127.0.0.1", "ftp"));
    assert_eq!((&*bad["millrace.login.result"], bad.get("user.name")), ("failed", None));
    assert!(length(&spans[0]) > 0, "a password takes its time");
    let traces = collector.posts("/v1/traces");
    assert!(traces.iter().all(|post| !post.body.to_string().contains("secret-in-the-wrong-field")));
}

#[test]
fn a_request_joins_the_trace_of_its_client_and_its_login_is_a_part_of_it() {
    let (collector, mut site) = start("otlp-caller", "trace-one-in = 1000000000\n");
    let field = |value: &str| format!("traceparent: {value}\r\n");
    let good = field(&format!("00-{TRACE}-{CALLER}-01"));
    get(&site.http, "GET", "/f", &format!("{LOGIN}{good}"));
    get(&site.http, "GET", "/wrong", &format!("{WRONG}{good}"));
    // Of these the server decides, and it is to record one in very many.
    for malformed in [
        field(&format!("00-{TRACE}-{CALLER}-00")),
        field(&format!("ff-{TRACE}-{CALLER}-01")),
        field(&format!("00-{TRACE}-{CALLER}-01-more")),
        good.repeat(2),
        String::new(),
    ] {
        get(&site.http, "GET", "/not-recorded", &format!("{LOGIN}{malformed}"));
    }
    site.stop();
    let spans = collector.spans();
    let names: Vec<_> = spans.iter().map(|span| span["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["HTTP login", "GET", "HTTP login", "GET"]);
    for (pair, (result, status)) in spans.chunks(2).zip([("success", "200"), ("failed", "401")]) {
        let (login, request) = (&pair[0], &pair[1]);
        assert_eq!((&request["traceId"], &request["parentSpanId"]), (&json!(TRACE), &json!(CALLER)));
        assert_eq!((&login["traceId"], &login["parentSpanId"]), (&json!(TRACE), &request["spanId"]));
        assert!(length(request) >= length(login) && length(login) > 0, "a password takes its time");
        assert_eq!(pairs(login)["millrace.login.result"], result);
        assert_eq!(pairs(request)["http.response.status_code"], status);
    }
    assert_ne!(spans[1]["spanId"], spans[3]["spanId"]);
}

#[test]
fn a_request_that_its_caller_does_not_record_has_no_span_and_a_malformed_field_is_none() {
    let (collector, mut site) = start("otlp-unsampled", "");
    for (path, value) in [
        ("/unsampled", format!("00-{TRACE}-{CALLER}-00")),
        ("/upper", format!("00-{}-{CALLER}-00", TRACE.to_uppercase())),
        ("/zero", format!("00-{TRACE}-{}-00", "0".repeat(16))),
    ] {
        get(&site.http, "GET", path, &format!("{LOGIN}traceparent: {value}\r\n"));
    }
    eventually("spans have come", || collector.named("GET").len() >= 2);
    site.stop();
    let requests = collector.named("GET");
    let paths: Vec<_> = requests.iter().map(|span| pairs(span)["url.path"].clone()).collect();
    assert_eq!(paths, ["/upper", "/zero"]);
    assert!(requests.iter().all(|span| span["traceId"] != TRACE && span["parentSpanId"].is_null()));
    assert_ne!(requests[0]["traceId"], requests[1]["traceId"]);
    assert_eq!(collector.named("HTTP login").len(), 2);
}
