//! The passive ports of other nodes, at which this one listens.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use millrace_cluster::DataRoute;
use millrace_net::listener;
use mio::unix::SourceFd;
use mio::{Interest, Registry};

use super::reactor::{Kind, token};

/// How long a node is remembered that the database does not name: after its crash all nodes register anew.
const GRACE: Duration = Duration::from_secs(10);

/// Which of the places, and which port there.
type Door = (usize, u16);

/// The ports of other nodes.
#[derive(Debug)]
pub(super) struct ForeignPorts {
    /// Where clients connect.
    places: Vec<IpAddr>,
    /// Ports at which this node listens itself.
    doors: Vec<u16>,
    /// This node: its name, and its passive ports.
    node: String,
    own: RangeInclusive<u16>,
    /// How many listeners there may be.
    most: usize,
    /// The other nodes, the newest first, and when each was heard of last.
    routes: Vec<(DataRoute, Instant)>,
    listeners: BTreeMap<Door, OwnedFd>,
    /// What the operator was told.
    trouble: Option<String>,
    is_closed: bool,
}

impl ForeignPorts {
    pub(super) fn new(places: Vec<IpAddr>, doors: Vec<u16>, own: &DataRoute, most: usize) -> Self {
        let (routes, listeners) = Default::default();
        Self {
            places: without_covered(places),
            doors,
            node: own.node.clone(),
            own: own.ports.clone(),
            most,
            routes,
            listeners,
            trouble: None,
            is_closed: false,
        }
    }

    /// Listens for these nodes, and for those that were heard of a moment ago. Returns what the operator is to know.
    pub(super) fn follow(
        &mut self,
        told: Vec<DataRoute>,
        now: Instant,
        registry: &Registry,
    ) -> Option<String> {
        let before = std::mem::take(&mut self.routes).into_iter();
        let is_recent = |(route, heard): &(DataRoute, Instant)| {
            // Where one that was told is at the same address, the process that was there has ended.
            let is_replaced = told.iter().any(|told| told.address == route.address);
            now.saturating_duration_since(*heard) < GRACE && !is_replaced
        };
        let recent: Vec<_> = before.filter(is_recent).collect();
        self.routes = told.into_iter().map(|route| (route, now)).chain(recent).collect();
        if self.is_closed { None } else { self.listen(registry) }
    }

    /// Listens no more.
    pub(super) fn close(&mut self) {
        self.is_closed = true;
        self.listeners.clear();
    }

    /// The numbers of all listeners.
    pub(super) fn numbers(&self) -> Vec<usize> {
        self.listeners.keys().map(|(place, port)| place << 16 | usize::from(*port)).collect()
    }

    /// The listener of a number that was given to the reactor.
    pub(super) fn listener(&self, number: usize) -> Option<(u16, &OwnedFd)> {
        let door = (number >> 16, (number & 0xffff) as u16);
        self.listeners.get(&door).map(|listener| (door.1, listener))
    }

    /// The nodes that may have a session at this port, the newest first: two processes of one node have the same ports.
    pub(super) fn owners(&self, port: u16) -> Vec<DataRoute> {
        let routes = self.routes.iter().map(|(route, _)| route);
        routes.filter(|route| route.ports.contains(&port)).cloned().collect()
    }

    /// Opens what is missing, and closes what no node has any more.
    fn listen(&mut self, registry: &Registry) -> Option<String> {
        // Another process of this node listens for its sessions itself, also where its range is another one.
        let others = self.routes.iter().filter(|(route, _)| route.node != self.node);
        let ports = others.flat_map(|(route, _)| route.ports.clone());
        let is_own = |port: &u16| self.own.contains(port) || self.doors.contains(port) || *port == 0;
        let all: BTreeSet<u16> = ports.filter(|port| !is_own(port)).collect();
        let wanted: BTreeSet<u16> = all.iter().copied().take(self.most / self.places.len().max(1)).collect();
        self.listeners.retain(|(_, port), _| wanted.contains(port));
        let mut trouble = self.trouble_of_ranges(all.len() - wanted.len());
        for (place, ip) in self.places.iter().enumerate() {
            for port in wanted.iter().copied() {
                if self.listeners.contains_key(&(place, port)) {
                    continue;
                }
                let address = SocketAddr::new(*ip, port);
                match open(address, place, registry) {
                    Ok(listener) => {
                        self.listeners.insert((place, port), listener);
                    }
                    Err(error) => {
                        let text = || format!("{address} cannot be listened at for another node: {error}");
                        trouble.get_or_insert_with(text);
                    }
                }
            }
        }
        let is_news = trouble.is_some() && trouble != self.trouble;
        self.trouble.clone_from(&trouble);
        trouble.filter(|_| is_news)
    }

    fn trouble_of_ranges(&self, left_out: usize) -> Option<String> {
        let own = &self.own;
        let others = self.routes.iter().map(|(route, _)| route).filter(|route| route.node != self.node);
        let has = |route: &DataRoute, first: &u16, last: &u16| {
            route.ports.start() <= last && first <= route.ports.end()
        };
        let same = |route: &&DataRoute| {
            has(route, own.start(), own.end()) || self.doors.iter().any(|door| has(route, door, door))
        };
        let name = |route: &DataRoute| {
            format!(
                "node {} has passive-ports {}-{}, at some of which this node listens itself: data connections to those are \
                 not handed on; give each node passive-ports of its own, away from the ports of ftp, ftps, http and https",
                route.node,
                route.ports.start(),
                route.ports.end()
            )
        };
        let left =
            || format!("there are descriptors for {} ports of other nodes, and {left_out} more", self.most);
        others.into_iter().find(same).map(name).or_else(|| (left_out > 0).then(left))
    }
}

fn open(address: SocketAddr, place: usize, registry: &Registry) -> io::Result<OwnedFd> {
    let socket = listener::bind_for_another(address)?;
    let token = token(Kind::Foreign, place << 16 | usize::from(address.port()));
    registry.register(&mut SourceFd(&socket.as_raw_fd()), token, Interest::READABLE)?;
    Ok(socket)
}

/// Leaves out addresses that another one covers: `0.0.0.0` all of IPv4, and `[::]` all.
fn without_covered(mut places: Vec<IpAddr>) -> Vec<IpAddr> {
    places.sort_unstable();
    places.dedup();
    let all: Vec<IpAddr> = places.iter().copied().filter(IpAddr::is_unspecified).collect();
    let is_covered =
        |place: &IpAddr| all.iter().any(|all| all != place && (all.is_ipv6() || place.is_ipv4()));
    places.retain(|place| !is_covered(place));
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_covers_others_stands_for_them() {
        let left = |texts: &[&str]| {
            let places = texts.iter().map(|text| text.parse().unwrap()).collect();
            without_covered(places).iter().map(IpAddr::to_string).collect::<Vec<_>>()
        };
        assert_eq!(left(&["10.0.0.1", "10.0.0.2", "10.0.0.1"]), ["10.0.0.1", "10.0.0.2"]);
        assert_eq!(left(&["10.0.0.1", "0.0.0.0", "2001:db8::1"]), ["0.0.0.0", "2001:db8::1"]);
        assert_eq!(left(&["10.0.0.1", "0.0.0.0", "::", "2001:db8::1"]), ["::"]);
    }
}
