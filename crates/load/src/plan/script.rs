//! A transfer log as a load: who moved how much, when, and which way.
//!
//! The log is wu-ftpd's xferlog, which ProFTPD, vsftpd, Pure-FTPd and Millrace write, too. It says when a transfer ended
//! and how long it took, in whole seconds: transfers that ended in the same second are spread over it, in the log's
//! order. Names are not replayed, sizes and directions are; each client of the log becomes as many users as it had
//! transfers at the same time.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;
use std::{fs, io};

use millrace_vfs::Civil;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::Op;

/// A log.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Script {
    /// Each user's jobs, in order.
    users: Vec<Vec<Job>>,
    logged: Logged,
}

/// A transfer that is to be made.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Job {
    /// Since the log's first.
    pub at: Duration,
    /// A download or an upload.
    pub op: Op,
    /// How many bytes.
    pub bytes: u64,
    /// How long it took then.
    pub lasted: Duration,
}

/// The totals of the log.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Logged {
    /// Downloads and uploads.
    pub transfers: u64,
    /// Bytes of both.
    pub bytes: u64,
    /// Of them, bytes of downloads.
    pub downloaded: u64,
    /// From the first beginning to the last end.
    pub seconds: f64,
    /// Transfers at the same time, at most.
    pub most_at_once: u32,
    /// The mean of how long they took, in seconds.
    pub mean_seconds: f64,
    /// Lines that are neither: deletions, and lines that are not of a transfer log.
    pub skipped: u64,
}

/// All files that downloads need must fit there, and of each user its largest upload: the next one replaces it.
const MOST_FILES: u64 = 4 << 30;

/// The longest plausible transfer, in seconds and bytes: a line beyond that is not a transfer.
const LONGEST_TRANSFER: u64 = 366 * 24 * 3600;
const LARGEST_TRANSFER: u64 = 1 << 50;

/// A line of a log.
#[derive(Debug, Clone, PartialEq)]
struct Entry<'a> {
    ended: i64,
    lasted: u64,
    /// The client: address and user.
    who: (&'a str, &'a str),
    bytes: u64,
    direction: &'a str,
}

/// A log that cannot be replayed.
#[derive(Debug, Error)]
#[error("{path}: {source}")]
pub struct ScriptError {
    path: String,
    source: LogError,
}

#[derive(Debug, Error)]
enum LogError {
    #[error(transparent)]
    Read(io::Error),
    #[error("it has no line of a transfer log (xferlog)")]
    Empty,
    #[error("it moves more bytes than can be counted")]
    TooLarge,
    #[error("its downloads have {sizes} different sizes, {needed} bytes together; {MOST_FILES} are possible")]
    Downloads { sizes: usize, needed: u64 },
    #[error("its uploads would leave {0} bytes at the same time on the server; {MOST_FILES} are possible")]
    Uploads(u64),
}

impl Script {
    /// Reads a log.
    pub fn read(path: &str) -> Result<Self, ScriptError> {
        let read = fs::read(path).map_err(LogError::Read);
        let parsed = read.and_then(|bytes| Self::parse(&String::from_utf8_lossy(&bytes)));
        parsed.map_err(|source| ScriptError { path: path.to_owned(), source })
    }

    fn parse(text: &str) -> Result<Self, LogError> {
        let mut logged = Logged::default();
        let mut entries = Vec::new();
        for line in text.lines().filter(|line| !line.trim().is_empty()) {
            match Entry::parse(line) {
                Some(entry) if matches!(entry.direction, "o" | "i") => entries.push(entry),
                _ => logged.skipped += 1,
            }
        }
        if entries.is_empty() {
            return Err(LogError::Empty);
        }
        let jobs = timed(&entries);
        logged.transfers = jobs.len() as u64;
        let sum = |what: &dyn Fn(&Job) -> bool| {
            let mut bytes = jobs.iter().map(|(job, _)| job).filter(|job| what(job)).map(|job| job.bytes);
            bytes.try_fold(0, u64::checked_add).ok_or(LogError::TooLarge)
        };
        logged.bytes = sum(&|_| true)?;
        logged.downloaded = sum(&|job| job.op == Op::Retr)?;
        let end = jobs.iter().map(|(job, _)| job.at + job.lasted).max().unwrap_or_default();
        logged.seconds = end.as_secs_f64();
        let spent: f64 = jobs.iter().map(|(job, _)| job.lasted.as_secs_f64()).sum();
        logged.mean_seconds = spent / jobs.len() as f64;
        logged.most_at_once = most_at_once(&jobs);
        let script = Self { users: users(jobs), logged };
        let needed: u64 = script.downloads().iter().sum();
        if needed > MOST_FILES {
            return Err(LogError::Downloads { sizes: script.downloads().len(), needed });
        }
        let uploads = script.users.iter().map(|jobs| {
            let uploads = jobs.iter().filter(|job| job.op == Op::Stor);
            uploads.map(|job| job.bytes).max().unwrap_or(0)
        });
        let room = uploads.fold(0u64, u64::saturating_add);
        if room > MOST_FILES {
            return Err(LogError::Uploads(room));
        }
        Ok(script)
    }

