//! Why the command gives up: whose fault it was decides the exit code.

use std::fmt;
use std::process::ExitCode;

use millrace_admin::client::ClientError;

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

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        match error {
            ClientError::Usage(_) => Self::Configuration(error.to_string()),
            error => Self::Running(error.to_string()),
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
