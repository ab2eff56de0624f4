//! Which role each operation needs, and which order of `millrace ctl` it performs.

use std::collections::{BTreeMap, BTreeSet};

use millrace_admin_http::AdminAccess;
use serde_json::{Value, json};

use crate::kit::Site;

const ROLES: [&str; 3] = ["viewer", "operator", "administrator"];

/// All operations, and the least role; the last end the server.
const TABLE: &[(&str, &str, &str)] = &[
    ("POST", "/api/v1/login", "everyone"),
    ("GET", "/api/v1/login", "everyone"),
    ("POST", "/api/v1/login/oidc", "everyone"),
    ("POST", "/api/v1/logout", "everyone"),
    ("GET", "/api/v1/openapi.json", "everyone"),
    ("GET", "/api/v1/me", "viewer"),
    ("GET", "/api/v1/status", "viewer"),
    ("GET", "/api/v1/sessions", "viewer"),
    ("GET", "/api/v1/limits", "viewer"),
    ("GET", "/api/v1/bans", "viewer"),
    ("GET", "/api/v1/cluster", "viewer"),
    ("GET", "/api/v1/quotas", "viewer"),
    ("GET", "/api/v1/events", "viewer"),
    ("GET", "/api/v1/audit", "viewer"),
    ("GET", "/api/v1/rates", "viewer"),
    ("GET", "/api/v1/log", "viewer"),
    ("GET", "/api/v1/trace", "operator"),
    ("DELETE", "/api/v1/sessions", "operator"),
    ("DELETE", "/api/v1/sessions/{session}", "operator"),
    ("PUT", "/api/v1/limits/{scope}", "operator"),
    ("DELETE", "/api/v1/limits/{scope}", "operator"),
    ("POST", "/api/v1/bans", "operator"),
    ("DELETE", "/api/v1/bans/{network}", "operator"),
    ("POST", "/api/v1/quotas/recount", "operator"),
    ("POST", "/api/v1/events/retry", "operator"),
    ("DELETE", "/api/v1/events", "operator"),
    ("POST", "/api/v1/notices/test", "operator"),
    ("POST", "/api/v1/reload", "operator"),
    ("GET", "/api/v1/tokens", "administrator"),
    ("POST", "/api/v1/tokens", "administrator"),
    ("DELETE", "/api/v1/tokens/{name}", "administrator"),
    ("GET", "/api/v1/config", "administrator"),
    ("POST", "/api/v1/config/validate", "administrator"),
    ("PUT", "/api/v1/config", "administrator"),
    ("GET", "/api/v1/config/history", "administrator"),
    ("GET", "/api/v1/config/history/{version}", "administrator"),
    ("POST", "/api/v1/config/history/{version}/restore", "administrator"),
    ("GET", "/api/v1/users", "viewer"),
    ("GET", "/api/v1/users/{name}", "viewer"),
    ("POST", "/api/v1/users", "administrator"),
    ("PUT", "/api/v1/users/{name}", "administrator"),
    ("DELETE", "/api/v1/users/{name}", "administrator"),
    ("PUT", "/api/v1/users/{name}/password", "administrator"),
    ("POST", "/api/v1/users/{name}/totp", "administrator"),
    ("DELETE", "/api/v1/users/{name}/totp", "administrator"),
    ("GET", "/api/v1/groups", "viewer"),
    ("GET", "/api/v1/groups/{name}", "viewer"),
    ("POST", "/api/v1/links", "administrator"),
    ("POST", "/api/v1/upgrade", "administrator"),
    ("POST", "/api/v1/drain", "operator"),
    ("POST", "/api/v1/stop", "administrator"),
];

fn described(site: &Site) -> BTreeMap<(String, String), Value> {
    let told = site.ask("GET", "/api/v1/openapi.json", "", "").json();
    let mut all = BTreeMap::new();
    for (path, methods) in told["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            all.insert((method.to_uppercase(), path.clone()), operation.clone());
        }
    }
    all
}

#[test]
fn each_role_may_what_the_table_says_and_no_more() {
    let site = Site::start(AdminAccess::default());
    let described: BTreeSet<_> = described(&site).into_keys().collect();
    let listed = TABLE.iter().map(|(method, path, _)| ((*method).to_owned(), (*path).to_owned()));
    assert_eq!(described, listed.collect());
    let tokens = ROLES.map(|role| site.token(role, None));
    for (method, path, least) in TABLE {
        let path = path.replace(['{', '}'], "");
        let least = ROLES.iter().position(|role| role == least);
        assert_eq!(
            site.ask(method, &path, "", "").status == 401,
            least.is_some(),
            "{method} {path} by no one"
        );
        for (rank, token) in tokens.iter().enumerate() {
            let may = least.is_none_or(|least| rank >= least);
            // What lets in is asked for once, by the highest role: a stream does not end, and a server does.
            let is_last = rank == ROLES.len() - 1;
            if may && (path.ends_with("/log") || (!is_last && path.ends_with("/drain"))) {
                continue;
            }
            let status = site.ask(method, &path, token, "").status;
            assert_eq!(status == 403, !may, "{method} {path} by {}: {status}", ROLES[rank]);
            assert!(status != 401 && status < 500, "{method} {path}: {status}");
        }
    }
}

#[test]
fn every_order_of_ctl_has_a_path() {
    let site = Site::start(AdminAccess::default());
    let Value::Object(order) = json!({ "do": "no such order" }) else { unreachable!() };
    let error = site.administration.perform(order, &site.running, None).unwrap_err().to_string();
    let (_, known) = error.split_once("expected one of").unwrap();
    let known: BTreeSet<_> = known.split('`').skip(1).step_by(2).map(str::to_owned).collect();
    assert!(known.contains("kick"), "{error}");
    let operations = described(&site);
    let orders = operations.values().filter_map(|operation| operation["x-ctl-order"].as_str());
    let mut orders: BTreeSet<_> = orders.map(str::to_owned).collect();
    // The list of sessions is sorted on its way; the other is what a server asks another.
    orders.extend(["sessions".to_owned(), "give-way".to_owned()]);
    assert_eq!(orders, known);
}
