//! Tokens of the admin API, which every node takes. The database has them by their hashes, and each node a copy, which holds
//! while the database is away.
//!
//! ```text
//!  order of an administrator ──► keep_token, remove_token ──► the tables, whose revision grows
//!  keeper, once a second     ──► pull_tokens: nothing, or where the revision is another one all of them
//! ```

use std::fmt::Debug;

use crate::question::{Asker, TableError};

/// A token, as the database has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SharedToken {
    /// Its name. There are no two of one name.
    pub name: String,
    /// The role that it gives, as nodes write it.
    pub role: String,
    /// The SHA-256 of what is shown, in hexadecimal digits.
    pub sha256: String,
    /// In seconds since 1970, as the next.
    pub created: u64,
    /// When it ends by itself.
    pub expires: Option<u64>,
}

/// What becomes of a token that the database is to keep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenKeeping {
    /// It is there, now or since before.
    Kept,
    /// Another one has its name.
    Taken,
    /// There are as many as there may be.
    Full,
    /// It was removed, and does not come back.
    Removed,
}

/// Which state of the tokens it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenEdition {
    /// The tables, by a number that was drawn when they were made. Those of another number have other tokens.
    pub tables: String,
    /// Another one after each change.
    pub revision: i64,
}

/// The tokens of all nodes. All functions wait.
pub trait TokenTable: Debug + Send + Sync {
    /// Has all nodes take a token. To be told twice changes nothing.
    fn keep_token(&self, by: Asker, token: &SharedToken) -> Result<TokenKeeping, TableError>;

    /// Ends the token of this hash at all nodes, for good.
    fn remove_token(&self, sha256: &str) -> Result<(), TableError>;

    /// Returns all tokens, unless they are those of this edition.
    fn pull_tokens(
        &self,
        by: Asker,
        known: Option<&TokenEdition>,
    ) -> Result<Option<(TokenEdition, Vec<SharedToken>)>, TableError>;
}

/// A node's own copy of them.
pub trait TokenStore: Send + Sync {
    /// Takes over what others have changed, and tells what they do not know. Returns what the operator has to know.
    fn exchange(&self, table: &dyn TokenTable) -> Result<Vec<String>, TableError>;
}
