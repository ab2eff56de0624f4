//! The rates of transfers as the server's log tells them, as the thesis of 1996 computed them from its server's xferlog.
//!
//! Transfers that overlap are one experiment. Its overall rate is all of its bytes over the time from the first start to
//! the last end; beside it stands the mean of the rates of its transfers. If all of them ran all the time, the number of
//! those at once times the latter is the former. Experiments of the same kind are averaged.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde_json::{Value, json};

/// A transfer that the log tells of, with its times in microseconds since 1970.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Logged {
    is_upload: bool,
    path: String,
    bytes: u64,
    started: u64,
    ended: u64,
}

/// What transfers of an experiment have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Kind {
    /// To the server.
    pub is_upload: bool,
    /// The size of each; `None` if they differ.
    pub bytes: Option<u64>,
    /// How many ran at once, at most.
    pub at_once: usize,
    /// Whether all of them were of one file.
    pub is_same_file: bool,
}

/// The experiments of one kind.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Rates {
    /// How many there were.
    pub experiments: usize,
    /// Transfers in all.
    pub transfers: usize,
    /// The mean of their overall rates, in units of 1,000,000 bytes a second.
    pub overall_mb_per_s: f64,
    /// The mean of their transfers' mean rates.
    pub transfer_mb_per_s: f64,
}

/// The rates that a log tells.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LogRates {
    /// By kind.
    pub kinds: BTreeMap<Kind, Rates>,
    /// Transfers that failed, which count for nothing.
    pub failed: usize,
}

/// Why a log tells no rates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FromLogError {
    /// It has no transfer with times.
    #[error(
        "no transfer with times is in it: the server writes them where log-format is \"json\", and to its xferlog where xferlog-times is true"
    )]
    NoTransfers,
}

impl LogRates {
    /// Reads a log in JSON, or an xferlog with times. Lines about other events are passed over.
    pub fn parse(text: &str) -> Result<Self, FromLogError> {
        let (mut transfers, mut failed) = (Vec::new(), 0);
        for line in text.lines() {
            let found = if line.starts_with('{') { of_json(line) } else { of_xferlog(line) };
            match found {
                Some((transfer, true)) => transfers.push(transfer),
                Some((_, false)) => failed += 1,
                None => {}
            }
        }
        if transfers.is_empty() {
            return Err(FromLogError::NoTransfers);
        }
        let mut kinds: BTreeMap<Kind, Rates> = BTreeMap::new();
        for experiment in experiments(transfers) {
            kinds.entry(kind(&experiment)).or_default().add(&experiment);
        }
        kinds.values_mut().for_each(Rates::average);
        Ok(Self { kinds, failed })
    }

    /// Writes them in JSON: a record for each kind of experiment.
    pub fn json(&self) -> String {
        let record = |(kind, rates): (&Kind, &Rates)| {
            json!({
                "what": if kind.is_upload { "upload" } else { "download" },
                "bytes": kind.bytes,
                "at-once": kind.at_once,
                "same-file": kind.is_same_file,
                "experiments": rates.experiments,
                "transfers": rates.transfers,
                "overall-mb-per-s": rates.overall_mb_per_s,
                "transfer-mb-per-s": rates.transfer_mb_per_s,
            })
        };
        let kinds: Vec<Value> = self.kinds.iter().map(record).collect();
        format!("{:#}\n", json!({ "kinds": kinds, "failed": self.failed }))
    }
}

/// A transfer in JSON, and whether it was complete.
fn of_json(line: &str) -> Option<(Logged, bool)> {
    let fields: Value = serde_json::from_str(line).ok()?;
    let is_upload = match fields["event"].as_str()? {
        "upload" => true,
        "download" => false,
        _ => return None,
    };
    let micros = |key: &str| fields[key].as_u64();
    let transfer = Logged {
        is_upload,
        path: fields["path"].as_str()?.to_owned(),
        bytes: fields["bytes"].as_u64()?,
        started: micros("started-us")?,
        ended: micros("ended-us")?,
    };
    Some((transfer, fields["failed"].is_null()))
}

/// The same in an xferlog whose lines end with both times.
fn of_xferlog(line: &str) -> Option<(Logged, bool)> {
    let fields: Vec<&str> = line.split_ascii_whitespace().collect();
    let [_, _, _, _, _, _, _, bytes, path, _, _, direction, _, _, _, _, _, completion, started, ended] =
        fields[..]
    else {
        return None;
    };
    let transfer = Logged {
        is_upload: direction == "i",
        path: path.to_owned(),
        bytes: bytes.parse().ok()?,
        started: started.parse().ok()?,
        ended: ended.parse().ok()?,
    };
    Some((transfer, completion == "c"))
}

/// Groups transfers that overlap.
fn experiments(mut transfers: Vec<Logged>) -> Vec<Vec<Logged>> {
    transfers.sort_by_key(|transfer| transfer.started);
    let mut groups: Vec<Vec<Logged>> = Vec::new();
    let mut end = 0;
    for transfer in transfers {
        let begins = transfer.started >= end;
        end = end.max(transfer.ended);
        match groups.last_mut().filter(|_| !begins) {
            Some(group) => group.push(transfer),
            None => groups.push(vec![transfer]),
        }
    }
    groups
}

