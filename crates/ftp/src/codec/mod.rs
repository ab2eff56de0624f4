//! The seam between the bytes of a file and the bytes on a data connection: TYPE, STRU and MODE together.
//!
//! An [`Encoder`] makes wire bytes of file bytes (downloads), a [`Decoder`] file bytes of wire bytes
//! (uploads). Both take buffers cut anywhere and keep their memory flat: what one call appends is bounded
//! by its input, or by the caller where the input is compressed. Where [`Coding::is_plain`] there is
//! nothing to do, and the kernel may move the bytes by itself.
//!
//! A decoder knows whether the file came whole. In MODE B and Z, and with records, the wire says where the
//! file ends; [`Decoder::finish`] is an error where it did not, so that lost bytes never get a 226.
//!
//! RFC 959 section 3.4. With STRU R a line of our file is a record, and TYPE A has nothing left to convert:
//! the mark of the record stands for the line end.

pub mod block;
mod decoder;
pub mod deflate;
mod encoder;
mod error;
pub mod record;
#[cfg(test)]
mod tests;

pub use self::decoder::{Decoded, Decoder};
pub use self::encoder::Encoder;
pub use self::error::CodecError;
use crate::ebcdic;

/// How the bytes of a file are represented on the wire (`TYPE`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Type {
    /// `A`: lines end in CR LF.
    #[default]
    Ascii,
    /// `E`: code page 037.
    Ebcdic,
    /// `I`, `L 8`: as they are.
    Image,
}

/// The structure of a file (`STRU`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Structure {
    /// `F`: bytes.
    #[default]
    File,
    /// `R`: records, which are lines of the file here.
    Record,
}

/// How the bytes go over a connection (`MODE`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Mode {
    /// `S`: one after the other; closing the connection ends the file.
    #[default]
    Stream,
    /// `B`: in blocks.
    Block,
    /// `Z`: compressed.
    Deflate {
        /// 0 to 9, when sending.
        level: u8,
    },
}

/// A session's `TYPE`, `STRU` and `MODE`. The default is RFC 959's: ASCII, file, stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Coding {
    /// `TYPE`
    pub representation: Type,
    /// `STRU`
    pub structure: Structure,
    /// `MODE`
    pub mode: Mode,
}

impl Coding {
    /// Image, file, stream: the bytes as they are.
    pub const PLAIN: Self =
        Self { representation: Type::Image, structure: Structure::File, mode: Mode::Stream };

    /// Returns true if file bytes and wire bytes are the same, so that `sendfile` and `splice` may be used.
    pub fn is_plain(&self) -> bool {
        *self == Self::PLAIN
    }

    /// Returns true if closing the connection is what ends the file, so that a lost end cannot be noticed
    /// in the data itself.
    pub fn ends_with_close(&self) -> bool {
        self.mode == Mode::Stream && self.structure == Structure::File
    }

    /// The byte that ends a line where lines are made into records, after translation; `None` with STRU F.
    fn record_end(&self) -> Option<u8> {
        match (self.structure, self.representation) {
            (Structure::File, _) => None,
            (Structure::Record, Type::Ebcdic) => Some(ebcdic::NEW_LINE),
            (Structure::Record, _) => Some(b'\n'),
        }
    }
}
