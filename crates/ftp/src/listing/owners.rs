//! How the owners of files are named in listings.

use std::fmt;

/// Looks up who owns files, for those who read names rather than numbers.
pub trait OwnerNames: Send + Sync + fmt::Debug {
    /// Appends the name of a user, or the number if it has no name.
    fn user(&self, id: u32, out: &mut Vec<u8>);
    /// Appends the name of a group, or the number if it has no name.
    fn group(&self, id: u32, out: &mut Vec<u8>);
}

/// Numbers instead of names: nothing of the system's accounts is shown.
#[derive(Debug, Clone, Copy, Default)]
pub struct NumericOwners;

impl OwnerNames for NumericOwners {
    fn user(&self, id: u32, out: &mut Vec<u8>) {
        crate::decimal::push_decimal(u64::from(id), out);
    }

    fn group(&self, id: u32, out: &mut Vec<u8>) {
        crate::decimal::push_decimal(u64::from(id), out);
    }
}

/// One name for every owner and every group.
#[derive(Debug, Clone, Copy)]
pub struct FixedOwners(
    /// The name, for example `ftp`.
    pub &'static str,
);

impl OwnerNames for FixedOwners {
    fn user(&self, _: u32, out: &mut Vec<u8>) {
        out.extend_from_slice(self.0.as_bytes());
    }

    fn group(&self, _: u32, out: &mut Vec<u8>) {
        out.extend_from_slice(self.0.as_bytes());
    }
}
