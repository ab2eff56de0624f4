//! The servers and applications that answer requests in the server's place, as an operator configures them.

use std::borrow::Borrow;
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use millrace_vfs::VirtualPath;

/// Paths of HTTP that others answer: applications by FastCGI, or other servers by HTTP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProxyRoute {
    /// It is for what lies beneath this.
    pub path: VirtualPath,
    /// And has this at the end of a name, such as `.php`: that is the script, and what stands behind it is `PATH_INFO`.
    pub suffix: Option<String>,
    /// Where scripts lie, as the application sees it and this process: only those that are there are asked for.
    pub root: Option<PathBuf>,
    /// Who answers.
    pub to: Upstream,
    /// The name that another server is asked by, rather than that which the client has used.
    pub host: Option<String>,
    /// Whether connections are kept for the next request.
    pub keep: bool,
    /// How many requests may be under way; further ones wait.
    pub most: usize,
    /// For how long nothing may move.
    pub silence: Duration,
}

impl ProxyRoute {
    /// All paths, to this.
    pub fn new(to: Upstream) -> Self {
        Self {
            path: VirtualPath::root(),
            suffix: None,
            root: None,
            to,
            host: None,
            keep: true,
            most: 64,
            silence: Duration::from_secs(60),
        }
    }
}

/// As messages name it: `[[proxy]] /app/*.php to fastcgi:/run/x`.
impl fmt::Display for ProxyRoute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let slash = if self.path.is_root() { "" } else { "/" };
        match &self.suffix {
            Some(suffix) => write!(f, "[[proxy]] {}{slash}*{suffix} to {}", self.path, self.to),
            None => write!(f, "[[proxy]] {} to {}", self.path, self.to),
        }
    }
}

/// The upstream servers, and their protocols.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Upstream {
    /// An application, by FastCGI.
    FastCgi(Peer),
    /// Another server, by HTTP/1.1.
    Http(Peer),
}

impl fmt::Display for Upstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scheme, Self::FastCgi(peer) | Self::Http(peer)) = match self {
            Self::FastCgi(_) => ("fastcgi", self),
            Self::Http(_) => ("http", self),
        };
        let slashes = if matches!(peer, Peer::Tcp(_)) { "//" } else { "" };
        write!(f, "{scheme}:{slashes}{peer}")
    }
}

/// The address of an upstream server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Peer {
    /// At a port.
    Tcp(SocketAddr),
    /// At a socket of this machine.
    Unix(PathBuf),
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => write!(f, "{address}"),
            Self::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}

/// Returns which route a path is for.
pub fn route_of<P: Borrow<ProxyRoute>>(proxy_routes: &[P], path: &VirtualPath) -> Option<usize> {
    proxy_routes.iter().position(|route| route.borrow().takes(path))
}

impl ProxyRoute {
    /// Returns whether it is for a path.
    pub fn takes(&self, path: &VirtualPath) -> bool {
        let ends = |suffix: &String| path.components().any(|name| name.ends_with(suffix.as_bytes()));
        path.starts_with(&self.path) && self.suffix.as_ref().is_none_or(ends)
    }

    /// Returns whether a path whose names may have slashes in them is for it whatever they are, and that no file is
    /// looked for: all of them are in this folder.
    pub fn takes_as_sent(&self, outer: &VirtualPath) -> bool {
        self.suffix.is_none() && outer.starts_with(&self.path)
    }

    /// The script that a path names, and what stands behind it.
    pub fn split<'a>(&self, path: &'a VirtualPath) -> (&'a [u8], &'a [u8]) {
        let bytes = path.as_bytes();
        let mut end = if self.path.is_root() { 0 } else { self.path.as_bytes().len() };
        if let Some(suffix) = &self.suffix {
            end = 0;
            for name in path.components() {
                end += 1 + name.len();
                if name.ends_with(suffix.as_bytes()) {
                    break;
                }
            }
        }
        bytes.split_at(end.min(bytes.len()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(path: &str, suffix: Option<&str>) -> ProxyRoute {
        ProxyRoute {
            path: VirtualPath::parse(path.as_bytes()).unwrap(),
            suffix: suffix.map(str::to_owned),
            ..ProxyRoute::new(Upstream::FastCgi(Peer::Unix("/run/x".into())))
        }
    }

    #[test]
    fn a_pass_takes_what_lies_beneath_its_path_or_has_its_suffix() {
        let proxy_routes = [route("/app", None), route("/", Some(".php")), route("/all", None)];
        for (path, expected) in [
            ("/app", Some((0, "/app", ""))),
            ("/app/x/y", Some((0, "/app", "/x/y"))),
            ("/apple", None),
            ("/a/b.php", Some((1, "/a/b.php", ""))),
            ("/a/b.php/c.php/d", Some((1, "/a/b.php", "/c.php/d"))),
            ("/a/b.php5", None),
            ("/all", Some((2, "/all", ""))),
            ("/", None),
        ] {
            let path = VirtualPath::parse(path.as_bytes()).unwrap();
            let found = route_of(&proxy_routes, &path).map(|index| {
                let (script, rest) = proxy_routes[index].split(&path);
                (index, std::str::from_utf8(script).unwrap(), std::str::from_utf8(rest).unwrap())
            });
            assert_eq!(found, expected, "{path:?}");
        }
        let root = route("/", None);
        assert_eq!(root.split(&VirtualPath::parse(b"/a/b").unwrap()), (&b""[..], &b"/a/b"[..]));
    }
}
