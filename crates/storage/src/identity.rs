//! Identities of what has none of a file system's: numbers that differ where what they stand for does, and that are the
//! same behind a restart, as locks and properties of WebDAV are kept by them.

/// The number of a name (FNV-1a).
pub fn number(name: &[u8]) -> u64 {
    name.iter().fold(0xcbf2_9ce4_8422_2325, |number, &byte| {
        (number ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}
