//! HTTP over real sockets.

#[path = "../kit/mod.rs"]
mod kit;

mod answers;
mod bad_input;
mod bandwidth;
mod conformance;
mod crowds;
mod directories;
mod hearing;
mod hooks;
mod http2;
mod links;
mod logins;
mod once;
mod operator;
mod overtaken;
mod pairs;
mod panics;
mod passing;
mod programs;
mod records;
mod reloads;
mod resumable;
mod slashes;
mod slow;
mod steps;
mod streams;
mod tls;
mod webdav;
mod writing;
