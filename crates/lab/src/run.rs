//! Runs a plan, and reports it.

use millrace_load::elsewhere::Generators;
use millrace_load::plan::Plan;
use millrace_load::progress::Progress;
use millrace_load::run::RunError;

use crate::report::Report;

/// Takes every figure of a plan, as [`millrace_load::run::run`] does, and puts them into a report.
pub fn run(plan: &Plan, progress: &dyn Progress) -> Result<Report, RunError> {
    run_from(plan, None, progress)
}

/// Does the same by the load of generators, where there are any.
pub fn run_from(
    plan: &Plan,
    generators: Option<&dyn Generators>,
    progress: &dyn Progress,
) -> Result<Report, RunError> {
    Ok(Report::of(plan, millrace_load::run::run_from(plan, generators, progress)?))
}
