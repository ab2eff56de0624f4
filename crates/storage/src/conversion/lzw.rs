//! The format of `compress` (`.Z`): LZW with codes of 9 to 16 bits, the lowest bit first.
//!
//! Codes come in groups of eight, so that a group has as many bytes as a code has bits. Where the width changes, and after the code
//! that clears the table, the rest of the group is padding. No standard says so; compress 4.0 of 1985 does.

use std::io::{self, BufRead};

use super::{Coder, PIECE};

/// The first bytes of a file.
const MAGIC: [u8; 2] = [0x1f, 0x9d];
/// The flag of the third byte by which [`CLEAR`] is a code; the lowest five bits are the greatest width.
const BLOCK_MODE: u8 = 0x80;
/// The code that clears the table.
const CLEAR: u32 = 256;
/// The width of the first codes, in bits.
const FIRST_WIDTH: u32 = 9;
/// The greatest width.
const LAST_WIDTH: u32 = 16;

/// Codes on their way to or from bytes.
#[derive(Debug)]
struct Codes {
    bits: u32,
    count: u32,
    width: u32,
    /// How many codes of the present group were passed.
    group: u32,
}

impl Codes {
    fn new() -> Self {
        Self { bits: 0, count: 0, width: FIRST_WIDTH, group: 0 }
    }

    fn write(&mut self, code: u32, out: &mut Vec<u8>) {
        self.bits |= code << self.count;
        self.count += self.width;
        while self.count >= 8 {
            self.write_byte(out);
        }
        self.group = (self.group + 1) % 8;
    }

    fn write_byte(&mut self, out: &mut Vec<u8>) {
        out.push(self.bits as u8);
        self.bits >>= 8;
        self.count = self.count.saturating_sub(8);
    }

    /// Goes over to another width, with a new group.
    fn widen(&mut self, width: u32, out: &mut Vec<u8>) {
        while self.group != 0 {
            self.write(0, out);
        }
        self.width = width;
    }

    /// Returns the next code; `None` at the end.
    fn read(&mut self, source: &mut impl BufRead) -> io::Result<Option<u32>> {
        while self.count < self.width {
            let mut byte = [0];
            if source.read(&mut byte)? == 0 {
                return Ok(None);
            }
            self.bits |= u32::from(byte[0]) << self.count;
            self.count += 8;
        }
        let code = self.bits & ((1 << self.width) - 1);
        self.bits >>= self.width;
        self.count -= self.width;
        self.group = (self.group + 1) % 8;
        Ok(Some(code))
    }

    /// As `widen`, of codes that are read.
    fn skip_to(&mut self, width: u32, source: &mut impl BufRead) -> io::Result<()> {
        while self.group != 0 && self.read(source)?.is_some() {}
        (self.width, self.group) = (width, 0);
        Ok(())
    }
}

/// The codes of strings, each a known string and one byte more: a hash table.
struct Table {
    /// 0 for none, else one more than the string's code and its last byte.
    keys: Vec<u32>,
    codes: Vec<u16>,
}

impl Table {
    /// Twice as many places as codes, so that a search ends soon.
    const BITS: u32 = LAST_WIDTH + 1;

    fn new() -> Self {
        Self { keys: vec![0; 1 << Self::BITS], codes: vec![0; 1 << Self::BITS] }
    }

    /// Returns the code of a string, or the place where it belongs.
    fn find(&self, prefix: u32, byte: u8) -> Result<u32, usize> {
        let key = (prefix << 8 | u32::from(byte)) + 1;
        let mut place = (key.wrapping_mul(0x9e37_79b1) >> (u32::BITS - Self::BITS)) as usize;
        while self.keys[place] != 0 {
            if self.keys[place] == key {
                return Ok(self.codes[place].into());
            }
            place = (place + 1) % self.keys.len();
        }
        Err(place)
    }

    fn put(&mut self, place: usize, (prefix, byte): (u32, u8), code: u32) {
        self.keys[place] = (prefix << 8 | u32::from(byte)) + 1;
        self.codes[place] = code as u16;
    }
}

/// Compresses.
pub(super) struct Encoder<R> {
    source: R,
    codes: Codes,
    table: Table,
    /// The next code that a string gets.
    free: u32,
    /// The code of what was read and not yet written.
    prefix: Option<u32>,
    has_begun: bool,
}

impl<R: BufRead> Encoder<R> {
    pub(super) fn new(source: R) -> Self {
        let (codes, table) = (Codes::new(), Table::new());
        Self { source, codes, table, free: CLEAR + 1, prefix: None, has_begun: false }
    }

