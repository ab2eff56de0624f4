//! What administrators see of all sources: users and groups.

use super::Chain;
use crate::database_error::DatabaseError;
use crate::effective::Effective;
use crate::profile::Group;
use crate::roster::{RosterUser, UserPage, UserQuery};
use crate::source::Source;
use crate::sqlite::Database;

/// A source of accounts, as administrators have it listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RosterSource {
    /// Its name.
    pub name: String,
    /// Whether it lists its users.
    pub lists_users: bool,
    /// Whether users may be changed in it.
    pub is_writable: bool,
}

impl Chain {
    /// Lists users: those of a source after those of the sources that are asked before it. May block.
    pub fn users(&self, wanted: &UserQuery<'_>) -> Result<UserPage, DatabaseError> {
        let mut all = UserPage::default();
        for source in self.sources() {
            let rest = UserQuery {
                offset: wanted.offset.saturating_sub(all.total),
                limit: wanted.limit.saturating_sub(all.users.len() as u64),
                ..*wanted
            };
            if let Some(page) = source.users(&rest)? {
                all.users.extend(page.users);
                all.total += page.total;
            }
        }
        Ok(all)
    }

    /// Finds a user by the name: that of the source of this name, or else of the first that knows it and lists users. May
    /// block.
    pub fn user(&self, name: &str, source: Option<&str>) -> Result<Option<RosterUser>, DatabaseError> {
        let mut asked = self.sources().filter(|asked| source.is_none_or(|source| asked.name() == source));
        asked.find_map(|asked| asked.user(name).transpose()).transpose()
    }

    /// Returns the database of this name, or else the first.
    pub fn database(&self, name: Option<&str>) -> Option<&Database> {
        self.sources()
            .filter(|source| name.is_none_or(|name| source.name() == name))
            .find_map(|source| source.database())
    }

    /// Lists the sources, in the order in which they are asked.
    pub fn roster_sources(&self) -> Result<Vec<RosterSource>, DatabaseError> {
        let none = UserQuery { text: "", group: None, offset: 0, limit: 0 };
        let listed = |source: &dyn Source| {
            Ok(RosterSource {
                name: source.name().to_owned(),
                lists_users: source.users(&none)?.is_some(),
                is_writable: source.database().is_some(),
            })
        };
        self.sources().map(listed).collect()
    }

    /// Lists the groups in the order of their names, each with how many listed users are members. May block.
    pub fn groups(&self) -> Result<Vec<(&Group, u64)>, DatabaseError> {
        let members = self.sources().map(Source::members).collect::<Result<Vec<_>, _>>()?;
        let count = |name: &String| members.iter().filter_map(|members| members.get(name)).sum();
        let mut groups: Vec<_> = self.groups.iter().map(|(name, group)| (group, count(name))).collect();
        groups.sort_by(|(one, _), (other, _)| one.name.cmp(&other.name));
        Ok(groups)
    }

    /// Returns those of these names that are no groups: members of one are not let in.
    pub fn unknown_groups<'a>(&self, names: &'a [String]) -> Vec<&'a str> {
        names.iter().filter(|name| !self.groups.contains_key(*name)).map(String::as_str).collect()
    }

    /// Returns the effective settings of a user that was found.
    pub fn effective_of(&self, user: &RosterUser) -> Effective {
        self.effective(&user.stored.user)
    }
}
