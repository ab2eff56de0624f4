//! Who may do what: roles of users and groups, and the names that the API is reached by.

use std::net::IpAddr;
use std::sync::Arc;

use millrace_admin::Role;
use millrace_oidc::{Identity, Provider};
use millrace_server::Accounts;

use super::logins::{User, groups, name_of};

/// What precedes the name of a group.
const GROUP: &str = "group ";

/// What precedes a name in a client's certificate.
const CERTIFICATE: &str = "certificate ";

/// What precedes the name of a group of a provider of OpenID Connect.
const OIDC_GROUP: &str = "oidc group ";

/// What precedes a mail address that a provider has verified.
const OIDC_EMAIL: &str = "oidc email ";

/// Who may log in to the API, and by which names it is reached.
#[derive(Debug, Clone, Default)]
pub struct AdminAccess {
    /// Names of users, of groups behind `group `, of clients' certificates behind `certificate `; of a provider's groups
    /// behind `oidc group `, and mail addresses that it has verified behind `oidc email `.
    pub viewers: Vec<String>,
    /// The same.
    pub operators: Vec<String>,
    /// The same.
    pub administrators: Vec<String>,
    /// Names beside those of loopback and the server's own addresses.
    pub hosts: Vec<String>,
    /// Who logs in users besides.
    pub provider: Option<Arc<Provider>>,
}

impl AdminAccess {
    /// Returns whether no user has a role.
    pub(crate) fn is_empty(&self) -> bool {
        Role::ALL.iter().all(|role| self.holders(*role).is_empty())
    }

    /// Returns the highest role of a user. The anonymous user has none, as any password is right.
    pub(crate) fn role_of(&self, user: &str, groups: &[String]) -> Option<Role> {
        if Accounts::is_anonymous_name(user.as_bytes()) {
            return None;
        }
        let is_held = |holder: &String| match holder.strip_prefix(GROUP) {
            Some(group) => groups.iter().any(|of_user| of_user == group),
            None => {
                holder == user
                    && ![CERTIFICATE, OIDC_GROUP, OIDC_EMAIL].iter().any(|kind| holder.starts_with(kind))
            }
        };
        Role::ALL.into_iter().rev().find(|role| self.holders(*role).iter().any(is_held))
    }

    /// Returns the highest role of a user who has logged in, as the accounts or the provider had it then.
    pub(crate) fn role_of_user(&self, user: &User) -> Option<Role> {
        match user {
            User::OfAccounts { attempt, account, .. } => self.role_of(&name_of(attempt), &groups(account)),
            User::OfProvider(identity) => self.role_of_identity(identity),
        }
    }

    /// Returns the highest role of a client's certificate, and by which of its names.
    pub(crate) fn role_of_certificate(&self, names: &[String]) -> Option<(Role, String)> {
        let held = |holder: &String| {
            let name = holder.strip_prefix(CERTIFICATE)?;
            names.iter().find(|of_client| *of_client == name).cloned()
        };
        let of_role = |role: Role| self.holders(role).iter().find_map(held).map(|name| (role, name));
        Role::ALL.into_iter().rev().find_map(of_role)
    }

    /// Returns the highest role of a user of the provider, as long as that is the one in force.
    pub(crate) fn role_of_identity(&self, identity: &Identity) -> Option<Role> {
        self.provider.as_ref().filter(|provider| provider.issuer() == identity.issuer)?;
        let is_held =
            |holder: &String| match (holder.strip_prefix(OIDC_GROUP), holder.strip_prefix(OIDC_EMAIL)) {
                (Some(group), _) => identity.groups.iter().any(|of_user| of_user == group),
                (_, Some(email)) => {
                    identity.email.as_ref().is_some_and(|own| own.eq_ignore_ascii_case(email))
                }
                _ => false,
            };
        Role::ALL.into_iter().rev().find(|role| self.holders(*role).iter().any(is_held))
    }

    /// Returns whether a `Host` field names this server: else a page of another site may have had its name lead here.
    pub(crate) fn knows_host(&self, host: &str, local: IpAddr) -> bool {
        let name = without_port(host);
        let address = name.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
        match address {
            Ok(address) => {
                let address = address.to_canonical();
                address.is_loopback() || address == local.to_canonical() || self.names(name)
            }
            Err(_) => name.eq_ignore_ascii_case("localhost") || self.names(name),
        }
    }

    fn names(&self, name: &str) -> bool {
        self.hosts.iter().any(|host| host.eq_ignore_ascii_case(name))
    }

