//! The metrics of the process, by the names that Prometheus's own libraries have for them.

use std::fs;
use std::path::Path;
use std::sync::OnceLock;
use std::time::{Duration, SystemTime};

use rustix::time::{ClockId, clock_gettime};

use super::rows::Metric;
use super::text::Reading;

/// Reads them. What the system does not tell is left out.
pub fn process_readings() -> Vec<Reading> {
    let start = process_start().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let cpu = Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)).unwrap_or_default();
    let mut readings =
        vec![Reading::of(Metric::Cpu, cpu.as_secs_f64()), Reading::of(Metric::Start, start.as_secs_f64())];
    readings.extend(open_descriptors().map(|count| Reading::of(Metric::OpenDescriptors, count as f64)));
    readings.extend(resident_kibibytes().map(|size| Reading::of(Metric::Memory, size as f64 * 1024.0)));
    readings
}

/// Returns when the process started: when this was called first.
pub fn process_start() -> SystemTime {
    static START: OnceLock<SystemTime> = OnceLock::new();
    *START.get_or_init(SystemTime::now)
}

/// Since Linux 6.2 the size of the folder is their number. Before, it is 0, and the entries are counted.
fn open_descriptors() -> Option<u64> {
    let folder = Path::new("/proc/self/fd");
    match fs::metadata(folder).ok()?.len() {
        0 => fs::read_dir(folder).ok().map(|entries| entries.count() as u64),
        count => Some(count),
    }
}

/// Not `statm`, which counts in pages: the size of one is in `/proc/self/auxv`, and a process that has changed its user may
/// not read that.
fn resident_kibibytes() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let size = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    size.trim().strip_suffix(" kB")?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_process_is_read() {
        let readings = process_readings();
        for metric in [Metric::Cpu, Metric::Start, Metric::OpenDescriptors, Metric::Memory] {
            let reading = readings.iter().find(|reading| reading.metric == metric);
            assert!(reading.is_some_and(|reading| reading.value > 0.0), "{metric:?}");
        }
    }
}
