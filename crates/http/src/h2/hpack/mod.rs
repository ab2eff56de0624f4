//! HPACK: the compression of fields (RFC 7541).

mod decoder;
mod encoder;
pub mod huffman;
pub(super) mod table;

pub use decoder::{FieldDecoder, HpackError};
pub use encoder::FieldEncoder;

#[cfg(test)]
mod vectors;
