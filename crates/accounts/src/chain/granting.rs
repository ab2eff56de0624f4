//! Makes the account of an accepted user: the folder with its quota and virtual folders, the permissions, the limits.

use std::sync::{Arc, PoisonError};

use millrace_ftp::session::{Permission, Permissions, Rules};
use millrace_storage::Quota;
use millrace_vfs::{QuotaScope, Storage};

use super::{ANONYMOUS, Chain};
use crate::effective::Effective;
use crate::homes::HomeError;
use crate::hosts::VirtualHost;
use crate::profile::User;
use crate::source::{Needs, Source};
use crate::{Account, Attempt, Told};
use millrace_limits::{AccountLimits, GroupLimits, HostOfUser, Moved};

impl Chain {
    /// The account of a user; `None` where it would block but must not.
    pub(super) fn account(
        &self,
        effective: &Effective,
        attempt: &Attempt<'_>,
        at_once: bool,
    ) -> Result<Option<Account>, HomeError> {
        let homes = self.homes(attempt);
        let rules = effective.rules();
        let read_only = Permissions::READ_ONLY.with(Permission::Admin).contains(rules.anywhere());
        let is_template = is_made(effective);
        let folder = effective.directory()?.unwrap_or_default();
        let storage: Option<Arc<dyn Storage>> = match (effective.said.is_system_account, at_once) {
            (true, true) => None,
            (true, false) => Some(homes.open_as(&effective.user, &folder, read_only, is_template)?),
            (false, true) if !self.mounts.are_ready(effective) => None,
            (false, true) => homes.ready(&folder, read_only).map(|storage| storage as Arc<dyn Storage>),
            (false, false) => Some(homes.open(&folder, read_only, is_template)?),
        };
        let mut limits = effective.limits();
        limits.groups.extend(self.host_group(attempt));
        limits.host = self.host_of_user(attempt);
        if let Some(quota) = effective.transfer_quota() {
            let counted_by = limits.counted_by(effective.user.as_bytes());
            let counted_by = String::from_utf8_lossy(&counted_by);
            let traffic = match at_once {
                true => self.quotas.traffic_at_hand(&counted_by),
                false => Some(self.quotas.traffic(&counted_by)),
            };
            let Some(traffic) = traffic else { return Ok(None) };
            limits.moved = Some(Moved { quota: Arc::new(quota), traffic });
        }
        let counted = |storage: Arc<dyn Storage>| match read_only {
            true => storage,
            false => self.hold_to_quota(effective, &homes.key(&folder), storage, at_once),
        };
        Ok(storage.map(counted).map(|storage| Account {
            limits: (limits != AccountLimits::default()).then(|| Arc::new(limits)),
            data: effective.data_security(),
            certificate_suffices: effective.certificate_suffices(),
            follows_clock: effective.follows_the_clock(),
            ..self.mounts.cover(self.over(storage, effective, rules), attempt.protocol)
        }))
    }

    /// An account of these files and the virtual folders of the user. Of anonymous users without such folders there is one
    /// for all, as long as they may do the same.
    fn over(&self, base: Arc<dyn Storage>, effective: &Effective, rules: Rules) -> Account {
        let storage = self.mounts.mount(effective, Arc::clone(&base));
        if !effective.hides_dotfiles || !rules.shows_by_name() || !Arc::ptr_eq(&storage, &base) {
            return Account::ruled(storage, rules);
        }
        let is_same = |one: &&Account| {
            one.permissions == rules.anywhere()
                && one.unruled.as_ref().is_some_and(|unruled| Arc::ptr_eq(unruled, &base))
        };
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(account) = shared.iter().find(is_same) {
            return account.clone();
        }
        let account = Account::ruled(storage, rules);
        // A tree for each host, and the one of all others.
        if shared.len() > self.hosts.len() {
            shared.remove(0);
        }
        shared.push(account.clone());
        account
    }

    /// Limits a user's folder to the quota. Users with the same folder share its count, even those without a quota.
    fn hold_to_quota(
        &self,
        effective: &Effective,
        key: &str,
        storage: Arc<dyn Storage>,
        at_once: bool,
    ) -> Arc<dyn Storage> {
        let (quota, ledger) = (effective.quota(), self.quotas.ledger());
        let tally = match quota {
            Some(_) => Some(ledger.tally(key, &storage)),
            None => ledger.tally_of_others(key, &storage, !at_once),
        };
        match tally {
            Some(tally) => {
                Arc::new(Quota::new(storage, tally, quota.unwrap_or_default(), QuotaScope::Account))
            }
            None => storage,
        }
    }

    /// The group that counts the sessions of a client's host, where that has limits.
    fn host_group(&self, attempt: &Attempt<'_>) -> Option<GroupLimits> {
        self.host_of(attempt).filter(|host| !host.limits.is_empty()).map(VirtualHost::group)
    }

    /// The host that a client came by, and whether its users are its own.
    pub(super) fn host_of_user(&self, attempt: &Attempt<'_>) -> Option<HostOfUser> {
        let host = self.host_of(attempt)?;
        let has_own_users = self.place_of_own_sources(host).is_some();
        Some(HostOfUser { name: host.known_by.first().into(), has_own_users })
    }

    /// The anonymous account with its virtual folders; `None` where that would wait and must not.
    pub(super) fn anonymous_account(
        &self,
        permissions: Permissions,
        attempt: &Attempt<'_>,
        at_once: bool,
    ) -> Option<Account> {
        let user = User { name: ANONYMOUS.to_owned(), ..User::default() };
        let effective = self.effective_of_anonymous(&user);
        if at_once && !self.mounts.are_ready(&effective) {
            return None;
        }
        let homes = self.homes(attempt);
        let own = self.anonymous.as_ref().filter(|_| std::ptr::eq(homes, &*self.homes));
        let storage: Arc<dyn Storage> = match own {
            Some(account) => Arc::clone(&account.storage),
            None => {
                let read_only = Permissions::READ_ONLY.with(Permission::Admin).contains(permissions);
                match at_once {
                    true => homes.ready("", read_only)?,
                    false => homes.open("", read_only, false).ok()?,
                }
            }
        };
        let rules = Rules::new(permissions);
        let rules = if self.hides_dotfiles { rules.without_dotfiles() } else { rules };
        let account = self.mounts.cover(self.over(storage, &effective, rules), attempt.protocol);
        let groups: Vec<_> = self.host_group(attempt).into_iter().collect();
        // One user everywhere.
        let host = self.host_of_user(attempt).map(|host| HostOfUser { has_own_users: false, ..host });
        let limits =
            host.is_some().then(|| Arc::new(AccountLimits { groups, host, ..AccountLimits::default() }));
        Some(Account { limits: limits.or(account.limits), ..account })
    }

    /// An account, with which source has let the user in.
    pub(super) fn remembering(
        &self,
        account: Account,
        source: &dyn Source,
        user: &User,
        effective: Effective,
    ) -> Account {
        let user = (source.needs() != Needs::Name).then(|| Box::new(user.clone()));
        let effective = account.follows_clock.then(|| Box::new(effective));
        let told = match (user, effective) {
            (None, None) => self.names.iter().find(|told| told.is_by(source)).map(Arc::clone),
            (user, effective) => {
                let (name, mark) = (source.name().into(), source.mark());
                Some(Arc::new(Told { source: name, mark, user, effective }))
            }
        };
        Account { told, ..account }
    }
}

/// Returns true if a user's folder is made at the first login.
pub(super) fn is_made(effective: &Effective) -> bool {
    effective.said.directory.as_ref().is_some_and(|folder| folder.contains('{'))
}
