//! The wall clock, which schedules and quotas follow.

use std::time::SystemTime;

/// Returns the seconds since 1970.
pub fn wall_seconds() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}
