//! The class of a session, by the address and the name of the client's host, and by the user: looked for before a login is
//! decided, as nodes of a cluster count the sessions of a class together.

use std::net::IpAddr;
use std::sync::Arc;

use millrace_limits::{Class, GroupLimits};
use millrace_runtime::client_names::ClientNames;
use millrace_runtime::login::LoginAttempt;

/// What finds the class of a session. It goes to a thread that may wait, where the name of the client's host is to be looked up.
pub(super) struct ClassFinder {
    pub(super) classes: Arc<[Class]>,
    pub(super) names: Arc<ClientNames>,
    pub(super) from: IpAddr,
    /// The name of the client's host, where the session has it.
    pub(super) host: Option<Arc<str>>,
}

impl ClassFinder {
    /// Returns whether a class depends on the name of the client's host, which is still to be looked up.
    pub(super) fn has_to_wait(&self) -> bool {
        Class::need_names(&self.classes) && self.names.known(self.from).is_none()
    }

    /// Returns what counts the sessions of the class that the session of this user is in. May wait.
    fn find(&self, user: &[u8]) -> Option<GroupLimits> {
        if self.has_to_wait() {
            self.names.look_up(self.from);
        }
        let host = self.host.clone().or_else(|| self.names.known(self.from).flatten());
        Class::of(&self.classes, self.from, host.as_deref(), is_anonymous(user)).map(Class::group)
    }
}

/// Returns a login with the class of its session. May wait.
pub(super) fn with_class(attempt: LoginAttempt, finder: Option<&ClassFinder>) -> LoginAttempt {
    let class = finder.and_then(|finder| finder.find(&attempt.user)).map(Box::new);
    LoginAttempt { class, ..attempt }
}

/// Returns whether users of this name are anonymous.
pub(super) fn is_anonymous(user: &[u8]) -> bool {
    matches!(user, b"anonymous" | b"ftp")
}
