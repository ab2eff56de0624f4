//! Why the command gives up: whose fault it was decides the exit code.

use std::fmt;
use std::process::ExitCode;

/// A full sentence or more, and what to do.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The request is invalid: exit code 2, as for an unknown flag.
    Configuration(String),
    /// The system did not do its part: exit code 1.
    Running(String),
}

impl Failure {
    pub(crate) fn exit_code(&self) -> ExitCode {
        match self {
            Self::Configuration(_) => ExitCode::from(2),
            Self::Running(_) => ExitCode::from(1),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Configuration(text) | Self::Running(text) => formatter.write_str(text),
        }
    }
}

impl std::error::Error for Failure {}
