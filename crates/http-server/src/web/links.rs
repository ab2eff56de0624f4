//! The keys of links that expire ([`millrace_http::link`]): they sign, and verify.
//!
//! Removing a key revokes all of its links.

use std::borrow::Cow;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use millrace_http::Method;
use millrace_http::link::{self, BadLink, Link};
use millrace_vfs::VirtualPath;
use millrace_vfs::hex::Hex;
use ring::hmac;

/// Characters of a key at least: as many as 128 bits have in hexadecimal digits.
const LEAST: usize = 32;

/// Why a file has no keys of links.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LinkKeysError {
    /// The key has too few characters: this many.
    #[error("a key of links has {0} characters, which is too few: `openssl rand -hex 32` makes one")]
    Short(usize),
    /// It holds no key.
    #[error("there is no key in it: `openssl rand -hex 32` makes one")]
    Empty,
}

/// The keys of links: the first one signs, all of them are good. Clones are the same keys.
#[derive(Clone, Default)]
pub struct LinkKeys(Arc<Keys>);

/// All of them, and whether there are any: most servers have none, and a lock that every request takes is a line that all
/// workers write.
#[derive(Default)]
struct Keys {
    any: AtomicBool,
    list: RwLock<Vec<LinkKey>>,
}

/// A key, and its name in the audit log.
#[derive(Clone)]
struct LinkKey {
    key: hmac::Key,
    name: String,
}

impl LinkKey {
    /// The name is made of the key, which it does not tell.
    fn new(secret: &[u8]) -> Self {
        let key = hmac::Key::new(hmac::HMAC_SHA256, secret);
        let mac = hmac::sign(&key, b"millrace link key name");
        let name = Hex(&mac.as_ref()[..4]).to_string();
        Self { key, name }
    }
}

impl LinkKeys {
    /// The keys of a file: one a line, the newest first.
    pub fn parse(text: &str) -> Result<Self, LinkKeysError> {
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        let key = |line: &str| match line.len() >= LEAST {
            true => Ok(LinkKey::new(line.as_bytes())),
            false => Err(LinkKeysError::Short(line.len())),
        };
        let keys = lines.map(key).collect::<Result<Vec<_>, _>>()?;
        match keys.is_empty() {
            true => Err(LinkKeysError::Empty),
            false => Ok(Self(Arc::new(Keys { any: AtomicBool::new(true), list: RwLock::new(keys) }))),
        }
    }

    /// Has these keys from now on, in all clones.
    pub(crate) fn replace(&self, others: &Self) {
        let keys = others.keys().clone();
        let any = !keys.is_empty();
        *self.0.list.write().unwrap_or_else(PoisonError::into_inner) = keys;
        self.0.any.store(any, Ordering::Release);
    }

    /// The path and query of a link of no virtual host; `None` where there is no key.
    pub fn sign(&self, link: &Link) -> Option<String> {
        self.sign_at(link, None)
    }

    /// The same of a link that is good at this virtual host and nowhere else.
    pub fn sign_at(&self, link: &Link, host: Option<&str>) -> Option<String> {
        let keys = self.keys();
        let mac = hmac::sign(&keys.first()?.key, &at_host(link.signed(), host));
        Some(link.target(mac.as_ref()))
    }

    /// Returns whether a query has the form of a link, valid or not.
    pub(crate) fn is_link(&self, query: Option<&[u8]>) -> bool {
        link::is_link(query) && self.0.any.load(Ordering::Acquire)
    }

    /// A request target without the signature, for logs.
    pub(crate) fn without_signature<'a>(&self, target: &'a [u8]) -> Cow<'a, [u8]> {
        match self.0.any.load(Ordering::Acquire) {
            true => link::without_signature(target),
            false => Cow::Borrowed(target),
        }
    }

    /// The names of the keys, for the audit log: of the one that signs, then of the others.
    pub fn names(&self) -> Vec<String> {
        self.keys().iter().map(|key| key.name.clone()).collect()
    }

    fn keys(&self) -> RwLockReadGuard<'_, Vec<LinkKey>> {
        self.0.list.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// What a request's query lets it do at a virtual host: `None` where it is no link's.
    pub(crate) fn verify(
        &self,
        path: &VirtualPath,
        query: Option<&[u8]>,
        method: Method,
        now: i64,
        host: Option<&str>,
    ) -> Option<Result<Link, BadLink>> {
        self.is_link(query).then(|| {
            link::verify(path, query, method, now, |signed, mac| {
                let signed = &at_host(signed.to_vec(), host);
                // In constant time for each key.
                self.keys().iter().any(|LinkKey { key, .. }| hmac::verify(key, signed, mac).is_ok())
            })
        })
    }
}