fn kind(experiment: &[Logged]) -> Kind {
    let sizes: BTreeSet<u64> = experiment.iter().map(|transfer| transfer.bytes).collect();
    let files: BTreeSet<&str> = experiment.iter().map(|transfer| &*transfer.path).collect();
    // An end comes before a start at the same time.
    let mut changes: Vec<(u64, bool)> =
        experiment.iter().flat_map(|one| [(one.started, true), (one.ended, false)]).collect();
    changes.sort_unstable();
    let (mut running, mut at_once) = (0_usize, 0);
    for (_, is_start) in changes {
        running = if is_start { running + 1 } else { running.saturating_sub(1) };
        at_once = at_once.max(running);
    }
    Kind {
        is_upload: experiment.first().is_some_and(|transfer| transfer.is_upload),
        bytes: (sizes.len() == 1).then(|| sizes.first().copied()).flatten(),
        at_once: at_once.max(1),
        is_same_file: files.len() == 1,
    }
}

impl Rates {
    /// Adds an experiment to the sums.
    fn add(&mut self, experiment: &[Logged]) {
        // Bytes a microsecond are units of 1,000,000 a second.
        let rate = |bytes: u64, micros: u64| bytes as f64 / micros.max(1) as f64;
        let start = experiment.iter().map(|one| one.started).min().unwrap_or(0);
        let end = experiment.iter().map(|one| one.ended).max().unwrap_or(0);
        let each: f64 =
            experiment.iter().map(|one| rate(one.bytes, one.ended - one.started.min(one.ended))).sum();
        self.overall_mb_per_s += rate(experiment.iter().map(|one| one.bytes).sum(), end - start.min(end));
        self.transfer_mb_per_s += each / experiment.len() as f64;
        self.transfers += experiment.len();
        self.experiments += 1;
    }

    fn average(&mut self) {
        self.overall_mb_per_s /= self.experiments as f64;
        self.transfer_mb_per_s /= self.experiments as f64;
    }
}

impl fmt::Display for LogRates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let head = [
            "what",
            "bytes",
            "at once",
            "files",
            "experiments",
            "transfers",
            "overall MB/s",
            "a transfer MB/s",
        ];
        let [what, bytes, at_once, files, experiments, transfers, overall, each] = head;
        writeln!(
            f,
            "{what:<8} {bytes:>12} {at_once:>7} {files:<9} {experiments:>11} {transfers:>9} {overall:>12} {each:>15}"
        )?;
        for (kind, rates) in &self.kinds {
            writeln!(
                f,
                "{:<8} {:>12} {:>7} {:<9} {:>11} {:>9} {:>12.3} {:>15.3}",
                if kind.is_upload { "upload" } else { "download" },
                kind.bytes.map_or("several".to_owned(), |bytes| bytes.to_string()),
                kind.at_once,
                if kind.is_same_file { "same" } else { "different" },
                rates.experiments,
                rates.transfers,
                rates.overall_mb_per_s,
                rates.transfer_mb_per_s,
            )?;
        }
        match self.failed {
            0 => Ok(()),
            1 => writeln!(f, "1 transfer failed, and is left out."),
            failed => writeln!(f, "{failed} transfers failed, and are left out."),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(path: &str, bytes: u64, started: u64, ended: u64) -> String {
        format!(
            "{{\"time\":\"2026-11-24T00:00:00.000Z\",\"event\":\"download\",\"path\":\"{path}\",\"bytes\":{bytes},\
             \"started-us\":{started},\"ended-us\":{ended}}}\n"
        )
    }

    #[test]
    fn transfers_that_overlap_are_one_experiment() {
        let two = line("/a", 1_000_000, 0, 2_000_000) + &line("/b", 1_000_000, 1_000_000, 4_000_000);
        let alone =
            line("/a", 1_000_000, 5_000_000, 5_500_000) + &line("/a", 1_000_000, 5_500_000, 7_000_000);
        let rates = LogRates::parse(&(two + "not a line\n" + &alone)).unwrap();
        let kind =
            |at_once, is_same_file| Kind { is_upload: false, bytes: Some(1_000_000), at_once, is_same_file };
        let pair = rates.kinds[&kind(2, false)];
        assert_eq!((pair.experiments, pair.transfers, pair.overall_mb_per_s), (1, 2, 0.5));
        assert!((pair.transfer_mb_per_s - (0.5 + 1.0 / 3.0) / 2.0).abs() < 1e-9);
        let alone = rates.kinds[&kind(1, true)];
        assert_eq!((alone.experiments, alone.transfers), (2, 2));
        assert!((alone.overall_mb_per_s - (2.0 + 2.0 / 3.0) / 2.0).abs() < 1e-9);
    }

    #[test]
    fn an_xferlog_tells_the_same_and_failures_are_left_out() {
        let start = "Sun Sep  9 01:46:40 2001 1 10.0.0.1 500000 /pub/f b _ i r alice ftp 0 *";
        let text = format!("{start} c 1000000000000000 1000000000500000\n{start} i 1 2\n{start} c\n");
        let rates = LogRates::parse(&text).unwrap();
        assert_eq!(rates.failed, 1);
        let kind = Kind { is_upload: true, bytes: Some(500_000), at_once: 1, is_same_file: true };
        assert_eq!(rates.kinds[&kind].overall_mb_per_s, 1.0);
        assert!(rates.to_string().contains("upload         500000       1 same"), "{rates}");
        let json: Value = serde_json::from_str(&rates.json()).unwrap();
        assert_eq!((&json["kinds"][0]["overall-mb-per-s"], &json["failed"]), (&1.0.into(), &1.into()));
        assert_eq!(LogRates::parse("nothing\n{}\n"), Err(FromLogError::NoTransfers));
    }
}
