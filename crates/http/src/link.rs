//! Links that expire: a path, the expiry, and a MAC over both, so that a request with the link needs no password.
//!
//! The invariant: a link grants exactly what its author wrote. All of it is under the MAC, with lengths, so that no two
//! links have the same bytes; and it acts as a user, so it never grants more than that user's present permissions. The
//! driver has the keys, and computes and checks the MAC.

use std::borrow::Cow;

use millrace_vfs::VirtualPath;
use millrace_vfs::hex::{self, Hex};

use crate::request::{Method, decimal};
use crate::target::{decode_parameter, encode, parameter};

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
pub enum BadLink {
    /// It was not made here, or for something else, or its key was taken away.
    Forged,
    /// Its time is over.
    Expired,
}

/// Returns whether a query has the form of a link, valid or not.
pub fn is_link(query: Option<&[u8]>) -> bool {
    parameter(query, b"signature").is_some()
}

/// Decides what a query, which has the form of a link, lets a request do at this second since 1970. `is_signed` returns
/// whether a MAC is that of these bytes.
pub fn verify(
    path: &VirtualPath,
    query: Option<&[u8]>,
    method: Method,
    now: i64,
    is_signed: impl FnOnce(&[u8], &[u8]) -> bool,
) -> Result<Link, BadLink> {
    let fits = |link: &Link| match link.gives {
        Gives::Upload => method == Method::Put,
        Gives::File | Gives::Folder => matches!(method, Method::Get | Method::Head),
    };
    match said(path, query) {
        Some((link, mac)) if fits(&link) && is_signed(&link.signed(), &mac) => {
            let is_over = u64::try_from(now).is_ok_and(|now| now >= link.expires);
            if is_over { Err(BadLink::Expired) } else { Ok(link) }
        }
        _ => Err(BadLink::Forged),
    }
}

/// Returns the query of the rows of a folder's page, if the request came by a link to it or to a parent; and whether it
/// is the link's own folder. The query is valid.
pub fn lead_on(path: &VirtualPath, query: Option<&[u8]>) -> Option<(String, bool)> {
    let (link, mac) = said(path, query)?;
    (link.gives == Gives::Folder).then(|| (link.query(&mac), link.path == *path))
}

