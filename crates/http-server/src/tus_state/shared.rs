//! What all uploads of a server share: the secret of their addresses, lengths that came late, and which have become
//! files.

use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

use millrace_accounts::password;
use millrace_http::tus::{FinishedUploads, UploadShares};
use millrace_log::Log;
use millrace_vfs::{PartialKey, VirtualPath};

use crate::config::Resumable;
use crate::tus_state::address;
use crate::tus_state::address::{Address, Secret};
use crate::tus_state::lengths::Lengths;

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
}

impl Tus {
    pub(crate) fn new(settings: Resumable) -> Self {
        Self {
            settings,
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

    /// What addresses are sealed with. May wait.
    pub(crate) fn secret(&self, warn: impl FnOnce(&str)) -> &Secret {
        self.secret.get_or_init(|| {
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
        })
    }

    /// Does something with what addresses do not say. May wait.
    pub(crate) fn with_lengths<T>(&self, log: &Log, now: i64, work: impl FnOnce(&mut Lengths) -> T) -> T {
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
    pub(crate) fn age(&self) -> i64 {
        i64::try_from(self.settings.age.as_secs()).unwrap_or(i64::MAX)
    }

    /// What was not asked for since then is of no upload any more.
    pub(crate) fn long_ago(&self, now: i64) -> i64 {
        now.saturating_sub(self.age().saturating_mul(2))
    }

    /// Whose uploads wait.
    pub(crate) fn shares(&self) -> MutexGuard<'_, UploadShares> {
        self.shares.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An upload is no more.
    pub(crate) fn forget_length(&self, key: &PartialKey) {
        self.shares().end(key);
        if let Some(lengths) = self.lengths.get() {
            lengths.lock().unwrap_or_else(PoisonError::into_inner).forget(key);
        }
    }

    /// An upload has become its file, of which hooks may have something to say.
    pub(crate) fn finished(&self, key: PartialKey, length: u64, parts: Option<&[u8]>) {
        self.forget_length(&key);
        self.done().add(key, length, parts, Instant::now());
    }

    /// Nothing forbids it any more; or it was refused, and the client may begin again.
    pub(crate) fn settle(&self, key: &PartialKey, has_passed: bool) {
        self.done().settle(key, has_passed);
    }

    /// What an address says, where it is one. May wait.
    pub(crate) fn opened(&self, log: &Log, address: &VirtualPath) -> Option<Address> {
        Address::open(address, self.secret(|text| log.warn(text)))
    }

    /// The file that an address is about. May wait.
    pub(crate) fn file_of(&self, log: &Log, address: &VirtualPath) -> Option<VirtualPath> {
        Some(self.opened(log, address)?.path)
    }

    /// The uploads that have become files.
    pub(crate) fn done(&self) -> MutexGuard<'_, FinishedUploads> {
        self.done.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