/// What the MAC of a link is over. A virtual host has other files and other users; without one a link begins otherwise.
fn at_host(link: Vec<u8>, host: Option<&str>) -> Vec<u8> {
    match host {
        Some(host) => [b"at ", host.as_bytes(), b"\n", &link].concat(),
        None => link,
    }
}

/// Never shows a key.
impl fmt::Debug for LinkKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} keys", self.keys().len())
    }
}

#[cfg(test)]
mod tests {
    use millrace_http::link::Gives;
    use millrace_http::target;

    use super::*;

    const KEYS: [&str; 2] = ["0123456789abcdef0123456789abcdef", "fedcba9876543210fedcba9876543210"];

    fn link(path: &str) -> Link {
        let path = VirtualPath::parse(path.as_bytes()).unwrap();
        Link { path, gives: Gives::File, user: b"alice".to_vec(), expires: 1000 }
    }

    fn verdict(keys: &LinkKeys, target: &str, method: Method, now: i64) -> Option<Result<Link, BadLink>> {
        let target = target::parse(target.as_bytes()).unwrap();
        keys.verify(&target.path, target.query, method, now, None)
    }

    #[test]
    fn a_link_is_good_as_it_was_signed() {
        let keys = LinkKeys::parse(KEYS[0]).unwrap();
        let (link, target) = (link("/a"), keys.sign(&link("/a")).unwrap());
        assert_eq!(verdict(&keys, &target, Method::Get, 999), Some(Ok(link)));
        assert_eq!(verdict(&keys, &target, Method::Get, 1000), Some(Err(BadLink::Expired)));
        for (from, to) in [("/a", "/b"), ("=1000", "=1001"), ("signature=", "signature=00"), ("alice", "bob")]
        {
            let changed = target.replacen(from, to, 1);
            assert_eq!(verdict(&keys, &changed, Method::Get, 999), Some(Err(BadLink::Forged)), "{changed}");
        }
        assert_eq!(verdict(&keys, "/a?expires=1000", Method::Get, 0), None);
        assert_eq!(&*keys.without_signature(b"/a?signature=12"), b"/a?signature=...");
        assert_eq!(&*LinkKeys::default().without_signature(b"/a?signature=12"), b"/a?signature=12");
    }

    #[test]
    fn a_link_of_a_virtual_host_is_good_there_alone() {
        let keys = LinkKeys::parse(KEYS[0]).unwrap();
        let hosts = [None, Some("a.example"), Some("b.example")];
        for made_at in hosts {
            let target = keys.sign_at(&link("/a"), made_at).unwrap();
            let target = target::parse(target.as_bytes()).unwrap();
            for used_at in hosts {
                let verdict = keys.verify(&target.path, target.query, Method::Get, 0, used_at).unwrap();
                assert_eq!(verdict.is_ok(), made_at == used_at, "{made_at:?} {used_at:?}");
            }
        }
    }

    #[test]
    fn a_new_key_signs_an_old_one_is_good_until_it_is_taken_away() {
        let old = LinkKeys::parse(KEYS[0]).unwrap();
        let target = old.sign(&link("/a")).unwrap();
        let both = LinkKeys::parse(&format!("# newest first\n{}\n\n{}\n", KEYS[1], KEYS[0])).unwrap();
        assert!(verdict(&both, &target, Method::Get, 0).unwrap().is_ok());
        assert_ne!(both.sign(&link("/a")).unwrap(), target);
        let in_use = both.clone();
        both.replace(&LinkKeys::parse(KEYS[1]).unwrap());
        assert_eq!(verdict(&in_use, &target, Method::Get, 0), Some(Err(BadLink::Forged)));
        assert_eq!(verdict(&LinkKeys::default(), &target, Method::Get, 0), None);
        assert_eq!(LinkKeys::default().sign(&link("/a")), None);
        for text in ["", "# nothing", "short"] {
            assert!(LinkKeys::parse(text).is_err(), "{text}");
        }
        assert!(!format!("{both:?}").contains("0123"));
    }
}
