//! In place of what sends, where the program is built without it: all settings are refused.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use millrace_log::Spans;

use super::settings::{Observed, Settings, SetupError};

/// A collector, or what sends to it: there is neither.
#[derive(Debug, Clone)]
pub enum Absent {}

impl Absent {
    /// Refuses these settings.
    pub fn new(_: Settings) -> Result<Self, SetupError> {
        Err(SetupError::NotBuilt)
    }

    /// Is never called.
    pub fn start(collector: Self, _: Arc<dyn Observed>, _: Arc<Spans>) -> io::Result<Self> {
        match collector {}
    }

    /// Is never called.
    pub fn tells_processes_apart(&self) -> bool {
        match *self {}
    }

    /// Is never called.
    pub fn finish(&self, _: Duration) {}
}
