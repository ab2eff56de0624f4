//! What all uploads of a server share: the secret of their addresses, lengths that came late, and which have become
//! files. Nodes of a cluster have all of it in common, in the database, by `nodes.rs`.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

use millrace_accounts::password;
use millrace_cluster::{Cluster, KnownUpload, NewUpload, UploadLock, UploadVerdict};
use millrace_http::Refusal;
use millrace_http::tus::{FinishedUpload, FinishedUploads, MAX_SHARE, REMEMBERED, UploadShares};
use millrace_log::Log;
use millrace_vfs::{PartialKey, VirtualPath};

use crate::config::Resumable;
use crate::tus_state::address;
use crate::tus_state::address::{Address, Secret};
use crate::tus_state::lengths::{Lengths, Untaken};
use crate::tus_state::nodes;

/// What all uploads of a server share.
#[derive(Debug)]
pub(crate) struct Tus {
    pub(crate) settings: Resumable,
    secret: OnceLock<Secret>,
    /// Those that have become files: a client whose connection was cut before it heard so asks again.
    done: Mutex<FinishedUploads>,
    /// What their addresses do not say.
    lengths: OnceLock<Mutex<Lengths>>,
    /// Whose they are that wait.
    shares: Mutex<UploadShares>,
    /// Where all this is in place of that, for several servers.
    pub(crate) cluster: Option<Arc<Cluster>>,
}

impl Tus {
    pub(crate) fn new(settings: Resumable, cluster: Option<Arc<Cluster>>) -> Self {
        Self {
            settings,
            cluster,
            secret: OnceLock::new(),
            done: Mutex::default(),
            lengths: OnceLock::new(),
            shares: Mutex::default(),
        }
    }

    /// Returns whether it is spoken at all.
    pub(crate) fn is_spoken(&self) -> bool {
        self.settings.is_on
    }

    /// What addresses are sealed with; `None` at a node that has not been a member of its cluster yet. May wait for a file.
    pub(crate) fn secret(&self, warn: impl FnOnce(&str)) -> Option<Secret> {
        if let Some(cluster) = &self.cluster {
            return cluster.upload_secret();
        }
        Some(*self.secret.get_or_init(|| {
            let kept = self.settings.secret.as_ref().map(|path| (path, address::secret(path)));
            match kept {
                Some((_, Ok(secret))) => secret,
                Some((path, Err(error))) => {
                    let path = path.display();
                    warn(&format!("uploads cannot go on behind a restart: {path} cannot be used: {error}"));
                    password::random()
                }
                None => password::random(),
            }
        }))
    }

