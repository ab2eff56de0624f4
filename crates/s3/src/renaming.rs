//! Renaming of folders: the store copies every object to its new key, many at a time, then the old ones are removed.
//!
//! A note in the bucket, `.millrace/renames/ID`, is there from before the first copy until after the last removal, so that a
//! rename that was killed is finished by the next start: [`Bucket::finish_renames`]. The server that renames writes its note
//! anew every few seconds; others leave a note alone that is that young, unless it is of a process of this machine that is no
//! more.
//!
//! No upload that was acknowledged is lost to a rename. Only objects that were copied, and are the same since, are removed:
//! what comes into the old folder meanwhile stays there. A rename that is finished later copies over nothing that is newer,
//! since clients may have seen the new folder and written into it. (Not every store removes on a condition: an upload that
//! comes between the last look at its name and the removal, one request later, is lost.)

use std::cmp::Ordering;
use std::collections::HashSet;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use hyper::body::Bytes;
use millrace_vfs::FileError;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::answers::Listed;
use crate::attributes::Attributes;
use crate::bucket::{Bucket, PAGE};
use crate::client::{Condition, Object, Source, random_name};
use crate::copying::LARGEST_COPY;
use crate::error::StoreError;
use crate::owner::Owner;
use crate::parts::Parts;

/// Copies on their way at once: as many as there are kept connections. Beside the requests that come one by one (a page
/// of 1,000 to be copied, 250 to be removed) that is 40 times as fast as copies one by one, where requests take long.
const AT_ONCE: usize = 64;

/// Objects that are removed behind one look at them: few, because an upload that replaces one meanwhile is lost.
const REMOVED_AT_ONCE: usize = 250;

/// How often the note of a running rename is written, and the age at which it counts as left behind.
const WRITTEN_EVERY: Duration = Duration::from_secs(10);
const LEFT_AFTER: Duration = Duration::from_secs(60);

/// A rename as its note has it: a line each for who does it, the old prefix and the new one.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Note {
    owner: Owner,
    from: String,
    to: String,
}

impl Note {
    fn text(&self) -> Bytes {
        format!("{}\n{}\n{}\n", self.owner, self.from, self.to).into()
    }

    /// Reads a note; only of folders beneath the prefix.
    fn parse(text: &[u8], prefix: &str) -> Option<Self> {
        let mut lines = std::str::from_utf8(text).ok()?.lines();
        let (owner, from, to) = (Owner::parse(lines.next()?)?, lines.next()?, lines.next()?);
        let is_folder = |key: &str| key.len() > prefix.len() && key.starts_with(prefix) && key.ends_with('/');
        let are_folders = is_folder(from) && is_folder(to) && !to.starts_with(from);
        are_folders.then(|| Self { owner, from: from.to_owned(), to: to.to_owned() })
    }
}

impl Bucket {
    /// Moves all beneath a prefix to another.
    pub(crate) async fn rename_folder(self: &Arc<Self>, from: String, to: String) -> Result<(), FileError> {
        let note = Note { owner: Owner::of_this_process(), from, to };
        let key = self.reserved_key(&format!("renames/{}", random_name()?));
        self.client.put(&key, note.text(), &Attributes::default(), &Condition::None).await?;
        self.carry_out(&key, &note, false).await
    }

    /// Does what a note says, some of which may be done already, and removes it.
    async fn carry_out(
        self: &Arc<Self>,
        key: &str,
        note: &Note,
        is_left_behind: bool,
    ) -> Result<(), FileError> {
        let done = Notify::new();
        let moving = async {
            let moved = self.move_all(note, is_left_behind).await;
            done.notify_one();
            moved
        };
        // It ends by itself, so that no note is on its way any more when the note is removed.
        let writing = async {
            while timeout(WRITTEN_EVERY, done.notified()).await.is_err() {
                let _ = self.client.put(key, note.text(), &Attributes::default(), &Condition::None).await;
            }
        };
        let (moved, ()) = tokio::join!(moving, writing);
        moved?;
        Ok(self.client.delete(key).await?)
    }

