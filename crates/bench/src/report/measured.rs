//! What a figure is of, in the report's words: figures with equal words are repetitions of one another.

use std::fmt::Write;

use serde::{Deserialize, Serialize};

use super::short_size;
use crate::plan::{Cache, Cell, Dataset, Download, Op};
use crate::poller::Selector;
use crate::schedule::Pace;

/// What a cell was, in the report's words.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[allow(missing_docs)] // `plan::KEYS` documents them.
pub struct Measured {
    pub label: Option<String>,
    pub op: String,
    /// Nothing where that is not known: of a transfer that is cut off it is not what was moved.
    pub size: Option<u64>,
    /// One transfer a user, cut off when the time was over: what counts is the bytes.
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
    pub threads: u32,
    /// `None` for epoll, as usual.
    pub selector: Option<Selector>,
    pub verified: bool,
    pub seed: u64,
    /// Where something was done about it.
    pub cache: Option<String>,
}

impl Measured {
    /// `retr 1k pasv`, without the users.
    pub(crate) fn name(&self) -> String {
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
        if let Some(selector) = self.selector {
            let _ = write!(name, " {}", selector.name());
        }
        name
    }

    pub(crate) fn of(cell: &Cell) -> Self {
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
            threads: cell.settings.threads,
            verified: cell.settings.verify,
            cache: Some(cell.settings.cache)
                .filter(|&cache| cache != Cache::Any)
                .map(|cache| cache.to_string()),
            selector: Some(cell.settings.selector).filter(|&selector| selector != Selector::Epoll),
            seed: cell.settings.seed,
        }
    }
}

/// An upload that is cut off is of whatever got through by then, and so is what is downloaded of it.
fn is_of_any_length(cell: &Cell) -> bool {
    cell.settings.endless && (cell.op == Op::Stor || cell.settings.download == Download::Uploaded)
}