    fn holders(&self, role: Role) -> &[String] {
        match role {
            Role::Viewer => &self.viewers,
            Role::Operator => &self.operators,
            Role::Administrator => &self.administrators,
        }
    }
}

/// `example.net:9121` and `[::1]:9121` without the port.
fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if !name.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit()) => {
            if name.contains(':') && !name.ends_with(']') { host } else { name }
        }
        _ => host,
    }
}

#[cfg(test)]
mod tests {
    use millrace_oidc::Settings;

    use super::*;

    #[test]
    fn the_highest_role_counts_and_anonymous_has_none() {
        let access = AdminAccess {
            viewers: vec!["group staff".to_owned(), "ann".to_owned(), "anonymous".to_owned()],
            operators: vec!["ann".to_owned()],
            administrators: vec!["group root".to_owned()],
            ..AdminAccess::default()
        };
        let groups = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        assert_eq!(access.role_of("ann", &[]), Some(Role::Operator));
        assert_eq!(access.role_of("bob", &groups(&["staff"])), Some(Role::Viewer));
        assert_eq!(access.role_of("bob", &groups(&["staff", "root"])), Some(Role::Administrator));
        assert_eq!(access.role_of("staff", &[]), None);
        assert_eq!(access.role_of("anonymous", &groups(&["root"])), None);
        assert_eq!(access.role_of("group root", &[]), None);
    }

    #[test]
    fn a_certificate_has_the_role_of_its_name_and_a_user_of_that_name_has_not() {
        let access = AdminAccess {
            viewers: vec!["certificate grafana.example.net".to_owned(), "group staff".to_owned()],
            operators: vec!["certificate ann@example.net".to_owned()],
            ..AdminAccess::default()
        };
        let role = |names: &[&str]| {
            let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
            access.role_of_certificate(&names)
        };
        assert_eq!(role(&["grafana.example.net"]), Some((Role::Viewer, "grafana.example.net".to_owned())));
        let both = ["grafana.example.net", "ann@example.net"];
        assert_eq!(role(&both), Some((Role::Operator, "ann@example.net".to_owned())));
        assert_eq!(role(&["staff"]), None);
        assert_eq!(role(&["certificate ann@example.net"]), None);
        assert_eq!(access.role_of("ann@example.net", &[]), None);
        assert_eq!(access.role_of("certificate ann@example.net", &[]), None);
    }

    #[test]
    fn a_user_of_the_provider_has_the_role_of_its_groups_and_address_and_of_no_other_name() {
        let settings = Settings { issuer: "https://id.example.net".to_owned(), ..Settings::default() };
        let access = AdminAccess {
            viewers: vec!["oidc group staff".to_owned(), "ann@example.net".to_owned()],
            operators: vec!["oidc email ann@example.net".to_owned(), "group ops".to_owned()],
            provider: Some(Arc::new(Provider::new(settings).unwrap())),
            ..AdminAccess::default()
        };
        let identity = |email: Option<&str>, groups: &[&str]| Identity {
            issuer: "https://id.example.net".to_owned(),
            subject: "ann@example.net".to_owned(),
            email: email.map(str::to_owned),
            groups: groups.iter().map(|group| (*group).to_owned()).collect(),
        };
        assert_eq!(access.role_of_identity(&identity(None, &["staff", "ops"])), Some(Role::Viewer));
        assert_eq!(access.role_of_identity(&identity(Some("Ann@example.net"), &[])), Some(Role::Operator));
        assert_eq!(access.role_of_identity(&identity(None, &["ops"])), None, "ops is a group of this server");
        let other = Identity { issuer: "https://id.example.org".to_owned(), ..identity(None, &["staff"]) };
        assert_eq!(access.role_of_identity(&other), None);
        assert_eq!(access.role_of("oidc group staff", &[]), None);
        let without = AdminAccess { provider: None, ..access };
        assert_eq!(without.role_of_identity(&identity(None, &["staff"])), None);
    }

    #[test]
    fn hosts_are_loopback_names_own_addresses_and_those_of_the_setting() {
        let access = AdminAccess { hosts: vec!["admin.example.net".to_owned()], ..AdminAccess::default() };
        let local = IpAddr::from([192, 0, 2, 1]);
        for known in
            ["localhost", "LocalHost:9121", "127.0.0.1:9121", "[::1]:1", "192.0.2.1", "Admin.example.net:443"]
        {
            assert!(access.knows_host(known, local), "{known}");
        }
        for foreign in
            ["", "evil.example", "192.0.2.2:9121", "localhost.evil.example", "127.0.0.1.evil.example:1"]
        {
            assert!(!access.knows_host(foreign, local), "{foreign}");
        }
    }
}
