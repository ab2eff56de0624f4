//! Whole conversations with a session, line by line, against the tree in memory.

#[path = "../memory/mod.rs"]
mod memory;

mod extensions;
mod files;
mod gate;
mod logins;
mod transfers;
