//! What a figure measures, in the report's words: figures with equal words are repetitions.

use std::fmt::Write;

use serde::{Deserialize, Serialize};

use crate::plan::{Cache, Cell, Dataset, Download, Op};
use crate::schedule::Pace;
use crate::selector::Selector;
use crate::units::{short_size, size_in_words};

/// A cell, in the report's words.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[allow(missing_docs)] // `plan::KEYS` documents them.
pub struct Measured {
    pub label: Option<String>,
    pub op: String,
    /// `None` where the size is unknown, such as for a transfer that is cut off.
    pub size: Option<u64>,
    /// One transfer a user, cut off at the end of the time: the result is its bytes.
    pub endless: bool,
    pub mode: Option<String>,
    pub users: u32,
    pub idlers: u32,
    pub files: u32,
    pub dataset: Option<Dataset>,
    pub rate: Option<f64>,
    pub think_ms: f64,
    pub bad_users: u32,
    pub repetition: u32,
    /// 0 where this client chose.
    pub threads: u32,
    /// `None` for epoll, as usual.
    pub selector: Option<Selector>,
    pub verified: bool,
    pub seed: u64,
    /// The state of the page cache, where it was prepared.
    pub cache: Option<String>,
}

impl Measured {
    /// `retr 1k pasv`, without the users.
    pub fn name(&self) -> String {
        let mut name = self.op.clone();
        if self.endless {
            name.push_str(" endless");
        }
        if let Some(size) = self.size {
            let _ = write!(name, " {}", short_size(size));
        }
        if let Some(mode) = &self.mode {
            let _ = write!(name, " {mode}");
        }
        if let Some(rate) = self.rate {
            let _ = write!(name, " @{rate}");
        }
        if self.bad_users > 0 {
            let _ = write!(name, " +{}bad", self.bad_users);
        }
        if let Some(selector) = self.selector_unsaid() {
            let _ = write!(name, " {selector}");
        }
        name
    }

    /// The selector, where it is unusual and the label does not name it.
    pub fn selector_unsaid(&self) -> Option<&'static str> {
        let name = self.selector?.name();
        let is_said = |label: &String| label.split_whitespace().any(|word| word == name);
        (!self.label.as_ref().is_some_and(is_said)).then_some(name)
    }

    /// In plain words: `downloads of 1 KiB (by PORT)`, without the users.
    pub fn words(&self) -> String {
        let what = match self.op.as_str() {
            "retr" => "downloads",
            "stor" => "uploads",
            "login" => "logins",
            "get" => "requests",
            "idle" => "idle sessions",
            "replay" => "transfers of a log",
            "list" | "nlst" | "mlsd" => "listings",
            _ => "answers",
        };
        let size = self.size.map_or_else(String::new, |size| format!(" of {}", size_in_words(size)));
        let command = match self.op.as_str() {
            "list" | "nlst" | "mlsd" | "noop" | "quit" => Some(format!("by {}", self.op.to_uppercase())),
            _ => None,
        };
        let mode = self.mode.as_ref().filter(|mode| *mode != "pasv");
        let besides = [
            self.label.clone().filter(|label| *label != self.op),
            self.endless.then(|| "cut off at the end".to_owned()),
            command,
            mode.map(|mode| format!("by {}", mode.to_uppercase())),
            self.rate.map(|rate| format!("{rate} a second asked for")),
            (self.bad_users > 0).then(|| format!("amid {} bad users", self.bad_users)),
            self.selector_unsaid().map(|selector| format!("heard by {selector}")),
        ];
        let besides = besides.into_iter().flatten().collect::<Vec<_>>().join(", ");
        if besides.is_empty() { format!("{what}{size}") } else { format!("{what}{size} ({besides})") }
    }

    /// Describes a cell.
    pub fn of(cell: &Cell) -> Self {
        let think = match cell.pace() {
            Pace::Closed { think } => think.as_secs_f64() * 1e3,
            Pace::Rate(_) => 0.0,
        };
        Self {
            label: cell.settings.label.clone(),
            op: cell.op.to_string(),
            size: cell.size.filter(|_| !is_of_any_length(cell)),
            endless: cell.settings.endless,
            mode: cell.mode.map(|mode| mode.to_string()),
            users: cell.users,
            idlers: cell.settings.idlers,
            files: cell.files(),
            dataset: cell.settings.dataset.filter(|_| cell.op == Op::Retr),
            rate: cell.settings.rate,
            think_ms: think,
            bad_users: cell.bad_users(),
            repetition: cell.repetition,
            threads: cell.settings.threads.unwrap_or(0),
            verified: cell.settings.verify,
            cache: Some(cell.settings.cache)
                .filter(|&cache| cache != Cache::Any)
                .map(|cache| cache.to_string()),
            selector: Some(cell.settings.selector).filter(|&selector| selector != Selector::Epoll),
            seed: cell.settings.seed,
        }
    }
}

/// An upload that is cut off leaves a partial file, and a download of it is as short.
fn is_of_any_length(cell: &Cell) -> bool {
    cell.settings.endless && (cell.op == Op::Stor || cell.settings.download == Download::Uploaded)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Plan;

    fn measured(flags: &[(&str, &str)]) -> Measured {
        Measured::of(&Plan::new("ftp://127.0.0.1:2121/", None, flags).unwrap().cells()[0])
    }

    #[test]
    fn a_load_is_told_in_short_and_in_words() {
        type Case<'a> = (&'a [(&'a str, &'a str)], &'a str, &'a str);
        let cases: [Case<'_>; 6] = [
            (&[("ops", "retr"), ("size", "1k")], "retr 1k pasv", "downloads of 1 KiB"),
            (
                &[("ops", "stor"), ("size", "1666"), ("mode", "port")],
                "stor 1666 port",
                "uploads of 1666 bytes (by PORT)",
            ),
            (&[("ops", "login"), ("rate", "50")], "login @50", "logins (50 a second asked for)"),
            (&[("ops", "noop"), ("selector", "poll")], "noop poll", "answers (by NOOP, heard by poll)"),
            (&[("ops", "mlsd")], "mlsd pasv", "listings (by MLSD)"),
            (&[("ops", "idle")], "idle", "idle sessions"),
        ];
        for (flags, short, words) in cases {
            let measured = measured(flags);
            assert_eq!((&measured.name()[..], &measured.words()[..]), (short, words));
        }
    }

    #[test]
    fn words_in_a_label_are_not_repeated() {
        let labelled = measured(&[("ops", "retr"), ("selector", "poll"), ("label", "stop-growth poll")]);
        assert_eq!(labelled.name(), "retr 1k pasv");
        assert_eq!(labelled.words(), "downloads of 1 KiB (stop-growth poll)");
        let other = measured(&[("ops", "retr"), ("selector", "poll"), ("label", "stop-growth epoll")]);
        assert_eq!(other.name(), "retr 1k pasv poll");
    }
}
