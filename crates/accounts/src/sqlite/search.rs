//! Searches of the users in a database, for administrators.

use std::collections::HashMap;

use rusqlite::params;

use super::{Database, stored};
use crate::database_error::DatabaseError;
use crate::roster::{RosterUser, Stored, UserPage, UserQuery};

/// What both statements look for: a part of a name, and a group.
const WANTED: &str = "
    FROM user
    WHERE (instr(lower(name), ?1) > 0 OR ?1 = ''
            OR EXISTS (SELECT 1 FROM json_each(user.groups) WHERE instr(lower(value), ?1) > 0))
        AND (?2 IS NULL OR EXISTS (SELECT 1 FROM json_each(user.groups) WHERE value = ?2))";

impl Database {
    /// Finds users, in the order of their names.
    pub(crate) fn search(&self, wanted: &UserQuery<'_>) -> Result<UserPage, DatabaseError> {
        let text = wanted.text.to_ascii_lowercase();
        let (total, found) = self.with(|connection| {
            let count = format!("SELECT count(*) {WANTED}");
            let total: i64 = connection
                .prepare_cached(&count)?
                .query_row(params![text, wanted.group], |row| row.get(0))?;
            let page =
                format!("SELECT name, password, groups, profile {WANTED} ORDER BY name LIMIT ?3 OFFSET ?4");
            let (limit, offset) = (limited(wanted.limit), limited(wanted.offset));
            let mut page = connection.prepare_cached(&page)?;
            let found = page.query_map(params![text, wanted.group, limit, offset], stored)?;
            Ok((total, found.collect::<Result<Vec<Stored>, _>>()?))
        })?;
        let users = found.into_iter().map(|stored| self.roster_user(stored)).collect();
        Ok(UserPage { users, total: total.max(0) as u64 })
    }

    /// Returns a user as administrators have it listed.
    pub(crate) fn roster_user(&self, stored: Stored) -> RosterUser {
        RosterUser {
            source: self.name.clone(),
            is_writable: true,
            has_password: stored.hash.is_some(),
            stored,
        }
    }

    /// Counts the members of each group.
    pub(crate) fn count_members(&self) -> Result<HashMap<String, u64>, DatabaseError> {
        const COUNT: &str =
            "SELECT value, count(DISTINCT name) FROM user, json_each(user.groups) GROUP BY value";
        self.with(|connection| {
            let mut statement = connection.prepare_cached(COUNT)?;
            let counted =
                statement.query_map([], |row| Ok((row.get(0)?, row.get::<_, i64>(1)?.max(0) as u64)))?;
            counted.collect()
        })
    }
}

/// Returns a number that SQLite can have.
fn limited(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::User;

    #[test]
    fn users_are_found_by_parts_of_names_and_by_groups_page_by_page() {
        let path = std::env::temp_dir().join(format!("millrace-search-{}.db", std::process::id()));
        let database = Database::open_or_make(&path).unwrap();
        let user = |name: &str, groups: &[&str]| Stored {
            user: User {
                name: name.to_owned(),
                groups: groups.iter().map(|group| (*group).to_owned()).collect(),
                ..User::default()
            },
            hash: None,
        };
        let all =
            [user("Ann", &["staff", "web"]), user("bob", &["staff"]), user("carol", &[]), user("a%", &[])];
        database.put(&all).unwrap();
        let names = |text: &str, group: Option<&str>, offset: u64, limit: u64| {
            let page = database.search(&UserQuery { text, group, offset, limit }).unwrap();
            let names: Vec<String> = page.users.into_iter().map(|user| user.stored.user.name).collect();
            (names.join(" "), page.total)
        };
        assert_eq!(names("", None, 0, 10), ("Ann a% bob carol".to_owned(), 4));
        assert_eq!(names("", None, 1, 2), ("a% bob".to_owned(), 4));
        assert_eq!(names("", None, u64::MAX, u64::MAX), (String::new(), 4));
        assert_eq!(names("STAFF", None, 0, 10), ("Ann bob".to_owned(), 2));
        assert_eq!(names("%", None, 0, 10), ("a%".to_owned(), 1), "no pattern");
        assert_eq!(names("[", None, 0, 10), (String::new(), 0), "nothing of how groups are kept");
        assert_eq!(names("", Some("web"), 0, 10), ("Ann".to_owned(), 1));
        assert_eq!(names("", Some("sta"), 0, 10), (String::new(), 0));
        let counted = database.count_members().unwrap();
        assert_eq!((counted["staff"], counted["web"], counted.len()), (2, 1, 2));
        for end in ["", "-wal", "-shm"] {
            let _ = std::fs::remove_file(format!("{}{end}", path.display()));
        }
    }
}
