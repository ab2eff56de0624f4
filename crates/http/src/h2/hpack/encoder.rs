//! Field blocks put together (RFC 7541 section 6).
//!
//! Nothing enters the dynamic table: most fields of responses of files differ from one to the next, and a block that refers to
//! none can be prepared once and sent again.

use super::huffman;
use super::table::{index_of, index_of_pair};
use crate::Status;

/// Appends fields to a block.
#[derive(Debug)]
pub struct FieldEncoder<'a> {
    out: &'a mut Vec<u8>,
}

impl<'a> FieldEncoder<'a> {
    /// Appends to `out`.
    pub fn new(out: &'a mut Vec<u8>) -> Self {
        Self { out }
    }

    /// Adds the status; it stands before every other field.
    pub fn status(&mut self, status: Status) -> &mut Self {
        match status.0 {
            200 => self.out.push(0x88),
            204 => self.out.push(0x89),
            206 => self.out.push(0x8a),
            304 => self.out.push(0x8b),
            400 => self.out.push(0x8c),
            404 => self.out.push(0x8d),
            500 => self.out.push(0x8e),
            other => {
                self.out.push(8);
                string(itoa::Buffer::new().format(other).as_bytes(), self.out);
            }
        }
        self
    }

    /// Adds a field. The name is in lower case; neither part holds a control character.
    pub fn field(&mut self, name: &str, value: &[u8]) -> &mut Self {
        debug_assert!(!name.bytes().any(|byte| byte.is_ascii_uppercase()));
        if let Some(index) = index_of_pair(name.as_bytes(), value) {
            integer(0x80, 7, index, self.out);
            return self;
        }
        match index_of(name.as_bytes()) {
            Some(index) => integer(0, 4, index, self.out),
            None => {
                self.out.push(0);
                string(name.as_bytes(), self.out);
            }
        }
        string(value, self.out);
        self
    }

    /// Adds `content-length`.
    pub fn length(&mut self, length: u64) -> &mut Self {
        self.field("content-length", itoa::Buffer::new().format(length).as_bytes())
    }

    /// Adds fields that were encoded before.
    pub fn block(&mut self, block: &[u8]) -> &mut Self {
        self.out.extend_from_slice(block);
        self
    }
}

/// A number behind the bits `first`, with this many bits for it in its first byte (RFC 7541 section 5.1).
fn integer(first: u8, prefix: u32, number: usize, out: &mut Vec<u8>) {
    let mask = (1 << prefix) - 1;
    if number < mask {
        return out.push(first | number as u8);
    }
    out.push(first | mask as u8);
    let mut rest = number - mask;
    while rest >= 0x80 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

/// Text, in Huffman's code where that is shorter.
fn string(text: &[u8], out: &mut Vec<u8>) {
    let length = huffman::encoded_length(text);
    if length < text.len() {
        integer(0x80, 7, length, out);
        huffman::encode(text, out);
    } else {
        integer(0, 7, text.len(), out);
        out.extend_from_slice(text);
    }
}
