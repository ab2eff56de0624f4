//! Explains a user's settings to an administrator who does not have the password: the effective values, their origin,
//! and what would refuse a login.

use std::path::PathBuf;

use super::granting::is_made;
use super::{Chain, refusal, unavailable};
use crate::effective::{Effective, seconds};
use crate::homes::{HomeError, Homes};
use crate::hosts::plain;
use crate::source::{Found, Needs};
use crate::source_error::SourceUnavailable;
use crate::{Attempt, Decision};
use millrace_limits as limits;

/// The effective settings of a user.
#[derive(Debug)]
pub struct Explained {
    /// The name of the source that knows the user.
    pub source: String,
    /// The effective settings and their origin.
    pub effective: Effective,
    /// Why a login would be refused, though the password is right.
    pub refused: Option<String>,
    /// The host that such clients belong to: the name, or the addresses, as configured.
    pub host: Option<String>,
    /// The root of the tree that is served to such clients; the user's folder lies in it.
    pub root: PathBuf,
}

impl Chain {
    /// Explains a user, if a source finds the name without a password.
    pub fn explain(&self, attempt: &Attempt<'_>) -> Result<Option<Explained>, SourceUnavailable> {
        let plain = plain(attempt.host.as_bytes());
        let attempt = &Attempt { host: &plain, ..*attempt };
        let (host, root) = (self.host_of(attempt), self.homes(attempt).root());
        let explained = |source: &str, effective, refused| Explained {
            source: source.to_owned(),
            effective,
            refused,
            host: host.map(|host| {
                let known_by = &host.known_by;
                let named = known_by.names.iter().find(|name| name.covers(&plain));
                named.map_or_else(|| known_by.to_string(), ToString::to_string)
            }),
            root: root.to_owned(),
        };
        if self.is_anonymous(attempt)
            && let Some(permissions) = self.anonymous_permissions(attempt)
            && let Some(effective) = self.anonymous_settings_with(permissions)
        {
            let refused = effective.admit(attempt).err().map(|why| why.to_string());
            let refused = refused.or_else(|| self.without_folder(&effective, self.homes(attempt)));
            return Ok(Some(explained("the configuration", effective, refused)));
        }
        for source in self.sources_for(attempt).filter(|source| source.needs() == Needs::Name) {
            match source.find(attempt) {
                Ok(Found::Unknown) => {}
                Ok(Found::User(user, _)) => {
                    let effective = self.effective(&user);
                    let refused = match refusal(source, &effective, attempt) {
                        Some(Decision::Refused(why) | Decision::Unavailable(why)) => Some(why),
                        _ => self.without_folder(&effective, self.homes(attempt)),
                    };
                    return Ok(Some(explained(source.name(), effective, refused)));
                }
                Err(why) => return Err(unavailable(source, why)),
            }
        }
        Ok(None)
    }

    /// The sources before one of this name, or all, that tell nothing without a password.
    pub fn silent_before(&self, source: Option<&str>) -> Vec<&str> {
        let before = self.sources().take_while(|before| Some(before.name()) != source);
        before.filter(|before| before.needs() != Needs::Name).map(|before| before.name()).collect()
    }

    /// The last stored use of the user's quotas for such a login; a folder that was never counted is left out.
    pub fn used(&self, effective: &Effective, attempt: &Attempt<'_>) -> Vec<limits::Used> {
        let (mut used, now) = (Vec::new(), seconds(attempt.now));
        let host = plain(attempt.host.as_bytes());
        let attempt = &Attempt { host: &host, ..*attempt };
        let homes = self.homes(attempt);
        if let (Some(quota), Ok(folder)) = (effective.quota(), effective.directory()) {
            used.extend(self.quotas.held_in(&homes.key(&folder.unwrap_or_default()), quota.at(now)));
        }
        if let Some(quota) = effective.transfer_quota() {
            let user = effective.user.as_bytes();
            let counted_by = self.host_of_user(attempt).map_or(user.into(), |host| host.counted_by(user));
            used.extend(self.quotas.moved_of(&String::from_utf8_lossy(&counted_by), &quota, now));
        }
        for (path, key, quota) in self.mounts.held(effective) {
            let held = self.quotas.held_in(&key, quota.at(now)).into_iter();
            used.extend(held.map(|used| limits::Used { folder: Some(path.clone()), ..used }));
        }
        used
    }

    /// Returns the reason that a user's folder could not be opened for, if there is one.
    fn without_folder(&self, effective: &Effective, homes: &Homes) -> Option<String> {
        let folder = effective.directory().map_err(HomeError::from);
        let opened = folder.and_then(|folder| homes.check(&folder.unwrap_or_default(), is_made(effective)));
        opened.err().map(|error| error.to_string())
    }
}
