//! Finds out which process listens on a port: whether `--server-pid` names the server.
//!
//! Invariant: a process is called a stranger only where that is certain. In doubt (another network namespace,
//! unreadable descriptors, a socket that is not listed) the result is `None`.

use std::collections::HashSet;
use std::fs;
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::process::{Tree, numbers};

/// Names the process that listens there, if it is neither `root`, nor a descendant of it, or says that it is this
/// client; `None` where all is well or unknown.
pub(crate) fn stranger(root: i32, address: SocketAddr) -> Option<String> {
    let (tree, own) = (Tree::of(root)?.pids(), std::process::id() as i32);
    if root != own && tree.contains(&own) {
        return Some(format!(
            "--server-pid {root}: this client descends from it; the server's CPU and memory include this client's"
        ));
    }
    let namespace = |pid: &str| fs::read_link(format!("/proc/{pid}/ns/net")).ok();
    if namespace("self")? != namespace(&root.to_string())? {
        return None;
    }
    let sockets = sockets_at(address);
    let seen: Vec<Sight> = tree.iter().map(|&pid| Sight::of(pid, &sockets)).collect();
    if sockets.is_empty() || seen.contains(&Sight::Holds) {
        return None;
    }
    let other = holders(&sockets).find(|pid| !tree.contains(pid));
    if other.is_none() && seen.contains(&Sight::Hidden) {
        return None;
    }
    let name = |pid: i32| fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    let other = other.map(|pid| format!(", but {pid} ({}) does", name(pid).trim()));
    Some(format!(
        "--server-pid {root}: neither it nor a process that it has started listens at {address}{}; what is told of the \
         server's CPU and memory is theirs",
        other.unwrap_or_default()
    ))
}

/// Returns the process that listens there and that all others which do descend from; `None` where there is none, or
/// where this client descends from it: what a service manager listens for, it passes on.
pub fn server_at(address: SocketAddr) -> Option<i32> {
    let (all, own) = (Vec::from_iter(holders(&sockets_at(address))), std::process::id() as i32);
    let is_root = |pid: &&i32| {
        let tree = Tree::of(**pid).map(Tree::pids).unwrap_or_default();
        !tree.contains(&own) && all.iter().all(|holder| tree.contains(holder))
    };
    all.iter().find(is_root).copied()
}

fn sockets_at(address: SocketAddr) -> Vec<u64> {
    listening(&[("tcp", 4), ("tcp6", 16)].map(table).concat(), address.ip(), address.port())
}

/// The processes that have one of some sockets.
fn holders(sockets: &[u64]) -> impl Iterator<Item = i32> + '_ {
    numbers("/proc").filter(|&pid| Sight::of(pid, sockets) == Sight::Holds)
}

/// How many descriptors of these processes are of sockets that listen.
pub(super) fn listeners(pids: &[i32]) -> u64 {
    let listening: HashSet<u64> =
        [("tcp", 4), ("tcp6", 16)].map(table).concat().iter().map(|one| one.2).collect();
    let entries = pids.iter().flat_map(|pid| fs::read_dir(format!("/proc/{pid}/fd")));
    let links = entries.flat_map(|entries| entries.flatten()).flat_map(|entry| fs::read_link(entry.path()));
    let sockets = links.filter_map(|link| socket(&link.to_string_lossy()));
    sockets.filter(|socket| listening.contains(socket)).count() as u64
}

/// Whether a process has one of some sockets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sight {
    Holds,
    Lacks,
    /// Not everything that it has is shown.
    Hidden,
}

impl Sight {
    fn of(pid: i32, sockets: &[u64]) -> Self {
        let entries = match fs::read_dir(format!("/proc/{pid}/fd")) {
            Ok(entries) => entries,
            Err(error) if error.kind() == ErrorKind::NotFound => return Self::Lacks,
            Err(_) => return Self::Hidden,
        };
        let mut sight = Self::Lacks;
        for entry in entries.flatten() {
            match fs::read_link(entry.path()) {
                Ok(link) => match link.to_string_lossy().as_ref() {
                    // Sockets that are registered with it need no descriptor.
                    "anon_inode:[io_uring]" => sight = Self::Hidden,
                    link if socket(link).is_some_and(|socket| sockets.contains(&socket)) => {
                        return Self::Holds;
                    }
                    _ => {}
                },
                Err(error) if error.kind() == ErrorKind::NotFound => {} // closed meanwhile
                Err(_) => sight = Self::Hidden,
            }
        }
        sight
    }
}

/// `socket:[4711]`.
fn socket(link: &str) -> Option<u64> {
    link.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
}

/// A socket that listens: where, and its number.
type Listening = (IpAddr, u16, u64);

/// The listening sockets in a table of `/proc/net` whose addresses have this many bytes.
fn table((name, bytes): (&str, usize)) -> Vec<Listening> {
    let text = fs::read_to_string(format!("/proc/net/{name}")).unwrap_or_default();
    text.lines().skip(1).filter_map(|line| row(line, bytes)).collect()
}

