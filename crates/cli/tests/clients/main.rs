//! The clients that people use, against the real binary.
//!
//! Every test starts a server of its own on a free port over a tree of its own, lets one client do what its
//! users do, and compares files byte by byte. A client that is not installed is skipped with a line that
//! says so; with `MILLRACE_REQUIRE_CLIENTS=1`, which `./test` sets, it fails the test.

mod acme;
mod balanced;
mod basic_ftp;
mod browser;
#[path = "../../../server/tests/sources/daemon.rs"]
#[allow(dead_code, reason = "other tests use all of it")]
mod daemon;
#[path = "../../../server/tests/acme/pebble.rs"]
#[allow(dead_code, reason = "other tests use all of it")]
mod pebble;
#[path = "../../../server/tests/sources/postgresql.rs"]
#[allow(dead_code, reason = "other tests use all of it")]
mod postgresql;

mod curl;
mod folders;
mod ftplib;
mod ftps;
mod h2spec;
mod haproxy;
mod http;
mod lftp;
mod ncftp;
mod oldest;
mod proxy;
mod rclone;
mod server;
mod tnftp;
mod tool;
mod tree;
mod tus;
mod webdav;
mod wget;
