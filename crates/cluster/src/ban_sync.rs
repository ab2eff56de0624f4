//! Which bans this node and the database both know: the difference is what is to be written, or taken over.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use millrace_limits::{BanReport, Bans};

use crate::table::{BanChange, Pulled, SharedBan};

/// The end of a ban; `None` until it is lifted.
type End = Option<Instant>;

/// The bans that both know.
#[derive(Debug, Default)]
pub(crate) struct BanSync {
    known: HashMap<SharedBan, End>,
    /// Of the database.
    edition: i64,
    /// Of this node's bans, when they were compared last.
    compared: Option<u64>,
}

impl BanSync {
    /// Returns the edition of the database that is taken over.
    pub(crate) fn edition(&self) -> i64 {
        self.edition
    }

    /// Takes over what others have changed.
    pub(crate) fn adopt(&mut self, pulled: Pulled, bans: &Bans, now: Instant) {
        for change in pulled.changes {
            match change {
                BanChange::Banned(ban, left) => self.ban(ban, left, bans, now),
                BanChange::Lifted(ban) => {
                    self.known.remove(&ban);
                    bans.lift_one(ban.network, ban.user.as_deref());
                }
            }
        }
        self.edition = self.edition.max(pulled.edition);
    }

    fn ban(&mut self, ban: SharedBan, left: Option<Duration>, bans: &Bans, now: Instant) {
        // This node's own comes back to it, a moment shorter.
        if self.known.get(&ban).is_some_and(|end| is_same(*end, left.map(|left| now + left))) {
            return;
        }
        let report = BanReport { network: ban.network, user: ban.user.clone(), left };
        bans.take_over(&report, now);
        self.known.insert(ban, left.map(|left| now + left));
    }

    /// Returns what has changed here and is not written yet.
    pub(crate) fn changes(&mut self, bans: &Bans, now: Instant) -> Vec<BanChange> {
        let edition = bans.edition();
        if self.compared == Some(edition) {
            return Vec::new();
        }
        self.known.retain(|_, end| end.is_none_or(|end| now < end));
        let here: HashMap<SharedBan, Option<Duration>> =
            bans.list(now).into_iter().filter_map(shared).collect();
        let banned = here.iter().filter_map(|(ban, left)| {
            let end = left.map(|left| now + left);
            let is_known = self.known.get(ban).is_some_and(|known| is_same(*known, end));
            (!is_known).then(|| BanChange::Banned(ban.clone(), *left))
        });
        let lifted = self.known.keys().filter(|ban| !here.contains_key(ban));
        let changes: Vec<_> = banned.chain(lifted.cloned().map(BanChange::Lifted)).collect();
        if changes.is_empty() {
            self.compared = Some(edition);
        }
        changes
    }

    /// These are written.
    pub(crate) fn written(&mut self, changes: &[BanChange], now: Instant) {
        for change in changes {
            match change {
                BanChange::Banned(ban, left) => {
                    self.known.insert(ban.clone(), left.map(|left| now + left));
                }
                BanChange::Lifted(ban) => {
                    self.known.remove(ban);
                }
            }
        }
    }
}

/// Returns whether two ends are the same but for the way to the database and back.
fn is_same(one: End, other: End) -> bool {
    match (one, other) {
        (None, None) => true,
        (Some(one), Some(other)) => one.max(other) - one.min(other) < Duration::from_secs(2),
        _ => false,
    }
}

/// A ban as nodes share it. That of a user without a name stays here: the database has no name for it.
fn shared(ban: BanReport) -> Option<(SharedBan, Option<Duration>)> {
    let BanReport { network, user, left } = ban;
    let has_name = user.as_ref().is_none_or(|user| !user.is_empty());
    has_name.then_some((SharedBan { network, user }, left))
}

#[cfg(test)]
mod tests {
    use millrace_limits::BanRules;

    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    fn bans() -> Bans {
        Bans::new(BanRules { after: 1, time: 10 * MINUTE, ..BanRules::default() })
    }

    fn pulled(changes: &[BanChange], edition: i64) -> Pulled {
        Pulled { changes: changes.to_vec(), edition }
    }

    #[test]
    fn a_ban_and_its_end_go_from_one_node_to_the_other_and_not_back() {
        let (now, [here, there]) = (Instant::now(), [bans(), bans()]);
        let [mut one, mut other] = [BanSync::default(), BanSync::default()];
        let address = "192.0.2.1".parse().unwrap();
        here.failed(address, b"ann", now);
        here.ban("198.51.100.0/24".parse().unwrap(), None);
        let changes = one.changes(&here, now);
        assert_eq!(changes.len(), 2);
        assert_eq!(one.changes(&here, now).len(), 2, "what could not be written is tried again");
        one.written(&changes, now);
        assert!(one.changes(&here, now).is_empty());

        let later = now + Duration::from_secs(1);
        other.adopt(pulled(&changes, 2), &there, later);
        assert!(there.is_banned(address, b"ann", later) && !there.is_banned(address, b"bob", later));
        assert!(there.admit("198.51.100.9".parse().unwrap(), later).is_err());
        assert!(other.changes(&there, later).is_empty(), "it is known");
        one.adopt(pulled(&changes, 2), &here, later);
        assert!(one.changes(&here, later).is_empty());

        assert!(there.lift("198.51.100.0/24".parse().unwrap()));
        let lifted = other.changes(&there, later);
        assert!(matches!(&lifted[..], [BanChange::Lifted(_)]), "{lifted:?}");
        other.written(&lifted, later);
        one.adopt(pulled(&lifted, 3), &here, later);
        assert!(here.admit("198.51.100.9".parse().unwrap(), later).is_ok());
        assert!(here.is_banned(address, b"ann", later), "the other ban holds");
        assert!(one.changes(&here, later).is_empty());
    }

    #[test]
    fn a_ban_that_ends_by_itself_is_not_lifted_elsewhere() {
        let (now, here) = (Instant::now(), bans());
        let mut sync = BanSync::default();
        here.failed("192.0.2.1".parse().unwrap(), b"ann", now);
        let changes = sync.changes(&here, now);
        sync.written(&changes, now);
        let end = now + 11 * MINUTE;
        here.ban("198.51.100.7".parse().unwrap(), None);
        let changes = sync.changes(&here, end);
        assert!(matches!(&changes[..], [BanChange::Banned(_, None)]), "{changes:?}");
    }

    #[test]
    fn a_lift_of_one_users_ban_leaves_the_others() {
        let (now, here) = (Instant::now(), bans());
        let (network, address) = ("192.0.2.1".parse().unwrap(), "192.0.2.1".parse().unwrap());
        here.failed(address, b"ann", now);
        here.failed(address, b"bob", now);
        let lifted = BanChange::Lifted(SharedBan { network, user: Some(b"ann".to_vec()) });
        BanSync::default().adopt(pulled(&[lifted], 1), &here, now);
        assert!(!here.is_banned(address, b"ann", now) && here.is_banned(address, b"bob", now));
    }
}
