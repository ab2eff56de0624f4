//! `millrace user`: the accounts in a database. A server that uses it takes changes over within a second.

mod import;
mod settings;

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use millrace_load::units::counted;
use millrace_log::{Administrator, Event};
use millrace_server::Attempt;
use millrace_server::auth::{self, Database, DatabaseError, Stored};
use millrace_terminal::Failure;

use crate::audit::Audit;
use crate::config::{self, Written};
use crate::explain;
use crate::hash_password;
use import::Import;
use settings::Setting;

/// Users at a time: listed, or brought in.
const BATCH: usize = 1000;

#[derive(Debug, Args)]
pub(crate) struct Users {
    /// The database [default: that of the configuration, or the one that "millrace serve" uses where it is told no other]
    #[arg(long, value_name = "FILE", global = true)]
    users: Option<PathBuf>,
    /// The configuration file of the server, which names the database, the groups, and where the use of quotas is
    #[arg(long, value_name = "FILE", global = true)]
    config: Option<PathBuf>,
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Add a user; the password is asked for, or is the first line of standard input
    ///
    /// Settings are those of a user in the file: access=ro, directory=home/alice, from=10.0.0.0/8,192.0.2.7,
    /// groups=staff, expires=2027-01-31. Other values are written as in the file: 'tree=[{path="/in", access="rw"}]'.
    Add {
        /// The user name that the client sends
        name: String,
        /// The user's settings, as in the configuration file: access=ro
        #[arg(value_name = "KEY=VALUE")]
        settings: Vec<Setting>,
        /// The hash of the password, instead of the password
        #[arg(long, value_name = "HASH")]
        hash: Option<String>,
    },
    /// Change a user's password
    Passwd {
        /// The user
        name: String,
        /// The hash of the password, instead of the password
        #[arg(long, value_name = "HASH")]
        hash: Option<String>,
    },
    /// Change settings of a user; KEY= takes one back
    Set {
        /// The user
        name: String,
        /// New settings: access=ro; directory= removes a setting
        #[arg(value_name = "KEY=VALUE", required = true)]
        settings: Vec<Setting>,
    },
    /// Ask for codes of an authenticator app as well (TOTP): makes a secret and prints it
    Totp {
        /// The user
        name: String,
    },
    /// Names, one a line
    List {
        /// A line of JSON for each user, with all that is said of it
        #[arg(long)]
        json: bool,
    },
    /// Show a user's settings; "millrace explain" shows the effective ones
    Show {
        /// The user
        name: String,
    },
    /// End a user's sessions and let none begin, until it is enabled again
    Disable {
        /// The user
        name: String,
    },
    /// Let a user in again
    Enable {
        /// The user
        name: String,
    },
    /// Forget a user
    Remove {
        /// The user
        name: String,
    },
    /// Bring in users of another server
    ///
    /// passwd: lines as in /etc/passwd, less the system's own accounts; hashes come from --shadow.
    /// htpasswd: NAME:HASH. puredb: the text file of Pure-FTPd's pure-pw. vsftpd: a line with a name, a line
    /// with the password in clear, as for pam_userdb. proftpd: an AuthUserFile, with --groups an AuthGroupFile.
    ///
    /// A hash that cannot be verified is left out, and the user then has no password. A home becomes the
    /// directory, less what --beneath says.
    Import(Import),
}

pub(crate) fn run(arguments: Users) -> Result<(), Failure> {
    let Users { users, config, action } = arguments;
    let config = config.or_else(config::named_by_environment);
    let config = config.as_deref();
    let users = users.map_or_else(|| config::users(config), |path| Ok(Some(path)))?;
    let path = users.or_else(config::default_path).ok_or_else(|| {
        Failure::Configuration(
            "there is no home folder for a database; name a file: --users FILE.".to_owned(),
        )
    })?;
    let makes = matches!(action, Action::Add { .. } | Action::Import(_));
    let database = open(&path, makes)?;
    let audited = action.audited();
    let is_import = matches!(action, Action::Import(_));
    let log = if audited.is_some() || is_import { database.audit_log().map_err(failed)? } else { None };
    let mut audit = Audit::open(log.as_deref())?;
    perform(action, &database, (&path, config), &mut audit)?;
    let by = Administrator::Local(audit.by());
    audit.record(audited.iter().map(|Audited { action, account, settings }| Event::AccountChanged {
        action,
        account,
        settings: settings.as_deref(),
        by,
    }))
}

/// What the audit log says of an action.
struct Audited {
    action: &'static str,
    account: String,
    settings: Option<String>,
}

impl Action {
    /// Returns what is to be recorded once it is done; `None` of a question, and of an import, which is recorded user by
    /// user.
    fn audited(&self) -> Option<Audited> {
        let (action, account, settings) = match self {
            Self::Add { name, settings, .. } => ("add", name, Some(settings)),
            Self::Passwd { name, .. } => ("password", name, None),
            Self::Set { name, settings } => ("set", name, Some(settings)),
            Self::Totp { name } => ("totp", name, None),
            Self::Disable { name } => ("disable", name, None),
            Self::Enable { name } => ("enable", name, None),
            Self::Remove { name } => ("remove", name, None),
            Self::List { .. } | Self::Show { .. } | Self::Import(_) => return None,
        };
        let settings = settings.filter(|settings| !settings.is_empty());
        let settings =
            settings.map(|settings| settings.iter().map(Setting::for_audit).collect::<Vec<_>>().join(" "));
        Some(Audited { action, account: account.clone(), settings })
    }
}

