//! Accounts given at the start: by flags, by a configuration file, by an embedding program.
//!
//! Clients cannot tell a wrong password from an unknown user: the answer is the same and, where any account has a
//! hashed password, so is the time that it takes.

use std::collections::HashMap;
use std::sync::Arc;

use millrace_ftp::session::Permissions;
use millrace_vfs::Storage;

use super::decoys::Decoys;
use super::hashing::Hashing;
use super::password::{Kept, Mac, Password};
use super::{Account, Attempt, Authenticator, Decision};
use millrace_limits::AccountLimits;

/// A fixed set of accounts.
///
/// Names and passwords are bytes. One that contains a NUL never logs in: a back end (PAM, LDAP) would take the NUL for
/// the end.
#[derive(Debug)]
pub struct Accounts {
    users: HashMap<Vec<u8>, User>,
    anonymous: Option<Account>,
    hashing: Hashing,
    /// Checked in place of hashes that are not there.
    decoys: Decoys,
}

#[derive(Debug)]
struct User {
    password: Password,
    account: Account,
}

impl Accounts {
    /// Makes accounts without users: every login is refused.
    pub fn new() -> Self {
        Self { users: HashMap::new(), anonymous: None, hashing: Hashing::new(), decoys: Decoys::default() }
    }

    /// With a user. A later one of the same name replaces the earlier.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use millrace_accounts::{Accounts, Permissions};
    /// # use millrace_accounts::Password;
    /// # use millrace_storage::MemoryStorage;
    /// # let tree = Arc::new(MemoryStorage::new());
    /// # let hash = millrace_accounts::hash_password(b"from a file");
    /// let accounts = Accounts::new()
    ///     .user("alice", "in clear", Permissions::READ_WRITE, tree.clone())
    ///     .user("bob", Password::hashed(&hash)?, Permissions::READ_ONLY, tree);
    /// # Ok::<(), millrace_accounts::PasswordError>(())
    /// ```
    pub fn user(
        mut self,
        name: impl AsRef<[u8]>,
        password: impl Into<Password>,
        permissions: Permissions,
        storage: Arc<dyn Storage>,
    ) -> Self {
        let password = password.into();
        self.decoys.meet(&password);
        let user = User { password, account: Account::new(storage, permissions) };
        self.users.insert(name.as_ref().to_vec(), user);
        self
    }

    /// The user of this name has these limits.
    pub fn limited(mut self, name: impl AsRef<[u8]>, limits: AccountLimits) -> Self {
        if let Some(user) = self.users.get_mut(name.as_ref()) {
            user.account.limits = Some(Arc::new(limits));
        }
        self
    }

    /// Adds `anonymous`, also called `ftp`, which accepts any password. It precedes a user of that name.
    pub fn anonymous(mut self, permissions: Permissions, storage: Arc<dyn Storage>) -> Self {
        self.anonymous = Some(Account::new(storage, permissions));
        self
    }

    /// Returns true if `name` is one of the two names of the anonymous user.
    pub fn is_anonymous_name(name: &[u8]) -> bool {
        name.eq_ignore_ascii_case(b"anonymous") || name.eq_ignore_ascii_case(b"ftp")
    }

    /// Password hashes computed so far; logins beyond these were answered from memory.
    pub fn hashes_computed(&self) -> u64 {
        self.hashing.computed()
    }

    /// The account, if the login can be granted without computing a hash.
    fn grant(&self, user: &[u8], password: &[u8]) -> Option<Account> {
        if user.contains(&0) || password.contains(&0) {
            return None;
        }
        match &self.anonymous {
            Some(account) if Self::is_anonymous_name(user) => return Some(account.clone()),
            _ => {}
        }
        let user_found = self.users.get(user);
        let granted = match user_found.map(|user| &user.password.0) {
            Some(Kept::Plain(right)) => Mac::of(b"", password) == *right,
            Some(Kept::Hashed(hash)) => self.hashing.remembers(Mac::with_hash(user, password, hash)),
            Some(Kept::Nothing) => false,
            None => {
                // As long as a plain password's comparison.
                std::hint::black_box(Mac::of(b"", password));
                false
            }
        };
        user_found.filter(|_| granted).map(|user| user.account.clone())
    }
}

impl Default for Accounts {
    fn default() -> Self {
        Self::new()
    }
}

impl Authenticator for Accounts {
    /// `None` only where a hash has to be computed, which every failure waits for where hashes are in use.
    fn quick(&self, attempt: &Attempt<'_>) -> Option<Decision> {
        match self.grant(attempt.user, attempt.password) {
            Some(account) => Some(Decision::Granted(account)),
            None if self.decoys.is_empty() => Some(Decision::Denied),
            None => None,
        }
    }

