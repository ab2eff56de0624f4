//! HTTP/1.1 and 1.0 for files: what a request means, and how it is answered (RFC 9110, RFC 9112).
//!
//! Everything here is a function of bytes, of what was looked up (a file's metadata, permissions, locks) and of the time;
//! nothing opens a socket or a file, or reads a clock. The server and the benchmark both drive it.
//!
//! - [`request`] parses a head in place and decides how its body is framed; what could be understood in two
//!   ways is refused, so that no proxy in front of us can be made to see other requests than we do.
//! - [`target`] turns a request target into a path; [`h1`] has what both sides of a connection share.
//! - [`conditional`], [`range`] and [`negotiate`] are the rules of RFC 9110 sections 13, 14 and 12.
//! - [`change`] decides what a request that changes files does.
//! - [`retrieval`] decides which part of a file answers a `GET`.
//! - [`cors`] is what pages of other origins may do (Fetch), [`digest`] RFC 9530.
//! - [`cgi`] is what a program is told, and answers (RFC 3875),
//!   and [`fastcgi`] carries the same to an application that stays.
//! - [`dav`] is what WebDAV adds (RFC 4918), [`tus`] what uploads add that go on where they were cut.
//! - [`h2`] is HTTP/2 on a connection, both sides as values.
//! - [`link`] is what a signed link grants.
//! - [`redirect`] is where clients are sent on to.
//! - [`internal_redirect`] makes requests that others lead to within the server.
//! - [`traceparent`] is which trace a request is a part of.
//! - [`response`] writes heads, [`index`] the pages of directories, [`page`] those of errors.

// Tests may read a clock and files.
#![cfg_attr(test, allow(clippy::disallowed_methods))]

pub mod authorization;
pub mod base64;
pub mod cgi;
pub mod change;
pub mod conditional;
pub mod cors;
pub mod date;
pub mod dav;
pub mod digest;
pub mod download_origin;
pub mod fastcgi;
pub mod forwarded;
pub mod h1;
pub mod h2;
pub mod index;
pub mod internal_redirect;
pub mod link;
pub mod media_type;
pub mod negotiate;
pub mod page;
pub mod range;
pub mod redirect;
pub mod request;
pub mod response;
pub mod retrieval;
pub mod status;
pub mod target;
pub mod traceparent;
pub mod tus;

pub use request::{Field, Framing, Head, Method, Refusal, Version};
pub use status::Status;
