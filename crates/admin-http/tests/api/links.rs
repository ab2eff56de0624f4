//! Links: made in the name of a user, and refused where they would not work.

use std::path::Path;
use std::sync::Arc;

use millrace_admin_http::AdminAccess;
use millrace_server::Config;
use millrace_server::auth::{Authenticator, Chain, Homes, Listed, Password, Profile, User};
use millrace_server::storage::LocalOptions;
use millrace_server::web::LinkKeys;
use serde_json::{Value, json};

use crate::kit::{Site, get};

const KEYS: &str = "0123456789abcdef0123456789abcdef\n";

/// Two users of one folder, of whom rob may only read.
fn accounts(folder: &Path) -> Arc<dyn Authenticator> {
    let files = folder.join("files");
    std::fs::create_dir_all(files.join("reports")).unwrap();
    std::fs::write(files.join("reports/q3.pdf"), "third quarter").unwrap();
    let user = |name: &str, access: &str| {
        let profile = serde_json::from_value::<Profile>(json!({ "access": access })).unwrap();
        User { name: name.to_owned(), profile, ..User::default() }
    };
    let homes = Arc::new(Homes::new(files, LocalOptions::default()));
    let listed = Listed::new()
        .user(user("ann", "rw"), Password::from("secret"))
        .user(user("rob", "ro"), Password::from("secret"));
    Arc::new(Chain::new(homes).source(listed))
}

fn site(keys: &str) -> Site {
    let keys = if keys.is_empty() { LinkKeys::default() } else { LinkKeys::parse(keys).unwrap() };
    Site::with_config(AdminAccess::default(), accounts, |config: &mut Config| {
        config.web.links = keys;
        config.http = vec!["127.0.0.1:0".parse().unwrap()];
    })
}

fn make(site: &Site, body: &Value) -> (u16, Value) {
    let answer = site.ask("POST", "/api/v1/links", &site.token("administrator", None), &body.to_string());
    (answer.status, answer.json())
}

#[test]
fn a_link_gets_the_file_without_an_account() {
    let site = site(KEYS);
    let at = format!("http://{}", site.running.http_addresses()[0]);
    let (status, made) =
        make(&site, &json!({ "path": "/reports/q3.pdf", "user": "ann", "seconds": 60, "url": at }));
    assert_eq!((status, &made["permits"], &made["note"]), (200, &json!("get"), &Value::Null), "{made}");
    let target = made["url"].as_str().unwrap().strip_prefix(&at).unwrap().to_owned();
    let got = get(site.running.http_addresses()[0], &target);
    assert_eq!((got.status, &got.body[..]), (200, "third quarter"));
    let forged = target.replace("q3", "q4");
    assert_eq!(get(site.running.http_addresses()[0], &forged).status, 403);
    let (status, folder) = make(&site, &json!({ "path": "/reports", "user": "rob", "seconds": 60 }));
    assert_eq!(status, 200, "{folder}");
    assert!(folder["url"].as_str().unwrap().starts_with("/reports/?"), "{folder}");
    let (status, upload) =
        make(&site, &json!({ "path": "/new", "user": "ann", "seconds": 60, "permits": "put" }));
    assert_eq!((status, &upload["permits"]), (200, &json!("put")), "{upload}");
}

#[test]
fn what_would_not_work_is_refused_at_its_field() {
    let with_keys = site(KEYS);
    let link = |path: &str, user: &str, seconds: u64, permits: &str| json!({ "path": path, "user": user, "seconds": seconds, "permits": permits });
    for (body, field) in [
        (link("/reports/q4.pdf", "ann", 60, "get"), "path"),
        (link("/reports", "ann", 60, "put"), "path"),
        (link("/reports/new", "rob", 60, "put"), "path"),
        (link("/missing/new", "ann", 60, "put"), "path"),
        (link("/reports/q3.pdf", "nosuch", 60, "get"), "user"),
        (link("/reports/q3.pdf", "anonymous", 60, "get"), "user"),
        (link("/reports/q3.pdf", "ann", 0, "get"), "seconds"),
    ] {
        let (status, problem) = make(&with_keys, &body);
        assert_eq!((status, &problem["field"]), (422, &json!(field)), "{body}: {problem}");
    }
    let (status, problem) = make(&site(""), &link("/reports/q3.pdf", "ann", 60, "get"));
    assert_eq!(status, 409, "{problem}");
    assert!(problem["detail"].as_str().unwrap().contains("http-link-keys"), "{problem}");
    let operator = with_keys.token("operator", None);
    let body = link("/reports/q3.pdf", "ann", 60, "get").to_string();
    assert_eq!(with_keys.ask("POST", "/api/v1/links", &operator, &body).status, 403);
}
