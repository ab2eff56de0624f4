//! What HTTP adds to files, as an administrator has said it: fields of answers, whose pages may read them, pages of
//! errors, files that lie there compressed.
//!
//! All of it is decided by a path, a type, a status or a field of the request. What can be known once a file is opened
//! is written then, into the lines that are kept with it, so that no request pays for it.

mod fields;
mod links;

use std::sync::Arc;

use millrace_http::{Head, Status, media_type};
use millrace_vfs::VirtualPath;

use crate::auth::{HostName, plain_host};
use crate::hooks::PathPattern;

pub use fields::{FieldError, FieldRule, Fields};
pub(crate) use links::Bad;
pub use links::{Link, LinkKeys};
pub use millrace_http::cors::{Grant, Origin};

/// What HTTP adds to files.
#[derive(Debug, Clone, Default)]
pub struct Web {
    /// Whether `a.css.br`, `a.css.zst` or `a.css.gz` may be sent in place of `a.css`.
    pub precompressed: bool,
    /// Files of up to so many bytes get a `Repr-Digest` where one is wanted.
    pub digest_bytes: u64,
    /// Fields of answers.
    pub fields: Fields,
    /// What pages of other origins may do; the first one for a path decides.
    pub cors: Vec<Cors>,
    /// In place of our own pages; the first one for a status and path is sent.
    pub error_pages: Vec<ErrorPage>,
    /// The keys of links that expire.
    pub links: LinkKeys,
}

/// What pages of other origins may do with some files.
#[derive(Debug, Clone)]
pub struct Cors {
    /// With which files; empty: with all.
    pub paths: Vec<PathPattern>,
    /// What.
    pub grant: Grant,
}

/// A page that is sent in place of ours.
#[derive(Debug, Clone)]
pub struct ErrorPage {
    /// For these statuses; empty: for all errors.
    pub statuses: Vec<u16>,
    /// For these paths; empty: for all.
    pub paths: Vec<PathPattern>,
    /// For those who came by these names; empty: for all.
    pub hosts: Vec<HostName>,
    /// Its media type.
    pub media_type: &'static str,
    /// The page.
    pub body: Arc<[u8]>,
}

impl ErrorPage {
    /// A page with this content; its type is that of the file's name.
    pub fn new(statuses: Vec<u16>, paths: Vec<PathPattern>, name: &[u8], body: Vec<u8>) -> Self {
        Self { statuses, paths, hosts: Vec::new(), media_type: media_type::of(name), body: body.into() }
    }
}

impl Web {
    /// The lines about other origins for an answer, or of a preflight; empty where none are said.
    pub(crate) fn cors_lines(&self, path: &VirtualPath, head: &Head<'_, '_>, is_preflight: bool) -> String {
        let mut lines = String::new();
        if let Some(cors) = self.cors.iter().find(|cors| covers(&cors.paths, path)) {
            match is_preflight {
                true => cors.grant.preflight_lines(head, &mut lines),
                false => cors.grant.lines(head, &mut lines),
            }
        }
        lines
    }

    /// The page for a status; `target` is what was asked for, as it was written, and `host` of whom.
    pub(crate) fn error_page(&self, status: Status, target: &[u8], host: &[u8]) -> Option<&ErrorPage> {
        if self.error_pages.is_empty() || status.0 < 400 {
            return None;
        }
        let path = millrace_http::target::parse(target).map_or(VirtualPath::root(), |target| target.path);
        let host = plain_host(host);
        self.error_pages.iter().find(|page| {
            (page.statuses.is_empty() || page.statuses.contains(&status.0))
                && covers(&page.paths, &path)
                && (page.hosts.is_empty() || page.hosts.iter().any(|name| name.covers(&host)))
        })
    }
}

fn covers(patterns: &[PathPattern], path: &VirtualPath) -> bool {
    patterns.is_empty() || patterns.iter().any(|pattern| pattern.covers(path))
}
