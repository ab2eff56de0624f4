//! What answers requests from files, by method.

pub(crate) mod dav;
pub(crate) mod get;
pub(crate) mod index;
pub(crate) mod to_download_origin;
pub(crate) mod to_https;
pub(crate) mod tus;
pub(crate) mod writing;
