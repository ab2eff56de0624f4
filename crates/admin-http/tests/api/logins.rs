//! Who calls: tokens, logins, cookies.

use millrace_admin_http::AdminAccess;
use serde_json::json;

use crate::kit::{Answer, Site};

fn site() -> Site {
    Site::start(AdminAccess {
        operators: vec!["ann".to_owned(), "anonymous".to_owned()],
        hosts: vec!["admin.example.net".to_owned()],
        ..AdminAccess::default()
    })
}

fn log_in(site: &Site, name: &str, password: &str, fields: &str) -> Answer {
    site.ask("POST", "/api/v1/login", fields, &json!({ "name": name, "password": password }).to_string())
}

#[test]
fn without_a_token_or_a_role_the_api_says_how_to_make_one() {
    let site = Site::start(AdminAccess::default());
    let told = site.ask("GET", "/api/v1/status", "", "");
    assert_eq!((told.status, &told.json()["type"]), (401, &json!("urn:millrace:set-up")));
    assert!(told.body.contains("millrace ctl token add"), "{told:?}");
    assert_eq!(told.field("content-type"), Some("application/problem+json"));
    assert_eq!(site.ask("GET", "/healthz", "", "").body, "ok\n");
}

#[test]
fn a_token_is_good_until_it_expires_or_is_removed() {
    let site = site();
    let good = site.token("viewer", Some(3600));
    let me = site.ask("GET", "/api/v1/me", &good, "").json();
    assert_eq!((&me["role"], &me["by"]), (&json!("viewer"), &json!("token")));
    let admin = site.token("administrator", None);
    let expired = site.token("administrator", Some(0));
    let forged = format!("{}0\r\n", admin.trim_end());
    let basic = admin.replace("Bearer", "Basic");
    let log = site.running.watch_log(0, Box::new(|| {}));
    for wrong in [&expired, &forged, &basic, "Authorization: Bearer\r\n", "Authorization: Bearer \r\n"] {
        let told = site.ask("GET", "/api/v1/me", wrong, "");
        assert_eq!(told.status, 401, "{wrong}");
        assert!(told.body.contains("or it has expired"), "{told:?}");
    }
    let (logged, _) = log.take();
    let failed = logged.iter().filter(|line| line.contains(r#""event":"login-failed""#));
    let failed: Vec<_> = failed.filter(|line| line.contains(r#""tried":"token of the admin API""#)).collect();
    assert_eq!(failed.len(), 5, "{logged:?}");
    assert!(
        failed.iter().all(|line| line.contains(r#""peer":"127.0.0.1:"#) && !line.contains("millrace_")),
        "{failed:?}"
    );
    let metrics = site.ask("GET", "/metrics", "", "").body;
    assert!(metrics.contains("millrace_logins_total{result=\"failed\"} 5\n"), "{metrics}");
    let name = me["name"].as_str().unwrap();
    assert_eq!(site.ask("DELETE", &format!("/api/v1/tokens/{name}"), &admin, "").status, 200);
    assert_eq!(site.ask("GET", "/api/v1/me", &good, "").status, 401);
    assert_eq!(site.ask("DELETE", &format!("/api/v1/tokens/{name}"), &admin, "").status, 404);
}

#[test]
fn a_user_with_a_role_logs_in_and_out() {
    let site = site();
    let told = log_in(&site, "ann", "secret", "");
    assert_eq!((told.status, &told.json()["role"]), (200, &json!("operator")), "{told:?}");
    let cookie = told.field("set-cookie").unwrap();
    assert!(cookie.ends_with("; Path=/; HttpOnly; SameSite=Strict"), "{cookie}");
    let cookie = told.cookie();
    assert_eq!(site.ask("GET", "/api/v1/me", &cookie, "").json()["name"], "ann");
    // Another user may log in, and has no role; nor has the anonymous one, whatever a setting says.
    assert_eq!(log_in(&site, "bob", "secret", "").status, 403);
    assert_ne!(log_in(&site, "anonymous", "x", "").status, 200);
    let bye = site.ask("POST", "/api/v1/logout", &(cookie.clone() + &site.own_page()), "");
    assert_eq!(bye.status, 200, "{bye:?}");
    assert_eq!(site.ask("GET", "/api/v1/me", &cookie, "").status, 401);
}

#[test]
fn behind_a_proxy_with_tls_the_cookie_is_sent_over_tls_alone() {
    let fields = "Host: admin.example.net\r\nOrigin: https://admin.example.net\r\n";
    let told = log_in(&site(), "ann", "secret", fields);
    assert!(told.field("set-cookie").unwrap().ends_with("; Secure"), "{told:?}");
}

#[test]
fn wrong_passwords_count_as_they_do_by_ftp() {
    let site = site();
    let wrong = || log_in(&site, "ann", "wrong", "").status;
    assert_eq!(wrong(), 401);
    let (failed, end) = (millrace_server::metrics::Metric::Logins, 30);
    assert_eq!(site.running.metrics().total(failed, &[1]), 1);
    (0..end).for_each(|_| assert_ne!(wrong(), 200));
    assert!(!site.running.bans().is_empty(), "guessing leads to a ban");
    assert_ne!(log_in(&site, "ann", "secret", "").status, 200, "the right password comes too late");
}

#[test]
fn a_role_that_is_taken_back_ends_with_the_next_request() {
    let site = site();
    let cookie = log_in(&site, "ann", "secret", "").cookie();
    assert_eq!(site.ask("GET", "/api/v1/me", &cookie, "").status, 200);
    site.admin.configure(AdminAccess::default());
    assert_eq!(site.ask("GET", "/api/v1/me", &cookie, "").status, 401);
}

#[test]
fn a_page_of_another_site_changes_nothing() {
    let site = site();
    let cookie = log_in(&site, "ann", "secret", "").cookie();
    let own = format!("Origin: http://{}\r\n", site.host());
    let mark = "X-Millrace-Request: 1\r\n";
    let foreign = "Origin: http://evil.example\r\n";
    let ban = r#"{"network":"192.0.2.7"}"#;
    for (fields, status) in [
        (String::new(), 403),
        (mark.to_owned(), 403),
        (own.clone(), 403),
        (foreign.to_owned() + mark, 403),
        (format!("Origin: null\r\n{mark}"), 403),
        (own.clone() + mark, 200),
    ] {
        let told = site.ask("POST", "/api/v1/bans", &(cookie.clone() + &fields), ban);
        assert_eq!(told.status, status, "{fields:?}: {told:?}");
    }
    assert_eq!(log_in(&site, "ann", "secret", foreign).status, 403, "nor does it log in");
    // A token is sent by no browser of itself.
    let token = site.token("operator", None);
    assert_eq!(site.ask("DELETE", "/api/v1/bans/192.0.2.7", &token, "").status, 200);
}

#[test]
fn a_name_that_is_not_the_servers_is_refused() {
    let site = site();
    let token = site.token("viewer", None);
    for (host, status) in [
        ("localhost:1", 200),
        ("127.0.0.1", 200),
        ("admin.example.net", 200),
        ("evil.example", 421),
        ("", 421),
    ] {
        let told = site.ask("GET", "/api/v1/me", &format!("{token}Host: {host}\r\n"), "");
        assert_eq!(told.status, status, "{host:?}: {told:?}");
    }
    let health = site.ask("GET", "/healthz", "Host: whatever.example\r\n", "");
    assert_eq!(health.status, 200, "monitoring has names of its own");
}
