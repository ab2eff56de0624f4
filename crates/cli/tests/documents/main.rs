//! What users of the servers in the project's five documents had, row by row, tried with the real program.
//!
//! Rows without a file here are tried elsewhere: 8 (accounts of the system) by `privsep.rs` and `user/pam.rs`, 9 (pages on LDAP,
//! MySQL and PAM) by `pages.rs`, 10 (Ruby) by `recipes.rs`, 13 and 14 (clients that are other machines, zero-copy) by `commands.rs`,
//! which runs each command of `docs/documents.md`, 15 (races) by `bench-runs/zb-tux`, and 19 (what the docs say) by `commands.rs`.

mod commands;
#[path = "../../../server/tests/kit/ports.rs"]
mod ports;
mod row_01_started_by_others;
mod row_02_conversions;
mod row_03_classes;
mod row_04_host_address;
mod row_04_hosts_in_use;
mod row_04_virtual_hosts;
mod row_05_top;
mod row_06_limits;
mod row_07_read_rate;
mod row_11_times_of_transfers;
mod row_12_hash_in_flight;
mod row_16_upgrade_with_rows;
mod row_17_who;
mod row_18_check;
mod site;
