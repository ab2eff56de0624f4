//! How fast a transfer's bytes leave: what the kernel is told, so that it spreads each slice over its time.
//!
//! The buckets give slices. By itself, each slice leaves in a burst, which the bottleneck link has to queue until the
//! next. `SO_MAX_PACING_RATE` (socket(7)) has the kernel send evenly: by `sendfile`, from buffers and as records of TLS
//! alike. It does not limit: the rate is set a little above the actual rate of the slices, and where the transfer waits
//! for the socket, above the buckets' rate. It is not set for a transfer of a single slice.

use super::bucket::{Nanos, SECOND};

/// Bytes a second for which it is worth it. Below, a slice is no more than the kernel sends in one go anyway (64 KiB), and
/// hundreds of slow sessions in pieces of two segments each would cost more than they gain; above, slices are shorter
/// than what spreads them. `bench-runs/2026-11-22-2core-kvm-pacing`
const WORTH: std::ops::RangeInclusive<u64> = 330_000..=150_000_000;

/// How fast the kernel is to send, to about 3 %: what wavers by less is not told again. Six binary digits, and by how
/// many places they are shifted; 0 for as fast as it likes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Flow(u16);

impl Flow {
    /// As fast as it likes.
    pub const FREE: Self = Self(0);

    /// The rate of this many bytes in this time, and 12 to 16 % more: what came late is caught up with, and some ways to
    /// control congestion (BBR) keep to a few percent less than they are told.
    pub(super) fn of(bytes: u64, time: Nanos) -> Self {
        let rate = u128::from(bytes) * u128::from(SECOND) / u128::from(time.max(1));
        match u64::try_from(rate) {
            Ok(rate) if WORTH.contains(&rate) => Self::from_rate(rate + rate / 8),
            _ => Self::FREE,
        }
    }

    fn from_rate(rate: u64) -> Self {
        let shift = (u64::BITS - rate.leading_zeros()).saturating_sub(6);
        // Below 64 and then 1 more, to be no less: 7 bits.
        Self((shift << 7) as u16 | ((rate >> shift) + 1) as u16)
    }

    /// Bytes a second; `None` for as fast as it likes.
    pub fn rate(self) -> Option<u64> {
        (self != Self::FREE).then(|| u64::from(self.0 & 0x7f) << (self.0 >> 7))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flow_is_a_little_more_than_what_it_is_told_for() {
        for rate in [330_000, 524_287, 524_288, 1_000_000, 20_000_000, 150_000_000] {
            let told = Flow::of(rate / 5, SECOND / 5).rate().unwrap();
            let more = told as f64 / rate as f64;
            assert!((1.12..=1.17).contains(&more), "{rate}: {told}");
        }
    }

    #[test]
    fn small_changes_of_the_pace_need_no_call() {
        for (bytes, time) in [(0, SECOND), (329_999, SECOND), (150_000_001, SECOND), (u64::MAX, 0)] {
            assert_eq!(Flow::of(bytes, time).rate(), None, "{bytes} in {time}");
        }
    }
}
