//! The settings of users and groups: one form for the configuration file, databases, programs and web services.
//!
//! A [`Profile`] has only the configured values; the others are `None`, so that a group, and then the default, applies.
//! `effective.rs` combines them. Every key is optional, and an unknown one is an error everywhere: a limit with a
//! typing mistake in its name is no limit.

use std::fmt;
use std::str::FromStr;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use millrace_ftp::glob::Glob;
use millrace_ftp::session::{Permission, Permissions};
use millrace_limits::as_text;
use serde::de::{self, Deserializer, SeqAccess, Visitor};
use serde::{Deserialize, Serialize, Serializer};

use super::Protocol;
use super::totp::Secret;
use crate::security::{CertificateLogin, Resumption};
use millrace_limits::{Limit, Network, Per, Quantity, Ratio, Scheduled, says_when};

/// The settings of a user, or of all members of a group.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Profile {
    /// The folder that is all the user sees, within the served one: `"home/{user}"`, `"{group}/in"`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub directory: Option<String>,
    /// The permissions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub access: Option<Access>,
    /// Where something else may be done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tree: Option<Vec<Tree>>,
    /// Names that no file or folder has, as far as the user can tell.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deny_names: Option<Vec<NamePattern>>,
    /// Names that files have to have.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow_names: Option<Vec<NamePattern>>,
    /// Networks to log in from; all others are refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<Vec<Network>>,
    /// Networks not to log in from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_from: Option<Vec<Network>>,
    /// When to be logged in; at all other times the account is refused and its sessions are ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hours: Option<Vec<Hours>>,
    /// The protocols to log in by.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocols: Option<Vec<Protocol>>,
    /// Whether only encrypted connections are accepted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub require_tls: Option<bool>,
    /// Whether files and listings have to be encrypted as well.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub require_tls_data: Option<bool>,
    /// Whether data connections have to resume the TLS session of their control connection.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls_resumption: Option<Resumption>,
    /// What a client certificate proves.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls_client_login: Option<CertificateLogin>,
    /// From when on the account cannot be used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires: Option<Expiry>,
    /// Whether the account cannot be used now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disabled: Option<bool>,
    /// The secret of the codes that are asked for as well.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub totp: Option<Secret>,
    /// Bytes a second to clients, of all sessions together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub download: Option<Amount>,
    /// Bytes a second from clients, of all sessions together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub upload: Option<Amount>,
    /// As `download`, of each session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_download: Option<Amount>,
    /// As `upload`, of each session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_upload: Option<Amount>,
    /// Sessions at a time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sessions: Option<Amount>,
    /// Bytes of all files in the user's folder.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quota_bytes: Option<Scheduled<Quantity>>,
    /// Files in the user's folder.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quota_files: Option<Scheduled<Quantity>>,
    /// Bytes from the user's clients within a period.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quota_upload: Option<Scheduled<Per>>,
    /// Bytes to the user's clients within a period.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quota_download: Option<Scheduled<Per>>,
    /// Both together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quota_transfer: Option<Scheduled<Per>>,
    /// How much may be downloaded for what was uploaded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ratio: Option<Scheduled<Ratio>>,
    /// Whether it is an account of the system, with whose own rights its files are read and written. No configuration
    /// says so: a source does that knows the account by the system.
    #[serde(skip)]
    pub is_system_account: bool,
}

/// A user, as a source of accounts has it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct User {
    /// As the client gives it.
    pub name: String,
    /// In the order in which they are asked for what the user does not say.
    pub groups: Vec<String>,
    /// The user's own settings.
    pub profile: Profile,
}

/// The settings of a group's members.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Group {
    /// Its name.
    pub name: String,
    /// The defaults for members.
    pub profile: Profile,
}

/// Permissions: `"ro"`, `"rw"`, `"none"`, or an array of permissions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Access(pub Permissions);

/// Other permissions at and beneath a path.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Tree {
    /// As the user sees it; a component may be a pattern: `"/projects/*/incoming"`.
    pub path: PlacePattern,
    /// The permissions there.
    pub access: Access,
}

/// A path, of which each component may be a pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlacePattern(String);

/// A name, or a pattern of names: one component of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamePattern(String);

/// Some hours of some days: `mon-fri 08:00-18:00 Europe/Paris`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hours {
    text: String,
    limit: Limit,
}

/// The first moment at which an account cannot be used any more: a date (its beginning, in UTC) or a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Expiry(Timestamp);

/// A limit of bytes a second or of sessions, which may follow the clock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Amount(pub Limit);

/// Why a text is not what it should be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ValueError(String);

impl PlacePattern {
    /// In its original form.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for PlacePattern {
    type Err = ValueError;

