//! The tree, with time passed in.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::meter::{Allowance, Meter};
use super::*;

const LISTENER: &str = "127.0.0.1:2121";

fn rate(value: u64) -> Limits {
    Limits { download: Some(Limit::of(value)), ..Limits::default() }
}

fn listener() -> SocketAddr {
    LISTENER.parse().unwrap()
}

/// A tree whose clock is turned by hand.
struct Bench {
    tree: Tree,
    start: Instant,
}

impl Bench {
    fn new(limits: ServerLimits) -> Self {
        let start = Instant::now();
        Self { tree: Tree::new(limits, start, 0), start }
    }

    fn member(&self, user: &str, limits: &AccountLimits) -> LimitHandle {
        let mut member = self.tree.connect(listener(), self.start).unwrap();
        self.tree.log_in(&mut member, user.as_bytes(), limits, self.start).unwrap();
        member
    }

    /// Lets transfers move all they may, looked at once a tick, and answers what each moved.
    fn run(&self, meters: &mut [Meter], from: Duration, to: Duration) -> Vec<u64> {
        self.run_in_pieces(1, meters, from, to)
    }

    /// The same, where bytes come in pieces and the last one is taken whole, allowed or not.
    fn run_in_pieces(&self, piece: u64, meters: &mut [Meter], from: Duration, to: Duration) -> Vec<u64> {
        let mut moved = vec![0; meters.len()];
        let mut at = from;
        while at < to {
            let now = self.tree.nanos(self.start + at);
            for (meter, moved) in meters.iter_mut().zip(&mut moved) {
                while let Allowance::Now(bytes) = meter.allowance(now, u64::MAX) {
                    let bytes = bytes.next_multiple_of(piece);
                    meter.spend(bytes);
                    *moved += bytes;
                }
            }
            at += Duration::from_millis(50);
        }
        moved
    }

    fn meters(&self, members: &[LimitHandle]) -> Vec<Meter> {
        members.iter().map(|member| *self.tree.meter(member, Direction::Download).unwrap()).collect()
    }
}

const TEN_SECONDS: Duration = Duration::from_secs(10);

fn assert_within(moved: u64, expected: u64, percent: f64) {
    let off = (moved as f64 / expected as f64 - 1.0).abs() * 100.0;
    assert!(off <= percent, "{moved} bytes are {off:.2} % off {expected}");
}

#[test]
fn without_limits_there_is_no_meter() {
    let bench = Bench::new(ServerLimits::default());
    let member = bench.member("alice", &AccountLimits::default());
    assert!(bench.tree.meter(&member, Direction::Download).is_none());
    let bench = Bench::new(ServerLimits { server: rate(5), ..ServerLimits::default() });
    let member = bench.member("alice", &AccountLimits::default());
    assert!(bench.tree.meter(&member, Direction::Download).is_some());
    assert!(bench.tree.meter(&member, Direction::Upload).is_none(), "each direction has its own limit");
}

#[test]
fn a_session_moves_what_its_limit_says() {
    for value in [10_000, 100_000, 1_000_000, 50_000_000, 3_000_000_000] {
        let bench = Bench::new(ServerLimits { session: rate(value), ..ServerLimits::default() });
        let members = [bench.member("alice", &AccountLimits::default())];
        let moved = bench.run(&mut bench.meters(&members), Duration::ZERO, TEN_SECONDS);
        assert_within(moved[0], value * 10, 2.0);
    }
}

#[test]
fn the_sessions_of_a_user_share_fairly() {
    for count in [1, 8, 10, 64] {
        let limits = AccountLimits { user: rate(5_000_000), ..AccountLimits::default() };
        let bench = Bench::new(ServerLimits::default());
        let members: Vec<_> = (0..count).map(|_| bench.member("alice", &limits)).collect();
        let other = [bench.member("bob", &limits)];
        let (mut meters, mut others) = (bench.meters(&members), bench.meters(&other));
        let moved = bench.run(&mut meters, Duration::ZERO, TEN_SECONDS);
        assert_within(moved.iter().sum(), 50_000_000, 2.0);
        moved.iter().for_each(|&one| assert_within(one, 50_000_000 / count, 4.0));
        assert_within(bench.run(&mut others, Duration::ZERO, TEN_SECONDS)[0], 50_000_000, 2.0);
    }
}

