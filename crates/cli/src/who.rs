//! Which users each door admits, and what they may do: for `millrace check` and the announcement of `serve`. It
//! combines the users' settings with the server's.

use std::net::SocketAddr;
use std::path::{Component, PathBuf};

use millrace_load::units::counted;
use millrace_server::auth::{Access, Effective, Origin, Profile};
use millrace_server::config::CertificateLogin;
use millrace_server::web::HttpsRedirect;
use millrace_server::{Attempt, Config, Permission, Permissions, Protocol};

use crate::config::Login;

/// Trees with permissions of their own that are told; more would scroll what matters away.
const TREES_SHOWN: usize = 4;

/// A protocol to connect by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Door {
    Ftp,
    Ftps,
    Http,
    Https,
}

impl Door {
    pub(crate) const ALL: [Self; 4] = [Self::Ftp, Self::Ftps, Self::Http, Self::Https];

    /// As URLs begin there.
    pub(crate) fn scheme(self) -> &'static str {
        match self {
            Self::Ftp => "ftp",
            Self::Ftps => "ftps",
            Self::Http => "http",
            Self::Https => "https",
        }
    }

    /// Where it is open, as it was configured.
    pub(crate) fn addresses(self, config: &Config) -> &[SocketAddr] {
        match self {
            Self::Ftp => &config.ftp,
            Self::Ftps => &config.ftps,
            Self::Http => &config.http,
            Self::Https => &config.https,
        }
    }

    pub(crate) fn is_http(self) -> bool {
        matches!(self, Self::Http | Self::Https)
    }

    /// Returns true if a connection there is encrypted, or can be where the client asks for it.
    fn can_encrypt(self, config: &Config) -> bool {
        match self {
            Self::Ftp => config.tls.is_some(),
            Self::Ftps | Self::Https => true,
            Self::Http => false,
        }
    }
}

/// The note about plain HTTP requests that are redirected.
pub(crate) const SENT_ON: &str = "requests are sent on to HTTPS (https-redirect)";

/// Why a door admits no user with a password; `None` if it admits some.
pub(crate) fn closed_to_names(door: Door, config: &Config) -> Option<&'static str> {
    match (&config.tls, door) {
        (_, Door::Http) if config.web.https_redirect != HttpsRedirect::Off => Some(SENT_ON),
        (Some(tls), Door::Http) if tls.data_required => Some("files have to be encrypted (tls-required)"),
        (Some(tls), Door::Http) if tls.login_required => Some("logins have to be encrypted (tls-required)"),
        (_, Door::Http) if takes_no_passwords(&config.http) => {
            Some("HTTP takes passwords from this computer only, and is not open at 127.0.0.1")
        }
        _ => None,
    }
}

/// Returns true if only other computers can connect to these addresses.
fn takes_no_passwords(http: &[SocketAddr]) -> bool {
    !http.iter().any(|address| address.ip().is_loopback() || address.ip().is_unspecified())
}

/// Why a user does not come in by a door, however right the password, the place and the hour are; `None` where the
/// user does.
pub(crate) fn barred(login: &Login, door: Door, config: &Config) -> Option<String> {
    let said = &login.effective.said;
    let lacks_tls = |key: &str| format!("{key} is true, and there is no certificate");
    match (door, &config.tls) {
        (_, None) if said.require_tls == Some(true) => return Some(lacks_tls("require-tls")),
        (_, None) if said.require_tls_data == Some(true) => return Some(lacks_tls("require-tls-data")),
        (Door::Http, _) if said.require_tls_data == Some(true) => {
            return Some("files have to be encrypted (require-tls-data)".to_owned());
        }
        (Door::Http, _) if config.web.https_redirect != HttpsRedirect::Off => {
            return Some(SENT_ON.to_owned());
        }
        (Door::Http, Some(tls)) if tls.data_required => {
            return closed_to_names(door, config).map(str::to_owned);
        }
        (Door::Http, _) if login.name.is_some() => {
            if let Some(why) = closed_to_names(door, config) {
                return Some(why.to_owned());
            }
        }
        _ => {}
    }
    let mut anywhere = login.effective.clone();
    anywhere.said.from = None;
    anywhere.said.not_from = None;
    anywhere.said.hours = None;
    let encrypted = door.can_encrypt(config);
    let attempt = Attempt {
        protocol: if door.is_http() { Protocol::Http } else { Protocol::Ftp },
        encrypted,
        certified: encrypted,
        ..Attempt::new(login.shown().as_bytes(), b"")
    };
    anywhere.admit(&attempt).err().map(|why| why.to_string())
}

/// Why a user comes in by none of the doors that are open; `None` where one of them will do.
pub(crate) fn shut_out(login: &Login, config: &Config) -> Option<String> {
    let mut first = None;
    for door in open_doors(config) {
        match barred(login, door, config) {
            None => return None,
            Some(why) => first = first.or(Some(why)),
        }
    }
    first
}

