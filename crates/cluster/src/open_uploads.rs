//! What a node has of resumable uploads.

use std::collections::HashSet;
use std::sync::{Mutex, OnceLock};

use crate::upload_table::{UploadKey, UploadSecret};

/// What a node has of uploads.
#[derive(Debug, Default)]
pub(crate) struct Uploads {
    /// Those that it has locked, or is about to.
    pub(crate) open: Mutex<HashSet<UploadKey>>,
    pub(crate) secret: OnceLock<UploadSecret>,
}