/// A transfer that reads more than its allowance, to complete a record, waits for that before it reads on, and delays
/// no other.
#[test]
fn bytes_beyond_an_allowance_delay_the_next() {
    const PIECE: u64 = 66 * 1024;
    for value in [20_000, 100_000, 1_000_000] {
        let bench = Bench::new(ServerLimits { user: rate(value), ..ServerLimits::default() });
        let members: Vec<_> =
            ["alice", "bob", "bob"].map(|user| bench.member(user, &AccountLimits::default())).into();
        let mut meters = bench.meters(&members);
        let moved = bench.run_in_pieces(PIECE, &mut meters, Duration::ZERO, TEN_SECONDS * 10);
        for (one, drawers) in [(moved[0], 1), (moved[1] + moved[2], 2)] {
            let most = value * 102 + drawers * PIECE;
            assert!((value * 98..=most).contains(&one), "{one} bytes at {value} a second");
        }
        // A transfer that begins anew finds what the last one has left to be paid.
        drop(meters);
        let mut meters = bench.meters(&members[..1]);
        let again = bench.run(&mut meters, TEN_SECONDS * 10, TEN_SECONDS * 20);
        assert!(moved[0] + again[0] <= value * 204 + PIECE, "{moved:?} {again:?}");
    }
}

/// A quota is charged all that was moved, too, and says when that was too much.
#[test]
fn bytes_beyond_a_reservation_are_charged() {
    let day = |bytes| Per { bytes, period: Period::Day }.into();
    let quota = TransferQuota { upload: day(1_000_000), ..TransferQuota::default() };
    let moved = Moved { quota: Arc::new(quota), traffic: Arc::default() };
    let limits = AccountLimits { moved: Some(moved.clone()), ..AccountLimits::default() };
    let bench = Bench::new(ServerLimits::default());
    let member = bench.member("alice", &limits);
    let mut sum = 0;
    while sum <= 1_000_000 {
        let mut pace = Pace::new(Direction::Upload);
        let allowed = pace.allowance(&bench.tree, &member, bench.start, u64::MAX).unwrap();
        pace.spend(allowed + 66 * 1024);
        sum += allowed + 66 * 1024;
        assert_eq!(pace.over().is_some(), sum > 1_000_000, "{sum}");
    }
    assert!(moved.check(Direction::Upload, 0).is_err());
}

/// Bytes reserved in the last minute and not moved cannot be used to exceed this minute's quota.
#[test]
fn a_transfer_that_runs_is_held_to_the_quota_of_each_minute() {
    let quota = TransferQuota {
        download: "none; 00:01-00:02 UTC 100k/day; 00:02-00:03 UTC 400k/day".parse().unwrap(),
        ..TransferQuota::default()
    };
    let moved = Moved { quota: Arc::new(quota), traffic: Arc::default() };
    let limits = AccountLimits { moved: Some(moved.clone()), ..AccountLimits::default() };
    let bench = Bench::new(ServerLimits::default());
    let member = bench.member("alice", &limits);
    let (mut first, mut second) = (Pace::new(Direction::Download), Pace::new(Direction::Download));
    let wanted = |pace: &mut Pace| pace.allowance(&bench.tree, &member, bench.start, 1_000_000);
    bench.tree.set_clock(0);
    assert_eq!(wanted(&mut first), Some(1_000_000));
    first.spend(200_000);
    bench.tree.set_clock(60);
    assert_eq!(wanted(&mut first), None, "more was moved than there may be now");
    assert_eq!(first.over().unwrap().most, 100_000);
    bench.tree.set_clock(120);
    let mut sum = 0;
    while let Some(allowed) = wanted(&mut second) {
        second.spend(allowed);
        sum += allowed;
    }
    assert_eq!((sum, second.over().unwrap().most), (200_000, 400_000));
}

