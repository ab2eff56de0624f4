//! How busy the machine's processors are, for the limit on new logins (Waarp's idea).

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};

/// The share of the last second or so.
#[derive(Debug, Default)]
pub struct Load {
    percent: AtomicU8,
    busy: AtomicU64,
    total: AtomicU64,
}

impl Load {
    /// In percent of all processors.
    pub fn percent(&self) -> u8 {
        self.percent.load(Relaxed)
    }

    /// Reads `/proc/stat`; where it is missing, the load stays 0.
    pub fn look(&self) {
        if let Some((busy, total)) = std::fs::read_to_string("/proc/stat").ok().as_deref().and_then(parse) {
            let (busy_before, total_before) =
                (self.busy.swap(busy, Relaxed), self.total.swap(total, Relaxed));
            let passed = total.saturating_sub(total_before);
            if total_before > 0 && passed > 0 {
                let share = busy.saturating_sub(busy_before).min(passed) * 100 / passed;
                self.percent.store(share as u8, Relaxed);
            }
        }
    }
}

/// Ticks of work and ticks in all: `cpu  user nice system idle iowait irq softirq steal ...`.
fn parse(text: &str) -> Option<(u64, u64)> {
    let ticks: Vec<u64> =
        text.lines().next()?.split_whitespace().skip(1).map_while(|word| word.parse().ok()).collect();
    // Guest time is part of user time already.
    let total: u64 = ticks.iter().take(8).sum();
    let idle = ticks.get(3)? + ticks.get(4)?;
    Some((total - idle.min(total), total))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_and_waiting_are_no_work() {
        assert_eq!(parse("cpu  100 0 50 800 50 0 0 0 30 0\ncpu0 1 2 3"), Some((150, 1000)));
        assert_eq!(parse(""), None);
        assert_eq!(parse("cpu 1 2"), None);
    }
}
