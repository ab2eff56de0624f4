//! The tokens of a node of a cluster: those of the database, and its own until the database has them.
//!
//! A token that the database has is marked with the number of its tables, in the file as well. So a node that was away tells its
//! own tokens when it is back, and not those that were removed meanwhile; and tables that were made anew learn what nodes know.

use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use millrace_server::cluster::{
    Asker, SharedToken, TableError, TokenEdition, TokenKeeping, TokenStore, TokenTable,
};
use serde_json::json;

use super::{MOST, Token, TokenError, Tokens, write};

/// How many tokens of its own a node tells in a turn: the keeper of the lease waits meanwhile.
const TOLD_AT_ONCE: usize = 8;

/// What a node knows of the tokens of the cluster.
#[derive(Debug, Default)]
pub(super) struct Known {
    /// Which of them it has.
    edition: Option<TokenEdition>,
    /// What the operator is to be told.
    notes: Vec<String>,
}

impl TokenStore for Tokens {
    /// While an administrator's order asks the database, it does nothing: the order does it.
    fn exchange(&self, table: &dyn TokenTable) -> Result<Vec<String>, TableError> {
        if self.path.is_none() {
            return Ok(Vec::new());
        }
        let mut known = match self.known.try_lock() {
            Ok(known) => known,
            Err(TryLockError::Poisoned(known)) => known.into_inner(),
            Err(TryLockError::WouldBlock) => return Ok(Vec::new()),
        };
        self.catch_up(&mut known, table, Asker::Keeper)?;
        Ok(std::mem::take(&mut known.notes))
    }
}

impl Tokens {
    /// Has all nodes take a token.
    pub(super) fn add_to_cluster(&self, token: Token, table: &dyn TokenTable) -> Result<(), TokenError> {
        self.path.as_ref().ok_or(TokenError::NoFolder)?;
        let mut known = lock(&self.known);
        self.catch_up(&mut known, table, Asker::Order).map_err(TokenError::Cluster)?;
        match table.keep_token(Asker::Order, &token.shared()).map_err(TokenError::Cluster)? {
            TokenKeeping::Kept => {
                let mut tokens = self.tokens().clone();
                tokens.push(token.of(known.tables()));
                self.replace(&mut known, tokens);
                Ok(())
            }
            TokenKeeping::Taken | TokenKeeping::Removed => Err(TokenError::Taken(token.name)),
            TokenKeeping::Full => Err(TokenError::TooMany),
        }
    }

    /// Ends a token at all nodes, and here at once.
    pub(super) fn remove_from_cluster(&self, name: &str, table: &dyn TokenTable) -> Result<(), TokenError> {
        self.path.as_ref().ok_or(TokenError::NoFolder)?;
        let mut known = lock(&self.known);
        self.catch_up(&mut known, table, Asker::Order).map_err(TokenError::Cluster)?;
        let mut tokens = self.tokens().clone();
        let index = tokens.iter().position(|token| token.name == name);
        let index = index.ok_or_else(|| TokenError::Unknown(name.to_owned()))?;
        // By its hash: where this is executed late, it leaves alone another token of the name that was made since.
        table.remove_token(&tokens[index].sha256).map_err(TokenError::Cluster)?;
        tokens.remove(index);
        self.replace(&mut known, tokens);
        Ok(())
    }

    /// Takes over what others have changed, and tells what the database does not have.
    fn catch_up(&self, known: &mut Known, table: &dyn TokenTable, by: Asker) -> Result<(), TableError> {
        if let Some((edition, pulled)) = table.pull_tokens(by, known.edition.as_ref())? {
            self.adopt(known, edition, pulled);
        }
        let tables = known.tables();
        let own = self.tokens().iter().filter(|token| token.cluster != tables).cloned().collect::<Vec<_>>();
        own.into_iter().take(TOLD_AT_ONCE).try_for_each(|token| {
            let keeping = table.keep_token(by, &token.shared())?;
            self.settle(known, token, keeping);
            Ok(())
        })
    }

    /// Has those of the database in the place of those that it had before. What this node alone has stays.
    fn adopt(&self, known: &mut Known, edition: TokenEdition, pulled: Vec<SharedToken>) {
        let tables = Some(edition.tables.clone());
        let before = self.tokens().clone();
        let own = before.iter().filter(|token| {
            token.cluster != tables && !pulled.iter().any(|other| other.sha256 == token.sha256)
        });
        let own: Vec<Token> = own.cloned().collect();
        // A role of a later version gives nothing here.
        let shared = pulled.into_iter().filter_map(|token| Token::from_shared(token, tables.clone()));
        let tokens: Vec<Token> = shared.chain(own).collect();
        known.edition = Some(edition);
        if tokens != before {
            self.replace(known, tokens);
        }
    }

    /// Marks a token of this node that the database has now, or ends it and says why.
    fn settle(&self, known: &mut Known, token: Token, keeping: TokenKeeping) {
        let why = match keeping {
            TokenKeeping::Kept => None,
            TokenKeeping::Taken => Some("another token of the cluster has this name".to_owned()),
            TokenKeeping::Full => Some(format!("the cluster has {MOST} tokens already")),
            TokenKeeping::Removed => Some("it was removed at another node".to_owned()),
        };
        let mut tokens = self.tokens().clone();
        tokens.retain(|other| other.sha256 != token.sha256);
        match why {
            None => tokens.push(token.of(known.tables())),
            Some(why) => known.notes.push(format!(
                "the token {} of the admin API, which this node alone had, has ended: {why}",
                token.name
            )),
        }
        self.replace(known, tokens);
    }

    /// Has these from now on. They hold also where the file cannot be written: the database has them.
    fn replace(&self, known: &mut Known, tokens: Vec<Token>) {
        let written = self.path.as_ref().map_or(Ok(()), |path| write(path, &tokens));
        *self.tokens() = tokens;
        known.notes.extend(written.err().map(|error| error.to_string()));
    }
}

impl Known {
    /// The tables that the database has.
    fn tables(&self) -> Option<String> {
        self.edition.as_ref().map(|edition| edition.tables.clone())
    }
}

impl Token {
    /// The same, where these tables have it.
    fn of(self, tables: Option<String>) -> Self {
        Self { cluster: tables, ..self }
    }

    fn shared(&self) -> SharedToken {
        SharedToken {
            name: self.name.clone(),
            role: self.role.word().to_owned(),
            sha256: self.sha256.clone(),
            created: self.created,
            expires: self.expires,
        }
    }

    /// Reads one of these tables. `None` where its role is none.
    fn from_shared(token: SharedToken, tables: Option<String>) -> Option<Self> {
        let role = serde_json::from_value(json!(token.role)).ok()?;
        let SharedToken { name, sha256, created, expires, .. } = token;
        Some(Self { name, role, sha256, created, expires, cluster: tables })
    }
}

fn lock(known: &Mutex<Known>) -> MutexGuard<'_, Known> {
    known.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
#[path = "shared_tests.rs"]
mod tests;