#[test]
fn the_narrowest_bucket_on_the_way_decides() {
    let bench = Bench::new(ServerLimits { server: rate(1_000_000), ..ServerLimits::default() });
    let slow = AccountLimits { session: rate(100_000), ..AccountLimits::default() };
    let group = GroupLimits { name: "staff".into(), limits: rate(300_000) };
    let staff = AccountLimits { groups: vec![group], ..AccountLimits::default() };
    let members = [
        bench.member("slow", &slow),
        bench.member("amy", &staff),
        bench.member("ben", &staff),
        bench.member("free", &AccountLimits::default()),
    ];
    let mut meters = bench.meters(&members);
    let moved = bench.run(&mut meters, Duration::ZERO, TEN_SECONDS);
    assert_within(moved[0], 1_000_000, 2.0);
    assert_within(moved[1] + moved[2], 3_000_000, 2.0);
    assert!(moved.iter().sum::<u64>() <= 10_300_000, "{moved:?}");
}

#[test]
fn a_change_counts_for_those_who_wait() {
    let bench = Bench::new(ServerLimits { user: rate(2_000), ..ServerLimits::default() });
    let members = [bench.member("alice", &AccountLimits::default())];
    let mut meters = bench.meters(&members);
    bench.run(&mut meters, Duration::ZERO, Duration::from_secs(3));
    let user = Scope::User(Arc::from(&b"alice"[..]));
    let before = bench.tree.generation();
    assert!(bench.tree.set(&user, &rate(1_000_000), bench.start + Duration::from_secs(3)));
    assert_ne!(bench.tree.generation(), before);
    let moved = bench.run(&mut meters, Duration::from_secs(3), Duration::from_secs(13));
    assert_within(moved[0], 10_000_000, 2.0);
    assert!(bench.tree.restore(&user, bench.start + Duration::from_secs(13)));
    let moved = bench.run(&mut meters, Duration::from_secs(13), Duration::from_secs(33));
    assert_within(moved[0], 40_000, 6.0);
}

#[test]
fn a_schedule_takes_effect_when_the_clock_says_so() {
    let limit: Limit = "1000; 00:01-00:02 UTC 2000".parse().unwrap();
    let limits = Limits { download: Some(limit), ..Limits::default() };
    let bench = Bench::new(ServerLimits { server: limits, ..ServerLimits::default() });
    let in_force = || bench.tree.report()[0].download;
    for (second, expected) in [(59, 1000), (60, 2000), (119, 2000), (120, 1000), (60, 2000)] {
        bench.tree.set_clock(second);
        bench.tree.tick(bench.start);
        assert_eq!(in_force(), expected, "at {second} s");
    }
}

/// The wall clock is set, or daylight saving time begins or ends, during a transfer: the schedule follows the new time,
/// and bytes are counted by the monotonic clock.
#[test]
fn a_clock_that_leaps_changes_the_limit_and_not_what_was_moved() {
    let limit: Limit = "100k; 02:00-03:00 Europe/Paris 500k".parse().unwrap();
    let limits = Limits { download: Some(limit), ..Limits::default() };
    let bench = Bench::new(ServerLimits { server: limits, ..ServerLimits::default() });
    let member = bench.member("alice", &AccountLimits::default());
    let mut meters = bench.meters(&[member]);
    let mut passed = Duration::ZERO;
    for (wall, rate, what) in [
        ("2026-11-20T00:30:00Z", 100_000, "before the hour"),
        ("2026-11-20T01:30:00Z", 500_000, "put forward into it"),
        ("2026-11-19T23:30:00Z", 100_000, "put back out of it"),
        ("2026-11-10T01:30:00Z", 500_000, "put back by days"),
        ("2036-11-10T12:00:00Z", 100_000, "put forward by years"),
        ("2026-03-29T00:59:59Z", 100_000, "01:59 of the night that lacks an hour"),
        ("2026-03-29T01:00:00Z", 100_000, "03:00, a second later"),
        ("2026-10-25T00:00:00Z", 500_000, "02:00 of the night that has it twice"),
        ("2026-10-25T01:00:00Z", 500_000, "02:00 again, an hour later"),
        ("2026-10-25T02:00:00Z", 100_000, "03:00"),
    ] {
        let moment: jiff::Timestamp = wall.parse().unwrap();
        bench.tree.set_clock(moment.as_second());
        bench.tree.tick(bench.start + passed);
        assert_eq!(bench.tree.report()[0].download, rate, "{what}");
        let moved = bench.run(&mut meters, passed, passed + TEN_SECONDS);
        passed += TEN_SECONDS;
        // A slice of the old rate may still be under way.
        assert_within(moved[0], rate * 10, 4.0);
    }
}