    async fn move_all(self: &Arc<Self>, note: &Note, is_left_behind: bool) -> Result<(), FileError> {
        // Not every store lists it.
        if let Some(marker) = self.client.find(&note.from).await? {
            self.client.put_marker(&note.to, &marker.attributes, &Condition::None).await?;
        }
        let (mut next, mut copied) = (None, HashSet::new());
        loop {
            let page = self.client.list(&note.from, true, next.as_deref(), PAGE).await?;
            self.copy_page(note, page.objects, is_left_behind, &mut copied).await?;
            next = page.next;
            if next.is_none() {
                break;
            }
        }
        let mut are_others = false;
        loop {
            let page = self.client.list(&note.from, true, next.as_deref(), REMOVED_AT_ONCE).await?;
            let listed = page.objects.len();
            let removed = page.objects.into_iter().filter(|object| copied.contains(&fingerprint(object)));
            let keys: Vec<String> = removed.map(|object| object.key).collect();
            are_others |= keys.len() < listed;
            if !keys.is_empty() {
                self.client.delete_all(&keys).await?;
            }
            // From the start again while all that was listed is gone: not every store lists on from a key that is.
            let is_over = if are_others { page.next.is_none() } else { listed == 0 };
            if is_over {
                break;
            }
            next = page.next.filter(|_| are_others);
        }
        // The marker, which not every store lists.
        if are_others { Ok(()) } else { Ok(self.client.delete(&note.from).await?) }
    }

    /// Copies the objects of a page, and adds those that can go to `copied`.
    async fn copy_page(
        self: &Arc<Self>,
        note: &Note,
        objects: Vec<Listed>,
        is_left_behind: bool,
        copied: &mut HashSet<u64>,
    ) -> Result<(), FileError> {
        let mut copies = JoinSet::new();
        for object in objects {
            if copies.len() >= AT_ONCE {
                copied.extend(settle(copies.join_next().await)?);
            }
            let Some(name) = object.key.strip_prefix(&note.from) else { continue };
            let (bucket, to) = (Arc::clone(self), format!("{}{name}", note.to));
            copies.spawn_on(
                async move {
                    let copied = bucket.copy_unless_newer(&object, &to, is_left_behind).await;
                    // The last one may not end the runtime on a thread of its own.
                    tokio::task::spawn_blocking(move || drop(bucket));
                    copied.map(|can_go| can_go.then(|| fingerprint(&object)))
                },
                self.runtime().handle(),
            );
        }
        while let Some(settled) = copies.join_next().await {
            copied.extend(settle(Some(settled))?);
        }
        Ok(())
    }

    /// Copies an object, unless what a rename that was left behind finds at the new key is newer. Returns whether the object
    /// can go.
    async fn copy_unless_newer(
        self: &Arc<Self>,
        object: &Listed,
        to: &str,
        is_left_behind: bool,
    ) -> Result<bool, FileError> {
        let there = if is_left_behind { self.client.find(to).await? } else { None };
        if let Some(there) = there {
            match there.modified.seconds.cmp(&object.modified.seconds) {
                Ordering::Greater => return Ok(true),
                // Of one second: it is the copy, or both stay.
                Ordering::Equal => return Ok(there.etag == object.etag),
                Ordering::Less => {}
            }
        }
        self.copy_listed(object, to).await.map(|()| true)
    }

    async fn copy_listed(self: &Arc<Self>, object: &Listed, to: &str) -> Result<(), FileError> {
        if object.key.ends_with('/') {
            let attributes = self.client.find(&object.key).await?.map(|marker| marker.attributes);
            let attributes = attributes.unwrap_or_default();
            return Ok(self.client.put_marker(to, &attributes, &Condition::None).await?);
        }
        if object.size <= LARGEST_COPY {
            return Ok(self.client.copy((&object.key, None), to, None).await?);
        }
        let Object { etag, attributes, size, .. } = self.client.head(&object.key).await?;
        let mut parts = Parts::begin(self, to, &attributes).await?;
        let source = Source { key: object.key.clone(), etag: Some(etag), size };
        parts.copy(&source, 0..size, |_| true).await?;
        parts.complete(&Condition::None, attributes.upload.as_deref().unwrap_or_default()).await.map(drop)
    }

