//! Resource limits of started programs (`setrlimit`).

use std::sync::{PoisonError, RwLock};
use std::time::Duration;

use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};

/// The limits of a program; `None` inherits this process's limit. Its children have the same limits, each for itself,
/// except for `processes`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ProgramLimits {
    /// Processor time, in whole seconds: the kernel then ends the program.
    pub cpu: Option<Duration>,
    /// Bytes of its address space: further allocations fail.
    pub memory: Option<u64>,
    /// Processes and threads of the user that this process runs as, this process's own included. The kernel holds no
    /// root user to it.
    pub processes: Option<u64>,
}

static LIMITS: RwLock<ProgramLimits> =
    RwLock::new(ProgramLimits { cpu: None, memory: None, processes: None });

/// Applies these limits to every program that this process starts from now on.
pub fn limit_programs(limits: ProgramLimits) {
    *LIMITS.write().unwrap_or_else(PoisonError::into_inner) = limits;
}

/// The limits that are set, none above what this process itself may have.
pub(crate) fn in_force() -> impl Iterator<Item = (Resource, u64)> {
    let ProgramLimits { cpu, memory, processes } = *LIMITS.read().unwrap_or_else(PoisonError::into_inner);
    let wanted = [
        (Resource::Cpu, cpu.map(|cpu| cpu.as_secs().max(1))),
        (Resource::As, memory),
        (Resource::Nproc, processes),
    ];
    wanted.into_iter().filter_map(|(resource, most)| {
        let most = most?;
        Some((resource, most.min(getrlimit(resource).maximum.unwrap_or(u64::MAX))))
    })
}

/// Holds a program to the limits that was started without them.
pub(crate) fn hold(pid: Pid) {
    for (resource, most) in in_force() {
        // An ended program needs none.
        let _ = prlimit(Some(pid), resource, Rlimit { current: Some(most), maximum: Some(most) });
    }
}
