//! What a node has of resumable uploads.

use std::collections::HashMap;
use std::sync::{Mutex, OnceLock};

use crate::upload_table::{UploadKey, UploadSecret, UploadVerdict};

/// What a node has of uploads.
#[derive(Debug, Default)]
pub(crate) struct Uploads {
    /// Those that it has locked, or is about to, with the numbers of their locks.
    pub(crate) open: Mutex<HashMap<UploadKey, u64>>,
    /// What could not be told yet.
    pub(crate) untold: Mutex<Vec<(UploadKey, UploadVerdict)>>,
    pub(crate) secret: OnceLock<UploadSecret>,
}
