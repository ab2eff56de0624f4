//! What a command has of its terminal: it prints there, and ends with an exit code that says whose fault it was.

use std::fmt;
use std::io::{self, IsTerminal, Write, stdout};
use std::process::ExitCode;

/// Why a command gives up: a full sentence or more, and what to do.
#[derive(Debug)]
pub enum Failure {
    /// The request is invalid: exit code 2, as for an unknown flag.
    Configuration(String),
    /// The system did not do its part: exit code 1.
    Running(String),
}

impl Failure {
    /// Returns the exit code of a command that ends so.
    pub fn exit_code(&self) -> ExitCode {
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

/// Prints to standard output. A reader that has gone (`millrace bench ... | head`) is no failure.
pub fn print(text: &str) -> Result<(), Failure> {
    match stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::Running(format!("standard output cannot be written: {error}.")))
        }
        _ => Ok(()),
    }
}

/// Returns true if it is a terminal, and color is not disabled (<https://no-color.org>).
pub fn has_color(stream: &impl IsTerminal) -> bool {
    stream.is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}
