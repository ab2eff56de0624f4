//! The listeners of a server: one for each worker at every configured address. Those of a predecessor are taken over as
//! they are, so that no waiting connection is refused.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use millrace_net::listener;

use crate::config::Config;
use crate::running::StartError;
use crate::running::upgrade::Predecessor;
use crate::worker::{Door, Listener};

/// Doors that are open.
pub(crate) struct Doors {
    /// Those of each worker.
    pub(crate) listeners: Vec<Vec<Listener>>,
    /// Where they are: of FTP, FTPS, HTTP and HTTPS.
    pub(crate) bound: [Vec<SocketAddr>; 4],
}

impl Doors {
    /// Opens them for the configured number of workers, except for those of the predecessor.
    pub(crate) fn open(config: &Config, before: Option<&Predecessor>) -> Result<Self, StartError> {
        let listeners = (0..config.workers).map(|_| Vec::new()).collect();
        let mut doors = Self { listeners, bound: [const { Vec::new() }; 4] };
        let all = [
            (Door::Ftp, &config.ftp),
            (Door::Ftps, &config.ftps),
            (Door::Http, &config.http),
            (Door::Https, &config.https),
        ];
        // A port that IPv4 has a listener of its own for. A port that is still to be chosen conflicts with no other.
        let addresses = all.iter().flat_map(|(_, addresses)| addresses.iter());
        let of_ipv4: Vec<u16> = addresses
            .filter(|address| address.is_ipv4() && address.port() != 0)
            .map(SocketAddr::port)
            .collect();
        for (place, (door, addresses)) in all.into_iter().enumerate() {
            for &address in addresses {
                let only_its_own = of_ipv4.contains(&address.port());
                let bound = match doors.taken_over(config, door, address, before)? {
                    Some(bound) => bound,
                    None => match doors.inherited(config, door, address)? {
                        true => address,
                        false => doors.open_one(config, door, address, only_its_own)?,
                    },
                };
                doors.bound[place].push(bound);
            }
        }
        Ok(doors)
    }

    /// Takes one over; answers where it is, if there was one.
    fn taken_over(
        &mut self,
        config: &Config,
        door: Door,
        asked: SocketAddr,
        before: Option<&Predecessor>,
    ) -> Result<Option<SocketAddr>, StartError> {
        let failed = |source| StartError::Listen { address: asked, source };
        let Some((bound, sockets)) = before.and_then(|before| before.door(door, asked, &self.bound)) else {
            return Ok(None);
        };
        let shared = listener::share_control(sockets.map_err(failed)?, config.workers, config.keepalive);
        Ok(Some(self.add(door, bound, shared.map_err(failed)?)))
    }

    /// Takes over the sockets that a service manager has opened at an address. Returns whether there are any.
    fn inherited(&mut self, config: &Config, door: Door, address: SocketAddr) -> Result<bool, StartError> {
        let meant = config.inherited.iter().filter(|one| one.door == door && one.address == address);
        let sockets: Vec<OwnedFd> = meant
            .map(|one| {
                let socket = one.socket.try_clone()?;
                listener::prepare_inherited(&socket)?;
                if matches!(door, Door::Http | Door::Https) {
                    prepare_http(&socket)?;
                }
                Ok(socket)
            })
            .collect::<io::Result<_>>()
            .map_err(|source| StartError::Listen { address, source })?;
        if sockets.is_empty() {
            return Ok(false);
        }
        let shared = listener::share_control(sockets, config.workers, config.keepalive);
        let shared = shared.map_err(|source| StartError::Listen { address, source })?;
        self.add(door, address, shared);
        Ok(true)
    }

    /// Opens one; answers where it is.
    fn open_one(
        &mut self,
        config: &Config,
        door: Door,
        address: SocketAddr,
        only_its_own: bool,
    ) -> Result<SocketAddr, StartError> {
        let (address, sockets) =
            listener::bind_control(address, config.workers, config.keepalive, only_its_own)
                .map_err(|source| StartError::Listen { address, source })?;
        if matches!(door, Door::Http | Door::Https) {
            for socket in &sockets {
                prepare_http(socket).map_err(|source| StartError::Listen { address, source })?;
            }
        }
        Ok(self.add(door, address, sockets.into_iter().map(|socket| vec![socket]).collect()))
    }

    /// Gives the workers their sockets of one address.
    fn add(&mut self, door: Door, address: SocketAddr, sockets: Vec<Vec<OwnedFd>>) -> SocketAddr {
        for (worker, sockets) in self.listeners.iter_mut().zip(sockets) {
            worker.extend(sockets.into_iter().map(|socket| Listener { door, address, socket }));
        }
        address
    }
}

fn prepare_http(socket: &OwnedFd) -> io::Result<()> {
    listener::acknowledge_with_answers(socket)?;
    listener::defer_until_spoken_to(socket)
}