#[test]
fn a_user_who_connects_anew_finds_the_same_line() {
    let bench = Bench::new(ServerLimits { user: rate(1_000_000), ..ServerLimits::default() });
    let mut moved = 0;
    for tenth in 0..100 {
        let at = bench.start + Duration::from_millis(100 * tenth);
        for _ in 0..20 {
            let member = bench.member("alice", &AccountLimits::default());
            let mut meter = bench.tree.meter(&member, Direction::Download).unwrap();
            if let Allowance::Now(bytes) = meter.allowance(bench.tree.nanos(at), 50_000) {
                meter.spend(bytes);
                moved += bytes;
            }
        }
    }
    assert!(moved <= 10_200_000, "{moved}");
}

#[test]
fn sessions_are_counted_and_refused_by_whose_limit_it_is() {
    let two = Limits { sessions: Some(Limit::of(2)), ..Limits::default() };
    let bench = Bench::new(ServerLimits { user: two.clone(), ..ServerLimits::default() });
    let mut members = vec![bench.member("alice", &AccountLimits::default())];
    members.push(bench.member("alice", &AccountLimits::default()));
    let mut third = bench.tree.connect(listener(), bench.start).unwrap();
    let refused =
        bench.tree.log_in(&mut third, b"alice", &AccountLimits::default(), bench.start).unwrap_err();
    assert_eq!((refused.scope.to_string().as_str(), refused.value), ("user alice", 2));
    assert!(bench.tree.log_in(&mut third, b"bob", &AccountLimits::default(), bench.start).is_ok());
    members.pop();
    assert!(bench.tree.log_in(&mut third, b"alice", &AccountLimits::default(), bench.start).is_ok());
    let alice = bench.tree.report().into_iter().find(|one| one.scope.to_string() == "user alice").unwrap();
    assert_eq!(alice.sessions, 2);

    // A member that only visits in a user's name neither takes a session nor is refused one.
    let mut guest = bench.tree.connect(listener(), bench.start).unwrap();
    bench.tree.visit(&mut guest, b"alice", &AccountLimits::default(), bench.start);
    members.clear();
    assert!(bench.tree.log_in(&mut third, b"alice", &AccountLimits::default(), bench.start).is_ok());
    members.push(bench.member("alice", &AccountLimits::default()));

    let bench = Bench::new(ServerLimits { listeners: vec![(listener(), two)], ..ServerLimits::default() });
    let _members = [bench.tree.connect(listener(), bench.start), bench.tree.connect(listener(), bench.start)];
    assert!(bench.tree.connect(listener(), bench.start).is_err());
    assert!(bench.tree.connect("127.0.0.2:21".parse().unwrap(), bench.start).is_ok());
}

/// In bytes a second, what one session of alice, of the group staff, moves where these are the limits.
fn pace(bench: &Bench, limits: &AccountLimits) -> u64 {
    let members = [bench.member("alice", limits)];
    bench.run(&mut bench.meters(&members), Duration::ZERO, Duration::from_secs(10))[0] / 10
}