    fn take(&mut self, byte: u8, out: &mut Vec<u8>) {
        let Some(prefix) = self.prefix.replace(byte.into()) else { return };
        let place = match self.table.find(prefix, byte) {
            Ok(code) => {
                self.prefix = Some(code);
                return;
            }
            Err(place) => place,
        };
        self.codes.write(prefix, out);
        if self.free >> self.codes.width != 0 && self.codes.width < LAST_WIDTH {
            self.codes.widen(self.codes.width + 1, out);
        }
        if self.free >> LAST_WIDTH == 0 {
            self.table.put(place, (prefix, byte), self.free);
            self.free += 1;
        } else {
            self.codes.write(CLEAR, out);
            self.codes.widen(FIRST_WIDTH, out);
            self.table.keys.fill(0);
            self.free = CLEAR + 1;
        }
    }
}

impl<R: BufRead + Send> Coder for Encoder<R> {
    fn step(&mut self, out: &mut Vec<u8>) -> io::Result<bool> {
        if !self.has_begun {
            out.extend_from_slice(&MAGIC);
            out.push(BLOCK_MODE | LAST_WIDTH as u8);
            self.has_begun = true;
        }
        let piece = self.source.fill_buf()?.to_vec();
        self.source.consume(piece.len());
        piece.iter().for_each(|&byte| self.take(byte, out));
        if !piece.is_empty() {
            return Ok(true);
        }
        if let Some(last) = self.prefix.take() {
            self.codes.write(last, out);
        }
        if self.codes.count > 0 {
            self.codes.write_byte(out);
        }
        Ok(false)
    }
}

/// Decompresses.
pub(super) struct Decoder<R> {
    source: R,
    codes: Codes,
    /// The strings by their codes: each the string of a lower code, and one byte more.
    strings: Vec<(u16, u8)>,
    /// The greatest width in this file; 0 until its head was read.
    last_width: u32,
    is_block_mode: bool,
    /// The code before, unless the table is new.
    previous: Option<u32>,
}

impl<R: BufRead> Decoder<R> {
    pub(super) fn new(source: R) -> Self {
        let codes = Codes::new();
        Self { source, codes, strings: Vec::new(), last_width: 0, is_block_mode: false, previous: None }
    }

    fn read_head(&mut self) -> io::Result<()> {
        let mut head = [0; 3];
        self.source.read_exact(&mut head)?;
        self.last_width = u32::from(head[2] & 0x1f);
        self.is_block_mode = head[2] & BLOCK_MODE != 0;
        if head[..2] != MAGIC || !(FIRST_WIDTH..=LAST_WIDTH).contains(&self.last_width) {
            return Err(corrupt());
        }
        self.clear();
        Ok(())
    }

    /// Forgets all strings but those of one byte.
    fn clear(&mut self) {
        self.strings.clear();
        let first_free = if self.is_block_mode { CLEAR + 1 } else { CLEAR };
        self.strings.extend((0..first_free).map(|code| (0, code as u8)));
        self.previous = None;
    }

    /// Appends the string of a code.
    fn take(&mut self, code: u32, out: &mut Vec<u8>) -> io::Result<()> {
        let start = out.len();
        let free = self.strings.len() as u32;
        // The code that this one makes known: the string before, and its first byte once more.
        let known = match self.previous {
            Some(previous) if code == free => previous,
            _ if code < free => code,
            _ => return Err(corrupt()),
        };
        let mut rest = known;
        while rest > 0xff {
            let (prefix, byte) = self.strings[rest as usize];
            out.push(byte);
            rest = prefix.into();
        }
        out.push(rest as u8);
        out[start..].reverse();
        let first = out[start];
        if code == free {
            out.push(first);
        }
        if let Some(previous) = self.previous.replace(code).filter(|_| free >> self.last_width == 0) {
            self.strings.push((previous as u16, first));
        }
        Ok(())
    }
}

impl<R: BufRead + Send> Coder for Decoder<R> {
    fn step(&mut self, out: &mut Vec<u8>) -> io::Result<bool> {
        if self.last_width == 0 {
            self.read_head()?;
        }
        while out.len() < PIECE {
            let Some(code) = self.codes.read(&mut self.source)? else { return Ok(false) };
            if code == CLEAR && self.is_block_mode {
                self.codes.skip_to(FIRST_WIDTH, &mut self.source)?;
                self.clear();
                continue;
            }
            self.take(code, out)?;
            let width = self.codes.width;
            if self.strings.len() >> width != 0 && width < self.last_width {
                self.codes.skip_to(width + 1, &mut self.source)?;
            }
        }
        Ok(true)
    }
}

fn corrupt() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "it is no file of compress, or a damaged one")
}
