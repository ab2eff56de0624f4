//! Logins that all nodes of a cluster know, with a real PostgreSQL.

use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use millrace_admin_http::AdminAccess;
use millrace_server::auth::{Authenticator, Chain, Database, Homes, Sql, cluster_table};
use millrace_server::cluster::{Cluster, NodeEntry, Timing};
use millrace_server::storage::LocalOptions;
use serde_json::json;

use crate::kit::{Answer, Site};
use crate::oidc::{Identities, assert_failed, session};
use crate::postgresql::Postgres;
use crate::users::accounts;

/// How long all nodes may take to learn that a login has ended: a second, and as much again for a machine that is busy.
const SOON: Duration = Duration::from_secs(3);

fn access() -> AdminAccess {
    AdminAccess { administrators: vec!["root".to_owned(), "eve".to_owned()], ..AdminAccess::default() }
}

fn node(database: &Postgres, name: &str, access: AdminAccess) -> Site {
    node_of(database, name, access, accounts)
}

fn node_of(
    database: &Postgres,
    name: &str,
    access: AdminAccess,
    accounts: fn(&Path) -> Arc<dyn Authenticator>,
) -> Site {
    let settings = Sql {
        connection: database.connection(),
        password: None,
        roots: None,
        query: None,
        time: Duration::from_secs(5),
    };
    let lease = Duration::from_secs(6);
    let entry = NodeEntry { name: name.to_owned(), version: "1".to_owned(), lease };
    let cluster = Cluster::new(cluster_table(&settings).unwrap(), entry, Timing::of_lease(lease));
    Site::as_node(access, accounts, Some(Arc::new(cluster)))
}

fn log_in(site: &Site, name: &str, password: &str) -> Answer {
    let told =
        site.ask("POST", "/api/v1/login", "", &json!({ "name": name, "password": password }).to_string());
    assert_eq!(told.status, 200, "{told:?}");
    told
}

fn me(site: &Site, cookie: &str) -> u16 {
    site.ask("GET", "/api/v1/me", cookie, "").status
}

fn log_out(site: &Site, cookie: &str) {
    let bye = site.ask("POST", "/api/v1/logout", &(cookie.to_owned() + &site.own_page()), "");
    assert_eq!(bye.status, 200, "{bye:?}");
}

