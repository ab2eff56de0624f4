//! Checks combinations of flags: one that would have no effect, or a misleading one, is refused.

use super::{Download, OnDeath, Op, Plan, PlanError, Settings, TlsVersion};
use crate::target::Scheme;

/// All of this a log says itself.
const SAID_BY_A_LOG: [&str; 14] = [
    "ops",
    "size",
    "users",
    "rate",
    "think",
    "duration",
    "count",
    "file",
    "files",
    "dataset-vs-ram",
    "download",
    "cache",
    "on-death",
    "endless",
];
/// Only requests have this.
const OF_HTTP: [&str; 5] = ["http", "http2", "keep-alive", "raw-target", "cgi"];

/// A flag that has an effect only together with another setting: `is_used` returns true for a step that uses it, and
/// `wrong` is the error where no step does.
struct Needs {
    flags: &'static [&'static str],
    is_used: fn(&Settings) -> bool,
    wrong: &'static str,
}

const NEEDS: [Needs; 6] = [
    Needs {
        flags: &["speed"],
        is_used: |step| step.replay.is_some(),
        wrong: "it is how fast a log is replayed: it takes --replay",
    },
    Needs {
        flags: &["least-rate", "clock"],
        is_used: |step| step.read_rate.is_some(),
        wrong: "it judges users who read at a rate: it takes --read-rate",
    },
    Needs {
        flags: &["quiet"],
        is_used: |step| step.on_death != OnDeath::Off,
        wrong: "it ends a load whose users may die: it takes --on-death",
    },
    Needs {
        flags: &["think"],
        is_used: |step| step.rate.is_none(),
        wrong: "--rate says when operations begin: take one of them",
    },
    Needs {
        flags: &["size"],
        is_used: |step| {
            step.ops.iter().any(|&op| op.has_size() && !(op == Op::Retr && step.downloads_own_file()))
        },
        wrong: "nothing of this is done with test files",
    },
    Needs {
        flags: &["resume", "prot"],
        is_used: |step| step.tls != TlsVersion::Off,
        wrong: "it is about TLS: it takes ftpes://, ftps://, https:// or --tls",
    },
];

/// Checks that the flags make sense together; `has_preset`: the user named a preset.
pub(super) fn check(plan: &Plan, has_preset: bool, flags: &[(&str, &str)]) -> Result<(), PlanError> {
    let is_over_http = plan.target.scheme.is_http();
    let said = |names: &[&str]| flags.iter().map(|flag| flag.0).find(|name| names.contains(name));
    let wrong =
        |name: &str, wrong: &str| Err(PlanError::Flag { name: name.to_owned(), wrong: wrong.to_owned() });
    if let Some(name) = said(&OF_HTTP).filter(|_| !is_over_http) {
        return wrong(name, "it is for http:// only");
    }
    if let Some(name) = said(&["tls"]).filter(|_| plan.target.scheme == Scheme::Http) {
        return wrong(name, "HTTP in TLS has a scheme of its own: https://");
    }
    if let Some(name) = said(&["prot"]).filter(|_| is_over_http) {
        return wrong(name, "it is about data connections, which HTTP has not");
    }
    if plan.steps.iter().any(|step| step.verify) && is_over_http {
        return wrong("verify", "documents over http:// are counted, and cannot be verified");
    }
    if plan.steps.iter().any(|step| step.verify && is_of_own_file(step)) {
        return wrong("verify", "what is in a --file of your own is not known, so it cannot be verified");
    }
    let has_no_slash = |step: &Settings| step.file.as_ref().is_some_and(|file| !file.starts_with('/'));
    if is_over_http && plan.steps.iter().any(has_no_slash) {
        return wrong("file", "over http:// a path begins with a slash: /f.bin");
    }
    let is_secure = plan.target.scheme.is_secure();
    for Needs { flags, is_used, wrong: why } in &NEEDS {
        let is_used_by = |step: &Settings| is_used(step) || (is_secure && flags.contains(&"prot"));
        if let Some(name) = said(flags).filter(|_| !plan.steps.iter().any(is_used_by)) {
            return wrong(name, why);
        }
    }
    if flags.iter().all(|flag| flag.0 != "replay") {
        return Ok(());
    }
    match said(&SAID_BY_A_LOG) {
        _ if is_over_http => wrong("replay", "a log is replayed over ftp:// only"),
        _ if has_preset => wrong("replay", "the log says what is done, and a preset does: take one of them"),
        Some(name) => wrong(name, "with --replay the log says that"),
        None => Ok(()),
    }
}

/// Returns true if it downloads what was there before.
fn is_of_own_file(step: &Settings) -> bool {
    step.downloads_own_file() && step.ops.contains(&Op::Retr)
}

impl Settings {
    /// Returns true if its downloads are of a file that is not made for the test, and may be of any size.
    pub(super) fn downloads_own_file(&self) -> bool {
        self.file.is_some() && self.download == Download::Made
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Cell, Preset};

    const URL: &str = "ftp://127.0.0.1:2121/";
    const LOG: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/xferlog");

