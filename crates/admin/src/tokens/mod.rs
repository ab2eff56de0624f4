//! The tokens of the admin API. A file of the state folder has their hashes; a token itself is shown once.
//!
//! In a cluster the database has those of all nodes, and the file is this node's copy.

mod shared;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use millrace_log::Sha256;
use millrace_server::cluster::{TableError, TokenTable};
use ring::rand::{SecureRandom, SystemRandom};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use self::shared::Known;
use crate::role::Role;
use crate::whole_file;

/// Tokens at most.
const MOST: usize = 256;

/// The longest name.
const LONGEST: usize = 64;

/// What every token begins with, so that those that leak are found.
const PREFIX: &str = "millrace_";

/// A token, as the file has it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
struct Token {
    name: String,
    role: Role,
    sha256: String,
    /// In seconds since 1970, as the next.
    created: u64,
    expires: Option<u64>,
    /// The tables of the cluster that have it; `None` where this node alone has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cluster: Option<String>,
}

/// Why a token is not made or removed.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// The name cannot be one.
    #[error("the name of a token has 1 to {LONGEST} letters, digits, or characters of \"-_.@\"")]
    Name,
    /// There is one of that name.
    #[error("there is a token {0} already; remove it first, or choose another name")]
    Taken(String),
    /// There is none of that name.
    #[error("there is no token {0}")]
    Unknown(String),
    /// There are too many.
    #[error("there are {MOST} tokens already; remove one first")]
    TooMany,
    /// There is no state folder.
    #[error("tokens are kept in the state folder, and there is none: name one with --state")]
    NoFolder,
    /// The file cannot be read or written.
    #[error("the tokens of the admin API in {} cannot be kept: {source}", path.display())]
    File {
        /// Its path.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The database of the cluster has no answer.
    #[error("tokens are not changed: {0}; list them, and try again when it answers")]
    Cluster(#[source] TableError),
    /// There are no random numbers.
    #[error("the system has no random numbers")]
    Random,
}

/// The tokens of a server.
#[derive(Debug, Default)]
pub struct Tokens {
    path: Option<PathBuf>,
    /// Locked for a look, and on a single server while the file is written.
    tokens: Mutex<Vec<Token>>,
    /// What is known of those of the cluster. Locked while its database is asked.
    known: Mutex<Known>,
}

impl Tokens {
    /// Reads the file, where there is one.
    pub fn open(path: Option<PathBuf>) -> Result<Self, TokenError> {
        let Some(file) = &path else { return Ok(Self::default()) };
        let tokens = match std::fs::read(file) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            read => read.and_then(|bytes| Ok(serde_json::from_slice(&bytes)?)),
        };
        let tokens = tokens.map_err(|source| TokenError::File { path: file.clone(), source })?;
        Ok(Self { path, tokens: Mutex::new(tokens), known: Mutex::default() })
    }

    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.tokens().is_empty()
    }

    /// Returns the name and the role of a token that was shown once, unless it has expired.
    pub fn find(&self, token: &str) -> Option<(String, Role)> {
        let sha256 = Sha256::of(token.as_bytes()).to_string();
        let tokens = self.tokens();
        let found = tokens.iter().find(|token| token.sha256 == sha256)?;
        (!found.has_expired(now())).then(|| (found.name.clone(), found.role))
    }

    /// Makes a token, which expires after this many seconds; at all nodes of the cluster with these tables. Waits for them.
    pub(super) fn add(
        &self,
        name: &str,
        role: Role,
        seconds: Option<u64>,
        table: Option<&dyn TokenTable>,
    ) -> Result<Value, TokenError> {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.@".contains(&byte);
        if name.is_empty() || name.len() > LONGEST || !name.bytes().all(is_plain) {
            return Err(TokenError::Name);
        }
        let plain = format!("{PREFIX}{}", random_number()?);
        let (created, sha256) = (now(), Sha256::of(plain.as_bytes()).to_string());
        let expires = seconds.map(|seconds| created.saturating_add(seconds));
        let token = Token { name: name.to_owned(), role, sha256, created, expires, cluster: None };
        match table {
            Some(table) => self.add_to_cluster(token, table)?,
            None => self.change(|tokens| match tokens.iter().any(|token| token.name == name) {
                true => Err(TokenError::Taken(name.to_owned())),
                false if tokens.len() >= MOST => Err(TokenError::TooMany),
                false => {
                    tokens.push(token);
                    Ok(())
                }
            })?,
        }
        Ok(json!({ "name": name, "role": role, "token": plain, "expires": expires }))
    }

    /// Forgets a token; at all nodes of the cluster with these tables. Waits for them.
    pub(super) fn remove(&self, name: &str, table: Option<&dyn TokenTable>) -> Result<(), TokenError> {
        if let Some(table) = table {
            return self.remove_from_cluster(name, table);
        }
        self.change(|tokens| {
            let before = tokens.len();
            tokens.retain(|token| token.name != name);
            match tokens.len() < before {
                true => Ok(()),
                false => Err(TokenError::Unknown(name.to_owned())),
            }
        })
    }

    /// Lists them, without what could be used.
    pub(super) fn list(&self) -> Value {
        let now = now();
        let told = |token: &Token| {
            json!({
                "name": token.name, "role": token.role, "created": token.created, "expires": token.expires,
                "expired": token.has_expired(now), "seconds-left": token.expires.map(|end| end.saturating_sub(now)),
            })
        };
        json!({ "tokens": self.tokens().iter().map(told).collect::<Vec<_>>() })
    }

    /// Changes the file, and what is in memory once that is done.
    fn change(
        &self,
        change: impl FnOnce(&mut Vec<Token>) -> Result<(), TokenError>,
    ) -> Result<(), TokenError> {
        let path = self.path.as_ref().ok_or(TokenError::NoFolder)?;
        let mut tokens = self.tokens();
        let mut changed = tokens.clone();
        change(&mut changed)?;
        write(path, &changed)?;
        *tokens = changed;
        Ok(())
    }

    fn tokens(&self) -> MutexGuard<'_, Vec<Token>> {
        self.tokens.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Token {
    fn has_expired(&self, now: u64) -> bool {
        self.expires.is_some_and(|expires| expires <= now)
    }
}

