//! Decoys: hashes that are computed where there is no real one to check, so that every refusal takes the same time.
//!
//! Hashes of different costs may be in use. A refusal computes one of each cost, whatever the name is: the user's own,
//! where there is one, and decoys for the others. So neither an unknown name nor one with a cheaper hash stands out.

use std::sync::{Arc, Mutex, PoisonError};

use super::hash::Hash;
use super::hashing::Hashing;
use super::password::{Kept, Password};

/// Costs at most that a refusal pays; of more, the highest.
const MOST: usize = 4;

/// A decoy for each cost that was met. Guarded for a clone.
#[derive(Debug, Default)]
pub(crate) struct Decoys(Mutex<Arc<[Hash]>>);

impl Decoys {
    /// Remembers what a password's hash costs.
    pub(crate) fn meet(&self, password: &Password) {
        if let Kept::Hashed(hash) = &password.0 {
            self.meet_hash(hash);
        }
    }

    /// Remembers what a hash costs.
    pub(crate) fn meet_hash(&self, hash: &Hash) {
        let mut decoys = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if decoys.iter().any(|decoy| decoy.costs_as(hash)) {
            return;
        }
        let mut all: Vec<Hash> = decoys.iter().chain([hash]).map(Hash::decoy).collect();
        all.sort_by_key(|decoy| std::cmp::Reverse(decoy.cost()));
        all.truncate(MOST);
        *decoys = all.into();
    }

    /// Returns whether no hash was met.
    pub(crate) fn is_empty(&self) -> bool {
        self.all().is_empty()
    }

    /// Takes the time of a refusal, less that of the hash that was checked.
    pub(crate) fn pretend(&self, hashing: &Hashing, checked: Option<&Hash>, password: &[u8]) {
        for decoy in &*self.all() {
            if checked.is_none_or(|checked| !decoy.costs_as(checked)) {
                hashing.pretend(decoy, password);
            }
        }
    }

    fn all(&self) -> Arc<[Hash]> {
        Arc::clone(&self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
