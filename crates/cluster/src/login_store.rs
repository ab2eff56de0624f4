//! What a node asks of the logins of browsers. While the database is away it gets an error at once.

use crate::browser_logins::{BrowserLogin, LoginEnd, LoginLifetime};
use crate::cluster::Cluster;
use crate::lock::lock;
use crate::table::TableError;

impl Cluster {
    /// Has all nodes know a login.
    pub fn keep_login(
        &self,
        hash: &str,
        login: &BrowserLogin,
        lifetime: LoginLifetime,
    ) -> Result<(), TableError> {
        self.check_answers()?;
        self.shared().table.keep_login(hash, login, lifetime)
    }

    /// Returns the login of a hash, if it has not ended, and notes that it is in use.
    pub fn find_login(
        &self,
        hash: &str,
        lifetime: LoginLifetime,
    ) -> Result<Option<BrowserLogin>, TableError> {
        self.check_answers()?;
        self.shared().table.find_login(hash, lifetime)
    }

    /// Ends logins at all nodes.
    pub fn end_logins(&self, end: &LoginEnd) -> Result<(), TableError> {
        self.check_answers()?;
        self.shared().table.end_logins(end)
    }

    /// Returns an error at once where the database was away when it was asked last.
    fn check_answers(&self) -> Result<(), TableError> {
        match &*lock(&self.shared().trouble) {
            Some(why) => Err(TableError::Away(why.to_string())),
            None if self.epoch().is_none() => Err(TableError::Away("this node is not registered".to_owned())),
            None => Ok(()),
        }
    }
}
