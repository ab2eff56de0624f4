//! Which promises of S3 a store keeps.

use std::fmt;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

/// The promises of S3 that some stores do not keep. Until the probe has looked they count as kept.
#[derive(Debug, Default)]
pub(crate) struct Honours {
    broken: AtomicU8,
}

/// A promise of S3.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Promise {
    /// `If-None-Match: *` on `PUT`.
    NewOnly = 1,
    /// `If-Match` on `PUT`.
    SameOnly = 2,
    /// `UploadPartCopy`, of a part of the object itself too.
    CopiedParts = 4,
    /// Parts that differ in size.
    UnequalParts = 8,
    /// `Range` on `GET`.
    Ranges = 16,
    /// Listings in the order of keys, page by page.
    Order = 32,
}

impl Promise {
    pub(crate) const ALL: [Self; 6] =
        [Self::NewOnly, Self::SameOnly, Self::CopiedParts, Self::UnequalParts, Self::Ranges, Self::Order];
}

/// What the store does not do, and what that means.
impl fmt::Display for Promise {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NewOnly => {
                "ignores If-None-Match: of two uploads by STOU, or two MKD, to one name at once both may succeed"
            }
            Self::SameOnly => "ignores If-Match: of two APPE to one file at once one may be lost",
            Self::CopiedParts => "does not copy parts: APPE and REST before STOR fail for files of 5 MiB and more",
            Self::UnequalParts => {
                "wants parts of one size: files are of 48 GiB at most, and APPE and REST before STOR fail for files \
                 of 5 MiB and more"
            }
            Self::Ranges => "ignores ranges: files of more than 8 MiB cannot be read",
            Self::Order => "does not list in the order of keys: listings may lack entries",
        })
    }
}

impl Honours {
    /// The store does not keep a promise.
    pub(crate) fn set_broken(&self, promise: Promise) {
        self.broken.fetch_or(promise as u8, Relaxed);
    }

    fn keeps(&self, promise: Promise) -> bool {
        self.broken.load(Relaxed) & promise as u8 == 0
    }

    /// Returns whether a `PUT` can insist on a name that is free.
    pub(crate) fn new_only(&self) -> bool {
        self.keeps(Promise::NewOnly)
    }

    /// Returns whether a `PUT` can insist on the object that it replaces.
    pub(crate) fn same_only(&self) -> bool {
        self.keeps(Promise::SameOnly)
    }

    /// Returns whether parts can be copied from objects.
    pub(crate) fn copies_parts(&self) -> bool {
        self.keeps(Promise::CopiedParts) && self.takes_unequal_parts()
    }

    /// Returns whether parts may differ in size.
    pub(crate) fn takes_unequal_parts(&self) -> bool {
        self.keeps(Promise::UnequalParts)
    }
}
