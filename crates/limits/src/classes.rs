//! Classes of sessions, as wu-ftpd has them: who comes from where, and how many of them there may be at a time.

use std::net::IpAddr;
use std::sync::Arc;

use crate::{GroupLimits, Limits, Network};

/// Sessions that share limits because of where their clients are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Class {
    /// Its name.
    pub name: String,
    /// The networks of its clients; none for all.
    pub from: Vec<Network>,
    /// Whether it is of anonymous users, or of others; `None` for both.
    pub anonymous: Option<bool>,
    /// For all of its sessions together.
    pub limits: Limits,
    /// What a client is told that its limit on sessions turns away; empty where nothing else is said of it.
    pub message: Arc<[Vec<u8>]>,
}

impl Class {
    /// Returns the first class that a session is in.
    pub fn of(classes: &[Self], from: IpAddr, is_anonymous: bool) -> Option<&Self> {
        classes.iter().find(|class| {
            let is_near = class.from.is_empty() || class.from.iter().any(|network| network.contains(from));
            is_near && class.anonymous.is_none_or(|wanted| wanted == is_anonymous)
        })
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
        let class = |name: &str, from: &[&str], anonymous| Class {
            name: name.to_owned(),
            from: from.iter().map(|network| network.parse().unwrap()).collect(),
            anonymous,
            limits: Limits::default(),
            message: Arc::default(),
        };
        let classes = [
            class("local", &["10.0.0.0/8", "2001:db8::/32"], None),
            class("guests", &[], Some(true)),
            class("remote", &["192.0.2.0/24"], Some(false)),
        ];
        for (from, is_anonymous, name) in [
            ("10.1.2.3", true, Some("local")),
            ("2001:db8::7", false, Some("local")),
            ("192.0.2.7", true, Some("guests")),
            ("192.0.2.7", false, Some("remote")),
            ("198.51.100.1", false, None),
        ] {
            let found = Class::of(&classes, from.parse().unwrap(), is_anonymous);
            assert_eq!(found.map(|class| &*class.name), name, "{from} {is_anonymous}");
        }
        assert_eq!(&*classes[0].group().name, "class local");
    }
}
