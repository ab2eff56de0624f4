//! Admission: how many connections there may be, in all, of an address and of a network.
//!
//! The invariant: every connection that is counted in is counted out, by its [`Admission`] or by [`Sessions::release`].

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crossbeam_utils::CachePadded;
use millrace_ftp::session::Occupancy;
use millrace_limits::{ConnectionLimit, Network, Timed, TooManyConnections};

/// Counts the connections of a server.
#[derive(Debug)]
pub struct Sessions {
    /// Connections now.
    count: CachePadded<AtomicUsize>,
    /// How many there may be, and for how many there are descriptors.
    limit: Timed,
    room: usize,
    descriptors: Descriptors,
    addresses: ConnectionLimit,
    networks: ConnectionLimit,
}

/// The descriptors that the process may have.
#[derive(Debug, Clone, Copy)]
pub struct Descriptors {
    /// All of them.
    pub most: u64,
    /// Those that control connections leave to data connections, files and listeners.
    pub reserve: u64,
    /// How many workers share them.
    pub workers: usize,
}

impl Descriptors {
    /// Returns for how many connections there are descriptors.
    pub fn room(self) -> usize {
        usize::try_from(self.most.saturating_sub(self.reserve)).unwrap_or(usize::MAX).max(1)
    }

    /// Returns how many files a worker may keep open for later: all of them half of the reserve, and each a quarter at most.
    pub fn for_files(self) -> usize {
        let share = self.reserve / 2 / self.workers.max(2) as u64;
        share.clamp(8, 512) as usize
    }
}

impl Sessions {
    /// Counts from zero, under these limits.
    pub fn new(
        limit: Timed,
        descriptors: Descriptors,
        addresses: ConnectionLimit,
        networks: ConnectionLimit,
    ) -> Self {
        let room = descriptors.room();
        Self { count: AtomicUsize::new(0).into(), limit, room, descriptors, addresses, networks }
    }

    /// Returns how many connections there are.
    pub fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// Returns the descriptors that the process may have.
    pub fn descriptors(&self) -> Descriptors {
        self.descriptors
    }

    /// Returns how many connections there may be from an address, where a limit is set that holds for it.
    pub fn most_per_address(&self, from: IpAddr) -> Option<u64> {
        self.addresses.of_address(from)
    }

    /// Returns the network of a client, and how many connections there may be from it, where a limit is set that holds for it.
    pub fn most_per_network(&self, from: IpAddr) -> Option<(Network, u64)> {
        self.networks.of_network(from)
    }

    /// Puts the limits of this minute in force.
    pub fn tick(&self, wall: i64) {
        self.limit.tick(wall);
        self.addresses.tick(wall);
        self.networks.tick(wall);
    }

    /// Counts a connection in whose client a PROXY header is still to name, or returns which limit is reached.
    pub(crate) fn admit_unnamed(&self) -> Result<(), TooManyConnections> {
        let (before, most) = (self.count.fetch_add(1, Ordering::Relaxed), self.limit.value());
        let too_many = if most > 0 && before as u64 >= most {
            TooManyConnections::Server(most)
        } else if before >= self.room {
            TooManyConnections::Descriptors(self.descriptors.most)
        } else {
            return Ok(());
        };
        self.count.fetch_sub(1, Ordering::Relaxed);
        Err(too_many)
    }

    /// Counts a connection in, or returns which limit is reached.
    pub(crate) fn admit(&self, from: IpAddr) -> Result<(), TooManyConnections> {
        self.admit_unnamed()?;
        if let Err((_, most)) = self.addresses.enter(from) {
            self.count.fetch_sub(1, Ordering::Relaxed);
            return Err(TooManyConnections::Address(most));
        }
        self.networks.enter(from).map_err(|(network, most)| {
            self.count.fetch_sub(1, Ordering::Relaxed);
            self.addresses.leave(from);
            TooManyConnections::Network(network, most)
        })
    }

    /// Counts a connection out.
    pub fn release(&self, from: IpAddr) {
        self.count.fetch_sub(1, Ordering::Relaxed);
        self.addresses.leave(from);
        self.networks.leave(from);
    }
}

impl Occupancy for Sessions {
    fn sessions(&self) -> u64 {
        self.count() as u64
    }

    fn most(&self) -> Option<u64> {
        Some(self.limit.value()).filter(|most| *most > 0)
    }
}

/// A place among the connections; dropping it counts the connection out.
#[derive(Debug)]
pub struct Admission {
    /// `None` once it is [kept](Self::keep).
    sessions: Option<Arc<Sessions>>,
    /// `None` before a PROXY header has named the client.
    from: Option<IpAddr>,
}

impl Admission {
    /// Takes over a connection that was counted in.
    pub fn new(sessions: &Arc<Sessions>, from: IpAddr) -> Self {
        Self { sessions: Some(Arc::clone(sessions)), from: Some(from) }
    }

    /// Leaves the connection counted in: [`Sessions::release`] is to count it out.
    pub fn keep(mut self) {
        self.sessions.take();
    }

    /// Takes over a connection that was counted in without an address.
    pub(crate) fn unnamed(sessions: &Arc<Sessions>) -> Self {
        Self { sessions: Some(Arc::clone(sessions)), from: None }
    }
}

impl Drop for Admission {
    fn drop(&mut self) {
        let Some(sessions) = &self.sessions else { return };
        match self.from {
            Some(from) => sessions.release(from),
            None => _ = sessions.count.fetch_sub(1, Ordering::Relaxed),
        }
    }
}

#[cfg(test)]
mod tests {
    use millrace_limits::{Limit, NetworkBits};

    use super::*;

    #[test]
    fn a_place_is_free_again_when_its_admission_is_dropped() {
        let timed = |most| Timed::new(Limit::of(most), 0);
        let limit = |most| ConnectionLimit::new(timed(most), NetworkBits::default());
        let descriptors = Descriptors { most: 1000, reserve: 100, workers: 2 };
        let sessions = Arc::new(Sessions::new(timed(2), descriptors, limit(1), limit(2)));
        let [one, other] = [IpAddr::from([192, 0, 2, 1]), IpAddr::from([192, 0, 2, 2])];

        sessions.admit(one).unwrap();
        let place = Admission::new(&sessions, one);
        assert_eq!(sessions.admit(one), Err(TooManyConnections::Address(1)));
        sessions.admit_unnamed().unwrap();
        let unnamed = Admission::unnamed(&sessions);
        assert_eq!(sessions.admit(other), Err(TooManyConnections::Server(2)));

        drop(unnamed);
        assert_eq!(sessions.count(), 1);
        drop(place);
        assert_eq!(sessions.count(), 0);
        assert_eq!(sessions.admit(one), Ok(()));
    }

    #[test]
    fn files_that_are_kept_leave_half_of_the_reserve_however_many_workers_keep_them() {
        let kept = |workers| Descriptors { most: 20_000, reserve: 1088, workers }.for_files();
        assert_eq!([1, 2, 4, 32].map(kept), [272, 272, 136, 17]);
        assert!((1..=64).all(|workers| kept(workers) * workers <= 544));
    }
}
