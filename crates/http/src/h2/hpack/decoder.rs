//! Field blocks taken apart (RFC 7541 sections 3 and 6).

use thiserror::Error;

use super::huffman;
use super::table::{DynamicTable, ENTRIES, STATIC};

/// Why a block cannot be read; the connection cannot go on, as both sides' tables differ from here on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum HpackError {
    /// The block ends within a field.
    #[error("a field block ends within a field")]
    Truncated,
    /// A number has more than 32 bits.
    #[error("a number in a field block is too large")]
    Integer,
    /// Text is no code of Huffman's, or not padded with ones.
    #[error("text in a field block is not in Huffman's code")]
    Huffman,
    /// No entry has this index.
    #[error("a field block points behind the tables")]
    Index,
    /// The table is resized within a block, or beyond what was allowed.
    #[error("a field block resizes the table where or as it may not")]
    Resize,
    /// The fields are many times as long as may be.
    #[error("a field block unfolds to more than may be")]
    Flood,
}

/// What one side of a connection has sent so far, as its fields refer to it.
#[derive(Debug)]
pub struct FieldDecoder {
    table: DynamicTable,
    /// What this side allows the table to count.
    max_size: usize,
    /// For text in Huffman's code, between two fields.
    name: Vec<u8>,
    value: Vec<u8>,
}

/// How a field enters the table.
#[derive(Clone, Copy, PartialEq)]
enum Indexing {
    Added,
    NotAdded,
}

impl FieldDecoder {
    /// Allows a dynamic table of this size (`SETTINGS_HEADER_TABLE_SIZE`), in bytes as RFC 7541 section 4.1 counts.
    pub fn new(max_size: usize) -> Self {
        Self { table: DynamicTable::new(max_size), max_size, name: Vec::new(), value: Vec::new() }
    }

    /// Gives the fields of a whole block to `take`, which says whether it takes more.
    pub fn decode(
        &mut self,
        mut block: &[u8],
        mut take: impl FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), HpackError> {
        let mut may_resize = true;
        while let Some(&first) = block.first() {
            if first & 0xe0 == 0x20 {
                let size = integer(&mut block, 5)?;
                if !may_resize || size > self.max_size {
                    return Err(HpackError::Resize);
                }
                self.table.resize(size);
                continue;
            }
            may_resize = false;
            if first & 0x80 != 0 {
                let index = integer(&mut block, 7)?;
                let (name, value) = entry(&self.table, index)?;
                taken(take(name, value))?;
            } else if first & 0x40 != 0 {
                self.literal(&mut block, 6, Indexing::Added, &mut take)?;
            } else {
                self.literal(&mut block, 4, Indexing::NotAdded, &mut take)?;
            }
        }
        Ok(())
    }

    fn literal(
        &mut self,
        block: &mut &[u8],
        prefix: u32,
        indexing: Indexing,
        take: &mut impl FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), HpackError> {
        let index = integer(block, prefix)?;
        let Self { table, name, value, .. } = self;
        let name = match index {
            0 => text(block, name)?,
            index => {
                let known = entry(table, index)?.0;
                match index <= STATIC {
                    true => ENTRIES[index - 1].0.as_bytes(),
                    // The entry may be evicted by this very field.
                    false => {
                        name.clear();
                        name.extend_from_slice(known);
                        name
                    }
                }
            }
        };
        let value = text(block, value)?;
        if indexing == Indexing::Added {
            table.insert(name, value);
        }
        taken(take(name, value))
    }
}

fn taken(is_taken: bool) -> Result<(), HpackError> {
    if is_taken { Ok(()) } else { Err(HpackError::Flood) }
}

fn entry(table: &DynamicTable, index: usize) -> Result<(&[u8], &[u8]), HpackError> {
    match index {
        0 => Err(HpackError::Index),
        1..=STATIC => Ok((ENTRIES[index - 1].0.as_bytes(), ENTRIES[index - 1].1.as_bytes())),
        _ => table.get(index - STATIC - 1).ok_or(HpackError::Index),
    }
}

/// A number whose first byte has this many bits for it (RFC 7541 section 5.1).
fn integer(block: &mut &[u8], prefix: u32) -> Result<usize, HpackError> {
    let (&first, mut rest) = block.split_first().ok_or(HpackError::Truncated)?;
    let mask = (1_u32 << prefix) - 1;
    let mut number = u64::from(u32::from(first) & mask);
    if number == u64::from(mask) {
        let mut shift = 0;
        loop {
            let (&byte, behind) = rest.split_first().ok_or(HpackError::Truncated)?;
            rest = behind;
            number += u64::from(byte & 0x7f) << shift;
            shift += 7;
            if byte & 0x80 == 0 {
                break;
            }
            if shift > 28 {
                return Err(HpackError::Integer);
            }
        }
    }
    *block = rest;
    u32::try_from(number).map(|number| number as usize).map_err(|_| HpackError::Integer)
}

/// Text: as it stands in the block, or decoded into `room` (RFC 7541 section 5.2).
fn text<'t, 'b: 't>(block: &mut &'b [u8], room: &'t mut Vec<u8>) -> Result<&'t [u8], HpackError> {
    let is_coded = block.first().is_some_and(|first| first & 0x80 != 0);
    let length = integer(block, 7)?;
    let (text, rest) = block.split_at_checked(length).ok_or(HpackError::Truncated)?;
    *block = rest;
    if !is_coded {
        return Ok(text);
    }
    room.clear();
    huffman::decode(text, room)?;
    Ok(room)
}
