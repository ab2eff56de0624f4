//! Quotas as protocols see them: which one is used up, and how much of them is used.

use std::fmt;

/// What a quota counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Counted {
    /// The bytes of all files.
    Bytes,
    /// Files, without directories.
    Files,
    /// Bytes from the client within a period.
    Uploaded,
    /// Bytes to the client within a period.
    Downloaded,
    /// Bytes in both directions within a period.
    Moved,
    /// Bytes to the client, in proportion to those that came from it.
    Ratio,
}

/// The owner of a quota.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum QuotaScope {
    /// The account's.
    Account,
    /// That of a folder that is shown at this path.
    Folder(String),
}

/// A quota that is used up. Its text is for the client and only names the quota.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OverQuota {
    /// The scope of the quota.
    pub scope: QuotaScope,
    /// What it counts.
    pub counted: Counted,
    /// How much there may be.
    pub most: u64,
}

impl fmt::Display for OverQuota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whose = match self.scope {
            QuotaScope::Account => "this account",
            QuotaScope::Folder(_) => "this folder",
        };
        match self.counted {
            Counted::Bytes => write!(f, "the quota of bytes of {whose} is used up"),
            Counted::Files => write!(f, "the quota of files of {whose} is used up"),
            Counted::Uploaded => write!(f, "{whose} may upload no more for now"),
            Counted::Downloaded => write!(f, "{whose} may download no more for now"),
            Counted::Moved => write!(f, "{whose} may transfer no more for now"),
            Counted::Ratio => write!(f, "{whose} has to upload before it may download more"),
        }
    }
}

impl std::error::Error for OverQuota {}

/// How much is held where a quota holds, and how much may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Held {
    /// Bytes of all files.
    pub bytes: u64,
    /// How many there may be; `None` for no limit.
    pub most_bytes: Option<u64>,
    /// Files.
    pub files: u64,
    /// How many there may be; `None` for no limit.
    pub most_files: Option<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_learns_which_quota_it_is_and_neither_number_nor_name() {
        for (counted, word) in [
            (Counted::Bytes, "bytes"),
            (Counted::Files, "files"),
            (Counted::Uploaded, "upload"),
            (Counted::Downloaded, "download"),
            (Counted::Moved, "transfer"),
            (Counted::Ratio, "has to upload"),
        ] {
            let own = OverQuota { scope: QuotaScope::Account, counted, most: 4711 };
            let folder = OverQuota { scope: QuotaScope::Folder("/in".to_owned()), ..own.clone() };
            for told in [own.to_string(), folder.to_string()] {
                assert!(told.contains(word) && !told.contains("4711") && !told.contains("/in"), "{told}");
            }
        }
    }
}
