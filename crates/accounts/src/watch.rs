//! Detects changed users among those with sessions, for sources that do not announce changes.
//!
//! Each user of a source with a session is queried periodically, one after another; a difference from the result at the
//! login is a change. This works with any table or directory without setup in it, and costs one query a second for each
//! such user; slow queries are followed by pauses.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use super::Changed;
use super::profile::User;

/// How often is looked.
const PERIOD: Duration = Duration::from_secs(1);

/// Looking takes at most one part in this many of all time.
const SHARE: u32 = 4;

/// How long a user is remembered that has been accepted but has no session yet, or none any more.
const GONE: Duration = Duration::from_secs(300);

/// The most users that are remembered.
const MOST: usize = 100_000;

/// Users as they were.
#[derive(Debug, Default)]
pub(super) struct Watch {
    users: HashMap<String, Watched>,
    changed: Vec<Vec<u8>>,
    begun: Option<Instant>,
    /// Not before this is looked again.
    next: Option<Instant>,
}

#[derive(Debug)]
struct Watched {
    /// `None` where the source knows the name no more.
    user: Option<User>,
    /// When this user was there last.
    present: Instant,
}

impl Watch {
    /// Notes a user that was found. The earlier state stays, because an older session may have to learn of the change.
    pub(super) fn met(&mut self, user: &User, now: Instant) {
        if let Some(watched) = self.users.get_mut(&user.name) {
            watched.present = now;
        } else if self.users.len() < MOST {
            self.users.insert(user.name.clone(), Watched { user: Some(user.clone()), present: now });
        }
    }

    /// The users to query, if it is time and there are any.
    pub(super) fn begin(&mut self, now: Instant, present: &dyn Fn() -> Vec<Vec<u8>>) -> Option<Vec<String>> {
        if self.users.is_empty() || self.next.is_some_and(|next| now < next) {
            return None;
        }
        for name in present() {
            let watched = str::from_utf8(&name).ok().and_then(|name| self.users.get_mut(name));
            watched.into_iter().for_each(|watched| watched.present = now);
        }
        self.users.retain(|_, watched| now.saturating_duration_since(watched.present) < GONE);
        let there = self.users.iter().filter(|(_, watched)| watched.present == now);
        let names: Vec<String> = there.map(|(name, _)| name.clone()).collect();
        self.begun = Some(now);
        self.next = Some(now + PERIOD);
        (!names.is_empty()).then_some(names)
    }

    /// A user as the source has it now.
    pub(super) fn saw(&mut self, name: &str, user: Option<&User>) {
        if let Some(watched) = self.users.get_mut(name)
            && watched.user.as_ref() != user
        {
            watched.user = user.cloned();
            self.changed.push(name.as_bytes().to_vec());
        }
    }

    /// All that could be asked was asked.
    pub(super) fn end(&mut self, now: Instant) {
        let took = self.begun.map_or(Duration::ZERO, |begun| now.saturating_duration_since(begun));
        self.next = self.begun.map(|begun| begun + PERIOD.max(took * SHARE));
    }

    /// The users whose accounts have changed since the last call.
    pub(super) fn changed(&mut self) -> Changed {
        match std::mem::take(&mut self.changed) {
            changed if changed.is_empty() => Changed::Nothing,
            changed => Changed::Users(changed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(group: &str) -> User {
        User { name: "alice".to_owned(), groups: vec![group.to_owned()], ..User::default() }
    }

    fn alice() -> Vec<Vec<u8>> {
        vec![b"alice".to_vec(), b"of another source".to_vec()]
    }

    #[test]
    fn a_user_that_differs_from_the_first_login_is_reported_once() {
        let (mut watch, now) = (Watch::default(), Instant::now());
        watch.met(&user("a"), now);
        watch.met(&user("b"), now); // A second login, after the change.
        assert_eq!(watch.begin(now, &alice), Some(vec!["alice".to_owned()]));
        watch.saw("alice", Some(&user("b")));
        assert_eq!(watch.changed(), Changed::Users(vec![b"alice".to_vec()]));
        watch.saw("alice", Some(&user("b")));
        assert_eq!(watch.changed(), Changed::Nothing);
        watch.saw("alice", None);
        watch.saw("alice", None);
        watch.saw("carol", None);
        assert_eq!(watch.changed(), Changed::Users(vec![b"alice".to_vec()]));
    }

    #[test]
    fn only_who_is_there_is_asked_about_and_not_all_the_time() {
        let (mut watch, now) = (Watch::default(), Instant::now());
        let none = Vec::new;
        assert_eq!(watch.begin(now, &|| panic!("no user was noted")), None);
        watch.met(&user("a"), now);
        assert_eq!(watch.begin(now + PERIOD, &none), None, "not there yet");
        assert_eq!(watch.begin(now + PERIOD, &alice), None, "too soon");
        assert!(watch.begin(now + PERIOD * 2, &alice).is_some());
        watch.end(now + PERIOD * 3);
        assert_eq!(watch.begin(now + PERIOD * 5, &alice), None, "the last took a second");
        assert!(watch.begin(now + PERIOD * 6, &alice).is_some());
        assert_eq!(watch.begin(now + PERIOD * 6 + GONE, &none), None);
        assert!(watch.users.is_empty());
    }
}
