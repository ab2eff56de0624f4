//! Uploads that go on where they were cut (tus 1.0), for browsers and phones.
//!
//! ```text
//!   POST /folder/          -> 201, Location: /.millrace-uploads/...     a partial upload beside the file
//!   HEAD   /.millrace-...  -> Upload-Offset: what came so far
//!   PATCH  /.millrace-...  -> more of it; with the last byte it becomes the file
//!   DELETE /.millrace-...  -> it is given up
//!   POST /folder/ with the addresses of uploads that came: they become one file (`resumable/joining.rs`)
//! ```
//!
//! The bytes go into a staged file that the storage keeps ([`Storage::open_partial`]); what else is known of an upload
//! is in its address (`address.rs`), but for a length that is said only later (`lengths.rs`). So hardly anything has to
//! be remembered, and a restart loses nothing.

pub(crate) mod address;
pub(crate) mod lengths;
pub(crate) mod nodes;
pub(crate) mod shared;

use millrace_http::target::Target;
use millrace_http::tus::{Becomes, Concern};
use millrace_http::{Head, tus};
use millrace_log::Log;
use millrace_vfs::VirtualPath;

use crate::tus_state::shared::Tus;

/// Header fields of refusals.
pub(crate) const OF_REFUSALS: [(&str, &str); 2] =
    [("Tus-Resumable", tus::VERSION), ("Cache-Control", "no-store")];

impl Tus {
    /// Returns which operation of tus a request is, if it is one.
    pub(crate) fn concern(&self, head: &Head, target: Option<&Target<'_>>) -> Option<Concern> {
        let target = target.filter(|_| self.is_spoken())?;
        tus::concern(head, address::is_address(&target.path))
    }

    /// The file that a new upload is for, as its words have it, and its bytes where they say how many; for hooks, which are
    /// asked before it is known whether the path is a folder. `None` for a part, which is not a file by itself.
    pub(crate) fn named(
        &self,
        log: &Log,
        head: &Head,
        target: &Target<'_>,
    ) -> Option<(VirtualPath, Option<u64>)> {
        let tus::Creation { length, becomes, name, .. } = tus::creation(head).ok()?;
        let length = match becomes {
            Becomes::File => length,
            Becomes::Part => return None,
            Becomes::Whole { parts, .. } => {
                let length = |part: &[u8]| self.opened(log, &VirtualPath::parse(part).ok()?)?.length;
                parts.iter().try_fold(0_u64, |sum, part| sum.checked_add(length(part)?))
            }
        };
        let path = tus::file_path(&target.path, target.is_directory, name.as_deref()).ok()?;
        Some((path, length))
    }

    /// Returns true if a path is an upload's address, whatever else it might name.
    pub(crate) fn is_upload(&self, path: &VirtualPath) -> bool {
        self.is_spoken() && address::is_address(path)
    }
}