    /// How many users it takes.
    pub fn users(&self) -> u32 {
        u32::try_from(self.users.len()).unwrap_or(u32::MAX)
    }

    /// How long it is.
    pub fn length(&self) -> Duration {
        Duration::from_secs_f64(self.logged.seconds)
    }

    /// The totals of the log.
    pub fn logged(&self) -> &Logged {
        &self.logged
    }

    /// The transfers of a user.
    pub fn jobs(&self, user: u32) -> &[Job] {
        self.users.get(user as usize).map_or(&[], |jobs| &jobs[..])
    }

    /// The jobs of some users only.
    pub(crate) fn of_users(&self, some: impl IntoIterator<Item = u32>) -> Self {
        let mut users = vec![Vec::new(); self.users.len()];
        for user in some {
            users[user as usize] = self.jobs(user).to_vec();
        }
        Self { users, logged: self.logged }
    }

    /// The upload of a user that comes after this many others of its own.
    pub(crate) fn upload(&self, user: u32, serial: u32) -> Option<Job> {
        self.jobs(user).iter().filter(|job| job.op == Op::Stor).nth(serial as usize).copied()
    }

    /// Every size of a download, once.
    pub fn downloads(&self) -> BTreeSet<u64> {
        self.users.iter().flatten().filter(|job| job.op == Op::Retr).map(|job| job.bytes).collect()
    }
}

impl<'a> Entry<'a> {
    /// `Sun Sep 9 01:46:40 2001 1 10.0.0.1 1024 /pub/a_file b _ o r alice ftp 0 * c`; some servers leave spaces in
    /// names, so the fields after them are counted from the end.
    fn parse(line: &'a str) -> Option<Self> {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        // The completion status came with wu-ftpd 2.5.
        let words = words.strip_suffix(&["c"]).or(words.strip_suffix(&["i"])).unwrap_or(&words[..]);
        let &[_, month, day, clock, year, lasted, host, bytes, _, .., direction, _, user, _, _, _] = words
        else {
            return None;
        };
        const MONTHS: [&str; 12] =
            ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
        let mut clock = clock.splitn(3, ':').map(|part| part.parse().ok());
        let mut part = || clock.next().flatten();
        let civil = Civil {
            year: year.parse().ok()?,
            month: 1 + MONTHS.iter().position(|name| *name == month)? as u8,
            day: day.parse().ok()?,
            hour: part()?,
            minute: part()?,
            second: part()?,
        };
        let (lasted, bytes) = (lasted.parse().ok()?, bytes.parse().ok()?);
        let is_possible = lasted <= LONGEST_TRANSFER && bytes <= LARGEST_TRANSFER;
        is_possible.then_some(Self { ended: civil.seconds()?, lasted, who: (host, user), bytes, direction })
    }
}

/// Each with who did it, in the order of their beginnings.
fn timed<'a>(entries: &[Entry<'a>]) -> Vec<(Job, (&'a str, &'a str))> {
    let mut of_second: HashMap<i64, (u64, u64)> = HashMap::new();
    for entry in entries {
        of_second.entry(entry.ended).or_default().0 += 1;
    }
    let mut jobs: Vec<_> = entries
        .iter()
        .map(|entry| {
            let (all, so_far) = of_second.entry(entry.ended).or_default();
            let part = *so_far as f64 / *all as f64;
            *so_far += 1;
            let begun = entry.ended as f64 + part - entry.lasted as f64;
            let op = if entry.direction == "o" { Op::Retr } else { Op::Stor };
            (begun, op, entry)
        })
        .collect();
    jobs.sort_by(|a, b| a.0.total_cmp(&b.0));
    let first = jobs.first().map_or(0.0, |job| job.0);
    let job = |(begun, op, entry): (f64, Op, &Entry<'a>)| {
        let at = Duration::from_secs_f64((begun - first).max(0.0));
        (Job { at, op, bytes: entry.bytes, lasted: Duration::from_secs(entry.lasted) }, entry.who)
    };
    jobs.into_iter().map(job).collect()
}

/// Gives each transfer to a free user of its client, or to a new one.
fn users(jobs: Vec<(Job, (&str, &str))>) -> Vec<Vec<Job>> {
    let mut users: Vec<Vec<Job>> = Vec::new();
    let mut of_client: HashMap<(&str, &str), Vec<usize>> = HashMap::new();
    for (job, who) in jobs {
        let own = of_client.entry(who).or_default();
        let is_free = |&&user: &&usize| users[user].last().is_none_or(|last| last.at + last.lasted <= job.at);
        match own.iter().find(is_free) {
            Some(&user) => users[user].push(job),
            None => {
                own.push(users.len());
                users.push(vec![job]);
            }
        }
    }
    users
}

