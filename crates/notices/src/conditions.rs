//! What readings mean by the thresholds of a `[[notice]]` table.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use millrace_limits::wall_seconds;
use millrace_metrics::{Metric, Reading, Registry};

/// What a notice is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A certificate expires soon.
    Certificate,
    /// A disk is nearly full.
    Disk,
    /// Events of hooks are not delivered.
    Deliveries,
    /// Many addresses or users were banned.
    Bans,
    /// A log loses lines.
    Log,
    /// A trial, which an administrator has asked for.
    Trial,
}

impl Kind {
    /// All that a table can name.
    pub const ALL: [Self; 5] = [Self::Certificate, Self::Disk, Self::Deliveries, Self::Bans, Self::Log];

    /// Returns its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Certificate => "certificate",
            Self::Disk => "disk",
            Self::Deliveries => "deliveries",
            Self::Bans => "bans",
            Self::Log => "log",
            Self::Trial => "trial",
        }
    }

    /// Finds a kind by its name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

/// From where on a reading is worth a notice.
#[derive(Debug, Clone)]
pub struct Thresholds {
    /// What notices are about.
    pub on: Vec<Kind>,
    /// A certificate that expires sooner.
    pub certificate: Duration,
    /// A disk of which less is free, in percent.
    pub disk_free: f64,
    /// This many events that are not delivered.
    pub deliveries: u64,
    /// This many bans...
    pub bans: u64,
    /// ...within such a time.
    pub bans_within: Duration,
}

/// What a server looks like at an instant.
#[derive(Debug, Clone)]
pub struct Look {
    /// When, by the clock that never jumps.
    pub now: Instant,
    /// When, in seconds since 1970.
    pub wall: i64,
    /// The readings of its metrics.
    pub readings: Vec<Reading>,
    /// How many bans there were since it started.
    pub bans: u64,
}

impl Look {
    /// Looks now: at what a server has counted, and at its other readings.
    pub fn now(counted: &Registry, readings: Vec<Reading>) -> Self {
        Self { now: Instant::now(), wall: wall_seconds(), readings, bans: counted.sum(Metric::Bans) }
    }
}

/// One thing that is well, or not.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Condition {
    pub(crate) kind: Kind,
    /// Which certificate, disk or log; empty where there is one only.
    pub(crate) subject: String,
    pub(crate) is_bad: bool,
    /// A sentence without its full stop.
    pub(crate) text: String,
}

/// Judges looks, and remembers of former ones what it takes to see growth.
#[derive(Debug)]
pub(crate) struct Judge {
    thresholds: Thresholds,
    /// Bans at former looks, no longer ago than `bans_within` but for the first.
    bans: VecDeque<(Instant, u64)>,
    /// Lost lines of each log at the last look.
    lost: Vec<(String, f64)>,
}

impl Judge {
    pub(crate) fn new(thresholds: Thresholds) -> Self {
        Self { thresholds, bans: VecDeque::new(), lost: Vec::new() }
    }

    /// Returns all conditions that are to be watched.
    pub(crate) fn judge(&mut self, look: &Look) -> Vec<Condition> {
        let kinds = self.thresholds.on.clone();
        kinds.into_iter().flat_map(|kind| self.conditions(kind, look)).collect()
    }

    fn conditions(&mut self, kind: Kind, look: &Look) -> Vec<Condition> {
        match kind {
            Kind::Certificate => self.certificates(look),
            Kind::Disk => self.disks(look),
            Kind::Deliveries => self.deliveries(look).into_iter().collect(),
            Kind::Bans => vec![self.bans(look)],
            Kind::Log => self.logs(look),
            Kind::Trial => Vec::new(),
        }
    }

    fn certificates(&self, look: &Look) -> Vec<Condition> {
        let condition = |(file, expiry): (&str, f64)| {
            let left = expiry - look.wall as f64;
            let text = match left > 0.0 {
                true => format!("the certificate {file} expires in {}", days(left)),
                false => format!("the certificate {file} has expired"),
            };
            let is_bad = left < self.thresholds.certificate.as_secs_f64();
            Condition { kind: Kind::Certificate, subject: file.to_owned(), is_bad, text }
        };
        series(&look.readings, Metric::CertificateExpiry).map(condition).collect()
    }

