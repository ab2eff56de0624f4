//! Servers that count together, with what they have told in memory.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use millrace_storage::Ledger;
use millrace_vfs::Counted;

use super::*;
use crate::{Moved, TransferQuota};

const MOST: u64 = 100_000_000;

/// A server with one user.
struct Server {
    quotas: Quotas,
    moved: Moved,
    rings: Arc<AtomicUsize>,
}

impl Server {
    fn new(quota: TransferQuota) -> Self {
        let (quotas, rings) = (Quotas::new(Ledger::new(None)), Arc::new(AtomicUsize::new(0)));
        let rung = Arc::clone(&rings);
        quotas.share(move || {
            rung.fetch_add(1, Ordering::Relaxed);
        });
        quotas.note_answers(true);
        let moved = Moved { quota: Arc::new(quota), traffic: quotas.traffic("ann") };
        Self { quotas, moved, rings }
    }

    fn downloading() -> Self {
        let download = format!("{MOST}/day").parse().unwrap();
        Self::new(TransferQuota { download, ..TransferQuota::default() })
    }

    fn reserve(&self, wanted: u64) -> Result<u64, Counted> {
        self.moved.reserve(Direction::Download, 0, wanted).map_err(|over| over.counted)
    }
}

/// What all have told of the downloads of the user: what the database does, for one quota.
#[derive(Default)]
struct Told {
    counts: TrafficCounts,
    rooms: HashMap<usize, u64>,
}

impl Told {
    fn answer(&mut self, server: usize, telling: &TrafficTelling) -> TrafficAnswer {
        let before = telling.before.unwrap_or_default();
        let down = self.counts.periods[0].down.saturating_add_signed(telling.moved.down);
        let down = MovedBytes { up: 0, down: down + before.periods[0].down };
        self.counts.periods = [down; 3];
        self.counts.ever.up += telling.moved.credit + before.ever.up;
        self.counts.ever.down = down.down;
        let own = self.rooms.remove(&server).unwrap_or(0);
        let kept = own.saturating_sub(u64::try_from(telling.moved.down).unwrap_or(0));
        let others: u64 = self.rooms.values().sum();
        let left = MOST.saturating_sub(down.down + others);
        let wish = telling.wish.down;
        let room = wish.min(kept).max(wish.min(left.div_ceil(8).max(65_536)).min(left));
        self.rooms.insert(server, room);
        TrafficAnswer { counts: self.counts, room: MovedBytes { up: 0, down: room } }
    }

    /// A server tells, and is answered. Returns what it has told.
    fn exchange(&mut self, number: usize, server: &Server) -> Vec<TrafficTelling> {
        let told = server.quotas.tell_traffic(10);
        let answers: Vec<_> = told.iter().map(|telling| self.answer(number, telling)).collect();
        server.quotas.learn_traffic(&told, &answers);
        told
    }
}

/// Numbers that look random, the same each time.
fn draw(state: &mut u64, below: u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*state >> 33) % below
}

#[test]
fn servers_together_move_all_of_a_quota_and_no_byte_more() {
    for seed in 0..50 {
        let (mut state, mut told, mut sum) = (seed, Told::default(), 0);
        let servers = [(); 3].map(|()| Server::downloading());
        let mut over = 0;
        for _ in 0..200_000 {
            let number = draw(&mut state, 3) as usize;
            let server = &servers[number];
            match server.reserve(draw(&mut state, 4_000_000)) {
                Ok(piece) => {
                    let unused = draw(&mut state, piece + 1);
                    server.moved.give_back(Direction::Download, unused);
                    sum += piece - unused;
                }
                Err(counted) => {
                    assert_eq!(
                        (counted, sum),
                        (Counted::Downloaded, MOST),
                        "seed {seed}: cut before the end"
                    );
                    over += 1;
                }
            }
            assert!(sum <= MOST, "seed {seed}: {sum}");
            if draw(&mut state, 4) == 0 {
                let number = draw(&mut state, 3) as usize;
                told.exchange(number, &servers[number]);
            }
            if over > 100 {
                break;
            }
        }
        assert_eq!(sum, MOST, "seed {seed}");
    }
}

