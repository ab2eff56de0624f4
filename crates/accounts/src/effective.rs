//! The effective settings of a user: the user's own, else those of a group, in the order of the groups, else the
//! default; and whether they permit a login.
//!
//! Nothing here asks a clock, a file or a network: the same [`Effective`] decides logins, ends sessions whose
//! hour has passed, and is printed by `millrace explain`.

use std::fmt;
use std::time::SystemTime;

use millrace_ftp::session::{Permissions, Rules};
use serde_json::{Map, Value};

use super::profile::{Expiry, Group, Hours, Profile, User};
use super::{Attempt, DataSecurity, Protocol};
use crate::security::CertificateLogin;
use millrace_limits::Network;
use millrace_limits::{AccountLimits, GroupLimits, HeldQuota, Limits, TransferQuota};

/// The settings of a user, each with where it comes from.
#[derive(Debug, Clone, PartialEq)]
pub struct Effective {
    /// The user.
    pub user: String,
    /// The user's groups.
    pub groups: Vec<String>,
    /// Those of which nothing is said anywhere.
    pub unknown_groups: Vec<String>,
    /// The settings, each from the first origin that has it; `None` where none has it.
    pub said: Profile,
    /// Keys of `said`, and who said them.
    origins: Vec<(String, Origin)>,
    /// Whether names that begin with a dot are hidden, as they are from the anonymous user.
    pub(super) hides_dotfiles: bool,
}

/// The origin of a setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// The default.
    Default,
    /// It is said of the user.
    User,
    /// It is said of a group of this name.
    Group(String),
}

/// The keys in the order of their explanation, and their defaults.
const DEFAULTS: &[(&str, &str)] = &[
    ("directory", "all that is served"),
    ("access", "rw"),
    ("tree", "the same everywhere"),
    ("deny-names", "none"),
    ("allow-names", "all"),
    ("from", "everywhere"),
    ("not-from", "nowhere"),
    ("hours", "always"),
    ("protocols", "all"),
    ("require-tls", "false"),
    ("require-tls-data", "false"),
    ("tls-resumption", "the server's"),
    ("tls-client-login", "off"),
    ("expires", "never"),
    ("disabled", "false"),
    ("totp", "none"),
    ("download", "the server's"),
    ("upload", "the server's"),
    ("session-download", "the server's"),
    ("session-upload", "the server's"),
    ("sessions", "the server's"),
    ("quota-bytes", "none"),
    ("quota-files", "none"),
    ("quota-upload", "none"),
    ("quota-download", "none"),
    ("quota-transfer", "none"),
    ("ratio", "none"),
];

/// Combines the settings of a user and its groups; `group` finds a group by its name.
pub fn resolve(user: &User, group: impl Fn(&str) -> Option<Group>) -> Effective {
    let mut said = Map::new();
    let mut origins = Vec::new();
    let (mut of_groups, mut unknown_groups) = (Vec::new(), Vec::new());
    // Sources may have a name from two places: it is one group, which is drawn from once.
    let mut groups: Vec<String> = Vec::with_capacity(user.groups.len());
    for name in &user.groups {
        if groups.contains(name) {
            continue;
        }
        groups.push(name.clone());
        match group(name) {
            Some(group) => of_groups.push((Origin::Group(group.name), group.profile)),
            None => unknown_groups.push(name.clone()),
        }
    }
    for (origin, profile) in std::iter::once((Origin::User, user.profile.clone())).chain(of_groups) {
        for (key, value) in keys(&profile) {
            if !said.contains_key(&key) {
                origins.push((key.clone(), origin.clone()));
                said.insert(key, value);
            }
        }
    }
    let mut said: Profile =
        serde_json::from_value(Value::Object(said)).expect("a profile is read as it was written");
    said.is_system_account = user.profile.is_system_account;
    Effective { user: user.name.clone(), groups, unknown_groups, said, origins, hides_dotfiles: false }
}

/// The keys of a profile.
fn keys(profile: &Profile) -> Map<String, Value> {
    match serde_json::to_value(profile) {
        Ok(Value::Object(keys)) => keys,
        _ => Map::new(),
    }
}

