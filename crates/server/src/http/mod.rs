//! HTTP connections: the same files, accounts and logs as FTP, on the same reactors.
//!
//! ```text
//!              head whole                 found            sent
//!   Idle ------------------> (exchange) --------> Sending ------> Idle, or closing
//!     ^                        |   ^
//!     |                        v   | the pool's answer
//!     |                       Asked
//! ```
//!
//! - `connection.rs` has one client, and drives `millrace_http::h1::ServerConnection`; `reading.rs` what it sends, `sending.rs` what it is sent, `deadlines.rs` how long
//!   either may take, `ending.rs` how it ends.
//! - `link.rs` has its socket, with TLS or without; `secure.rs` the handshake.
//! - `h2/` has connections of HTTP/2: each of their streams is a `Connection` without a socket.
//! - `exchange.rs` has one request on a connection (`Exchange`), and decides what answers it; `who.rs` authenticates
//!   it; `get.rs` answers `GET`.
//! - `to_https.rs` sends requests on that came in clear.
//! - `file.rs` answers with a file, `answer.rs` with anything else, and `record.rs` tells the log.
//! - `writing.rs` has those that change files, `trees.rs` whole folders, `receive.rs` takes a body into a file.
//! - `tus/` has uploads that go on where they were cut.
//! - `dav/` has WebDAV: properties, and locks.
//! - `passing.rs` has those that others answer, by FastCGI (`conversation.rs`) or by HTTP (`side/forward.rs`).
//! - `cgi.rs` has those that a program answers, `program.rs` its process, `programs.rs` all of a worker's.
//! - `running.rs` has a running answer of an upstream; `running/relaying.rs` moves its data.
//! - `admin.rs` has what an administrator sees and does.
//! - `hooking.rs` asks hooks, and tells them.
//! - `find.rs` says what a path stands for, and `cache.rs` remembers it for as long as it is true.
//! - `body.rs` sends what does not fit into one write, `listing.rs` makes the pages of directories.
//!
//! A request's head is read once. What waits for the pool holds it, and its memory is used again for later ones.

mod admin;
mod answer;
mod answerer;
mod body;
mod cache;
mod cgi;
mod chunks;
mod connection;
mod conversation;
mod dav;
mod deadlines;
mod ending;
mod exchange;
mod file;
mod find;
mod get;
mod h2;
mod hooking;
mod index;
mod link;
mod listing;
mod passing;
mod program;
mod programs;
mod reading;
mod receive;
mod record;
mod running;
mod secure;
mod sending;
mod side;
mod to_https;
mod trees;
mod tus;
mod who;
mod writing;

use std::sync::Arc;

use millrace_http::h1::Heads;
use millrace_http::response::PreparedFields;
use millrace_vfs::FileError;

pub(crate) use cache::Cache;
pub(crate) use connection::Connection;
pub(crate) use dav::Dav;
pub(crate) use h2::{Http2Connection, StreamDriver};
pub(crate) use passing::Passing;
pub(crate) use side::{Kept, Side};
pub(crate) use tus::Tus;

use crate::auth::Decision;
use crate::slab::Key;
use crate::state::Server;
use crate::transfer::Sender;
use crate::web::{InForce, Web};
use find::Found;
use hooking::Ruled;
use programs::{Lane, Line, Programs};
use receive::Written;

/// What other threads tell a connection; each with the number of the question that it answers.
#[derive(Debug)]
pub(crate) enum Message {
    /// A login of this user was decided, by this edition of the accounts.
    Login(u64, Vec<u8>, Decision, u64),
    /// What a path stands for.
    Found(u64, Result<Found, FileError>),
    /// More of the body that is sent is ready.
    Filled(u64, Option<Sender>, Result<(), FileError>),
    /// A part of a body that a client sent was written, or not.
    Written(u64, Written),
    /// Hooks have answered.
    Ruled(u64, Ruled),
    /// Hooks have heard what they were told.
    Heard,
    /// The account of this user was looked at again.
    Reviewed(Vec<u8>, Decision),
}