#[test]
fn a_transfer_waits_for_room_and_has_it_asked_for_at_once() {
    let (server, mut told) = (Server::downloading(), Told::default());
    let rings = || server.rings.load(Ordering::Relaxed);
    assert_eq!((server.quotas.is_traffic_urgent(), rings()), (true, 1), "its counts are to be known");
    assert_eq!(server.reserve(1000), Ok(0));
    let asked = told.exchange(0, &server);
    assert_eq!(asked[0].wish, MovedBytes { up: 0, down: AHEAD.1 });
    assert_eq!(server.reserve(1000), Ok(1000));
    assert_eq!((rings(), server.quotas.is_traffic_urgent()), (1, false));
    while server.reserve(1 << 20).unwrap() > 0 {}
    assert_eq!((rings(), server.quotas.is_traffic_urgent()), (2, true), "in time, and once");
}

#[test]
fn room_that_is_not_needed_is_given_back_and_then_nothing_is_told() {
    let (server, mut told) = (Server::downloading(), Told::default());
    assert_eq!(server.reserve(1000), Ok(0));
    told.exchange(0, &server);
    assert_eq!(server.reserve(1000), Ok(1000));
    assert_eq!(told.exchange(0, &server)[0].moved, Since { down: 1000, ..Since::default() });
    assert!(told.rooms[&0] > 0, "it may go on");
    told.exchange(0, &server);
    assert_eq!((told.rooms[&0], server.reserve(1000)), (0, Ok(0)));
    told.exchange(0, &server);
    told.exchange(0, &server);
    assert_eq!(told.exchange(0, &server), []);
    assert_eq!(told.counts.periods[0].down, 1000);
}

#[test]
fn without_answers_a_server_goes_by_what_it_knew_and_waits_for_nothing() {
    let [one, other] = [(); 2].map(|()| Server::downloading());
    let mut told = Told::default();
    assert_eq!(one.reserve(1), Ok(0));
    told.exchange(0, &one);
    assert_eq!(one.reserve(100_000), Ok(100_000));
    told.exchange(0, &one);
    told.exchange(1, &other);
    other.quotas.note_answers(false);
    let mut sum = 0;
    let over = loop {
        match other.reserve(u64::MAX) {
            Ok(piece) => sum += piece,
            Err(counted) => break counted,
        }
    };
    assert_eq!((sum, over), (MOST - 100_000, Counted::Downloaded));
    // What it has moved is told when there are answers again.
    told.exchange(1, &other);
    assert_eq!(told.counts.periods[0].down, MOST);
    assert_eq!(one.reserve(1), Ok(1), "it has room, and hears of it later");
}

#[test]
fn a_question_without_an_answer_changes_nothing_and_its_room_is_not_used_twice() {
    let (server, mut told) = (Server::downloading(), Told::default());
    assert_eq!(server.reserve(1000), Ok(0));
    told.exchange(0, &server);
    let room = told.rooms[&0];
    let mut sum = server.reserve(5000).unwrap();
    let first = server.quotas.tell_traffic(10);
    let lost = told.answer(0, &first[0]);
    // It moves on meanwhile, within the room that it has.
    loop {
        match server.reserve(1 << 20).unwrap() {
            0 => break,
            piece => sum += piece,
        }
    }
    assert_eq!(sum, room);
    server.quotas.learn_traffic(&first, &[lost]);
    assert!(lost.room.down >= room - 5000, "what it has kept is its own");
    assert_eq!(told.exchange(0, &server)[0].moved.down, i64::try_from(sum).unwrap() - 5000);
    assert_eq!(told.counts.periods[0].down, sum);
    server.quotas.give_up_room();
    assert_eq!(server.reserve(1), Ok(0), "another registration has none yet");
}

#[test]
fn a_user_is_refused_only_by_what_was_told_a_moment_ago() {
    let ratio = "1:2".parse().unwrap();
    let server = Server::new(TransferQuota { ratio, ..TransferQuota::default() });
    let may_begin = || server.moved.check(Direction::Download, 0).is_ok();
    assert!(may_begin(), "it may have uploaded elsewhere");
    assert_eq!(server.reserve(1000), Ok(0));
    let mut told = Told::default();
    told.exchange(0, &server);
    assert_eq!((may_begin(), server.reserve(1000)), (false, Err(Counted::Ratio)));
    server.moved.traffic.credit(1000);
    assert_eq!((may_begin(), server.reserve(5000)), (true, Ok(2000)));
    let telling = told.exchange(0, &server).remove(0);
    assert_eq!((telling.moved.credit, telling.quota.ratio.unwrap().download), (1000, 2));
    assert_eq!(server.reserve(5000), Err(Counted::Ratio));
}

