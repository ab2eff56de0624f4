//! The configuration file: two administrators at once, mistakes, history.

use millrace_admin_http::AdminAccess;
use serde_json::json;

use crate::kit::{Answer, Site};

fn write(site: &Site, token: &str, seen: &str, text: &str) -> Answer {
    let condition = if seen.is_empty() { String::new() } else { format!("If-Match: {seen}\r\n") };
    let body = json!({ "text": text }).to_string();
    site.ask("PUT", "/api/v1/config", &format!("{token}{condition}"), &body)
}

#[test]
fn the_second_of_two_administrators_is_told() {
    let site = Site::start(AdminAccess::default());
    let token = site.token("administrator", None);
    let read = || site.ask("GET", "/api/v1/config", &token, "");
    let seen = read();
    assert_eq!((&seen.json()["text"], &seen.json()["parsed"]), (&json!("a = 1\n"), &json!({ "a": 1 })));
    let tag = seen.field("etag").unwrap().to_owned();
    assert_eq!(write(&site, &token, "", "a = 2\n").status, 428);
    assert_eq!(write(&site, &token, "*", "a = 2\n").status, 412);
    let first = write(&site, &token, &tag, "a = 2\n");
    assert_eq!(first.status, 200, "{first:?}");
    let second = write(&site, &token, &tag, "a = 3\n");
    assert_eq!((second.status, second.field("etag")), (412, first.field("etag")), "{second:?}");
    assert_eq!(read().json()["text"], "a = 2\n");
}

#[test]
fn a_mistake_changes_nothing_and_names_its_line() {
    let site = Site::start(AdminAccess::default());
    let token = site.token("administrator", None);
    let tag = site.ask("GET", "/api/v1/config", &token, "").field("etag").unwrap().to_owned();
    let told = write(&site, &token, &tag, "a = 1\nwrong\n");
    assert_eq!((told.status, &told.json()["line"]), (422, &json!(2)), "{told:?}");
    // A server that was started with a relative path names the file by it.
    for text in ["wrong", "wrong, relative"] {
        let body = json!({ "text": text }).to_string();
        let told = site.ask("POST", "/api/v1/config/validate", &token, &body);
        assert_eq!((told.status, &told.json()["line"]), (422, &json!(2)), "{text}");
    }
    assert_eq!(std::fs::read_to_string(site.folder.join("millrace.toml")).unwrap(), "a = 1\n");
}

#[test]
fn a_former_text_is_compared_and_restored() {
    let site = Site::start(AdminAccess::default());
    let token = site.token("administrator", None);
    let tag = site.ask("GET", "/api/v1/config", &token, "").field("etag").unwrap().to_owned();
    let tag = write(&site, &token, &tag, "a = 2\n").field("etag").unwrap().to_owned();
    let history = site.ask("GET", "/api/v1/config/history", &token, "").json();
    assert_eq!(history["versions"][0]["by"], "token of-administrator-None");
    assert_eq!(
        (&history["versions"][1]["version"], &history["versions"][1]["by"]),
        (&json!(1), &json!("before"))
    );
    let former = site.ask("GET", "/api/v1/config/history/1", &token, "").json();
    assert_eq!(former["diff"], "-a = 2\n+a = 1\n");
    let restore = |seen: &str| {
        let fields = format!("{token}If-Match: {seen}\r\n");
        site.ask("POST", "/api/v1/config/history/1/restore", &fields, "").status
    };
    assert_eq!(restore("\"other\""), 412);
    assert_eq!(restore(&tag), 200);
    assert_eq!(std::fs::read_to_string(site.folder.join("millrace.toml")).unwrap(), "a = 1\n");
    assert_eq!(site.ask("GET", "/api/v1/config/history/9", &token, "").status, 404);
}
