//! An answer whose body is on its way.

use crate::body::Body;
use crate::record::Record;

/// An answer whose body is on its way.
#[derive(Debug)]
pub(crate) struct Sending {
    pub(crate) body: Body,
    /// Its bytes are those that stood between the parts of the body.
    pub(crate) record: Record,
    /// Whether the connection goes on behind it.
    pub(crate) goes_on: bool,
}
