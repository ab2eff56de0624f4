//! Load generators: processes on this machine or on others that put a load on together.
//!
//! ```text
//! millrace bench URL --from ssh://a --from ssh://b
//!
//!  fleet  ----- ssh a millrace bench-generator ----- generator
//!   |  \------- ssh b millrace bench-generator ----- generator
//!   |
//!  the run of the crate `load`: prepares, watches and judges as ever
//! ```
//!
//! - [`source`] is what `--from` names, and starts a generator there; `ssh` has OpenSSH's client copy the program first.
//! - [`fleet`] divides a load among the generators, has them begin at one moment by what [`clock`] knows of their clocks, and
//!   sees when one is lost.
//! - [`generator`] is the other side; [`protocol`] is what they say to each other.
//! - [`planning`] computes how many servers a site needs from measured figures.
//!
//! Merged are counts and histograms, never percentiles: a bucket of the whole has as many as those of all generators together,
//! as if one process had counted.

mod clock;
pub mod fleet;
pub mod generator;
pub mod planning;
pub mod protocol;
pub mod source;
mod ssh;
