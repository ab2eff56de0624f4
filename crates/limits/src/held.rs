//! How much a folder may hold, which may follow the clock.

use millrace_storage::{Allowance, Allowances};

use super::{Quantity, Scheduled};
use crate::clock::wall_seconds;

/// How much a folder may hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HeldQuota {
    /// Bytes of all files together.
    pub bytes: Scheduled<Quantity>,
    /// Files, without folders.
    pub files: Scheduled<Quantity>,
}

impl HeldQuota {
    /// Returns true if there never is a limit.
    pub fn is_none(&self) -> bool {
        self.bytes.is_none() && self.files.is_none()
    }

    /// The allowance at a time, in seconds since 1970.
    pub fn at(&self, wall: i64) -> Allowance {
        let most = |count: &Scheduled<Quantity>| count.at(wall).map(|Quantity(most)| most);
        Allowance { bytes: most(&self.bytes), files: most(&self.files) }
    }
}

/// Data that is held already stays when the schedule lowers the quota: only additions are refused.
impl Allowances for HeldQuota {
    fn now(&self) -> Allowance {
        self.at(wall_seconds())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_quota_follows_its_own_schedule() {
        let quota = HeldQuota {
            bytes: "10k; 08:00-18:00 UTC 1k; sat UTC none".parse().unwrap(),
            files: "none; 12:00-13:00 UTC 0".parse().unwrap(),
        };
        let at = |moment: &str| quota.at(moment.parse::<jiff::Timestamp>().unwrap().as_second());
        // 2026-11-20 is a Friday.
        for (moment, bytes, files) in [
            ("2026-11-20T07:59:59Z", Some(10_000), None),
            ("2026-11-20T08:00:00Z", Some(1000), None),
            ("2026-11-20T12:00:00Z", Some(1000), Some(0)),
            ("2026-11-20T18:00:00Z", Some(10_000), None),
            ("2026-11-21T20:00:00Z", None, None),
        ] {
            assert_eq!(at(moment), Allowance { bytes, files }, "{moment}");
        }
        assert!(!quota.is_none());
        let none = "none; sat none".parse().unwrap();
        assert!(HeldQuota { bytes: none, ..HeldQuota::default() }.is_none());
    }
}
