//! Links that expire: a path, the expiry, and a MAC over both, so that a request with the link needs no password.
//!
//! The invariant: a link grants exactly what its author wrote. All of it is under the MAC, with lengths, so that no two
//! links have the same bytes; and it acts as a user, so it never grants more than that user's present permissions.
//! Removing a key revokes all of its links.

use std::borrow::Cow;
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use millrace_http::target::{encode, parameter};
use millrace_http::{Method, target};
use millrace_vfs::VirtualPath;
use millrace_vfs::hex::{self, Hex};
use ring::hmac;

/// Characters of a key at least: as many as 128 bits have in hexadecimal digits.
const LEAST: usize = 32;

/// The keys of links: the first one signs, all of them are good. Clones are the same keys.
#[derive(Clone, Default)]
pub struct LinkKeys(Arc<RwLock<Vec<hmac::Key>>>);

/// What a link lets its holder do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    /// With this file, or folder.
    pub path: VirtualPath,
    /// What.
    pub gives: Gives,
    /// In the name of this user; `anonymous` is one.
    pub user: Vec<u8>,
    /// Until this second since 1970.
    pub expires: u64,
}

/// What a link is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gives {
    /// To get the file.
    File,
    /// To get the folder's page, and everything beneath it.
    Folder,
    /// To send the file.
    Upload,
}

/// Why a link is not good.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bad {
    /// It was not made here, or for something else, or its key was taken away.
    Forged,
    /// Its time is over.
    Expired,
}

impl LinkKeys {
    /// The keys of a file: one a line, the newest first. The error is for people.
    pub fn parse(text: &str) -> Result<Self, String> {
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        let key = |line: &str| match line.len() >= LEAST {
            true => Ok(hmac::Key::new(hmac::HMAC_SHA256, line.as_bytes())),
            false => Err(format!(
                "a key of links has {} characters, which is too few: `openssl rand -hex 32` makes one",
                line.len()
            )),
        };
        let keys = lines.map(key).collect::<Result<Vec<_>, _>>()?;
        match keys.is_empty() {
            true => Err("there is no key in it: `openssl rand -hex 32` makes one".to_owned()),
            false => Ok(Self(Arc::new(RwLock::new(keys)))),
        }
    }

    /// Has these keys from now on, in all clones.
    pub(crate) fn replace(&self, others: &Self) {
        let keys = others.keys().clone();
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = keys;
    }

    /// The path and query of a link; `None` where there is no key.
    pub fn sign(&self, link: &Link) -> Option<String> {
        let keys = self.keys();
        let mac = hmac::sign(keys.first()?, &link.signed());
        let mut target = Vec::new();
        encode(link.path.as_bytes(), &mut target);
        if link.gives == Gives::Folder && !link.path.is_root() {
            target.push(b'/');
        }
        target.extend_from_slice(format!("?{}", link.query(mac.as_ref())).as_bytes());
        String::from_utf8(target).ok()
    }

    /// The query of the rows of a folder's page, if the request came by a link to it or to a parent; and whether it is
    /// the link's own folder. The query is valid.
    pub(crate) fn lead_on(&self, path: &VirtualPath, query: Option<&[u8]>) -> Option<(String, bool)> {
        let (link, signature) = said(path, query)?;
        (link.gives == Gives::Folder).then(|| (link.query(&signature), link.path == *path))
    }

    /// Returns true if a query has the form of a link, valid or not.
    pub(crate) fn is_link(&self, query: Option<&[u8]>) -> bool {
        parameter(query, b"signature").is_some() && !self.keys().is_empty()
    }

