//! An upload whose line waits for hooks: they may yet refuse it.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use millrace_metrics::{Cause, Waited};
use millrace_vfs::{Conversion, VirtualPath};

use super::{Direction, Event, Lines, Log, Subject, Transferred, wall};

/// A complete upload that is logged only after hooks have decided whether it stays.
#[derive(Debug, Clone)]
pub struct Undecided {
    /// Where it is written.
    pub log: Log,
    /// Whether it came by HTTP.
    pub by_http: bool,
    /// Whether line ends were converted (TYPE A).
    pub ascii: bool,
    /// How long the first byte took, where that is known.
    pub first_byte: Option<Duration>,
    /// What it has waited for.
    pub waited: Waited,
    /// Since when it waits for hooks.
    pub since: Instant,
    /// The mail address that an anonymous user gave.
    pub guest: Option<Box<[u8]>>,
    /// The file that tells of it, where its host has one of its own.
    pub transfer_log: Option<Arc<Path>>,
}

impl Undecided {
    /// Writes it, from any thread.
    pub fn write(
        &self,
        subject: &Subject<'_>,
        path: &VirtualPath,
        bytes: u64,
        elapsed: Duration,
        hash: Option<&str>,
        failure: Option<&str>,
    ) {
        let (direction, ascii, guest) = (Direction::Upload, self.ascii, self.guest.as_deref());
        let (lag, conversion) = (Duration::ZERO, Conversion::default());
        let transferred = Transferred {
            direction,
            path,
            bytes,
            elapsed,
            first_byte: self.first_byte,
            waited: self.waited.with(Cause::Hook, self.since.elapsed()),
            lag,
            failure,
            hash,
            ascii,
            conversion,
            guest,
            log: self.transfer_log.as_deref(),
        };
        let mut lines = Lines::default();
        match self.by_http {
            true => {
                // The name that FTP shows for an unnamed user.
                let subject = Subject { user: subject.user.or(Some(b"anonymous")), ..*subject };
                self.log.transfer(&mut lines, wall(), &subject, &transferred);
            }
            false => self.log.record(&mut lines, wall(), subject, Event::Transferred(&transferred)),
        }
        self.log.flush(&mut lines);
    }
}
