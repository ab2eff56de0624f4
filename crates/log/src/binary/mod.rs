//! The binary log: requests of HTTP and transfers of FTP in records of one size, in a file that is used as a ring
//! ([`ring`]). [`convert`] makes text of it.
//!
//! An entry is a record, and as many more as its names need:
//!
//! ```text
//! bytes   first record                        further records
//! 0       checksum of the rest                the same
//! 8       sequence number                     the same, one more for each
//! 16      1: a request, 2: a transfer         3
//! 17      records of the entry                the same
//! 18      0                                   which of them
//! 19      flags                               0
//! 20      bytes of names in this record (16 bits)
//! 22      status, or 0 (16 bits)              names
//! 24      port (16 bits)
//! 26      version of HTTP                     (further records have their names from here,
//! 27      direction of a transfer             byte 24, on)
//! 32      time in microseconds since 1970
//! 40      how long it took, in microseconds
//! 48      bytes moved
//! 56      session
//! 64      address (IPv4 as in IPv6)
//! 80      waited for each cause, in milliseconds (32 bits each)
//! 112     names
//! 255     a line feed                         the same
//! ```
//!
//! Numbers have 64 bits where nothing else is said, and begin with their lowest byte. A name is its length (16 bits; 65,535:
//! there is none) and its bytes. Of names that are too long the beginning is kept, with `...` behind it.

mod convert;
mod entry;
mod record;
mod ring;
#[cfg(test)]
mod tests;

pub use self::convert::{ConvertError, Converted, Form, convert};
pub(super) use self::entry::{write_request, write_transfer};
pub(super) use self::record::entries;
pub(super) use self::ring::RingFile;
