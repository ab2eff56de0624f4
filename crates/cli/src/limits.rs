//! `millrace limits`: what this machine allows.

use std::process::ExitCode;

use millrace_bench::limits;

use crate::failure::Failure;

pub(crate) fn run() -> Result<ExitCode, Failure> {
    print!("{}", limits::render());
    Ok(ExitCode::SUCCESS)
}
