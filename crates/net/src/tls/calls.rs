//! The calls for files of certificates and keys go through [`call`], so that tests have each of them fail in turn.

use std::io;

/// Makes a call, unless a test has it fail.
pub(crate) fn call<T>(make: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    #[cfg(test)]
    faults::next()?;
    make()
}

#[cfg(test)]
pub(crate) mod faults;
