//! Users and groups: listed, changed, refused; two administrators at once.

use std::path::Path;
use std::sync::Arc;

use millrace_admin_http::AdminAccess;
use millrace_server::Attempt;
use millrace_server::auth::{
    Authenticator, Chain, Database, Decision, Group, Homes, Listed, Password, Profile, User, hash_password,
};
use millrace_server::storage::LocalOptions;
use serde_json::{Value, json};

use crate::kit::{Answer, Site};

/// An administrator in the configuration, a database, and two groups.
pub(crate) fn accounts(folder: &Path) -> Arc<dyn Authenticator> {
    let root = User { name: "root".to_owned(), ..User::default() };
    let listed = Listed::new().user(root, Password::from("s3cret"));
    let database = Database::open_or_make(&folder.join("users.db")).unwrap();
    let group = |name: &str, settings: Value| Group {
        name: name.to_owned(),
        profile: serde_json::from_value::<Profile>(settings).unwrap(),
    };
    let files = folder.join("files");
    std::fs::create_dir(&files).unwrap();
    let homes = Arc::new(Homes::new(files, LocalOptions::default()));
    Arc::new(
        Chain::new(homes)
            .group(group("staff", json!({ "access": "ro" })))
            .group(group("web", json!({ "sessions": 3 })))
            .source(listed)
            .source(database),
    )
}

struct Administrator {
    site: Site,
    token: String,
}

impl Administrator {
    fn new() -> Self {
        let access = AdminAccess {
            administrators: vec!["root".to_owned(), "eve".to_owned()],
            ..AdminAccess::default()
        };
        let site = Site::with_accounts(access, accounts);
        let token = site.token("administrator", None);
        Self { site, token }
    }

    fn ask(&self, method: &str, path: &str, seen: &str, body: Value) -> Answer {
        let condition = if seen.is_empty() { String::new() } else { format!("If-Match: {seen}\r\n") };
        let body = if body.is_null() { String::new() } else { body.to_string() };
        self.site.ask(method, &format!("/api/v1/{path}"), &format!("{}{condition}", self.token), &body)
    }

    fn read(&self, path: &str) -> Value {
        self.ask("GET", path, "", Value::Null).json()
    }

    /// Adds a user, and returns its entity tag.
    fn add(&self, name: &str, password: &str) -> String {
        let told = self.ask("POST", "users", "", json!({ "name": name, "password": password }));
        assert_eq!(told.status, 200, "{told:?}");
        told.field("etag").unwrap().to_owned()
    }

    fn lets_in(&self, name: &str, password: &str) -> bool {
        let attempt = Attempt::new(name.as_bytes(), password.as_bytes());
        matches!(self.site.running.accounts().authenticate(&attempt), Decision::Granted(_))
    }
}

#[test]
fn a_user_that_is_added_logs_in_and_is_shown_without_its_hash() {
    let admin = Administrator::new();
    let body = json!({ "name": "zoë/1", "password": "s3cret", "groups": ["staff"], "settings": { "sessions": 2, "from": ["127.0.0.0/8"] } });
    let told = admin.ask("POST", "users", "", body.clone());
    assert_eq!(told.status, 200, "{told:?}");
    assert!(admin.lets_in("zoë/1", "s3cret") && !admin.lets_in("zoë/1", "wrong"));
    let user = admin.read("users/zo%C3%AB%2F1");
    assert_eq!(user["settings"], json!({ "from": ["127.0.0.0/8"], "sessions": "2" }));
    assert_eq!((&user["password"], &user["writable"]), (&json!(true), &json!(true)));
    let access = json!({ "key": "access", "value": "ro", "origin": "group staff" });
    assert!(user["effective"].as_array().unwrap().contains(&access), "{user}");
    let again = admin.ask("POST", "users", "", body);
    assert_eq!((again.status, &again.json()["field"]), (409, &json!("name")), "{again:?}");
    let listed = admin.ask("GET", "users", "", Value::Null);
    assert!(!listed.body.contains("argon2") && !user.to_string().contains("argon2"));
}

#[test]
fn users_of_the_configuration_are_listed_first_and_not_changed() {
    let admin = Administrator::new();
    admin.add("ann", "s3cret");
    admin.add("bob", "s3cret");
    let list = |query: &str| {
        let told = admin.read(&format!("users?{query}"));
        let names =
            told["users"].as_array().unwrap().iter().map(|user| user["name"].as_str().unwrap().to_owned());
        (names.collect::<Vec<_>>().join(" "), told["total"].as_u64().unwrap())
    };
    assert_eq!(list(""), ("root ann bob".to_owned(), 3));
    assert_eq!(list("limit=1&offset=1"), ("ann".to_owned(), 3));
    assert_eq!(list("text=O"), ("root bob".to_owned(), 2));
    let told = admin.read("users");
    assert_eq!(told["users"][0]["source"], "the configuration");
    assert_eq!(told["sources"][1]["writable"], true);
    for (method, path, body) in [
        ("DELETE", "users/root", Value::Null),
        ("PUT", "users/root", json!({ "groups": [], "settings": {} })),
        ("PUT", "users/root/password", json!({ "password": "x" })),
        ("POST", "users", json!({ "name": "root", "password": "x" })),
    ] {
        let told = admin.ask(method, path, "*", body);
        assert_eq!(told.status, 409, "{method} {path}: {told:?}");
    }
    assert!(admin.lets_in("root", "s3cret"));
    assert_eq!(admin.ask("DELETE", "users/nemo", "*", Value::Null).status, 404);
}

