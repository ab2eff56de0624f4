//! What each side allows the other (RFC 9113 section 6.5).

use super::fault::Fault;
use super::frame::{self, DEFAULT_WINDOW, ErrorCode, FRAME_SIZE, MAX_WINDOW, kind, setting};

/// What this side allows its peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectionLimits {
    /// Streams that a client may have open at a time.
    pub streams: u32,
    /// Bytes of a body that the peer may send on a stream before they are used.
    pub stream_window: u32,
    /// The same on all streams together; at least 65,535.
    pub connection_window: u32,
    /// Bytes of the fields of a message, 32 for each besides.
    pub field_bytes: u32,
}

impl Default for ConnectionLimits {
    /// For a server: what one client holds is bounded by the window of the connection.
    fn default() -> Self {
        Self { streams: 100, stream_window: 1 << 20, connection_window: 1 << 20, field_bytes: 16 * 1024 }
    }
}

impl ConnectionLimits {
    /// Appends the `SETTINGS` of a server.
    pub(super) fn write_as_server(&self, out: &mut Vec<u8>) {
        write(
            &[
                (setting::MAX_CONCURRENT_STREAMS, self.streams),
                (setting::INITIAL_WINDOW_SIZE, self.stream_window),
                (setting::MAX_HEADER_LIST_SIZE, self.field_bytes),
            ],
            out,
        );
    }

    /// Appends the `SETTINGS` of a client.
    pub(super) fn write_as_client(&self, out: &mut Vec<u8>) {
        write(
            &[
                (setting::ENABLE_PUSH, 0),
                (setting::INITIAL_WINDOW_SIZE, self.stream_window),
                (setting::MAX_HEADER_LIST_SIZE, self.field_bytes),
            ],
            out,
        );
    }
}

fn write(settings: &[(u16, u32)], out: &mut Vec<u8>) {
    let payload: Vec<u8> = settings
        .iter()
        .flat_map(|(key, value)| {
            let ([a, b], [c, d, e, f]) = (key.to_be_bytes(), value.to_be_bytes());
            [a, b, c, d, e, f]
        })
        .collect();
    frame::write(kind::SETTINGS, 0, 0, &payload, out);
}

/// What the peer allows this side.
#[derive(Debug, Clone, Copy)]
pub(super) struct PeerSettings {
    /// Bytes that a new stream may send.
    pub(super) window: u32,
    /// Bytes of a frame's payload.
    pub(super) frame_size: usize,
    /// Streams open at a time.
    pub(super) streams: u32,
}

impl Default for PeerSettings {
    fn default() -> Self {
        Self { window: DEFAULT_WINDOW, frame_size: FRAME_SIZE, streams: u32::MAX }
    }
}

impl PeerSettings {
    /// Takes what the peer says.
    pub(super) fn update(&mut self, payload: &[u8]) -> Result<(), Fault> {
        let (settings, rest) = payload.as_chunks::<6>();
        if !rest.is_empty() {
            return Err(Fault::Connection(ErrorCode::FRAME_SIZE_ERROR, "SETTINGS is cut"));
        }
        for &[a, b, c, d, e, f] in settings {
            let value = u32::from_be_bytes([c, d, e, f]);
            match u16::from_be_bytes([a, b]) {
                setting::ENABLE_PUSH if value > 1 => {
                    return Err(Fault::Connection(
                        ErrorCode::PROTOCOL_ERROR,
                        "ENABLE_PUSH is neither 0 nor 1",
                    ));
                }
                setting::INITIAL_WINDOW_SIZE if i64::from(value) > MAX_WINDOW => {
                    let reason = "INITIAL_WINDOW_SIZE is too large";
                    return Err(Fault::Connection(ErrorCode::FLOW_CONTROL_ERROR, reason));
                }
                setting::INITIAL_WINDOW_SIZE => self.window = value,
                setting::MAX_FRAME_SIZE if !(FRAME_SIZE as u32..1 << 24).contains(&value) => {
                    let reason = "MAX_FRAME_SIZE is out of range";
                    return Err(Fault::Connection(ErrorCode::PROTOCOL_ERROR, reason));
                }
                setting::MAX_FRAME_SIZE => self.frame_size = value as usize,
                setting::MAX_CONCURRENT_STREAMS => self.streams = value,
                // The encoder keeps no table, and unknown settings are ignored.
                _ => {}
            }
        }
        Ok(())
    }
}
