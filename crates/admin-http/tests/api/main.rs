//! The admin API against a server in this process.

mod configuration;
mod doors;
mod kit;
mod logins;
mod oidc;
mod roles;
mod trace;
mod users;
