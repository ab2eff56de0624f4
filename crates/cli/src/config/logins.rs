//! Who may log in: `--user`, `[[user]]` and `--anonymous`, turned into accounts.

use std::collections::{HashMap, HashSet};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use millrace_server::Accounts;
use millrace_server::auth::Password;
use millrace_storage::{LocalOptions, LocalStorage};

use super::resolve::Places;
use super::said::{Place, Said};
use super::value::{Access, Value};
use super::written::UserTable;
use crate::failure::Failure;

/// Somebody who may log in.
#[derive(Debug)]
pub(crate) struct Login {
    /// `None` is everybody.
    pub(crate) name: Option<String>,
    pub(crate) access: Access,
    /// The folder beneath the served one, where it is not all of it.
    pub(crate) beneath: Option<PathBuf>,
}

/// A user as written, the password already hidden.
#[derive(Debug)]
pub(crate) struct User {
    name: Said<String>,
    password: Password,
    access: Access,
    beneath: Option<Said<PathBuf>>,
}

impl User {
    /// Reads `NAME:PASSWORD[:ro|rw][:SUBDIR]`. Errors never quote the password.
    pub(crate) fn from_flag(text: &str) -> Result<Self, Failure> {
        const FORM: &str = "--user: write NAME:PASSWORD, NAME:PASSWORD:ro or NAME:PASSWORD:rw:SUBDIR; a password here cannot \
             contain a colon.";
        let refused = |message: String| Failure::Configuration(message);
        let (name, rest) = text.split_once(':').ok_or_else(|| refused(FORM.to_owned()))?;
        let (password, rest) = match rest.split_once(':') {
            Some((password, rest)) => (password, Some(rest)),
            None => (rest, None),
        };
        check_name(name).map_err(|message| refused(format!("--user: {message}.")))?;
        let password =
            read_password(password).map_err(|message| refused(format!("--user {name}: {message}.")))?;
        let (access, beneath) = rest.map_or((None, None), access_and_folder);
        if beneath == Some("") {
            return Err(refused(FORM.to_owned()));
        }
        Ok(Self {
            name: Said::on_command_line(name.to_owned()),
            password,
            access: access.unwrap_or(Access::ReadWrite),
            beneath: beneath.map(|folder| Said::on_command_line(folder.into())),
        })
    }

    /// Takes over a `[[user]]` table.
    pub(crate) fn from_table(table: UserTable, places: &Places<'_>) -> Result<Self, Failure> {
        check_name(&table.name.value).map_err(|message| places.error(&table.name.place, "name", &message))?;
        let password = Password::hashed(&table.password.value).map_err(|error| {
            let message = format!("{error}. Run `millrace hash-password` and write here what it prints");
            places.error(&table.password.place, "password", &message)
        })?;
        Ok(Self {
            name: table.name,
            password,
            access: table.access.map_or(Access::ReadWrite, |access| access.value),
            beneath: table.directory,
        })
    }
}

/// What follows the password: `ro` or `rw`, a folder, or the one and then the other.
fn access_and_folder(text: &str) -> (Option<Access>, Option<&str>) {
    let (first, rest) = match text.split_once(':') {
        Some((first, rest)) => (first, Some(rest)),
        None => (text, None),
    };
    match Access::from_text(first) {
        Ok(access) => (Some(access), rest),
        Err(_) => (None, Some(text)),
    }
}

fn check_name(name: &str) -> Result<(), String> {
    match name {
        "" => Err("the name of a user is empty".to_owned()),
        _ if name.contains(char::is_control) => {
            Err(format!("the name {name:?} contains a control character, which no client can send"))
        }
        _ => Ok(()),
    }
}

/// A password of the command line: the hash of one, where it is written as such, or the text itself.
fn read_password(password: &str) -> Result<Password, String> {
    match password {
        _ if password.starts_with("$argon2") => {
            Password::hashed(password).map_err(|error| format!("{error}; `millrace hash-password` makes one"))
        }
        "" => Err("the password is empty; use --anonymous to let everyone in".to_owned()),
        _ if password.contains(char::is_control) => {
            Err("the password contains a control character, which no client can send".to_owned())
        }
        _ => Ok(password.into()),
    }
}

