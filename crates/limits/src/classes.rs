//! Classes of sessions, as wu-ftpd has them: who comes from where, and how many of them there may be at a time.

use std::net::IpAddr;
use std::sync::Arc;

use crate::{GroupLimits, HostName, Limits, Network};

/// Sessions that share limits because of where their clients are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Class {
    /// Its name.
    pub name: String,
    /// The networks of its clients.
    pub from: Vec<Network>,
    /// The names of its clients' hosts. A client of one of the networks or with one of the names is in the class; where there is
    /// neither, each is.
    pub hosts: Vec<HostName>,
    /// Whether it is of anonymous users, or of others; `None` for both.
    pub anonymous: Option<bool>,
    /// For all of its sessions together.
    pub limits: Limits,
    /// What a client is told that its limit on sessions turns away; empty where nothing else is said of it.
    pub message: Arc<[Vec<u8>]>,
}

impl Class {
    /// Returns the first class that a session is in. `host` is the name of the client's host, in lower case, where that is known.
    pub fn of<'a>(
        classes: &'a [Self],
        from: IpAddr,
        host: Option<&str>,
        is_anonymous: bool,
    ) -> Option<&'a Self> {
        classes.iter().find(|class| {
            let is_any = class.from.is_empty() && class.hosts.is_empty();
            let is_near = is_any
                || class.from.iter().any(|network| network.contains(from))
                || host.is_some_and(|host| class.hosts.iter().any(|name| name.covers(host)));
            is_near && class.anonymous.is_none_or(|wanted| wanted == is_anonymous)
        })
    }

    /// Returns whether a class depends on the names of hosts.
    pub fn need_names(classes: &[Self]) -> bool {
        classes.iter().any(|class| !class.hosts.is_empty())
    }

    /// Returns the group that counts its sessions: `class local`.
    pub fn group(&self) -> GroupLimits {
        GroupLimits { name: format!("class {}", self.name).into(), limits: self.limits.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_class_that_fits_has_the_session() {
        let class = |name: &str, from: &[&str], hosts: &[&str], anonymous| Class {
            name: name.to_owned(),
            from: from.iter().map(|network| network.parse().unwrap()).collect(),
            hosts: hosts.iter().map(|name| HostName::parse(name).unwrap()).collect(),
            anonymous,
            limits: Limits::default(),
            message: Arc::default(),
        };
        let classes = [
            class("local", &["10.0.0.0/8", "2001:db8::/32"], &["*.here.example"], None),
            class("mirrors", &[], &["mirror.example"], Some(true)),
            class("guests", &[], &[], Some(true)),
            class("remote", &["192.0.2.0/24"], &[], Some(false)),
        ];
        for (from, host, is_anonymous, name) in [
            ("10.1.2.3", None, true, Some("local")),
            ("2001:db8::7", Some("else.example"), false, Some("local")),
            ("192.0.2.7", Some("a.here.example"), false, Some("local")),
            ("192.0.2.7", Some("mirror.example"), true, Some("mirrors")),
            ("192.0.2.7", None, true, Some("guests")),
            ("192.0.2.7", Some("mirror.example"), false, Some("remote")),
            ("198.51.100.1", None, false, None),
        ] {
            let found = Class::of(&classes, from.parse().unwrap(), host, is_anonymous);
            assert_eq!(found.map(|class| &*class.name), name, "{from} {is_anonymous}");
        }
        assert_eq!(&*classes[0].group().name, "class local");
    }
}
