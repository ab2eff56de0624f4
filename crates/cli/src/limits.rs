//! `millrace limits`: what this machine allows.

use std::process::ExitCode;

use millrace_bench::limits::limits;

use crate::failure::Failure;

pub(crate) fn run() -> Result<ExitCode, Failure> {
    for limit in limits() {
        println!("{limit}");
    }
    Ok(ExitCode::SUCCESS)
}
