//! The benchmark's laboratory: evaluates the figures that [`millrace_load`] measures.
//!
//! - [`run`] runs a plan and makes a [`report`] of it; [`html`] has the same as a page.
//! - [`gate`] judges a report by thresholds or against a baseline.
//! - [`search`] looks for the most users that a server holds.
//! - [`race`] puts several servers side by side; [`peers`] are servers that are known by name.
//! - [`limits`] is what this machine allows; [`poller`] compares the ways of waiting for many sockets.

pub mod from_log;
pub mod gate;
pub mod html;
pub mod limits;
pub mod peers;
pub mod poller;
pub mod race;
pub mod report;
pub mod run;
pub mod search;
mod terminal;
