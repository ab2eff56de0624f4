//! The last hour in figures: how many sessions, how fast, how many failures, one point each five seconds.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use millrace_server::Running;
use millrace_server::metrics::Metric;
use serde_json::{Value, json};

/// How far the points are apart.
pub(crate) const STEP: Duration = Duration::from_secs(5);

/// Points at most.
const POINTS: usize = 720;

/// What is counted since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    sessions: u64,
    download: u64,
    upload: u64,
    requests: u64,
    failures: u64,
}

impl Totals {
    /// Counts what has ended, and the bytes of transfers that run. May wait for workers.
    pub(crate) fn of(running: &Running) -> Self {
        let metrics = running.metrics();
        let by_direction = |direction| [0, 1].map(|protocol| [protocol, direction]);
        let bytes = |direction| {
            by_direction(direction).iter().map(|labels| metrics.total(Metric::TransferBytes, labels)).sum()
        };
        let transfers = |result| -> u64 {
            let ways = (0..2).flat_map(|protocol| (0..3).map(move |direction| [protocol, direction, result]));
            ways.map(|labels| metrics.total(Metric::Transfers, &labels)).sum()
        };
        let failed_logins: u64 = [1, 2].map(|result| metrics.total(Metric::Logins, &[result])).iter().sum();
        let mut totals = Self {
            sessions: 0,
            download: bytes(0),
            upload: bytes(1),
            requests: metrics.sum(Metric::Requests),
            failures: failed_logins + transfers(1),
        };
        for session in running.sessions() {
            totals.sessions += 1;
            let Some(transfer) = session.transfer else { continue };
            match transfer.kind {
                "download" => totals.download += transfer.bytes,
                "upload" => totals.upload += transfer.bytes,
                _ => {}
            }
        }
        totals
    }
}

/// The points.
#[derive(Debug, Default)]
pub(crate) struct Rates {
    /// Locked for a look.
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    last: Option<Totals>,
    points: VecDeque<Value>,
}

impl Rates {
    /// Adds a point, so long after the last one.
    pub(crate) fn add(&self, totals: Totals, time: SystemTime, since: Duration) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let last = kept.last.replace(totals);
        let Some(last) = last else { return };
        // A transfer that ends while they are read may be counted late, and then the sum falls for a moment.
        let rate = |now: u64, before: u64| {
            (now.saturating_sub(before) as f64 / since.as_secs_f64().max(0.001) * 10.0).round() / 10.0
        };
        if kept.points.len() >= POINTS {
            kept.points.pop_front();
        }
        kept.points.push_back(json!({
            "time": time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs(),
            "sessions": totals.sessions,
            "download": rate(totals.download, last.download),
            "upload": rate(totals.upload, last.upload),
            "requests": rate(totals.requests, last.requests),
            "failures": totals.failures.saturating_sub(last.failures),
        }));
    }

    /// Returns the points, the oldest first.
    pub(crate) fn told(&self) -> Value {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        json!({ "ok": true, "step": STEP.as_secs(), "points": kept.points })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_point_has_the_rates_since_the_last_and_an_hour_is_kept() {
        let rates = Rates::default();
        let at = |seconds: u64| UNIX_EPOCH + Duration::from_secs(seconds);
        let totals = |download, failures| Totals { sessions: 2, download, failures, ..Totals::default() };
        rates.add(totals(1000, 1), at(0), STEP);
        assert_eq!(
            rates.told()["points"].as_array().unwrap().len(),
            0,
            "there is nothing to compare it with"
        );
        rates.add(totals(2001, 4), at(5), STEP);
        rates.add(totals(1999, 4), at(10), STEP);
        let told = rates.told();
        let point = |index: usize, key: &str| told["points"][index][key].as_f64().unwrap();
        assert_eq!((point(0, "download"), point(0, "failures"), point(0, "time")), (200.2, 3.0, 5.0));
        assert_eq!((point(1, "download"), point(1, "failures")), (0.0, 0.0));
        (0..POINTS as u64).for_each(|number| rates.add(totals(2001, 4), at(15 + number), STEP));
        assert_eq!(rates.told()["points"].as_array().unwrap().len(), POINTS);
    }
}
