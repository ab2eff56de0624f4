//! What servers of a cluster tell one another of failed logins and familiar networks, so that they count as one server.
//!
//! A failure is told in up to four tallies, each of which the others add to a count of their own: of the user at its
//! address, of the address, of the account, and of the wider network. So a flood of addresses that guess one password is
//! one tally of the account, whatever becomes of the tallies of the addresses.
//!
//! The invariant: what waits to be told is bounded. Tallies that are closest to a limit are told first, and those that are
//! farthest from it are dropped first.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use super::{ADDRESS_FACTOR, BanReport, Bans};
use crate::fading::{Count, NAME};
use crate::guessing::{ACCOUNT_FACTOR, FamiliarNetwork, NETWORK_FACTOR, wider};
use crate::network::Network;

/// Tallies that wait to be told, at most.
const MOST_WAITING: usize = 4096;

/// A network that is known for less than so much longer is nothing new.
const ABOUT: Duration = Duration::from_secs(3600);

/// What failures are counted for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum TallyOf {
    /// A user at the network of a client.
    User(Network, Box<[u8]>),
    /// The network of a client.
    Address(Network),
    /// An account, wherever its password is guessed.
    Account(Box<[u8]>),
    /// The wider network of a client.
    Network(Network),
}

impl TallyOf {
    /// How many failures are worth as much as one of a user at an address.
    fn factor(&self) -> f64 {
        match self {
            Self::User(..) => 1.0,
            Self::Address(_) => ADDRESS_FACTOR,
            Self::Account(_) => ACCOUNT_FACTOR,
            Self::Network(_) => NETWORK_FACTOR,
        }
    }
}

/// Failures that one server has counted since it has last told them.
#[derive(Debug, Clone, PartialEq)]
pub struct FailureTally {
    /// What they count for.
    pub of: TallyOf,
    /// How many there are; less than one for one that has half faded.
    pub failures: f64,
    /// Whether the user has logged in before these, so that earlier ones are forgotten.
    pub is_forgiven: bool,
}

/// What is to be told.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    waiting: HashMap<TallyOf, Waiting>,
    /// Where in the familiar networks those are that are to be told.
    familiar: HashSet<(Network, u64)>,
}

#[derive(Debug)]
struct Waiting {
    count: Count,
    is_forgiven: bool,
}

impl Waiting {
    /// How close it brings another server to a limit. A login goes first: it keeps a user from being locked out.
    fn worth(&self, of: &TallyOf, now: Instant) -> f64 {
        let forgiven = if self.is_forgiven { f64::INFINITY } else { 0.0 };
        self.count.at(now) / of.factor() + forgiven
    }
}

impl Outbox {
    /// A login has failed. It is a guess where the network is not familiar. Of names that are longer than those that are kept,
    /// the others are told the networks alone.
    pub(super) fn failed(&mut self, address: IpAddr, user: &[u8], is_guess: bool, now: Instant) {
        let (client, is_told) = (Network::of_client(address), user.len() <= NAME);
        if is_told {
            self.entry(TallyOf::User(client, user.into()), now).count.add(1.0, now);
        }
        self.entry(TallyOf::Address(client), now).count.add(1.0, now);
        if is_guess && is_told {
            self.entry(TallyOf::Account(user.into()), now).count.add(1.0, now);
        }
        if is_guess {
            self.entry(TallyOf::Network(wider(address)), now).count.add(1.0, now);
        }
    }

    /// A user has logged in. The others are told where it had failed, and where its network has become `familiar`, as the
    /// user of this hash.
    pub(super) fn succeeded(
        &mut self,
        address: IpAddr,
        user: &[u8],
        had_failed: bool,
        familiar: Option<u64>,
        now: Instant,
    ) {
        if user.len() > NAME {
            return;
        }
        if had_failed {
            let of = TallyOf::User(Network::of_client(address), user.into());
            *self.entry(of, now) = Waiting { count: Count::new(now), is_forgiven: true };
        }
        self.familiar.extend(familiar.map(|hash| (wider(address), hash)));
    }

    fn entry(&mut self, of: TallyOf, now: Instant) -> &mut Waiting {
        if self.waiting.len() >= MOST_WAITING && !self.waiting.contains_key(&of) {
            let mut worth: Vec<f64> =
                self.waiting.iter().map(|(of, waiting)| waiting.worth(of, now)).collect();
            let (_, middle, _) = worth.select_nth_unstable_by(MOST_WAITING / 2, f64::total_cmp);
            let middle = *middle;
            self.waiting.retain(|of, waiting| waiting.worth(of, now) > middle);
        }
        self.waiting.entry(of).or_insert_with(|| Waiting { count: Count::new(now), is_forgiven: false })
    }

