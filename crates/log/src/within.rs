//! In which trace an operation stands: what events and requests bring along for their spans.

use std::time::Duration;

use millrace_http::traceparent::TraceParent;

/// What an operation is a part of, and so which trace it is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Within {
    /// Its session, which is one of FTP.
    Session,
    /// A request of HTTP.
    Request(RequestTrace),
    /// Nothing that has a span.
    Nothing,
}

/// What traces tell of a request of HTTP besides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestTrace {
    /// Which of its session it is.
    pub number: u64,
    /// How long ago its head came.
    pub age: Duration,
    /// The trace that the client says it is a part of.
    pub caller: Option<TraceParent>,
}

/// What traces tell of a login besides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tried {
    /// How long it took to decide.
    pub took: Duration,
    /// What it was a part of.
    pub within: Within,
}

impl Tried {
    /// Of a login for which nothing was measured.
    pub const UNKNOWN: Self = Self { took: Duration::ZERO, within: Within::Nothing };
}