    /// Finishes the renames that were left behind; returns how many, and whether there are others, which are still young.
    pub(crate) async fn finish_renames(self: &Arc<Self>) -> Result<(usize, bool), FileError> {
        let page = self.client.list(&self.reserved_key("renames/"), true, None, PAGE).await?;
        let (mut finished, mut are_others) = (0, false);
        for object in page.objects {
            let text = match self.client.get(&object.key, 0, Some(64 << 10), None).await {
                Ok((mut answer, _)) => answer.read(64 << 10).await?,
                Err(error) if error.is_missing() => continue,
                Err(error) => return Err(error.into()),
            };
            let Some(note) = Note::parse(&text, &self.prefix) else { continue };
            if note.owner.is_gone() || age(&object) > LEFT_AFTER {
                let note = Note { owner: Owner::of_this_process(), ..note };
                self.client.put(&object.key, note.text(), &Attributes::default(), &Condition::None).await?;
                self.carry_out(&object.key, &note, true).await?;
                finished += 1;
            } else {
                are_others = true;
            }
        }
        Ok((finished, are_others))
    }

    /// Removes what killed probes have left.
    pub(crate) async fn sweep_probes(&self) -> Result<(), StoreError> {
        let page = self.client.list(&self.reserved_key("probe/"), true, None, PAGE).await?;
        for object in page.objects.iter().filter(|object| age(object) > LEFT_AFTER) {
            self.client.delete(&object.key).await?;
        }
        Ok(())
    }

    /// Gives up multipart uploads beneath the prefix that were begun so long ago; returns how many.
    pub(crate) async fn sweep_uploads(&self, left_after: Duration) -> Result<usize, StoreError> {
        let (mut after, mut swept) = (None, 0);
        loop {
            let page = self.client.pending_uploads(&self.prefix, after.as_ref()).await?;
            for upload in page.uploads {
                let begun = UNIX_EPOCH + Duration::from_secs(upload.begun.seconds.max(0) as u64);
                let age = SystemTime::now().duration_since(begun).unwrap_or_default();
                if age >= left_after && upload.key.starts_with(&self.prefix) {
                    self.client.abort_upload(&upload.key, &upload.id).await?;
                    swept += 1;
                }
            }
            match page.next {
                Some(next) => after = Some(next),
                None => return Ok(swept),
            }
        }
    }
}

fn age(object: &Listed) -> Duration {
    let written = UNIX_EPOCH + Duration::from_secs(object.modified.seconds.max(0) as u64);
    SystemTime::now().duration_since(written).unwrap_or_default()
}

/// Tells an object from others of its key.
fn fingerprint(object: &Listed) -> u64 {
    let mut hasher = DefaultHasher::new();
    (&object.key, &object.etag, object.size, object.modified.seconds).hash(&mut hasher);
    hasher.finish()
}

type Copied = Result<Option<u64>, FileError>;

fn settle(copied: Option<Result<Copied, tokio::task::JoinError>>) -> Copied {
    match copied {
        Some(Ok(result)) => result,
        Some(Err(_)) => Err(FileError::Cancelled),
        None => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_read_back_and_only_of_folders_beneath_the_prefix() {
        let note = |from: &str, to: &str| Note {
            owner: Owner::of_this_process(),
            from: from.to_owned(),
            to: to.to_owned(),
        };
        let good = note("p/a/", "p/b/");
        assert_eq!(Note::parse(&good.text(), "p/"), Some(good));
        for bad in [note("p/", "p/b/"), note("q/a/", "p/b/"), note("p/a", "p/b/"), note("p/a/", "p/a/b/")] {
            assert_eq!(Note::parse(&bad.text(), "p/"), None, "{bad:?}");
        }
        assert_eq!(Note::parse(b"\xff", ""), None);
    }
}
