//! Names of the hosts that clients come from, for classes of sessions: what the reverse look-up of an address says, where the
//! forward look-up of that name has the address. Without the latter, the owner of an address could give it any name.
//!
//! A look-up may take long. It runs on threads of its own; the thread of a login waits for it, for [`PATIENCE`] at most. Answers are
//! kept, also that there is none; an answer that comes late is kept for the next login.

use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use millrace_blocking::BlockingPool;

/// How long a login waits for a name.
const PATIENCE: Duration = Duration::from_secs(3);
/// How many look-ups run at a time.
const THREADS: usize = 8;
/// How long a name is kept.
const FOUND: Duration = Duration::from_secs(600);
/// How long it is kept that there is none.
const MISSING: Duration = Duration::from_secs(60);
/// How many answers are kept.
const ANSWERS: usize = 4096;
/// The longest name (RFC 1035, section 2.3.4).
const LONGEST: usize = 253;

/// Answers what DNS and `/etc/hosts` say. May wait.
pub trait Resolver: Send + Sync + fmt::Debug {
    /// Returns the name of an address.
    fn name(&self, address: IpAddr) -> Option<String>;
    /// Returns the addresses of a name.
    fn addresses(&self, name: &str) -> Vec<IpAddr>;
}

/// The resolver of the system.
#[derive(Debug)]
struct SystemResolver;

impl Resolver for SystemResolver {
    fn name(&self, address: IpAddr) -> Option<String> {
        dns_lookup::lookup_addr(&address).ok()
    }

    fn addresses(&self, name: &str) -> Vec<IpAddr> {
        dns_lookup::lookup_host(name).map(Iterator::collect).unwrap_or_default()
    }
}

/// The names of clients, as far as they were asked for.
#[derive(Debug)]
pub struct ClientNames {
    answers: Arc<Answers>,
    threads: BlockingPool,
    patience: Duration,
}

#[derive(Debug)]
struct Answers {
    resolver: Box<dyn Resolver>,
    kept: Mutex<HashMap<IpAddr, Answer>>,
}

#[derive(Debug)]
struct Answer {
    name: Option<Arc<str>>,
    until: Instant,
}

impl Default for ClientNames {
    fn default() -> Self {
        Self::new(SystemResolver, PATIENCE)
    }
}

impl ClientNames {
    /// Names by this resolver, which is waited for so long.
    pub fn new(resolver: impl Resolver + 'static, patience: Duration) -> Self {
        let answers = Answers { resolver: Box::new(resolver), kept: Mutex::default() };
        Self { answers: Arc::new(answers), threads: BlockingPool::new(THREADS), patience }
    }

    /// Returns the name of a client's host in lower case, or that it has none; nothing where it was not looked up lately.
    pub fn known(&self, address: IpAddr) -> Option<Option<Arc<str>>> {
        self.answers.known(address)
    }

    /// Looks a name up, unless it is known. May wait.
    pub fn look_up(&self, address: IpAddr) {
        if self.known(address).is_some() {
            return;
        }
        let (tell, told) = sync_channel(1);
        let (answers, asked) = (Arc::clone(&self.answers), Instant::now());
        self.threads.run(move || {
            // Where all threads are stuck for so long, what waits for one does not pile up.
            if asked.elapsed() < MISSING {
                answers.keep(address, answers.confirmed(address));
            }
            let _ = tell.send(());
        });
        if told.recv_timeout(self.patience).is_err() && self.known(address).is_none() {
            self.answers.keep(address, None);
        }
    }
}

