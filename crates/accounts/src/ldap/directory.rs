//! Accounts in a directory (LDAP): the name is searched for, then the password is tried by binding as what was found.
//!
//! The search runs on persistent connections as the search user; each password is tried on a connection of its own,
//! which is then closed. An empty password never binds: a directory takes that for an anonymous bind, which succeeds
//! (RFC 4513, section 5.1.2). A name finds one entry or none; it is compared again here, because a directory ignores
//! case.

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
use crate::columns;
use crate::password::Mac;
use crate::recent::Recent;
use crate::remote::{Link, Remote};
use crate::source::{Found, Proof, Source};

/// The result code that says: wrong password (RFC 4511, appendix A).
const INVALID_CREDENTIALS: u32 = 49;

/// A directory as a source of accounts.
pub fn ldap(settings: &Ldap) -> Result<impl Source + use<>, String> {
    let (scheme, host) = settings.url.split_once("://").unwrap_or_default();
    let host = host.split('/').next().unwrap_or_default();
    if !["ldap", "ldaps", "ldapi"].contains(&scheme) || host.is_empty() {
        return Err(format!("{:?} is no URL of ldap://, ldaps:// or ldapi://", settings.url));
    }
    if settings.start_tls && scheme != "ldap" {
        return Err(format!("StartTLS is for ldap://, not for {scheme}://"));
    }
    for (what, filter) in [("filter", &settings.filter), ("groups", &settings.groups)] {
        let is_wrong = |filter: &String| {
            !filter.starts_with('(') || ldap3::parse_filter(filled(filter, "", "")).is_err()
        };
        if let Some(wrong) = filter.as_ref().filter(|filter| is_wrong(filter)) {
            return Err(format!(
                "{what}: {wrong:?} is no filter, which is written as \"(objectClass=person)\""
            ));
        }
    }
    let name = format!("the directory {} at {scheme}://{host}", settings.base);
    let config = client_config(settings.roots.as_deref()).map_err(|error| error.to_string())?;
    let remote = Remote::new(
        name,
        Directory { settings: settings.clone(), recent: Recent::new(settings.cache), config },
        false,
        settings.time,
    );
    Ok(remote?.marked(&(&settings.filter, &settings.groups)))
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

    async fn connect(&self) -> Result<ldap3::Ldap, String> {
        let mut connection = self.open().await?;
        if let Some((dn, password)) = &self.settings.bind {
            let bound = connection.simple_bind(dn, password).await.and_then(LdapResult::success);
            bound.map_err(|error| format!("it does not let in {dn}: {}", told(&error)))?;
        }
        Ok(connection)
    }

    async fn find(
        &self,
        connection: &mut ldap3::Ldap,
        name: &str,
        password: Option<&str>,
    ) -> Result<Found, String> {
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
        let of = |why| format!("of {name}: {why}");
        let Some((user, _)) = columns::user(name, cells).map_err(of)? else { return Ok(Found::Unknown) };
        let proof = self.prove(&dn, password).await?;
        Ok(Found::User(Box::new(user), proof))
    }
}

impl Directory {
    async fn open(&self) -> Result<ldap3::Ldap, String> {
        let settings = LdapConnSettings::new()
            .set_config(Arc::clone(&self.config))
            .set_starttls(self.settings.start_tls);
        let opened = LdapConnAsync::with_settings(settings, &self.settings.url).await;
        let (connection, ldap) = opened.map_err(|error| told(&error))?;
        // The next caller gets the reason why it ended.
        tokio::spawn(async { drop(connection.drive().await) });
        Ok(ldap)
    }

    /// The entry of this very name.
    async fn entry(&self, connection: &mut ldap3::Ldap, name: &str) -> Result<Option<SearchEntry>, String> {
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
            (Some(_), Some(_)) => Err(format!("there is more than one entry of {name}")),
            (entry, _) => Ok(entry),
        }
    }

    /// Settings by their names, and whose they are.
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
    ) -> Result<Option<Value>, String> {
        let Ldap { base, groups, group_base, .. } = &self.settings;
        let Some(filter) = groups else { return Ok(None) };
        let (base, filter) = (group_base.as_ref().unwrap_or(base), filled(filter, name, dn));
        let mut found = search(connection, base, &filter, vec!["cn"], 0).await?;
        // In an order that does not change with the directory's mood.
        found.sort_by(|one, other| one.dn.cmp(&other.dn));
        let names = found.iter().filter_map(|group| values(group, "cn")?.first().cloned());
        Ok(Some(names.collect()))
    }

    async fn prove(&self, dn: &str, password: Option<&str>) -> Result<Proof, String> {
        let Some(password) = password.filter(|password| !password.is_empty()) else {
            return Ok(Proof::Wrong);
        };
        let login = Mac::of(dn.as_bytes(), password.as_bytes());
        if self.recent.find(login, Instant::now()).is_some() {
            return Ok(Proof::Right);
        }
        let mut connection = self.open().await?;
        let bound = connection.simple_bind(dn, password).await.map_err(|error| told(&error))?;
        let _ = connection.unbind().await;
        match bound.rc {
            0 => {
                self.recent.put(login, (), Instant::now());
                Ok(Proof::Right)
            }
            INVALID_CREDENTIALS => Ok(Proof::Wrong),
            _ => Err(format!("it does not look at the password: {}", told(&LdapError::from(bound)))),
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
) -> Result<Vec<SearchEntry>, String> {
    let found = connection
        .with_search_options(SearchOptions::new().sizelimit(most))
        .search(base, Scope::Subtree, filter, attributes)
        .await
        .and_then(|result| result.success());
    let (entries, _) = found.map_err(|error| told(&error))?;
    let entries = entries.into_iter().filter(|entry| !entry.is_ref() && !entry.is_intermediate());
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

/// With what the directory itself says.
fn told(error: &LdapError) -> String {
    match error {
        LdapError::LdapResult { result } if result.text.is_empty() => {
            format!("the result is {}", result.rc)
        }
        LdapError::LdapResult { result } => format!("the result is {}, {}", result.rc, result.text),
        LdapError::Io { source } => source.to_string(),
        error => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
