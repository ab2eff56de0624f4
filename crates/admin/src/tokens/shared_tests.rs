//! Nodes that share a table of tokens. The table is one in memory, which may be away.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use super::*;
use crate::role::Role;

/// The tokens of all nodes.
#[derive(Debug, Default)]
struct Table {
    rows: Mutex<(i64, Vec<SharedToken>, Vec<String>)>,
    is_away: AtomicBool,
    /// The number of the tables.
    tables: Mutex<String>,
}

impl Table {
    fn check(&self) -> Result<(), TableError> {
        match self.is_away.load(Ordering::Relaxed) {
            true => Err(TableError::Away("a test".to_owned())),
            false => Ok(()),
        }
    }

    /// Has it made anew.
    fn begin(&self, tables: &str) {
        *self.rows.lock().unwrap() = (0, Vec::new(), Vec::new());
        tables.clone_into(&mut self.tables.lock().unwrap());
    }

    fn names(&self) -> Vec<String> {
        self.rows.lock().unwrap().1.iter().map(|token| token.name.clone()).collect()
    }
}

impl TokenTable for Table {
    fn keep_token(&self, _: Asker, token: &SharedToken) -> Result<TokenKeeping, TableError> {
        self.check()?;
        let mut rows = self.rows.lock().unwrap();
        let (revision, tokens, removed) = &mut *rows;
        Ok(match tokens.iter().find(|other| other.name == token.name) {
            _ if removed.contains(&token.sha256) => TokenKeeping::Removed,
            Some(other) if other.sha256 == token.sha256 => TokenKeeping::Kept,
            Some(_) => TokenKeeping::Taken,
            None if tokens.len() >= MOST => TokenKeeping::Full,
            None => {
                tokens.push(token.clone());
                *revision += 1;
                TokenKeeping::Kept
            }
        })
    }

    fn remove_token(&self, sha256: &str) -> Result<(), TableError> {
        self.check()?;
        let mut rows = self.rows.lock().unwrap();
        rows.0 += 1;
        rows.1.retain(|token| token.sha256 != sha256);
        rows.2.push(sha256.to_owned());
        Ok(())
    }

    fn pull_tokens(
        &self,
        _: Asker,
        known: Option<&TokenEdition>,
    ) -> Result<Option<(TokenEdition, Vec<SharedToken>)>, TableError> {
        self.check()?;
        let rows = self.rows.lock().unwrap();
        let edition = TokenEdition { tables: self.tables.lock().unwrap().clone(), revision: rows.0 };
        Ok((known != Some(&edition)).then(|| (edition, rows.1.clone())))
    }
}

/// A node's file, and what it has of it in memory.
struct Node {
    file: PathBuf,
    tokens: Tokens,
}

impl Node {
    fn new() -> Self {
        static COUNTER: AtomicU32 = AtomicU32::new(0);
        let number = COUNTER.fetch_add(1, Ordering::Relaxed);
        let file = std::env::temp_dir().join(format!("millrace-shared-{}-{number}", std::process::id()));
        Self { tokens: Tokens::open(Some(file.clone())).unwrap(), file }
    }

    /// Ends, and begins with what its file has.
    fn restart(&mut self) {
        self.tokens = Tokens::open(Some(self.file.clone())).unwrap();
    }

    /// Makes a token: before it is a node, where there is no table.
    fn add(&self, name: &str, table: Option<&dyn TokenTable>) -> Result<String, TokenError> {
        let answer = self.tokens.add(name, Role::Operator, None, table)?;
        Ok(answer["token"].as_str().unwrap().to_owned())
    }

    fn takes(&self, token: &str) -> bool {
        self.tokens.find(token).is_some()
    }

    #[track_caller]
    fn exchange(&self, table: &Table) -> Vec<String> {
        self.tokens.exchange(table).unwrap()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.file);
    }
}

fn cluster() -> (Table, Node, Node) {
    let table = Table::default();
    table.begin("first");
    (table, Node::new(), Node::new())
}

