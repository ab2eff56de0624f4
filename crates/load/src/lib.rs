//! Loads a file server over FTP or HTTP, counts what happens, and judges what the figures are worth.
//!
//! ```
//! use millrace_load::plan::Plan;
//! use millrace_load::progress::Silent;
//! use millrace_load::run::run;
//!
//! # use std::io::{BufRead, BufReader, Write};
//! # let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
//! # let url = format!("http://{}/", listener.local_addr()?);
//! # std::thread::spawn(move || {
//! #     for stream in listener.incoming().flatten() {
//! #         std::thread::spawn(move || {
//! #             for line in BufReader::new(&stream).lines().map_while(Result::ok) {
//! #                 let is_end = line.is_empty();
//! #                 let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
//! #                 if is_end && (&stream).write_all(answer).is_err() {
//! #                     break;
//! #                 }
//! #             }
//! #         });
//! #     }
//! # });
//! // `url` is of a server that this test has started.
//! let flags = [("ops", "get"), ("users", "4"), ("duration", "200ms"), ("warm-up", "0s")];
//! let plan = Plan::new(&url, None, &flags)?;
//! let measurement = run(&plan, &Silent)?;
//! let figure = &measurement.cells[0];
//! assert!(figure.ops > 0 && figure.failures() == 0, "{:?}", figure.faults);
//! assert!(figure.latency.p99_ms < 1000.0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Where to look:
//!
//! - [`plan`] is what to measure: a [`target`], and settings that flags and presets share.
//! - [`run`] takes the figures, one [`plan::Cell`] after the other, and reports its [`progress`]; `driver` loads the
//!   server, [`schedule`] decides when operations begin, [`payload`] generates file contents; [`fixture`] is the work
//!   between the figures.
//! - [`ramp_up`] is the load of users that begin one after the other and are out when they fail; [`chaos`] is the
//!   misbehaving users.
//! - [`threads`] is how many threads of this client do it.
//! - [`elsewhere`] has generators put the load on: processes, here or on other machines.
//! - [`worker_processes`] is workers in processes of their own, for more users than one process can have.
//! - [`tally`], [`histogram`], [`timeline`], [`fault`], [`fairness`] and [`host`] hold the counts; a [`figure`] is the
//!   result of a cell, with a [`verdict`] on its limit; [`series`] compares figures of one load.

mod attendance;
pub mod chaos;
pub mod driver;
pub mod elsewhere;
pub mod fairness;
pub mod fault;
pub mod figure;
pub mod fixture;
pub mod host;
pub mod limits;
pub mod moment;
pub mod plan;
pub mod progress;
pub mod ramp_up;
pub mod run;
pub mod schedule;
pub mod selector;
pub mod series;
pub mod stop;
pub mod tally;
pub mod target;
pub mod threads;
pub mod verdict;
pub mod worker_processes;

pub use millrace_payload as payload;
pub use millrace_stats::{histogram, timeline, units};
