//! Whose uploads wait to be gone on with: no user and no address has more than a share of what a tree takes.
//!
//! Only what was begun since the server started is counted. The bound of a tree counts all that waits there.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use millrace_vfs::PartialKey;

/// Uploads of a tree that wait for more at a time.
pub const MAX_WAITING: u64 = 1000;

/// Uploads of one user that wait at a time, and of one address.
pub const MAX_SHARE: u64 = MAX_WAITING / 4;

/// Uploads that are counted at a time; of more it is not known whose they are.
const MAX_COUNTED: usize = 100_000;

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
pub struct UploadShares {
    waiting: HashMap<PartialKey, Waiting>,
    held: HashMap<Owner, u64>,
    swept: Option<Instant>,
}

impl UploadShares {
    /// Returns whether a user, or an address, has a whole share.
    pub fn is_full(&self, user: Option<&[u8]>, address: Option<IpAddr>) -> bool {
        owners(user, address).iter().any(|owner| self.held.get(owner).is_some_and(|&held| held >= MAX_SHARE))
    }

    /// An upload was begun now, which waits for so long at most.
    pub fn begin(
        &mut self,
        key: PartialKey,
        user: Option<&[u8]>,
        address: Option<IpAddr>,
        (now, age): (Instant, Duration),
    ) {
        if self.swept.is_none_or(|swept| now.saturating_duration_since(swept) >= SWEEP) {
            self.swept = Some(now);
            let over = self.waiting.iter().filter(|(_, waiting)| waiting.until <= now).map(|(key, _)| *key);
            let over: Vec<PartialKey> = over.collect();
            over.iter().for_each(|key| self.end(key));
        }
        if self.waiting.len() < MAX_COUNTED {
            let owners = owners(user, address);
            owners.iter().for_each(|owner| *self.held.entry(owner.clone()).or_default() += 1);
            self.waiting.insert(key, Waiting { owners, until: now + age });
        }
    }

    /// One became a file, or is given up.
    pub fn end(&mut self, key: &PartialKey) {
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
pub fn sharer(address: IpAddr) -> Option<IpAddr> {
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

    fn key(number: u64) -> PartialKey {
        PartialKey::new(u128::from(number).to_be_bytes())
    }

    #[test]
    fn a_user_and_an_address_have_a_share_each() {
        let (here, there) = (sharer([192, 0, 2, 1].into()), sharer([192, 0, 2, 2].into()));
        let (mut shares, day) = (UploadShares::default(), (Instant::now(), Duration::from_secs(24 * 3600)));
        for number in 0..MAX_SHARE {
            assert!(!shares.is_full(Some(b"u"), here));
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
            assert_eq!(shares.is_full(user, address), full, "{user:?} {address:?}");
        }
        shares.end(&key(0));
        shares.end(&key(0));
        assert!(!shares.is_full(Some(b"u"), here));
        shares.begin(key(0), Some(b"u"), here, day);
        assert!(shares.is_full(Some(b"u"), here));
        (0..MAX_SHARE).for_each(|number| shares.end(&key(number)));
        assert!(shares.held.is_empty() && shares.waiting.is_empty());
    }

    #[test]
    fn an_expired_share_has_no_owner() {
        let (mut shares, now, age) = (UploadShares::default(), Instant::now(), Duration::from_secs(10));
        (0..MAX_SHARE).for_each(|number| shares.begin(key(number), Some(b"u"), None, (now, age)));
        // What is over is looked for once in a while.
        shares.begin(key(MAX_SHARE), Some(b"v"), None, (now + SWEEP - age, age));
        assert!(shares.is_full(Some(b"u"), None));
        shares.begin(key(MAX_SHARE + 1), Some(b"v"), None, (now + SWEEP, age));
        assert!(!shares.is_full(Some(b"u"), None) && shares.held.len() == 1);
    }
}