#[test]
fn a_token_is_good_at_the_other_node_until_it_is_removed_at_either() {
    let (table, one, mut other) = cluster();
    let ann = one.add("ann", Some(&table)).unwrap();
    assert!(one.takes(&ann) && !other.takes(&ann));
    other.exchange(&table);
    assert!(other.takes(&ann));
    assert_eq!(one.tokens.list(), other.tokens.list());
    assert!(matches!(other.add("ann", Some(&table)), Err(TokenError::Taken(_))));

    // Without the database nothing changes, and what is known holds, also behind a restart.
    table.is_away.store(true, Ordering::Relaxed);
    assert!(matches!(other.add("bob", Some(&table)), Err(TokenError::Cluster(_))));
    assert!(matches!(other.tokens.remove("ann", Some(&table)), Err(TokenError::Cluster(_))));
    assert!(other.tokens.exchange(&table).is_err());
    other.restart();
    assert!(other.takes(&ann) && one.takes(&ann));
    table.is_away.store(false, Ordering::Relaxed);

    other.tokens.remove("ann", Some(&table)).unwrap();
    assert!(!other.takes(&ann), "at once");
    one.exchange(&table);
    assert!(!one.takes(&ann) && one.tokens.is_empty());
    assert!(matches!(one.tokens.remove("ann", Some(&table)), Err(TokenError::Unknown(_))));
}

#[test]
fn a_node_that_was_away_brings_back_no_token_that_was_removed_meanwhile() {
    let (table, mut one, other) = cluster();
    let own = one.add("own", None).unwrap();
    let backup = std::fs::read(&one.file).unwrap();
    one.exchange(&table);
    other.exchange(&table);
    assert!(other.takes(&own), "what a node has before it joins is told");
    // It is away with the token in its file, marked as known.
    other.tokens.remove("own", Some(&table)).unwrap();
    one.restart();
    assert!(one.takes(&own));
    assert_eq!(one.exchange(&table), Vec::<String>::new());
    assert!(!one.takes(&own) && table.names().is_empty());
    // The file of before it was told does not bring it back either.
    std::fs::write(&one.file, backup).unwrap();
    one.restart();
    let notes = one.exchange(&table);
    assert!(notes[0].contains("the token own") && notes[0].contains("removed at another node"), "{notes:?}");
    assert!(!one.takes(&own) && table.names().is_empty());
}

#[test]
fn a_name_that_another_node_has_taken_and_a_token_too_many_end_where_they_are() {
    let (table, one, other) = cluster();
    let [first, second] = [&one, &other].map(|node| node.add("deploy", None).unwrap());
    one.exchange(&table);
    let notes = other.exchange(&table);
    assert!(notes[0].contains("another token of the cluster has this name"), "{notes:?}");
    assert!(other.takes(&first) && !other.takes(&second));
    for number in 1..MOST {
        let (name, role) = (format!("t{number}"), "viewer".to_owned());
        let token = SharedToken { sha256: name.clone(), name, role, created: 1, expires: None };
        assert_eq!(table.keep_token(Asker::Order, &token).unwrap(), TokenKeeping::Kept);
    }
    assert!(matches!(one.add("more", Some(&table)), Err(TokenError::TooMany)));
    let late = Node::new();
    let token = late.add("late", None).unwrap();
    let notes = late.exchange(&table);
    assert!(notes[0].contains("256 tokens already") && !late.takes(&token), "{notes:?}");
}

#[test]
fn tables_that_were_made_anew_learn_the_tokens_that_nodes_know() {
    let (table, one, other) = cluster();
    let tokens: Vec<String> =
        (0..TOLD_AT_ONCE + 1).map(|number| one.add(&format!("t{number}"), Some(&table)).unwrap()).collect();
    other.exchange(&table);
    table.begin("second");
    other.exchange(&table);
    assert_eq!(table.names().len(), TOLD_AT_ONCE, "the others in the next turn");
    assert!(tokens.iter().all(|token| other.takes(token)), "each holds meanwhile");
    other.exchange(&table);
    one.exchange(&table);
    assert_eq!(table.names().len(), TOLD_AT_ONCE + 1);
    assert!(tokens.iter().all(|token| one.takes(token) && other.takes(token)));
    other.tokens.remove("t0", Some(&table)).unwrap();
    one.exchange(&table);
    assert!(!one.takes(&tokens[0]) && !table.names().contains(&"t0".to_owned()));
}
