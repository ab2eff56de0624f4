//! An answer whose body is on its way.

use millrace_runtime::clock::Clock;

use crate::body::Body;
use crate::record::Record;

/// An answer whose body is on its way.
#[derive(Debug)]
pub(crate) struct Sending {
    pub(crate) body: Body,
    /// Its bytes are those that stood between the parts of the body.
    pub(crate) record: Record,
    /// Whether others have their turn before it.
    pub(crate) in_line: bool,
    /// Whether the connection goes on behind it.
    pub(crate) goes_on: bool,
}

impl Sending {
    /// Notes when the first byte was sent, once one was.
    pub(crate) fn note_first_byte(&mut self, clock: &Clock) {
        if self.record.first_byte.is_none() && self.body.bytes() > 0 {
            self.record.first_byte = Some(clock.instant().saturating_duration_since(self.record.began));
        }
    }
}
