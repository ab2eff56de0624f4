//! The configuration: a table of settings (`written.rs`, and for `[[tables]]` the file that resolves them), what was
//! written of it, and what that means (`resolve.rs`).
//!
//! Flags go before environment variables, these before the file. Each value remembers where it was written, and an
//! error points there (`report.rs`).

mod acme;
mod admin;
mod audit;
mod bucket;
mod cluster;
mod confinement;
mod database;
mod doors;
mod environment;
mod error;
mod file;
mod flags;
mod folders;
mod hooks;
mod hosts;
mod limits;
mod logins;
mod notices;
mod obstacles;
mod oidc;
mod origins;
mod otlp;
mod own;
mod places;
mod profiles;
mod proxy_routes;
mod reference;
mod report;
mod resolve;
mod said;
mod schema;
mod setting;
mod shown;
mod slot;
mod sources;
mod texts;
mod tls;
mod value;
mod web;
mod written;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fs, io};

use millrace_server::limits::Quotas;
use millrace_terminal::{Failure, print};

use self::places::Places;
use cluster::ClusterTable;
use file::{names, scope_and_names};
use folders::FolderTable;
use hooks::HookTable;
use hosts::HostTable;
use limits::{ClassTable, ListenerTable};
use logins::{GroupTable, UserTable};
use notices::NoticeTable;
use oidc::OidcTable;
use otlp::OtlpTable;
use proxy_routes::ProxyTable;
use report::KnownKeys;
use setting::Table;
use web::{CorsTable, ErrorPageTable};

pub(crate) use confinement::Confined;
pub(crate) use database::default_path;
pub(crate) use logins::Login;
pub(crate) use origins::{Changed, DEFAULT, Origin, Snapshot};
pub(crate) use report::Source;
pub(crate) use resolve::Site;
pub(crate) use said::Said;
pub(crate) use value::{Access, Period, Sandbox};
pub(crate) use written::Written;

/// Returns the file that `MILLRACE_CONFIG` names.
pub(crate) fn named_by_environment() -> Option<PathBuf> {
    std::env::var_os("MILLRACE_CONFIG").filter(|path| !path.is_empty()).map(PathBuf::from)
}

/// What was written: by flags, in the environment and in a file.
pub(crate) struct Loaded {
    written: Written,
    /// The file.
    source: Option<Source>,
}

/// Returns what flags, environment and file mean together.
pub(crate) fn load(flags: Written, file: Option<&Path>) -> Result<Site, Failure> {
    open(flags, file)?.resolve(None)
}

/// Reads the file, and opens nothing else.
pub(crate) fn open(flags: Written, file: Option<&Path>) -> Result<Loaded, Failure> {
    open_with(flags, &environment::variables(), file)
}

fn open_with(
    flags: Written,
    variables: &environment::Variables,
    file: Option<&Path>,
) -> Result<Loaded, Failure> {
    loaded(flags, variables, file.map(read).transpose()?)
}

/// Returns what flags and environment mean together with this text of the file.
pub(crate) fn open_text(flags: Written, file: &Path, text: String) -> Result<Loaded, Failure> {
    loaded(flags, &environment::variables(), Some(source(file, text)))
}

fn loaded(
    flags: Written,
    variables: &environment::Variables,
    source: Option<Source>,
) -> Result<Loaded, Failure> {
    let below = source.as_ref().map_or(Ok(Written::default()), file::read)?;
    let written = flags.over(environment::read(variables)?).over(below);
    Ok(Loaded { written, source })
}

/// Returns the names of the groups in a file.
pub(crate) fn groups(file: &Path) -> Result<Vec<String>, Failure> {
    let loaded = open_with(Written::default(), &environment::Variables::default(), Some(file))?;
    Ok(loaded.written.group.into_iter().map(|group| group.name.value).collect())
}

