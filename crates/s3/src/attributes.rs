//! Attributes of files, as the metadata of their objects.
//!
//! ```text
//! x-amz-meta-mtime            1700000000.123456789   a time that was set, as rclone writes it
//! x-amz-meta-millrace-mode    640                    permission bits, octal
//! x-amz-meta-millrace-owner   1000:1000              user and group
//! x-amz-meta-millrace-hash    SHA-256:ba78...        of the whole content, made while it was uploaded
//! x-amz-meta-millrace-upload  9f3c...                which upload has made it
//! ```
//!
//! They go with the object: what replaces it has its own, what copies it copies them. Some stores keep no metadata of
//! markers of folders (`name/`), but their type, which has it then: `application/x-directory; mode=750`.

use millrace_vfs::hash::Hashes;
use millrace_vfs::{Change, Owner, Timestamp};

use crate::http::Answer;

const TIME: &str = "x-amz-meta-mtime";
const MODE: &str = "x-amz-meta-millrace-mode";
const OWNER: &str = "x-amz-meta-millrace-owner";
const HASH: &str = "x-amz-meta-millrace-hash";
const UPLOAD: &str = "x-amz-meta-millrace-upload";

/// The type of a folder's marker.
const MARKER: &str = "application/x-directory";

/// What an object says of its file, as far as it does.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Attributes {
    pub(crate) modified: Option<Timestamp>,
    pub(crate) mode: Option<u32>,
    pub(crate) owner: Option<Owner>,
    pub(crate) hashes: Option<Hashes>,
    pub(crate) upload: Option<String>,
}

impl Attributes {
    /// Reads them from an answer to `HEAD` or `GET`.
    pub(crate) fn of(answer: &Answer) -> Self {
        let owner = |text: &str| {
            let (user, group) = text.split_once(':')?;
            Some(Owner { user: user.parse().ok()?, group: group.parse().ok()? })
        };
        let marker = answer.header("content-type").and_then(|text| text.strip_prefix(MARKER)).unwrap_or("");
        let or_of_marker = |header, name| {
            let of_marker =
                |word: &'_ str| word.trim().strip_prefix(name)?.strip_prefix('=').map(str::to_owned);
            answer.header(header).map(str::to_owned).or_else(|| marker.split(';').find_map(of_marker))
        };
        Self {
            modified: or_of_marker(TIME, "mtime").and_then(|text| parse_time(&text)),
            mode: or_of_marker(MODE, "mode").and_then(|text| u32::from_str_radix(&text, 8).ok()),
            owner: or_of_marker(OWNER, "owner").and_then(|text| owner(&text)),
            hashes: answer.header(HASH).and_then(Hashes::parse),
            upload: answer.header(UPLOAD).map(str::to_owned),
        }
    }

    /// The headers that store them.
    pub(crate) fn headers(&self) -> Vec<(&'static str, String)> {
        let time = self.modified.map(|time| format!("{}.{:09}", time.seconds, time.nanoseconds));
        let owner = self.owner.map(|owner| format!("{}:{}", owner.user, owner.group));
        let all = [
            (TIME, time),
            (MODE, self.mode.map(|mode| format!("{mode:o}"))),
            (OWNER, owner),
            (HASH, self.hashes.as_ref().map(Hashes::to_string)),
            (UPLOAD, self.upload.clone()),
        ];
        all.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
    }

    /// The headers that store them with the marker of a folder.
    pub(crate) fn marker_headers(&self) -> Vec<(&'static str, String)> {
        let headers = self.headers();
        let mut kind = MARKER.to_owned();
        for (header, name) in [(TIME, "mtime"), (MODE, "mode"), (OWNER, "owner")] {
            if let Some((_, value)) = headers.iter().find(|(of, _)| *of == header) {
                kind.push_str(&format!("; {name}={value}"));
            }
        }
        headers.into_iter().chain([("content-type", kind)]).collect()
    }

    /// Those of new content under the same name: its mode and owner.
    pub(crate) fn inherited(&self) -> Self {
        Self { mode: self.mode, owner: self.owner, ..Self::default() }
    }

    /// The same with a change made.
    pub(crate) fn changed(mut self, change: Change) -> Self {
        self.modified = change.modified.or(self.modified);
        self.mode = change.mode.or(self.mode);
        if change.user.is_some() || change.group.is_some() {
            let old = self.owner.unwrap_or_default();
            let (user, group) = (change.user.unwrap_or(old.user), change.group.unwrap_or(old.group));
            self.owner = Some(Owner { user, group });
        }
        self
    }
}

/// Seconds, with or without up to nine digits behind the point.
fn parse_time(text: &str) -> Option<Timestamp> {
    let (seconds, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits = fraction.get(..fraction.len().min(9))?;
    let nanoseconds = format!("{digits:0<9}").parse().ok()?;
    Some(Timestamp { seconds: seconds.parse().ok()?, nanoseconds })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_rclone_writes_them() {
        let time = |seconds, nanoseconds| Some(Timestamp { seconds, nanoseconds });
        assert_eq!(parse_time("1354040105.123456789"), time(1_354_040_105, 123_456_789));
        assert_eq!(parse_time("1354040105.5"), time(1_354_040_105, 500_000_000));
        assert_eq!(parse_time("1354040105"), time(1_354_040_105, 0));
        assert_eq!(parse_time("x.5"), None);
        assert_eq!(parse_time("5.x"), None);
    }
}
