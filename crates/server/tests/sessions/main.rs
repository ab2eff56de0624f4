//! Sessions over real sockets: a server on a free port for each test, and a client that says exactly what
//! the test says. One file a theme.

#[path = "../kit/mod.rs"]
mod kit;

mod aborts;
mod accounts;
mod active;
mod bad_input;
mod bandwidth;
mod bans;
mod commands;
mod endings;
mod histories;
mod hook_paths;
mod hook_waits;
mod hooks;
mod limits;
mod links;
mod notes;
mod overtaken;
mod passive;
mod pipelining;
mod proxied;
mod quotas;
mod shared_ports;
mod shutdown;
mod timeouts;
mod tls;
mod tls_clients;
mod tls_early;
mod trees;
mod uploads;
mod waarp;
