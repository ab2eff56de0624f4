//! WebDAV on the blocking pool: answers `PROPFIND`, `PROPPATCH`, `LOCK` and `UNLOCK`. `crate::dav_state` has what is remembered.

pub(crate) mod members;
pub(crate) mod requests;
