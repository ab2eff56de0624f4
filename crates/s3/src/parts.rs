//! A multipart upload: parts of what comes, some of them on their way at once, and of what the store has already.

use std::collections::VecDeque;
use std::sync::Arc;

use hyper::body::Bytes;
use millrace_vfs::FileError;
use tokio::task::JoinHandle;

use crate::attributes::Attributes;
use crate::bucket::Bucket;
use crate::buffers::{PART, PartMemory, Share};
use crate::client::{Condition, Part, Source};
use crate::error::StoreError;

/// Parts that an upload may have.
const MOST_PARTS: u32 = 10_000;
/// After so many parts they become twice as large, where the store takes unequal ones.
const DOUBLED_AFTER: u32 = 2_000;
/// Parts of one upload that are on their way at once.
const AT_ONCE: usize = 4;
/// Bytes that are copied by one request.
const COPIED: u64 = 512 << 20;

/// A multipart upload in progress. Dropped, it is given up.
#[derive(Debug)]
pub(crate) struct Parts {
    bucket: Arc<Bucket>,
    key: String,
    id: String,
    number: u32,
    done: Vec<Part>,
    sending: VecDeque<JoinHandle<Result<Part, StoreError>>>,
    has_ended: bool,
}

impl Parts {
    pub(crate) async fn begin(
        bucket: &Arc<Bucket>,
        key: &str,
        attributes: &Attributes,
    ) -> Result<Self, StoreError> {
        let id = bucket.client.create_upload(key, attributes).await?;
        let (bucket, key) = (Arc::clone(bucket), key.to_owned());
        let (done, sending) = (Vec::new(), VecDeque::new());
        Ok(Self { bucket, key, id, number: 0, done, sending, has_ended: false })
    }

    /// Bytes of the next part.
    pub(crate) fn part_size(&self) -> usize {
        match self.bucket.honours.takes_unequal_parts() {
            true => PART << (self.number / DOUBLED_AFTER),
            false => PART,
        }
    }

    fn next_number(&mut self) -> Result<u32, FileError> {
        self.number += 1;
        if self.number > MOST_PARTS { Err(FileError::TooLarge) } else { Ok(self.number) }
    }

    /// Sends a part. It waits for earlier ones where there are many.
    pub(crate) async fn send(&mut self, body: Bytes) -> Result<(), FileError> {
        let number = self.next_number()?;
        while self.sending.len() >= AT_ONCE {
            self.settle_one().await?;
        }
        let (bucket, key, id) = (Arc::clone(&self.bucket), self.key.clone(), self.id.clone());
        let sending = async move { bucket.client.put_part(&key, &id, number, body).await };
        self.sending.push_back(self.bucket.runtime().spawn(sending));
        Ok(())
    }

    /// Waits for memory for the next part; for that of parts on their way first.
    pub(crate) async fn memory(&mut self) -> Result<Share, FileError> {
        let (memory, size) = (PartMemory::of_process(), self.part_size() as u64);
        loop {
            if let Some(share) = memory.try_take(size) {
                return Ok(share);
            }
            if self.sending.is_empty() {
                return memory.take(size).await;
            }
            self.settle_one().await?;
        }
    }

    async fn settle_one(&mut self) -> Result<(), FileError> {
        if let Some(sending) = self.sending.pop_front() {
            let sent = sending.await.map_err(|_| StoreError::Malformed("a part was not sent"))?;
            self.done.push(sent?);
        }
        Ok(())
    }

    /// Copies a range of an object as parts, none of which is too small unless the range is.
    pub(crate) async fn copy(
        &mut self,
        from: &Source,
        range: std::ops::Range<u64>,
        mut progress: impl FnMut(u64) -> bool,
    ) -> Result<(), FileError> {
        let length = range.end - range.start;
        let count = length.div_ceil(COPIED).max(1);
        for at in 0..count {
            let (start, end) = (range.start + length * at / count, range.start + length * (at + 1) / count);
            let number = self.next_number()?;
            let source = (&*from.key, from.etag.as_deref());
            let part = self.bucket.client.copy_part(&self.key, &self.id, number, source, start..end).await?;
            self.done.push(part);
            if !progress(end - range.start) {
                return Err(FileError::Cancelled);
            }
        }
        Ok(())
    }

    /// Makes the object of its parts; returns its tag, where the store tells it.
    pub(crate) async fn complete(
        mut self,
        condition: &Condition,
        token: &str,
    ) -> Result<Option<String>, FileError> {
        while !self.sending.is_empty() {
            self.settle_one().await?;
        }
        self.done.sort();
        let client = &self.bucket.client;
        let completed = client.complete_upload(&self.key, &self.id, &self.done, condition).await;
        let ours = match &completed {
            // The answer to an earlier try may have been lost.
            Err(error) if error.is_missing() || error.is_failed_condition() => client
                .find(&self.key)
                .await?
                .filter(|object| object.attributes.upload.as_deref() == Some(token)),
            _ => None,
        };
        self.has_ended = completed.is_ok() || ours.is_some();
        match ours {
            Some(object) => Ok(Some(object.etag)),
            None => Ok(completed?),
        }
    }
}

impl Drop for Parts {
    fn drop(&mut self) {
        if self.has_ended {
            return;
        }
        let sending = std::mem::take(&mut self.sending);
        let (bucket, key, id) = (Arc::clone(&self.bucket), self.key.clone(), self.id.clone());
        let giving_up = async move {
            for part in sending {
                part.abort();
                let _ = part.await;
            }
            // What is left where this fails the sweep finds.
            let _ = bucket.client.abort_upload(&key, &id).await;
            // The last one may not end the runtime on a thread of its own.
            tokio::task::spawn_blocking(move || drop(bucket));
        };
        self.bucket.runtime().spawn(giving_up);
    }
}
