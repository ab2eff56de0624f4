//! The ruler: measures a file server under load, and says what the figures are worth.
//!
//! ```no_run
//! use millrace_load::{plan::Plan, report, run};
//!
//! let flags = [("ops", "retr"), ("size", "1k,1m"), ("users", "1..100")];
//! let plan = Plan::new("ftp://bench:bench@127.0.0.1:2121/", None, &flags)?;
//! let report = run::run(&plan, &run::Silent)?;
//! print!("{}", report::text::render(&report, false));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Where to look:
//!
//! - [`plan`] is what to measure: a [`target`], and settings that flags and presets share.
//! - [`run`] takes the figures, one [`plan::Cell`] after the other; `driver` loads the server, [`schedule`] says
//!   when operations begin, [`payload`] what files contain; [`chore`] is what is done between the figures.
//! - [`colony`] is who lives, where a user that fails is out; [`chaos`] is who behaves badly beside them.
//! - [`crew`] is workers in processes of their own, for more users than one process can have.
//! - [`histogram`], [`timeline`], [`fault`], [`fairness`] and [`host`] are what is noted; [`report`] is what is shown.
//! - [`gate`] says whether a report is good enough.
//! - [`replay`] is a transfer log as a load.
//! - [`search`] looks for the most users that a server holds.
//! - [`stats`] is what may be concluded from several of them.
//! - [`limits`] is what this machine allows; [`poller`] compares the ways of waiting for many sockets.
//! - [`race`] puts several servers side by side; [`peers`] are servers that are known by name.

pub mod chaos;
pub mod chore;
pub mod colony;
pub mod crew;
mod driver;
pub mod fairness;
pub mod fault;
pub mod gate;
pub mod histogram;
pub mod host;
pub mod limits;
pub mod payload;
pub mod peers;
pub mod plan;
pub mod poller;
pub mod race;
pub mod replay;
pub mod report;
pub mod run;
pub mod schedule;
pub mod search;
pub mod stats;
mod tally;
pub mod target;
pub mod timeline;
