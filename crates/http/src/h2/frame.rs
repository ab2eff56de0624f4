//! Frames: their heads, types, flags and error codes (RFC 9113 sections 4, 6 and 7).

/// What a client's side of a connection begins with (RFC 9113 section 3.4).
pub const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Bytes of a frame's head.
pub const FRAME_HEAD: usize = 9;

/// Bytes of a frame's payload at most where nothing else is agreed on; this side never agrees on more.
pub const FRAME_SIZE: usize = 16_384;

/// The largest window (RFC 9113 section 6.9.1).
pub(super) const MAX_WINDOW: i64 = (1 << 31) - 1;

/// The window that streams and connections begin with.
pub(super) const DEFAULT_WINDOW: u32 = 65_535;

/// Types of frames.
pub(super) mod kind {
    pub(in crate::h2) const DATA: u8 = 0;
    pub(in crate::h2) const HEADERS: u8 = 1;
    pub(in crate::h2) const PRIORITY: u8 = 2;
    pub(in crate::h2) const RST_STREAM: u8 = 3;
    pub(in crate::h2) const SETTINGS: u8 = 4;
    pub(in crate::h2) const PUSH_PROMISE: u8 = 5;
    pub(in crate::h2) const PING: u8 = 6;
    pub(in crate::h2) const GOAWAY: u8 = 7;
    pub(in crate::h2) const WINDOW_UPDATE: u8 = 8;
    pub(in crate::h2) const CONTINUATION: u8 = 9;
}

/// Flags; `ACK` is that of `SETTINGS` and `PING`.
pub(super) mod flag {
    pub(in crate::h2) const END_STREAM: u8 = 1;
    pub(in crate::h2) const ACK: u8 = 1;
    pub(in crate::h2) const END_HEADERS: u8 = 4;
    pub(in crate::h2) const PADDED: u8 = 8;
    pub(in crate::h2) const PRIORITY: u8 = 0x20;
}

/// Keys of `SETTINGS`.
pub(super) mod setting {
    pub(in crate::h2) const ENABLE_PUSH: u16 = 2;
    pub(in crate::h2) const MAX_CONCURRENT_STREAMS: u16 = 3;
    pub(in crate::h2) const INITIAL_WINDOW_SIZE: u16 = 4;
    pub(in crate::h2) const MAX_FRAME_SIZE: u16 = 5;
    pub(in crate::h2) const MAX_HEADER_LIST_SIZE: u16 = 6;
}

/// Why a stream or a connection ends (RFC 9113 section 7).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ErrorCode(pub u32);

#[allow(missing_docs)] // The names are the RFC's.
impl ErrorCode {
    pub const NO_ERROR: Self = Self(0);
    pub const PROTOCOL_ERROR: Self = Self(1);
    pub const INTERNAL_ERROR: Self = Self(2);
    pub const FLOW_CONTROL_ERROR: Self = Self(3);
    pub const STREAM_CLOSED: Self = Self(5);
    pub const FRAME_SIZE_ERROR: Self = Self(6);
    pub const REFUSED_STREAM: Self = Self(7);
    pub const CANCEL: Self = Self(8);
    pub const COMPRESSION_ERROR: Self = Self(9);
    pub const ENHANCE_YOUR_CALM: Self = Self(11);
}

/// The head of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FrameHead {
    /// Bytes of the payload.
    pub(super) length: u32,
    pub(super) kind: u8,
    pub(super) flags: u8,
    pub(super) stream: u32,
}

impl FrameHead {
    pub(super) fn parse(bytes: [u8; FRAME_HEAD]) -> Self {
        let [high, middle, low, kind, flags, stream @ ..] = bytes;
        let length = u32::from_be_bytes([0, high, middle, low]);
        Self { length, kind, flags, stream: u32::from_be_bytes(stream) & MAX_WINDOW as u32 }
    }

    pub(super) fn has(self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    pub(super) fn bytes(self) -> [u8; FRAME_HEAD] {
        let [_, high, middle, low] = self.length.to_be_bytes();
        let [a, b, c, d] = self.stream.to_be_bytes();
        [high, middle, low, self.kind, self.flags, a, b, c, d]
    }
}

/// Appends a frame.
pub(super) fn write(kind: u8, flags: u8, stream: u32, payload: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&FrameHead { length: payload.len() as u32, kind, flags, stream }.bytes());
    out.extend_from_slice(payload);
}

/// Appends a `RST_STREAM`.
pub(super) fn write_reset(stream: u32, code: ErrorCode, out: &mut Vec<u8>) {
    write(kind::RST_STREAM, 0, stream, &code.0.to_be_bytes(), out);
}

/// Appends a `GOAWAY` that names the last stream of the peer's which is served.
pub(super) fn write_goaway(last: u32, code: ErrorCode, out: &mut Vec<u8>) {
    let [a, b, c, d] = last.to_be_bytes();
    let [e, f, g, h] = code.0.to_be_bytes();
    write(kind::GOAWAY, 0, 0, &[a, b, c, d, e, f, g, h], out);
}

/// Appends a `WINDOW_UPDATE`.
pub(super) fn write_window_update(stream: u32, increment: u32, out: &mut Vec<u8>) {
    write(kind::WINDOW_UPDATE, 0, stream, &increment.to_be_bytes(), out);
}

/// Appends the fragments of a field block that stands behind `start` in `out`, where room for the head of its first frame was left.
pub(super) fn finish_block(start: usize, stream: u32, ends: bool, frame_size: usize, out: &mut Vec<u8>) {
    let flags = if ends { flag::END_STREAM } else { 0 };
    let block = out.len() - start - FRAME_HEAD;
    if block <= frame_size {
        let flags = flags | flag::END_HEADERS;
        let head = FrameHead { length: block as u32, kind: kind::HEADERS, flags, stream };
        out[start..start + FRAME_HEAD].copy_from_slice(&head.bytes());
        return;
    }
    // Far beyond what fields of files need: it may cost a copy.
    let block = out.split_off(start + FRAME_HEAD);
    out.truncate(start);
    let count = block.len().div_ceil(frame_size);
    for (at, fragment) in block.chunks(frame_size).enumerate() {
        let kind = if at == 0 { kind::HEADERS } else { kind::CONTINUATION };
        let first = if at == 0 { flags } else { 0 };
        let last = if at + 1 == count { flag::END_HEADERS } else { 0 };
        write(kind, first | last, stream, fragment, out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_read_as_it_was_written() {
        let head = FrameHead { length: 0x01_0203, kind: 9, flags: 5, stream: 0x7fff_fffe };
        assert_eq!(FrameHead::parse(head.bytes()), head);
        let reserved = [0, 0, 0, 0, 0, 0x80, 0, 0, 1];
        assert_eq!(FrameHead::parse(reserved).stream, 1, "the reserved bit is passed over");
    }

    #[test]
    fn a_long_block_is_continued() {
        let mut out = b"before".to_vec();
        out.extend_from_slice(&[0; FRAME_HEAD]);
        out.extend_from_slice(&[7; 25]);
        finish_block(6, 3, true, 10, &mut out);
        let mut rest = &out[6..];
        for (kind, flags, length) in [(1, flag::END_STREAM, 10), (9, 0, 10), (9, flag::END_HEADERS, 5)] {
            let head = FrameHead::parse(rest[..FRAME_HEAD].try_into().unwrap());
            assert_eq!(head, FrameHead { length, kind, flags, stream: 3 });
            rest = &rest[FRAME_HEAD + length as usize..];
        }
        assert_eq!(rest, b"");
    }
}
