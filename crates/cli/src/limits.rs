//! `millrace limits`: what this machine allows.

use std::process::ExitCode;

use millrace_lab::limits;

use crate::bench::output::print;
use crate::failure::Failure;

pub(crate) fn run() -> Result<ExitCode, Failure> {
    print(&limits::render().to_string())?;
    Ok(ExitCode::SUCCESS)
}
