//! Locks (RFC 4918 section 6): their owners, their places, and their expiry.
//!
//! The invariant: of the locks that reach a place, either one is exclusive, or all are shared. Locks are advice
//! among those who write by HTTP.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::time::{Duration, Instant};

use super::Touch;
use super::condition::{List, tokens};
use super::place::{Chain, Place};
use crate::Status;
use crate::request::{Refusal, refuse};

/// Locks at a time.
pub const MAX_LOCKS: usize = 10_000;

/// Locks of one user at a time, and of one address.
pub const SHARE: usize = MAX_LOCKS / 4;

/// Bytes of all locks together, as they are kept.
pub const MOST_BYTES: usize = 16 << 20;

/// Bytes of the locks of one user, and of one address.
pub const SHARE_OF_BYTES: usize = MOST_BYTES / 4;

/// Shared locks of one place, which all are told of it and of each of its members.
pub const MOST_SHARED: usize = 64;

/// For how long a lock is given at most; editors refresh theirs in time.
pub const LONGEST: Duration = Duration::from_secs(3600);

/// A lock.
#[derive(Debug, Clone)]
pub struct Lock {
    /// Its token.
    pub token: String,
    /// Its place and the parents.
    pub chain: Chain,
    /// What was locked, as a link.
    pub root: String,
    /// No other lock may be in its reach.
    pub is_exclusive: bool,
    /// It holds for all beneath.
    pub is_deep: bool,
    /// What the client said of its holder, as XML.
    pub owner: Option<String>,
    /// Who holds it.
    pub user: Option<Vec<u8>>,
    /// Where it was asked for from, as long as the server runs.
    pub address: Option<IpAddr>,
    /// When it ends.
    pub until: Instant,
}

impl Lock {
    /// Returns whether it holds at a place.
    pub fn reaches(&self, chain: &[Place]) -> bool {
        let Some(own) = self.chain.first() else { return false };
        chain.first() == Some(own) || (self.is_deep && chain.contains(own))
    }

    /// Bytes that it takes where it is kept at most.
    pub fn size(&self) -> usize {
        let text =
            self.token.len() + self.root.len() + self.owner.as_ref().map_or(0, |owner| 2 * owner.len());
        let user = self.user.as_ref().map_or(0, |user| 4 * user.len());
        256 + text + user + self.chain.iter().map(Place::size).sum::<usize>()
    }

    fn holders(&self) -> impl Iterator<Item = Holder> + use<> {
        [self.user.clone().map(Holder::User), self.address.map(Holder::Address)].into_iter().flatten()
    }
}

/// All locks, found by where they are.
#[derive(Debug, Default)]
pub struct Locks {
    /// In the order in which they were given.
    all: BTreeMap<u64, Lock>,
    /// Those that are on a place.
    on: HashMap<Place, Vec<u64>>,
    /// Those that are beneath one.
    beneath: HashMap<Place, Vec<u64>>,
    by_token: HashMap<Vec<u8>, u64>,
    /// What each user has, and each address.
    held: HashMap<Holder, Held>,
    /// The number of the next one.
    next: u64,
    /// None ends before.
    soonest: Option<Instant>,
    /// What they take.
    bytes: usize,
    /// Counts what changed them.
    changes: u64,
}

/// How many locks, and the bytes that they take.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Held {
    count: usize,
    bytes: usize,
}

/// Who holds locks, and may hold a share of them.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Holder {
    User(Vec<u8>),
    Address(IpAddr),
}

/// Why a lock is not given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockDenied {
    /// A conflicting lock exists.
    Held,
    /// There are too many.
    Full,
}

/// A lock that is to be held on has ended, or never was.
pub const NO_SUCH_LOCK: Refusal =
    Refusal { status: Status::PRECONDITION_FAILED, reason: "There is no such lock here." };

/// A lock is in the way.
const LOCKED: Refusal = Refusal { status: Status::LOCKED, reason: "The resource is locked." };

impl LockDenied {
    /// The refusal for the client.
    pub fn refusal(self) -> Refusal {
        match self {
            Self::Held => LOCKED,
            Self::Full => {
                Refusal { status: Status::INSUFFICIENT_STORAGE, reason: "There are too many locks." }
            }
        }
    }
}