impl Effective {
    /// Checks whether the settings permit this login.
    pub fn admit(&self, attempt: &Attempt<'_>) -> Result<(), AdmitError> {
        let said = &self.said;
        let now = seconds(attempt.now);
        if said.disabled == Some(true) {
            return Err(AdmitError::Disabled);
        }
        if let Some(expires) = &said.expires
            && now >= expires.seconds()
        {
            return Err(AdmitError::Expired(*expires));
        }
        if said.require_tls == Some(true) && !attempt.encrypted {
            return Err(AdmitError::Unencrypted);
        }
        if let Some(login @ (CertificateLogin::AndPassword | CertificateLogin::Alone)) = said.tls_client_login
            && !attempt.certified
        {
            return Err(AdmitError::Uncertified(login));
        }
        if let Some(protocols) = &said.protocols
            && !protocols.contains(&attempt.protocol)
        {
            return Err(AdmitError::Protocol(protocols.clone()));
        }
        let is_in = |networks: &[Network]| networks.iter().any(|network| network.contains(attempt.from));
        match (&said.from, &said.not_from) {
            (Some(from), _) if !is_in(from) => {
                return Err(AdmitError::NotFrom(from.clone()));
            }
            (_, Some(not_from)) if is_in(not_from) => {
                return Err(AdmitError::From(not_from.clone()));
            }
            _ => {}
        }
        match &said.hours {
            Some(hours) if !hours.iter().any(|hours| hours.contain(now)) => {
                Err(AdmitError::Hours(hours.clone()))
            }
            _ => Ok(()),
        }
    }

    /// Returns true if a permitted login may be refused at another time.
    pub fn follows_the_clock(&self) -> bool {
        self.said.hours.is_some() || self.said.expires.is_some()
    }

    /// The permissions by path.
    pub fn rules(&self) -> Rules {
        let said = &self.said;
        let base = said.access.map_or(Permissions::READ_WRITE, |access| access.0);
        let trees = said.tree.iter().flatten();
        let rules = trees
            .fold(Rules::new(base), |rules, tree| rules.tree(tree.path.as_str().as_bytes(), tree.access.0));
        let denied = said.deny_names.iter().flatten();
        let rules = denied.fold(rules, |rules, name| rules.deny_name(name.as_str().as_bytes()));
        let allowed = said.allow_names.iter().flatten();
        let rules = allowed.fold(rules, |rules, name| rules.allow_name(name.as_str().as_bytes()));
        if self.hides_dotfiles { rules.without_dotfiles() } else { rules }
    }

    /// The required protection of data connections, beyond the server's.
    pub fn data_security(&self) -> DataSecurity {
        DataSecurity {
            encrypted: self.said.require_tls_data == Some(true),
            resumption: self.said.tls_resumption,
        }
    }

    /// Returns true if a certificate with the user's name in it makes the password needless. Where a code is asked for
    /// as well, it comes behind the password.
    pub fn certificate_suffices(&self) -> bool {
        let login = self.said.tls_client_login;
        self.said.totp.is_none()
            && matches!(login, Some(CertificateLogin::OrPassword | CertificateLogin::Alone))
    }

    /// Returns true if no password would let the user in, only a certificate.
    pub(super) fn wants_certificate_alone(&self) -> bool {
        self.said.tls_client_login == Some(CertificateLogin::Alone)
    }

    /// How much may be moved and how often the user may be logged in.
    pub fn limits(&self) -> AccountLimits {
        let said = &self.said;
        let limit = |amount: &Option<super::profile::Amount>| amount.as_ref().map(|amount| amount.0.clone());
        AccountLimits {
            user: Limits {
                download: limit(&said.download),
                upload: limit(&said.upload),
                sessions: limit(&said.sessions),
            },
            session: Limits {
                download: limit(&said.session_download),
                upload: limit(&said.session_upload),
                sessions: None,
            },
            // Settings shared by all members are reported with the groups.
            groups: self
                .groups
                .iter()
                .map(|name| GroupLimits { name: name.as_str().into(), limits: Limits::default() })
                .collect(),
            moved: None,
            host: None,
        }
    }

    /// How much the user may move; `None` where that is not counted.
    pub fn transfer_quota(&self) -> Option<TransferQuota> {
        let said = &self.said;
        let quota = TransferQuota {
            upload: said.quota_upload.clone().unwrap_or_default(),
            download: said.quota_download.clone().unwrap_or_default(),
            total: said.quota_transfer.clone().unwrap_or_default(),
            ratio: said.ratio.clone().unwrap_or_default(),
        };
        (!quota.is_none()).then_some(quota)
    }

