//! Looking at accounts again while their users are here.

use millrace_accounts::Decision;

/// What accounts say of a user who is logged in.
#[derive(Debug)]
pub struct Reviewed {
    pub(super) user: Vec<u8>,
    pub(super) decision: Decision,
    pub(super) number: u32,
}

/// Numbers the looks at an account. They are had on several threads, and one may take longer than the next: what it
/// comes to is then no longer so.
#[derive(Debug, Default)]
pub(super) struct Reviews {
    begun: u32,
    /// The last one that counted.
    heard: u32,
}

impl Reviews {
    pub(super) fn begin(&mut self) -> u32 {
        self.begun += 1;
        self.begun
    }

    /// Returns true if no later one was heard of.
    pub(super) fn is_news(&mut self, number: u32) -> bool {
        let is_news = number > self.heard;
        self.heard = self.heard.max(number);
        is_news
    }

    /// The present result is newer than all pending ones.
    pub(super) fn overtake(&mut self) {
        self.heard = self.begun;
    }
}
