//! The limits of this machine, and their meaning in users.
//!
//! [`limits`] reads what the kernel says; `measured` tries it; `users` draws the conclusions.

mod measured;
mod users;

use std::fmt::Write;
use std::fs;

pub use self::users::Allowance;
use crate::terminal::wrapped;
use millrace_load::limits::{descriptors, ephemeral_ports, users_a_process};

/// One limit.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Limit {
    /// As the kernel or the shell calls it.
    pub name: std::borrow::Cow<'static, str>,
    /// Its value, as text.
    pub value: String,
    /// The meaning for a load or a server.
    pub meaning: String,
}

/// Everything, for a terminal: at most 100 columns.
///
/// For a moment this takes every descriptor that the process may have: nothing else should go on in it.
pub fn render() -> String {
    let mut out = "what the kernel says\n".to_owned();
    let mut section = |limits: &mut dyn Iterator<Item = Limit>| {
        for Limit { name, value, meaning } in limits {
            let _ = writeln!(out, "{}", wrapped(&format!("  {name:<29} {value:<23} "), &meaning));
        }
    };
    section(&mut limits().into_iter());
    let mut trials = measured::measured();
    let mut tried = "\nwhat it does when tried\n".to_owned();
    for Limit { name, value, meaning } in &mut trials {
        let _ = writeln!(tried, "{}", wrapped(&format!("  {name:<23} {value:<29} "), &meaning));
    }
    out += &tried;
    out += "\nwhat that means in users, at most\n";
    for Allowance { who, most, because } in users::allowances(descriptors()) {
        let most = most.map_or_else(|| "unknown".to_owned(), |most| most.to_string());
        let _ = writeln!(out, "{}", wrapped(&format!("  {who:<39} {most:>13} "), &because));
    }
    out
}

/// Every limit that matters, in a fixed order, the process's own first.
pub fn limits() -> Vec<Limit> {
    let descriptors = descriptors();
    let own = Limit {
        name: "RLIMIT_NOFILE (hard)".into(),
        value: descriptors.to_string(),
        meaning: format!(
            "{} users of one process that transfer, twice as many idle",
            users_a_process(descriptors, true)
        ),
    };
    let ports = ephemeral_ports();
    let range = Limit {
        name: "net.ipv4.ip_local_port_range".into(),
        value: read("net/ipv4/ip_local_port_range").split_whitespace().collect::<Vec<_>>().join("-"),
        meaning: format!("{ports} connections from one address to one port; --source takes more addresses"),
    };
    let kernel = KERNEL.iter().map(|&(name, path, meaning)| {
        let value = read(path).split_whitespace().collect::<Vec<_>>().join(" ");
        Limit {
            name: name.into(),
            value: if value.is_empty() { "unknown".to_owned() } else { value },
            meaning: meaning.to_owned(),
        }
    });
    [own, range].into_iter().chain(kernel).chain(memory()).collect()
}

/// The memory of the machine, as `free` tells it.
fn memory() -> impl Iterator<Item = Limit> {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    MEMORY.iter().map(move |(name, meaning)| {
        let kibibytes = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        let kibibytes = kibibytes.and_then(|value| value.split_whitespace().next()?.parse::<u64>().ok());
        let value = kibibytes.map_or_else(|| "unknown".to_owned(), |count| format!("{} MiB", count / 1024));
        Limit { name: (*name).into(), value, meaning: (*meaning).to_owned() }
    })
}

/// The lines of `/proc/meminfo` that are told.
const MEMORY: [(&str, &str); 3] = [
    ("MemTotal", "memory in all"),
    ("MemFree", "memory that nothing uses"),
    ("MemAvailable", "memory that programs can have without swapping"),
];

/// The kernel's values, and their meaning.
const KERNEL: [(&str, &str, &str); 14] = [
    ("fs.nr_open", "fs/nr_open", "the most that RLIMIT_NOFILE can be raised to"),
    ("fs.file-nr", "fs/file-nr", "open files of all processes: in use, unused, the most"),
    ("fs.inode-nr", "fs/inode-nr", "inodes in memory, and those of them that are free"),
    ("kernel.threads-max", "kernel/threads-max", "a server of a thread a session has no more sessions"),
    ("kernel.pid_max", "kernel/pid_max", "nor has one of a process a session"),
    ("net.core.somaxconn", "net/core/somaxconn", "connections that wait to be accepted, at most"),
    ("net.ipv4.tcp_max_syn_backlog", "net/ipv4/tcp_max_syn_backlog", "handshakes under way, at most"),
    (
        "net.ipv4.tcp_tw_reuse",
        "net/ipv4/tcp_tw_reuse",
        "TIME_WAIT ports are taken again: 0 never, 1 always, 2 on loopback",
    ),
    ("net.ipv4.tcp_max_tw_buckets", "net/ipv4/tcp_max_tw_buckets", "connections in TIME_WAIT, at most"),
    ("net.ipv4.tcp_fin_timeout", "net/ipv4/tcp_fin_timeout", "seconds for a peer that does not close"),
    ("net.ipv4.tcp_rmem", "net/ipv4/tcp_rmem", "a socket's receive buffer: least, first, most bytes"),
    ("net.ipv4.tcp_wmem", "net/ipv4/tcp_wmem", "and its send buffer: what a slow client has in flight"),
    ("net.ipv4.tcp_mem", "net/ipv4/tcp_mem", "pages of all TCP: below, pressure, the most"),
    ("kernel.io_uring_disabled", "kernel/io_uring_disabled", "0: allowed; 1: for some; 2: not allowed"),
];

fn read(path: &str) -> String {
    fs::read_to_string(format!("/proc/sys/{path}")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_limit_says_something_in_a_line() {
        let limits = limits();
        assert_eq!(limits.len(), KERNEL.len() + 2 + MEMORY.len());
        assert!(limits.iter().any(|limit| limit.name == "MemTotal" && limit.value.ends_with(" MiB")));
        for limit in limits {
            assert!(!limit.value.is_empty() && limit.meaning.len() < 90, "{limit:?}");
        }
        assert!(ephemeral_ports() > 1000);
    }
}
