//! The users: `--user`, `[[user]]` and `--anonymous`, turned into accounts.

use std::collections::{BTreeMap, HashSet};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use millrace_server::auth::{
    self, Chain, Effective, Group, HomeError, Homes, Listed, Mounts, Password, PasswordError, Profile,
};
use millrace_server::config::CertificateLogin;
use millrace_server::limits::Limit;
use millrace_server::{Accounts, Permissions};
use millrace_terminal::Failure;
use toml::Spanned;
use toml::de::DeValue;

use super::error::ValueError;
use super::file::Mistakes;
use super::hosts::Host;
use super::places::Places;
use super::said::{Place, Said};
use super::setting::{Range, required, settings, unset};
use super::slot::{Many, One, Slot};
use super::value::{Access, Value};

settings! {
    /// A `[[user]]` table. A missing key is reported when it is resolved, with the place of the table.
    UserTable of "user" with profile: Profile {
        /// What the client sends as `USER`
        name: Said<String> = required();
        /// The hash of the password: argon2id, which `millrace hash-password` makes, or one that an account
        /// brings along (bcrypt, scrypt, yescrypt, SHA-512-crypt, SHA-256-crypt). A password as text is
        /// refused: files end in backups.
        password: One<String> = unset("required");
        /// Names of `[[group]]` tables. A setting that is not written here is taken from the first of them that
        /// has it.
        groups: Many<String> = unset("none");
        /// A folder within the served one, which is then all that this user sees. It has to exist; of one that
        /// is named with `{user}` or `{group}` the last part is made at the first login.
        directory: One<PathBuf> = unset("all of it");
        /// The `[[host]]` that has this user, by one of its `names` or `addresses`. The user logs in there and nowhere else,
        /// with a folder in that host's, and no users but such and those of the host's `users` log in there.
        host: One<String> = unset("none: a user of the server, and of hosts without users of their own");
    }
}

settings! {
    /// A `[[group]]` table.
    GroupTable of "group" with profile: Profile {
        /// What `groups` of users call it; `anonymous` is the group of the anonymous user
        name: Said<String> = required();
        /// Bytes a second to the clients of all members together: `"20M"`, or with a schedule
        shared_download: One<Limit> = unset("none");
        /// The same from them
        shared_upload: One<Limit> = unset("none");
        /// Sessions of all members together
        shared_sessions: One<Limit> = unset("none");
    }
}

/// The accounts of `--user` and of `[[user]]` tables.
#[derive(Debug, Clone, Default)]
pub(crate) struct UserList {
    /// `NAME:PASSWORD[:ro|rw][:SUBDIR]`
    pub(crate) texts: Vec<Said<String>>,
    pub(crate) tables: Vec<UserTable>,
}

impl Slot for UserList {
    fn read(&mut self, value: &Spanned<DeValue<'_>>, range: Range, wrong: &mut Mistakes) {
        self.tables.read(value, range, wrong);
    }

    fn read_text(&mut self, text: &str, place: &Place, _: Range) -> Result<(), ValueError> {
        // It is checked when it is resolved, so that no message shows the password.
        self.texts.push(Said { value: text.to_owned(), place: place.clone() });
        Ok(())
    }

    fn split<'a>(&self, text: &'a str) -> Vec<&'a str> {
        text.split_whitespace().collect()
    }

    fn place(&self) -> Option<&Place> {
        self.texts.first().map(|said| &said.place).or_else(|| self.tables.place())
    }

    fn shown(&self) -> String {
        self.tables.shown()
    }

    fn schema(&self, range: Range) -> serde_json::Value {
        self.tables.schema(range)
    }

    fn has_tables(&self) -> bool {
        true
    }

    fn is_list(&self) -> bool {
        true
    }
}

/// A user.
#[derive(Debug)]
pub(crate) struct Login {
    /// `None` is the anonymous user.
    pub(crate) name: Option<String>,
    /// The most that may be done anywhere.
    pub(crate) access: Access,
    /// The effective settings of the user and its groups.
    pub(crate) effective: Effective,
    /// The folder beneath the served one, where it is not all of it.
    pub(crate) beneath: Option<PathBuf>,
}

impl Login {
    pub(crate) fn new(name: Option<String>, effective: Effective, beneath: Option<PathBuf>) -> Self {
        Self { name, access: access(&effective), effective, beneath }
    }

    /// The name, as it is told.
    pub(crate) fn shown(&self) -> &str {
        self.name.as_deref().unwrap_or("anonymous")
    }
}