    /// Takes this many of the tallies. What has faded is not told any more.
    fn take(&mut self, most: usize, now: Instant) -> Vec<FailureTally> {
        self.waiting.retain(|_, waiting| waiting.is_forgiven || waiting.count.at(now) > 0.5);
        let mut by_worth: Vec<(f64, TallyOf)> =
            self.waiting.iter().map(|(of, waiting)| (waiting.worth(of, now), of.clone())).collect();
        by_worth.sort_by(|(one, _), (other, _)| other.total_cmp(one));
        let taken = by_worth.into_iter().take(most).filter_map(|(_, of)| {
            let Waiting { count, is_forgiven } = self.waiting.remove(&of)?;
            Some(FailureTally { of, failures: count.at(now), is_forgiven })
        });
        taken.collect()
    }
}

impl Bans {
    /// Keeps what happens from now on for other servers, and the networks that are familiar already.
    pub fn begin_sharing(&self) {
        let mut book = self.book();
        let familiar = book.guessing.familiar_places().collect();
        book.outbox = Some(Box::new(Outbox { familiar, ..Outbox::default() }));
    }

    /// Takes this many tallies of failures that the others are to be told.
    pub fn take_tallies(&self, most: usize, now: Instant) -> Vec<FailureTally> {
        self.book().outbox.as_mut().map_or(Vec::new(), |outbox| outbox.take(most, now))
    }

    /// Takes this many familiar networks that the others are to be told.
    pub fn take_familiar(&self, most: usize, now: Instant) -> Vec<FamiliarNetwork> {
        let mut book = self.book();
        let Some(outbox) = &mut book.outbox else { return Vec::new() };
        let places: Vec<_> = outbox.familiar.iter().copied().take(most).collect();
        places.iter().for_each(|place| _ = outbox.familiar.remove(place));
        places.into_iter().filter_map(|place| book.guessing.familiar_at(place, now)).collect()
    }

    /// Counts failures that another server has told. Returns the ban that they lead to here.
    pub fn learn_failures(&self, tally: &FailureTally, now: Instant) -> Option<BanReport> {
        let threshold = self.threshold();
        let mut book = self.book();
        let (network, user) = match &tally.of {
            TallyOf::User(network, user) => {
                let pair = (*network, self.hash_of(user));
                let until = book.pairs.get(&pair).and_then(|count| count.banned_until);
                // A login of the moment before the other server knew of a ban does not end it.
                let may_log_in = until.is_none_or(|until| until <= now);
                if tally.is_forgiven && may_log_in {
                    book.forgive(pair, now);
                }
                let counts = tally.failures > 0.0 && may_log_in;
                let is_banned = counts && book.count_pair(pair, user, tally.failures, threshold, now).1;
                is_banned.then_some((*network, Some(user.to_vec())))?
            }
            TallyOf::Address(network) => {
                let counts = book.banned.get(network).is_none_or(|ban| !ban.holds(now));
                let is_banned = counts && book.count_address(*network, tally.failures, threshold, now);
                self.banned.store(book.banned.len(), Relaxed);
                is_banned.then_some((*network, None))?
            }
            TallyOf::Account(user) => {
                book.guessing.count_account(self.hash_of(user), tally.failures, now);
                return None;
            }
            TallyOf::Network(network) => {
                book.guessing.count_network(*network, tally.failures, now);
                return None;
            }
        };
        self.edition.fetch_add(1, Relaxed);
        Some(BanReport { network, user, left: Some(threshold.time) })
    }