impl Locks {
    /// Checks that a user who shows these tokens may change a place: every lock in the way has to be the user's own, and
    /// its token has to be shown (RFC 4918 section 7).
    pub fn check(
        &self,
        chain: &[Place],
        touch: Touch,
        user: Option<&[u8]>,
        tokens: &[&[u8]],
    ) -> Result<(), Refusal> {
        let Some(place) = chain.first() else { return Ok(()) };
        let is_shown = |lock: &Lock| lock.user.as_deref() == user && tokens.contains(&lock.token.as_bytes());
        // Of shared locks one is enough.
        let passes = |chain: &[Place]| {
            let mut held = self.at(chain).peekable();
            held.peek().is_none() || held.any(is_shown)
        };
        let may_change = match touch {
            Touch::Content => passes(chain),
            // A change of a directory's entries needs the directory's lock, and what goes takes all beneath along.
            Touch::Name => passes(chain) && passes(&chain[1..]) && self.beneath(place).all(is_shown),
        };
        if may_change { Ok(()) } else { Err(LOCKED) }
    }

    /// Extends the lock that the lists of the `If` field name, which has to be the user's and to hold at the place.
    pub fn refresh(
        &mut self,
        lists: &[List<'_>],
        chain: &[Place],
        user: Option<&[u8]>,
        until: Instant,
    ) -> Result<&Lock, Refusal> {
        let Some(&token) = tokens(lists).first() else {
            return refuse(Status::BAD_REQUEST, "Neither a lock is asked for nor one named to be held on.");
        };
        match self.find(token, chain).filter(|lock| lock.user.as_deref() == user) {
            None => Err(NO_SUCH_LOCK),
            Some(lock) => {
                lock.until = until;
                Ok(lock)
            }
        }
    }

    /// Takes back the lock with this token at the user's request.
    pub fn unlock(&mut self, token: &[u8], chain: &[Place], user: Option<&[u8]>) -> Result<(), Refusal> {
        match self.find(token, chain) {
            None => refuse(Status::CONFLICT, "There is no such lock here."),
            Some(lock) if lock.user.as_deref() != user => {
                refuse(Status::FORBIDDEN, "The lock belongs to another user.")
            }
            Some(_) => {
                self.release(token);
                Ok(())
            }
        }
    }

    /// Forgets those whose time is over.
    pub fn expire(&mut self, now: Instant) {
        if self.soonest.is_some_and(|soonest| soonest <= now) {
            let over = self.all.iter().filter(|(_, lock)| lock.until <= now).map(|(number, _)| *number);
            let over: Vec<u64> = over.collect();
            over.into_iter().for_each(|number| self.remove(number));
            self.soonest = self.all.values().map(|lock| lock.until).min();
        }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Counts what may have changed them.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// All of them, in the order in which they were given.
    pub fn all(&self) -> impl Iterator<Item = &Lock> {
        self.all.values()
    }

    /// The locks that hold at a place.
    pub fn at<'a>(&'a self, chain: &'a [Place]) -> impl Iterator<Item = &'a Lock> {
        chain.iter().flat_map(|place| self.those(&self.on, place)).filter(|lock| lock.reaches(chain))
    }

    /// The locks beneath a place.
    pub fn beneath<'a>(&'a self, place: &'a Place) -> impl Iterator<Item = &'a Lock> {
        self.those(&self.beneath, place)
    }

    fn those<'a>(
        &'a self,
        index: &'a HashMap<Place, Vec<u64>>,
        place: &Place,
    ) -> impl Iterator<Item = &'a Lock> + use<'a> {
        index.get(place).into_iter().flatten().filter_map(|number| self.all.get(number))
    }

    /// Gives a lock, where it goes with those that are held.
    pub fn give(&mut self, lock: Lock) -> Result<(), LockDenied> {
        let place = &lock.chain[0];
        let others = self.at(&lock.chain).chain(self.beneath(place).filter(|_| lock.is_deep));
        let (mut beside, size) = (0, lock.size());
        for other in others {
            if lock.is_exclusive || other.is_exclusive {
                return Err(LockDenied::Held);
            }
            beside += usize::from(other.reaches(&lock.chain));
        }
        let is_share = |held: &Held| held.count >= SHARE || held.bytes + size > SHARE_OF_BYTES;
        let has_share = lock.holders().any(|holder| self.held.get(&holder).is_some_and(is_share));
        if has_share || self.all.len() >= MAX_LOCKS || beside >= MOST_SHARED || self.bytes + size > MOST_BYTES
        {
            return Err(LockDenied::Full);
        }
        self.bytes += size;
        self.next += 1;
        self.on.entry(place.clone()).or_default().push(self.next);
        for above in &lock.chain[1..] {
            self.beneath.entry(above.clone()).or_default().push(self.next);
        }
        for holder in lock.holders() {
            let held = self.held.entry(holder).or_default();
            (held.count, held.bytes) = (held.count + 1, held.bytes + size);
        }
        self.soonest = Some(self.soonest.map_or(lock.until, |soonest| soonest.min(lock.until)));
        self.by_token.insert(lock.token.clone().into_bytes(), self.next);
        self.all.insert(self.next, lock);
        self.changes += 1;
        Ok(())
    }

    /// The lock with this token, if it holds at a place.
    pub fn find(&mut self, token: &[u8], chain: &[Place]) -> Option<&mut Lock> {
        // A request for it in this form may extend it.
        self.changes += 1;
        self.all.get_mut(self.by_token.get(token)?).filter(|lock| lock.reaches(chain))
    }

    /// Takes a lock back.
    pub fn release(&mut self, token: &[u8]) {
        self.changes += 1;
        if let Some(&number) = self.by_token.get(token) {
            self.remove(number);
        }
    }

    /// What was at a place is gone, with all beneath.
    pub fn forget(&mut self, place: &Place) {
        self.changes += 1;
        let gone = [&self.on, &self.beneath].into_iter().filter_map(|index| index.get(place)).flatten();
        let gone: Vec<u64> = gone.copied().collect();
        gone.into_iter().for_each(|number| self.remove(number));
    }

    fn remove(&mut self, number: u64) {
        let Some(lock) = self.all.remove(&number) else { return };
        let size = lock.size();
        self.bytes -= size;
        self.by_token.remove(lock.token.as_bytes());
        take_out(&mut self.on, &lock.chain[0], number);
        lock.chain[1..].iter().for_each(|above| take_out(&mut self.beneath, above, number));
        for holder in lock.holders() {
            if let Some(held) = self.held.get_mut(&holder) {
                (held.count, held.bytes) = (held.count - 1, held.bytes - size);
                if held.count == 0 {
                    self.held.remove(&holder);
                }
            }
        }
    }
}

fn take_out(index: &mut HashMap<Place, Vec<u64>>, place: &Place, number: u64) {
    if let Some(numbers) = index.get_mut(place) {
        numbers.retain(|other| *other != number);
        if numbers.is_empty() {
            index.remove(place);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::condition::{Condition, State};
    use super::*;

    /// A place at this depth beneath the root: `["f", "d", ""]` is `/d/f`.
    fn lock(names: &[&str], is_exclusive: bool, is_deep: bool) -> Lock {
        let depth = names.len() as u64;
        let chain = names.iter().enumerate();
        let chain = chain.map(|(at, name)| Place::within((1, depth - at as u64), name.as_bytes())).collect();
        let until = Instant::now() + LONGEST;
        let token = format!("{names:?}{is_exclusive}{is_deep}");
        Lock {
            token,
            chain,
            root: String::new(),
            is_exclusive,
            is_deep,
            owner: None,
            user: None,
            address: None,
            until,
        }
    }

    /// `/d` has members, and is locked alone, or with all beneath; or `/d/f` is.
    #[test]
    fn a_change_passes_the_locks_in_its_way() {
        const FILE: &[&str] = &["f", "d", ""];
        const FOLDER: &[&str] = &["d", ""];
        use Touch::{Content, Name};
        for (locked, is_deep, changed, touch, expected) in [
            (FILE, false, FILE, Content, false),
            (FILE, false, FILE, Name, false),
            (FILE, false, &["g", "d", ""], Name, true),
            // The folder goes with the file in it; its properties do not concern the file.
            (FILE, false, FOLDER, Name, false),
            (FILE, false, FOLDER, Content, true),
            (FOLDER, false, FOLDER, Content, false),
            // What is in a folder is not what its members hold.
            (FOLDER, false, FILE, Content, true),
            (FOLDER, false, FILE, Name, false),
            (FOLDER, true, FILE, Content, false),
            (FOLDER, true, &["g", "f", "d", ""], Name, false),
            (FOLDER, false, &["g", "f", "d", ""], Name, true),
            (FOLDER, true, &["e", ""], Name, true),
            (FILE, false, &[], Name, true),
        ] {
            let mut locks = Locks::default();
            let held = Lock { user: Some(b"u".to_vec()), ..lock(locked, true, is_deep) };
            locks.give(held.clone()).unwrap();
            let chain = lock(changed, true, false).chain;
            let check = |user: &str, token: &str| {
                locks.check(&chain, touch, Some(user.as_bytes()), &[b"x", token.as_bytes()])
            };
            let named = format!("{locked:?} {is_deep} {changed:?} {touch:?}");
            assert_eq!(check("u", "y").is_ok(), expected, "{named}");
            assert_eq!(check("v", &held.token).is_ok(), expected, "another user: {named}");
            assert_eq!(check("u", &held.token), Ok(()), "{named}");
        }
    }

    #[test]
    fn one_of_several_shared_locks_is_enough() {
        let mut locks = Locks::default();
        let lock = lock(&["f", ""], false, false);
        for token in ["a", "b"] {
            locks.give(Lock { token: token.to_owned(), ..lock.clone() }).unwrap();
        }
        assert_eq!(locks.check(&lock.chain, Touch::Content, None, &[b"b"]), Ok(()));
        assert_eq!(locks.check(&lock.chain, Touch::Content, None, &[b"c"]), Err(LOCKED));
    }

    #[test]
    fn a_lock_is_extended_and_taken_back_by_its_holder() {
        let (mut locks, now) = (Locks::default(), Instant::now());
        let held = Lock {
            user: Some(b"u".to_vec()),
            until: now,
            token: "t".to_owned(),
            ..lock(&["f", ""], true, false)
        };
        let elsewhere = lock(&["g", ""], true, false).chain;
        locks.give(held.clone()).unwrap();
        let list = |token| {
            let state = State::Token(token);
            vec![List { resource: None, conditions: vec![Condition { is_negated: false, state }] }]
        };
        let later = now + LONGEST;
        for (token, chain, user, expected) in [
            (&b"t"[..], &held.chain, "v", Err(412)),
            (b"s", &held.chain, "u", Err(412)),
            (b"t", &elsewhere, "u", Err(412)),
            (b"t", &held.chain, "u", Ok(later)),
        ] {
            let extended = locks.refresh(&list(token), chain, Some(user.as_bytes()), later);
            let extended = extended.map(|lock| lock.until).map_err(|refusal| refusal.status.0);
            assert_eq!(extended, expected, "{token:?} {user}");
        }
        assert_eq!(
            locks.refresh(&[], &held.chain, Some(b"u"), later).unwrap_err().status,
            Status::BAD_REQUEST
        );
        // It ends when it was extended to, not before.
        locks.expire(now);
        assert_eq!(locks.len(), 1);
        for (token, chain, user, expected) in [
            (&b"s"[..], &held.chain, "u", Err(409)),
            (b"t", &elsewhere, "u", Err(409)),
            (b"t", &held.chain, "v", Err(403)),
            (b"t", &held.chain, "u", Ok(())),
            (b"t", &held.chain, "u", Err(409)),
        ] {
            let taken_back = locks.unlock(token, chain, Some(user.as_bytes()));
            assert_eq!(taken_back.map_err(|refusal| refusal.status.0), expected, "{token:?} {user}");
        }
    }

    #[derive(Debug, Clone)]
    enum Operation {
        Give { names: Vec<&'static str>, is_exclusive: bool, is_deep: bool, seconds: u64 },
        Release(usize),
        Forget(Vec<&'static str>),
        Pass(u64),
    }

    fn operations() -> impl Strategy<Value = Operation> {
        let names = || {
            prop::sample::select(vec![
                vec![""],
                vec!["d", ""],
                vec!["e", ""],
                vec!["f", "d", ""],
                vec!["g", "f", "d", ""],
            ])
        };
        prop_oneof![
            4 => (names(), any::<bool>(), any::<bool>(), 1_u64..20).prop_map(|(names, is_exclusive, is_deep, seconds)| {
                Operation::Give { names, is_exclusive, is_deep, seconds }
            }),
            1 => (0..40_usize).prop_map(Operation::Release),
            1 => names().prop_map(Operation::Forget),
            2 => (0..10_u64).prop_map(Operation::Pass),
        ]
    }

    proptest! {
        /// Of the locks that reach a place, either one is exclusive, or all are shared; none outlives its time; and with
        /// the last one all memory of them is gone.
        #[test]
        fn an_exclusive_lock_is_alone(operations in prop::collection::vec(operations(), 0..40)) {
            let (mut locks, mut now) = (Locks::default(), Instant::now());
            for (number, operation) in operations.into_iter().enumerate() {
                match operation {
                    Operation::Give { names, is_exclusive, is_deep, seconds } => {
                        let until = now + Duration::from_secs(seconds);
                        let _ = locks.give(Lock { until, token: number.to_string(), ..lock(&names, is_exclusive, is_deep) });
                    }
                    Operation::Release(number) => locks.release(number.to_string().as_bytes()),
                    Operation::Forget(names) => locks.forget(&lock(&names, true, false).chain[0]),
                    Operation::Pass(seconds) => now += Duration::from_secs(seconds),
                }
                locks.expire(now);
                prop_assert!(locks.all().all(|lock| lock.until > now));
                for held in locks.all() {
                    let reaching: Vec<_> = locks.at(&held.chain).collect();
                    prop_assert!(reaching.iter().any(|lock| lock.token == held.token));
                    prop_assert!(reaching.len() == 1 || reaching.iter().all(|lock| !lock.is_exclusive));
                }
            }
            locks.expire(now + LONGEST);
            prop_assert!(locks.by_token.is_empty() && locks.on.is_empty() && locks.beneath.is_empty());
            prop_assert_eq!(locks.bytes, 0);
        }
    }

    #[test]
    fn locks_go_together_or_not() {
        for (first, second, fits) in [
            (lock(&["f", ""], true, false), lock(&["f", ""], false, false), false),
            (lock(&["f", ""], false, false), lock(&["f", ""], false, false), true),
            (lock(&["f", ""], true, false), lock(&["g", ""], true, false), true),
            (lock(&["d", ""], true, true), lock(&["f", "d", ""], false, false), false),
            (lock(&["d", ""], true, false), lock(&["f", "d", ""], true, false), true),
            (lock(&["f", "d", ""], true, false), lock(&["d", ""], true, true), false),
            (lock(&["f", "d", ""], true, false), lock(&["d", ""], true, false), true),
            (lock(&["f", "d", ""], false, false), lock(&["d", ""], false, true), true),
        ] {
            let mut locks = Locks::default();
            locks.give(first.clone()).unwrap();
            assert_eq!(locks.give(second.clone()).is_ok(), fits, "{first:?} and {second:?}");
        }
    }

    #[test]
    fn what_locks_take_is_bounded_and_given_back() {
        let mut locks = Locks::default();
        let long = |at: usize| Lock {
            owner: Some("x".repeat(MOST_BYTES / 10)),
            token: at.to_string(),
            ..lock(&[&at.to_string(), ""], true, false)
        };
        let given = (0..10).take_while(|at| locks.give(long(*at)).is_ok()).count();
        assert_eq!((given, locks.give(long(9))), (4, Err(LockDenied::Full)));
        locks.release(b"0");
        assert_eq!(locks.give(long(9)), Ok(()));
        locks.expire(Instant::now() + LONGEST + LONGEST);
        assert_eq!((locks.len(), locks.bytes), (0, 0));
    }

    #[test]
    fn one_place_has_so_many_shared_locks_and_no_more() {
        let mut locks = Locks::default();
        for _ in 0..MOST_SHARED {
            locks.give(lock(&["d", ""], false, true)).unwrap();
        }
        assert_eq!(locks.give(lock(&["d", ""], false, true)), Err(LockDenied::Full));
        assert_eq!(locks.give(lock(&["f", "d", ""], false, false)), Err(LockDenied::Full));
        assert_eq!(locks.give(lock(&["e", ""], false, true)), Ok(()));
    }

    #[test]
    fn a_user_and_an_address_have_a_share_and_leave_the_rest_to_others() {
        let (here, there) = (Some(IpAddr::from([192, 0, 2, 1])), Some(IpAddr::from([192, 0, 2, 2])));
        let of = |at: usize, user: Option<&str>, address| Lock {
            user: user.map(|user| user.as_bytes().to_vec()),
            address,
            ..lock(&[&at.to_string(), ""], true, false)
        };
        let mut locks = Locks::default();
        let given = (0..MAX_LOCKS).take_while(|at| locks.give(of(*at, Some("u"), here)).is_ok()).count();
        assert_eq!(given, SHARE);
        // Neither elsewhere nor by another name, but another from elsewhere has all of its own.
        for (user, address, fits) in [
            (Some("u"), there, false),
            (Some("v"), here, false),
            (None, here, false),
            (Some("v"), there, true),
        ] {
            assert_eq!(locks.give(of(MAX_LOCKS, user, address)).is_ok(), fits, "{user:?} {address:?}");
        }
        locks.forget(&Place::within((1, 2), b"0"));
        assert_eq!(locks.give(of(MAX_LOCKS + 1, Some("u"), here)), Ok(()));
    }

    #[test]
    fn a_user_with_long_locks_leaves_bytes_to_others() {
        let of = |at: usize, user: &str| Lock {
            user: Some(user.as_bytes().to_vec()),
            owner: Some("x".repeat(4096)),
            ..lock(&[&at.to_string(), ""], true, false)
        };
        let mut locks = Locks::default();
        let given = (0..MAX_LOCKS).take_while(|at| locks.give(of(*at, "u")).is_ok()).count();
        assert!(given < SHARE, "{given}");
        assert_eq!(locks.give(of(MAX_LOCKS, "v")), Ok(()));
        locks.forget(&Place::within((1, 2), b"0"));
        assert_eq!(locks.give(of(MAX_LOCKS + 1, "u")), Ok(()));
    }

    /// A lookup costs as much as it finds, however many locks there are.
    #[test]
    fn the_index_follows_what_is_given_and_taken() {
        let mut locks = Locks::default();
        let names: Vec<String> = (0..100).map(|at| at.to_string()).collect();
        for name in &names {
            locks.give(lock(&[name, "d", ""], true, false)).unwrap();
        }
        let (folder, file) = (Place::within((1, 2), b"d"), lock(&["7", "d", ""], true, false));
        assert_eq!((locks.beneath(&folder).count(), locks.at(&file.chain).count()), (100, 1));
        assert!(locks.find(file.token.as_bytes(), &file.chain).is_some());
        assert!(locks.find(b"another", &file.chain).is_none());
        locks.release(file.token.as_bytes());
        assert_eq!((locks.beneath(&folder).count(), locks.at(&file.chain).count()), (99, 0));
        locks.forget(&folder);
        assert!(locks.on.is_empty() && locks.beneath.is_empty() && locks.bytes == 0);
    }

    #[test]
    fn locks_end_with_their_time_and_with_what_they_are_on() {
        let mut locks = Locks::default();
        locks.give(lock(&["f", "d", ""], true, false)).unwrap();
        locks.forget(&Place::within((1, 2), b"d"));
        assert_eq!(locks.len(), 0);
        locks.give(lock(&["f", ""], true, false)).unwrap();
        locks.expire(Instant::now());
        assert_eq!(locks.len(), 1);
        locks.expire(Instant::now() + LONGEST + LONGEST);
        assert_eq!(locks.len(), 0);
    }
}
