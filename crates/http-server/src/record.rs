//! What the access log tells of a request.

use std::borrow::Cow;
use std::time::{Duration, Instant};

use millrace_http::target::{self};
use millrace_http::{Field, Framing, Head, Method, Status, Version};
use millrace_log::Direction;
use millrace_metrics::Waits;
use millrace_vfs::{Conversion, VirtualPath};

use crate::tus_state::address::without_seal;
use crate::web::LinkKeys;

/// What the access log tells of a request.
#[derive(Debug)]
pub(crate) struct Record {
    pub(crate) method: String,
    pub(crate) target: Vec<u8>,
    pub(crate) version: Version,
    pub(crate) host: Option<Vec<u8>>,
    pub(crate) referer: Option<Vec<u8>>,
    pub(crate) agent: Option<Vec<u8>>,
    pub(crate) status: Status,
    /// Bytes of the body.
    pub(crate) bytes: u64,
    pub(crate) began: Instant,
    /// How long the first byte of its file took, once that is sent.
    pub(crate) first_byte: Option<Duration>,
    /// What its body has waited for.
    pub(crate) waits: Waits,
    /// The answer has no body whatever its head says.
    pub(crate) head_only: bool,
    /// The request has a body.
    pub(crate) has_body: bool,
    pub(crate) persistent: bool,
    /// Its body is a file's.
    pub(crate) is_file: bool,
    /// What is done to the file's bytes on their way.
    pub(crate) conversion: Conversion,
    /// Where something is moved or copied.
    pub(crate) destination: Option<VirtualPath>,
    /// The hashes of an upload that were computed on its way.
    pub(crate) hash: Option<String>,
}

/// How much is written down of a line that could not be understood.
const LINE: usize = 200;

impl Record {
    /// Of a request that could not be understood, with the line that it begins with.
    pub(crate) fn of_malformed(bytes: &[u8], version: Version, now: Instant) -> Self {
        let line = bytes.split(|byte| matches!(byte, b'\r' | b'\n')).next().unwrap_or_default();
        Self {
            method: String::new(),
            target: line[..line.len().min(LINE)].to_vec(),
            host: None,
            version,
            referer: None,
            agent: None,
            status: Status::BAD_REQUEST,
            bytes: 0,
            began: now,
            first_byte: None,
            waits: Waits::default(),
            head_only: false,
            has_body: false,
            persistent: false,
            is_file: false,
            conversion: Conversion::default(),
            destination: None,
            hash: None,
        }
    }

    pub(crate) fn of(head: &Head, persistent: bool, now: Instant) -> Self {
        Self {
            method: head.method_text().to_owned(),
            target: head.target().to_owned(),
            version: head.version,
            host: head.get(Field::Host).map(<[u8]>::to_owned),
            referer: head.get(Field::Referer).map(<[u8]>::to_owned),
            agent: head.get(Field::UserAgent).map(<[u8]>::to_owned),
            status: Status::OK,
            bytes: 0,
            began: now,
            first_byte: None,
            waits: Waits::default(),
            head_only: head.wants_head_only(),
            has_body: head.framing != Framing::None,
            persistent,
            is_file: false,
            conversion: Conversion::default(),
            destination: destination(head),
            hash: None,
        }
    }
}

impl Record {
    /// Returns where the bytes of its body go.
    pub(crate) fn direction(&self) -> Direction {
        if self.has_body { Direction::Upload } else { Direction::Download }
    }
}

/// A request target as it may be written down: who reads what others have sent has not what it gives them.
pub(crate) fn shown<'a>(links: &LinkKeys, target: &'a [u8]) -> Cow<'a, [u8]> {
    without_seal(target).map_or_else(|| links.without_signature(target), Cow::Owned)
}

/// The path that `Destination` names.
pub(crate) fn destination(head: &Head) -> Option<VirtualPath> {
    match head.method {
        Method::Move | Method::Copy => {
            target::parse(head.get(Field::Destination)?).ok().map(|target| target.path)
        }
        _ => None,
    }
}
