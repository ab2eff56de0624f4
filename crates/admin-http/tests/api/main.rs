//! The admin API against a server in this process.

mod cluster;
mod configuration;
#[path = "../../../server/tests/sources/daemon.rs"]
#[allow(dead_code, reason = "other tests use all of it")]
mod daemon;
mod doors;
mod kit;
mod links;
mod logins;
mod oidc;
#[path = "../../../server/tests/sources/postgresql.rs"]
#[allow(dead_code, reason = "other tests use all of it")]
mod postgresql;
mod roles;
mod trace;
mod users;
