//! WebDAV (RFC 4918): what its requests say, and how its answers are written. Nothing here touches a file.
//!
//! - [`body`] reads the XML of `PROPFIND`, `PROPPATCH` and `LOCK`.
//! - [`condition`] reads the `If` field, `Depth` and `Timeout`, and decides whether what they require is so.
//! - [`locks`] and [`properties`] hold what clients have told, by [`place`], and decide what it forbids. The driver keeps
//!   one of each and gives the time.
//! - [`multistatus`] writes answers.

pub mod body;
pub mod condition;
pub mod locks;
pub mod multistatus;
pub mod place;
pub mod properties;

use crate::request::{Field, Head, Method};

/// The namespace of WebDAV's own names.
pub const DAV: &str = "DAV:";

/// What a request changes at a path, which decides on the locks that it has to pass (RFC 4918 section 7).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Touch {
    /// The content or the properties change.
    Content,
    /// The entry is created or removed, with all beneath it.
    Name,
}

/// Returns whether a request may change locks or properties, of which there are some or none yet.
pub fn may_change_state(head: &Head, is_empty: bool) -> bool {
    match head.method {
        Method::Lock | Method::Unlock | Method::PropPatch => true,
        Method::Delete | Method::Move | Method::Copy => !is_empty,
        Method::Put => head.get(Field::If).is_some(),
        _ => false,
    }
}

/// The name of a property: a namespace, which may be empty, and what it is called there.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Name {
    /// The namespace.
    pub space: String,
    /// The local name.
    pub local: String,
}

impl Name {
    /// A name of WebDAV's own.
    pub fn dav(local: &str) -> Self {
        Self { space: DAV.to_owned(), local: local.to_owned() }
    }

    /// Its local name, if it is one of WebDAV's own.
    pub fn as_dav(&self) -> Option<&str> {
        (self.space == DAV).then_some(self.local.as_str())
    }
}
