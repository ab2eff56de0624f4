//! The commands that measure: `millrace bench` and `race`, and what they know of the machine, `limits` and `poller-bench`.
//!
//! Here are their flags, their progress and where their figures go; `millrace-lab` and `millrace-load` do the work.

pub mod bench;
pub mod limits;
pub mod poller_bench;
pub mod race;