/// What all HTTP connections of a worker share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) cache: Cache,
    pub(crate) heads: Heads,
    pub(crate) programs: Programs,
    /// As many as there are passes.
    pub(crate) passing: Vec<Passing>,
    /// The header fields that are added to files.
    pub(crate) web: Arc<InForce>,
    openings: Openings,
    /// Connections of HTTP/2 with something to hand on between them and their streams.
    pub(crate) multiplexed: Vec<Key>,
    /// Memory for frames, which they share.
    frames: Vec<u8>,
}

/// The lines that answers begin with; made once a second.
#[derive(Debug)]
struct Openings {
    /// The second that they were made for.
    second: i64,
    /// For those that add their own fields, and for others; each also for encrypted connections.
    lines: [[PreparedFields; 2]; 2],
    /// Fields that are configured for answers without a file.
    of_others: Vec<u8>,
    /// That browsers are to come by HTTPS, where they did.
    of_encrypted: Vec<u8>,
}

/// Which fields an answer begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Opening {
    /// `Server` and `Date`: the others are with the file, or what a program has said.
    Bare,
    /// Those that are configured as well.
    Whole,
}

impl Shared {
    /// For one of the workers of a server.
    pub(crate) fn new(server: &Server) -> Self {
        let (config, web) = (&server.config, server.web());
        let open_files = server.sessions.descriptors().for_files();
        let programs = Programs::new(config.programs.most.div_ceil(config.workers.max(1)).max(1));
        let passing = config.passes.iter().map(|pass| Passing::new(pass, config.workers)).collect();
        let openings = Openings::new(&web);
        Self {
            cache: Cache::new(open_files),
            heads: Heads::default(),
            programs,
            passing,
            openings,
            multiplexed: Vec::new(),
            frames: Vec::new(),
            web,
        }
    }

    fn lane(&mut self, line: Line) -> &mut Lane {
        match line {
            Line::Programs => self.programs.lane(),
            Line::Pass(pass) => self.passing[pass].lane(),
        }
    }

    /// Replaces the additional header fields; cached files contain the old ones.
    pub(crate) fn replace_web(&mut self, web: Arc<InForce>) {
        self.openings = Openings::new(&web);
        self.cache.clear();
        self.web = web;
    }
}

impl Openings {
    fn new(web: &Web) -> Self {
        let of_encrypted = match web.fields.transport_security {
            None => Vec::new(),
            Some(time) => format!("Strict-Transport-Security: max-age={}\r\n", time.as_secs()).into_bytes(),
        };
        let of_others = web.fields.of_others();
        Self { second: i64::MIN, lines: Default::default(), of_others, of_encrypted }
    }

    /// The lines of an answer in this second.
    fn lines(&mut self, second: i64, opening: Opening, encrypted: bool) -> &PreparedFields {
        if self.second != second {
            self.second = second;
            for (whole, both) in self.lines.iter_mut().enumerate() {
                for (encrypted, lines) in both.iter_mut().enumerate() {
                    let mut text = b"Server: Millrace\r\nDate: ".to_vec();
                    millrace_http::date::write(second, &mut text);
                    text.extend_from_slice(b"\r\n");
                    text.extend_from_slice(if whole > 0 { &self.of_others } else { &[] });
                    text.extend_from_slice(if encrypted > 0 { &self.of_encrypted } else { &[] });
                    *lines = text.into();
                }
            }
        }
        &self.lines[opening as usize][usize::from(encrypted)]
    }
}

/// What a client is told that cannot be served now.
pub(crate) fn refusal(reason: &str, out: &mut Vec<u8>) {
    use millrace_http::{Status, page};
    use std::io::Write;
    let (status, page) = (Status::SERVICE_UNAVAILABLE, page::of(Status::SERVICE_UNAVAILABLE, reason));
    let _ = write!(
        out,
        "HTTP/1.1 {} {}\r\nConnection: close\r\nRetry-After: 10\r\nContent-Type: {}\r\nContent-Length: {}\r\n\r\n",
        status.0,
        status.reason(),
        page::MEDIA_TYPE,
        page.len()
    );
    out.extend_from_slice(&page);
}