fn most_at_once(jobs: &[(Job, (&str, &str))]) -> u32 {
    let ends = jobs.iter().map(|(job, _)| (job.at + job.lasted, -1));
    let mut changes: Vec<(Duration, i32)> = jobs.iter().map(|(job, _)| (job.at, 1)).chain(ends).collect();
    // Where one ends as another begins, they met.
    changes.sort_by_key(|&(at, change)| (at, -change));
    let (mut now, mut most) = (0, 0);
    for (_, change) in changes {
        now += change;
        most = most.max(now);
    }
    most.unsigned_abs()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "\
Sun Sep  9 01:46:50 2001 10 10.0.0.1 1000 /pub/a_file b _ o r alice ftp 0 * c
Sun Sep  9 01:46:50 2001 3 10.0.0.1 2000 /pub/name with blanks b _ i r alice ftp 0 * i
Sun Sep  9 01:46:55 2001 1 10.0.0.2 1000 /x b _ o a mozilla@ ftp 0 * c
Sun Sep  9 01:46:55 2001 1 10.0.0.2 0 /x b _ d a mozilla@ ftp 0 * c
nonsense
Mon Oct  1 00:00:00 2001 1 10.0.0.1 5 /y b _ o r bob ftp 0 * c
";

    #[test]
    fn transfers_have_their_beginnings_sizes_and_directions() {
        let script = Script::parse(LOG).unwrap();
        let logged = script.logged();
        assert_eq!((logged.transfers, logged.bytes, logged.downloaded), (4, 4005, 2005));
        assert_eq!((logged.skipped, logged.most_at_once), (2, 2));
        let first = script.jobs(0)[0];
        let expected = Job { at: Duration::ZERO, op: Op::Retr, bytes: 1000, lasted: Duration::from_secs(10) };
        assert_eq!(first, expected);
        // The second that ended in that second did so half of one later.
        assert_eq!((script.jobs(1)[0].at, script.jobs(1)[0].op), (Duration::from_millis(7500), Op::Stor));
        assert_eq!(script.length().as_secs(), 1_894_390 + 10);
        assert_eq!(script.downloads().into_iter().collect::<Vec<_>>(), [5, 1000]);
    }

    #[test]
    fn a_client_has_as_many_users_as_it_had_transfers_at_once() {
        let script = Script::parse(LOG).unwrap();
        assert_eq!(script.users(), 4);
        let line =
            |end: u32| format!("Sun Sep  9 01:46:{end} 2001 5 10.0.0.1 1 /f b _ o r alice ftp 0 * c\n");
        let one_after_the_other = Script::parse(&(line(20) + &line(25) + &line(30))).unwrap();
        assert_eq!((one_after_the_other.users(), one_after_the_other.jobs(0).len()), (1, 3));
        let overlapping = Script::parse(&(line(20) + &line(22) + &line(30))).unwrap();
        assert_eq!(overlapping.users(), 2);
    }

    #[test]
    fn a_log_from_before_the_completion_status_is_read() {
        let line =
            "Sun Sep  9 01:46:41 2001 1 host.example.org 20000 /pub/a file_0.bin b _ o a mozilla@ ftp 0 *";
        let script = Script::parse(line).unwrap();
        assert_eq!(script.jobs(0)[0].bytes, 20_000);
    }

    /// Each of these once ended in a panic, or in a sum that had wrapped.
    #[test]
    fn numbers_that_are_no_transfers_are_passed_over() {
        let line = |lasted: &str, bytes: &str| {
            format!("Sun Sep  9 01:46:41 2001 {lasted} h {bytes} /a b _ i r bob ftp 0 * c\n")
        };
        let vast = "18446744073709551615";
        let script = Script::parse(&(line(vast, "10") + &line("1", vast) + &line("1", "7"))).unwrap();
        assert_eq!((script.logged().transfers, script.logged().skipped, script.logged().bytes), (1, 2, 7));
        let many = line("1", &LARGEST_TRANSFER.to_string()).repeat(1 << 14);
        assert!(Script::parse(&many).unwrap_err().to_string().contains("than can be counted"));
    }

    #[test]
    fn a_file_that_is_not_a_log_is_refused() {
        let upload = "Sun Sep  9 01:46:41 2001 1 h 9999999999 /a b _ i r bob ftp 0 * c\n";
        assert!(Script::parse(upload).unwrap_err().to_string().contains("its uploads would leave"));
        assert!(Script::parse("").is_err() && Script::parse("nonsense\n").is_err());
        let vast = "Sun Sep  9 01:46:50 2001 1 h 99999999999999 /f b _ o r a ftp 0 * c\n";
        assert!(Script::parse(vast).unwrap_err().to_string().contains("sizes"));
        assert!(Script::read("/nowhere/xferlog").is_err());
    }
}
