//! The doubts about a figure, each with its cause.

use super::{CellReport, Commands};
use crate::chaos::ChaosReport;
use crate::units::{counted, users};

impl CellReport {
    /// The doubts about a figure that was to take this many seconds, in the order of the report.
    pub(super) fn doubts(&self, planned: f64) -> Vec<String> {
        let doubts = [
            self.lost_logins(),
            self.failed_operations(),
            self.missing_time(),
            self.broken_step(),
            self.cut_downloads(),
            self.stragglers(planned),
            self.unfaithful_replay(),
            self.unseen_commands(),
            self.leaks(),
            self.too_few_operations(),
        ];
        doubts.into_iter().flatten().collect()
    }

    fn lost_logins(&self) -> Option<String> {
        let first = self.login_faults.kinds().next()?.first.join("; ");
        let count = self.login_faults.count();
        Some(format!("{count} of {} could not log in at first: {first}", users(self.measured.users)))
    }

    fn failed_operations(&self) -> Option<String> {
        let failed = self.faults.count();
        match self.measured.op.as_str() {
            _ if failed == 0 => None,
            "idle" => Some(format!("lost: {}", counted(failed, "session"))),
            _ => Some(format!("{failed} of {} failed", counted(self.ops + failed, "operation"))),
        }
    }

    fn missing_time(&self) -> Option<String> {
        let little = self.little.filter(|little| !(0.85..=1.05).contains(little))?;
        (self.faults.count() == 0).then(|| {
            format!("Little's ratio is {little:.2}: time is missing from the latencies, or users stood idle")
        })
    }

    fn broken_step(&self) -> Option<String> {
        let step = self.step.filter(|step| (step.sync - 1.0).abs() > 0.1)?;
        (self.measured.users > 1).then(|| {
            format!(
                "the users did not keep in step: their speeds add up to {:.2} of the whole's, within {:.1} ms of each other's start",
                step.sync, step.skew_ms
            )
        })
    }

    fn cut_downloads(&self) -> Option<String> {
        let standing = self.standing.as_ref()?;
        (self.ops < u64::from(standing.started))
            .then(|| format!("complete when it was over: only {}", counted(self.ops, "download")))
    }

    fn stragglers(&self, planned: f64) -> Option<String> {
        let late = match self.straggled_seconds {
            late if late <= planned * 0.2 => return None,
            late if late < 1.0 => format!("{:.0} ms", late * 1e3),
            late => format!("{late:.1} s"),
        };
        Some(format!("the last operation ended {late} after the time was over"))
    }

    fn unfaithful_replay(&self) -> Option<String> {
        let replay = self.replay.as_ref().filter(|replay| !replay.is_faithful())?;
        Some(format!(
            "the replay is not faithful: {} of {} transfers, begun late by up to {:.0} ms",
            replay.transfers, replay.logged.transfers, replay.late.max_ms
        ))
    }

    fn unseen_commands(&self) -> Option<String> {
        let Commands { ran, of, .. } =
            self.commands.as_ref().filter(|commands| commands.ran < commands.of)?;
        Some(format!("only {ran} commands were seen to run for {of} operations"))
    }

    fn leaks(&self) -> Option<String> {
        let (descriptors, processes) = self.chaos.as_ref().and_then(ChaosReport::leaked)?;
        (descriptors + processes > 0).then(|| {
            format!(
                "{descriptors} descriptors and {processes} processes of the server are left of the bad users, beside \
                 ports for the next ones"
            )
        })
    }

    fn too_few_operations(&self) -> Option<String> {
        let is_counted = self.step.is_some() || self.measured.op == "quit";
        (self.has_operations() && self.ops < 100 && !is_counted)
            .then(|| format!("only {}: percentiles mean little", counted(self.ops, "operation")))
    }
}
