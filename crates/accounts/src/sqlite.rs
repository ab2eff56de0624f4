//! Accounts in an embedded SQLite database: what `millrace user` writes and the server reads.
//!
//! One table of users, whose settings are a [`Profile`] as JSON, so that a new setting needs no new column. The
//! file is read by many threads at once (write-ahead log), each look-up is one step down the index of names. A
//! counter that every change moves tells a running server, also of changes by another process, whose sessions
//! to look at again.

mod search;

use std::convert::Infallible;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rusqlite::{Connection, OpenFlags, OptionalExtension, Row, TransactionBehavior, params};

use super::Changed;
use super::database_error::DatabaseError;
use super::profile::{Profile, User};
use super::roster::Stored;

/// How long a reader or writer waits for another that holds the file.
const BUSY: Duration = Duration::from_secs(5);

/// Above this number of changed names, all sessions are checked.
const CHANGES: usize = 10_000;

const VERSION: i64 = 1;

const SCHEMA: &str = "
    CREATE TABLE user (
        name TEXT PRIMARY KEY NOT NULL,
        password TEXT,
        groups TEXT NOT NULL DEFAULT '[]',
        profile TEXT NOT NULL DEFAULT '{}'
    ) WITHOUT ROWID;
    CREATE TABLE change (number INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL);
    PRAGMA user_version = 1;
";

/// What the servers that use a database say to `millrace user`.
const SETTINGS: &str =
    "CREATE TABLE IF NOT EXISTS setting (name TEXT PRIMARY KEY NOT NULL, value BLOB NOT NULL) WITHOUT ROWID;";

/// A database of users.
#[derive(Debug)]
pub struct Database {
    path: PathBuf,
    /// For the log.
    name: String,
    /// Guarded for a push or a pop.
    idle: Mutex<Idle>,
    /// The last reported change; `None` if the file was replaced. Locked during a query.
    seen: Mutex<Option<i64>>,
}

/// Idle connections.
#[derive(Debug, Default)]
struct Idle {
    /// The file that they are to: a database that was restored is another one, under the same name.
    file: Option<(u64, u64)>,
    connections: Vec<Connection>,
}

impl Database {
    /// Opens the file, which has to be there.
    pub fn open(path: &Path) -> Result<Self, DatabaseError> {
        Self::new(path, false)
    }

    /// Opens the file, or makes it.
    pub fn open_or_make(path: &Path) -> Result<Self, DatabaseError> {
        Self::new(path, true)
    }

    fn new(path: &Path, make: bool) -> Result<Self, DatabaseError> {
        let database = Self {
            name: format!("the database of users {}", path.display()),
            path: path.to_owned(),
            idle: Mutex::default(),
            seen: Mutex::default(),
        };
        let failed = |source| DatabaseError::Sqlite { path: path.to_owned(), source };
        if make {
            make_private(path).map_err(|source| DatabaseError::File { path: path.to_owned(), source })?;
        }
        let mut connection = database.connect(make).map_err(failed)?;
        let version = |connection: &Connection| {
            connection.query_row("PRAGMA user_version", [], |row| row.get::<_, i64>(0)).map_err(failed)
        };
        if make && version(&connection)? == 0 {
            let is_empty = "SELECT count(*) = 0 FROM sqlite_schema";
            let begun = connection.transaction_with_behavior(TransactionBehavior::Exclusive);
            let transaction = begun.map_err(failed)?;
            if transaction.query_row(is_empty, [], |row| row.get(0)).map_err(failed)? {
                transaction.execute_batch(SCHEMA).map_err(failed)?;
            }
            transaction.commit().map_err(failed)?;
        }
        match version(&connection)? {
            VERSION => database.begin(connection),
            _ => Err(DatabaseError::Foreign { path: path.to_owned() }),
        }
    }

