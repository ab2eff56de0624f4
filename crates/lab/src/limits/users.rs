//! The limits in users: for this client, and for a server on this machine.

use super::{ephemeral_ports, read, users_a_process};

/// A number of users that something allows.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Allowance {
    /// The kind of users and their activity.
    pub who: &'static str,
    /// At most this many; `None` where it cannot be known.
    pub most: Option<u64>,
    /// Which limit that is, and what moves it.
    pub because: String,
}

/// A kernel's socket in use takes at least so much: a page for each direction.
const SOCKET_PAGES: u64 = 2;
/// Seconds for which a closed connection keeps its port (`TCP_TIMEWAIT_LEN`, a constant of the kernel).
const TIME_WAIT: u64 = 60;

/// All of them, for this many descriptors a process.
pub(super) fn allowances(descriptors: u64) -> Vec<Allowance> {
    let ports = ephemeral_ports();
    let processes = least(&["kernel/pid_max", "kernel/threads-max"]);
    let pages = number("net/ipv4/tcp_mem", 2);
    let reuse = number("net/ipv4/tcp_tw_reuse", 0);
    let logins = match reuse {
        Some(1 | 2) => "ports in TIME_WAIT, towards one server; on loopback tcp_tw_reuse frees them sooner",
        _ => "ports in TIME_WAIT, towards one server: --source takes more addresses",
    };
    let row = |who, most, because: &str| Allowance { who, most, because: because.to_owned() };
    vec![
        row(
            "this client, transferring",
            Some(users_a_process(descriptors, true)),
            "RLIMIT_NOFILE: two sockets each",
        ),
        row("this client, idle", Some(users_a_process(descriptors, false)), "RLIMIT_NOFILE: one socket each"),
        row(
            "from one address to one server",
            Some(ports),
            "ip_local_port_range: --source takes more addresses",
        ),
        row("logins a second, each a connection", Some(ports / TIME_WAIT), logins),
        row(
            "a server of one process, transferring",
            Some(users_a_process(descriptors, true)),
            "RLIMIT_NOFILE",
        ),
        row(
            "a server of a process a session",
            processes,
            "kernel.pid_max, kernel.threads-max; memory before that",
        ),
        row("sockets that the kernel has memory for", pages.map(|pages| pages / SOCKET_PAGES), "tcp_mem"),
        row(
            "logins at the same instant",
            number("net/core/somaxconn", 0),
            "somaxconn: the rest repeat their SYN",
        ),
    ]
}

fn number(path: &str, at: usize) -> Option<u64> {
    read(path).split_whitespace().nth(at)?.parse().ok()
}

fn least(paths: &[&str]) -> Option<u64> {
    paths.iter().filter_map(|path| number(path, 0)).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_are_users() {
        let most: Vec<_> = allowances(20_000).into_iter().map(|allowance| allowance.most).collect();
        assert_eq!(most[..2], [Some(9968), Some(19_936)]);
        assert!(most.iter().all(Option::is_some), "{most:?}");
    }
}