fn perform(
    action: Action,
    database: &Database,
    (path, config): (&Path, Option<&Path>),
    audit: &mut Audit,
) -> Result<(), Failure> {
    match action {
        Action::Add { name, settings, hash } => add(database, path, new_user(name, &settings, config)?, hash),
        Action::Passwd { name, hash } => {
            look_up(database, &name)?;
            let hash = password(hash)?;
            change(database, &name, |stored| {
                stored.hash = Some(hash);
                Ok(())
            })
        }
        Action::Set { name, settings } => change(database, &name, |stored| {
            let before = stored.user.groups.clone();
            settings::apply(&settings, &mut stored.user)?;
            match stored.user.groups == before {
                true => Ok(()),
                false => check_groups(&stored.user.groups, config),
            }
        }),
        Action::Totp { name } => totp(database, &name),
        Action::List { json } => list(database, json),
        Action::Show { name } => show(&look_up(database, &name)?, config),
        Action::Disable { name } => set_disabled(database, &name, true),
        Action::Enable { name } => set_disabled(database, &name, false),
        Action::Remove { name } => match database.remove(&name).map_err(failed)? {
            true => Ok(()),
            false => Err(failed(DatabaseError::Missing(name))),
        },
        Action::Import(import) => bring_in(database, &import, config, audit),
    }
}

fn open(path: &Path, makes: bool) -> Result<Database, Failure> {
    if !makes {
        return match Database::open(path) {
            Err(_) if !path.exists() => Err(Failure::Configuration(format!(
                "there is no {}; `millrace user add NAME` makes it.",
                path.display()
            ))),
            opened => opened.map_err(failed),
        };
    }
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(|error| {
            Failure::Running(format!("cannot make the folder {}: {error}.", folder.display()))
        })?;
    }
    Database::open_or_make(path).map_err(failed)
}

fn new_user(name: String, settings: &[Setting], config: Option<&Path>) -> Result<auth::User, Failure> {
    auth::check_name(&name).map_err(|error| Failure::Configuration(format!("{error}.")))?;
    let mut user = auth::User { name, ..auth::User::default() };
    settings::apply(settings, &mut user)?;
    check_groups(&user.groups, config)?;
    Ok(user)
}

fn add(database: &Database, path: &Path, user: auth::User, hash: Option<String>) -> Result<(), Failure> {
    if database.get(&user.name).map_err(failed)?.is_some() {
        return Err(failed(DatabaseError::Taken(user.name)));
    }
    let is_first = database.list("", 1).map_err(failed)?.is_empty();
    database.add(&Stored { user, hash: Some(password(hash)?) }).map_err(failed)?;
    if is_first {
        eprintln!(
            "This is the first user of {}; a server that runs already has to be restarted.",
            path.display()
        );
    }
    Ok(())
}

/// Refuses groups that are not in the server's configuration: a member of one is not let in.
fn check_groups(groups: &[String], config: Option<&Path>) -> Result<(), Failure> {
    let wrong = |message: String| Err(Failure::Configuration(message));
    match (unknown_groups(groups.iter(), config)?, config) {
        (unknown, _) if unknown.is_empty() => Ok(()),
        (unknown, None) => wrong(format!(
            "{unknown}: groups are [[group]] tables of the server's configuration, which --config FILE names."
        )),
        (unknown, Some(config)) => wrong(format!(
            "{unknown}: there is no [[group]] table of that name in {}, and its members would not be let in.",
            config.display()
        )),
    }
}

/// The groups that have no table in a configuration, or all where that is not known.
fn unknown_groups<'a>(
    groups: impl Iterator<Item = &'a String>,
    config: Option<&Path>,
) -> Result<String, Failure> {
    let known = config.map_or_else(|| Ok(Vec::new()), config::groups)?;
    let unknown: BTreeSet<&str> = groups.filter(|group| !known.contains(group)).map(String::as_str).collect();
    Ok(Vec::from_iter(unknown).join(", "))
}

/// The hash to store: the given one, or one of a typed password.
fn password(hash: Option<String>) -> Result<String, Failure> {
    match hash {
        None => Ok(auth::hash_password(&hash_password::ask()?)),
        Some(hash) => {
            auth::check_hash(hash).map_err(|error| Failure::Configuration(format!("--hash: {error}.")))
        }
    }
}

fn look_up(database: &Database, name: &str) -> Result<Stored, Failure> {
    database.get(name).map_err(failed)?.ok_or_else(|| failed(DatabaseError::Missing(name.to_owned())))
}

fn change(
    database: &Database,
    name: &str,
    change: impl FnOnce(&mut Stored) -> Result<(), Failure>,
) -> Result<(), Failure> {
    database.change(name, change).map_err(failed)?
}