#[test]
fn the_narrowest_of_server_listener_group_user_and_session_decides() {
    for narrowest in 0..5 {
        let value = |place: usize| rate(if place == narrowest { 10_000 } else { 50_000 });
        let bench = Bench::new(ServerLimits {
            server: value(0),
            listeners: vec![(listener(), value(1))],
            groups: vec![("staff".into(), value(2))],
            ..ServerLimits::default()
        });
        let staff = GroupLimits { name: "staff".into(), limits: Limits::default() };
        let limits = AccountLimits {
            user: value(3),
            session: value(4),
            groups: vec![staff],
            ..AccountLimits::default()
        };
        let pace = pace(&bench, &limits);
        assert!((9_500..=10_500).contains(&pace), "{narrowest}: {pace}");
    }
}

#[test]
fn members_share_a_groups_limits_and_a_reload_changes_them() {
    let with =
        |value| ServerLimits { groups: vec![("staff".into(), rate(value))], ..ServerLimits::default() };
    let bench = Bench::new(with(20_000));
    let group = |name: &str| GroupLimits { name: name.into(), limits: Limits::default() };
    let of = |name: &str| AccountLimits { groups: vec![group(name)], ..AccountLimits::default() };
    let members = [bench.member("alice", &of("staff")), bench.member("bob", &of("staff"))];
    let ten = Duration::from_secs(10);
    let moved = bench.run(&mut bench.meters(&members), Duration::ZERO, ten);
    assert!(moved.iter().all(|moved| (98_000..=102_000).contains(moved)), "{moved:?}");
    let carol = bench.member("carol", &of("others"));
    assert!(bench.tree.meter(&carol, Direction::Download).is_none());

    let before = bench.tree.generation();
    bench.tree.configure(with(2_000), bench.start + ten);
    assert_ne!(bench.tree.generation(), before, "running transfers look again");
    let moved = bench.run(&mut bench.meters(&members), ten, ten * 2);
    assert!(moved.iter().all(|moved| (9_000..=11_100).contains(moved)), "{moved:?}");
    // A value set at run time overrides the configured one; values that are not set stay.
    let scope = Scope::Group("staff".into());
    bench.tree.set(&scope, &Limits { sessions: Some(Limit::of(2)), ..Limits::default() }, bench.start + ten);
    let mut third = bench.tree.connect(listener(), bench.start).unwrap();
    let refused = bench.tree.log_in(&mut third, b"dave", &of("staff"), bench.start).unwrap_err();
    assert_eq!(refused.reached().key.key(), "shared-sessions");
    let staff = bench.tree.report().into_iter().find(|one| one.scope == scope).unwrap();
    assert_eq!((staff.download, staff.most_sessions), (2_000, 2));
    bench.tree.configure(ServerLimits::default(), bench.start + ten);
    assert!(bench.tree.meter(&members[0], Direction::Download).is_none());
}

#[test]
fn a_limit_that_comes_later_reaches_a_transfer_that_looked_too_early() {
    let none = AccountLimits::default();
    let own = AccountLimits { user: rate(400_000), ..AccountLimits::default() };
    let with = |value| ServerLimits { session: rate(value), ..ServerLimits::default() };
    for (before, configured, account, expected) in [
        (with(100_000_000), with(400_000), &none, 400_000),
        (with(400_000), with(0), &none, 0),
        (ServerLimits::default(), with(400_000), &none, 400_000),
        // The settings that `millrace user set` writes, without a change of the configuration.
        (ServerLimits::default(), ServerLimits::default(), &own, 400_000),
    ] {
        let bench = Bench::new(before);
        let mut member = bench.member("alice", &none);
        let mut pace = Pace::new(Direction::Download);
        let mut look = |member: &LimitHandle, at: Duration| {
            let allowed = pace.allowance(&bench.tree, member, bench.start + at, u64::MAX);
            allowed.inspect(|bytes| pace.spend(*bytes))
        };
        look(&member, Duration::ZERO);
        bench.tree.configure(configured, bench.start);
        // A turn before the account is looked at.
        look(&member, Duration::from_secs(10));
        bench.tree.log_in(&mut member, b"alice", account, bench.start).unwrap();
        let slice = look(&member, Duration::from_secs(20)).unwrap();
        assert_eq!(slice, if expected == 0 { u64::MAX } else { expected / 10 });
    }
}