/// Returns true if a setting refuses the user: the account is disabled or has expired.
pub(crate) fn is_shut_out_on_purpose(login: &Login) -> bool {
    let mut for_now = login.effective.clone();
    let Profile { disabled, expires, .. } = for_now.said;
    for_now.said = Profile { disabled, expires, ..Profile::default() };
    for_now.admit(&Attempt::new(login.shown().as_bytes(), b"")).is_err()
}

fn open_doors(config: &Config) -> impl Iterator<Item = Door> {
    Door::ALL.into_iter().filter(|door| !door.addresses(config).is_empty())
}

/// `alice may read and write, in photos; at /in: write`: the permissions at every door.
pub(crate) fn may(login: &Login) -> String {
    let said = &login.effective.said;
    let base = said.access.map_or(Permissions::READ_WRITE, |access| access.0);
    let mut text = format!("{} may {}", login.shown(), doing(base));
    // "." is all of it.
    let is_part = |folder: &&PathBuf| folder.components().any(|part| matches!(part, Component::Normal(_)));
    if let Some(folder) = login.beneath.as_ref().filter(is_part) {
        text += &format!(", in {}", folder.display());
    }
    let trees = said.tree.as_deref().unwrap_or_default();
    for tree in trees.iter().take(TREES_SHOWN) {
        text += &format!("; at {}: {}", tree.path, at(tree.access));
    }
    if let Some(more @ 1..) = trees.len().checked_sub(TREES_SHOWN) {
        text += &format!("; something else at {}", counted(more as u64, "more place"));
    }
    for (what, names) in [("no names", &said.deny_names), ("only files named", &said.allow_names)] {
        if let Some(names) = names {
            text += &format!("; {what} {}", listed(names));
        }
    }
    if let Some(from) = &said.from {
        text += &format!("; from {}", listed(from));
    }
    if let Some(not_from) = &said.not_from {
        text += &format!("; not from {}", listed(not_from));
    }
    if let Some(hours) = &said.hours {
        text += &format!("; {}", listed(hours));
    }
    if said.require_tls == Some(true) {
        text += "; encrypted only";
    }
    match said.tls_client_login {
        Some(CertificateLogin::Alone) => text += "; by certificate",
        Some(CertificateLogin::AndPassword) => text += "; by certificate and password",
        Some(CertificateLogin::OrPassword) => text += "; by certificate or password",
        Some(CertificateLogin::Off) | None => {}
    }
    text
}

/// The same, and by what; or why the user is not served.
pub(crate) fn standing(login: &Login, config: &Config) -> String {
    if let Some(why) = shut_out(login, config) {
        return format!("{} is not served: {why}.", login.shown());
    }
    let mut text = may(login);
    let all: Vec<Door> = open_doors(config).collect();
    let open: Vec<Door> = all.iter().copied().filter(|door| barred(login, *door, config).is_none()).collect();
    if open.len() < all.len() {
        let names: Vec<String> = open.iter().map(|door| door.scheme().to_uppercase()).collect();
        text += &format!("; by {} only", names.join(" and "));
    }
    let said = &login.effective.said;
    let is_for_all = !config.http.iter().all(|address| address.ip().is_loopback());
    if login.name.is_some() && open.contains(&Door::Http) && is_for_all {
        text += "; by HTTP from this computer only";
    }
    if said.totp.is_some() {
        text += "; with a code";
    }
    if let Some(expires) = &said.expires {
        text += &format!("; until {expires}");
    }
    text + "."
}

/// An account's limits, each with its key: `sessions 3, quota-bytes 1000 (of the group staff)`.
pub(crate) fn limits(effective: &Effective) -> Option<String> {
    let is_limit = |key: &str| {
        matches!(key, "download" | "upload" | "sessions" | "ratio")
            || key.starts_with("session-")
            || key.starts_with("quota-")
    };
    let lines = effective.explain().into_iter().filter_map(|(key, value, origin)| match origin {
        Origin::Default => None,
        _ if !is_limit(key) => None,
        Origin::User => Some(format!("{key} {value}")),
        Origin::Group(group) => Some(format!("{key} {value} (of the group {group})")),
    });
    let limits: Vec<String> = lines.collect();
    (!limits.is_empty()).then(|| limits.join(", "))
}

