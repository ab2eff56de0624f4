//! Whose uploads wait to be gone on with: no user and no address has more than a share of what a tree takes.
//!
//! Only what was begun since the server started is counted. The bound of a tree counts all that waits there.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use millrace_vfs::PartialKey;

/// Uploads that are counted at a time; of more it is not known whose they are.
const MOST: usize = 100_000;

/// How often it is looked for those whose time is over.
const SWEEP: Duration = Duration::from_secs(60);

/// The owner of a share.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Owner {
    User(Vec<u8>),
    Address(IpAddr),
}

#[derive(Debug)]
struct Waiting {
    owners: Vec<Owner>,
    until: Instant,
}

/// What waits, and how much of it is whose.
#[derive(Debug, Default)]
pub(crate) struct Shares {
    waiting: HashMap<PartialKey, Waiting>,
    held: HashMap<Owner, u64>,
    swept: Option<Instant>,
}

impl Shares {
    /// Returns whether a user, or an address, has as many as this.
    pub(crate) fn is_full(&self, user: Option<&[u8]>, address: Option<IpAddr>, share: u64) -> bool {
        owners(user, address).iter().any(|owner| self.held.get(owner).is_some_and(|&held| held >= share))
    }

    /// An upload was begun, which waits for so long at most.
    pub(crate) fn begin(
        &mut self,
        key: PartialKey,
        user: Option<&[u8]>,
        address: Option<IpAddr>,
        age: Duration,
    ) {
        let now = Instant::now();
        if self.swept.is_none_or(|swept| now.saturating_duration_since(swept) >= SWEEP) {
            self.swept = Some(now);
            let over = self.waiting.iter().filter(|(_, waiting)| waiting.until <= now).map(|(key, _)| *key);
            let over: Vec<PartialKey> = over.collect();
            over.iter().for_each(|key| self.end(key));
        }
        if self.waiting.len() < MOST {
            let owners = owners(user, address);
            owners.iter().for_each(|owner| *self.held.entry(owner.clone()).or_default() += 1);
            self.waiting.insert(key, Waiting { owners, until: now + age });
        }
    }

    /// One became a file, or is given up.
    pub(crate) fn end(&mut self, key: &PartialKey) {
        for owner in self.waiting.remove(key).into_iter().flat_map(|waiting| waiting.owners) {
            if let Some(held) = self.held.get_mut(&owner) {
                *held -= 1;
                if *held == 0 {
                    self.held.remove(&owner);
                }
            }
        }
    }
}

/// This computer's own address has no share: proxies come from there.
pub(crate) fn sharer(address: IpAddr) -> Option<IpAddr> {
    let address = address.to_canonical();
    (!address.is_loopback()).then_some(address)
}

fn owners(user: Option<&[u8]>, address: Option<IpAddr>) -> Vec<Owner> {
    let user = user.map(|user| Owner::User(user.to_vec()));
    user.into_iter().chain(address.map(Owner::Address)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_and_an_address_have_a_share_each() {
        let (here, there) = (sharer([192, 0, 2, 1].into()), sharer([192, 0, 2, 2].into()));
        let (mut shares, day) = (Shares::default(), Duration::from_secs(24 * 3600));
        let key = |number: u8| PartialKey::new([number; 16]);
        for number in 0..5 {
            assert!(!shares.is_full(Some(b"u"), here, 5));
            shares.begin(key(number), Some(b"u"), here, day);
        }
        for (user, address, full) in [
            (Some(&b"u"[..]), here, true),
            (Some(b"u"), there, true),
            (Some(b"v"), here, true),
            (None, here, true),
            (Some(b"v"), there, false),
            (None, sharer([127, 0, 0, 1].into()), false),
        ] {
            assert_eq!(shares.is_full(user, address, 5), full, "{user:?} {address:?}");
        }
        shares.end(&key(0));
        shares.end(&key(0));
        assert!(!shares.is_full(Some(b"u"), here, 5) && shares.is_full(Some(b"u"), here, 4));
        (1..5).for_each(|number| shares.end(&key(number)));
        assert!(shares.held.is_empty() && shares.waiting.is_empty());
    }

    #[test]
    fn an_expired_share_has_no_owner() {
        let mut shares = Shares::default();
        shares.begin(PartialKey::new([1; 16]), Some(b"u"), None, Duration::ZERO);
        shares.swept = None;
        shares.begin(PartialKey::new([2; 16]), Some(b"v"), None, Duration::from_secs(60));
        assert!(!shares.is_full(Some(b"u"), None, 1) && shares.is_full(Some(b"v"), None, 1));
    }
}
