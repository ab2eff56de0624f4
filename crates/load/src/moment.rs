//! How moments pass from one process to another: all of a machine share the kernel's monotonic clock, which Rust's own
//! hides. A moment of another machine is wrong by the difference of the two clocks, and can be moved by it.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Returns the same moment by both clocks, since the machine started and as Rust has it.
pub fn now() -> (Duration, Instant) {
    let time = clock_gettime(ClockId::Monotonic);
    (Duration::new(time.tv_sec as u64, time.tv_nsec as u32), Instant::now())
}

/// Writes a moment as the time since the machine started.
pub(crate) fn serialize<S: Serializer>(moment: &Option<Instant>, to: S) -> Result<S::Ok, S::Error> {
    let (uptime, now) = now();
    let since = |moment: Instant| match moment.checked_duration_since(now) {
        Some(ahead) => uptime + ahead,
        None => uptime.saturating_sub(now - moment),
    };
    moment.map(since).serialize(to)
}

/// Reads it.
pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Instant>, D::Error> {
    let (uptime, now) = now();
    let since = Option::<Duration>::deserialize(from)?;
    Ok(since.and_then(|since| match since.checked_sub(uptime) {
        Some(ahead) => now.checked_add(ahead),
        None => now.checked_sub(uptime - since),
    }))
}

/// Moves a moment by this many nanoseconds.
pub(crate) fn moved(moment: Instant, by_ns: i64) -> Option<Instant> {
    let by = Duration::from_nanos(by_ns.unsigned_abs());
    if by_ns < 0 { moment.checked_sub(by) } else { moment.checked_add(by) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Serialize, Deserialize)]
    struct Moments(#[serde(with = "super")] Option<Instant>, #[serde(with = "super")] Option<Instant>);

    #[test]
    fn a_moment_arrives_as_it_left() {
        let moment = Instant::now();
        let text = serde_json::to_string(&Moments(Some(moment), None)).unwrap();
        let Moments(arrived, none) = serde_json::from_str(&text).unwrap();
        let arrived = arrived.unwrap();
        // Between the two looks at the clock this thread may have to wait for a processor.
        let off = arrived.max(moment) - arrived.min(moment);
        assert!(off < Duration::from_secs(10) && none.is_none(), "{off:?}");
    }

    #[test]
    fn a_moment_of_another_clock_is_moved_by_their_difference() {
        let (uptime, now) = super::now();
        // A machine that has run for longer, and one for half as long.
        for ahead in [5_000_000, -(uptime.as_secs() as i64 / 2)] {
            let theirs = moved(now, ahead * 1_000_000_000).unwrap();
            let text = serde_json::to_string(&Moments(Some(theirs), None)).unwrap();
            let Moments(arrived, _) = serde_json::from_str(&text).unwrap();
            let back = moved(arrived.unwrap(), -ahead * 1_000_000_000).unwrap();
            let off = back.max(now) - back.min(now);
            assert!(off < Duration::from_secs(1), "{off:?}");
        }
    }
}
