//! `millrace limits`: what this machine allows.

use std::process::ExitCode;

use millrace_lab::limits;

use millrace_terminal::{Failure, print};

/// Prints it.
pub fn run() -> Result<ExitCode, Failure> {
    print(&limits::render().to_string())?;
    Ok(ExitCode::SUCCESS)
}