#[track_caller]
fn soon(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + SOON;
    while !holds() {
        assert!(Instant::now() < end, "not in time: {what}");
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_login_at_one_node_is_one_at_all_and_a_log_out_anywhere_ends_it() {
    let Some(database) = Postgres::new() else { return };
    let [one, other, third] = ["a", "b", "c"].map(|name| node(&database, name, access()));
    let cookie = log_in(&one, "root", "s3cret").cookie();
    for site in [&one, &other, &third] {
        let me = site.ask("GET", "/api/v1/me", &cookie, "").json();
        assert_eq!(
            (&me["name"], &me["role"], &me["by"]),
            (&json!("root"), &json!("administrator"), &json!("login"))
        );
    }
    let ban = |fields: &str| other.ask("POST", "/api/v1/bans", fields, r#"{"network":"192.0.2.7"}"#).status;
    assert_eq!(ban(&cookie), 403, "a change needs what a change by any cookie needs");
    assert_eq!(ban(&(cookie.clone() + &other.own_page())), 200);
    let value = cookie.trim_end().rsplit('=').next().unwrap();
    let rows = database.run("SELECT * FROM millrace_cluster.browser_login");
    assert!(rows.contains("root") && !rows.contains(value), "the database has no cookie: {rows}");
    let wrong = cookie.replace(value, &value.chars().rev().collect::<String>());
    assert_eq!(me(&other, &wrong), 401);

    log_out(&other, &cookie);
    assert_eq!(me(&other, &cookie), 401);
    soon("it has ended where it was begun", || me(&one, &cookie) == 401);
    soon("and elsewhere", || me(&third, &cookie) == 401);
    assert_eq!(database.run("SELECT count(*) FROM millrace_cluster.browser_login"), "0");
}

#[test]
fn another_password_or_role_ends_the_logins_of_a_user_at_all_nodes() {
    let Some(database) = Postgres::new() else { return };
    let [one, other] = ["a", "b"].map(|name| node(&database, name, access()));
    for site in [&one, &other] {
        let eve = json!({ "name": "eve", "password": "f1rst" }).to_string();
        assert_eq!(site.ask("POST", "/api/v1/users", &site.token("administrator", None), &eve).status, 200);
    }
    let (cookie, root) = (log_in(&other, "eve", "f1rst").cookie(), log_in(&other, "root", "s3cret").cookie());
    assert_eq!((me(&one, &cookie), me(&other, &cookie), me(&one, &root)), (200, 200, 200));
    let token = one.token("administrator", Some(60));
    let seen = one.ask("GET", "/api/v1/users/eve", &token, "").field("etag").unwrap().to_owned();
    let fields = format!("{token}If-Match: {seen}\r\n");
    let changed = one.ask("PUT", "/api/v1/users/eve/password", &fields, r#"{"password":"sec0nd"}"#);
    assert_eq!(changed.status, 200, "{changed:?}");
    assert_eq!(me(&one, &cookie), 401);
    soon("it has ended at the other", || me(&other, &cookie) == 401);
    other.admin.configure(AdminAccess { administrators: vec!["eve".to_owned()], ..AdminAccess::default() });
    assert_eq!((me(&one, &root), me(&other, &root)), (200, 401), "each node has its own roles");
}

#[test]
fn while_the_database_is_away_each_node_knows_its_logins_and_tells_the_others_later() {
    let Some(mut database) = Postgres::new() else { return };
    let [one, other] = ["a", "b"].map(|name| node(&database, name, access()));
    let known = log_in(&one, "root", "s3cret").cookie();
    let ended = log_in(&one, "root", "s3cret").cookie();
    assert_eq!((me(&other, &known), me(&other, &ended)), (200, 200));
    database.daemon.kill();
    assert_eq!((me(&one, &known), me(&other, &known)), (200, 200));
    let new = log_in(&one, "root", "s3cret").cookie();
    assert_eq!((me(&one, &new), me(&other, &new)), (200, 401));
    log_out(&one, &ended);
    assert_eq!(me(&one, &ended), 401);
    database.start();
    let end = Instant::now() + Duration::from_secs(30);
    let all = || {
        [
            me(&one, &known),
            me(&other, &known),
            me(&one, &new),
            me(&other, &new),
            me(&one, &ended),
            me(&other, &ended),
        ]
    };
    while all() != [200, 200, 200, 200, 401, 401] {
        assert!(Instant::now() < end, "{:?}", all());
        thread::sleep(Duration::from_millis(50));
    }
}

/// A source that has another root than [`accounts`].
fn other_accounts(folder: &Path) -> Arc<dyn Authenticator> {
    let files = folder.join("files");
    std::fs::create_dir(&files).unwrap();
    let homes = Arc::new(Homes::new(files, LocalOptions::default()));
    Arc::new(Chain::new(homes).source(Database::open_or_make(&folder.join("users.db")).unwrap()))
}

#[test]
fn a_user_of_that_name_in_another_source_is_not_logged_in() {
    let Some(database) = Postgres::new() else { return };
    let one = node(&database, "a", access());
    let other = node_of(&database, "b", access(), other_accounts);
    let root = json!({ "name": "root", "password": "s3cret" }).to_string();
    let made = other.ask("POST", "/api/v1/users", &other.token("administrator", None), &root);
    assert_eq!(made.status, 200, "{made:?}");
    let cookie = log_in(&one, "root", "s3cret").cookie();
    assert_eq!((me(&one, &cookie), me(&other, &cookie)), (200, 401));
    let cookie = log_in(&other, "root", "s3cret").cookie();
    assert_eq!((me(&one, &cookie), me(&other, &cookie)), (401, 200));
}

#[test]
fn a_login_that_could_not_be_told_does_not_outlive_a_new_password() {
    let Some(database) = Postgres::new() else { return };
    let [one, other] = ["a", "b"].map(|name| node(&database, name, access()));
    // As if the node had been cut off from the database before the other ended the login.
    for site in [&one, &other] {
        let eve = json!({ "name": "eve", "password": "f1rst" }).to_string();
        assert_eq!(site.ask("POST", "/api/v1/users", &site.token("administrator", None), &eve).status, 200);
    }
    database.run("ALTER FUNCTION millrace_cluster.keep_login_begun RENAME TO away");
    let cookie = log_in(&one, "eve", "f1rst").cookie();
    assert_eq!((me(&one, &cookie), me(&other, &cookie)), (200, 401));
    let token = other.token("administrator", Some(60));
    let seen = other.ask("GET", "/api/v1/users/eve", &token, "").field("etag").unwrap().to_owned();
    let fields = format!("{token}If-Match: {seen}\r\n");
    let changed = other.ask("PUT", "/api/v1/users/eve/password", &fields, r#"{"password":"sec0nd"}"#);
    assert_eq!(changed.status, 200, "{changed:?}");
    database.run("ALTER FUNCTION millrace_cluster.away RENAME TO keep_login_begun");
    soon("the node forgets it", || me(&one, &cookie) == 401);
    assert_eq!(me(&other, &cookie), 401);
}

#[test]
fn a_login_by_a_provider_may_come_back_to_another_node_than_it_began_at() {
    let Some(database) = Postgres::new() else { return };
    let identities = Identities::start();
    let [one, other] = ["a", "b"].map(|name| node(&database, name, identities.access()));
    let own = format!("Origin: http://{}\r\n", one.host());
    let come = |site: &Site, cookie: &str, state: &str| {
        site.ask("GET", &format!("/login/oidc?code=c0de&state={state}"), cookie, "")
    };
    let (cookie, state) = identities.go(&one, &own, |_| {});
    let told = come(&other, &cookie, &state);
    assert_eq!((told.status, told.field("location")), (303, Some("/")), "{told:?}");
    let logged_in = session(&told).unwrap();
    let me = one.ask("GET", "/api/v1/me", &logged_in, "").json();
    assert_eq!(me, json!({ "ok": true, "name": "ann@example.net", "role": "operator", "by": "oidc" }));
    assert_failed(&come(&one, &cookie, &state), "refused", "the provider takes a code once");
    let (_, state) = identities.go(&one, &own, |_| {});
    let (elsewhere, _) = identities.go(&one, &own, |_| {});
    assert_failed(&come(&other, &elsewhere, &state), "late", "in another browser");
    assert_failed(&come(&other, "", &state), "late", "without a cookie");
    log_out(&other, &logged_in);
    soon("it has ended at both", || one.ask("GET", "/api/v1/me", &logged_in, "").status == 401);
}