/// Writes the file.
fn write(path: &Path, tokens: &[Token]) -> Result<(), TokenError> {
    let folder = path.parent().map_or(Ok(()), std::fs::create_dir_all);
    folder
        .and_then(|()| Ok(serde_json::to_vec_pretty(tokens)?))
        .and_then(|bytes| whole_file::replace(path, &bytes))
        .map_err(|source| TokenError::File { path: path.to_owned(), source })
}

/// Returns 256 random bits as 64 hexadecimal digits.
pub fn random_number() -> Result<String, TokenError> {
    let mut bytes = [0; 32];
    SystemRandom::new().fill(&mut bytes).map_err(|_| TokenError::Random)?;
    Ok(Sha256::of(&bytes).to_string())
}

/// Seconds since 1970.
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_kept_as_a_hash_until_it_expires_or_is_removed() {
        let folder = std::env::temp_dir().join(format!("millrace-tokens-{}", std::process::id()));
        let path = folder.join("tokens.json");
        let tokens = Tokens::open(Some(path.clone())).unwrap();
        let token = |answer: Value| answer["token"].as_str().unwrap().to_owned();
        let ann = token(tokens.add("ann", Role::Operator, None, None).unwrap());
        let old = token(tokens.add("old", Role::Administrator, Some(0), None).unwrap());
        assert!(matches!(tokens.add("ann", Role::Viewer, None, None), Err(TokenError::Taken(_))));
        assert!(matches!(tokens.add("a b", Role::Viewer, None, None), Err(TokenError::Name)));
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(!text.contains("cluster"), "a single server has nothing to do with one");
        assert!(!text.contains(&ann) && !tokens.list().to_string().contains("sha256"));
        // As the next server reads them.
        let tokens = Tokens::open(Some(path)).unwrap();
        assert_eq!(tokens.find(&ann), Some(("ann".to_owned(), Role::Operator)));
        assert_eq!(tokens.find(&old), None);
        assert_eq!(tokens.find(&format!("{ann}0")), None);
        tokens.remove("ann", None).unwrap();
        assert_eq!(tokens.find(&ann), None);
        assert!(matches!(tokens.remove("ann", None), Err(TokenError::Unknown(_))));
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
