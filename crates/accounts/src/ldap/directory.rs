//! Accounts in a directory (LDAP): the name is searched for, then the password is tried by binding as what was found.
//!
//! The search runs on persistent connections as the search user; each password is tried on a connection of its own,
//! which is then closed. An empty password never binds: a directory takes that for an anonymous bind, which succeeds
//! (RFC 4513, section 5.1.2). A name finds one entry or none; it is compared again here, because a directory ignores
//! case.

use std::borrow::Cow;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use ldap3::{
    LdapConnAsync, LdapConnSettings, LdapError, LdapResult, Scope, SearchEntry, SearchOptions, dn_escape,
    ldap_escape,
};
use millrace_net::tls::client_config;
use serde_json::Value;
use tokio_rustls::rustls::ClientConfig;

use super::Ldap;
use crate::columns::{self, CellError};
use crate::password::Mac;
use crate::recent::Recent;
use crate::remote::{Link, Remote};
use crate::source::{Found, Proof, Source};
use crate::source_error::SetupError;

/// The result code of a wrong password (RFC 4511, appendix A).
const INVALID_CREDENTIALS: u32 = 49;

/// Where OpenLDAP has its socket if nothing else is said: on Debian and Ubuntu, and on Fedora and its relatives.
const SOCKETS: [&str; 2] = ["/run/slapd/ldapi", "/run/ldapi"];

/// A directory as a source of accounts.
pub fn ldap(settings: &Ldap) -> Result<impl Source + use<>, SetupError> {
    let (scheme, host) = settings.url.split_once("://").unwrap_or_default();
    let host = host.split('/').next().unwrap_or_default();
    if !["ldap", "ldaps", "ldapi"].contains(&scheme) || (host.is_empty() && scheme != "ldapi") {
        let schemes = "ldap://, ldaps:// or ldapi://";
        return Err(SetupError::Url { url: settings.url.clone(), schemes });
    }
    if settings.start_tls && scheme != "ldap" {
        return Err(SetupError::StartTls(scheme.to_owned()));
    }
    for (key, filter) in [("filter", &settings.filter), ("groups", &settings.groups)] {
        let is_wrong = |filter: &String| {
            !filter.starts_with('(') || ldap3::parse_filter(filled(filter, "", "")).is_err()
        };
        if let Some(wrong) = filter.as_ref().filter(|filter| is_wrong(filter)) {
            return Err(SetupError::Filter { key, value: wrong.clone() });
        }
    }
    let name = format!("the directory {} at {scheme}://{host}", settings.base);
    let config = client_config(settings.roots.as_deref())?;
    let remote = Remote::new(
        name,
        Directory { settings: settings.clone(), recent: Recent::new(settings.cache), config },
        false,
        settings.time,
    );
    Ok(remote?.marked(&(&settings.filter, &settings.groups)))
}

