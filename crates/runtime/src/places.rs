//! Places of sessions in a cluster: which limits are shared, and a login that takes a place in each.
//!
//! A place is taken where a login waits for its password, on the pool of logins, and goes with the account that was granted.
//! Without a cluster, or without a limit that a session counts against, nothing is asked.

use millrace_accounts::{Account, Authenticator, Decision};
use millrace_cluster::{Claim, PlaceError, SharedScope};
use millrace_ftp::session::Occupancy;
use millrace_limits::{GroupLimits, LoginLimit, Scope, TooManyConnections};

use crate::login::{LoginAttempt, limits_of};
use crate::services::Services;

impl Services {
    /// Decides a login at once where that is possible; one that needs a place in a cluster has to wait for it.
    pub fn quick(&self, accounts: &dyn Authenticator, attempt: &LoginAttempt) -> Option<Decision> {
        let decision = accounts.quick(&attempt.now())?;
        let waits = self.cluster.is_some()
            && matches!(&decision, Decision::Granted(account) if !self.shared_limits(attempt, account).is_empty());
        (!waits).then_some(decision)
    }

    /// Takes a place in the cluster for a login that the accounts have granted. May wait.
    pub fn take_place(&self, attempt: &LoginAttempt, decision: Decision) -> Decision {
        let (Some(cluster), Decision::Granted(mut account)) = (&self.cluster, decision.clone()) else {
            return decision;
        };
        let mut limits = self.shared_limits(attempt, &account);
        if limits.is_empty() {
            return decision;
        }
        let claims: Vec<Claim> = limits.iter().map(|(claim, _)| claim.clone()).collect();
        match cluster.take(attempt.session, &attempt.user, &claims) {
            Ok(place) => {
                account.place = Some(place);
                Decision::Granted(account)
            }
            Err(PlaceError::Full(index)) => Decision::Limited(limits.swap_remove(index).1),
            Err(error @ PlaceError::Away(_)) => Decision::Unavailable(error.to_string()),
        }
    }

    /// Returns the limits that sessions on all nodes count against, each with its refusal, in the order in which places are
    /// taken: the server's, the address's, the user's, the network's, those of the groups and of the class, the listener's.
    fn shared_limits(&self, attempt: &LoginAttempt, account: &Account) -> Vec<(Claim, LoginLimit)> {
        let server = self.sessions.most().into_iter().chain(self.limits.most_sessions()).min().map(|most| {
            (Claim { scope: SharedScope::server(), most }, TooManyConnections::Server(most).into())
        });
        let address = self.sessions.most_per_address(attempt.from).map(|most| {
            let claim = Claim { scope: SharedScope::address(attempt.from), most };
            (claim, TooManyConnections::Address(most).into())
        });
        let mut limits = limits_of(account);
        if let Some(class) = &attempt.class {
            limits.to_mut().groups.push(GroupLimits::clone(class));
        }
        let user = self.limits.user_refusal(&attempt.user, &limits).map(|refused| {
            let scope = SharedScope::user(&limits.counted_by(&attempt.user));
            (Claim { scope, most: refused.value }, refused.into())
        });
        let network = self.sessions.most_per_network(attempt.from).map(|(network, most)| {
            let claim = Claim { scope: SharedScope::network(network), most };
            (claim, TooManyConnections::Network(network, most).into())
        });
        let groups = self.limits.group_refusals(&limits).into_iter().filter_map(|refused| {
            let Scope::Group(name) = &refused.scope else { return None };
            Some((Claim { scope: SharedScope::group(name), most: refused.value }, refused.into()))
        });
        let listener = attempt.listener.and_then(|address| {
            let refused = self.limits.listener_refusal(address)?;
            Some((Claim { scope: SharedScope::listener(address), most: refused.value }, refused.into()))
        });
        server.into_iter().chain(address).chain(user).chain(network).chain(groups).chain(listener).collect()
    }
}