#[test]
fn a_mistake_changes_nothing_and_names_its_field() {
    let admin = Administrator::new();
    for (body, field) in [
        (json!({ "name": "", "password": "x" }), "name"),
        (json!({ "name": "a\n", "password": "x" }), "name"),
        (json!({ "name": "a", "password": "" }), "password"),
        (json!({ "name": "a" }), "password"),
        (json!({ "name": "a", "hash": "plain" }), "hash"),
        (json!({ "name": "a", "password": "x", "groups": ["nosuch"] }), "groups"),
        (json!({ "name": "a", "password": "x", "settings": { "acess": "ro" } }), "settings.acess"),
        (json!({ "name": "a", "password": "x", "settings": { "access": "all" } }), "settings.access"),
        (json!({ "name": "a", "password": "x", "settings": { "directory": "../b" } }), "settings.directory"),
        (json!({ "name": "a", "password": "x", "settings": { "totp": "A" } }), "settings.totp"),
    ] {
        let told = admin.ask("POST", "users", "", body.clone());
        assert_eq!((told.status, &told.json()["field"]), (422, &json!(field)), "{body}: {told:?}");
    }
    assert_eq!(admin.read("users?text=a")["total"], 0);
}

#[test]
fn the_second_of_two_administrators_is_told() {
    let admin = Administrator::new();
    let seen = admin.add("ann", "s3cret");
    let set = |seen: &str, access: &str| {
        admin.ask("PUT", "users/ann", seen, json!({ "groups": ["web"], "settings": { "access": access } }))
    };
    assert_eq!(set("", "ro").status, 428);
    let first = set(&seen, "ro");
    assert_eq!(first.status, 200, "{first:?}");
    let second = set(&seen, "rw");
    assert_eq!((second.status, second.field("etag")), (412, first.field("etag")));
    assert_eq!(admin.read("users/ann")["settings"], json!({ "access": "ro" }));
    let after = first.field("etag").unwrap();
    let changed = admin.ask("PUT", "users/ann/password", after, json!({ "hash": hash_password(b"other") }));
    assert_ne!(changed.field("etag"), Some(after), "a password is a change, too");
    assert!(admin.lets_in("ann", "other") && !admin.lets_in("ann", "s3cret"));
    assert_eq!(admin.ask("DELETE", "users/ann", after, Value::Null).status, 412);
    assert_eq!(admin.ask("DELETE", "users/ann", changed.field("etag").unwrap(), Value::Null).status, 200);
    assert!(!admin.lets_in("ann", "other"));
}

#[test]
fn codes_are_asked_for_until_they_are_not_and_survive_other_changes() {
    let admin = Administrator::new();
    let seen = admin.add("ann", "s3cret");
    let told = admin.ask("POST", "users/ann/totp", &seen, Value::Null);
    assert!(
        told.json()["url"].as_str().unwrap().starts_with("otpauth://totp/Millrace:ann?secret="),
        "{told:?}"
    );
    let secret = told.json()["secret"].as_str().unwrap().to_owned();
    assert!(!admin.lets_in("ann", "s3cret"));
    let body = json!({ "groups": [], "settings": { "sessions": 4 } });
    let set = admin.ask("PUT", "users/ann", told.field("etag").unwrap(), body);
    assert_eq!((set.status, &set.json()["second-factor"]), (200, &json!(true)), "{set:?}");
    assert!(!set.body.contains(&secret) && !admin.lets_in("ann", "s3cret"));
    assert_eq!(admin.ask("DELETE", "users/ann/totp", set.field("etag").unwrap(), Value::Null).status, 200);
    assert!(admin.lets_in("ann", "s3cret"));
}

#[test]
fn a_login_to_the_api_ends_when_the_password_changes() {
    let admin = Administrator::new();
    let seen = admin.add("eve", "s3cret");
    let body = json!({ "name": "eve", "password": "s3cret" }).to_string();
    let cookie = admin.site.ask("POST", "/api/v1/login", "", &body).cookie();
    assert_eq!(admin.site.ask("GET", "/api/v1/me", &cookie, "").status, 200);
    admin.ask("PUT", "users/eve/password", &seen, json!({ "password": "other" }));
    assert_eq!(admin.site.ask("GET", "/api/v1/me", &cookie, "").status, 401);
}

#[test]
fn groups_are_shown_with_their_members() {
    let admin = Administrator::new();
    let body = json!({ "name": "ann", "password": "x", "groups": ["web", "staff"] });
    assert_eq!(admin.ask("POST", "users", "", body).status, 200);
    let web = json!({ "name": "web", "members": 1, "settings": { "sessions": "3" } });
    assert_eq!(admin.read("groups")["groups"][1], web);
    assert_eq!(admin.read("groups?text=STA")["groups"][0]["name"], "staff");
    assert_eq!(admin.read("groups/web")["settings"], web["settings"]);
    assert_eq!(admin.read("users?group=web")["total"], 1);
    assert_eq!(admin.ask("GET", "groups/nosuch", "", Value::Null).status, 404);
}

#[test]
fn accounts_that_are_no_chain_are_not_listed() {
    let site = Site::start(AdminAccess::default());
    let told = site.ask("GET", "/api/v1/users", &site.token("viewer", None), "");
    assert_eq!(told.status, 409, "{told:?}");
}
