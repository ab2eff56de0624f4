//! How moments pass from one process to another: all share the kernel's monotonic clock, which Rust's own hides.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The same moment by both clocks, since the machine started and as Rust has it.
pub(crate) fn now() -> (Duration, Instant) {
    let time = clock_gettime(ClockId::Monotonic);
    (Duration::new(time.tv_sec as u64, time.tv_nsec as u32), Instant::now())
}

/// Writes a moment as the time since the machine started.
pub(crate) fn serialize<S: Serializer>(moment: &Option<Instant>, to: S) -> Result<S::Ok, S::Error> {
    let (uptime, now) = now();
    moment.map(|moment| uptime.saturating_sub(now.saturating_duration_since(moment))).serialize(to)
}

/// Reads it.
pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Instant>, D::Error> {
    let (uptime, now) = now();
    let since = Option::<Duration>::deserialize(from)?;
    Ok(since.and_then(|since| now.checked_sub(uptime.saturating_sub(since))))
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
}
