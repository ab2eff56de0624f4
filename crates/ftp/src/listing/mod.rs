//! Directory listings: `LIST`, `NLST`, `MLSD`, and `STAT` with a path.
//!
//! A [`Lister`] turns an open [`Directory`](millrace_vfs::Directory) into bytes, a piece at a time, so that a directory of a million
//! entries costs no more memory than one of a thousand: entries are sorted where there are at most
//! [`Listing::sort_bound`] of them, and otherwise go out in the back end's own order as they are read.
//!
//! Two bounds hold whatever a client asks: no pattern and no `-R` visits more than [`Listing::budget`]
//! entries, and `-R` goes no deeper than [`Listing::depth`] (CVE-2011-0762, CVE-2019-20176). A listing that
//! met one says so with [`Lister::cut`]. Nothing here recurses.
//!
//! [`unix`] and [`facts`] write a line each, and parse what they and others wrote. RFC 959 section 4.1.3,
//! RFC 3659 section 7.

mod fact_source;
pub mod facts;
mod lister;
mod names;
pub mod options;
mod owners;
pub mod search;
pub mod sort;
pub mod unix;

use std::{fmt, sync::Arc};

use millrace_vfs::{FileError, Timestamp, VirtualPath};

use self::search::Level;
pub use self::{
    fact_source::{FactSource, NoFacts},
    facts::{Facts, Links, Rights},
    lister::Lister,
    options::{ListOptions, Sort},
    owners::{FixedOwners, NumericOwners, OwnerNames},
};
use crate::glob::Glob;

/// How many entries are sorted, which is also what a sorted listing holds in memory, some 300 KiB. A `LIST` of a
/// cached local directory of 200,000 entries began after 10 ms with a bound of 4096, 3 ms unsorted, and took
/// 0.45 s in all (two shared cores); a listing shall begin within 10 ms.
pub const SORT_BOUND: usize = 2048;
/// How many entries a pattern or `-R` may visit: a quarter of a second by the same measurement.
pub const BUDGET: u64 = 100_000;
/// How many directories below the first `-R` goes.
pub const DEPTH: usize = 32;

/// The format of a listing's lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// `LIST`: as `ls -l`.
    Unix,
    /// `NLST`: names.
    Names,
    /// `MLSD`: these facts. Never sorted: it is for programs.
    Facts(Facts),
}

/// The parameters of a listing.
#[derive(Debug, Clone)]
pub struct Listing {
    /// The format of the lines.
    pub format: Format,
    /// The client's options. The caller evaluates `long` and `directory` when it chooses the format and the source.
    pub options: ListOptions,
    /// Only what matches, level by level; everything where there is no level.
    pub search: Vec<Level>,
    /// Goes before each name of an `NLST`, and before the headings of `-R`: the path as the client wrote
    /// it, with a slash at its end, or nothing. RFC 1123 section 4.1.2.7: names that can be used as they are.
    pub prefix: Vec<u8>,
    /// The time of the request, on which `LIST`'s form of a date depends.
    pub now: Timestamp,
    /// The session's permissions here, for the `perm` fact.
    pub rights: Rights,
    /// The end of a line: CR LF in text on the wire, or LF where a line becomes a record, or one of EBCDIC.
    pub line_end: &'static [u8],
    /// How owners are named.
    pub owners: Arc<dyn OwnerNames>,
    /// The source of further facts for `MLSD`.
    pub fact_source: Arc<dyn FactSource>,
    /// How links are shown by `MLSD`.
    pub links: Links,
    /// How many entries are sorted.
    pub sort_bound: usize,
    /// How many entries a pattern or `-R` may visit.
    pub budget: u64,
    /// How many directories below the first `-R` goes.
    pub depth: usize,
    /// Only directories, and these as `ls -d d*/` shows them: with a slash, and a link as what it leads to.
    pub only_directories: bool,
    /// The identities of the directory and its parents. `MLSD` shows a link to one of them as a link: as a directory it
    /// would have no end for a mirror that goes into it.
    pub ancestors: Vec<(u64, u64)>,
}

impl Listing {
    /// A listing in `format`, with every other setting at its default.
    pub fn new(format: Format, now: Timestamp) -> Self {
        Self {
            format,
            options: ListOptions::default(),
            search: Vec::new(),
            prefix: Vec::new(),
            now,
            rights: Rights::default(),
            line_end: b"\r\n",
            owners: Arc::new(NumericOwners),
            fact_source: Arc::new(NoFacts),
            links: Links::default(),
            sort_bound: SORT_BOUND,
            budget: BUDGET,
            depth: DEPTH,
            only_directories: false,
            ancestors: Vec::new(),
        }
    }

    fn order(&self) -> Sort {
        match self.format {
            Format::Facts(_) => Sort::Unsorted,
            _ => self.options.sort,
        }
    }

    /// Returns true if only what matches a pattern is listed.
    pub fn is_search(&self) -> bool {
        !self.search.is_empty()
    }

    fn is_bounded(&self) -> bool {
        self.is_search() || self.options.recursive
    }

    /// The pattern for the names in a directory so deep beneath the first.
    fn pattern_at(&self, depth: usize) -> Option<&Glob> {
        match self.search.get(depth) {
            Some(Level::Pattern(pattern)) => Some(pattern),
            _ => None,
        }
    }

    /// Returns true if directories of this depth are only traversed, not listed.
    fn passes_through(&self, depth: usize) -> bool {
        depth + 1 < self.search.len()
    }
}

/// Why a listing is not whole, which its text says to the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    /// It visited as many entries as it may: these.
    Budget(u64),
    /// It met directories deeper than it goes: so deep.
    Depth(usize),
}

impl fmt::Display for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Budget(most) => write!(f, "a pattern or -R visits {most} entries and no more"),
            Self::Depth(most) => write!(f, "a pattern or -R goes {most} folders deep and no deeper"),
        }
    }
}

/// The folders that a listing could not read. Removed folders are not included.
#[derive(Debug)]
pub struct Unread {
    /// The first.
    pub path: VirtualPath,
    /// Why.
    pub why: FileError,
    /// The number of others.
    pub more: u64,
}
