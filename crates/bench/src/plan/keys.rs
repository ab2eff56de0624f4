//! The settings of a measurement, one row each: flags, presets and help follow from this table.

use std::time::Duration;

use super::value::{self, MODES, Mode, Names, OPS, Op, SourceRange};

/// What one step of a plan measures, and how.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs)] // `KEYS` documents each field.
pub struct Settings {
    pub ops: Vec<Op>,
    pub sizes: Vec<u64>,
    pub users: Vec<u32>,
    pub modes: Vec<Mode>,
    pub rate: Option<f64>,
    pub think: Duration,
    pub duration: Duration,
    pub warm_up: Duration,
    pub repeat: u32,
    pub count: Option<u32>,
    pub verify: bool,
    pub file: Option<String>,
    pub files: Option<u32>,
    pub names: Names,
    pub source: Option<SourceRange>,
    pub threads: u32,
    pub server_pid: Option<i32>,
    pub patience: Duration,
    pub seed: u64,
    pub keep: bool,
    pub handicap: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            ops: vec![Op::Retr],
            sizes: vec![1024],
            users: vec![100],
            modes: vec![Mode::Pasv],
            rate: None,
            think: Duration::ZERO,
            duration: Duration::from_secs(5),
            warm_up: Duration::from_millis(500),
            repeat: 1,
            count: None,
            verify: false,
            file: None,
            files: None,
            names: Names::Same,
            source: None,
            threads: 1,
            server_pid: None,
            patience: Duration::from_secs(60),
            seed: 1,
            keep: false,
            handicap: Duration::ZERO,
        }
    }
}

/// One setting.
#[derive(Debug)]
pub struct Key {
    /// As a flag `--name`, as a key `name`.
    pub name: &'static str,
    /// What stands behind it, in the help; empty for a switch.
    pub value: &'static str,
    /// What it is for.
    pub help: &'static str,
    set: fn(&mut Settings, &str) -> Result<(), String>,
}

impl Settings {
    /// Changes one setting by its name. The error is a sentence without the name.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        let key = KEYS.iter().find(|key| key.name == name).ok_or("there is no such setting")?;
        (key.set)(self, value)
    }
}

const SHORTEST: Duration = Duration::from_millis(10);
/// No figure takes longer: a load is bounded.
const LONGEST: Duration = Duration::from_secs(24 * 3600);