    fn authenticate(&self, attempt: &Attempt<'_>) -> Decision {
        if let Some(decision) = self.quick(attempt) {
            return decision;
        }
        let (user, password) = (attempt.user, attempt.password);
        let sound = !user.contains(&0) && !password.contains(&0);
        match self.users.get(user).filter(|_| sound) {
            Some(User { password: Password(Kept::Hashed(hash)), account }) => {
                match self.hashing.check(Mac::with_hash(user, password, hash), hash, password) {
                    true => Decision::Granted(account.clone()),
                    false => {
                        self.decoys.pretend(&self.hashing, Some(hash), password);
                        Decision::Denied
                    }
                }
            }
            _ => {
                self.decoys.pretend(&self.hashing, None, password);
                Decision::Denied
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use millrace_storage::MemoryStorage;

    use super::*;

    /// The hash of `password`, from the tests of the reference implementation in C: cheap.
    const HASH: &str = "$argon2id$v=19$m=256,t=2,p=1$c29tZXNhbHQ$nf65EOgLrQMR/uIPnA4rEsF5h7TKyQwu9U1bMCHGi/4";

    fn tree() -> Arc<dyn Storage> {
        Arc::new(MemoryStorage::new())
    }

    fn plain() -> Accounts {
        Accounts::new().user("alice", "secret", Permissions::READ_WRITE, tree())
    }

    fn hashed() -> Accounts {
        plain().user("bob", Password::hashed(HASH).unwrap(), Permissions::READ_ONLY, tree())
    }

    fn is_granted(decision: &Decision) -> bool {
        matches!(decision, Decision::Granted(_))
    }

    #[test]
    fn plain_passwords_are_decided_at_once() {
        let accounts = plain();
        let table: [(&[u8], &[u8], bool); 8] = [
            (b"alice", b"secret", true),
            (b"alice", b"Secret", false),
            (b"alice", b"secret\0", false),
            (b"alice", b"", false),
            (b"Alice", b"secret", false),
            (b"alice\0", b"secret", false),
            (b"", b"", false),
            (b"anonymous", b"secret", false),
        ];
        for (user, password, granted) in table {
            let decision = accounts.quick(&Attempt::new(user, password)).expect("no hash is in use");
            assert_eq!(is_granted(&decision), granted, "{}", user.escape_ascii());
            assert_eq!(is_granted(&accounts.authenticate(&Attempt::new(user, password))), granted);
        }
        assert_eq!(accounts.hashes_computed(), 0);
    }

    #[test]
    fn a_login_grants_what_the_account_was_given() {
        let Some(Decision::Granted(account)) = plain().quick(&Attempt::new(b"alice", b"secret")) else {
            panic!("alice is welcome");
        };
        assert_eq!(account.permissions, Permissions::READ_WRITE);
        assert!(account.home.is_root());
    }

    #[test]
    fn anonymous_and_ftp_come_in_with_any_password() {
        let accounts = hashed().anonymous(Permissions::READ_ONLY, tree());
        for user in ["anonymous", "ftp", "FTP", "Anonymous"] {
            let decision = accounts.quick(&Attempt::new(user.as_bytes(), b"mozilla@example.com"));
            assert!(decision.is_some_and(|decision| is_granted(&decision)), "{user}");
        }
        assert!(accounts.quick(&Attempt::new(b"anonymous", b"\0")).is_none());
        assert!(!is_granted(&accounts.authenticate(&Attempt::new(b"anonymous", b"\0"))));
    }

    #[test]
    fn a_remembered_login_costs_no_hash() {
        let accounts = hashed();
        assert!(accounts.quick(&Attempt::new(b"bob", b"password")).is_none());
        assert!(is_granted(&accounts.authenticate(&Attempt::new(b"bob", b"password"))));
        assert_eq!(accounts.hashes_computed(), 1);
        for _ in 0..1000 {
            assert!(
                accounts
                    .quick(&Attempt::new(b"bob", b"password"))
                    .is_some_and(|decision| is_granted(&decision))
            );
        }
        assert!(is_granted(&accounts.authenticate(&Attempt::new(b"bob", b"password"))));
        assert_eq!(accounts.hashes_computed(), 1);
    }

    #[test]
    fn every_failure_costs_a_hash_where_hashes_are_in_use() {
        let accounts = hashed();
        let failures: [(&[u8], &[u8]); 6] = [
            (b"bob", b"wrong"),
            (b"bob", b"wrong"),
            (b"alice", b"wrong"),
            (b"mallory", b"password"),
            (b"bob\0", b"password"),
            (b"bob", b"password\0"),
        ];
        for (number, (user, password)) in (1..).zip(failures) {
            assert!(accounts.quick(&Attempt::new(user, password)).is_none());
            assert!(
                !is_granted(&accounts.authenticate(&Attempt::new(user, password))),
                "{}",
                user.escape_ascii()
            );
            assert_eq!(accounts.hashes_computed(), number);
        }
    }

    #[test]
    fn a_remembered_success_opens_no_other_account() {
        let accounts =
            hashed().user("carol", Password::hashed(&hash_of_other()).unwrap(), Permissions::NONE, tree());
        assert!(is_granted(&accounts.authenticate(&Attempt::new(b"bob", b"password"))));
        assert!(!is_granted(&accounts.authenticate(&Attempt::new(b"carol", b"secret"))));
    }

    #[test]
    fn every_failure_costs_a_hash_of_each_cost() {
        let accounts =
            hashed().user("carol", Password::hashed(&hash_of_other()).unwrap(), Permissions::NONE, tree());
        for (number, user) in (1..).zip([&b"bob"[..], b"carol", b"alice", b"mallory"]) {
            assert!(!is_granted(&accounts.authenticate(&Attempt::new(user, b"wrong"))));
            assert_eq!(accounts.hashes_computed(), 2 * number);
        }
    }

    #[test]
    fn a_crowd_that_logs_in_at_once_shares_a_few_hashes() {
        let accounts = hashed();
        thread::scope(|scope| {
            for _ in 0..64 {
                scope.spawn(|| {
                    assert!(is_granted(&accounts.authenticate(&Attempt::new(b"bob", b"password"))))
                });
            }
        });
        let cores = thread::available_parallelism().map_or(1, usize::from) as u64;
        assert!((1..=cores).contains(&accounts.hashes_computed()), "{}", accounts.hashes_computed());
    }

    fn hash_of_other() -> String {
        crate::hash_password(b"other")
    }
}