    /// Knows a network that another server has told of, unless it knows it for about as long already.
    pub fn learn_familiar(&self, familiar: &FamiliarNetwork, now: Instant) {
        let FamiliarNetwork { network, user, left } = familiar;
        let place = (*network, self.hash_of(user));
        let mut book = self.book();
        let known = book.guessing.familiar_at(place, now).map_or(Duration::ZERO, |known| known.left);
        if known + ABOUT <= *left {
            book.guessing.insert(*network, place.1, user, now + *left, now);
            self.edition.fetch_add(1, Relaxed);
        }
        // Those who know it for longer tell it.
        if known < *left + ABOUT
            && let Some(outbox) = &mut book.outbox
        {
            outbox.familiar.remove(&place);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::fading::FADE;
    use crate::{BanRules, LoginBlock};

    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    /// A server among others that bans after six failures.
    fn server() -> Bans {
        let bans = Bans::new(BanRules { after: 6, ..BanRules::default() });
        bans.begin_sharing();
        bans
    }

    /// Has one tell another all that it has to; returns the bans that this leads to.
    fn tell(one: &Bans, other: &Bans, now: Instant) -> Vec<BanReport> {
        one.take_familiar(usize::MAX, now).iter().for_each(|familiar| other.learn_familiar(familiar, now));
        let tallies = one.take_tallies(usize::MAX, now);
        tallies.iter().filter_map(|tally| other.learn_failures(tally, now)).collect()
    }

    #[test]
    fn a_guesser_at_three_servers_is_banned_after_as_many_guesses_as_at_one() {
        let (servers, now) = ([server(), server(), server()], Instant::now());
        let here = address("192.0.2.1");
        for number in 0..5 {
            assert!(!servers[number % 3].failed(here, b"ann", now).user_banned);
            for (from, to) in [(0, 1), (1, 2), (2, 0)] {
                let told = servers[from].take_tallies(100, now);
                let others = [to, 3 - from - to];
                for other in others {
                    assert!(told.iter().all(|tally| servers[other].learn_failures(tally, now).is_none()));
                }
            }
        }
        let sixth = servers[2].failed(here, b"ann", now);
        assert_eq!((sixth.count, sixth.user_banned), (6, true));
        assert_eq!(tell(&servers[2], &servers[0], now).len(), 1, "the others count it as well");
        assert!(servers[0].is_banned(here, b"ann", now) && !servers[0].is_banned(here, b"bob", now));
        assert_eq!(servers[1].failed(here, b"bob", now).count, 1);
    }

    #[test]
    fn failures_that_two_servers_count_before_they_hear_of_one_another_ban_at_both() {
        let ([one, other], now) = ([server(), server()], Instant::now());
        let here = address("192.0.2.1");
        for bans in [&one, &other] {
            (0..3).for_each(|_| assert!(!bans.failed(here, b"ann", now).user_banned));
        }
        let of_one = one.take_tallies(100, now);
        let user = Some(b"ann".to_vec());
        assert_eq!(tell(&other, &one, now).iter().map(|ban| &ban.user).collect::<Vec<_>>(), [&user]);
        assert_eq!(of_one.iter().filter_map(|tally| other.learn_failures(tally, now)).count(), 1);
        assert!(one.is_banned(here, b"ann", now) && other.is_banned(here, b"ann", now));
        assert!(tell(&one, &other, now).is_empty(), "what was told is not told again");
    }

    #[test]
    fn an_address_and_a_network_and_an_account_are_counted_together_too() {
        let ([one, other], now) = ([server(), server()], Instant::now());
        for number in 0..15u8 {
            one.failed(address("192.0.2.1"), &[b'a', number], now);
        }
        tell(&one, &other, now);
        let banned = (0..15u8)
            .filter(|number| other.failed(address("192.0.2.1"), &[b'b', *number], now).address_banned);
        assert_eq!(banned.collect::<Vec<_>>(), [14], "the thirtieth");

        for number in 0..18u8 {
            one.failed(IpAddr::from([10, number, 0, 1]), b"bob", now);
        }
        assert_eq!(other.login_block(address("203.0.113.9"), b"bob", now), None);
        tell(&one, &other, now);
        let block = other.login_block(address("203.0.113.9"), b"bob", now);
        assert_eq!(block, Some(LoginBlock::AccountGuessed));

        for number in 0..120u8 {
            one.failed(IpAddr::from([198, 51, 100, number]), &[b'c', number], now);
        }
        tell(&one, &other, now);
        let block = other.login_block(address("198.51.100.200"), b"new", now);
        assert_eq!(block, Some(LoginBlock::NetworkGuessed));
    }

    #[test]
    fn a_login_at_one_server_forgives_the_user_at_all() {
        let ([one, other], now) = ([server(), server()], Instant::now());
        let here = address("192.0.2.1");
        (0..5).for_each(|_| _ = one.failed(here, b"ann", now));
        tell(&one, &other, now);
        other.succeeded(here, b"ann", now);
        other.failed(here, b"ann", now);
        tell(&other, &one, now);
        assert_eq!(one.failed(here, b"ann", now).count, 2);
        (0..6).for_each(|_| _ = one.failed(here, b"bob", now));
        other.failed(here, b"bob", now);
        other.succeeded(here, b"bob", now);
        tell(&other, &one, now);
        assert!(one.is_banned(here, b"bob", now), "a ban is not forgiven");
        one.take_tallies(100, now);
        one.succeeded(address("203.0.113.1"), b"ann", now);
        assert!(
            one.take_tallies(100, now).iter().all(|tally| !tally.is_forgiven),
            "there was nothing to forgive"
        );
    }

    #[test]
    fn users_whose_long_names_begin_alike_have_their_own_counts() {
        let ([one, other], now) = ([server(), server()], Instant::now());
        let (kept, from) = ([b'x'; NAME], address("192.0.2.1"));
        let names = [b'y', b'z'].map(|last| [&kept[..], &[last]].concat());
        while !one.failed(from, &names[0], now).user_banned {}
        assert!(one.is_banned(from, &names[0], now) && !one.is_banned(from, &names[1], now));
        tell(&one, &other, now);
        assert!(!other.is_banned(from, &kept, now), "it is another user");
    }

    #[test]
    fn a_user_whom_one_server_knows_is_locked_out_at_none() {
        let ([one, other], now) = ([server(), server()], Instant::now());
        let name = [b'x'; NAME];
        one.succeeded(address("198.51.100.7"), &name, now);
        tell(&one, &other, now);
        (0..100u8).for_each(|number| _ = other.failed(IpAddr::from([10, number, 0, 1]), &name, now));
        assert_eq!(other.login_block(address("198.51.100.9"), &name, now), None);
        assert!(other.login_block(address("203.0.113.9"), &name, now).is_some());
        assert!(other.take_familiar(100, now).is_empty(), "who hears of it does not tell it");
        let edition = other.edition();
        one.familiar(now).iter().for_each(|familiar| other.learn_familiar(familiar, now));
        assert_eq!(other.edition(), edition, "it is nothing new");
    }

    #[test]
    fn a_server_tells_what_it_knew_before_and_the_others_do_not() {
        let now = Instant::now();
        let (known, one, other) = (server(), Bans::new(BanRules::default()), server());
        known.succeeded(address("198.51.100.7"), b"ann", now);
        known.familiar(now).iter().for_each(|familiar| one.take_over_familiar(familiar, now));
        assert!(one.take_familiar(100, now).is_empty(), "it is alone");
        one.begin_sharing();
        let told = one.take_familiar(100, now);
        assert_eq!(told, known.familiar(now));
        one.begin_sharing();
        one.learn_familiar(&told[0], now);
        assert!(one.take_familiar(100, now).is_empty(), "others know it");
        assert!(other.take_familiar(100, now).is_empty());
    }

    #[test]
    fn in_a_flood_what_is_close_to_a_limit_is_told_first_and_what_waits_is_bounded() {
        let (bans, now) = (server(), Instant::now());
        bans.failed(address("192.0.2.1"), b"ann", now);
        bans.succeeded(address("192.0.2.1"), b"ann", now);
        (0..4).for_each(|_| _ = bans.failed(address("192.0.2.2"), b"bob", now));
        for number in 0..20_000u32 {
            bans.failed(IpAddr::from(((11 << 24) + (number << 8)).to_be_bytes()), b"root", now);
        }
        let waiting = |bans: &Bans| bans.book().outbox.as_ref().unwrap().waiting.len();
        assert!(waiting(&bans) <= MOST_WAITING);
        let told = bans.take_tallies(10, now);
        let at = |of: TallyOf| told.iter().position(|tally| tally.of == of);
        assert!(told[0].is_forgiven && told.len() == 10);
        let root = told.iter().find(|tally| tally.of == TallyOf::Account((*b"root").into())).unwrap();
        assert_eq!(root.failures, 20_000.0, "one tally has all of it");
        assert!(at(TallyOf::User("192.0.2.2".parse().unwrap(), (*b"bob").into())).is_some());
        assert!(
            bans.take_tallies(usize::MAX, now + 10 * FADE).is_empty() && waiting(&bans) == 0,
            "it has faded"
        );
    }

    #[test]
    fn a_server_alone_keeps_nothing_for_others() {
        let (bans, now) = (Bans::new(BanRules::default()), Instant::now());
        bans.failed(address("192.0.2.1"), b"ann", now);
        bans.succeeded(address("192.0.2.1"), b"ann", now);
        assert!(bans.book().outbox.is_none() && bans.take_tallies(9, now).is_empty());
        assert!(bans.take_familiar(9, now).is_empty());
    }
}