    /// A connection opened now sees all changes before now.
    fn begin(self, connection: Connection) -> Result<Self, DatabaseError> {
        let file = self.file_now();
        self.idle().file = file;
        self.give_back(connection, file);
        let (_, last) = self.changes_behind(None)?;
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner) = Some(last);
        Ok(self)
    }

    fn connect(&self, make: bool) -> rusqlite::Result<Connection> {
        let mut flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        if make {
            flags |= OpenFlags::SQLITE_OPEN_CREATE;
        }
        let connection = Connection::open_with_flags(&self.path, flags)?;
        connection.busy_timeout(BUSY)?;
        connection.pragma_update(None, "journal_mode", "WAL")?;
        connection.pragma_update(None, "synchronous", "NORMAL")?;
        // The sandbox has no folder for temporary files.
        connection.pragma_update(None, "temp_store", "MEMORY")?;
        Ok(connection)
    }

    fn idle(&self) -> MutexGuard<'_, Idle> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn give_back(&self, connection: Connection, file: Option<(u64, u64)>) {
        let mut idle = self.idle();
        if idle.file == file {
            idle.connections.push(connection);
        }
    }

    fn file_now(&self) -> Option<(u64, u64)> {
        fs::metadata(&self.path).ok().map(|file| (file.dev(), file.ino()))
    }

    /// Returns true if the name is another file's now; what was open of the one before is closed.
    fn follow(&self) -> bool {
        let file = self.file_now();
        let mut idle = self.idle();
        let is_other = idle.file != file;
        if is_other {
            *idle = Idle { file, connections: Vec::new() };
        }
        is_other
    }

    /// Runs something on a connection, which is kept for the next unless it failed.
    fn with<T>(&self, work: impl FnOnce(&mut Connection) -> rusqlite::Result<T>) -> Result<T, DatabaseError> {
        let (file, idle) = {
            let mut idle = self.idle();
            (idle.file, idle.connections.pop())
        };
        let result = idle.map_or_else(|| self.connect(false), Ok).and_then(|mut connection| {
            let value = work(&mut connection)?;
            self.give_back(connection, file);
            Ok(value)
        });
        result.map_err(|source| DatabaseError::Sqlite { path: self.path.clone(), source })
    }

    /// The user of this name.
    pub fn get(&self, name: &str) -> Result<Option<Stored>, DatabaseError> {
        self.with(|connection| read(connection, name))
    }

    /// Users in the order of their names, after this one.
    pub fn list(&self, behind: &str, most: usize) -> Result<Vec<Stored>, DatabaseError> {
        const QUERY: &str =
            "SELECT name, password, groups, profile FROM user WHERE name > ?1 ORDER BY name LIMIT ?2";
        self.with(|connection| {
            let mut statement = connection.prepare_cached(QUERY)?;
            statement.query_map(params![behind, most as i64], stored)?.collect()
        })
    }

    /// Adds users, or replaces them; all or none.
    pub fn put(&self, users: &[Stored]) -> Result<(), DatabaseError> {
        self.with(|connection| {
            let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            users.iter().try_for_each(|user| write(&transaction, user))?;
            transaction.commit()
        })
    }

    /// Adds a user, whose name must be new.
    pub fn add(&self, stored: &Stored) -> Result<(), DatabaseError> {
        let added = self.with(|connection| {
            let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            if read(&transaction, &stored.user.name)?.is_some() {
                return Ok(false);
            }
            write(&transaction, stored)?;
            transaction.commit().map(|()| true)
        })?;
        if added { Ok(()) } else { Err(DatabaseError::Taken(stored.user.name.clone())) }
    }

    /// Changes a user, exclusively. If `change` fails, the user stays as it was.
    pub fn change<E>(
        &self,
        name: &str,
        change: impl FnOnce(&mut Stored) -> Result<(), E>,
    ) -> Result<Result<(), E>, DatabaseError> {
        let changed = self.with(|connection| {
            let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let Some(mut stored) = read(&transaction, name)? else { return Ok(None) };
            if let Err(refused) = change(&mut stored) {
                return Ok(Some(Err(refused)));
            }
            write(&transaction, &stored)?;
            transaction.commit().map(|()| Some(Ok(())))
        })?;
        changed.ok_or_else(|| DatabaseError::Missing(name.to_owned()))
    }

    /// Removes a user; answers whether there was one.
    pub fn remove(&self, name: &str) -> Result<bool, DatabaseError> {
        match self.remove_if(name, |_| Ok::<_, Infallible>(())) {
            Ok(_) => Ok(true),
            Err(DatabaseError::Missing(_)) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Removes a user, exclusively, if `may_be_removed` permits it of the user as it is.
    pub fn remove_if<E>(
        &self,
        name: &str,
        may_be_removed: impl FnOnce(&Stored) -> Result<(), E>,
    ) -> Result<Result<(), E>, DatabaseError> {
        let removed = self.with(|connection| {
            let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let Some(stored) = read(&transaction, name)? else { return Ok(None) };
            if let Err(refused) = may_be_removed(&stored) {
                return Ok(Some(Err(refused)));
            }
            transaction.execute("DELETE FROM user WHERE name = ?1", [name])?;
            note_change(&transaction, name)?;
            transaction.commit().map(|()| Some(Ok(())))
        })?;
        removed.ok_or_else(|| DatabaseError::Missing(name.to_owned()))
    }

    /// Returns the audit log in which changes are recorded, as the last server that used the database named it.
    pub fn audit_log(&self) -> Result<Option<PathBuf>, DatabaseError> {
        self.with(|connection| {
            if !connection.table_exists(None, "setting")? {
                return Ok(None);
            }
            let path = "SELECT value FROM setting WHERE name = 'audit-log'";
            let path = connection.query_row(path, [], |row| row.get::<_, Vec<u8>>(0)).optional()?;
            Ok(path.map(|path| OsString::from_vec(path).into()))
        })
    }

    /// Names the audit log in which changes are to be recorded from now on.
    pub fn set_audit_log(&self, path: Option<&Path>) -> Result<(), DatabaseError> {
        if self.audit_log()?.as_deref() == path {
            return Ok(());
        }
        self.with(|connection| {
            connection.execute_batch(SETTINGS)?;
            let put = "INSERT OR REPLACE INTO setting (name, value) VALUES ('audit-log', ?1)";
            match path {
                Some(path) => connection.execute(put, [path.as_os_str().as_bytes()]),
                None => connection.execute("DELETE FROM setting WHERE name = 'audit-log'", []),
            }
            .map(drop)
        })
    }

    /// Returns the changes since the last call. What cannot be asked now is asked at the next.
    pub(super) fn take_changes(&self) -> Changed {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if self.follow() {
            *seen = None;
        }
        match self.changes_behind(*seen) {
            Ok((changed, last)) => match seen.replace(last) {
                None => Changed::Everything,
                Some(_) => changed,
            },
            Err(_) => Changed::Nothing,
        }
    }

    /// Returns how the log names it.
    pub(super) fn log_name(&self) -> &str {
        &self.name
    }

    /// How many users there are.
    pub fn count(&self) -> Result<u64, DatabaseError> {
        let count = |row: &Row<'_>| row.get::<_, i64>(0);
        self.with(|connection| connection.query_row("SELECT count(*) FROM user", [], count))
            .map(|count| count.max(0) as u64)
    }

    /// The changes after a number, and the last number.
    fn changes_behind(&self, seen: Option<i64>) -> Result<(Changed, i64), DatabaseError> {
        self.with(|connection| {
            let last = "SELECT ifnull(max(number), 0) FROM change";
            let last: i64 = connection.prepare_cached(last)?.query_row([], |row| row.get(0))?;
            let Some(seen) = seen.filter(|seen| *seen != last) else { return Ok((Changed::Nothing, last)) };
            if last < seen || last - seen > CHANGES as i64 {
                return Ok((Changed::Everything, last));
            }
            let mut names = connection.prepare_cached("SELECT name FROM change WHERE number > ?1")?;
            let names = names.query_map([seen], |row| row.get::<_, String>(0).map(String::into_bytes))?;
            Ok((Changed::Users(names.collect::<Result<_, _>>()?), last))
        })
    }
}

/// Restricts the file to its owner, because it has hashes; SQLite's auxiliary files get the same mode.
fn make_private(path: &Path) -> io::Result<()> {
    let made = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    match made {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => made.map(drop),
    }
}

fn read(connection: &Connection, name: &str) -> rusqlite::Result<Option<Stored>> {
    const QUERY: &str = "SELECT name, password, groups, profile FROM user WHERE name = ?1";
    connection.prepare_cached(QUERY)?.query_row([name], stored).optional()
}

fn write(connection: &Connection, Stored { user, hash }: &Stored) -> rusqlite::Result<()> {
    const USER: &str = "INSERT INTO user (name, password, groups, profile) VALUES (?1, ?2, ?3, ?4)
        ON CONFLICT (name) DO UPDATE SET password = ?2, groups = ?3, profile = ?4";
    let (groups, profile) = (json(&user.groups)?, json(&user.profile)?);
    connection.prepare_cached(USER)?.execute(params![user.name, hash, groups, profile])?;
    note_change(connection, &user.name)
}

/// Tells running servers; of old changes only the numbers are needed any more.
fn note_change(connection: &Connection, name: &str) -> rusqlite::Result<()> {
    connection.prepare_cached("INSERT INTO change (name) VALUES (?1)")?.execute([name])?;
    let number = connection.last_insert_rowid();
    let forget = "DELETE FROM change WHERE number < ?1";
    connection.prepare_cached(forget)?.execute([number - 2 * CHANGES as i64]).map(drop)
}

fn stored(row: &Row<'_>) -> rusqlite::Result<Stored> {
    let (groups, profile): (String, String) = (row.get(2)?, row.get(3)?);
    let wrong = |column, error: serde_json::Error| {
        rusqlite::Error::FromSqlConversionFailure(column, rusqlite::types::Type::Text, Box::new(error))
    };
    Ok(Stored {
        user: User {
            name: row.get(0)?,
            groups: serde_json::from_str(&groups).map_err(|error| wrong(2, error))?,
            profile: serde_json::from_str::<Profile>(&profile).map_err(|error| wrong(3, error))?,
        },
        hash: row.get(1)?,
    })
}

fn json(value: &impl serde::Serialize) -> rusqlite::Result<String> {
    serde_json::to_string(value).map_err(|error| rusqlite::Error::ToSqlConversionFailure(Box::new(error)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Attempt;
    use crate::source::Source;

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("millrace-users-{}-{name}", std::process::id()));
            std::fs::create_dir(&path).unwrap();
            Self(path)
        }

        fn file(&self) -> PathBuf {
            self.0.join("users.db")
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    fn user(name: &str) -> Stored {
        let profile = serde_json::from_str(r#"{"access": "ro", "sessions": 2}"#).unwrap();
        let user = User { name: name.to_owned(), groups: vec!["staff".to_owned()], profile };
        Stored { user, hash: Some("$6$x$y".to_owned()) }
    }

    #[test]
    fn stored_users_are_found_again() {
        let folder = Folder::new("put");
        assert!(Database::open(&folder.file()).is_err(), "it is not there yet");
        let database = Database::open_or_make(&folder.file()).unwrap();
        database.put(&[user("bob"), user("alice"), user("carol")]).unwrap();
        assert_eq!(database.get("bob").unwrap(), Some(user("bob")));
        assert_eq!(database.get("Bob").unwrap(), None);
        let names = |behind| -> Vec<String> {
            database.list(behind, 2).unwrap().into_iter().map(|stored| stored.user.name).collect()
        };
        assert_eq!(names(""), ["alice", "bob"]);
        assert_eq!(names("bob"), ["carol"]);
        assert!(database.remove("bob").unwrap() && !database.remove("bob").unwrap());
        assert_eq!(Database::open(&folder.file()).unwrap().count().unwrap(), 2);
    }

    #[test]
    fn a_name_is_taken_once_and_changed_only_where_it_is_there() {
        let folder = Folder::new("taken");
        let database = Database::open_or_make(&folder.file()).unwrap();
        database.add(&user("bob")).unwrap();
        assert!(matches!(database.add(&user("bob")), Err(DatabaseError::Taken(_))));
        let lock_out = |stored: &mut Stored| {
            stored.hash = None;
            Ok::<(), ()>(())
        };
        database.change("bob", lock_out).unwrap().unwrap();
        assert_eq!(database.get("bob").unwrap().unwrap().hash, None);
        assert!(matches!(database.change("carol", lock_out), Err(DatabaseError::Missing(_))));
        let spoil = |stored: &mut Stored| {
            stored.user.groups.clear();
            Err("no")
        };
        assert_eq!(database.change("bob", spoil).unwrap(), Err("no"));
        assert_eq!(database.get("bob").unwrap().unwrap().user.groups, ["staff"]);
    }

    #[test]
    fn other_users_cannot_read_the_hashes() {
        use std::os::unix::fs::PermissionsExt;
        let folder = Folder::new("mode");
        let database = Database::open_or_make(&folder.file()).unwrap();
        database.put(&[user("bob")]).unwrap();
        for entry in std::fs::read_dir(&folder.0).unwrap().map(Result::unwrap) {
            let mode = entry.metadata().unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{}", entry.path().display());
        }
    }

    #[test]
    fn a_running_server_hears_of_changes_by_others() {
        let folder = Folder::new("changes");
        let writer = Database::open_or_make(&folder.file()).unwrap();
        writer.put(&[user("alice"), user("bob")]).unwrap();
        let reader = Database::open(&folder.file()).unwrap();
        assert_eq!(reader.changed(&Vec::new), Changed::Nothing, "what was before it began");
        assert_eq!(reader.changed(&Vec::new), Changed::Nothing);
        writer.put(&[user("alice")]).unwrap();
        writer.remove("bob").unwrap();
        assert_eq!(reader.changed(&Vec::new), Changed::Users(vec![b"alice".to_vec(), b"bob".to_vec()]));
        assert_eq!(reader.changed(&Vec::new), Changed::Nothing);
    }

    #[test]
    fn a_database_that_was_restored_is_the_one_that_is_asked() {
        let folder = Folder::new("restored");
        let backup = folder.0.join("backup");
        Database::open_or_make(&folder.file()).unwrap().put(&[user("alice")]).unwrap();
        fs::copy(folder.file(), &backup).unwrap();
        let server = Database::open(&folder.file()).unwrap();
        server.put(&[user("bob")]).unwrap();
        assert!(server.get("bob").unwrap().is_some());
        for name in ["users.db", "users.db-wal", "users.db-shm"] {
            let _ = fs::remove_file(folder.0.join(name));
        }
        assert_eq!(server.changed(&Vec::new), Changed::Nothing);
        assert!(server.get("alice").is_err(), "it is not there");
        fs::copy(&backup, folder.file()).unwrap();
        assert_eq!(server.changed(&Vec::new), Changed::Everything);
        assert_eq!(server.changed(&Vec::new), Changed::Nothing);
        assert!(server.get("bob").unwrap().is_none() && server.get("alice").unwrap().is_some());
        Database::open(&folder.file()).unwrap().remove("alice").unwrap();
        assert_eq!(server.changed(&Vec::new), Changed::Users(vec![b"alice".to_vec()]));
    }

    #[test]
    fn a_file_of_something_else_is_refused() {
        let folder = Folder::new("foreign");
        std::fs::write(folder.file(), "not a database at all, but long enough to be looked at").unwrap();
        assert!(matches!(Database::open(&folder.file()), Err(DatabaseError::Sqlite { .. })));
        std::fs::remove_file(folder.file()).unwrap();
        Connection::open(folder.file()).unwrap().execute_batch("CREATE TABLE other (x)").unwrap();
        assert!(matches!(Database::open_or_make(&folder.file()), Err(DatabaseError::Foreign { .. })));
    }

    #[test]
    fn a_damaged_row_is_an_error_and_no_user() {
        let folder = Folder::new("damaged");
        let database = Database::open_or_make(&folder.file()).unwrap();
        database.put(&[user("alice")]).unwrap();
        let update = "UPDATE user SET profile = '{\"acess\": \"ro\"}'";
        database.with(|connection| connection.execute(update, [])).unwrap();
        assert!(database.find(&Attempt::new(b"alice", b"")).is_err());
    }
}
