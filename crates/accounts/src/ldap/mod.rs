//! Accounts in a directory (LDAP): the settings, and the source where the feature `ldap` is on.

#[cfg_attr(not(feature = "ldap"), path = "without.rs")]
mod directory;

use std::time::Duration;

pub use directory::ldap;

/// A directory, and how it is asked.
#[derive(Debug, Clone)]
pub struct Ldap {
    /// `ldap://HOST`, `ldaps://HOST`, or `ldapi://` and the path of a socket, with `%2F` for `/`; `ldapi:///` is the usual socket.
    pub url: String,
    /// Whether an `ldap://` connection is encrypted before anything is said on it.
    pub start_tls: bool,
    /// Certificates in PEM that the server's has to be signed by, instead of those that browsers trust.
    pub roots: Option<Vec<u8>>,
    /// The search user and its password; `None` for an anonymous search.
    pub bind: Option<(String, String)>,
    /// Beneath what the users are.
    pub base: String,
    /// The attribute that has the name.
    pub name: String,
    /// A further condition for users: `(objectClass=person)`.
    pub filter: Option<String>,
    /// How groups are found, with `{dn}` and `{user}`: `(member={dn})`.
    pub groups: Option<String>,
    /// Beneath what the groups are; `None` where the users are.
    pub group_base: Option<String>,
    /// Settings of a user, and the attributes that have them.
    pub attributes: Vec<(String, String)>,
    /// How long an answer may take.
    pub time: Duration,
    /// How long a password that was right is not tried again; the entry is looked at each time.
    pub cache: Duration,
}