#[test]
fn limits_set_for_a_session_survive_a_check_of_its_account() {
    let bench = Bench::new(ServerLimits::default());
    let mut member = bench.member("alice", &AccountLimits::default());
    bench.tree.limit_member(&mut member, 7, &rate(5_000), bench.start);
    let limits = AccountLimits { session: rate(9_000), ..AccountLimits::default() };
    bench.tree.log_in(&mut member, b"alice", &limits, bench.start).unwrap();
    assert_eq!(member.report(7).unwrap().download, 5_000);
    bench.tree.restore_member(&member, bench.start);
    assert_eq!(member.report(7), None);
    assert!(bench.tree.meter(&member, Direction::Download).is_some(), "the account's own");
    bench.tree.limit_member(&mut member, 7, &rate(5_000), bench.start);
    member.log_out();
    assert_eq!(member.report(7), None, "another user may log in");
}

#[test]
fn a_look_at_an_account_leaves_it_its_place_unless_there_are_too_many() {
    let most = |value| AccountLimits {
        user: Limits { sessions: Some(Limit::of(value)), ..Limits::default() },
        ..AccountLimits::default()
    };
    let bench = Bench::new(ServerLimits::default());
    let mut members = [bench.member("alice", &most(3)), bench.member("alice", &most(3))];
    members.iter_mut().for_each(|member| {
        bench.tree.log_in(member, b"alice", &most(2), bench.start).unwrap();
    });
    let mut third = bench.tree.connect(listener(), bench.start).unwrap();
    assert!(bench.tree.log_in(&mut third, b"alice", &most(2), bench.start).is_err());
    assert!(bench.tree.log_in(&mut members[0], b"alice", &most(1), bench.start).is_err(), "one is to go");
    assert!(bench.tree.log_in(&mut members[1], b"alice", &most(1), bench.start).is_ok(), "the other stays");
    let report =
        || bench.tree.report().into_iter().find(|one| one.scope.to_string() == "user alice").unwrap();
    assert_eq!((report().sessions, report().most_sessions), (1, 1));
    // A user without sessions is reported with the current configuration.
    members[1].log_out();
    let user = Limits { sessions: Some(Limit::of(9)), ..Limits::default() };
    bench.tree.configure(ServerLimits { user, ..ServerLimits::default() }, bench.start);
    assert_eq!((report().sessions, report().most_sessions), (0, 9));
}

#[test]
fn concurrent_checks_remove_only_the_excess_sessions() {
    let most = |value| AccountLimits {
        user: Limits { sessions: Some(Limit::of(value)), ..Limits::default() },
        ..AccountLimits::default()
    };
    let (many, fewer) = (most(4), most(2));
    for _ in 0..300 {
        let bench = Bench::new(ServerLimits::default());
        let mut members: Vec<LimitHandle> = (0..4).map(|_| bench.member("alice", &many)).collect();
        let start = std::sync::Barrier::new(members.len());
        let look = |member: &mut LimitHandle| {
            start.wait();
            bench.tree.log_in(member, b"alice", &fewer, bench.start).is_ok()
        };
        let stayed = std::thread::scope(|scope| {
            let looks: Vec<_> = members.iter_mut().map(|member| scope.spawn(|| look(member))).collect();
            looks.into_iter().map(|look| look.join().unwrap()).filter(|stays| *stays).count()
        });
        assert_eq!(stayed, 2);
    }
}

#[test]
fn unused_reservations_are_given_back() {
    let bench = Bench::new(ServerLimits { server: rate(1_000_000), ..ServerLimits::default() });
    let member = bench.member("alice", &AccountLimits::default());
    for _ in 0..1000 {
        // A small file each: what the last slice had too much must not hold up the next transfer.
        let mut meter = bench.tree.meter(&member, Direction::Download).unwrap();
        assert!(matches!(meter.allowance(0, u64::MAX), Allowance::Now(10..)));
        meter.spend(10);
    }
}