    fn disks(&self, look: &Look) -> Vec<Condition> {
        let condition = |(folder, free): (&str, f64)| {
            let mut sizes = series(&look.readings, Metric::DiskSize);
            let (_, size) = sizes.find(|(name, size)| *name == folder && *size > 0.0)?;
            let percent = free * 100.0 / size;
            let text =
                format!("the disk of {folder} has {percent:.1} % free: {} of {}", bytes(free), bytes(size));
            let is_bad = percent < self.thresholds.disk_free;
            Some(Condition { kind: Kind::Disk, subject: folder.to_owned(), is_bad, text })
        };
        series(&look.readings, Metric::DiskFree).filter_map(condition).collect()
    }

    fn deliveries(&self, look: &Look) -> Option<Condition> {
        let mut states = series(&look.readings, Metric::DeliveryQueue).peekable();
        states.peek()?;
        let all = states.map(|(_, events)| events).sum::<f64>() as u64;
        let text = format!("events in the queue of the hooks that are not delivered: {all}");
        let is_bad = all >= self.thresholds.deliveries;
        Some(Condition { kind: Kind::Deliveries, subject: String::new(), is_bad, text })
    }

    fn bans(&mut self, look: &Look) -> Condition {
        let within = self.thresholds.bans_within;
        let is_old = |then: Instant| look.now.duration_since(then) >= within;
        // The last one that is as old as the time is what growth counts from.
        while self.bans.get(1).is_some_and(|(then, _)| is_old(*then)) {
            self.bans.pop_front();
        }
        self.bans.push_back((look.now, look.bans));
        let before = self.bans.front().map_or(0, |(_, bans)| *bans);
        let grown = look.bans.saturating_sub(before);
        let text = format!("bans for failed logins in the last {} s: {grown}", within.as_secs());
        Condition { kind: Kind::Bans, subject: String::new(), is_bad: grown >= self.thresholds.bans, text }
    }

    fn logs(&mut self, look: &Look) -> Vec<Condition> {
        let now: Vec<(String, f64)> = series(&look.readings, Metric::LogLinesLost)
            .map(|(log, lines)| (log.to_owned(), lines))
            .collect();
        let before = std::mem::replace(&mut self.lost, now.clone());
        let condition = |(log, lines): (String, f64)| {
            let former = before.iter().find(|(name, _)| *name == log).map_or(0.0, |(_, lines)| *lines);
            let text = format!("lines that were lost from the log of {log} since the start: {lines}");
            Condition { kind: Kind::Log, subject: log, is_bad: lines > former, text }
        };
        now.into_iter().map(condition).collect()
    }
}

/// The series of a metric with one label.
fn series(readings: &[Reading], metric: Metric) -> impl Iterator<Item = (&str, f64)> {
    let of_metric = readings.iter().filter(move |reading| reading.metric == metric);
    of_metric.filter_map(|reading| Some((reading.labels.first()?.as_str(), reading.value)))
}

fn days(seconds: f64) -> String {
    match (seconds / 86_400.0).floor() {
        0.0 => "less than a day".to_owned(),
        1.0 => "1 day".to_owned(),
        days => format!("{days} days"),
    }
}