    /// How much the user's folder may hold; `None` where nothing is counted.
    pub fn quota(&self) -> Option<HeldQuota> {
        let (bytes, files) = (self.said.quota_bytes.clone(), self.said.quota_files.clone());
        let quota = HeldQuota { bytes: bytes.unwrap_or_default(), files: files.unwrap_or_default() };
        (!quota.is_none()).then_some(quota)
    }

    /// The user's folder within the served one, its template filled in. `None` is all that is served.
    pub fn directory(&self) -> Result<Option<String>, TemplateError> {
        self.said.directory.as_deref().map(|template| self.fill(template)).transpose()
    }

    /// A path with the user's names in place of `{user}` and `{group}`.
    pub(super) fn fill(&self, template: &str) -> Result<String, TemplateError> {
        let template_of = || template.to_owned();
        let mut folder = String::new();
        let mut rest = template;
        while let Some((before, after)) = rest.split_once('{') {
            let (word, behind) = after.split_once('}').ok_or_else(|| TemplateError::Open(template_of()))?;
            let value = match word {
                "user" => &self.user,
                "group" => self.groups.first().ok_or_else(|| TemplateError::NoGroup(template_of()))?,
                _ => return Err(TemplateError::Word { template: template_of(), word: word.to_owned() }),
            };
            folder.push_str(before);
            folder.push_str(one_component(value)?);
            rest = behind;
        }
        folder.push_str(rest);
        Ok(folder)
    }

    /// The origin of a key.
    pub fn origin(&self, key: &str) -> Origin {
        let found = self.origins.iter().find(|(name, _)| name == key);
        found.map_or(Origin::Default, |(_, origin)| origin.clone())
    }

    /// Every setting, its value, and who said it; of a secret only that there is one.
    pub fn explain(&self) -> Vec<(&'static str, String, Origin)> {
        let said = keys(&self.said);
        let line = |(key, default): &(&'static str, &str)| match said.get(*key) {
            Some(_) if *key == "totp" => (*key, "asked for".to_owned(), self.origin(key)),
            Some(value) => (*key, text(value), self.origin(key)),
            None => (*key, (*default).to_owned(), Origin::Default),
        };
        DEFAULTS.iter().map(line).collect()
    }
}

/// What names begin with that a storage keeps for itself.
const OWN: &str = ".millrace-";

/// Why a path with names in braces is no path for a user.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    /// A brace is not closed.
    #[error("{0:?} has a {{ without }}")]
    Open(String),
    /// It has `{group}`, and the user has no group.
    #[error("{0:?} needs a group, and the user has none")]
    NoGroup(String),
    /// It has another word between braces.
    #[error("{template:?} has {{{word}}}; there are {{user}} and {{group}}")]
    Word {
        /// The path.
        template: String,
        /// The word.
        word: String,
    },
    /// The user's or the group's name would lead elsewhere.
    #[error("the name {0:?} cannot be the name of a folder")]
    Name(String),
}

/// Which setting forbids a login.
#[derive(Debug, thiserror::Error)]
pub enum AdmitError {
    /// `disabled` is true.
    #[error("the account is disabled")]
    Disabled,
    /// `expires` has passed.
    #[error("the account has expired: expires is {0}")]
    Expired(Expiry),
    /// `require-tls` is true.
    #[error("the connection is not encrypted, and require-tls is true")]
    Unencrypted,
    /// `tls-client-login` requires a certificate.
    #[error("there is no client certificate with this name, and tls-client-login is {0}")]
    Uncertified(CertificateLogin),
    /// `protocols` lacks the protocol.
    #[error("protocols is {}", list(.0))]
    Protocol(Vec<Protocol>),
    /// The address is not in `from`.
    #[error("the address is not in from, {}", list(.0))]
    NotFrom(Vec<Network>),
    /// The address is in `not-from`.
    #[error("the address is in not-from, {}", list(.0))]
    From(Vec<Network>),
    /// The time is not in `hours`.
    #[error("it is not within hours, {}", list(.0))]
    Hours(Vec<Hours>),
}

/// A name that a template may put into a path: never more than one component, never up, and none of those that a served
/// folder has for itself (unfinished uploads of other users).
fn one_component(name: &str) -> Result<&str, TemplateError> {
    let is_own = name.get(..OWN.len()).is_some_and(|start| start.eq_ignore_ascii_case(OWN));
    let is_one = !name.is_empty() && name != "." && name != ".." && !name.contains(['/', '\0']) && !is_own;
    if is_one { Ok(name) } else { Err(TemplateError::Name(name.to_owned())) }
}

fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(values) => values.iter().map(text).collect::<Vec<_>>().join(", "),
        Value::Object(tree) => tree.values().rev().map(text).collect::<Vec<_>>().join(": "),
        value => value.to_string(),
    }
}

fn list<T: fmt::Display>(values: &[T]) -> String {
    values.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

pub(super) fn seconds(moment: SystemTime) -> i64 {
    let since = moment.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::User => f.write_str("user"),
            Self::Group(name) => write!(f, "group {name}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::Protocol;

    fn profile(json: &str) -> Profile {
        serde_json::from_str(json).unwrap_or_else(|error| panic!("{json}: {error}"))
    }

    fn effective(user: &str, groups: &[(&str, &str)]) -> Effective {
        let names = groups.iter().map(|(name, _)| (*name).to_owned()).collect();
        let user = User { name: "alice".to_owned(), groups: names, profile: profile(user) };
        resolve(&user, |wanted| {
            let found = groups.iter().find(|(name, _)| *name == wanted);
            found.map(|(name, said)| Group { name: (*name).to_owned(), profile: profile(said) })
        })
    }

    #[test]
    fn a_group_that_is_named_twice_is_one() {
        let user = User { groups: ["a", "b", "a", "b"].map(str::to_owned).to_vec(), ..User::default() };
        let effective =
            resolve(&user, |name| (name == "a").then(|| Group { name: name.to_owned(), ..Group::default() }));
        assert_eq!((effective.groups.len(), effective.unknown_groups.len()), (2, 1));
        assert_eq!(effective.limits().groups.len(), 2);
    }

    #[test]
    fn the_user_goes_before_the_first_group_and_that_before_the_second() {
        let effective = effective(
            r#"{"access": "ro"}"#,
            &[
                ("staff", r#"{"access": "rw", "directory": "staff/{user}"}"#),
                ("all", r#"{"directory": "all", "sessions": 3}"#),
            ],
        );
        let lines = effective.explain();
        let line = |key: &str| {
            let (_, value, origin) = lines.iter().find(|(name, ..)| *name == key).unwrap();
            format!("{value}, by {origin}")
        };
        assert_eq!(line("access"), "ro, by user");
        assert_eq!(line("directory"), "staff/{user}, by group staff");
        assert_eq!(line("sessions"), "3, by group all");
        assert_eq!(line("hours"), "always, by default");
        assert_eq!(effective.directory(), Ok(Some("staff/alice".to_owned())));
    }

    /// So that `explain` leaves nothing out.
    #[test]
    fn every_key_of_a_profile_has_a_default() {
        let known = "unknown field `nonsense`, expected one of ";
        let error = serde_json::from_str::<Profile>(r#"{"nonsense": 1}"#).unwrap_err().to_string();
        let keys = error.strip_prefix(known).and_then(|rest| rest.split(" at line").next()).expect(&error);
        let keys: Vec<&str> = keys.split(", ").map(|key| key.trim_matches('`')).collect();
        assert_eq!(DEFAULTS.iter().map(|(key, _)| *key).collect::<Vec<_>>(), keys);
    }

    #[test]
    fn a_profile_is_read_as_it_is_written() {
        let said = profile(
            r#"{"directory": "d", "access": ["list", "read", "mkdir"], "tree": [{"path": "/in", "access": "none"}],
            "deny-names": [".*"], "allow-names": ["*.csv"], "from": ["10.0.0.0/8", "::1"], "not-from": ["10.1.0.0/16"],
            "hours": ["mon-fri 08:00-18:00 UTC"], "protocols": ["ftp"], "require-tls": true, "require-tls-data": true,
            "tls-resumption": "require", "tls-client-login": "off", "expires": "2027-01-31",
            "disabled": false, "totp": "GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ", "download": "10M; sat 20M", "upload": 5, "session-download": "1k",
            "session-upload": "1k", "sessions": 3, "quota-bytes": "10G", "quota-files": 0,
            "quota-upload": "1G/day", "quota-download": "1G/week", "quota-transfer": "none", "ratio": "1:3"}"#,
        );
        let text = serde_json::to_string(&said).unwrap();
        assert_eq!(serde_json::from_str::<Profile>(&text).unwrap(), said);
        assert_eq!(keys(&said).len(), DEFAULTS.len());
    }

    #[test]
    fn no_secret_is_shown() {
        let effective = effective(r#"{"totp": "GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ"}"#, &[]);
        let shown = format!("{:?} {effective:?}", effective.explain());
        assert!(shown.contains("asked for") && !shown.contains("GEZ"), "{shown}");
    }

    #[test]
    fn a_login_is_held_to_what_is_said() {
        // 2026-11-20 12:00 UTC is a Friday.
        let noon = SystemTime::UNIX_EPOCH + Duration::from_secs(1_795_176_000);
        let attempt = Attempt { from: "10.1.2.3".parse().unwrap(), now: noon, ..Attempt::new(b"alice", b"") };
        for (said, refusal) in [
            ("{}", ""),
            (r#"{"disabled": true}"#, "disabled"),
            (r#"{"expires": "2026-11-20"}"#, "expired"),
            (r#"{"expires": "2026-11-21"}"#, ""),
            (r#"{"expires": "2026-11-20T12:00:01Z"}"#, ""),
            (r#"{"require-tls": true}"#, "not encrypted"),
            (r#"{"protocols": ["http"]}"#, "protocols is http"),
            (r#"{"protocols": ["http", "ftp"]}"#, ""),
            (r#"{"from": ["10.0.0.0/8"]}"#, ""),
            (r#"{"from": ["10.0.0.0/8"], "not-from": ["10.1.0.0/16"]}"#, "not-from"),
            (r#"{"from": ["10.1.2.4", "::/0"]}"#, "10.1.2.4, ::/0"),
            (r#"{"from": []}"#, "not in from"),
            (r#"{"hours": ["mon-fri 08:00-18:00 UTC"]}"#, ""),
            (r#"{"hours": ["sat UTC", "22:00-06:00 UTC"]}"#, "within hours"),
        ] {
            let answer =
                effective(said, &[]).admit(&attempt).err().map(|why| why.to_string()).unwrap_or_default();
            assert!(answer.contains(refusal) && answer.is_empty() == refusal.is_empty(), "{said}: {answer}");
        }
        let encrypted = Attempt { encrypted: true, protocol: Protocol::Http, ..attempt };
        assert!(effective(r#"{"require-tls": true, "protocols": ["http"]}"#, &[]).admit(&encrypted).is_ok());
    }

    #[test]
    fn invalid_settings_are_refused_with_a_hint() {
        for (said, hint) in [
            (r#"{"acess": "ro"}"#, "unknown field"),
            (r#"{"tree": [{"path": "/x/../internal", "access": "none"}]}"#, "without . and .."),
            (r#"{"tree": [{"path": "/./internal", "access": "none"}]}"#, "without . and .."),
            (r#"{"tree": [{"path": "/[internal", "access": "none"}]}"#, "[ without its ]"),
            (r#"{"deny-names": ["internal/*"]}"#, "a name has no slash"),
            (r#"{"allow-names": [""]}"#, "no name of a file"),
            (r#"{"access": "x"}"#, "mkdir"),
            (r#"{"access": ["list", "fly"]}"#, "mkdir"),
            (r#"{"hours": ["8-18"]}"#, "mon-fri 08:00-18:00"),
            (r#"{"hours": ["mon 5; tue"]}"#, "mon-fri 08:00-18:00"),
            (r#"{"expires": "soon"}"#, "2027-01-31"),
            (r#"{"from": ["lan"]}"#, "10.0.0.0/8"),
            (r#"{"protocols": ["gopher"]}"#, "http"),
            (r#"{"download": "fast"}"#, "10M"),
        ] {
            let error = serde_json::from_str::<Profile>(said).unwrap_err().to_string();
            assert!(error.contains(hint), "{said}: {error}");
        }
    }

    #[test]
    fn a_template_takes_names_of_one_component_only() {
        let of = |user: &str, template: &str| {
            let profile = Profile { directory: Some(template.to_owned()), ..Profile::default() };
            resolve(&User { name: user.to_owned(), groups: vec![], profile }, |_| None).directory()
        };
        assert_eq!(of("bob", "a/{user}/{user}.d"), Ok(Some("a/bob/bob.d".to_owned())));
        for (user, template) in [
            ("..", "{user}"),
            ("a/../../b", "{user}"),
            (".millrace-staging", "{user}"),
            (".Millrace-staging", "home/{user}"),
            (".", "{user}"),
            ("bob", "{group}"),
            ("bob", "{home}"),
            ("bob", "{user"),
        ] {
            assert!(of(user, template).is_err(), "{user} {template}");
        }
    }
}
