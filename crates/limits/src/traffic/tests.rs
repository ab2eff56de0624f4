//! The counts of users, with simulated days.

use super::*;

fn moved(quota: TransferQuota) -> Moved {
    Moved { quota: Arc::new(quota), traffic: Arc::default() }
}

fn per(text: &str) -> Scheduled<Per> {
    text.parse().unwrap()
}

/// Moves until no more may; how much that was, and what forbade it.
fn exhaust(moved: &Moved, direction: Direction, wall: i64) -> (u64, Counted) {
    let mut sum = 0;
    loop {
        match moved.reserve(direction, wall, u64::MAX) {
            Ok(piece) => sum += piece,
            Err(over) => return (sum, over.counted),
        }
    }
}

#[test]
fn each_period_begins_anew_when_it_should_and_not_when_a_clock_is_put_back() {
    // 2026-11-28 is a Saturday, the last of the month but two.
    let saturday = "2026-11-28T23:59:59Z".parse::<Timestamp>().unwrap().as_second();
    let table = [
        // Per what, days later, whether it begins anew.
        ("1M/day", 0, false),
        ("1M/day", 1, true),
        ("1M/day", -1, false),
        ("1M/week", 1, false),
        ("1M/week", 2, true),
        ("1M/week", -7, false),
        ("1M/month", 2, false),
        ("1M/month", 3, true),
        ("1M/month", -30, false),
    ];
    for (quota, days, begins_anew) in table {
        let moved = moved(TransferQuota { download: per(quota), ..TransferQuota::default() });
        let first = exhaust(&moved, Direction::Download, saturday);
        assert_eq!(first, (1_000_000, Counted::Downloaded));
        let (again, _) = exhaust(&moved, Direction::Download, saturday + days * DAY);
        assert_eq!(again > 0, begins_anew, "{quota} {days}");
        // And back to where the clock was.
        assert_eq!(exhaust(&moved, Direction::Download, saturday).0, 0, "{quota} {days}");
    }
}

#[test]
fn each_way_has_its_quota_and_both_together_one() {
    let quota = TransferQuota {
        upload: per("100k/day"),
        download: per("300k/week"),
        total: per("350k/month"),
        ..TransferQuota::default()
    };
    let moved = moved(quota);
    assert_eq!(exhaust(&moved, Direction::Upload, 0), (100_000, Counted::Uploaded));
    assert_eq!(exhaust(&moved, Direction::Download, 0), (250_000, Counted::Moved));
    moved.give_back(Direction::Download, 10);
    assert_eq!(exhaust(&moved, Direction::Download, 0), (10, Counted::Moved));
}

#[test]
fn a_ratio_is_about_all_that_was_ever_moved() {
    let moved = moved(TransferQuota { ratio: "1:3".parse().unwrap(), ..TransferQuota::default() });
    assert_eq!(moved.check(Direction::Download, 0).unwrap_err().counted, Counted::Ratio);
    moved.count(Direction::Upload, 1000);
    assert!(moved.check(Direction::Download, 0).is_err(), "it is no file yet");
    moved.traffic.credit(1000);
    assert_eq!(exhaust(&moved, Direction::Download, 100 * DAY), (3000, Counted::Ratio));
    assert!(moved.check(Direction::Upload, 0).is_ok());
}

#[test]
fn quotas_and_ratios_follow_the_clock_and_all_that_was_moved_counts() {
    let quota = TransferQuota {
        download: per("1M/day; 20:00-22:00 UTC none; 08:00-18:00 UTC 300k/day"),
        ratio: "none; 22:00-24:00 UTC 1:2".parse().unwrap(),
        ..TransferQuota::default()
    };
    let moved = moved(quota);
    let at = |hour: i64| hour * 3600;
    let exhaust = |hour| exhaust(&moved, Direction::Download, at(hour));
    assert_eq!(exhaust(8), (300_000, Counted::Downloaded));
    assert!(moved.check(Direction::Download, at(18) - 1).is_err());
    assert_eq!(exhaust(18), (700_000, Counted::Downloaded));
    // Whatever there is; and it was moved on this day.
    assert_eq!(moved.reserve(Direction::Download, at(20), 500_000).unwrap(), 500_000);
    assert_eq!(exhaust(19), (0, Counted::Downloaded));
    moved.count(Direction::Upload, 1_000_000);
    moved.traffic.credit(1_000_000);
    moved.count(Direction::Download, 200_000);
    assert_eq!(moved.check(Direction::Download, at(22)).unwrap_err().counted, Counted::Downloaded);
    // On the next day there is one for the ratio, of which 1.7 of two million are used.
    assert_eq!(exhaust(24 + 22), (300_000, Counted::Ratio));
    assert_eq!(exhaust(24 + 19), (700_000, Counted::Downloaded));
    assert!(
        !moved.quota.is_none()
            && TransferQuota { download: per("none; sat none"), ..TransferQuota::default() }.is_none()
    );
}

#[test]
fn counts_outlive_the_registry() {
    let folder = std::env::temp_dir().join(format!("millrace-traffic-{}", std::process::id()));
    let quotas = || Quotas::new(Ledger::new(Some(folder.join("quotas.db"))));
    let quota = TransferQuota { upload: per("1k/day"), ..TransferQuota::default() };
    let first = quotas();
    let moved = Moved { quota: Arc::new(quota.clone()), traffic: first.traffic("alice") };
    assert_eq!(moved.reserve(Direction::Upload, 0, 700).unwrap(), 700);
    first.keep(false).unwrap();
    let second = quotas();
    let moved = Moved { quota: Arc::new(quota.clone()), traffic: second.traffic("alice") };
    assert_eq!(exhaust(&moved, Direction::Upload, 0).0, 300);
    assert_eq!(
        exhaust(&Moved { quota: Arc::new(quota), traffic: second.traffic("bob") }, Direction::Upload, 0).0,
        1000
    );
    drop((first, second));
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn quotas_are_read_as_they_are_written() {
    for text in ["1000/day", "5000000/week", "7/month"] {
        assert_eq!(text.parse::<Per>().unwrap().to_string(), text);
    }
    assert_eq!("10G/day".parse::<Per>().unwrap().bytes, 10_000_000_000);
    for text in ["", "10G", "10G/hour", "none/day", "1M; sat 2M/day", "-1/day", "/day"] {
        assert!(text.parse::<Per>().is_err(), "{text}");
    }
    assert_eq!("1:3".parse::<Ratio>().unwrap().to_string(), "1:3");
    for text in ["", "1", "1:", ":1", "0:1", "1:0", "1:x"] {
        assert!(text.parse::<Ratio>().is_err(), "{text}");
    }
}
