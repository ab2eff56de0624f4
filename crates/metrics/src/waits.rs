//! What transfers wait for, and how long each of them has.

use std::time::{Duration, Instant};

/// What a transfer waits for: the values of the label `cause`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// The data connection: the client has to connect, or to be connected to.
    Connection,
    /// TLS on the data connection.
    Handshake,
    /// The client: of a download it does not take bytes, of an upload it sends none.
    Client,
    /// The network between: of a download the client has room for more than has arrived there.
    Network,
    /// A limit on bandwidth.
    Limit,
    /// A disk, a database, or what makes the bytes.
    Storage,
    /// The processor: other connections have their turn.
    Processor,
    /// A hook: an upload has come, and is yet to be decided about.
    Hook,
}

impl Cause {
    /// All of them, in the order of the enum.
    pub const ALL: [Self; 8] = [
        Self::Connection,
        Self::Handshake,
        Self::Client,
        Self::Network,
        Self::Limit,
        Self::Storage,
        Self::Processor,
        Self::Hook,
    ];

    /// Their words.
    pub(crate) const WORDS: [&'static str; 8] =
        ["connection", "handshake", "client", "network", "limit", "storage", "processor", "hook"];

    /// Returns its word.
    pub fn word(self) -> &'static str {
        Self::WORDS[self as usize]
    }

    /// Returns the field that says how long something has waited for it, in logs and events.
    pub fn field(self) -> &'static str {
        match self {
            Self::Connection => "waited-connection",
            Self::Handshake => "waited-handshake",
            Self::Client => "waited-client",
            Self::Network => "waited-network",
            Self::Limit => "waited-limit",
            Self::Storage => "waited-storage",
            Self::Processor => "waited-processor",
            Self::Hook => "waited-hook",
        }
    }
}

/// Times that are shorter are not told in logs and events.
const WORTH_TELLING: Duration = Duration::from_millis(10);

/// For how long a transfer has waited for each.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Waited([Duration; Cause::ALL.len()]);

impl Waited {
    /// Returns for how long it has waited for this.
    pub fn of(&self, cause: Cause) -> Duration {
        self.0[cause as usize]
    }

    /// Returns what it has waited for, and how long.
    pub fn spent(&self) -> impl Iterator<Item = (Cause, Duration)> + '_ {
        Cause::ALL.into_iter().zip(self.0).filter(|(_, time)| !time.is_zero())
    }

    /// Returns what logs and events tell of it: the field, and how long.
    pub fn told(&self) -> impl Iterator<Item = (&'static str, Duration)> + '_ {
        let told = self.spent().filter(|(_, time)| *time >= WORTH_TELLING);
        told.map(|(cause, time)| (cause.field(), time))
    }

    fn add(&mut self, cause: Cause, time: Duration) {
        self.0[cause as usize] += time;
    }

    /// Adds a time for which it has waited for this.
    #[must_use]
    pub fn with(mut self, cause: Cause, time: Duration) -> Self {
        self.add(cause, time);
        self
    }

    /// Attributes this share of the time for the client to the network instead.
    #[must_use]
    pub fn with_network(mut self, share: f64) -> Self {
        let network = self.of(Cause::Client).mul_f64(share.clamp(0.0, 1.0));
        self.0[Cause::Client as usize] -= network;
        self.add(Cause::Network, network);
        self
    }
}

impl FromIterator<(Cause, Duration)> for Waited {
    fn from_iter<T: IntoIterator<Item = (Cause, Duration)>>(times: T) -> Self {
        let mut waited = Self::default();
        times.into_iter().for_each(|(cause, time)| waited.add(cause, time));
        waited
    }
}

/// The stopwatch of a transfer: it measures one cause at a time.
#[derive(Debug, Default, Clone, Copy)]
pub struct Waits {
    waited: Waited,
    current: Option<(Cause, Instant)>,
}

impl Waits {
    /// From now on it waits for this, or for nothing.
    pub fn note(&mut self, cause: Option<Cause>, now: Instant) {
        if self.current.map(|(current, _)| current) == cause {
            return;
        }
        self.waited = self.waited(now);
        self.current = cause.map(|cause| (cause, now));
    }

    /// Returns for how long it has waited for each until now.
    pub fn waited(&self, now: Instant) -> Waited {
        let mut waited = self.waited;
        if let Some((cause, since)) = self.current {
            waited.add(cause, now.saturating_duration_since(since));
        }
        waited
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_cause_is_measured_at_a_time() {
        let begin = Instant::now();
        let at = |seconds| begin + Duration::from_secs(seconds);
        let mut waits = Waits::default();
        for (second, cause) in [
            (1, Some(Cause::Client)),
            (2, Some(Cause::Client)),
            (4, Some(Cause::Limit)),
            (5, None),
            (9, Some(Cause::Client)),
        ] {
            waits.note(cause, at(second));
        }
        let waited = waits.waited(at(10));
        let expected = [(Cause::Client, Duration::from_secs(4)), (Cause::Limit, Duration::from_secs(1))];
        assert_eq!(waited.spent().collect::<Vec<_>>(), expected);
        let split = waited.with_network(0.25);
        assert_eq!((split.of(Cause::Client), split.of(Cause::Network)), (at(3) - begin, at(1) - begin));
    }

    #[test]
    fn words_are_in_the_order_of_the_causes() {
        for (place, cause) in Cause::ALL.into_iter().enumerate() {
            assert_eq!(cause as usize, place);
            assert_eq!(cause.word(), format!("{cause:?}").to_lowercase());
            assert_eq!(cause.field(), format!("waited-{}", cause.word()));
        }
    }
}