/// Returns a request target without the signature, for logs: a reader of the log could use a complete link.
pub fn without_signature(target: &[u8]) -> Cow<'_, [u8]> {
    const NAME: &[u8] = b"signature=";
    let path = target.iter().position(|&byte| byte == b'?').map_or(target.len(), |at| at + 1);
    let (path, query) = target.split_at(path);
    let pairs = || query.split_inclusive(|&byte| matches!(byte, b'&' | b';'));
    if !pairs().any(|pair| pair.starts_with(NAME)) {
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

impl Link {
    /// The path and query of the link, whose MAC this is.
    pub fn target(&self, mac: &[u8]) -> String {
        let mut target = Vec::new();
        encode(self.path.as_bytes(), &mut target);
        if self.gives == Gives::Folder && !self.path.is_root() {
            target.push(b'/');
        }
        target.push(b'?');
        target.extend_from_slice(self.query(mac).as_bytes());
        String::from_utf8_lossy(&target).into_owned()
    }

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

    /// The bytes that the MAC is over.
    pub fn signed(&self) -> Vec<u8> {
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
    let expires = decimal(parameter(query, b"expires")?)?;
    let user = decode_parameter(parameter(query, b"user")?)?;
    let (gives, path) = match (parameter(query, b"method"), parameter(query, b"beneath")) {
        (Some(b"PUT"), None) => (Gives::Upload, path.clone()),
        (_, None) => (Gives::File, path.clone()),
        (Some(b"PUT"), Some(_)) => return None,
        (_, Some(names)) => (Gives::Folder, above(path, decimal(names)?)?),
    };
    Some((Link { path, gives, user, expires }, signature))
}

/// The folder that the first names of a path are, this many of them.
fn above(path: &VirtualPath, names: u64) -> Option<VirtualPath> {
    let beneath = path.components().count().checked_sub(usize::try_from(names).ok()?)?;
    Some((0..beneath).fold(path.clone(), |path, _| path.parent()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::target;

    fn link(path: &str) -> Link {
        let path = VirtualPath::parse(path.as_bytes()).unwrap();
        Link { path, gives: Gives::File, user: b"al ice&\xff".to_vec(), expires: 1000 }
    }

    /// A link whose MAC is what that is over.
    fn sign(link: &Link) -> String {
        link.target(&link.signed())
    }

    fn verdict(target: &str, method: Method, now: i64) -> Result<Link, BadLink> {
        let target = target::parse(target.as_bytes()).unwrap();
        verify(&target.path, target.query, method, now, |signed, mac| signed == mac)
    }

    #[test]
    fn a_link_is_good_for_what_it_says_and_for_nothing_else() {
        let link = link("/a b/c?.txt");
        let target = sign(&link);
        assert!(
            target.starts_with("/a%20b/c%3F.txt?expires=1000&user=al%20ice%26%FF&signature="),
            "{target}"
        );
        assert_eq!(verdict(&target, Method::Get, 999), Ok(link.clone()));
        assert_eq!(verdict(&target, Method::Head, 999), Ok(link.clone()));
        // What else stands in the query says nothing.
        assert_eq!(verdict(&format!("{target}&x=y"), Method::Get, 0), Ok(link.clone()));
        assert_eq!(verdict(&target, Method::Get, 1000), Err(BadLink::Expired));
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
            assert_eq!(verdict(&changed, Method::Get, 999), Err(BadLink::Forged), "{changed}");
        }
        for method in [Method::Put, Method::Delete, Method::Move, Method::PropFind] {
            assert_eq!(verdict(&target, method, 999), Err(BadLink::Forged), "{method:?}");
        }
        let puts = sign(&Link { gives: Gives::Upload, ..link });
        assert!(verdict(&puts, Method::Put, 999).is_ok());
        assert_eq!(verdict(&puts, Method::Get, 999), Err(BadLink::Forged));
        assert!(
            is_link(Some(target.split_once('?').unwrap().1.as_bytes())) && !is_link(Some(b"expires=1000"))
        );
    }

    #[test]
    fn a_link_to_a_folder_is_good_for_all_beneath_it_and_for_nothing_beside() {
        let folder = Link { gives: Gives::Folder, ..link("/a b/c") };
        let target = sign(&folder);
        let (path, query) = target.split_once('?').unwrap();
        assert!(path == "/a%20b/c/" && query.contains("&beneath=2&signature="), "{target}");
        for beneath in ["/a%20b/c", "/a%20b/c/", "/a%20b/c/d", "/a%20b/c/d/e/", "/a%20b/x/../c/f"] {
            let target = format!("{beneath}?{query}");
            assert_eq!(verdict(&target, Method::Get, 0), Ok(folder.clone()), "{beneath}");
            assert_eq!(verdict(&target, Method::Get, 1000), Err(BadLink::Expired), "{beneath}");
            for method in [Method::Put, Method::Delete, Method::PropFind, Method::Post] {
                assert_eq!(verdict(&target, method, 0), Err(BadLink::Forged), "{beneath}");
            }
        }
        for beside in ["/", "/a%20b", "/a%20b/", "/a%20b/d", "/a%20b/cc", "/c/c", "/a%20b/c/../d"] {
            let target = format!("{beside}?{query}");
            assert_eq!(verdict(&target, Method::Get, 0), Err(BadLink::Forged), "{beside}");
        }
        for (from, to) in [("beneath=2", "beneath=1"), ("beneath=2", "beneath="), ("&beneath=2", "")] {
            let changed = target.replacen(from, to, 1);
            assert_eq!(verdict(&changed, Method::Get, 0), Err(BadLink::Forged), "{changed}");
        }
        let parse = |path: &str| VirtualPath::parse(path.as_bytes()).unwrap();
        let lead_on = |path: &str, query: &str| super::lead_on(&parse(path), Some(query.as_bytes()));
        assert_eq!(lead_on("/a b/c", query), Some((query.to_owned(), true)));
        assert_eq!(lead_on("/a b/c/d", &format!("sort=<size>&{query}")), Some((query.to_owned(), false)));
        let file = sign(&link("/a b/c"));
        assert_eq!(lead_on("/a b/c", file.split_once('?').unwrap().1), None);
        let all = sign(&Link { gives: Gives::Folder, ..link("/") });
        assert!(all.starts_with("/?") && all.contains("&beneath=0&"), "{all}");
    }

    #[test]
    fn what_is_written_down_of_a_link_is_none() {
        let target = sign(&link("/a"));
        let at = target.find("signature=").unwrap() + 10;
        let written = without_signature(target.as_bytes());
        assert_eq!(written, [&target[..at], "..."].concat().as_bytes());
        assert_eq!(&*without_signature(b"/a?signature=12&b"), b"/a?signature=...&b");
        assert_eq!(&*without_signature(b"/?a;signature=1;signature=2"), b"/?a;signature=...;signature=...");
        assert_eq!(&*without_signature(b"/?signature="), b"/?signature=...");
        let nothing_in_it =
            ["/a?signature", "/a?signature&b", "/a?b;signature", "?signature", "/a?&", "/?b&&signature&"];
        for plain in ["", "?", "/a", "/a?b=c", "/signature=1"].into_iter().chain(nothing_in_it) {
            assert_eq!(&*without_signature(plain.as_bytes()), plain.as_bytes());
        }
    }

    /// The parts could be cut elsewhere, were their lengths not signed.
    #[test]
    fn no_two_links_are_made_of_the_same_bytes() {
        let one = Link { user: b"a".to_vec(), ..link("/b/c") };
        let other = Link { user: b"a/b".to_vec(), ..link("/c") };
        assert_ne!(one.signed(), other.signed());
    }

    proptest! {
        /// A link that is good for a path and a method names that path, or a folder above it, and its own method; with
        /// any byte changed it is good for nothing else.
        #[test]
        fn a_changed_link_grants_nothing_else(
            names in prop::collection::vec("[a-c]{1,2}", 0..4),
            user in "[a-c&/]{0,4}",
            gives in prop::sample::select(&[Gives::File, Gives::Folder, Gives::Upload][..]),
            expires in 0_u64..2000,
            at: prop::sample::Index,
            byte in prop::sample::select(&b"/&=?019abcefmPUT"[..]),
            now in 0_i64..2000,
        ) {
            let path = VirtualPath::parse(format!("/{}", names.join("/")).as_bytes()).unwrap();
            let link = Link { path, gives, user: user.into_bytes(), expires };
            let target = sign(&link);
            let method = if gives == Gives::Upload { Method::Put } else { Method::Get };
            let expected = if now as u64 >= expires { Err(BadLink::Expired) } else { Ok(link.clone()) };
            prop_assert_eq!(verdict(&target, method, now), expected);
            let mut changed = target.into_bytes();
            let at = at.index(changed.len());
            changed[at] = byte;
            if let Ok(parsed) = target::parse(&changed) {
                for method in [Method::Get, Method::Put, Method::Delete] {
                    let granted = verify(&parsed.path, parsed.query, method, now, |signed, mac| {
                        mac == link.signed() && signed == mac
                    });
                    prop_assert!(granted.is_err() || (granted == Ok(link.clone()) && method != Method::Delete));
                }
            }
        }
    }
}