/// Refuses two users of one name, and names that the anonymous user has.
pub(crate) fn check_names(users: &[User], anonymous: bool, places: &Places<'_>) -> Result<(), Failure> {
    let mut seen = HashSet::new();
    for User { name, .. } in users {
        if anonymous && Accounts::is_anonymous_name(name.value.as_bytes()) {
            let message = format!(
                "{} is a name of the anonymous user, whom any password lets in; choose another name, or turn \
                 anonymous off",
                name.value
            );
            return Err(places.error(&name.place, "--user", &message));
        }
        if !seen.insert(&name.value) {
            let message = format!("there are two users named {}", name.value);
            return Err(places.error(&name.place, "--user", &message));
        }
    }
    Ok(())
}

/// The trees that accounts are given, each opened once.
#[derive(Debug)]
pub(crate) struct Trees {
    /// The served folder, absolute, without links.
    root: PathBuf,
    options: LocalOptions,
    open: HashMap<(PathBuf, Access), Arc<LocalStorage>>,
}

impl Trees {
    pub(crate) fn new(root: PathBuf, options: LocalOptions) -> Self {
        Self { root, options, open: HashMap::new() }
    }

    pub(crate) fn anonymous(
        &mut self,
        accounts: Accounts,
        access: Access,
    ) -> Result<(Accounts, Login), Failure> {
        let tree = self.tree(self.root.clone(), access)?;
        let login = Login { name: None, access, beneath: None };
        Ok((accounts.anonymous(access.permissions(), tree), login))
    }

    pub(crate) fn user(
        &mut self,
        accounts: Accounts,
        user: User,
        places: &Places<'_>,
    ) -> Result<(Accounts, Login), Failure> {
        let folder = match &user.beneath {
            None => self.root.clone(),
            Some(beneath) => self.folder(&user.name.value, beneath, places)?,
        };
        let tree = self.tree(folder, user.access)?;
        let name = user.name.value;
        let accounts = accounts.user(&name, user.password, user.access.permissions(), tree);
        let beneath = user.beneath.map(|beneath| beneath.value);
        Ok((accounts, Login { name: Some(name), access: user.access, beneath }))
    }

    /// Those that uploads may have left something in.
    pub(crate) fn writable(self) -> Vec<Arc<LocalStorage>> {
        let writable = |((_, access), tree)| (access == Access::ReadWrite).then_some(tree);
        self.open.into_iter().filter_map(writable).collect()
    }

    fn folder(&self, user: &str, beneath: &Said<PathBuf>, places: &Places<'_>) -> Result<PathBuf, Failure> {
        let root = self.root.display();
        // On the command line it may be the rest of a password with a colon: not to be quoted.
        let (flag, folder) = match beneath.place {
            Place::CommandLine => (format!("--user {user}"), "SUBDIR".to_owned()),
            Place::File(_) => (String::new(), format!("the folder {}", beneath.value.display())),
        };
        let wrong = |message: String| Err(places.error(&beneath.place, &flag, &message));
        let descends = |component| matches!(component, Component::Normal(_) | Component::CurDir);
        if !beneath.value.components().all(descends) {
            return wrong(format!("{folder} has to lie within {root}, without .. or a leading /"));
        }
        match self.root.join(&beneath.value).canonicalize() {
            Ok(found) if !found.starts_with(&self.root) => {
                wrong(format!("{folder} is a link that leads out of {root}"))
            }
            Ok(found) if !found.is_dir() => wrong(format!("{folder} is not a folder")),
            Ok(found) => Ok(found),
            Err(error) if beneath.place == Place::CommandLine => wrong(format!(
                "what follows the password is neither ro nor rw nor a folder in {root} ({error}); make the folder \
                 first, and choose a password without a colon"
            )),
            Err(error) => wrong(format!("{folder} is not there in {root} ({error}); make it first")),
        }
    }

    fn tree(&mut self, folder: PathBuf, access: Access) -> Result<Arc<LocalStorage>, Failure> {
        if let Some(tree) = self.open.get(&(folder.clone(), access)) {
            return Ok(Arc::clone(tree));
        }
        let tree = Arc::new(self.open_tree(&folder, access)?);
        self.open.insert((folder, access), Arc::clone(&tree));
        Ok(tree)
    }

    fn open_tree(&self, folder: &Path, access: Access) -> Result<LocalStorage, Failure> {
        let options = LocalOptions { read_only: access == Access::ReadOnly, ..self.options };
        LocalStorage::open(folder, options).map_err(|error| Failure::Configuration(format!("{error}.")))
    }
}