/// `0: 0100007F:0849 00000000:0000 0A 00000000:00000000 00:00000000 00000000 1000 0 4711 ...`
fn row(line: &str, bytes: usize) -> Option<Listening> {
    const LISTEN: &str = "0A";
    let fields: Vec<&str> = line.split_ascii_whitespace().collect();
    let &[_, local, _, LISTEN, _, _, _, _, _, socket, ..] = &fields[..] else { return None };
    let (address, port) = local.split_once(':')?;
    // Words of four bytes, each as this machine has it.
    let word =
        |at: usize| Some(u32::from_str_radix(address.get(at * 8..at * 8 + 8)?, 16).ok()?.to_ne_bytes());
    let address: Vec<u8> = (0..bytes / 4).map(word).collect::<Option<Vec<_>>>()?.concat();
    let address = match bytes {
        4 => IpAddr::from(<[u8; 4]>::try_from(address).ok()?),
        _ => IpAddr::from(<[u8; 16]>::try_from(address).ok()?),
    };
    Some((address, u16::from_str_radix(port, 16).ok()?, socket.parse().ok()?))
}

/// The sockets that a connection goes to: those of the address itself come before those of any address.
fn listening(all: &[Listening], address: IpAddr, port: u16) -> Vec<u64> {
    let address = address.to_canonical();
    let wildcards: &[IpAddr] = match address {
        IpAddr::V4(_) => &[IpAddr::V4(Ipv4Addr::UNSPECIFIED), IpAddr::V6(Ipv6Addr::UNSPECIFIED)],
        IpAddr::V6(_) => &[IpAddr::V6(Ipv6Addr::UNSPECIFIED)],
    };
    let at = |wanted: IpAddr| {
        let of = all.iter().filter(move |one| one.0.to_canonical() == wanted && one.1 == port);
        of.map(|one| one.2).collect::<Vec<_>>()
    };
    let candidates = [address].into_iter().chain(wildcards.iter().copied());
    candidates.map(at).find(|sockets| !sockets.is_empty()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a_process_that_does_not_listen_is_a_stranger_and_the_listener_is_named() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let everywhere = TcpListener::bind("[::]:0").unwrap();
        let own = std::process::id();
        // It ends when its standard input does.
        let mut other = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let stranger_at = |address: SocketAddr| stranger(other.id() as i32, address);
        let port = everywhere.local_addr().unwrap().port();
        for address in [
            listener.local_addr().unwrap(),
            SocketAddr::new(Ipv6Addr::LOCALHOST.into(), port),
            SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port),
        ] {
            assert_eq!(stranger(own as i32, address), None, "{address}");
            let said = stranger_at(address).unwrap();
            assert!(said.contains(&format!("listens at {address}, but {own} (")), "{said}");
        }
        // This process is its own descendant.
        assert_eq!(server_at(listener.local_addr().unwrap()), None);
        // Other tests of this process listen, too.
        assert!(listeners(&[own as i32]) >= 2);
        assert_eq!(listeners(&[other.id() as i32]), 0, "cat has a pipe");
        let gone = listener.local_addr().unwrap();
        drop(listener);
        assert_eq!(stranger_at(gone), None, "no process listens there");
        assert_eq!(stranger(i32::MAX, gone), None);
        // It may be out of sight, beyond a container.
        let parent = std::os::unix::process::parent_id() as i32;
        let said = stranger(parent, gone);
        assert!(said.is_some_and(|said| said.contains("this client descends")) || Tree::of(parent).is_none());
        drop(other.stdin.take());
        other.wait().unwrap();
    }

    #[test]
    fn a_connection_goes_to_the_address_before_it_goes_to_any() {
        let [one, any, any_of_six] =
            ["127.0.0.1", "0.0.0.0", "::"].map(|text| text.parse::<IpAddr>().unwrap());
        let all = [(any_of_six, 21, 3), (any, 21, 2), (one, 21, 1), (one, 22, 4), (one, 21, 5)];
        assert_eq!(listening(&all, one, 21), [1, 5]);
        assert_eq!(listening(&all[..2], one, 21), [2]);
        assert_eq!(listening(&all[..1], one, 21), [3]);
        assert_eq!(listening(&all, "::1".parse().unwrap(), 21), [3]);
        assert_eq!(listening(&all, one, 23), [0; 0]);
    }

    #[test]
    fn only_what_listens_is_read() {
        let line =
            |state: &str| format!(" 0: 0100007F:0849 00000000:0000 {state} 0:0 00:0 0 1000 0 4711 1 f 100");
        if cfg!(target_endian = "little") {
            assert_eq!(row(&line("0A"), 4), Some((Ipv4Addr::LOCALHOST.into(), 2121, 4711)));
        }
        assert_eq!((row(&line("01"), 4), row(&line("0A"), 16), row("", 4)), (None, None, None));
        assert_eq!((socket("socket:[4711]"), socket("pipe:[4711]")), (Some(4711), None));
    }
}
