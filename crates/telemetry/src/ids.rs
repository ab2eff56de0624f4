//! Which trace a span is in, and its number there.
//!
//! A session of FTP is a trace, and so is a request of HTTP whose client names no other. Their numbers follow from those that the
//! log gives them, by a key of this process: what belongs together finds its parent, which has not ended yet, without a place
//! where such numbers are kept.

use std::sync::atomic::{AtomicU64, Ordering};

use millrace_log::{Operation, Span, Within};
use ring::hmac;
use ring::rand::SystemRandom;

/// Bytes of the number of a trace.
const TRACE_ID: usize = 16;

/// Bytes of that of a span.
const SPAN_ID: usize = 8;

/// Where a span stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ids {
    pub(crate) trace: [u8; TRACE_ID],
    pub(crate) span: [u8; SPAN_ID],
    /// The span that it is a part of.
    pub(crate) parent: Option<[u8; SPAN_ID]>,
}

/// What numbers are made of.
#[derive(Debug)]
pub(crate) struct Numbering {
    key: hmac::Key,
    /// How many spans had numbers of their own.
    others: AtomicU64,
}

impl Numbering {
    /// One that no other process has.
    pub(crate) fn new() -> Self {
        let key = hmac::Key::generate(hmac::HMAC_SHA256, &SystemRandom::new());
        Self { key: key.expect("every Linux since 3.17 has getrandom"), others: AtomicU64::new(0) }
    }

    /// Returns where a span stands.
    pub(crate) fn ids(&self, span: &Span) -> Ids {
        let is_whole = matches!(span.operation, Operation::Session { .. } | Operation::Request { .. });
        let (whole, caller) = match span.within {
            Within::Session => (self.made(b"session", [span.session, 0]), None),
            Within::Request(request) => {
                (self.made(b"request", [span.session, request.number]), request.caller)
            }
            Within::Nothing => return self.other(),
        };
        let trace = caller.map_or(whole.trace, |caller| caller.trace);
        match is_whole {
            true => Ids { trace, parent: caller.map(|caller| caller.span), ..whole },
            false => Ids { trace, parent: Some(whole.span), ..self.other() },
        }
    }

    /// Returns those of a span that no other is a part of.
    fn other(&self) -> Ids {
        self.made(b"other", [self.others.fetch_add(1, Ordering::Relaxed), 0])
    }

    fn made(&self, of: &[u8], numbers: [u64; 2]) -> Ids {
        let mut context = hmac::Context::with_key(&self.key);
        context.update(of);
        numbers.iter().for_each(|number| context.update(&number.to_be_bytes()));
        let tag = context.sign();
        let (trace, rest) = tag.as_ref().split_first_chunk().expect("a tag has 32 bytes");
        let span = rest.first_chunk().expect("16 of them are left");
        Ids { trace: *trace, span: *span, parent: None }
    }
}
