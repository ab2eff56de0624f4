//! What a device was told: writes and flushes, as QEMU's `blklogwrites` records them, and the states that a power cut
//! may leave of them.
//!
//! The format is that of the kernel's dm-log-writes: a sector with a head, then entries, each a sector and its data.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::noise::Noise;

const SECTOR: usize = 512;

/// Flags of an entry.
const FLUSH: u64 = 1;
const FORCED: u64 = 2;
const DISCARD: u64 = 4;

/// A request that the device has completed.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    flags: u64,
    /// Where its data lies in the log.
    data: std::ops::Range<usize>,
    /// Where it goes on the device.
    offset: u64,
    /// The length of the log with it.
    pub(crate) end: u64,
}

impl Entry {
    pub(crate) fn is_flush(&self) -> bool {
        self.flags & FLUSH != 0
    }

    fn is_write(&self) -> bool {
        self.flags & DISCARD == 0 && !self.data.is_empty()
    }
}

#[derive(Debug)]
pub(crate) struct BlockLog {
    bytes: Vec<u8>,
    pub(crate) entries: Vec<Entry>,
}

impl BlockLog {
    pub(crate) fn read(path: &Path) -> io::Result<Self> {
        Ok(Self::parse(std::fs::read(path)?))
    }

    fn parse(bytes: Vec<u8>) -> Self {
        let mut entries = Vec::new();
        let mut at = SECTOR;
        while let Some(head) = bytes.get(at..at + SECTOR) {
            let word =
                |number: usize| u64::from_le_bytes(head[number * 8..][..8].try_into().expect("8 bytes"));
            let (sector, sectors, flags) = (word(0), word(1), word(2));
            if sectors == 0 && flags == 0 {
                break;
            }
            let begin = at + SECTOR;
            let length = if flags & DISCARD == 0 { sectors as usize * SECTOR } else { 0 };
            if begin + length > bytes.len() {
                break;
            }
            at = begin + length;
            let offset = sector * SECTOR as u64;
            entries.push(Entry { flags, data: begin..at, offset, end: at as u64 });
        }
        Self { bytes, entries }
    }

    /// Applies entries whole and in their order.
    pub(crate) fn apply(&self, entries: std::ops::Range<usize>, image: &File) -> io::Result<()> {
        for entry in self.entries[entries].iter().filter(|entry| entry.is_write()) {
            image.write_all_at(&self.bytes[entry.data.clone()], entry.offset)?;
        }
        Ok(())
    }

    /// Applies what may have come to the device of entries without a flush behind them: any of their sectors, and those
    /// that were forced.
    pub(crate) fn apply_some(
        &self,
        entries: std::ops::Range<usize>,
        image: &File,
        noise: &mut Noise,
    ) -> io::Result<()> {
        for entry in self.entries[entries].iter().filter(|entry| entry.is_write()) {
            let data = &self.bytes[entry.data.clone()];
            if entry.flags & FORCED != 0 || noise.is_one_in(2) {
                image.write_all_at(data, entry.offset)?;
            } else if noise.is_one_in(4) {
                let sectors = noise.below(data.len() / SECTOR);
                image.write_all_at(&data[..sectors * SECTOR], entry.offset)?;
            }
        }
        Ok(())
    }

    /// The number of entries that a flush behind them has made durable, of the first `cut`.
    pub(crate) fn durable(&self, cut: usize) -> usize {
        self.entries[..cut].iter().rposition(Entry::is_flush).map_or(0, |flush| flush + 1)
    }

    /// Moments for power cuts: half of them right behind a flush, behind a log of this length.
    pub(crate) fn cuts(&self, after: u64, count: usize, noise: &mut Noise) -> BTreeSet<usize> {
        let first = self.entries.partition_point(|entry| entry.end <= after);
        let flushes: Vec<usize> =
            (first..self.entries.len()).filter(|&number| self.entries[number].is_flush()).collect();
        let mut cuts = BTreeSet::new();
        // A short log may have fewer moments.
        for attempt in 0..count * 4 {
            if cuts.len() == count {
                break;
            }
            let flush = noise.pick(&flushes).map_or(first, |&flush| flush + 1);
            let any = first + 1 + noise.below(self.entries.len() - first);
            cuts.insert(if attempt % 2 == 0 { flush } else { any.min(self.entries.len()) });
        }
        cuts
    }
}

#[test]
fn a_log_is_read_and_a_flush_makes_what_is_before_it_durable() {
    let entry = |sector: u64, flags: u64, data: &[u8]| {
        let mut head = vec![0; SECTOR];
        for (number, word) in [sector, (data.len() / SECTOR) as u64, flags].into_iter().enumerate() {
            head[number * 8..][..8].copy_from_slice(&word.to_le_bytes());
        }
        [head, data.to_vec()].concat()
    };
    let bytes = [
        vec![0; SECTOR],
        entry(2, 0, &[1; 2 * SECTOR]),
        entry(0, FLUSH, &[]),
        entry(5, FORCED, &[2; SECTOR]),
        entry(7, 0, &[3; SECTOR]),
        vec![0; SECTOR],
    ];
    let log = BlockLog::parse(bytes.concat());
    assert_eq!(log.entries.len(), 4);
    assert_eq!([0, 1, 2, 3, 4].map(|cut| log.durable(cut)), [0, 0, 2, 2, 2]);
    let path = std::env::temp_dir().join(format!("millrace-block-log-{}", std::process::id()));
    let mut left = BTreeSet::new();
    for seed in 0..50 {
        let image = File::options().read(true).write(true).create(true).truncate(true).open(&path).unwrap();
        image.set_len(8 * SECTOR as u64).unwrap();
        log.apply(0..2, &image).unwrap();
        log.apply_some(2..4, &image, &mut Noise::new(seed)).unwrap();
        let image = std::fs::read(&path).unwrap();
        left.insert([2, 3, 5, 7].map(|sector| image[sector * SECTOR]));
    }
    std::fs::remove_file(&path).unwrap();
    assert_eq!(left, BTreeSet::from([[1, 1, 2, 0], [1, 1, 2, 3]]));
}