fn listed<T: std::fmt::Display>(values: &[T]) -> String {
    values.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// To follow `may`.
fn doing(permissions: Permissions) -> String {
    let others = match permissions.without(Permission::Admin) {
        Permissions::NONE if permissions.allows(Permission::Admin) => {
            return "administer the server".to_owned();
        }
        Permissions::NONE => "do nothing".to_owned(),
        Permissions::READ_ONLY => "read".to_owned(),
        Permissions::READ_WRITE => "read and write".to_owned(),
        some => Access(some).to_string(),
    };
    match permissions.allows(Permission::Admin) {
        true => format!("{others}, and administer the server"),
        false => others,
    }
}

fn at(access: Access) -> String {
    match doing(access.0) {
        nothing if access.0.is_empty() => nothing.replace("do ", ""),
        some => some,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use millrace_server::Accounts;
    use millrace_server::auth::{User, resolve};
    use millrace_server::config::{KeyPair, Plan, Tls};
    use millrace_server::web::Web;
    use millrace_vfs::Storage;

    use super::*;

    fn login(profile: &str) -> Login {
        let profile: Profile = serde_json::from_str(profile).unwrap_or_else(|error| panic!("{error}"));
        let user = User { name: "al".to_owned(), groups: Vec::new(), profile };
        Login::new(Some("al".to_owned()), resolve(&user, |_| None), None)
    }

    /// FTP and HTTP for this computer, with TLS or without.
    fn config(has_tls: bool) -> Config {
        let nothing: Arc<dyn Storage> = Arc::new(millrace_storage::MemoryStorage::new());
        let accounts = Accounts::new().anonymous(Permissions::READ_ONLY, nothing);
        let plan = || Plan {
            identities: vec![KeyPair { certificate: "c".into(), key: "k".into() }],
            ..Plan::default()
        };
        Config {
            http: vec![([127, 0, 0, 1], 8080).into()],
            tls: has_tls.then(|| Tls::new(plan())),
            ..Config::new(Arc::new(accounts))
        }
    }

    #[test]
    fn a_users_permissions_are_summarised() {
        for (profile, expected) in [
            ("{}", "al may read and write."),
            (r#"{"access": "ro"}"#, "al may read."),
            (
                r#"{"access": "ro", "tree": [{"path": "/in", "access": ["write"]}]}"#,
                "al may read; at /in: write.",
            ),
            (
                r#"{"access": "none", "tree": [{"path": "/in", "access": "rw"}, {"path": "/in/x", "access": "none"}]}"#,
                "al may do nothing; at /in: read and write; at /in/x: nothing.",
            ),
            (r#"{"access": ["list", "write"]}"#, "al may list, write."),
            (r#"{"access": ["list", "read", "admin"]}"#, "al may read, and administer the server."),
            (r#"{"access": ["list", "write", "admin"]}"#, "al may list, write, and administer the server."),
            (r#"{"protocols": ["http"]}"#, "al may read and write; by HTTP only."),
            (r#"{"disabled": true}"#, "al is not served: the account is disabled."),
            (
                r#"{"expires": "2020-01-01"}"#,
                "al is not served: the account has expired: expires is 2020-01-01T00:00:00Z.",
            ),
            (
                r#"{"require-tls": true}"#,
                "al is not served: require-tls is true, and there is no certificate.",
            ),
            (
                r#"{"from": ["10.0.0.0/8"], "hours": ["mon-fri 08:00-18:00"], "deny-names": [".*"]}"#,
                "al may read and write; no names .*; from 10.0.0.0/8; mon-fri 08:00-18:00.",
            ),
        ] {
            assert_eq!(standing(&login(profile), &config(false)), expected, "{profile}");
        }
    }

    #[test]
    fn a_door_lets_in_whom_it_can_encrypt_for() {
        let requires = login(r#"{"require-tls": true}"#);
        assert_eq!(standing(&requires, &config(true)), "al may read and write; encrypted only; by FTP only.");
        let mut strict = config(true);
        strict.tls.as_mut().unwrap().login_required = true;
        assert_eq!(standing(&login("{}"), &strict), "al may read and write; by FTP only.");
        let anonymous = Login { name: None, ..login(r#"{"access": "ro"}"#) };
        assert_eq!(standing(&anonymous, &strict), "anonymous may read.");
        let sent_on = Web { https_redirect: HttpsRedirect::To(443), ..Web::default() };
        assert_eq!(
            standing(&anonymous, &Config { web: sent_on, ..self::config(false) }),
            "anonymous may read; by FTP only."
        );
        strict.tls.as_mut().unwrap().data_required = true;
        assert_eq!(standing(&anonymous, &strict), "anonymous may read; by FTP only.");
    }

    #[test]
    fn passwords_cross_no_network_in_clear_by_http() {
        let mut config = config(false);
        config.http = vec![([192, 0, 2, 1], 80).into()];
        assert_eq!(standing(&login("{}"), &config), "al may read and write; by FTP only.");
        config.http.push(([0, 0, 0, 0], 80).into());
        assert_eq!(
            standing(&login("{}"), &config),
            "al may read and write; by HTTP from this computer only."
        );
        config.http.pop();
        config.ftp.clear();
        assert_eq!(
            standing(&login("{}"), &config),
            "al is not served: HTTP takes passwords from this computer only, and is not open at 127.0.0.1."
        );
        assert!(!is_shut_out_on_purpose(&login("{}")));
        assert!(is_shut_out_on_purpose(&login(r#"{"disabled": true}"#)));
    }
}