/// Returns the database of users that a file or the environment names, if one does. `users = "off"` is refused.
pub(crate) fn users(file: Option<&Path>) -> Result<Option<PathBuf>, Failure> {
    let loaded = open(Written::default(), file)?;
    let places = loaded.places();
    match &loaded.written.users {
        Some(said) if said.is_file() => Ok(Some(places.path(said))),
        Some(said) => {
            let why =
                "the server has no database of users; a flag of this command names the one that is meant";
            Err(places.error(&said.place, "users", why))
        }
        None => Ok(None),
    }
}

impl Loaded {
    /// Returns what it means; to a server that runs already, and has counted this for quotas.
    pub(crate) fn resolve(self, quotas: Option<Arc<Quotas>>) -> Result<Site, Failure> {
        let confined = self.confined()?;
        resolve::resolve(self.written, confined, self.source.as_ref(), quotas)
    }

    /// Has the server listen at these addresses, whose sockets are open already, and nowhere else by default.
    pub(crate) fn listening_at(mut self, sockets: Option<&[(millrace_server::Door, SocketAddr)]>) -> Self {
        sockets.iter().for_each(|sockets| doors::listen_at(&mut self.written, sockets));
        self
    }

    fn places(&self) -> Places<'_> {
        Places::of(self.source.as_ref())
    }
}

/// What can be printed of the table of settings.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Reference {
    /// A configuration file with every key, commented out, with its default
    Example,
    /// The JSON Schema of configuration files, for editors
    Schema,
}

/// Prints it.
pub(crate) fn show(what: Reference) -> Result<(), Failure> {
    print(&match what {
        Reference::Example => reference::example(),
        Reference::Schema => format!("{:#}\n", schema::schema::<Written>()),
    })
}

/// Returns how a key is set that has no flag. `None`: there is no such key.
pub(crate) fn instead_of_flag(name: &str) -> Option<String> {
    let row = Written::row(name)?;
    Some(format!("{} has no flag: it is a key of the configuration file, which --config names", row.name))
}

/// Writes the example to a file that is not there yet, and says what to do with it.
pub(crate) fn init(path: &Path) -> Result<(), Failure> {
    let shown = path.display();
    let written = fs::File::create_new(path)
        .and_then(|mut file| io::Write::write_all(&mut file, reference::example().as_bytes()));
    written.map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => Failure::Configuration(format!(
            "{shown} is there already, and stays as it is; name another file."
        )),
        _ => Failure::Running(format!("{shown} cannot be written: {error}.")),
    })?;
    print(&format!(
        "{shown} has every key as a comment. Remove the # before those that you set, then:\n  \
         millrace check {shown}\n  millrace serve --config {shown}\n"
    ))
}

fn read(path: &Path) -> Result<Source, Failure> {
    let failed = |what: String| {
        Failure::Configuration(format!("cannot read the configuration file {}: {what}.", path.display()))
    };
    let bytes = fs::read(path).map_err(|error| failed(error.to_string()))?;
    let text = String::from_utf8(bytes).map_err(|error| {
        let line = error.as_bytes()[..error.utf8_error().valid_up_to()].split(|&byte| byte == b'\n').count();
        failed(format!("line {line} is not UTF-8, which TOML has to be"))
    })?;
    Ok(source(path, text))
}

fn source(path: &Path, text: String) -> Source {
    Source { path: path.to_owned(), text, keys: known_keys() }
}

/// Those of all tables but `[[source]]` and `[[header]]`, which are full of credentials.
fn known_keys() -> KnownKeys {
    KnownKeys {
        file: names::<Written>(),
        user: names::<UserTable>(),
        tables: vec![
            scope_and_names::<ClassTable>(),
            scope_and_names::<ClusterTable>(),
            scope_and_names::<CorsTable>(),
            scope_and_names::<ErrorPageTable>(),
            scope_and_names::<FolderTable>(),
            scope_and_names::<GroupTable>(),
            scope_and_names::<HookTable>(),
            scope_and_names::<HostTable>(),
            scope_and_names::<ListenerTable>(),
            scope_and_names::<NoticeTable>(),
            scope_and_names::<OidcTable>(),
            scope_and_names::<OtlpTable>(),
            scope_and_names::<ProxyTable>(),
        ],
    }
}

#[cfg(test)]
mod tests;