#[test]
fn what_a_server_has_counted_before_it_shared_is_told_once() {
    let quotas = Quotas::new(Ledger::new(None));
    let download = format!("{MOST}/day").parse().unwrap();
    let quota = Arc::new(TransferQuota { download, ..TransferQuota::default() });
    let moved = Moved { quota, traffic: quotas.traffic("ann") };
    moved.count(Direction::Download, 700);
    quotas.share(|| ());
    moved.count(Direction::Download, 30);
    let told = quotas.tell_traffic(10);
    assert_eq!((told[0].before.unwrap().periods[0].down, told[0].moved.down), (700, 30));
    let answer = Told::default().answer(0, &told[0]);
    assert_eq!(answer.counts.periods[0].down, 730);
    quotas.learn_traffic(&told, &[answer]);
    moved.count(Direction::Download, 1);
    assert_eq!(quotas.tell_traffic(10)[0].before, None);
    assert_eq!(quotas.since(), [], "a successor hears of it from the others");
}

#[test]
fn room_for_a_user_who_is_forgotten_is_given_back() {
    let (server, mut told) = (Server::downloading(), Told::default());
    assert_eq!(server.reserve(1000), Ok(0));
    let asked = server.quotas.tell_traffic(10);
    let answer = told.answer(0, &asked[0]);
    let Server { quotas, moved, .. } = server;
    drop(moved);
    quotas.keep(false).unwrap();
    assert!(quotas.traffic_at_hand("ann").is_none());
    quotas.learn_traffic(&asked, &[answer]);
    let back = quotas.tell_traffic(10);
    assert_eq!((back.len(), back[0].wish), (1, MovedBytes::default()));
}

#[test]
fn a_direction_without_a_limit_needs_no_room() {
    let ratio = "1:2".parse().unwrap();
    let (server, mut told) =
        (Server::new(TransferQuota { ratio, ..TransferQuota::default() }), Told::default());
    told.exchange(0, &server);
    assert_eq!(server.moved.reserve(Direction::Upload, 0, 1 << 20), Ok(1 << 20));
    let telling = told.exchange(0, &server).remove(0);
    assert_eq!((telling.moved.up, telling.wish), (1 << 20, MovedBytes::default()));
}

#[test]
fn while_the_others_answer_the_day_is_theirs() {
    const NEXT_DAY: i64 = 86_400;
    let (server, mut told) = (Server::downloading(), Told::default());
    told.counts.periods = [MovedBytes { up: 0, down: MOST }; 3];
    assert_eq!(server.reserve(1), Ok(0));
    told.exchange(0, &server);
    let refused = server.moved.reserve(Direction::Download, NEXT_DAY, 1);
    assert_eq!(refused.map_err(|over| over.counted), Err(Counted::Downloaded));
    server.quotas.note_answers(false);
    assert!(server.moved.reserve(Direction::Download, NEXT_DAY, 1).unwrap() > 0);
}

#[test]
fn of_more_users_than_are_told_at_once_each_has_its_turn() {
    let server = Server::downloading();
    let users = ["ann", "bob", "cid"].map(|user| (user, server.quotas.traffic(user)));
    let mut told = std::collections::BTreeSet::new();
    for _ in 0..3 {
        users.iter().for_each(|(_, traffic)| traffic.add_elsewhere(Since { down: 1, ..Since::default() }, 0));
        let telling = server.quotas.tell_traffic(1);
        assert!(server.quotas.is_traffic_urgent(), "the others are to be told soon");
        told.insert(telling[0].user.clone());
        server.quotas.learn_traffic(&telling, &[TrafficAnswer::default()]);
    }
    assert_eq!(told.len(), 3);
}

#[test]
fn names_that_are_very_long_are_counted_here() {
    let server = Server::downloading();
    let traffic = server.quotas.traffic(&"x".repeat(LONGEST_NAME + 1));
    let moved = Moved { traffic, ..server.moved.clone() };
    assert_eq!(moved.reserve(Direction::Download, 0, 1000).unwrap(), 1000);
}
