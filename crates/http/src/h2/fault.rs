//! What ends a stream or a connection, as this side finds it.

use super::frame::ErrorCode;

/// What ends a connection, or one stream of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    Connection(ErrorCode, &'static str),
    Stream(u32, ErrorCode),
}

/// A rule of the connection is broken.
pub(super) const fn protocol<T>(reason: &'static str) -> Result<T, Fault> {
    Err(Fault::Connection(ErrorCode::PROTOCOL_ERROR, reason))
}

/// A frame has not the length of its type.
pub(super) const fn too_short<T>() -> Result<T, Fault> {
    Err(Fault::Connection(ErrorCode::FRAME_SIZE_ERROR, "a frame is too short"))
}
