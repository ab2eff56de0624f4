//! Answers with a file: the whole, a range of it, several, or what its conditions say.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use millrace_http::retrieval::{self, FileAnswer, Multipart};
use millrace_http::{Field, Head, Status, digest};
use millrace_limits::Direction;
use millrace_vfs::ReadStream;

use crate::answer::{AnswerHeads, Answers};
use crate::body::Part;
use crate::connection::exchange::Exchange;
use crate::lookup::{Entry, FileContent};
use crate::worker::Core;

/// Answers with a file, in whole or in part, or with what its conditions say.
pub(crate) fn answer_file(
    exchange: &mut Exchange<'_>,
    entry: &Arc<Entry>,
    stream: Option<Box<dyn ReadStream>>,
) {
    let head = exchange.head;
    // No answer is dated before what it is about was changed, not even within a turn.
    if entry.validators.modified > exchange.core.now.wall.seconds {
        exchange.core.look_at_clock();
    }
    // Parts are of what the file is, their coding is not theirs; and a stream is read once, from one place.
    let multipart = match entry.coding.is_none() && stream.is_none() {
        true => Multipart::Possible,
        false => Multipart::Impossible,
    };
    let now = exchange.core.now.wall.seconds;
    match retrieval::file(head, &entry.validators, entry.size, multipart, now) {
        Ok(FileAnswer::Whole) => answer_part(exchange, entry, stream, None),
        Ok(FileAnswer::Part(range)) => answer_part(exchange, entry, stream, Some(range)),
        Ok(FileAnswer::Parts(ranges)) => answer_parts(exchange, entry, &ranges),
        Ok(FileAnswer::NotModified) => {
            discard(exchange.core, stream);
            answer_not_modified(exchange, entry);
        }
        Ok(FileAnswer::Unsatisfiable) => {
            discard(exchange.core, stream);
            let record = exchange.record();
            let range = format!("bytes */{}", entry.size);
            let fields = [("Content-Range", &*range)];
            let reason = "The file has no such range.";
            Answers::new(exchange.connection, exchange.core).answer_page(
                record,
                Status::RANGE_NOT_SATISFIABLE,
                reason,
                &fields,
            );
        }
        Err(refusal) => {
            discard(exchange.core, stream);
            exchange.fail(refusal.status, refusal.reason);
        }
    }
}

fn answer_not_modified(exchange: &mut Exchange<'_>, entry: &Entry) {
    let head = exchange.head;
    let (goes_on, is_isolated) = (exchange.may_go_on(), exchange.is_at_download_origin());
    let mut writer = AnswerHeads::of(exchange.connection).begin_file_head(
        exchange.core,
        Status::NOT_MODIFIED,
        head.version,
        goes_on,
    );
    writer.prepared(entry.lines(is_isolated));
    writer.end();
    exchange.log_answer(Status::NOT_MODIFIED, 0);
}

/// The whole file, or one range of it.
fn answer_part(
    exchange: &mut Exchange<'_>,
    entry: &Arc<Entry>,
    stream: Option<Box<dyn ReadStream>>,
    range: Option<Range<u64>>,
) {
    let head = exchange.head;
    let is_limited = exchange.core.server.limits.is_limited(&exchange.connection.member, Direction::Download);
    // What a limit concerns has to pass here.
    let elsewhere = stream.as_ref().filter(|_| !is_limited && !head.wants_head_only());
    if let Some(url) = elsewhere.and_then(|stream| stream.elsewhere()) {
        discard(exchange.core, stream);
        return answer_elsewhere(exchange, &url);
    }
    let (goes_on, is_isolated) = (exchange.may_go_on(), exchange.is_at_download_origin());
    let status = if range.is_some() { Status::PARTIAL_CONTENT } else { Status::OK };
    let mut writer =
        AnswerHeads::of(exchange.connection).begin_file_head(exchange.core, status, head.version, goes_on);
    writer.bytes("Content-Type", entry.media_type.as_bytes()).prepared(entry.lines(is_isolated));
    if let Some(coding) = entry.coding {
        writer.field("Content-Encoding", coding);
    }
    if let Some(line) = digest_line(head, entry) {
        writer.lines(line.as_bytes());
    }
    if let Some(range) = &range {
        let (first, last) = (range.start, range.end - 1);
        writer.field("Content-Range", format_args!("bytes {first}-{last}/{}", entry.size));
    }
    let range = range.unwrap_or(0..entry.size);
    let length = range.end - range.start;
    writer.length(length);
    writer.end();
    if head.wants_head_only() || length == 0 {
        discard(exchange.core, stream);
        return exchange.log_file(status, 0);
    }
    let part = match (&entry.content, stream) {
        (FileContent::Memory(_), _) if is_limited => {
            Part::Stream(entry.stream(), range.start, Some(range.end))
        }
        (FileContent::Memory(bytes), _) => {
            exchange.core.out.extend_from_slice(&bytes[range.start as usize..range.end as usize]);
            return exchange.log_file(status, length);
        }
        (FileContent::File(file, readiness), _) => Part::File(Arc::clone(file), *readiness, range),
        (FileContent::Stream, Some(stream)) => Part::Stream(stream, range.start, Some(range.end)),
        (FileContent::Stream, None) => return exchange.log_answer(status, 0),
    };
    exchange.begin_file(status, VecDeque::from([part]));
}