    /// Refuses what no path of a client looks like: a rule that never matches protects nothing.
    fn from_str(text: &str) -> Result<Self, ValueError> {
        let wrong = |why: &str| Err(ValueError(format!("{text:?} is no path of clients: {why}")));
        for component in text.split('/') {
            match component {
                "." | ".." => return wrong("write it without . and .. in it"),
                _ if component.contains('\0') => return wrong("it has a NUL in it"),
                _ => check_pattern(component)?,
            }
        }
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Display for PlacePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl NamePattern {
    /// In its original form.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for NamePattern {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        match text {
            "" | "." | ".." => Err(ValueError(format!("{text:?} is no name of a file or folder"))),
            _ if text.contains(['/', '\0']) => Err(ValueError(format!(
                "{text:?} is no name of a file or folder: a name has no slash; for a path write a `tree`"
            ))),
            _ => check_pattern(text).map(|()| Self(text.to_owned())),
        }
    }
}

impl fmt::Display for NamePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn check_pattern(text: &str) -> Result<(), ValueError> {
    match Glob::is_closed(text.as_bytes()) {
        true => Ok(()),
        false => Err(ValueError(format!("{text:?} has a [ without its ]; write \\[ for a [ in a name"))),
    }
}

impl Hours {
    /// Returns true if a moment, in seconds since 1970, lies within.
    pub fn contain(&self, seconds: i64) -> bool {
        self.limit.at(seconds) == 1
    }
}

impl FromStr for Hours {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let wrong = || {
            let why = text.split_whitespace().find_map(|word| says_when(word).err());
            let why = why.map_or(String::new(), |why| format!(": {why}"));
            ValueError(format!(
                "{text:?} is no time of the week, such as \"mon-fri 08:00-18:00 Europe/Paris\"{why}"
            ))
        };
        match format!("none; {text} 1").parse::<Limit>() {
            Ok(limit) if !text.contains(';') => Ok(Self { text: text.to_owned(), limit }),
            _ => Err(wrong()),
        }
    }
}

impl fmt::Display for Hours {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Expiry {
    /// In seconds since 1970.
    pub fn seconds(&self) -> i64 {
        self.0.as_second()
    }
}

impl FromStr for Expiry {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let date = || text.parse::<jiff::civil::Date>().and_then(|date| date.to_zoned(TimeZone::UTC));
        let moment = match text.contains(['T', ' ']) {
            true => text.parse::<Timestamp>(),
            false => date().map(|date| date.timestamp()),
        };
        moment.map(Self).map_err(|_| {
            ValueError(format!("{text:?} is no date; write \"2027-01-31\" or \"2027-01-31T18:00:00Z\""))
        })
    }
}

impl fmt::Display for Expiry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for Amount {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        text.parse().map(Self).map_err(|error: millrace_limits::LimitError| ValueError(error.to_string()))
    }
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for Access {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        match text {
            "ro" => Ok(Self(Permissions::READ_ONLY)),
            "rw" => Ok(Self(Permissions::READ_WRITE)),
            "none" => Ok(Self(Permissions::NONE)),
            word => permission(word).map(|permission| Self(Permissions::only(permission))),
        }
    }
}

fn permission(word: &str) -> Result<Permission, ValueError> {
    let found = Permission::WORDS.iter().find(|(_, name)| *name == word);
    found.map(|(permission, _)| *permission).ok_or_else(|| {
        let words: Vec<&str> = Permission::WORDS.iter().map(|(_, name)| *name).collect();
        ValueError(format!(
            "{word:?} is no permission; write \"ro\", \"rw\", \"none\" or an array of {}",
            words.join(", ")
        ))
    })
}

impl Access {
    fn words(self) -> Vec<&'static str> {
        let held = Permission::WORDS.iter().filter(|(permission, _)| self.0.allows(*permission));
        held.map(|(_, word)| *word).collect()
    }

    /// `ro`, `rw` or `none`, where it is one of these.
    fn name(self) -> Option<&'static str> {
        match self.0 {
            Permissions::READ_ONLY => Some("ro"),
            Permissions::READ_WRITE => Some("rw"),
            Permissions::NONE => Some("none"),
            _ => None,
        }
    }
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => f.write_str(&self.words().join(", ")),
        }
    }
}

impl<'de> Deserialize<'de> for Access {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AccessVisitor)
    }
}

impl Serialize for Access {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.name() {
            Some(name) => serializer.serialize_str(name),
            None => serializer.collect_seq(self.words()),
        }
    }
}

struct AccessVisitor;

impl<'de> Visitor<'de> for AccessVisitor {
    type Value = Access;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("\"ro\", \"rw\", \"none\" or an array of permissions")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Access, E> {
        text.parse().map_err(E::custom)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut words: A) -> Result<Access, A::Error> {
        let mut permissions = Permissions::NONE;
        while let Some(word) = words.next_element::<String>()? {
            permissions = permissions.with(permission(&word).map_err(de::Error::custom)?);
        }
        Ok(Access(permissions))
    }
}

as_text!(PlacePattern, NamePattern, Hours, Expiry, Amount, Resumption, CertificateLogin, Secret);
