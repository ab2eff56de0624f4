//! A bucket as the URLs of a store have it.

use crate::sign::encoded;

/// A bucket as URLs have it.
#[derive(Debug)]
pub(crate) struct Site {
    pub(crate) scheme: &'static str,
    pub(crate) host: String,
    pub(crate) port: u16,
    /// The name in the `Host` header, with the port where it is not the usual one.
    pub(crate) shown: String,
    /// What stands before keys in paths: `/bucket/`, or `/` where the host names the bucket.
    pub(crate) root: String,
}

impl Site {
    /// The path of a key, encoded.
    pub(crate) fn path(&self, key: &str) -> String {
        format!("{}{}", self.root, encoded(key, true))
    }
}
