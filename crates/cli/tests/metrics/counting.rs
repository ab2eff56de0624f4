//! The counters and the logs tell the same.

use std::fs;
use std::io::{Read, Write};

use serde_json::Value;

use crate::site::{Site, get, sum};

/// `u:password`.
const LOGIN: &str = "Authorization: Basic dTpwYXNzd29yZA==\r\n";

/// What clients do: downloads, uploads and listings of several sizes by FTP, requests of several kinds by HTTP, and some of
/// each that come to nothing.
pub(crate) fn serve_clients(site: &Site) {
    for (name, size) in [("small", 1_000), ("large", 3_000_001), ("empty", 0)] {
        fs::write(site.folder.join("files").join(name), vec![b'x'; size]).unwrap();
    }
    let mut client = site.log_in();
    for name in ["small", "large", "empty", "small"] {
        client.download(&format!("RETR {name}"));
    }
    client.upload("STOR up", &"y".repeat(100_003));
    client.upload("APPE up", "more");
    client.download("LIST");
    client.download("MLSD");
    client.say("SIZE nothing", "550");
    abort_a_download(&mut client);
    client.say("QUIT", "221");
    let mut stranger = site.log_in();
    stranger.say("REIN", "220");
    stranger.say("USER u", "331");
    stranger.say("PASS wrong", "530");

    for (method, path) in
        [("GET", "/small"), ("GET", "/large"), ("HEAD", "/large"), ("GET", "/none"), ("GET", "/")]
    {
        get(&site.http, method, path, LOGIN);
    }
    get(&site.http, "GET", "/large", &format!("{LOGIN}Range: bytes=5-1000004\r\n"));
    get(&site.http, "PUT", "/put", &format!("{LOGIN}Content-Length: 5\r\n\r\nhello"));
    get(&site.http, "PROPFIND", "/", &format!("{LOGIN}Depth: 1\r\n"));
    get(&site.http, "BREW", "/", LOGIN);
    get(&site.http, "GET", "/small", "");
    get(&site.http, "no request", "/", "");
}

/// Takes some of a file, and has the rest not sent.
fn abort_a_download(client: &mut crate::client::Client) {
    let mut data = client.data();
    client.say("REST 10", "350");
    client.say("RETR large", "150");
    data.read_exact(&mut [0; 1000]).unwrap();
    client.0.get_mut().write_all(b"ABOR\r\n").unwrap();
    let _ = std::io::copy(&mut data, &mut std::io::sink());
    // It may have been sent whole to the kernel by then.
    let mut replies = String::new();
    while !replies.contains("\n226") && !replies.starts_with("226 Abort") && !replies.starts_with("225") {
        replies += &client.expect("");
    }
}

