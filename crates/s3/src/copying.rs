//! Copies of objects by the store's own means: one request where they are small enough, by parts otherwise.

use std::sync::Arc;

use millrace_vfs::FileError;

use crate::attributes::Attributes;
use crate::bucket::Bucket;
use crate::client::{Condition, Object, Source};
use crate::parts::Parts;

/// The largest object that one request copies.
pub(crate) const LARGEST_COPY: u64 = 5 << 30;

/// Copies an object, which gets these attributes. They were made from those of the object with this tag, among them the
/// hashes of its content: another object that has the key by now is not copied ([`FileError::Busy`]).
pub(crate) async fn copy_object(
    bucket: &Arc<Bucket>,
    from: (&str, &Object),
    to: &str,
    attributes: &Attributes,
    progress: &mut (dyn FnMut(u64) -> bool + '_),
) -> Result<(), FileError> {
    let etag = Some(from.1.etag.clone()).filter(|etag| !etag.is_empty());
    if from.1.size <= LARGEST_COPY {
        let copied = bucket.client.copy((from.0, etag.as_deref()), to, Some(attributes)).await;
        return copied
            .map_err(|error| if error.is_failed_condition() { FileError::Busy } else { error.into() });
    }
    let mut parts = Parts::begin(bucket, to, attributes).await?;
    let source = Source { key: from.0.to_owned(), etag, size: from.1.size };
    parts.copy(&source, 0..source.size, progress).await?;
    parts.complete(&Condition::None, attributes.upload.as_deref().unwrap_or_default()).await.map(drop)
}
