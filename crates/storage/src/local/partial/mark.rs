//! How much of a partial upload is sure: a journal beside its file.
//!
//! The invariant: of a power cut no byte is left that was not acknowledged, and of a kill none that was to be checked.
//! After a power cut a file may have the length of bytes that never arrived, and zeros in their place, so its own length
//! says nothing then. A kill loses nothing: the kernel has the bytes.
//!
//! A record is appended whenever bytes have become sure, and one that is torn does not count. It names the boot of the
//! machine in which bytes behind the sure ones count, too; in another boot the power was cut since, or may have been.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::sync::LazyLock;

use millrace_vfs::{FileError, PartialKey};
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::{Errno, retry_on_intr};

use super::super::disk;
use super::super::errno::file_error;
use super::super::staging::mark_name;
use super::super::upload::write_all_at;
use super::open_named;

/// A length, a boot, and a check of both.
const RECORD: usize = 32;

/// How many records are looked at, from the last on: those after the last that was waited for may be torn.
const LOOKED_AT: usize = 128;

type Boot = [u8; 16];

/// That bytes behind the sure ones do not count, whatever happens.
const NEVER: Boot = [0; 16];

/// What is known of a partial upload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Mark {
    /// This many bytes are sure.
    pub(super) sure: u64,
    boot: Boot,
}

impl Mark {
    /// What comes behind the sure bytes is there at once; or only once it was checked.
    pub(super) fn new(sure: u64, is_checked: bool) -> Self {
        Self { sure, boot: if is_checked { NEVER } else { boot() } }
    }

    /// Returns whether bytes behind the sure ones count in the same way.
    pub(super) fn treats_alike(&self, other: &Self) -> bool {
        self.boot == other.boot
    }

    /// How much of a file of this size counts.
    pub(super) fn counted(self, size: u64) -> u64 {
        match self.boot != NEVER && self.boot == boot() {
            true => size,
            false => size.min(self.sure),
        }
    }

    /// Reads the last record. Without one nothing is sure: its name did not arrive.
    pub(super) fn read(directory: &OwnedFd, key: &PartialKey) -> rustix::io::Result<Self> {
        match Self::read_last(directory, key) {
            Ok(Some(mark)) => Ok(mark),
            Ok(None) | Err(Errno::NOENT) => Ok(Self { sure: 0, boot: NEVER }),
            // What is there must not be cut because it could not be looked at.
            Err(errno) => Err(errno),
        }
    }

    fn read_last(directory: &OwnedFd, key: &PartialKey) -> rustix::io::Result<Option<Self>> {
        let file = open_named(directory, mark_name(key).as_bytes())?;
        let records = usize::try_from(disk::fstat(&file)?.st_size).unwrap_or(0) / RECORD;
        let first = records.saturating_sub(LOOKED_AT);
        let mut bytes = vec![0; (records - first) * RECORD];
        let count = retry_on_intr(|| disk::pread(&file, &mut bytes[..], (first * RECORD) as u64))?;
        Ok(bytes[..count].rchunks_exact(RECORD).find_map(Self::parse))
    }

    /// Begins the journal of a new upload.
    pub(super) fn begin(self, directory: &OwnedFd, key: &PartialKey) -> Result<File, FileError> {
        self.write(directory, key, OFlags::TRUNC)
    }

    /// Appends a record.
    pub(super) fn append(self, directory: &OwnedFd, key: &PartialKey) -> Result<File, FileError> {
        self.write(directory, key, OFlags::empty())
    }

    fn write(self, directory: &OwnedFd, key: &PartialKey, how: OFlags) -> Result<File, FileError> {
        let flags = how | OFlags::CREATE | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file =
            disk::openat(directory, mark_name(key), flags, Mode::RUSR | Mode::WUSR).map_err(file_error)?;
        let file = File::from(file);
        let size = u64::try_from(disk::fstat(&file).map_err(file_error)?.st_size).unwrap_or(0);
        write_all_at(&file, &mut (size - size % RECORD as u64), &self.record())?;
        Ok(file)
    }

    fn record(self) -> [u8; RECORD] {
        let mut record = [0; RECORD];
        record[..8].copy_from_slice(&self.sure.to_be_bytes());
        record[8..24].copy_from_slice(&self.boot);
        let check = check(&record[..24]);
        record[24..].copy_from_slice(&check.to_be_bytes());
        record
    }

    fn parse(record: &[u8]) -> Option<Self> {
        let (content, written) = record.split_at_checked(24)?;
        let (sure, boot) = content.split_at_checked(8)?;
        (written == check(content).to_be_bytes())
            .then_some(Self { sure: u64::from_be_bytes(sure.try_into().ok()?), boot: boot.try_into().ok()? })
    }
}

/// Removes the journal.
pub(super) fn clear(directory: &OwnedFd, key: &PartialKey) {
    let _ = disk::unlinkat(directory, mark_name(key), AtFlags::empty());
}

/// FNV-1a: against torn records, not against forgery.
fn check(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3))
}

/// The kernel's name for the time since the machine was started. Without `/proc` nothing counts but what is sure.
fn boot() -> Boot {
    static BOOT: LazyLock<Boot> = LazyLock::new(|| {
        let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
        u128::from_str_radix(&digits, 16).unwrap_or(0).to_be_bytes()
    });
    #[cfg(test)]
    if let Some(boot) = BOOT_OF_TEST.get() {
        return boot;
    }
    *BOOT
}

#[cfg(test)]
thread_local! {
    /// The boot that this thread takes the machine to be in.
    pub(in super::super) static BOOT_OF_TEST: std::cell::Cell<Option<[u8; 16]>> = const { std::cell::Cell::new(None) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_torn_record_does_not_count() {
        let place = std::env::temp_dir().join(format!("millrace-mark-{}", std::process::id()));
        std::fs::create_dir_all(&place).unwrap();
        let (directory, key) = (OwnedFd::from(File::open(&place).unwrap()), PartialKey::new([1; 16]));
        assert_eq!(Mark::read(&directory, &key).unwrap().counted(9), 0);
        Mark::new(3, false).begin(&directory, &key).unwrap();
        Mark::new(5, true).append(&directory, &key).unwrap();
        assert_eq!(Mark::read(&directory, &key).unwrap(), Mark { sure: 5, boot: NEVER });
        let path = place.join(mark_name(&key));
        let whole = std::fs::read(&path).unwrap();
        for length in RECORD..2 * RECORD {
            std::fs::write(&path, &whole[..length]).unwrap();
            assert_eq!(Mark::read(&directory, &key).unwrap().sure, 3, "{length}");
            let zeros = [&whole[..length], &vec![0; 2 * RECORD - length]].concat();
            std::fs::write(&path, zeros).unwrap();
            let sure = Mark::read(&directory, &key).unwrap().sure;
            assert!(sure == 3 || whole[length..].iter().all(|&byte| byte == 0), "{length}: {sure}");
        }
        // The next one goes over what is torn.
        std::fs::write(&path, &whole[..RECORD + 7]).unwrap();
        Mark::new(8, false).append(&directory, &key).unwrap();
        assert_eq!(
            (Mark::read(&directory, &key).unwrap().sure, Mark::read(&directory, &key).unwrap().counted(9)),
            (8, 9)
        );
        BOOT_OF_TEST.set(Some([9; 16]));
        assert_eq!(Mark::read(&directory, &key).unwrap().counted(9), 8, "the power was cut");
        BOOT_OF_TEST.set(None);
        std::fs::remove_dir_all(place).unwrap();
    }
}
