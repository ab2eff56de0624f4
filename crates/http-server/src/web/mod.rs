//! What HTTP adds to files, as an administrator has said it: fields of answers, whose pages may read them, pages of
//! errors, files that lie there compressed.
//!
//! All of it is decided by a path, a type, a status or a field of the request. What can be known once a file is opened
//! is written then, into the lines that are kept with it, so that no request pays for it.

mod fields;
mod links;

use std::borrow::Cow;
use std::ops::Deref;
use std::sync::Arc;

use millrace_accounts::{HostName, plain_host};
use millrace_hooks::PathPattern;
use millrace_http::{Head, Status};
use millrace_storage::Withheld;
use millrace_vfs::VirtualPath;

pub use fields::{FieldError, FieldRule, Fields};
pub use links::{LinkKeys, LinkKeysError};
pub use millrace_http::cors::{Grant, Origin};
pub use millrace_http::download_origin::{DownloadOrigin, InvalidDownloadOrigin};
pub(crate) use millrace_http::link::BadLink as Bad;
pub use millrace_http::link::{Gives, Link};
pub use millrace_http::media_type::Types;

/// What HTTP adds to files.
#[derive(Debug, Clone)]
pub struct Web {
    /// Names of files that are sent in place of the page of their folder; the first one that is there.
    pub index: Vec<Vec<u8>>,
    /// What files are by the ends of their names.
    pub types: Types,
    /// Names of hosts that the accounts tell apart.
    pub hosts: Vec<HostName>,
    /// Whether `a.css.br`, `a.css.zst` or `a.css.gz` may be sent in place of `a.css`.
    pub precompressed: bool,
    /// Files of up to this many bytes get a `Repr-Digest` where one is wanted.
    pub digest_bytes: u64,
    /// Fields of answers.
    pub fields: Fields,
    /// What pages of other origins may do; the first one for a path decides.
    pub cors: Vec<Cors>,
    /// In place of our own pages; the first one for a status and path is sent.
    pub error_pages: Vec<ErrorPage>,
    /// The keys of links that expire.
    pub links: LinkKeys,
    /// Where browsers open the files of users, in place of the origins to which users log in.
    pub download_origin: Option<IsolatedOrigin>,
    /// Whether requests in clear are sent on.
    pub https_redirect: HttpsRedirect,
}

/// An origin that answers signed links only, so that browsers have no login for it.
#[derive(Debug, Clone)]
pub struct IsolatedOrigin {
    /// Where it is.
    pub origin: DownloadOrigin,
    /// Fields of its answers: they need no sandbox.
    pub fields: Fields,
}

/// Whether requests that come in clear are sent on to HTTPS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum HttpsRedirect {
    /// They are answered.
    #[default]
    Off,
    /// To the port of the first listener of HTTPS.
    ToOwn,
    /// To this port, where clients reach that by another one.
    To(u16),
}

impl Default for Web {
    fn default() -> Self {
        Self {
            index: vec![b"index.html".to_vec(), b"index.htm".to_vec()],
            types: Types::default(),
            hosts: Vec::new(),
            precompressed: false,
            digest_bytes: 0,
            fields: Fields::default(),
            cors: Vec::new(),
            error_pages: Vec::new(),
            links: LinkKeys::default(),
            download_origin: None,
            https_redirect: HttpsRedirect::Off,
        }
    }
}

/// The present settings, with a generation: data made with an earlier one is not kept.
#[derive(Debug)]
pub struct CompiledWebConfig {
    web: Web,
    /// Files that are never sent.
    pub(crate) withheld: Withheld,
    pub(crate) generation: u64,
}

impl CompiledWebConfig {
    /// The first one.
    pub fn new(web: Web, withheld: Withheld) -> Arc<Self> {
        Arc::new(Self { web, withheld, generation: 0 })
    }

    /// The one that comes behind this.
    pub(crate) fn next(&self, web: Web) -> Arc<Self> {
        Arc::new(Self { web, withheld: self.withheld.clone(), generation: self.generation + 1 })
    }
}

impl Deref for CompiledWebConfig {
    type Target = Web;

    fn deref(&self) -> &Web {
        &self.web
    }
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
    pub media_type: Cow<'static, str>,
    /// The page.
    pub body: Arc<[u8]>,
}

impl ErrorPage {
    /// A page with this type and content.
    pub fn new(
        statuses: Vec<u16>,
        paths: Vec<PathPattern>,
        media_type: Cow<'static, str>,
        body: Vec<u8>,
    ) -> Self {
        Self { statuses, paths, hosts: Vec::new(), media_type, body: body.into() }
    }
}

impl Web {
    /// The lines about other origins for an answer, or of a preflight; empty where none are said.
    pub(crate) fn cors_lines(&self, path: &VirtualPath, head: &Head, is_preflight: bool) -> String {
        let mut lines = String::new();
        if let Some(cors) = self.cors.iter().find(|cors| covers(&cors.paths, path)) {
            match is_preflight {
                true => cors.grant.preflight_lines(head, &mut lines),
                false => cors.grant.lines(head, &mut lines),
            }
        }
        lines
    }

    /// The page for a status; `target` is the requested target as written, and `host` the requested host.
    pub(crate) fn error_page(&self, status: Status, target: &[u8], host: &[u8]) -> Option<&ErrorPage> {
        if self.error_pages.is_empty() || status.0 < 400 {
            return None;
        }
        let parsed = millrace_http::target::parse_for_others(target);
        let path = parsed.map_or(VirtualPath::root(), |target| target.path);
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
