//! Lists of users: what is asked of a source that can list its users, and what it answers.

use super::profile::User;

/// Which users are wanted.
#[derive(Debug, Clone, Copy)]
pub struct UserQuery<'a> {
    /// Part of the name or of a group's name, whatever its case; empty for all.
    pub text: &'a str,
    /// Only members of this group.
    pub group: Option<&'a str>,
    /// How many are left out at the beginning.
    pub offset: u64,
    /// How many at most.
    pub limit: u64,
}

impl UserQuery<'_> {
    /// Returns whether a user is wanted.
    pub(super) fn covers(&self, user: &User) -> bool {
        let text = self.text.to_ascii_lowercase();
        let mut names = std::iter::once(&user.name).chain(&user.groups);
        names.any(|name| name.to_ascii_lowercase().contains(&text))
            && self.group.is_none_or(|wanted| user.groups.iter().any(|group| group == wanted))
    }
}

/// Some users of a source, in the order of their names.
#[derive(Debug, Default)]
pub struct UserPage {
    /// Those of the page.
    pub users: Vec<RosterUser>,
    /// How many there are on all pages.
    pub total: u64,
}

/// A user as an administrator has it listed.
#[derive(Debug, Clone)]
pub struct RosterUser {
    /// The name of the source that knows it.
    pub source: String,
    /// Whether it is kept in a database, and may be changed there.
    pub is_writable: bool,
    /// Whether a password would let it in.
    pub has_password: bool,
    /// The user, with its hash where a database keeps it.
    pub stored: Stored,
}

/// A user as the database has it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Stored {
    /// The user and its settings.
    pub user: User,
    /// The hash of the password; `None` where none would be right.
    pub hash: Option<String>,
}
