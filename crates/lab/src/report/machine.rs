//! The machine that figures are taken on, as a report has it.

use std::fs;

use serde::{Deserialize, Serialize};

use crate::limits::{Limit, limits};

/// The machine that this client runs on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs)] // The names are the documentation.
pub struct Machine {
    pub kernel: String,
    pub processor: String,
    pub cores: usize,
    pub memory_mib: u64,
    pub limits: Vec<Limit>,
}

impl Machine {
    pub(crate) fn this() -> Self {
        let uname = rustix::system::uname();
        let text = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let processors = text("/proc/cpuinfo");
        let model = processors.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
        let memory = text("/proc/meminfo");
        let kib = memory
            .lines()
            .find_map(|line| line.strip_prefix("MemTotal:")?.split_whitespace().next()?.parse().ok());
        Self {
            kernel: format!("{} {}", uname.sysname().to_string_lossy(), uname.release().to_string_lossy()),
            processor: model
                .map_or_else(|| uname.machine().to_string_lossy().into_owned(), |model| model.1.to_owned()),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            memory_mib: kib.unwrap_or(0u64) / 1024,
            limits: limits(),
        }
    }
}