impl Answers {
    fn kept(&self) -> MutexGuard<'_, HashMap<IpAddr, Answer>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn known(&self, address: IpAddr) -> Option<Option<Arc<str>>> {
        let kept = self.kept();
        let answer = kept.get(&address).filter(|answer| answer.until > Instant::now())?;
        Some(answer.name.clone())
    }

    fn keep(&self, address: IpAddr, name: Option<Arc<str>>) {
        let now = Instant::now();
        let until = now + if name.is_some() { FOUND } else { MISSING };
        let mut kept = self.kept();
        if kept.len() >= ANSWERS {
            kept.retain(|_, answer| answer.until > now);
        }
        if kept.len() >= ANSWERS {
            kept.clear();
        }
        kept.insert(address, Answer { name, until });
    }

    /// Returns the name of an address that has that address itself.
    fn confirmed(&self, address: IpAddr) -> Option<Arc<str>> {
        let name = self.resolver.name(address)?.to_ascii_lowercase();
        let name = name.strip_suffix('.').unwrap_or(&name);
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
        let is_name = name.len() <= LONGEST && name.bytes().all(is_plain) && name.parse::<IpAddr>().is_err();
        let has_address =
            |name| self.resolver.addresses(name).iter().any(|one| one.to_canonical() == address);
        (is_name && has_address(name)).then(|| name.into())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, channel};

    use super::*;

    /// What `/etc/hosts` could say, and a zone of an attacker.
    #[derive(Debug)]
    struct Hosts;

    const NAMES: [(&str, &str); 6] = [
        ("10.0.0.1", "A.Example."),
        ("10.0.0.2", "trusted.example"),
        ("10.0.0.3", "10.0.0.3"),
        ("10.0.0.4", "odd name\r\n.example"),
        ("2001:db8::1", "six.example"),
        ("10.0.0.6", "gone.example"),
    ];

    impl Resolver for Hosts {
        fn name(&self, address: IpAddr) -> Option<String> {
            let row = NAMES.iter().find(|(of, _)| of.parse() == Ok(address));
            row.map(|(_, name)| (*name).to_owned())
        }

        fn addresses(&self, name: &str) -> Vec<IpAddr> {
            let addresses: &[&str] = match name {
                "a.example" => &["10.0.0.9", "::ffff:10.0.0.1"],
                "trusted.example" => &["10.0.0.8"],
                "six.example" => &["2001:db8::1"],
                "10.0.0.3" => &["10.0.0.3"],
                "odd name\r\n.example" => &["10.0.0.4"],
                _ => &[],
            };
            addresses.iter().map(|address| address.parse().unwrap()).collect()
        }
    }

    /// Waits for the test.
    #[derive(Debug)]
    struct Stuck(Mutex<Receiver<()>>);

    impl Resolver for Stuck {
        fn name(&self, _: IpAddr) -> Option<String> {
            self.0.lock().unwrap().recv().ok()?;
            Some("late.example".to_owned())
        }

        fn addresses(&self, _: &str) -> Vec<IpAddr> {
            vec!["10.0.0.1".parse().unwrap()]
        }
    }

    #[test]
    fn a_name_counts_where_it_has_the_address_in_turn() {
        let names = ClientNames::new(Hosts, PATIENCE);
        for (address, name) in [
            ("10.0.0.1", Some("a.example")),
            ("2001:db8::1", Some("six.example")),
            ("10.0.0.2", None),
            ("10.0.0.3", None),
            ("10.0.0.4", None),
            ("10.0.0.6", None),
            ("10.0.0.7", None),
        ] {
            let address = address.parse().unwrap();
            assert_eq!(names.known(address), None);
            names.look_up(address);
            assert_eq!(names.known(address), Some(name.map(Arc::from)), "{address}");
        }
    }

    #[test]
    fn a_resolver_that_is_stuck_is_not_waited_for_and_its_answer_is_kept() {
        let (release, stuck) = channel();
        let names = ClientNames::new(Stuck(Mutex::new(stuck)), Duration::ZERO);
        let address = "10.0.0.1".parse().unwrap();
        names.look_up(address);
        assert_eq!(names.known(address), Some(None));
        release.send(()).unwrap();
        names.threads.finish(Duration::from_secs(60));
        assert_eq!(names.known(address), Some(Some(Arc::from("late.example"))));
    }

    #[test]
    fn answers_are_bounded() {
        let names = ClientNames::new(Hosts, PATIENCE);
        for number in 0..2 * ANSWERS as u32 {
            names.answers.keep(IpAddr::V4(number.into()), None);
        }
        assert!(names.answers.kept().len() <= ANSWERS);
    }
}
