//! How a connection of HTTP/2 counts among the sessions: once for the server and its listener, and once for each user
//! that its streams log in as. A browser that asks for sixteen files at once counts once.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Instant;

use millrace_limits::{AccountLimits, LimitHandle, Refused, Tree};

/// A user's, for as long as one of the streams has it.
pub(crate) type UserPlace = Arc<LimitHandle>;

/// All of a connection's.
#[derive(Debug)]
pub(crate) struct Places {
    /// Where it came to.
    bound: SocketAddr,
    /// Its own.
    _connection: LimitHandle,
    /// Locked for a look, or for a login.
    users: Mutex<Vec<(Vec<u8>, Weak<LimitHandle>)>>,
    /// Users who have asked at all. Locked for a look.
    known: Mutex<Vec<Vec<u8>>>,
}

impl Places {
    pub(crate) fn new(bound: SocketAddr, connection: LimitHandle) -> Self {
        Self { bound, _connection: connection, users: Mutex::default(), known: Mutex::default() }
    }

    /// Returns whether no stream has asked as this user before.
    pub(crate) fn is_new(&self, user: &[u8]) -> bool {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let is_new = !known.iter().any(|known| known == user);
        if is_new {
            known.push(user.to_vec());
        }
        is_new
    }

    /// The place of this user: the one that there is, or a new one.
    pub(crate) fn of(
        &self,
        tree: &Tree,
        user: &[u8],
        limits: &AccountLimits,
        now: Instant,
    ) -> Result<UserPlace, Refused> {
        let mut users = self.users.lock().unwrap_or_else(PoisonError::into_inner);
        users.retain(|(_, place)| place.strong_count() > 0);
        let counted_by = limits.counted_by(user);
        let mut known = users.iter().filter(|(name, _)| **name == *counted_by);
        if let Some(place) = known.find_map(|(_, place)| place.upgrade()) {
            return Ok(place);
        }
        let mut member = tree.accompany(self.bound, now);
        tree.log_in(&mut member, user, limits, now)?;
        let place = Arc::new(member);
        users.push((counted_by.into_owned(), Arc::downgrade(&place)));
        Ok(place)
    }
}

#[cfg(test)]
mod tests {
    use millrace_limits::HostOfUser;

    use super::*;

    #[test]
    fn users_of_one_name_at_two_hosts_have_a_place_each() {
        let (now, bound) = (Instant::now(), "192.0.2.1:443".parse().unwrap());
        let tree = Tree::new(millrace_limits::ServerLimits::default(), now, 0);
        let places = Places::new(bound, tree.accompany(bound, now));
        let at = |name: &str| AccountLimits {
            host: Some(HostOfUser { name: name.into(), has_own_users: true }),
            ..AccountLimits::default()
        };
        let place = |host| places.of(&tree, b"zoe", &at(host), now).unwrap();
        let (first, again, other) = (place("a.example"), place("a.example"), place("b.example"));
        assert!(Arc::ptr_eq(&first, &again) && !Arc::ptr_eq(&first, &other));
    }
}