/// A user as written, the password already hidden.
#[derive(Debug)]
pub(crate) struct User {
    name: Said<String>,
    password: Password,
    groups: Vec<Said<String>>,
    profile: Profile,
    /// The profile's folder, and where it was written.
    beneath: Option<Said<PathBuf>>,
    /// Whether that folder may be the rest of a password with a colon in it.
    may_be_password: bool,
    /// The host that has the user.
    host: Option<Said<String>>,
}

impl User {
    /// Reads `NAME:PASSWORD[:ro|rw][:SUBDIR]`. Errors never quote the password.
    pub(crate) fn from_text(said: &Said<String>, places: &Places<'_>) -> Result<Self, Failure> {
        const FORM: &str = "write NAME:PASSWORD, NAME:PASSWORD:ro or NAME:PASSWORD:rw:SUBDIR; a password here cannot \
             contain a colon";
        let text = said.value.as_str();
        let refused = |message: &str| places.error(&said.place, "--user", message);
        let (name, rest) = text.split_once(':').ok_or_else(|| refused(FORM))?;
        let (password, rest) = match rest.split_once(':') {
            Some((password, rest)) => (password, Some(rest)),
            None => (rest, None),
        };
        auth::check_name(name).map_err(|error| refused(&error.to_string()))?;
        let password = read_password(password)
            .map_err(|error| places.error(&said.place, &format!("--user {name}"), &error.to_string()))?;
        let (access, beneath) = rest.map_or((None, None), access_and_folder);
        if beneath == Some("") {
            return Err(refused(FORM));
        }
        let profile = Profile {
            access: access.map(|access| auth::Access(access.permissions())),
            directory: beneath.map(str::to_owned),
            ..Profile::default()
        };
        Ok(Self {
            name: Said { value: name.to_owned(), place: said.place.clone() },
            password,
            groups: Vec::new(),
            profile,
            beneath: beneath.map(|folder| Said { value: folder.into(), place: said.place.clone() }),
            may_be_password: access.is_none(),
            host: None,
        })
    }

