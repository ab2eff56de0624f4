//! DER (X.690) as far as certificates need it: values are taken apart, and none are understood.
//!
//! Invalid data yields `None`: no input causes a panic.

/// Tags: of values in a row, and of others.
pub(super) const SEQUENCE: u8 = 0x30;
pub(super) const INTEGER: u8 = 0x02;
pub(super) const BIT_STRING: u8 = 0x03;

/// The version of a certificate; X.509 v1 has none.
pub(super) const VERSION: u8 = 0xa0;

/// Values, one behind the other.
#[derive(Clone, Copy)]
pub(super) struct Der<'a>(pub(super) &'a [u8]);

impl<'a> Der<'a> {
    /// The next value: its tag and content.
    pub(super) fn next(&mut self) -> Option<(u8, Der<'a>)> {
        let (&[tag, length], rest) = self.0.split_first_chunk()?;
        let (length, rest) = match length {
            short @ 0..=0x7f => (usize::from(short), rest),
            long @ 0x81..=0x83 => {
                let (bytes, rest) = rest.split_at_checked(usize::from(long & 0x7f))?;
                (bytes.iter().fold(0, |length, byte| length << 8 | usize::from(*byte)), rest)
            }
            _ => return None,
        };
        let (value, rest) = rest.split_at_checked(length)?;
        self.0 = rest;
        Some((tag, Der(value)))
    }

    /// The content of the next value, if it is of this type.
    pub(super) fn expect(&mut self, tag: u8) -> Option<Der<'a>> {
        let mut ahead = *self;
        let (found, value) = ahead.next()?;
        (found == tag).then(|| {
            *self = ahead;
            value
        })
    }
}
