//! The settings of a measurement, one row each: flags, presets and help follow from this table.

use std::sync::Arc;
use std::time::Duration;

use super::dataset::Dataset;
use super::script::Script;
use super::settings::Settings;
use super::value::{
    self, CACHES, CLOCKS, DEATHS, DOWNLOADS, HTTP_VERSIONS, HttpVersion, MODES, NAMES, OPS, PROTS,
    SourceRange, TLS_VERSIONS, ValueError,
};
use crate::selector::SELECTORS;

/// One setting.
#[derive(Debug)]
pub struct Key {
    /// As a flag `--name`, as a key `name`.
    pub name: &'static str,
    /// The placeholder of its value in the help; empty for a switch.
    pub value: &'static str,
    /// Its help text.
    pub help: &'static str,
    set: fn(&mut Settings, &str) -> Result<(), ValueError>,
}

impl Settings {
    /// Changes one setting by its name.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), ValueError> {
        let key = KEYS.iter().find(|key| key.name == name).ok_or(ValueError::NoSetting)?;
        (key.set)(self, value)?;
        self.note(name, value);
        Ok(())
    }
}

const SHORTEST: Duration = Duration::from_millis(10);

/// Every setting.
pub const KEYS: [Key; 54] = [
    Key {
        name: "ops",
        value: "OP,...",
        help: "retr, stor, list, nlst, mlsd, login, noop, idle, quit, over HTTP get: one after the other",
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
        set: |s, t| put(&mut s.rate, unless_off(t, value::rate)),
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
        set: |s, t| put(&mut s.duration, value::some_time(t).map(|time| time.max(SHORTEST))),
    },
    Key {
        name: "warm-up",
        value: "TIME",
        help: "load before that, which is not counted",
        set: |s, t| put(&mut s.warm_up, value::duration(t)),
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
        help: "check every byte of downloads as it comes, and each user's last upload: by HASH, or read back",
        set: |s, t| put(&mut s.verify, value::switch(t)),
    },
    Key {
        name: "file",
        value: "PATH",
        help: "download, overwrite or list this (as it is named after login) rather than test files; %d becomes \
               the user's number",
        set: |s, t| put(&mut s.file, Ok(Some(t.to_owned()))),
    },
    Key {
        name: "files",
        value: "N",
        help: "over how many test files the downloads are spread [one a user, within 256 MiB]",
        set: |s, t| put(&mut s.files, value::number(t, 1..=100_000).map(Some)),
    },
    Key {
        name: "dataset-vs-ram",
        value: "N",
        help: "so many times the machine's memory of test files: as many, or with --files as large; off for neither",
        set: |s, t| {
            let dataset = |t: &str| value::share(t).map(|times| Dataset { times, ..Dataset::default() });
            put(&mut s.dataset, unless_off(t, dataset))
        },
    },
    Key {
        name: "names",
        value: "same|fresh|one",
        help: "upload to one name a user, to a new one each time, or all users to one",
        set: |s, t| put(&mut s.names, value::one_of(&NAMES, t)),
    },
    Key {
        name: "source",
        value: "RANGE",
        help: "spread the users over these addresses: 127.0.0.0/8",
        set: |s, t| put(&mut s.source, SourceRange::parse(t).map(Some)),
    },
    Key {
        name: "ports",
        value: "PORT,...",
        help: "spread the users over these ports of the target's host: servers of one folder",
        set: |s, t| put(&mut s.ports, value::list(t, value::port)),
    },
    Key {
        name: "threads",
        value: "N",
        help: "threads of this client [auto: one, and more where short looks before a figure say that they get more; all \
               processors for a server elsewhere]",
        set: |s, t| put(&mut s.threads, value::threads(t)),
    },
    Key {
        name: "selector",
        value: "SELECTOR",
        help: "how this client hears which sockets are ready: poll, epoll, epoll-et or io_uring",
        set: |s, t| put(&mut s.selector, value::one_of(&SELECTORS, t)),
    },
    Key {
        name: "server-pid",
        value: "PID",
        help: "the server's process, where it is not the one that listens there: its CPU and memory are measured",
        set: |s, t| put(&mut s.server_pid, value::process(t).map(Some)),
    },
    Key {
        name: "timeout",
        value: "TIME",
        help: "how long an operation may take before it is an error",
        set: |s, t| put(&mut s.patience, value::some_time(t).map(|time| time.max(SHORTEST))),
    },
    Key {
        name: "seed",
        value: "N",
        help: "of what the test files contain",
        set: |s, t| put(&mut s.seed, t.parse().map_err(|_| value::wrong(t, "is no number"))),
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
    Key {
        name: "label",
        value: "TEXT",
        help: "what a preset's document calls this step",
        set: |s, t| put(&mut s.label, Ok(Some(t.to_owned()))),
    },
    Key {
        name: "cycle",
        value: "",
        help: "repeat the whole plan, rather than each figure before the next",
        set: |s, t| put(&mut s.cycle, value::switch(t)),
    },
    Key {
        name: "gap",
        value: "TIME",
        help: "a pause between two figures",
        set: |s, t| put(&mut s.gap, value::duration(t)),
    },
    Key {
        name: "login-concurrency",
        value: "N",
        help: "how many users of a thread log in at once",
        set: |s, t| put(&mut s.connecting, value::number(t, 1..=100_000)),
    },
    Key {
        name: "idlers",
        value: "N",
        help: "users besides, who log in and do nothing",
        set: |s, t| put(&mut s.idlers, value::number(t, 0..=1_000_000)),
    },
    Key {
        name: "read-rate",
        value: "SIZE",
        help: "bytes a second that a user takes of a download, at most; off for all that comes",
        set: |s, t| put(&mut s.read_rate, unless_off(t, value::some_bytes)),
    },
    Key {
        name: "least-rate",
        value: "PERCENT",
        help: "a download at less than this share of the read rate has failed",
        set: |s, t| put(&mut s.least_rate, value::number(t.trim_end_matches('%'), 0..=100)),
    },
    Key {
        name: "clock",
        value: "first-byte|command",
        help: "from when the rate of a download counts",
        set: |s, t| put(&mut s.clock, value::one_of(&CLOCKS, t)),
    },
    Key {
        name: "on-death",
        value: "off|drop-out|stop-growth",
        help: "users begin one after the other, and a user that fails is out; a death may end the growth",
        set: |s, t| put(&mut s.on_death, value::one_of(&DEATHS, t)),
    },
    Key {
        name: "quiet",
        value: "TIME",
        help: "with a death rule: the run ends when no user logged in or died for so long",
        set: |s, t| put(&mut s.quiet, value::duration(t).map(|time| time.max(SHORTEST))),
    },
    Key {
        name: "chunk",
        value: "SIZE",
        help: "bytes of a data connection that are read or written at a time, at most; off for any number",
        set: |s, t| put(&mut s.chunk, unless_off(t, value::some_bytes)),
    },
    Key {
        name: "rcvbuf",
        value: "SIZE",
        help: "the receive buffer of data connections; off for the system's own; auto: one that holds downloads of 512k to 16m whose \
               bytes are dropped, on this machine [auto]",
        set: |s, t| put(&mut s.rcvbuf, value::receive_buffer(t)),
    },
    Key {
        name: "endless",
        value: "",
        help: "one transfer a user, which is cut off when the time is over",
        set: |s, t| put(&mut s.endless, value::switch(t)),
    },
    Key {
        name: "download",
        value: "made|uploaded",
        help: "download test files, or what the users of a step before have uploaded",
        set: |s, t| put(&mut s.download, value::one_of(&DOWNLOADS, t)),
    },
    Key {
        name: "barrier",
        value: "",
        help: "arrange every data connection first, then release all transfers together",
        set: |s, t| put(&mut s.barrier, value::switch(t)),
    },
    Key {
        name: "cache",
        value: "any|created|warm|cold",
        help: "before each figure: make the files anew, read them, or drop them from the page cache",
        set: |s, t| put(&mut s.cache, value::one_of(&CACHES, t)),
    },
    Key {
        name: "server-root",
        value: "DIRECTORY",
        help: "where the target's folder is on this machine: what a cold cache needs",
        set: |s, t| put(&mut s.server_root, Ok(Some(t.to_owned()))),
    },
    Key {
        name: "ran",
        value: "FILE",
        help: "what each command that the server runs for a transfer adds a byte to: the last ends the figure",
        set: |s, t| put(&mut s.ran, Ok(Some(t.to_owned()))),
    },
    Key {
        name: "total",
        value: "N",
        help: "operations of all users together, at most; the time still bounds them",
        set: |s, t| put(&mut s.total, value::number(t, 1..=1_000_000_000).map(Some)),
    },
    Key {
        name: "chaos",
        value: "SHARE[:KIND,...]",
        help: "measure once more amid bad users: so many for a hundred, such as 10% (as without a value) or 10%:unread,abor",
        set: |s, t| put(&mut s.chaos, unless_off(t, value::chaos)),
    },
    Key {
        name: "replay",
        value: "FILE",
        help: "a transfer log (xferlog): its downloads and uploads, in its sizes, when it says",
        set: |s, t| put(&mut s.replay, Ok(Some(Arc::new(Script::read(t)?)))),
    },
    Key {
        name: "speed",
        value: "N",
        help: "replay so many times as fast as the log",
        set: |s, t| put(&mut s.speed, value::factor(t)),
    },
    Key {
        name: "tls",
        value: "on|1.2|1.3",
        help: "encrypt an ftp:// target as ftpes:// does; or, of https:// too, which version of TLS is offered",
        set: |s, t| put(&mut s.tls, value::one_of(&TLS_VERSIONS, t)),
    },
    Key {
        name: "prot",
        value: "private|clear",
        help: "with TLS: whether data connections are encrypted, too",
        set: |s, t| put(&mut s.prot, value::one_of(&PROTS, t)),
    },
    Key {
        name: "resume",
        value: "on|off",
        help: "with TLS: data connections resume the session of their control connection, those of https:// the last one's",
        set: |s, t| put(&mut s.resume, value::switch(t)),
    },
    Key {
        name: "http",
        value: "1.0|1.1|2",
        help: "the version of HTTP that requests are made in",
        set: |s, t| put(&mut s.http, value::one_of(&HTTP_VERSIONS, t)),
    },
    Key {
        name: "http2",
        value: "",
        help: "the same as --http 2: over https:// by ALPN, over http:// by prior knowledge",
        set: |s, t| {
            let version = |is_on| if is_on { HttpVersion::Http2 } else { HttpVersion::Http11 };
            put(&mut s.http, value::switch(t).map(version))
        },
    },
    Key {
        name: "keep-alive",
        value: "on|off",
        help: "over HTTP: make the next request on the same connection",
        set: |s, t| put(&mut s.keep_alive, value::switch(t)),
    },
    Key {
        name: "raw-target",
        value: "TEXT",
        help: "over HTTP: ask for exactly this, rather than for the target's path",
        set: |s, t| put(&mut s.raw_target, Ok(Some(t.to_owned()))),
    },
    Key {
        name: "cgi",
        value: "",
        help: "over HTTP: the target runs a program for each request, and an answer out of a file is refused",
        set: |s, t| put(&mut s.cgi, value::switch(t)),
    },
];

/// `off`, or a value.
fn unless_off<T>(text: &str, one: impl Fn(&str) -> Result<T, ValueError>) -> Result<Option<T>, ValueError> {
    if text == "off" { Ok(None) } else { one(text).map(Some) }
}

fn put<T>(slot: &mut T, value: Result<T, ValueError>) -> Result<(), ValueError> {
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
            ("dataset-vs-ram", "1.5"),
            ("names", "fresh"),
            ("source", "127.0.0.0/8"),
            ("ports", "2121,2122"),
            ("threads", "2"),
            ("selector", "epoll-et"),
            ("server-pid", "1"),
            ("timeout", "5s"),
            ("seed", "9"),
            ("keep", "on"),
            ("handicap", "1ms"),
            ("label", "a row"),
            ("cycle", ""),
            ("gap", "60s"),
            ("login-concurrency", "1"),
            ("idlers", "200"),
            ("read-rate", "3600"),
            ("least-rate", "75%"),
            ("clock", "command"),
            ("on-death", "drop-out"),
            ("quiet", "180s"),
            ("chunk", "1500"),
            ("rcvbuf", "8k"),
            ("endless", ""),
            ("download", "uploaded"),
            ("barrier", ""),
            ("cache", "cold"),
            ("server-root", "/srv/ftp"),
            ("ran", "/srv/ran"),
            ("total", "20000"),
            ("chaos", "10%:unread,abor"),
            ("replay", concat!(env!("CARGO_MANIFEST_DIR"), "/tests/xferlog")),
            ("speed", "10x"),
            ("tls", "1.3"),
            ("prot", "clear"),
            ("resume", "off"),
            ("http", "1.0"),
            ("http2", ""),
            ("keep-alive", "off"),
            ("raw-target", "x?/index.html"),
            ("cgi", "on"),
        ];
        let mut settings = Settings::default();
        for (name, value) in examples {
            settings.set(name, value).unwrap_or_else(|error| panic!("{name}: {error}"));
        }
        assert_eq!(examples.len(), KEYS.len());
        assert_eq!(settings.users, [1, 10, 100, 7]);
        assert!(settings.verify && settings.keep);
    }

    #[test]
    fn nonsense_is_refused() {
        let any_text = ["file", "label", "server-root", "raw-target", "ran"];
        for key in KEYS.iter().filter(|key| !any_text.contains(&key.name)) {
            assert!(Settings::default().set(key.name, "?!").is_err(), "{}", key.name);
        }
        assert!(Settings::default().set("sise", "1").is_err());
    }
}
