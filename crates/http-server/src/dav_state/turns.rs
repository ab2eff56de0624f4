//! Serialises changes of a place: no other change comes between a check and the change that depends on it. Without it
//! two editors with the same tag would both succeed.
//!
//! A turn lasts as long as the change, never as long as a client; so those who wait wait for the same disk. Each of them
//! waits with a thread, as long as a folder of any size may take to go: so few may.

use millrace_http::dav::place::Place;
use millrace_http::{Refusal, Status};

use millrace_blocking as turns;

/// As many changes wait for others at most: a small part of the threads that there are.
const MOST: usize = 16;

/// The places that are being changed.
pub(crate) type Turns = turns::Turns<Place>;

/// The turn to change some places, until it is dropped.
pub(crate) type Turn<'a> = turns::Turn<'a, Place>;

/// Waits until none of these places is being changed.
pub(crate) fn take(turns: &Turns, places: Vec<Place>) -> Result<Turn<'_>, Refusal> {
    const CROWDED: Refusal = Refusal {
        status: Status::SERVICE_UNAVAILABLE,
        reason: "Others are changing this, and too many wait for them; try again later.",
    };
    turns.take_among(places, MOST).ok_or(CROWDED)
}
