//! A value and where it was written.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use super::error::ValueError;
use super::value::Value;

/// A value and where it was written.
#[derive(Debug, Clone, Default)]
pub(crate) struct Said<T> {
    pub(crate) value: T,
    pub(crate) place: Place,
}

/// Where a value was written.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) enum Place {
    #[default]
    CommandLine,
    /// The environment variable of this name.
    Environment(String),
    /// The bytes of the configuration file.
    File(Range<usize>),
}

impl<T> Said<T> {
    pub(crate) fn on_command_line(value: T) -> Self {
        Self { value, place: Place::CommandLine }
    }
}

impl Said<PathBuf> {
    /// Returns false for `off`, which stands for no file.
    pub(crate) fn is_file(&self) -> bool {
        self.value != Path::new("off")
    }
}

impl<T: Value> FromStr for Said<T> {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        T::from_text(text).map(Self::on_command_line)
    }
}