/// Every setting.
pub const KEYS: [Key; 21] = [
    Key {
        name: "ops",
        value: "OP,...",
        help: "retr, stor, list, nlst, mlsd, login, noop, idle: measured one after the other",
        set: |s, t| put(&mut s.ops, value::list(t, |op| value::one_of(&OPS, op))),
    },
    Key {
        name: "size",
        value: "SIZE,...",
        help: "how large the files are: 1k,1m",
        set: |s, t| put(&mut s.sizes, value::list(t, value::size)),
    },
    Key {
        name: "users",
        value: "N,...",
        help: "sessions at once: a list, 1..1000 (times ten), 10..5000x2 or 10..100+10",
        set: |s, t| put(&mut s.users, value::list(t, value::users).map(|lists| lists.concat())),
    },
    Key {
        name: "mode",
        value: "MODE,...",
        help: "pasv, epsv, port, eprt",
        set: |s, t| put(&mut s.modes, value::list(t, |mode| value::one_of(&MODES, mode))),
    },
    Key {
        name: "rate",
        value: "N",
        help: "operations a second over all users, whatever the server does; off for a closed loop",
        set: |s, t| put(&mut s.rate, if t == "off" { Ok(None) } else { value::rate(t).map(Some) }),
    },
    Key {
        name: "think",
        value: "TIME",
        help: "how long a user of a closed loop waits between operations",
        set: |s, t| put(&mut s.think, value::duration(t)),
    },
    Key {
        name: "duration",
        value: "TIME",
        help: "how long operations are begun, for each figure",
        set: |s, t| put(&mut s.duration, value::duration(t).map(|time| time.clamp(SHORTEST, LONGEST))),
    },
    Key {
        name: "warm-up",
        value: "TIME",
        help: "load before that, which is not counted",
        set: |s, t| put(&mut s.warm_up, value::duration(t).map(|time| time.min(LONGEST))),
    },
    Key {
        name: "repeat",
        value: "N",
        help: "how many times each figure is taken",
        set: |s, t| put(&mut s.repeat, value::number(t, 1..=1000)),
    },
    Key {
        name: "count",
        value: "N",
        help: "operations of each user, at most; the time still bounds them",
        set: |s, t| put(&mut s.count, value::number(t, 1..=1_000_000).map(Some)),
    },
    Key {
        name: "verify",
        value: "",
        help: "check every byte of downloads as it comes, and uploads by reading each user's last one back",
        set: |s, t| put(&mut s.verify, value::switch(t)),
    },
    Key {
        name: "file",
        value: "PATH",
        help: "download, overwrite or list this rather than test files; %d becomes the user's number",
        set: |s, t| put(&mut s.file, Ok(Some(t.to_owned()))),
    },
    Key {
        name: "files",
        value: "N",
        help: "over how many test files the downloads are spread [one a user, within 256 MiB]",
        set: |s, t| put(&mut s.files, value::number(t, 1..=100_000).map(Some)),
    },
    Key {
        name: "names",
        value: "same|fresh",
        help: "upload to one name a user, or to a new one each time",
        set: |s, t| put(&mut s.names, value::one_of(&[("same", Names::Same), ("fresh", Names::Fresh)], t)),
    },
    Key {
        name: "source",
        value: "RANGE",
        help: "spread the users over these addresses: 127.0.0.0/8",
        set: |s, t| put(&mut s.source, SourceRange::parse(t).map(Some)),
    },
    Key {
        name: "threads",
        value: "N",
        help: "threads of this client",
        set: |s, t| put(&mut s.threads, value::number(t, 1..=256)),
    },
    Key {
        name: "server-pid",
        value: "PID",
        help: "the server's process: its CPU and memory are measured, with its descendants'",
        set: |s, t| put(&mut s.server_pid, value::number(t, 1..=i32::MAX as u32).map(|pid| Some(pid as i32))),
    },
    Key {
        name: "patience",
        value: "TIME",
        help: "how long an operation may take before it is an error",
        set: |s, t| put(&mut s.patience, value::duration(t).map(|time| time.clamp(SHORTEST, LONGEST))),
    },
    Key {
        name: "seed",
        value: "N",
        help: "of what the test files contain",
        set: |s, t| put(&mut s.seed, t.parse().map_err(|_| format!("{t:?} is no number"))),
    },
    Key {
        name: "keep",
        value: "",
        help: "leave the test files on the server",
        set: |s, t| put(&mut s.keep, value::switch(t)),
    },
    Key {
        name: "handicap",
        value: "TIME",
        help: "waste so much CPU at every event: a slow client, to test the audit with",
        set: |s, t| put(&mut s.handicap, value::duration(t)),
    },
];

fn put<T>(slot: &mut T, value: Result<T, String>) -> Result<(), String> {
    *slot = value?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_takes_what_its_help_says() {
        let examples = [
            ("ops", "retr, stor"),
            ("size", "1k,1m"),
            ("users", "1..100,7"),
            ("mode", "pasv,eprt"),
            ("rate", "500"),
            ("think", "10ms"),
            ("duration", "3s"),
            ("warm-up", "0"),
            ("repeat", "5"),
            ("count", "100"),
            ("verify", ""),
            ("file", "f/%d"),
            ("files", "9"),
            ("names", "fresh"),
            ("source", "127.0.0.0/8"),
            ("threads", "2"),
            ("server-pid", "1"),
            ("patience", "5s"),
            ("seed", "9"),
            ("keep", "on"),
            ("handicap", "1ms"),
        ];
        let mut settings = Settings::default();
        for (name, value) in examples {
            assert_eq!(settings.set(name, value), Ok(()), "{name}");
        }
        assert_eq!(examples.len(), KEYS.len());
        assert_eq!(settings.users, [1, 10, 100, 7]);
        assert!(settings.verify && settings.keep);
    }

    #[test]
    fn nonsense_is_refused() {
        for key in KEYS.iter().filter(|key| key.name != "file") {
            assert!(Settings::default().set(key.name, "?!").is_err(), "{}", key.name);
        }
        assert!(Settings::default().set("sise", "1").is_err());
    }
}
