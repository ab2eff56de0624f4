//! What each program that is started may use of the machine (`setrlimit`).

use std::sync::{PoisonError, RwLock};
use std::time::Duration;

use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};

/// What a program may use; `None` for as much as this process. What it starts has the same limits, each for itself, but
/// for `processes`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ProgramLimits {
    /// Processor time, in whole seconds: behind it the kernel ends the program.
    pub cpu: Option<Duration>,
    /// Bytes of its address space: behind them it is given no more memory.
    pub memory: Option<u64>,
    /// Processes and threads of the user that this process runs as, this process's own included. The kernel holds no
    /// root user to it.
    pub processes: Option<u64>,
}

static LIMITS: RwLock<ProgramLimits> =
    RwLock::new(ProgramLimits { cpu: None, memory: None, processes: None });

/// Has every program that this process starts from now on held to these limits.
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
        let own = getrlimit(resource).maximum.unwrap_or(u64::MAX);
        Some((resource, most?.min(own)))
    })
}

/// Holds a program to the limits that was started without them.
pub(crate) fn hold(pid: Pid) {
    for (resource, most) in in_force() {
        // One that has ended needs none.
        let _ = prlimit(Some(pid), resource, Rlimit { current: Some(most), maximum: Some(most) });
    }
}