    /// Does something with what addresses do not say. May wait.
    fn with_lengths<T>(&self, log: &Log, now: i64, work: impl FnOnce(&mut Lengths) -> T) -> T {
        let lengths = self.lengths.get_or_init(|| {
            let path = self.settings.secret.as_ref().map(|secret| secret.with_extension("lengths"));
            let (lengths, error) = Lengths::open(path.as_ref(), self.long_ago(now));
            if let (Some(path), Some(error)) = (path, error) {
                let path = path.display();
                log.warn(&format!("lengths of uploads are not kept: {path} cannot be used: {error}"));
            }
            Mutex::new(lengths)
        });
        work(&mut lengths.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// For how long an upload waits for more, in seconds.
    fn age(&self) -> i64 {
        i64::try_from(self.settings.age.as_secs()).unwrap_or(i64::MAX)
    }

    /// What was not asked for since then is of no upload any more.
    fn long_ago(&self, now: i64) -> i64 {
        now.saturating_sub(self.age().saturating_mul(2))
    }

    /// The length of an upload that was said late, where it was. May wait.
    pub(crate) fn length_of(&self, log: &Log, key: &PartialKey, now: i64) -> Result<Option<u64>, Refusal> {
        if let Some(cluster) = &self.cluster {
            let known = nodes::ask(cluster, |table| table.find_upload(key.as_bytes(), self.settings.age))?;
            return Ok(known.and_then(|known| known.length));
        }
        let said = self.with_lengths(log, now, |lengths| lengths.of(key, now, self.age()));
        Ok(said.or_else(|| self.done().get(key).map(|done| done.length)))
    }

    /// A client has said the length of an upload late. May wait.
    pub(crate) fn say_length(
        &self,
        log: &Log,
        key: PartialKey,
        length: u64,
        now: i64,
    ) -> Result<Result<(), Untaken>, Refusal> {
        if let Some(cluster) = &self.cluster {
            let say =
                nodes::ask(cluster, |table| table.say_length(key.as_bytes(), length, self.settings.age));
            return Ok(say?.then_some(()).ok_or(Untaken::Other));
        }
        let since = self.long_ago(now);
        Ok(self.with_lengths(log, now, |lengths| lengths.say(key, length, now, since)))
    }

    /// Counts an upload that begins, where neither its user nor its address has a whole share. May wait.
    pub(crate) fn begin(
        &self,
        key: PartialKey,
        user: Option<&[u8]>,
        address: Option<IpAddr>,
    ) -> Result<bool, Refusal> {
        let age = self.settings.age;
        if let Some(cluster) = &self.cluster {
            let new = NewUpload { key: *key.as_bytes(), user, address, age, most: MAX_SHARE };
            return nodes::ask(cluster, |table| table.begin_upload(&new));
        }
        let mut shares = self.shares();
        let has_room = !shares.is_full(user, address);
        if has_room {
            shares.begin(key, user, address, (Instant::now(), age));
        }
        Ok(has_room)
    }

    /// Has no other node write an upload; `None` where there are no others. May wait.
    pub(crate) fn lock(&self, key: &PartialKey) -> Result<Option<UploadLock>, Refusal> {
        self.cluster.as_ref().map(|cluster| nodes::lock(cluster, key)).transpose()
    }

    /// Whose uploads wait.
    fn shares(&self) -> MutexGuard<'_, UploadShares> {
        self.shares.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An upload is no more. May wait.
    pub(crate) fn forget(&self, key: &PartialKey) {
        if let Some(cluster) = &self.cluster {
            return cluster.settle_upload(key.as_bytes(), UploadVerdict::Gone);
        }
        self.shares().end(key);
        if let Some(lengths) = self.lengths.get() {
            lengths.lock().unwrap_or_else(PoisonError::into_inner).forget(key);
        }
    }

    /// An upload is about to become its file, which nodes have to know before the staged file is gone; returns the lock under
    /// which they do. May wait.
    pub(crate) fn finishes(
        &self,
        key: &PartialKey,
        length: Option<u64>,
        parts: Option<&[u8]>,
        is_settled: bool,
    ) -> Result<Option<u64>, Refusal> {
        let Some(cluster) = &self.cluster else { return Ok(None) };
        let known = KnownUpload { length, is_finished: true, is_settled, parts: parts.map(Into::into) };
        cluster.finish_upload(key.as_bytes(), &known, REMEMBERED).map_err(nodes::denied)
    }

    /// It could not become the file that nodes take it for by this lock. May wait.
    pub(crate) fn has_not_finished(&self, key: &PartialKey, lock: Option<u64>) {
        if let (Some(cluster), Some(lock)) = (&self.cluster, lock) {
            let age = self.settings.age;
            cluster.settle_upload(key.as_bytes(), UploadVerdict::Unfinished { lock, age });
        }
    }

    /// An upload has become its file, of which hooks may have something to say.
    pub(crate) fn finished(&self, key: PartialKey, length: u64, parts: Option<&[u8]>) {
        if self.cluster.is_none() {
            self.forget(&key);
            self.done().add(key, length, parts, Instant::now());
        }
    }

    /// No hook has anything to say of it.
    pub(crate) fn settle_without_hooks(&self, key: &PartialKey) {
        // Nodes have heard that when it became its file.
        if self.cluster.is_none() {
            self.done().settle(key, true);
        }
    }

    /// Nothing forbids it any more; or it was refused, and the client may begin again. May wait.
    pub(crate) fn settle(&self, key: &PartialKey, has_passed: bool) {
        match &self.cluster {
            None => self.done().settle(key, has_passed),
            Some(cluster) => {
                let verdict = if has_passed { UploadVerdict::Passed } else { UploadVerdict::Gone };
                cluster.settle_upload(key.as_bytes(), verdict);
            }
        }
    }

    /// The upload that has become a file, where that is remembered. May wait.
    pub(crate) fn finished_upload(&self, key: &PartialKey) -> Result<Option<FinishedUpload>, Refusal> {
        let Some(cluster) = &self.cluster else { return Ok(self.done().get(key).cloned()) };
        let known = nodes::ask(cluster, |table| table.find_upload(key.as_bytes(), self.settings.age))?;
        Ok(known.as_ref().and_then(nodes::finished))
    }

    /// What an address says, where it is one. May wait.
    pub(crate) fn opened(&self, log: &Log, address: &VirtualPath) -> Option<Address> {
        Address::open(address, &self.secret(|text| log.warn(text))?)
    }

    /// The file that an address is about. May wait.
    pub(crate) fn file_of(&self, log: &Log, address: &VirtualPath) -> Option<VirtualPath> {
        Some(self.opened(log, address)?.path)
    }

    /// The uploads that have become files.
    fn done(&self) -> MutexGuard<'_, FinishedUploads> {
        self.done.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
