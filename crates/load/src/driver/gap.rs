//! The longest byte gap of a transfer: for how long its stream moved nothing, between its first byte and its last.
//!
//! A mean rate hides a stall, and a latency does not show where the wait was.

use std::time::{Duration, Instant};

/// The longest gap within one transfer.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Gap {
    moved_at: Option<Instant>,
    longest: Option<Duration>,
}

impl Gap {
    /// Notes that bytes have moved.
    pub(super) fn note(&mut self, now: Instant) {
        if let Some(before) = self.moved_at.replace(now) {
            self.longest = self.longest.max(Some(now.saturating_duration_since(before)));
        }
    }

    /// It was abandoned while it waited for more.
    pub(super) fn given_up(self, now: Instant) -> Self {
        let mut gap = self;
        if self.moved_at.is_some() {
            gap.note(now);
        }
        gap
    }

    /// `None` where everything moved at once.
    pub(super) fn longest(self) -> Option<Duration> {
        self.longest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gap_lies_between_two_movements() {
        let begun = Instant::now();
        let at = |ms| begun + Duration::from_millis(ms);
        let mut gap = Gap::default();
        assert_eq!(gap.given_up(at(500)).longest(), None, "nothing has come yet");
        gap.note(at(500));
        assert_eq!(gap.longest(), None);
        [501, 901, 902].into_iter().for_each(|ms| gap.note(at(ms)));
        assert_eq!(gap.longest(), Some(Duration::from_millis(400)));
        assert_eq!(gap.given_up(at(2902)).longest(), Some(Duration::from_secs(2)));
    }
}
