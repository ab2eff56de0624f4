//! The keys of `[[user]]` and `[[group]]` tables that users of databases have as well. `accounts` reads them; what is
//! known of them besides stands here.

use millrace_server::auth::Profile;
use serde::Deserialize;
use serde_json::{Value as Json, json};
use toml::Spanned;
use toml::de::{DeTable, Deserializer};

use super::file::{Mistake, Mistakes};
use super::setting::{Table, Unset, default, unset};

/// A key of a profile.
pub(super) struct OfProfile {
    pub(super) name: &'static str,
    pub(super) unset: Unset,
    help: &'static [&'static str],
    pub(super) schema: fn() -> Json,
}

impl OfProfile {
    /// Returns the help as a paragraph of Markdown.
    pub(super) fn text(&self) -> String {
        self.help.iter().map(|line| line.trim()).collect::<Vec<_>>().join(" ")
    }
}

macro_rules! rows {
    ($($(#[doc = $help:literal])+ $name:literal: $schema:ident = $key:expr;)+) => {
        &[$(OfProfile { name: $name, unset: $key.unset, help: &[$($help),+], schema: $schema }),+]
    };
}

const ROWS: &[OfProfile] = rows! {
    /// A folder within the served one, which is then all that they see.
    "directory": text = unset("all of it");
    /// `"ro"`: may list and download. `"rw"`: everything. `"none"`: nothing. Or an array of `"list"`, `"read"`,
    /// `"write"`, `"append"`, `"overwrite"`, `"rename"`, `"delete"`, `"mkdir"`, `"attributes"`, `"link"`,
    /// `"admin"`.
    "access": access = default("rw");
    /// Where something else may be done: an array of `{ path = "/in/*", access = "ro" }`. The deepest one that
    /// matches decides.
    "tree": trees = unset("the same everywhere");
    /// Patterns of names that no file or folder has, as far as this user can tell.
    "deny-names": texts = unset("none");
    /// Patterns of names that files, not folders, have to have.
    "allow-names": texts = unset("all");
    /// Networks to log in from: `["10.0.0.0/8", "192.0.2.7"]`.
    "from": texts = unset("everywhere");
    /// Networks not to log in from.
    "not-from": texts = unset("nowhere");
    /// When to be logged in: `["mon-fri 08:00-18:00 Europe/Paris"]`. A session that runs past them is ended.
    "hours": texts = unset("always");
    /// What to log in by: `["ftp", "http"]`.
    "protocols": texts = unset("all");
    /// Whether only encrypted connections are accepted.
    "require-tls": switch = default("false");
    /// Whether files and listings have to be encrypted as well (`PROT P`).
    "require-tls-data": switch = default("false");
    /// `"require"`, `"prefer"` or `"off"`: as the key `tls-resumption` above, for this user.
    "tls-resumption": text = unset("the server's");
    /// What a client certificate with this user's name is worth (see `tls-client-ca`): `"or-password"`: as much
    /// as the password. `"and-password"`: both are needed. `"alone"`: no password is accepted, and none need be
    /// written.
    "tls-client-login": text = default("off");
    /// From when on the account cannot be used: `"2027-01-31"` (its beginning, in UTC) or
    /// `"2027-01-31T18:00:00Z"`.
    "expires": date = unset("never");
    /// Whether the account cannot be used now.
    "disabled": switch = default("false");
    /// The secret, in base32, of the codes that an authenticator app shows (TOTP): see
    /// [accounts.md](accounts.md#a-second-factor).
    "totp": text = unset("none");
    /// Bytes a second to the user's clients together: `"10M"`, or with a schedule `"10M; mon-fri 08:00-18:00
    /// 1M"`.
    "download": number = unset("the server's");
    /// The same from the user's clients.
    "upload": number = unset("the server's");
    /// As `download`, for each session.
    "session-download": number = unset("the server's");
    /// As `upload`, for each session.
    "session-upload": number = unset("the server's");
    /// Sessions at a time.
    "sessions": number = unset("the server's");
    /// Bytes of all files in the user's folder: `"10G"`. See [limits.md](limits.md#quotas). May have a
    /// [schedule](limits.md), as the others that follow: `"10G; sat,sun 20G"`.
    "quota-bytes": number = unset("none");
    /// Files in the user's folder.
    "quota-files": number = unset("none");
    /// Bytes that the user's clients may upload in a day, week or month: `"10G/day"`.
    "quota-upload": text = unset("none");
    /// Bytes that they may download.
    "quota-download": text = unset("none");
    /// Both together.
    "quota-transfer": text = unset("none");
    /// How many bytes may be downloaded for those uploaded: `"1:3"` is three for one.
    "ratio": text = unset("none");
};

/// Returns whether a profile has this key.
pub(super) fn has(name: &str) -> bool {
    ROWS.iter().any(|row| row.name == name)
}

pub(super) fn names() -> impl Iterator<Item = &'static str> {
    ROWS.iter().map(|row| row.name)
}

/// Returns the keys that a scope has besides its own.
pub(super) fn rows<T: Table>() -> impl Iterator<Item = &'static OfProfile> {
    let has_profile = T::default().profile().is_some();
    ROWS.iter().filter(move |row| has_profile && T::row(row.name).is_none())
}

/// Reads the keys of a profile. A value that cannot be read is left out, and the rest is read again.
pub(super) fn read(mut table: DeTable<'_>, wrong: &mut Mistakes) -> Profile {
    loop {
        let whole = Spanned::new(0..0, table.clone());
        let error = match Profile::deserialize(Deserializer::from(whole)) {
            Ok(profile) => return profile,
            Err(error) => error,
        };
        let span = error.span().unwrap_or(0..0);
        let key =
            table.iter().find(|(_, value)| value.span().contains(&span.start)).map(|(key, _)| key.clone());
        wrong.push(Mistake::at(span, &error.message()));
        match key {
            Some(key) => table.remove(&key),
            None => return Profile::default(),
        };
    }
}

fn text() -> Json {
    json!({ "type": "string" })
}

fn texts() -> Json {
    json!({ "type": "array", "items": text() })
}

fn switch() -> Json {
    json!({ "type": "boolean" })
}

fn number() -> Json {
    json!({ "anyOf": [text(), { "type": "integer", "minimum": 0 }] })
}

/// A date without quotes has no type in JSON.
fn date() -> Json {
    json!({})
}

fn access() -> Json {
    json!({ "anyOf": [{ "enum": ["ro", "rw", "none"] }, texts()] })
}

fn trees() -> Json {
    let properties = json!({ "path": text(), "access": access() });
    let required = ["path", "access"];
    let tree = json!({ "type": "object", "properties": properties, "required": required });
    json!({ "type": "array", "items": tree })
}