    fn wrong(url: &str, preset: Option<&Preset>, flags: &[(&str, &str)]) -> String {
        Plan::new(url, preset, flags).err().map(|error| error.to_string()).unwrap_or_default()
    }

    #[test]
    fn a_file_of_ones_own_cannot_be_verified_and_has_no_size_but_a_name() {
        let own = [("ops", "retr,stor"), ("file", "/real.bin"), ("size", "1k,1m")];
        let both = [&own[..], &[("verify", "on")]].concat();
        assert!(wrong(URL, None, &both).contains("cannot be verified"));
        assert_eq!(wrong(URL, None, &[("ops", "stor"), ("file", "/f%d"), ("verify", "on")]), "");
        assert!(wrong("http://127.0.0.1/", None, &[("verify", "on")]).contains("cannot be verified"));
        let cells = Plan::new(URL, None, &own).unwrap().cells();
        let of = |op| cells.iter().filter(move |cell| cell.op == op);
        let [download] = of(Op::Retr).collect::<Vec<&Cell>>()[..] else { panic!("{cells:?}") };
        assert_eq!((download.size, download.settings.label.as_deref()), (None, Some("/real.bin")));
        assert_eq!(of(Op::Stor).filter_map(|cell| cell.size).sum::<u64>(), 1024 + (1 << 20));
    }

    #[test]
    fn a_path_of_http_begins_with_a_slash() {
        assert!(wrong("http://127.0.0.1/", None, &[("file", "f.bin")]).contains("begins with a slash"));
        assert_eq!(wrong("http://127.0.0.1/", None, &[("file", "/f.bin")]), "");
        assert_eq!(wrong(URL, None, &[("file", "f.bin")]), "");
    }

    #[test]
    fn a_replayed_log_excludes_other_settings() {
        let replay = ("replay", LOG);
        assert_eq!(wrong(URL, None, &[replay, ("speed", "10"), ("mode", "port"), ("verify", "on")]), "");
        for flag in [("ops", "noop"), ("size", "1k"), ("users", "3"), ("rate", "10"), ("think", "1s")] {
            assert_eq!(
                wrong(URL, None, &[replay, flag]),
                format!("--{}: with --replay the log says that", flag.0)
            );
        }
        let preset = Preset::built_in("waarp-1k").unwrap();
        assert!(wrong(URL, Some(&preset), &[replay]).contains("take one of them"));
    }

    #[test]
    fn flags_without_an_effect_are_refused() {
        for (flags, word) in [
            (&[("speed", "10")][..], "--replay"),
            (&[("ops", "noop"), ("speed", "10")], "--replay"),
            (&[("least-rate", "50")], "--read-rate"),
            (&[("clock", "command")], "--read-rate"),
            (&[("quiet", "5s")], "--on-death"),
            (&[("rate", "5"), ("think", "1s")], "--rate says"),
            (&[("ops", "login,noop"), ("size", "1k")], "test files"),
            (&[("prot", "clear")], "ftpes://"),
            (&[("resume", "off")], "ftpes://"),
            (&[("timeout", "0")], "no time at all"),
        ] {
            let said = wrong(URL, None, flags);
            let last = flags.last().unwrap().0;
            assert!(said.starts_with(&format!("--{last}: ")) && said.contains(word), "{flags:?}: {said}");
        }
        for (url, flags) in [
            (URL, &[("ops", "retr"), ("read-rate", "1k"), ("least-rate", "50"), ("clock", "command")][..]),
            (URL, &[("on-death", "drop-out"), ("quiet", "5s")]),
            (URL, &[("ops", "login,retr"), ("size", "1k"), ("think", "1s")]),
            (URL, &[("tls", "1.3"), ("prot", "clear"), ("resume", "off")]),
            ("ftpes://127.0.0.1/", &[("prot", "clear"), ("resume", "off")]),
        ] {
            assert_eq!(wrong(url, None, flags), "", "{flags:?}");
        }
        let modern = Preset::built_in("dkftp-modern").unwrap();
        assert_eq!(wrong(URL, Some(&modern), &[("least-rate", "50"), ("quiet", "9s"), ("size", "1m")]), "");
    }

    #[test]
    fn flags_of_http_are_refused_for_ftp() {
        for flag in [("keep-alive", "off"), ("http", "1.0"), ("raw-target", "/x")] {
            assert!(wrong(URL, None, &[flag]).contains("http:// only"), "{flag:?}");
            assert_eq!(wrong("http://127.0.0.1/", None, &[flag]), "");
            assert_eq!(wrong("https://127.0.0.1/", None, &[flag, ("tls", "1.2"), ("resume", "off")]), "");
        }
    }

    #[test]
    fn flags_of_tls_are_allowed_for_https() {
        for (flag, word) in
            [(("tls", "on"), "https://"), (("resume", "off"), "https://"), (("prot", "clear"), "data")]
        {
            assert!(wrong("http://127.0.0.1/", None, &[flag]).contains(word), "{flag:?}");
        }
        assert!(wrong("https://127.0.0.1/", None, &[("prot", "clear")]).contains("data connections"));
    }
}