pub(crate) fn objects(text: &str) -> Vec<Value> {
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

fn bytes(objects: &[&Value]) -> u64 {
    objects.iter().map(|object| object["bytes"].as_u64().unwrap()).sum()
}

fn compare_with_logs(keys: &str, name: &str) {
    let mut site = Site::start(name, keys);
    serve_clients(&site);
    let series = site.scrape();
    site.stop();
    let (log, access) = (objects(&site.read("log")), objects(&site.read("access")));

    for direction in ["download", "upload", "listing"] {
        let meant: Vec<_> = log.iter().filter(|event| event["event"] == direction).collect();
        let labels = ["protocol=\"ftp\"", &format!("direction=\"{direction}\"")];
        assert!(!meant.is_empty());
        assert_eq!(sum(&series, "millrace_transfer_bytes_total", &labels), bytes(&meant), "{direction}");
        for (result, has_failed) in [("complete", false), ("failed", true)] {
            let count =
                meant.iter().filter(|event| event.get("failed").is_some() == has_failed).count() as u64;
            let result = format!("result=\"{result}\"");
            let labels = [labels[0], labels[1], &result];
            assert_eq!(sum(&series, "millrace_transfers_total", &labels), count, "{labels:?}");
        }
        let count = meant.len() as u64;
        assert_eq!(sum(&series, "millrace_transfer_duration_seconds_count", &labels), count);
        let with_bytes = meant.iter().filter(|event| event["bytes"].as_u64() > Some(0)).count() as u64;
        assert_eq!(sum(&series, "millrace_transfer_first_byte_seconds_count", &labels), with_bytes);
        let first = format!("millrace_transfer_first_byte_seconds_sum{{{}}}", labels.join(","));
        assert!(series[&first] > 0.0, "{first}");
    }

    let requests: Vec<_> = access.iter().filter(|line| line["event"] == "request").collect();
    assert_eq!(requests.len(), 11, "{requests:#?}");
    assert_eq!(sum(&series, "millrace_http_response_bytes_total", &[]), bytes(&requests));
    assert_eq!(sum(&series, "millrace_http_requests_total", &[]), requests.len() as u64);
    for class in 2..=5 {
        let count = requests.iter().filter(|line| line["status"].as_u64().unwrap() / 100 == class).count();
        let label = format!("code=\"{class}xx\"");
        assert_eq!(sum(&series, "millrace_http_requests_total", &[&label]), count as u64, "{label}");
    }
    assert_eq!(sum(&series, "millrace_http_requests_total", &["method=\"other\""]), 2);

    let files: Vec<_> = requests
        .iter()
        .filter(|line| line["method"] == "GET" && line["status"].as_u64().unwrap() / 100 == 2)
        .filter(|line| line["target"] != "/")
        .copied()
        .collect();
    let downloads = ["protocol=\"http\"", "direction=\"download\""];
    assert_eq!(sum(&series, "millrace_transfer_bytes_total", &downloads), bytes(&files));
    assert_eq!(sum(&series, "millrace_transfers_total", &downloads), files.len() as u64);
    assert_eq!(sum(&series, "millrace_transfer_first_byte_seconds_count", &downloads), files.len() as u64);
    let uploads = ["protocol=\"http\"", "direction=\"upload\""];
    assert_eq!(sum(&series, "millrace_transfer_bytes_total", &uploads), 5);

    for (result, event) in [("success", "login"), ("failed", "login-failed"), ("refused", "login-refused")] {
        let count = log.iter().filter(|line| line["event"] == event).count() as u64;
        let label = format!("result=\"{result}\"");
        assert_eq!(sum(&series, "millrace_logins_total", &[&label]), count, "{result}");
    }
    let commands = |verb: &str, code: &str| {
        let labels = [format!("verb=\"{verb}\""), format!("code=\"{code}\"")];
        sum(&series, "millrace_ftp_commands_total", &[&labels[0], &labels[1]])
    };
    for (direction, verbs) in
        [("download", &["RETR"][..]), ("upload", &["STOR", "APPE"]), ("listing", &["LIST", "MLSD"])]
    {
        let complete = |event: &&Value| event["event"] == direction && event.get("failed").is_none();
        let count = log.iter().filter(complete).count() as u64;
        assert_eq!(verbs.iter().map(|verb| commands(verb, "2xx")).sum::<u64>(), count, "{direction}");
    }
    // The one that is aborted may have been sent whole by then.
    let is_aborted = |event: &&Value| event["event"] == "download" && event.get("failed").is_some();
    let aborted = log.iter().filter(is_aborted).count() as u64;
    assert_eq!((commands("RETR", "4xx"), commands("ABOR", "2xx"), commands("QUIT", "2xx")), (aborted, 1, 1));
    assert_eq!((commands("SIZE", "5xx"), commands("PASS", "5xx"), commands("PASS", "2xx")), (1, 1, 2));
    let declined = log.iter().filter(|line| line["event"] == "declined").count() as u64;
    assert!(declined > 0);
    assert_eq!(sum(&series, "millrace_ftp_commands_declined_total", &[]), declined);
    assert_eq!(sum(&series, "millrace_connections_total", &["door=\"ftp\""]), 2);
    assert_eq!(sum(&series, "millrace_connections_total", &["door=\"http\""]), 11);
}

#[test]
fn counters_equal_the_logs_to_the_byte() {
    compare_with_logs("", "logs");
}

/// Then transfers by HTTP are logged by themselves, and counted on that way.
#[test]
fn so_they_do_where_there_is_a_log_of_transfers() {
    compare_with_logs("xferlog = \"xferlog\"", "xferlog");
}

/// Then uploads are told of from another thread.
#[test]
fn so_they_do_where_a_hook_sees_every_upload() {
    compare_with_logs("[[hook]]\non = [\"upload\"]\nrun = [\"/bin/true\"]", "hooks");
}

#[test]
fn transfers_that_a_limit_holds_back_are_counted() {
    let site = Site::start("limits", "download-limit = \"100k\"");
    fs::write(site.folder.join("files/f"), vec![b'x'; 150_000]).unwrap();
    site.log_in().download("RETR f");
    let series = site.scrape();
    assert!(sum(&series, "millrace_limit_waits_total", &["ftp"]) > 0);
}