/// Why the directory gives no answer.
#[derive(Debug, thiserror::Error)]
enum DirectoryError {
    /// The server, or the way there.
    #[error("{}", message(.0))]
    Server(#[from] LdapError),
    /// It refuses the search user.
    #[error("it does not let in {dn}: {}", message(source))]
    Bind { dn: String, source: LdapError },
    /// It refuses to check a password.
    #[error("it does not look at the password: {}", message(.0))]
    Unchecked(#[source] LdapError),
    /// The search has found more than one entry.
    #[error("there is more than one entry of {0}")]
    Ambiguous(String),
    /// An attribute has a value that its setting cannot have.
    #[error("of {user}: {source}")]
    Cell { user: String, source: CellError },
}

#[derive(Debug)]
struct Directory {
    settings: Ldap,
    /// Passwords that need not be tried again yet.
    recent: Recent<()>,
    config: Arc<ClientConfig>,
}

impl Link for Directory {
    const GROUPS_OF_ITS_OWN: bool = true;

    type Connection = ldap3::Ldap;
    type Error = DirectoryError;

    async fn connect(&self) -> Result<ldap3::Ldap, DirectoryError> {
        let mut connection = self.open().await?;
        if let Some((dn, password)) = &self.settings.bind {
            let bound = connection.simple_bind(dn, password).await.and_then(LdapResult::success);
            bound.map_err(|source| DirectoryError::Bind { dn: dn.clone(), source })?;
        }
        Ok(connection)
    }

    async fn find(
        &self,
        connection: &mut ldap3::Ldap,
        name: &str,
        password: Option<&str>,
    ) -> Result<Found, DirectoryError> {
        let Some(entry) = self.entry(connection, name).await? else {
            // As long as a wrong password takes.
            let missing = format!("cn=missing-{},{}", dn_escape(name), self.settings.base);
            let _ = self.prove(&missing, password).await;
            return Ok(Found::Unknown);
        };
        let (dn, mut cells) = self.cells(entry);
        if let Some(groups) = self.groups(connection, name, &dn).await? {
            cells.push(("groups".to_owned(), groups));
        }
        let of = |source| DirectoryError::Cell { user: name.to_owned(), source };
        let Some((user, _)) = columns::user(name, cells).map_err(of)? else { return Ok(Found::Unknown) };
        let proof = self.prove(&dn, password).await?;
        Ok(Found::User(Box::new(user), proof))
    }
}

impl Directory {
    async fn open(&self) -> Result<ldap3::Ldap, LdapError> {
        let settings = LdapConnSettings::new()
            .set_config(Arc::clone(&self.config))
            .set_starttls(self.settings.start_tls);
        let url = with_socket(&self.settings.url, &SOCKETS);
        let (connection, ldap) = LdapConnAsync::with_settings(settings, &url).await?;
        // The next caller gets the error that it ended with.
        tokio::spawn(async { drop(connection.drive().await) });
        Ok(ldap)
    }

    /// Finds the entry of this name, with the same case.
    async fn entry(
        &self,
        connection: &mut ldap3::Ldap,
        name: &str,
    ) -> Result<Option<SearchEntry>, DirectoryError> {
        let Ldap { base, name: attribute, filter, attributes, .. } = &self.settings;
        let filter = filter.as_deref().unwrap_or_default();
        let filter = format!("(&({attribute}={}){filter})", ldap_escape(name));
        let wanted: Vec<&str> =
            attributes.iter().map(|(_, attribute)| attribute.as_str()).chain([attribute.as_str()]).collect();
        let found = search(connection, base, &filter, wanted, 2).await?;
        let mut found = found.into_iter().filter(|entry| {
            values(entry, attribute).is_some_and(|values| values.iter().any(|value| value == name))
        });
        match (found.next(), found.next()) {
            (Some(_), Some(_)) => Err(DirectoryError::Ambiguous(name.to_owned())),
            (entry, _) => Ok(entry),
        }
    }

    /// Returns the DN of an entry, and settings by their names.
    fn cells(&self, entry: SearchEntry) -> (String, Vec<(String, Value)>) {
        let cell = |(key, attribute): &(String, String)| {
            let values = values(&entry, attribute)?;
            Some((
                key.clone(),
                match values {
                    // Of the name of a group that is a name in the directory the first part is meant.
                    values if key == "groups" => values.iter().map(|value| first_part(value)).collect(),
                    [value] => Value::from(value.as_str()),
                    values => values.into(),
                },
            ))
        };
        (entry.dn.clone(), self.settings.attributes.iter().filter_map(cell).collect())
    }

    /// The names of the user's groups; `None` where these are not searched for.
    async fn groups(
        &self,
        connection: &mut ldap3::Ldap,
        name: &str,
        dn: &str,
    ) -> Result<Option<Value>, LdapError> {
        let Ldap { base, groups, group_base, .. } = &self.settings;
        let Some(filter) = groups else { return Ok(None) };
        let (base, filter) = (group_base.as_ref().unwrap_or(base), filled(filter, name, dn));
        let mut found = search(connection, base, &filter, vec!["cn"], 0).await?;
        // The order of a directory's answers varies.
        found.sort_by(|one, other| one.dn.cmp(&other.dn));
        let names = found.iter().filter_map(|group| values(group, "cn")?.first().cloned());
        Ok(Some(names.collect()))
    }

    async fn prove(&self, dn: &str, password: Option<&str>) -> Result<Proof, DirectoryError> {
        let Some(password) = password.filter(|password| !password.is_empty()) else {
            return Ok(Proof::Wrong);
        };
        let login = Mac::of(dn.as_bytes(), password.as_bytes());
        if self.recent.find(login, Instant::now()).is_some() {
            return Ok(Proof::Right);
        }
        let mut connection = self.open().await?;
        let bound = connection.simple_bind(dn, password).await?;
        let _ = connection.unbind().await;
        match bound.rc {
            0 => {
                self.recent.put(login, (), Instant::now());
                Ok(Proof::Right)
            }
            INVALID_CREDENTIALS => Ok(Proof::Wrong),
            _ => Err(DirectoryError::Unchecked(bound.into())),
        }
    }
}

/// Entries of a search; more than `most` are an error, where that is not 0.
async fn search(
    connection: &mut ldap3::Ldap,
    base: &str,
    filter: &str,
    attributes: Vec<&str>,
    most: i32,
) -> Result<Vec<SearchEntry>, LdapError> {
    let found = connection
        .with_search_options(SearchOptions::new().sizelimit(most))
        .search(base, Scope::Subtree, filter, attributes)
        .await
        .and_then(|result| result.success());
    let entries = found?.0.into_iter().filter(|entry| !entry.is_ref() && !entry.is_intermediate());
    Ok(entries.map(SearchEntry::construct).collect())
}

/// The values of an attribute, whose name has no case.
fn values<'a>(entry: &'a SearchEntry, attribute: &str) -> Option<&'a [String]> {
    let found = entry.attrs.iter().find(|(name, _)| name.eq_ignore_ascii_case(attribute));
    found.map(|(_, values)| values.as_slice())
}