/// The rate that the kernel is set to for each, in thousands of bytes a second.
fn flows(meters: &[Meter]) -> Vec<u64> {
    meters.iter().map(|meter| meter.flow().and_then(Flow::rate).unwrap_or_default() / 1000).collect()
}

#[test]
fn bytes_flow_as_fast_as_slices_come_with_other_transfers_on_the_bucket() {
    let limits = AccountLimits { user: rate(10_000_000), ..AccountLimits::default() };
    let bench = Bench::new(ServerLimits::default());
    let members: Vec<_> = (0..10).map(|_| bench.member("alice", &limits)).collect();
    let mut meters = bench.meters(&members);
    let seconds = Duration::from_secs;
    bench.run(&mut meters, seconds(0), seconds(5));
    let told = flows(&meters);
    assert!(told.iter().all(|told| (950..=1400).contains(told)), "a tenth each: {told:?}");
    // The others' clients read nothing more: their share goes to the first, and the kernel must not pace it below that.
    meters[1..].iter_mut().for_each(Meter::fall_out_of_line);
    let moved = bench.run(&mut meters[..1], seconds(5), seconds(10));
    assert_within(moved[0], 50_000_000, 4.0);
    let told = flows(&meters);
    assert!((10_000..=11_700).contains(&told[0]), "all that is left: {told:?}");
    assert!(told[1..].iter().all(|told| (10_000..=11_700).contains(told)), "no less than they may: {told:?}");
}

#[test]
fn a_flow_follows_the_limit_and_there_is_none_for_a_single_slice() {
    let bench = Bench::new(ServerLimits { user: rate(1_000_000), ..ServerLimits::default() });
    let member = bench.member("alice", &AccountLimits::default());
    let (mut pace, mut at) = (Pace::new(Direction::Download), bench.start);
    let mut slice = |pace: &mut Pace| {
        let bytes = loop {
            match pace.allowance(&bench.tree, &member, at, u64::MAX) {
                Some(bytes) => break bytes,
                None => at = pace.paused.unwrap(),
            }
        };
        pace.spend(bytes);
    };
    slice(&mut pace);
    assert_eq!(pace.flow(), None, "as it was told, which is nothing");
    let alice = Scope::User(Arc::from(&b"alice"[..]));
    for (limit, told) in [(1_000_000, 1_100..1_170), (500_000, 550..585), (2_000_000, 2_200..2_340)] {
        bench.tree.set(&alice, &rate(limit), bench.start);
        (0..3).for_each(|_| slice(&mut pace));
        let flow = pace.flow().and_then(Flow::rate).unwrap() / 1000;
        assert!(told.contains(&flow), "{limit}: {flow}");
    }
    bench.tree.set(&alice, &rate(0), bench.start);
    slice(&mut pace);
    assert_eq!(pace.flow(), Some(Flow::FREE), "the kernel is to know that there is no limit any more");
}

proptest! {
    /// Whatever they do, sessions move no more than the rate, and one slice each.
    #[test]
    fn no_transfer_gets_more_than_the_rate(
        value in 2_000u64..5_000_000,
        steps in prop::collection::vec((0usize..5, 0u64..200, 0u64..2_000_000, any::<bool>()), 1..300),
    ) {
        let limits = AccountLimits { user: rate(value), ..AccountLimits::default() };
        let bench = Bench::new(ServerLimits::default());
        let members: Vec<_> = (0..5).map(|_| bench.member("alice", &limits)).collect();
        let mut meters = bench.meters(&members);
        let (mut at, mut moved) = (0, 0);
        for (who, pause, wanted, blocked) in steps {
            at += pause * 1_000_000;
            if let Allowance::Now(bytes) = meters[who].allowance(at, wanted) {
                let some = bytes.min(wanted);
                meters[who].spend(some);
                moved += some;
            }
            if blocked {
                meters[who].fall_out_of_line();
            }
        }
        let most = value as u128 * (at as u128 + 25_000_000) / 1_000_000_000;
        // Each may have one slice, and each may be half a second late.
        let slack = u128::from(value) * 7 / 10 + 5 * 1024;
        prop_assert!(u128::from(moved) <= most + slack, "{moved} moved, {most} allowed");
    }
}