fn set_disabled(database: &Database, name: &str, disabled: bool) -> Result<(), Failure> {
    change(database, name, |stored| {
        stored.user.profile.disabled = disabled.then_some(true);
        Ok(())
    })
}

fn totp(database: &Database, name: &str) -> Result<(), Failure> {
    let secret = auth::Secret::random();
    change(database, name, |stored| {
        stored.user.profile.totp = Some(secret.clone());
        Ok(())
    })?;
    println!("{secret}\n{}", secret.url(name));
    Ok(())
}

fn list(database: &Database, json: bool) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    let mut last = String::new();
    loop {
        let users = database.list(&last, BATCH).map_err(failed)?;
        let Some(end) = users.last() else { return Ok(()) };
        last.clone_from(&end.user.name);
        let lines: String = users.iter().map(|stored| line(stored, json)).collect();
        // The reader may close the pipe early; that is not a failure.
        if out.write_all(lines.as_bytes()).is_err() {
            return Ok(());
        }
    }
}

fn line(stored: &Stored, json: bool) -> String {
    let Stored { user, hash } = stored;
    if json {
        let mut profile = serde_json::json!(user.profile);
        if user.profile.totp.is_some() {
            profile["totp"] = "asked for".into();
        }
        let line = serde_json::json!({
            "name": user.name,
            "groups": user.groups,
            "password": hash.is_some(),
            "settings": profile,
        });
        return format!("{line}\n");
    }
    let mut remarks = Vec::new();
    if user.profile.disabled == Some(true) {
        remarks.push("disabled");
    }
    if hash.is_none() {
        remarks.push("no password");
    }
    match remarks.is_empty() {
        true => format!("{}\n", user.name),
        false => format!("{}\t{}\n", user.name, remarks.join(", ")),
    }
}

fn show(stored: &Stored, config: Option<&Path>) -> Result<(), Failure> {
    let Stored { user, hash } = stored;
    let mut text = format!("{:18}{}\n", "name", user.name);
    let kind = hash.as_deref().map_or("none", kind);
    text += &format!("{:18}{kind}\n", "password");
    if !user.groups.is_empty() {
        text += &format!("{:18}{}\n", "groups", user.groups.join(", "));
    }
    let effective = auth::resolve(user, |_| None);
    for (key, value, origin) in effective.explain() {
        if origin == auth::Origin::User {
            text += &format!("{key:18}{value}\n");
        }
    }
    if let Some(config) = config {
        let site = config::load(Written::default(), Some(config))?;
        // As the server has it: its groups are in the file.
        let attempt = Attempt::new(user.name.as_bytes(), b"");
        let found = site.accounts.explain(&attempt).map_err(|why| Failure::Running(format!("{why}.")))?;
        if let Some(auth::Explained { effective, .. }) = found {
            text += &explain::used(&site.accounts.used(&effective, &attempt));
        }
    }
    let _ = io::stdout().write_all(text.as_bytes());
    Ok(())
}

/// The name of a hash, from the text between its first dollar signs.
fn kind(hash: &str) -> &str {
    match hash.trim_start_matches('$').split('$').next().unwrap_or("") {
        "5" => "SHA-256-crypt",
        "6" => "SHA-512-crypt",
        "7" => "scrypt",
        "y" => "yescrypt",
        "2a" | "2b" | "2x" | "2y" => "bcrypt",
        kind => kind,
    }
}

fn bring_in(
    database: &Database,
    import: &Import,
    config: Option<&Path>,
    audit: &mut Audit,
) -> Result<(), Failure> {
    let brought = import::read(import)?;
    let unknown = unknown_groups(brought.users.iter().flat_map(|stored| &stored.user.groups), config)?;
    let (mut added, mut kept) = (0, 0);
    for batch in brought.users.chunks(BATCH) {
        let mut new = Vec::new();
        for stored in batch {
            let is_there = !import.replace && database.get(&stored.user.name).map_err(failed)?.is_some();
            kept += usize::from(is_there);
            if !is_there {
                new.push(stored.clone());
            }
        }
        database.put(&new).map_err(failed)?;
        let by = Administrator::Local(audit.by());
        audit.record(new.iter().map(|stored| Event::AccountChanged {
            action: "import",
            account: &stored.user.name,
            settings: None,
            by,
        }))?;
        added += new.len();
    }
    if !unknown.is_empty() {
        eprintln!(
            "Members of these groups are let in once the configuration has [[group]] tables of them: {unknown}."
        );
    }
    for note in &brought.notes {
        eprintln!("{note}");
    }
    let kept = match kept {
        0 => String::new(),
        1 => " 1 was there already and stays as it is; --replace replaces it.".to_owned(),
        kept => format!(" {kept} were there already and stay as they are; --replace replaces them."),
    };
    println!("{} brought in.{kept}", counted(added as u64, "user"));
    Ok(())
}

fn failed(error: DatabaseError) -> Failure {
    match error {
        DatabaseError::Taken(_) | DatabaseError::Missing(_) => Failure::Configuration(format!("{error}.")),
        error => Failure::Running(format!("the database of users cannot be used: {error}.")),
    }
}