fn filled(filter: &str, name: &str, dn: &str) -> String {
    // In one pass: a value may contain a placeholder.
    let parts = filter.split_inclusive('}').map(|part| match part {
        part if part.ends_with("{dn}") => part.replace("{dn}", &ldap_escape(dn)),
        part if part.ends_with("{user}") => part.replace("{user}", &ldap_escape(name)),
        part => part.to_owned(),
    });
    parts.collect()
}

/// `staff` of `cn=staff,ou=groups,dc=example,dc=org`.
fn first_part(name: &str) -> &str {
    name.split_once('=').map_or(name, |(_, rest)| rest.split([',', '+']).next().unwrap_or(rest))
}

/// Returns the directory's own message, with the result code.
fn message(error: &LdapError) -> String {
    match error {
        LdapError::LdapResult { result } if result.text.is_empty() => {
            format!("the result is {}", result.rc)
        }
        LdapError::LdapResult { result } => format!("the result is {}, {}", result.rc, result.text),
        LdapError::Io { source } => source.to_string(),
        error => error.to_string(),
    }
}

/// Returns a URL with a socket where `ldapi:///` names none: of these the first that is there.
fn with_socket<'a>(url: &'a str, sockets: &[&str]) -> Cow<'a, str> {
    if !matches!(url, "ldapi:///" | "ldapi://") {
        return url.into();
    }
    let there = sockets.iter().find(|socket| Path::new(socket).exists());
    let socket = there.or(sockets.first()).copied().unwrap_or_default();
    format!("ldapi://{}", socket.replace('/', "%2F")).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_of_no_socket_means_the_one_that_is_there() {
        assert_eq!(with_socket("ldapi:///", &["/no/such", "/proc/self"]), "ldapi://%2Fproc%2Fself");
        assert_eq!(with_socket("ldapi://", &["/no/such", "/nor/this"]), "ldapi://%2Fno%2Fsuch");
        for whole in ["ldapi://%2Fa%2Fb", "ldap://localhost", "ldaps://a/"] {
            assert_eq!(with_socket(whole, &["/proc/self"]), whole);
        }
    }

    #[test]
    fn values_in_a_filter_are_escaped() {
        assert_eq!(
            filled("(|(member={dn})(memberUid={user}))", "a*)(", "cn={user}"),
            "(|(member=cn={user})(memberUid=a\\2a\\29\\28))"
        );
        assert_eq!(filled("(a=b)", "x", "y"), "(a=b)");
    }

    #[test]
    fn the_first_part_of_a_name_is_the_group() {
        assert_eq!(first_part("CN=Staff,OU=Groups,DC=example"), "Staff");
        assert_eq!(first_part("staff"), "staff");
    }
}