/// Sends the client to a store that has the file. The range that it wants it asks for there again.
fn answer_elsewhere(exchange: &mut Exchange<'_>, url: &str) {
    let record = exchange.record();
    Answers::new(exchange.connection, exchange.core).answer_page(
        record,
        Status::TEMPORARY_REDIRECT,
        "The file is at another address.",
        &[("Location", url), ("Cache-Control", "no-store")],
    );
}

/// Several ranges, as `multipart/byteranges` (RFC 9110 section 14.6).
fn answer_parts(exchange: &mut Exchange<'_>, entry: &Arc<Entry>, ranges: &[Range<u64>]) {
    let head = exchange.head;
    let is_limited = exchange.core.server.limits.is_limited(&exchange.connection.member, Direction::Download);
    // Not a secret: only not to be found in the file by accident.
    let boundary = format!(
        "{:016x}{:016x}",
        exchange.core.now.wall.nanoseconds ^ 0x5bd1_e995,
        exchange.core.next_serial()
    );
    let mut parts = VecDeque::with_capacity(ranges.len() * 2 + 1);
    let mut length = 0;
    for range in ranges {
        let (first, last, size) = (range.start, range.end - 1, entry.size);
        let bytes = format!(
            "\r\n--{boundary}\r\nContent-Type: {}\r\nContent-Range: bytes {first}-{last}/{size}\r\n\r\n",
            entry.media_type
        )
        .into_bytes();
        length += bytes.len() as u64 + (range.end - range.start);
        parts.push_back(Part::Bytes(bytes));
        parts.push_back(match &entry.content {
            FileContent::Memory(_) if is_limited => {
                Part::Stream(entry.stream(), range.start, Some(range.end))
            }
            FileContent::Memory(bytes) => {
                Part::Bytes(bytes[range.start as usize..range.end as usize].to_vec())
            }
            FileContent::File(file, readiness) => Part::File(Arc::clone(file), *readiness, range.clone()),
            FileContent::Stream => continue,
        });
    }
    let end = format!("\r\n--{boundary}--\r\n").into_bytes();
    length += end.len() as u64;
    parts.push_back(Part::Bytes(end));

    let (goes_on, is_isolated) = (exchange.may_go_on(), exchange.is_at_download_origin());
    let mut writer = AnswerHeads::of(exchange.connection).begin_file_head(
        exchange.core,
        Status::PARTIAL_CONTENT,
        head.version,
        goes_on,
    );
    writer
        .field("Content-Type", format_args!("multipart/byteranges; boundary={boundary}"))
        .prepared(entry.lines(is_isolated));
    if let Some(line) = digest_line(head, entry) {
        writer.lines(line.as_bytes());
    }
    writer.length(length);
    writer.end();
    exchange.begin_file(Status::PARTIAL_CONTENT, parts);
}

/// Closes an unused stream, where that may block.
fn discard(core: &Core, stream: Option<Box<dyn ReadStream>>) {
    if let Some(stream) = stream {
        core.discard(stream);
    }
}

/// The digest line that a request wants, if the digest is known: the request has had it computed.
fn digest_line(head: &Head, entry: &Entry) -> Option<String> {
    head.get(Field::WantReprDigest)?;
    let algorithm = digest::wanted(head)?;
    entry.digest(algorithm).map(|bytes| digest::line(algorithm, bytes))
}
