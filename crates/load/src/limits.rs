//! The limits of this machine for one process of a load.

use std::fs;

/// Descriptors that a process has besides its users' sockets.
const OTHER_DESCRIPTORS: u64 = 64;

/// How many users one process of this client can have: a control connection each, and where they transfer a
/// data connection.
pub fn users_a_process(descriptors: u64, transfer: bool) -> u64 {
    descriptors.saturating_sub(OTHER_DESCRIPTORS) / if transfer { 2 } else { 1 }
}

/// How many descriptors this process may have, after raising that as far as it goes.
pub use millrace_net::limits::raise_descriptors as descriptors;

/// How many ports the kernel chooses from for outgoing connections.
pub fn ephemeral_ports() -> u64 {
    let text = fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    let mut ends = text.split_whitespace().filter_map(|end| end.parse::<u64>().ok());
    match (ends.next(), ends.next()) {
        (Some(first), Some(last)) if last >= first => last - first + 1,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_takes_two_descriptors() {
        assert_eq!(users_a_process(20_000, true), 9_968);
        assert_eq!(users_a_process(10, false), 0);
    }
}