    /// A request target without the signature, for logs: a reader of the log could use a complete link.
    pub(crate) fn without_signature<'a>(&self, target: &'a [u8]) -> Cow<'a, [u8]> {
        const NAME: &[u8] = b"signature=";
        let path = target.iter().position(|&byte| byte == b'?').map_or(target.len(), |at| at + 1);
        let (path, query) = target.split_at(path);
        let pairs = || query.split_inclusive(|&byte| matches!(byte, b'&' | b';'));
        if self.keys().is_empty() || !pairs().any(|pair| pair.starts_with(NAME)) {
            return Cow::Borrowed(target);
        }
        let mut out = path.to_vec();
        for pair in pairs() {
            match pair.strip_prefix(NAME) {
                None => out.extend_from_slice(pair),
                Some(value) => {
                    out.extend_from_slice(&[NAME, b"..."].concat());
                    // What ends the pair, where another one follows.
                    out.extend(value.last().filter(|byte| matches!(byte, b'&' | b';')));
                }
            }
        }
        Cow::Owned(out)
    }

    fn keys(&self) -> RwLockReadGuard<'_, Vec<hmac::Key>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// What a request's query lets it do: `None` where it is no link's.
    pub(crate) fn verify(
        &self,
        path: &VirtualPath,
        query: Option<&[u8]>,
        method: Method,
        now: i64,
    ) -> Option<Result<Link, Bad>> {
        if !self.is_link(query) {
            return None;
        }
        let fits = |link: &Link| match link.gives {
            Gives::Upload => method == Method::Put,
            Gives::File | Gives::Folder => matches!(method, Method::Get | Method::Head),
        };
        let Some((link, signature)) = said(path, query).filter(|(link, _)| fits(link)) else {
            return Some(Err(Bad::Forged));
        };
        let signed = link.signed();
        // In constant time for each key.
        if !self.keys().iter().any(|key| hmac::verify(key, &signed, &signature).is_ok()) {
            return Some(Err(Bad::Forged));
        }
        let is_over = u64::try_from(now).is_ok_and(|now| now >= link.expires);
        Some(if is_over { Err(Bad::Expired) } else { Ok(link) })
    }
}

/// Never shows a key.
impl fmt::Debug for LinkKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} keys", self.keys().len())
    }
}

impl Link {
    /// What stands behind the path. Of a folder it is good for all beneath: how many names of a path are the folder's
    /// it says, and the MAC, which ones.
    fn query(&self, mac: &[u8]) -> String {
        let mut user = Vec::new();
        encode(&self.user, &mut user);
        let what = match self.gives {
            Gives::File => String::new(),
            Gives::Folder => format!("&beneath={}", self.path.components().count()),
            Gives::Upload => "&method=PUT".to_owned(),
        };
        let user = String::from_utf8_lossy(&user);
        format!("expires={}&user={user}{what}&signature={}", self.expires, Hex(mac))
    }

    /// What the MAC is over.
    fn signed(&self) -> Vec<u8> {
        let verb = match self.gives {
            Gives::File => "GET",
            Gives::Folder => "BENEATH",
            Gives::Upload => "PUT",
        };
        let mut signed =
            format!("millrace link 1\n{verb}\n{}\n{}\n", self.expires, self.user.len()).into_bytes();
        signed.extend_from_slice(&self.user);
        signed.extend_from_slice(self.path.as_bytes());
        signed
    }
}

/// The link that a query says a request for a path has come by, and its MAC; whether it is good, or not.
fn said(path: &VirtualPath, query: Option<&[u8]>) -> Option<(Link, Vec<u8>)> {
    let signature = hex::decode(parameter(query, b"signature")?)?;
    let expires = millrace_http::request::decimal(parameter(query, b"expires")?)?;
    let user = target::decode_parameter(parameter(query, b"user")?)?;
    let (gives, path) = match (parameter(query, b"method"), parameter(query, b"beneath")) {
        (Some(b"PUT"), None) => (Gives::Upload, path.clone()),
        (_, None) => (Gives::File, path.clone()),
        (Some(b"PUT"), Some(_)) => return None,
        (_, Some(names)) => (Gives::Folder, above(path, millrace_http::request::decimal(names)?)?),
    };
    Some((Link { path, gives, user, expires }, signature))
}