#[test]
fn the_refusal_of_a_user_is_that_of_the_sessions_that_the_tree_counts() {
    let now = Instant::now();
    let defaults = Limits { sessions: Some(Limit::of(3)), ..Limits::default() };
    let tree = Tree::new(ServerLimits { user: defaults, ..ServerLimits::default() }, now, 0);
    let own = |sessions: u64| AccountLimits {
        user: Limits { sessions: Some(Limit::of(sessions)), ..Limits::default() },
        ..AccountLimits::default()
    };
    let host = HostOfUser { name: "files.example.org".into(), has_own_users: true };
    let at_host = AccountLimits { host: Some(host), ..own(1) };
    tree.set(&Scope::User(b"set"[..].into()), &own(5).user, now);
    for (user, said, value, is_default, counted) in [
        (&b"zoe"[..], AccountLimits::default(), 3, true, &b"zoe"[..]),
        (b"zoe", own(2), 2, false, b"zoe"),
        (b"zoe", at_host.clone(), 1, false, b"files.example.org/zoe"),
        (b"set", own(2), 5, false, b"set"),
    ] {
        let expected = Refused { scope: Scope::User(counted.into()), value, is_default };
        assert_eq!(tree.user_refusal(user, &said), Some(expected.clone()));
        let mut members: Vec<_> =
            (0..=value).map(|_| tree.accompany(([127, 0, 0, 1], 21).into(), now)).collect();
        let mut last = Ok(());
        for member in &mut members {
            last = tree.log_in(member, user, &said, now);
        }
        assert_eq!(last, Err(expected));
    }
    let unlimited = AccountLimits {
        user: Limits { sessions: Some(Limit::none()), ..Limits::default() },
        ..AccountLimits::default()
    };
    assert_eq!(tree.user_refusal(b"zoe", &unlimited), None);
}

#[test]
fn scopes_are_read_as_they_are_written() {
    for text in ["server", "listener 0.0.0.0:21", "group staff", "user alice and bob", "session 17"] {
        assert_eq!(text.parse::<Scope>().unwrap().to_string(), text);
    }
    for text in ["", "servers", "server x", "user", "user ", "session x", "listener x", "group a\0b"] {
        assert!(text.parse::<Scope>().is_err(), "{text:?}");
    }
}

#[test]
fn limits_of_a_cluster_replace_what_was_set_and_wait_for_listeners() {
    let bench = Bench::new(ServerLimits::default());
    let (user, group) = (Scope::User(b"ann"[..].into()), Scope::Group("staff".into()));
    bench.tree.set(&group, &rate(7), bench.start);
    bench.tree.set(&user, &rate(7), bench.start);
    let sessions = Limits { sessions: Some(Limit::of(1)), ..Limits::default() };
    let all = [(user.clone(), sessions), (Scope::Listener(listener()), rate(5))];
    let found = || {
        let reports = bench.tree.report().into_iter();
        let is_set = reports.filter(|report| report.is_set);
        let mut found: Vec<_> =
            is_set.map(|set| (set.scope.to_string(), set.download, set.most_sessions)).collect();
        found.sort();
        found
    };
    let of_ann = ("user ann".to_owned(), 0, 1);
    bench.tree.set_all(&all, bench.start);
    assert_eq!(found(), std::slice::from_ref(&of_ann), "there is no such listener yet");
    let _client = bench.tree.connect(listener(), bench.start).unwrap();
    assert_eq!(found(), [(format!("listener {LISTENER}"), 5, 0), of_ann.clone()]);
    bench.tree.configure(ServerLimits::default(), bench.start);
    assert_eq!(found().len(), 2, "another configuration is no order");
    bench.tree.set_all(&all[..1], bench.start);
    assert_eq!(found(), [of_ann]);
    bench.tree.set_all(&[], bench.start);
    assert_eq!(found(), []);
}