fn bytes(count: f64) -> String {
    const UNITS: [&str; 5] = ["bytes", "KiB", "MiB", "GiB", "TiB"];
    let (mut count, mut unit) = (count, 0);
    while count >= 1024.0 && unit + 1 < UNITS.len() {
        (count, unit) = (count / 1024.0, unit + 1);
    }
    let decimals = usize::from(unit > 0);
    format!("{count:.decimals$} {}", UNITS[unit])
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn thresholds(on: &[Kind]) -> Thresholds {
        Thresholds {
            on: on.to_vec(),
            certificate: Duration::from_secs(14 * 86_400),
            disk_free: 10.0,
            deliveries: 1000,
            bans: 20,
            bans_within: Duration::from_secs(600),
        }
    }

    fn judged(kind: Kind, readings: Vec<Reading>) -> Vec<(String, bool, String)> {
        let look = Look { now: Instant::now(), wall: 1_000_000, readings, bans: 0 };
        let found = Judge::new(thresholds(&[kind])).judge(&look);
        found.into_iter().map(|found| (found.subject, found.is_bad, found.text)).collect()
    }

    #[test]
    fn a_certificate_is_told_of_before_its_end() {
        let day = 86_400.0;
        for (left, is_bad, text) in [
            (14.0 * day, false, "14 days"),
            (14.0 * day - 1.0, true, "13 days"),
            (1.5 * day, true, "1 day"),
            (10.0, true, "less than a day"),
            (0.0, true, "has expired"),
        ] {
            let reading = Reading::at(Metric::CertificateExpiry, "a.pem", 1_000_000.0 + left);
            let found = judged(Kind::Certificate, vec![reading]);
            assert_eq!((&*found[0].0, found[0].1), ("a.pem", is_bad), "{left}");
            assert!(found[0].2.ends_with(text), "{found:?}");
        }
    }

    #[test]
    fn a_disk_is_told_of_by_its_share_and_one_that_does_not_answer_is_not() {
        let gib = 1024.0 * 1024.0 * 1024.0;
        let found = judged(
            Kind::Disk,
            vec![
                Reading::at(Metric::DiskFree, "/a", 9.9 * gib),
                Reading::at(Metric::DiskSize, "/a", 100.0 * gib),
                Reading::at(Metric::DiskFree, "/b", 10.0),
                Reading::at(Metric::DiskSize, "/b", 100.0),
                Reading::at(Metric::DiskFree, "/c", 0.0),
            ],
        );
        assert_eq!(found.len(), 2);
        assert_eq!(found[0].2, "the disk of /a has 9.9 % free: 9.9 GiB of 100.0 GiB");
        assert_eq!([found[0].1, found[1].1], [true, false]);
    }

    #[test]
    fn events_that_wait_or_are_parked_are_not_delivered() {
        let queue = |waiting, parked| {
            let states = [("waiting", waiting), ("parked", parked)];
            states.map(|(state, count)| Reading::at(Metric::DeliveryQueue, state, count)).to_vec()
        };
        assert!(!judged(Kind::Deliveries, queue(999.0, 0.0))[0].1);
        assert!(judged(Kind::Deliveries, queue(900.0, 100.0))[0].1);
        assert!(judged(Kind::Deliveries, Vec::new()).is_empty(), "there is no queue");
    }

    #[test]
    fn bans_count_within_their_time_only() {
        let (mut judge, start) = (Judge::new(thresholds(&[Kind::Bans])), Instant::now());
        let mut at = |seconds, bans| {
            let now = start + Duration::from_secs(seconds);
            judge.judge(&Look { now, wall: 0, readings: Vec::new(), bans })[0].is_bad
        };
        assert!(!at(0, 100), "what was before is no burst");
        assert!(!at(300, 110));
        assert!(at(500, 120), "20 within 500 s");
        assert!(at(600, 120), "and within 600 s");
        assert!(!at(900, 129), "19 since the look at 300 s");
        assert!(!at(3000, 140), "and 11 since the one before");
    }

    #[test]
    fn a_log_is_told_of_while_it_loses_lines() {
        let (mut judge, now) = (Judge::new(thresholds(&[Kind::Log])), Instant::now());
        let mut with = |lines| {
            let readings = vec![Reading::at(Metric::LogLinesLost, "access", lines)];
            judge.judge(&Look { now, wall: 0, readings, bans: 0 })[0].is_bad
        };
        assert_eq!([with(0.0), with(3.0), with(3.0), with(4.0)], [false, true, false, true]);
    }
}