/// The folder that the first so many names of a path are.
fn above(path: &VirtualPath, names: u64) -> Option<VirtualPath> {
    let beneath = path.components().count().checked_sub(usize::try_from(names).ok()?)?;
    Some((0..beneath).fold(path.clone(), |path, _| path.parent()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEYS: [&str; 2] = ["0123456789abcdef0123456789abcdef", "fedcba9876543210fedcba9876543210"];

    fn link(path: &str) -> Link {
        let path = VirtualPath::parse(path.as_bytes()).unwrap();
        Link { path, gives: Gives::File, user: b"al ice&\xff".to_vec(), expires: 1000 }
    }

    fn verdict(keys: &LinkKeys, target: &str, method: Method, now: i64) -> Option<Result<Link, Bad>> {
        let target = target::parse(target.as_bytes()).unwrap();
        keys.verify(&target.path, target.query, method, now)
    }

    #[test]
    fn a_link_is_good_for_what_it_says_and_for_nothing_else() {
        let keys = LinkKeys::parse(KEYS[0]).unwrap();
        let link = link("/a b/c?.txt");
        let target = keys.sign(&link).unwrap();
        assert!(
            target.starts_with("/a%20b/c%3F.txt?expires=1000&user=al%20ice%26%FF&signature="),
            "{target}"
        );
        assert_eq!(verdict(&keys, &target, Method::Get, 999), Some(Ok(link.clone())));
        assert_eq!(verdict(&keys, &target, Method::Head, 999), Some(Ok(link.clone())));
        // What else stands in the query says nothing.
        assert_eq!(verdict(&keys, &format!("{target}&x=y"), Method::Get, 0), Some(Ok(link.clone())));
        assert_eq!(verdict(&keys, &target, Method::Get, 1000), Some(Err(Bad::Expired)));
        for (from, to) in [
            ("c%3F", "d%3F"),
            ("expires=1000", "expires=1001"),
            ("expires=1000", "expires="),
            ("expires=1000&", ""),
            ("user=al", "user=bo"),
            ("user=al%20ice%26%FF", "user=%"),
            ("&signature", "&method=PUT&signature"),
            ("&signature", "&beneath=2&signature"),
            ("&signature", "&beneath=1&signature"),
            ("signature=", "signature=00"),
            ("signature=", "signature=x"),
        ] {
            let changed = target.replacen(from, to, 1);
            assert_ne!(changed, target);
            assert_eq!(verdict(&keys, &changed, Method::Get, 999), Some(Err(Bad::Forged)), "{changed}");
        }
        for method in [Method::Put, Method::Delete, Method::Move, Method::PropFind] {
            assert_eq!(verdict(&keys, &target, method, 999), Some(Err(Bad::Forged)), "{method:?}");
        }
        let puts = keys.sign(&Link { gives: Gives::Upload, ..link }).unwrap();
        assert!(verdict(&keys, &puts, Method::Put, 999).unwrap().is_ok());
        assert_eq!(verdict(&keys, &puts, Method::Get, 999), Some(Err(Bad::Forged)));
        assert_eq!(verdict(&keys, "/a?expires=1000", Method::Get, 0), None);
    }

    #[test]
    fn a_link_to_a_folder_is_good_for_all_beneath_it_and_for_nothing_beside() {
        let keys = LinkKeys::parse(KEYS[0]).unwrap();
        let folder = Link { gives: Gives::Folder, ..link("/a b/c") };
        let target = keys.sign(&folder).unwrap();
        let (path, query) = target.split_once('?').unwrap();
        assert!(path == "/a%20b/c/" && query.contains("&beneath=2&signature="), "{target}");
        for beneath in ["/a%20b/c", "/a%20b/c/", "/a%20b/c/d", "/a%20b/c/d/e/", "/a%20b/x/../c/f"] {
            let target = format!("{beneath}?{query}");
            assert_eq!(verdict(&keys, &target, Method::Get, 0), Some(Ok(folder.clone())), "{beneath}");
            assert_eq!(verdict(&keys, &target, Method::Get, 1000), Some(Err(Bad::Expired)), "{beneath}");
            for method in [Method::Put, Method::Delete, Method::PropFind, Method::Post] {
                assert_eq!(verdict(&keys, &target, method, 0), Some(Err(Bad::Forged)), "{beneath}");
            }
        }
        for beside in ["/", "/a%20b", "/a%20b/", "/a%20b/d", "/a%20b/cc", "/c/c", "/a%20b/c/../d"] {
            let target = format!("{beside}?{query}");
            assert_eq!(verdict(&keys, &target, Method::Get, 0), Some(Err(Bad::Forged)), "{beside}");
        }
        for (from, to) in [("beneath=2", "beneath=1"), ("beneath=2", "beneath="), ("&beneath=2", "")] {
            let changed = target.replacen(from, to, 1);
            assert_eq!(verdict(&keys, &changed, Method::Get, 0), Some(Err(Bad::Forged)), "{changed}");
        }
        let parse = |path: &str| VirtualPath::parse(path.as_bytes()).unwrap();
        let lead_on = |path: &str, query: &str| keys.lead_on(&parse(path), Some(query.as_bytes()));
        assert_eq!(lead_on("/a b/c", query), Some((query.to_owned(), true)));
        assert_eq!(lead_on("/a b/c/d", &format!("sort=<size>&{query}")), Some((query.to_owned(), false)));
        let file = keys.sign(&link("/a b/c")).unwrap();
        assert_eq!(lead_on("/a b/c", file.split_once('?').unwrap().1), None);
        let all = keys.sign(&Link { gives: Gives::Folder, ..link("/") }).unwrap();
        assert!(all.starts_with("/?") && all.contains("&beneath=0&"), "{all}");
    }

    #[test]
    fn what_is_written_down_of_a_link_is_none() {
        let keys = LinkKeys::parse(KEYS[0]).unwrap();
        let target = keys.sign(&link("/a")).unwrap();
        let at = target.find("signature=").unwrap() + 10;
        let written = keys.without_signature(target.as_bytes());
        assert_eq!(written, [&target[..at], "..."].concat().as_bytes());
        assert_eq!(&*keys.without_signature(b"/a?signature=12&b"), b"/a?signature=...&b");
        assert_eq!(
            &*keys.without_signature(b"/?a;signature=1;signature=2"),
            b"/?a;signature=...;signature=..."
        );
        assert_eq!(&*keys.without_signature(b"/?signature="), b"/?signature=...");
        let nothing_in_it =
            ["/a?signature", "/a?signature&b", "/a?b;signature", "?signature", "/a?&", "/?b&&signature&"];
        for plain in ["", "?", "/a", "/a?b=c", "/signature=1"].into_iter().chain(nothing_in_it) {
            assert_eq!(&*keys.without_signature(plain.as_bytes()), plain.as_bytes());
        }
        assert_eq!(&*LinkKeys::default().without_signature(b"/a?signature=12"), b"/a?signature=12");
    }

    /// The parts could be cut elsewhere, were their lengths not signed.
    #[test]
    fn no_two_links_are_made_of_the_same_bytes() {
        let one = Link { user: b"a".to_vec(), ..link("/b/c") };
        let other = Link { user: b"a/b".to_vec(), ..link("/c") };
        assert_ne!(one.signed(), other.signed());
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
        assert_eq!(verdict(&in_use, &target, Method::Get, 0), Some(Err(Bad::Forged)));
        assert_eq!(verdict(&LinkKeys::default(), &target, Method::Get, 0), None);
        assert_eq!(LinkKeys::default().sign(&link("/a")), None);
        for text in ["", "# nothing", "short"] {
            assert!(LinkKeys::parse(text).is_err(), "{text}");
        }
        assert!(!format!("{both:?}").contains("0123"));
    }
}
