//! Why wire bytes are not a file.

use thiserror::Error;

/// Why wire bytes are not a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum CodecError {
    /// The connection closed before the end of the file was marked.
    #[error("the data ended before the end of the file")]
    Truncated,
    /// Bytes came after the end of the file.
    #[error("data after the end of the file")]
    TrailingData,
    /// STRU R: 0xFF with an unknown code.
    #[error("0x{0:02X} is no record mark")]
    BadEscape(u8),
    /// MODE B: a descriptor with bits that mean nothing together.
    #[error("0x{0:02X} is no block descriptor")]
    BadDescriptor(u8),
    /// MODE B: a restart marker that is empty, too long or not printable.
    #[error("the restart marker is not 1 to 255 printable characters")]
    BadMarker,
    /// MODE Z: not a zlib stream, or one whose checksum is wrong.
    #[error("the compressed data is damaged")]
    Corrupt,
}
