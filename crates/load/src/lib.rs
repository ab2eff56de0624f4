//! Loads a file server over FTP or HTTP, counts what happens, and judges what the figures are worth.
//!
//! ```no_run
//! use millrace_load::plan::Plan;
//! use millrace_load::progress::Silent;
//! use millrace_load::run::run;
//!
//! let flags = [("ops", "retr"), ("size", "1k,1m"), ("users", "1..100")];
//! let plan = Plan::new("ftp://bench:bench@127.0.0.1:2121/", None, &flags)?;
//! let measurement = run(&plan, &Silent)?;
//! for cell in &measurement.cells {
//!     println!("{}: {:.0} a second", cell.measured.name(), cell.ops_per_s);
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Where to look:
//!
//! - [`plan`] is what to measure: a [`target`], and settings that flags and presets share.
//! - [`run`] takes the figures, one [`plan::Cell`] after the other, and tells its [`progress`]; `driver` loads the
//!   server, [`schedule`] says when operations begin, [`payload`] what files contain; [`fixture`] is what is done
//!   between the figures.
//! - [`colony`] is who lives, where a user that fails is out; [`chaos`] is who behaves badly beside them.
//! - [`crew`] is workers in processes of their own, for more users than one process can have.
//! - [`tally`], [`histogram`], [`timeline`], [`fault`], [`fairness`] and [`host`] are what is counted; a [`figure`] is
//!   what a cell comes to, with a [`verdict`] on what bounded it; [`series`] compares figures of one load.
//! - [`stats`] is what may be concluded from several of them.

pub mod chaos;
pub mod colony;
pub mod crew;
pub mod driver;
pub mod fairness;
pub mod fault;
pub mod figure;
pub mod fixture;
pub mod histogram;
pub mod host;
pub mod limits;
mod moment;
pub mod payload;
pub mod plan;
pub mod progress;
pub mod run;
pub mod schedule;
pub mod selector;
pub mod series;
pub mod stats;
pub mod stop;
pub mod tally;
pub mod target;
pub mod timeline;
pub mod units;
pub mod verdict;

/// The names that `driver::http` still has for [`fixture`] and [`progress`].
mod chore {
    pub(crate) use crate::fixture::Chore;
    pub(crate) use crate::progress::Chores;
}
