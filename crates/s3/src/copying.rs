//! Copies of objects by the store's own means: one request where they are small enough, by parts otherwise.

use std::sync::Arc;

use millrace_vfs::FileError;

use crate::attributes::Attributes;
use crate::bucket::Bucket;
use crate::client::{Condition, Object, Source};
use crate::parts::Parts;

/// The largest object that one request copies.
pub(crate) const LARGEST_COPY: u64 = 5 << 30;

/// Copies an object, which gets these attributes.
pub(crate) async fn copy_object(
    bucket: &Arc<Bucket>,
    from: (&str, &Object),
    to: &str,
    attributes: &Attributes,
    progress: &mut (dyn FnMut(u64) -> bool + '_),
) -> Result<(), FileError> {
    if from.1.size <= LARGEST_COPY {
        return Ok(bucket.client.copy(from.0, to, Some(attributes)).await?);
    }
    let mut parts = Parts::begin(bucket, to, attributes).await?;
    let etag = Some(from.1.etag.clone()).filter(|etag| !etag.is_empty());
    let source = Source { key: from.0.to_owned(), etag, size: from.1.size };
    parts.copy(&source, 0..source.size, progress).await?;
    parts.complete(&Condition::None, attributes.upload.as_deref().unwrap_or_default()).await
}
