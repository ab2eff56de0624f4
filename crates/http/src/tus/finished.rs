//! Uploads that have become files: a client whose connection was cut before it heard so asks again.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use millrace_vfs::PartialKey;

/// For how long they are remembered, and how many.
pub const REMEMBERED: Duration = Duration::from_secs(3600);
const MAX_REMEMBERED: usize = 10_000;

/// How many are remembered with the parts that they were joined from, which are up to 32 KiB each.
const MAX_JOINED: usize = 1000;

/// Uploads that have become files.
#[derive(Debug, Default)]
pub struct FinishedUploads(HashMap<PartialKey, FinishedUpload>);

/// An upload that has become its file.
#[derive(Debug, Clone)]
pub struct FinishedUpload {
    /// Bytes of the file.
    pub length: u64,
    /// Whether hooks have let it pass, where there are any: until then clients are told to wait.
    pub is_settled: bool,
    /// Of one that was joined: what the client said of its parts.
    pub parts: Option<Box<[u8]>>,
    since: Instant,
}

impl FinishedUpload {
    /// One that another server remembers.
    pub fn known(length: u64, is_settled: bool, parts: Option<Box<[u8]>>, now: Instant) -> Self {
        Self { length, is_settled, parts, since: now }
    }
}

impl FinishedUploads {
    /// An upload has become its file, of which hooks may have something to say.
    pub fn add(&mut self, key: PartialKey, length: u64, parts: Option<&[u8]>, now: Instant) {
        if self.0.len() >= MAX_REMEMBERED {
            self.0.retain(|_, done| now.saturating_duration_since(done.since) < REMEMBERED);
        }
        let parts = parts.filter(|_| self.0.len() < MAX_JOINED).map(Into::into);
        if self.0.len() < MAX_REMEMBERED {
            self.0.insert(key, FinishedUpload { length, is_settled: false, parts, since: now });
        }
    }

    /// Nothing forbids it any more; or it was refused, and the client may begin again.
    pub fn settle(&mut self, key: &PartialKey, has_passed: bool) {
        match (has_passed, self.0.get_mut(key)) {
            (true, Some(done)) => done.is_settled = true,
            _ => _ = self.0.remove(key),
        }
    }

    /// The upload with this key, if it is remembered.
    pub fn get(&self, key: &PartialKey) -> Option<&FinishedUpload> {
        self.0.get(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: usize) -> PartialKey {
        PartialKey::new((number as u128).to_be_bytes())
    }

    #[test]
    fn an_upload_waits_for_its_verdict() {
        let (mut finished, now) = (FinishedUploads::default(), Instant::now());
        finished.add(key(1), 5, Some(b"final;/a"), now);
        let done = finished.get(&key(1)).unwrap();
        assert_eq!((done.length, done.is_settled, done.parts.as_deref()), (5, false, Some(&b"final;/a"[..])));
        finished.settle(&key(1), true);
        assert!(finished.get(&key(1)).unwrap().is_settled);
        finished.settle(&key(1), false);
        assert!(finished.get(&key(1)).is_none());
    }

    #[test]
    fn as_many_are_remembered_as_there_is_room_for_until_they_are_old() {
        let (mut finished, begin) = (FinishedUploads::default(), Instant::now());
        (0..MAX_REMEMBERED).for_each(|number| finished.add(key(number), 1, Some(b"x"), begin));
        assert!(finished.get(&key(MAX_JOINED - 1)).unwrap().parts.is_some());
        assert!(finished.get(&key(MAX_JOINED)).unwrap().parts.is_none());
        let soon = begin + REMEMBERED - Duration::from_secs(1);
        finished.add(key(MAX_REMEMBERED), 1, None, soon);
        assert!(finished.get(&key(MAX_REMEMBERED)).is_none());
        finished.add(key(MAX_REMEMBERED), 1, None, begin + REMEMBERED);
        assert!(finished.get(&key(MAX_REMEMBERED)).is_some() && finished.get(&key(0)).is_none());
    }
}