    /// Takes over a `[[user]]` table.
    pub(crate) fn from_table(table: UserTable, places: &Places<'_>) -> Result<Self, Failure> {
        auth::check_name(&table.name.value)
            .map_err(|error| places.error(&table.name.place, "name", &error.to_string()))?;
        let password = match &table.password {
            None if table.profile.tls_client_login == Some(CertificateLogin::Alone) => Password::none(),
            None => {
                let message = "this user has no password: run `millrace hash-password` and write what it prints; \
                               or let a client certificate be enough, with tls-client-login = \"alone\"";
                return Err(places.error(&table.name.place, "name", message));
            }
            Some(said) => Password::hashed(&said.value).map_err(|error| {
                let message = format!("{error}. Run `millrace hash-password` and write here what it prints");
                places.error(&said.place, "password", &message)
            })?,
        };
        Ok(Self {
            name: table.name,
            password,
            groups: table.groups,
            profile: table.profile,
            beneath: table.directory,
            may_be_password: false,
            host: table.host,
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

/// Why a password of the command line cannot be one.
#[derive(Debug, thiserror::Error)]
enum LoginError {
    #[error("the password is empty; use --anonymous to let everyone in")]
    EmptyPassword,
    #[error("the password contains a control character, which no client can send")]
    ControlInPassword,
    #[error("{0}; `millrace hash-password` makes one")]
    Hash(PasswordError),
}

/// A password of the command line: the hash of one, where it is written as such, or the text itself.
fn read_password(password: &str) -> Result<Password, LoginError> {
    match password {
        _ if password.starts_with("$argon2") => Password::hashed(password).map_err(LoginError::Hash),
        "" => Err(LoginError::EmptyPassword),
        _ if password.contains(char::is_control) => Err(LoginError::ControlInPassword),
        _ => Ok(password.into()),
    }
}

/// Takes the users of hosts out of all, by the place of the host among these.
pub(crate) fn take_those_of_hosts(
    users: &mut Vec<User>,
    hosts: &[Host],
    places: &Places<'_>,
) -> Result<BTreeMap<usize, Vec<User>>, Failure> {
    let mut of_hosts: BTreeMap<usize, Vec<User>> = BTreeMap::new();
    for user in users.extract_if(.., |user| user.host.is_some()) {
        let Some(said) = &user.host else { continue };
        let place = hosts.iter().position(|host| host.is_called(&said.value)).ok_or_else(|| {
            let message =
                format!("there is no [[host]] table with {} among its `names` or `addresses`", said.value);
            places.error(&said.place, "host", &message)
        })?;
        of_hosts.entry(place).or_default().push(user);
    }
    Ok(of_hosts)
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

/// Puts accounts together, and opens the folders that are known now.
pub(crate) struct Assembly<'a> {
    /// The served folder, absolute, without links.
    root: &'a Path,
    homes: Arc<Homes>,
    mounts: Arc<Mounts>,
    groups: Vec<Group>,
    /// Whether the anonymous user sees names that begin with a dot.
    pub(crate) shows_dotfiles: bool,
    places: &'a Places<'a>,
}

impl<'a> Assembly<'a> {
    pub(crate) fn new(
        root: &'a Path,
        homes: Arc<Homes>,
        mounts: Arc<Mounts>,
        groups: Vec<GroupTable>,
        places: &'a Places<'a>,
    ) -> Result<Self, Failure> {
        let mut names = HashSet::new();
        for GroupTable { name, .. } in &groups {
            if !names.insert(name.value.clone()) {
                return Err(places.error(
                    &name.place,
                    "group",
                    &format!("there are two groups named {}", name.value),
                ));
            }
        }
        let group = |table: GroupTable| Group { name: table.name.value, profile: table.profile };
        let groups = groups.into_iter().map(group).collect();
        Ok(Self { root, homes, mounts, groups, shows_dotfiles: false, places })
    }

    /// A chain with the anonymous user, if enabled, and the users; and their descriptions.
    pub(crate) fn all(
        &self,
        anonymous: Option<Access>,
        users: Vec<User>,
        by_certificate: bool,
    ) -> Result<(Chain, Vec<Login>), Failure> {
        let (chain, mut logins) = self.begin(anonymous)?;
        let (listed, more) = self.users(Listed::new(), users, by_certificate)?;
        logins.extend(more);
        Ok((chain.source(listed), logins))
    }

    /// Makes the users of a host alone a source.
    pub(crate) fn of_host(
        &self,
        host: &Host,
        users: Vec<User>,
        by_certificate: bool,
    ) -> Result<Listed, Failure> {
        let homes = host.homes();
        let there = Assembly {
            root: homes.root(),
            homes: Arc::clone(homes),
            mounts: Arc::clone(&self.mounts),
            groups: self.groups.clone(),
            ..*self
        };
        Ok(there.users(Listed::of_host(&host.first()), users, by_certificate)?.0)
    }

    /// A chain with the groups, and with the anonymous user, if there is one.
    fn begin(&self, anonymous: Option<Access>) -> Result<(Chain, Vec<Login>), Failure> {
        let mut chain = Chain::new(Arc::clone(&self.homes)).mounts(Arc::clone(&self.mounts));
        for group in &self.groups {
            chain = chain.group(group.clone());
        }
        let Some(said) = anonymous else { return Ok((chain, Vec::new())) };
        let tree = self.open("", said == Access::ReadOnly)?;
        let mut chain = chain.anonymous(said.permissions(), tree);
        if !self.shows_dotfiles {
            chain = chain.without_dotfiles();
        }
        let login = match chain.anonymous_settings() {
            None => Login::new(None, of_everybody(said), None),
            Some(effective) => self.anonymous(&effective)?,
        };
        Ok((chain, vec![login]))
    }

    /// The anonymous user with the settings of its group.
    fn anonymous(&self, effective: &Effective) -> Result<Login, Failure> {
        let wrong = |why: HomeError| Failure::Configuration(format!("the group anonymous: {why}."));
        let folder = effective.directory().map_err(HomeError::from).map_err(wrong)?;
        let is_template = effective.said.directory.as_ref().is_some_and(|folder| folder.contains('{'));
        self.homes.check(folder.as_deref().unwrap_or_default(), is_template).map_err(wrong)?;
        Ok(Login::new(None, effective.clone(), folder.map(PathBuf::from)))
    }

    /// Adds users to a source, and describes them.
    fn users(
        &self,
        mut listed: Listed,
        users: Vec<User>,
        by_certificate: bool,
    ) -> Result<(Listed, Vec<Login>), Failure> {
        let mut logins = Vec::new();
        for user in users {
            let groups = user.groups.iter().map(|group| self.known_group(group)).collect::<Result<_, _>>()?;
            let record = auth::User { name: user.name.value.clone(), groups, profile: user.profile };
            if !by_certificate {
                self.check_needs_no_certificate(&record, &user.name)?;
            }
            let beneath = user.beneath.as_ref().map(|folder| (folder, user.may_be_password));
            logins.push(self.prepare(&record, &user.name, beneath)?);
            listed = listed.user(record, user.password);
        }
        Ok((listed, logins))
    }

    /// Without a CA for client certificates, a user that needs one could never log in.
    fn check_needs_no_certificate(&self, user: &auth::User, name: &Said<String>) -> Result<(), Failure> {
        let find = |name: &str| self.groups.iter().find(|group| group.name == name).cloned();
        match auth::resolve(user, find).said.tls_client_login {
            None | Some(CertificateLogin::Off | CertificateLogin::OrPassword) => Ok(()),
            Some(login) => {
                let message = format!(
                    "the user {} has to show a certificate, as tls-client-login is {login}, and there is no CA for \
                     it: name them with tls-client-ca",
                    user.name
                );
                Err(self.places.error(&name.place, "name", &message))
            }
        }
    }

    fn known_group(&self, said: &Said<String>) -> Result<String, Failure> {
        match self.groups.iter().any(|group| group.name == said.value) {
            true => Ok(said.value.clone()),
            false => {
                let message =
                    format!("there is no group {}; write a [[group]] table of that name", said.value);
                Err(self.places.error(&said.place, "groups", &message))
            }
        }
    }

    /// Opens the user's folder, so that a mistake is told now; not one that a template names, which is made when
    /// it is first needed.
    fn prepare(
        &self,
        user: &auth::User,
        name: &Said<String>,
        beneath: Option<(&Said<PathBuf>, bool)>,
    ) -> Result<Login, Failure> {
        let find = |name: &str| self.groups.iter().find(|group| group.name == name).cloned();
        let effective = auth::resolve(user, find);
        let access = access(&effective);
        let place = beneath.map_or(&name.place, |(beneath, _)| &beneath.place);
        let folder = effective
            .directory()
            .map_err(|error| self.places.error(place, "directory", &error.to_string()))?;
        let is_template = effective.said.directory.as_ref().is_some_and(|folder| folder.contains('{'));
        if !is_template {
            if let Some((beneath, may_be_password)) = beneath {
                self.check_folder(&user.name, beneath, may_be_password)?;
            }
            let folder = folder.clone().unwrap_or_default();
            self.homes
                .open(&folder, access == Access::ReadOnly, false)
                .map_err(|error| self.places.error(place, "--user", &error.to_string()))?;
        } else if let Some(folder) = &folder {
            let there = self.homes.check(folder, true);
            there.map_err(|error| self.places.error(place, "directory", &error.to_string()))?;
        }
        Ok(Login::new(Some(user.name.clone()), effective, folder.map(PathBuf::from)))
    }

    fn open(&self, folder: &str, read_only: bool) -> Result<Arc<millrace_storage::LocalStorage>, Failure> {
        let opened = self.homes.open(folder, read_only, false);
        opened.map_err(|error| Failure::Configuration(format!("{error}.")))
    }

    /// What may be the rest of a password is not to be quoted.
    fn check_folder(
        &self,
        user: &str,
        beneath: &Said<PathBuf>,
        may_be_password: bool,
    ) -> Result<(), Failure> {
        let root = self.root.display();
        let shown = beneath.value.display();
        let folder = if may_be_password { "SUBDIR".to_owned() } else { format!("the folder {shown}") };
        let flag = format!("--user {user}");
        let wrong = |message: String| Err(self.places.error(&beneath.place, &flag, &message));
        let descends = |component| matches!(component, Component::Normal(_) | Component::CurDir);
        if !beneath.value.components().all(descends) {
            return wrong(format!("{folder} has to lie within {root}, without .. or a leading /"));
        }
        match self.root.join(&beneath.value).canonicalize() {
            Ok(found) if !found.starts_with(self.root) => {
                wrong(format!("{folder} is a link that leads out of {root}"))
            }
            Ok(found) if !found.is_dir() => wrong(format!("{folder} is not a folder")),
            Ok(_) => Ok(()),
            Err(error) if may_be_password => wrong(format!(
                "what follows the password is neither ro nor rw nor a folder in {root} ({error}); make the folder \
                 first, and choose a password without a colon"
            )),
            Err(error) => wrong(format!("{folder} is not there in {root} ({error}); make it first")),
        }
    }
}

/// The anonymous user without a group.
fn of_everybody(said: Access) -> Effective {
    let profile = Profile { access: Some(auth::Access(said.permissions())), ..Profile::default() };
    let user = auth::User { name: "anonymous".to_owned(), groups: Vec::new(), profile };
    auth::resolve(&user, |_| None)
}

/// An account's access in one word.
fn access(effective: &Effective) -> Access {
    let permissions = effective.rules().anywhere();
    let reads = Permissions::READ_ONLY.with(millrace_server::Permission::Admin);
    if reads.contains(permissions) { Access::ReadOnly } else { Access::ReadWrite }
}
