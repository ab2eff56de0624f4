//! What a node asks of the logins of browsers. While the database is away it gets an error at once.

use std::time::Duration;

use crate::browser_logins::{BrowserLogin, LoginEnd, LoginLifetime, LoginUse};
use crate::cluster::Cluster;
use crate::lock::lock;
use crate::table::TableError;

impl Cluster {
    /// Has all nodes know a login. False: it has ended since it has begun.
    pub fn keep_login(
        &self,
        hash: &str,
        login: &BrowserLogin,
        lifetime: LoginLifetime,
    ) -> Result<bool, TableError> {
        self.check_answers()?;
        self.shared().table.keep_login(hash, login, lifetime)
    }

    /// Returns the login of a hash, if it has not ended, and notes its use.
    pub fn find_login(
        &self,
        hash: &str,
        lifetime: LoginLifetime,
        usage: LoginUse,
    ) -> Result<Option<BrowserLogin>, TableError> {
        self.check_answers()?;
        self.shared().table.find_login(hash, lifetime, usage)
    }

    /// Ends logins at all nodes that had begun so long ago, also those that are told later.
    pub fn end_logins(
        &self,
        end: &LoginEnd,
        ago: Duration,
        lifetime: LoginLifetime,
    ) -> Result<(), TableError> {
        self.check_answers()?;
        self.shared().table.end_logins(end, ago, lifetime)
    }

    /// Returns an error at once where the database was away when it was asked last.
    pub(crate) fn check_answers(&self) -> Result<(), TableError> {
        match &*lock(&self.shared().trouble) {
            Some(why) => Err(TableError::Away(why.to_string())),
            None if self.epoch().is_none() => Err(TableError::Away("this node is not registered".to_owned())),
            None => Ok(()),
        }
    }
}
