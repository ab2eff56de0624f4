//! What was written, turned into what it means: defaults added, contradictions refused, trees opened.

use std::collections::HashSet;
use std::mem::take;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use millrace_notices::Rule;
use millrace_server::auth::{Chain, Database, DatabaseError, Homes, HostAddress, Mounts, Password};
use millrace_server::cluster::Cluster;
use millrace_server::limits::Quotas;
use millrace_server::{Authenticator, Config, config};
use millrace_storage::{Ledger, LocalOptions, LocalStorage};
use millrace_telemetry::Collector;
use millrace_terminal::Failure;
use millrace_vfs::VirtualPath;
use millrace_vfs::hash::Algorithms;

use super::admin::AdminSite;
use super::confinement::Confined;
use super::hosts::{Host, HostTable};
use super::logins::{self, Assembly, Login, User, UserList};
use super::origins::{self, Origin, Snapshot};
use super::places::Places;
use super::report::Source;
use super::said::{Place, Said};
use super::setting::Table;
use super::shown::Shown;
use super::slot::is_on;
use super::tls::{self, Encryption, SelfSigned};
use super::value::{Access, Anonymous, LogFormat, Switch, Uploads};
use super::written::Written;
use super::{doors, obstacles, own, sources};

/// Everything that was asked for.
#[derive(Debug)]
pub(crate) struct Site {
    /// The served folder, absolute.
    pub(crate) directory: PathBuf,
    /// Anonymous first, then as written.
    pub(crate) logins: Vec<Login>,
    /// Who else may log in: what comes behind "the users".
    pub(crate) sources: Vec<String>,
    /// The same as `config` has, to be explained.
    pub(crate) accounts: Arc<Chain>,
    /// How files are written.
    pub(crate) files: LocalOptions,
    /// The users' folders.
    homes: Arc<Homes>,
    /// The folders of hosts.
    hosts: Vec<Arc<Homes>>,
    /// The addresses of hosts.
    pub(crate) host_addresses: Vec<HostAddress>,
    /// Virtual folders.
    pub(crate) mounts: Arc<Mounts>,
    /// Where `millrace ctl` finds the server.
    pub(crate) control: Option<PathBuf>,
    /// Where health checks, metrics and the dashboard are served.
    pub(crate) admin: AdminSite,
    /// The database of users.
    database: Option<PathBuf>,
    /// A certificate that has to be there before the server starts.
    pub(crate) self_signed: Option<SelfSigned>,
    /// What the server is started with.
    pub(crate) config: Config,
    /// Whether HTTP is where it is by default, and may be elsewhere.
    pub(crate) http_by_default: bool,
    /// Whether it serves a single connection, which another process has accepted.
    pub(crate) serves_one_connection: bool,
    /// What administrators are told.
    pub(crate) notices: Vec<Rule>,
    /// The collector of OpenTelemetry that is told of it.
    pub(crate) otlp: Option<Collector>,
    /// How the server is confined.
    pub(crate) confined: Confined,
    /// What was written, and where.
    pub(crate) origins: Vec<Origin>,
    /// To be compared by a reload.
    pub(crate) snapshot: Snapshot,
    /// What tables say, to be told.
    pub(crate) shown: Shown,
    /// What can be used, and should be thought over.
    pub(crate) warnings: Warnings,
    /// What would keep a server from starting.
    obstacles: Vec<Failure>,
}

/// Warnings, by what they are about.
#[derive(Debug)]
pub(crate) struct Warnings {
    /// The server's own files in served folders.
    pub(crate) exposed: Vec<String>,
    /// Its keys and passwords that others than their owner may read.
    pub(crate) unguarded: Vec<String>,
    /// Folders that clients reach without their tables.
    pub(crate) reached_twice: Vec<String>,
    /// Arguments of hooks that clients could make options of.
    pub(crate) options_of_clients: Vec<String>,
}

impl Warnings {
    pub(crate) fn all(&self) -> impl Iterator<Item = &String> {
        let Self { exposed, unguarded, reached_twice, options_of_clients } = self;
        [exposed, unguarded, reached_twice, options_of_clients].into_iter().flatten()
    }
}

impl Site {
    /// Refuses what a server could not start with: all of it at once, and before anything is made.
    pub(crate) fn check_obstacles(&self) -> Result<(), Failure> {
        match &self.obstacles[..] {
            [] => Ok(()),
            all => Err(Failure::Configuration(
                all.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"),
            )),
        }
    }

    /// Trees that may hold what a killed server left.
    pub(crate) fn writable(&self) -> Vec<Arc<LocalStorage>> {
        let homes = self.hosts.iter().chain([&self.homes]);
        homes.flat_map(|homes| homes.writable()).chain(self.mounts.writable()).collect()
    }

    /// Tells `millrace user`, in the database of users, in which audit log it has to record changes.
    pub(crate) fn name_audit_log(&self) -> Result<(), DatabaseError> {
        let Some(database) = &self.database else { return Ok(()) };
        let path = self.config.audit.as_ref().map(|audit| &*audit.path);
        Database::open(database)?.set_audit_log(path)
    }

    /// Listens nowhere: there is one connection, which another process has accepted.
    pub(crate) fn serve_one_connection(&mut self) {
        let Config { ftp, ftps, http, https, workers, .. } = &mut self.config;
        [ftp, ftps, http, https].into_iter().for_each(Vec::clear);
        *workers = 1;
        self.control = None;
        self.admin.addresses.clear();
        self.notices.clear();
        self.otlp = None;
        self.config.cluster = None;
        self.serves_one_connection = true;
    }

    /// Opens what `millrace check` does not, so that a mistake is reported before the first login. Returns messages
    /// about unreachable sources, which may be temporary. A server that replaces another shares databases with it.
    pub(crate) fn open(&self, beside_predecessor: bool) -> Result<Vec<String>, Failure> {
        self.mounts.open(beside_predecessor).map_err(|message| Failure::Configuration(format!("{message}.")))
    }
}

/// Bytes for parts of uploads to buckets.
const PART_MEMORY: u64 = 256 << 20;

/// Resolves what was written; `file` is the one that some of it was written in.
pub(crate) fn resolve(
    mut written: Written,
    confined: Confined,
    file: Option<&Source>,
    quotas: Option<Arc<Quotas>>,
) -> Result<Site, Failure> {
    let places = Places::of(file);
    let origins = origins::origins(&written, file);
    let said = written.clone();
    let own_files = own::files(&written, &places);
    let shown = Shown::of(&written, &places);
    let options_of_clients = super::hooks::leading_client_text(&written.hook);
    let other_folders = own::others(&written, &places);
    let cluster = super::cluster::cluster(&written.cluster, &places)?;
    let quotas = quotas.unwrap_or_else(|| self::quotas(&written, cluster.as_ref(), &places));
    let mut limits = super::limits::limits(&written);
    let mut web = super::web::web(&written, &places)?;
    let classes = super::limits::classes(&written.class, &places)?;
    let texts = Arc::new(super::texts::texts(&written, &places)?);
    let redirect = written.https_redirect.clone();
    let Encryption { ftps, https, tls, self_signed, acme } = tls::encryption(&written, &places)?;
    let obstacles = obstacles::places_to_write(&written, self_signed.as_ref(), &places);
    doors::refuse_shared_addresses(&written, &places)?;
    let mut trees = trees(&written, &places)?;
    let dav = kept(&written, "webdav", &places);
    let ban_file = kept(&written, "bans", &places);
    let audit = super::audit::audit_log(&written, &places)?;
    let syslog = super::audit::syslog(&written, &places)?;
    web.hosts = trees.hosts.iter().flat_map(|host| host.tree.known_by.names.clone()).collect();
    let users = users(&mut written, &places)?;
    let groups = written.group.iter().map(|group| group.name.value.clone()).collect();
    let (tables, archives) = (take(&mut written.folder), is_on(written.archives.clone(), false));
    let conversions = is_on(written.conversions.clone(), false);
    millrace_s3::set_part_memory(
        written.part_memory.as_ref().map_or(PART_MEMORY, |said| said.value.0 as u64),
    );
    let mounts = super::folders::mounts(tables, archives, trees.files, &groups, &places)?;
    let folders = program_folders(&written.cgi, &trees.directory, &places)?;
    let programs = config::Programs { folders, ..config::Programs::default() };
    let proxy_routes =
        super::proxy_routes::proxy_routes(take(&mut written.proxy), &trees.directory, &places)?;
    let mounts = mounts.converting(conversions);
    let mounts = Arc::new(mounts.quotas(Arc::clone(&quotas)).withholding(programs.withheld(&proxy_routes)));
    let by_certificate = tls.as_ref().is_some_and(|tls| tls.asks_for_certificates());
    let People { accounts, logins, sources, database } =
        people(&mut written, users, &mut trees, &mounts, &groups, by_certificate, &places)?;
    let anybody_writes = !sources.is_empty()
        || trees.hosts.iter().any(Host::has_own_users)
        || logins.iter().any(|login| login.access == Access::ReadWrite);
    web.download_origin = super::web::download_origin(written.http_download_origin.as_ref(), &web, &places)?;
    if is_on(written.http_sandbox.clone(), anybody_writes) {
        web.fields = take(&mut web.fields).sandboxed();
    }
    let Trees { directory, resumable, files, homes, hosts } = trees;
    let of_hosts: Vec<_> = hosts.iter().map(|host| Arc::clone(&host.tree.homes)).collect();
    let ftp_hosts = hosts.iter().map(|host| host.ftp.clone()).collect();
    let accounts = accounts.quotas(Arc::clone(&quotas));
    let accounts = Arc::new(hosts.into_iter().fold(accounts, |accounts, host| host.add_to(accounts)));

    let default = Config::new(Arc::clone(&accounts) as Arc<dyn Authenticator>);
    let http_by_default = written.http.is_empty();
    let (ftp, http) = doors::in_clear(&written, &[&ftps[..], &https].concat(), &places)?;
    web.https_redirect = super::web::https_redirect(redirect.as_ref(), &https, &places)?;
    let acme = acme.map(|acme| acme.at(&http, &https, &places)).transpose()?;
    let doors = [("FTP", &ftp[..]), ("FTPS", &ftps), ("HTTP", &http), ("HTTPS", &https)];
    limits.listeners = super::limits::listeners(&written.listener, &doors, &places)?;
    let passive_ports = doors::passive_ports(written.passive_ports, &doors, &places)?;
    let mut config = Config {
        program_limits: confined.policy.limits,
        disks: confined.disks.clone(),
        ftp,
        ftps,
        tls,
        acme,
        http,
        https,
        programs,
        web,
        proxy_routes,
        resumable,
        dav,
        ban_file,
        cluster,
        accounts: default.accounts,
        passive_ports,
        hooks: super::hooks::hooks(written.hook, written.hooks_queue.as_ref(), &places)?,
        limits,
        texts,
        classes,
        hosts: ftp_hosts,
        quotas: Some(quotas),
        shutdown_password: shutdown_password(written.shutdown_password, &places)?,
        anonymous: logins.iter().any(|login| login.name.is_none()),
        xferlog: xferlog(written.xferlog, &places)?,
        xferlog_times: is_on(written.xferlog_times, default.xferlog_times),
        access_log: written.access_log.map(|said| places.path(&said)),
        audit,
        syslog,
        log_to_journal: written.log_format.as_ref().is_some_and(|said| said.value == LogFormat::Journal),
        log: log(written.quiet, written.log_format),
        ..default
    };
    Written::ROWS
        .iter()
        .filter_map(|row| row.field.as_ref())
        .for_each(|field| (field.set)(&said, &mut config));
    let snapshot = Snapshot::of(&said, &config);
    let control = written.control.filter(Said::is_file).map(|said| places.path(&said));
    let served = |others| own::served(&directory, &logins, !sources.is_empty(), others);
    let warnings = Warnings {
        exposed: own::warnings(&own_files, &served(other_folders)),
        unguarded: own::unguarded(&own_files),
        reached_twice: own::reached_twice(&said, &places, &served(Vec::new())),
        options_of_clients,
    };
    Ok(Site {
        confined,
        origins,
        snapshot,
        shown,
        warnings,
        obstacles,
        directory,
        logins,
        sources,
        accounts,
        files,
        homes,
        hosts: of_hosts,
        host_addresses: said.host.iter().flat_map(HostTable::addresses).collect(),
        mounts,
        database,
        control,
        admin: super::admin::admin(&said, config.tls.is_some(), &places)?,
        self_signed,
        config,
        http_by_default,
        notices: super::notices::notices(&said.notice, &places)?,
        otlp: super::otlp::collector(&said.otlp, &places)?,
        serves_one_connection: false,
    })
}

/// What uploads are hashed by where that is not said: `bench-runs/upload-hash/` has what each costs.
const UNSAID_HASHES: Algorithms = Algorithms::NONE;

/// The served trees, and how uploads are written.
struct Trees {
    directory: PathBuf,
    resumable: config::Resumable,
    files: LocalOptions,
    homes: Arc<Homes>,
    hosts: Vec<Host>,
}

fn trees(written: &Written, places: &Places<'_>) -> Result<Trees, Failure> {
    let directory = directory(written.directory.as_ref(), places)?;
    let default_age = config::Resumable::default().age;
    let resumable = config::Resumable {
        is_on: is_on(written.tus.clone(), true),
        age: written.tus_expire.as_ref().map_or(default_age, |said| said.value.0),
        secret: kept(written, "tus.key", places),
    };
    let files = LocalOptions {
        partial_age: resumable.age,
        is_shared: !written.cluster.is_empty(),
        uploads: written.uploads.as_ref().map_or(millrace_storage::Uploads::Staged, |said| {
            let Uploads(uploads) = said.value;
            uploads
        }),
        durability: written.durability.as_ref().map_or_else(Default::default, |said| said.value.0),
        hashes: super::folders::hashes(&written.upload_hash, places)?.unwrap_or(UNSAID_HASHES),
        ..LocalOptions::default()
    };
    let homes = Arc::new(Homes::new(directory.clone(), files));
    let hosts = super::hosts::hosts(&written.host, files, places)?;
    Ok(Trees { directory, resumable, files, homes, hosts })
}

/// The users, and their descriptions.
struct People {
    accounts: Chain,
    logins: Vec<Login>,
    sources: Vec<String>,
    database: Option<PathBuf>,
}

/// The users, with all that is known of accounts besides; `groups` are the names that there are.
fn people(
    written: &mut Written,
    mut users: Vec<User>,
    trees: &mut Trees,
    mounts: &Arc<Mounts>,
    groups: &HashSet<String>,
    by_certificate: bool,
    places: &Places<'_>,
) -> Result<People, Failure> {
    let (homes, tables) = (Arc::clone(&trees.homes), take(&mut written.group));
    let mut assembly = Assembly::new(&trees.directory, homes, Arc::clone(mounts), tables, places)?;
    assembly.shows_dotfiles = is_on(written.anonymous_dotfiles.clone(), false);
    let database = super::database::open(written.users.as_ref(), places)?;
    let of_hosts = logins::take_those_of_hosts(&mut users, &trees.hosts, places)?;
    let has_users = !users.is_empty() || database.is_some() || !written.source.is_empty();
    let have_users = !of_hosts.is_empty() || trees.hosts.iter().any(Host::has_own_users);
    let anonymous = anonymous(written.anonymous.take(), has_users, have_users, places)?;
    logins::check_names(&users, anonymous.is_some(), places)?;
    let (accounts, logins) = assembly.all(anonymous, users, by_certificate)?;
    for (place, users) in of_hosts {
        let host = &mut trees.hosts[place];
        logins::check_names(&users, host.tree.anonymous.unwrap_or(anonymous.is_some()), places)?;
        host.listed = Some(assembly.of_host(host, users, by_certificate)?);
    }
    let (accounts, mut sources, database) = match database {
        Some((users, path)) => (accounts.source(users), vec![format!("of {}", path.display())], Some(path)),
        None => (accounts, Vec::new(), None),
    };
    let tables = take(&mut written.source);
    let (accounts, more) = sources::add(tables, accounts, &trees.directory, groups, places)?;
    sources.extend(more);
    Ok(People { accounts, logins, sources, database })
}

fn directory(said: Option<&Said<PathBuf>>, places: &Places<'_>) -> Result<PathBuf, Failure> {
    let here = Said::on_command_line(PathBuf::from("."));
    let said = said.unwrap_or(&here);
    let path = places.path(said);
    let wrong = |message: String| Err(places.error(&said.place, "DIR", &message));
    match path.canonicalize() {
        Ok(directory) if directory.is_dir() => Ok(directory),
        Ok(_) => wrong(format!("{} is not a folder; name the folder that it is in", path.display())),
        Err(error) => wrong(format!(
            "the folder {} cannot be served: {error}; make it first, or name another",
            path.display()
        )),
    }
}

/// The quotas of a server that begins: their counts are in a file, or in the database of its cluster.
fn quotas(written: &Written, cluster: Option<&Arc<Cluster>>, places: &Places<'_>) -> Arc<Quotas> {
    let ledger = Ledger::new(quotas_file(written, places));
    Arc::new(Quotas::new(match cluster {
        Some(cluster) => ledger.share(Arc::clone(cluster) as _),
        None => ledger,
    }))
}

/// The file of quotas' counts.
fn quotas_file(written: &Written, places: &Places<'_>) -> Option<PathBuf> {
    match &written.quotas {
        Some(said) if said.value == Path::new("off") => None,
        Some(said) => Some(places.path(said)),
        None => kept(written, "quotas.db", places),
    }
}

/// A file in the state folder, if there is one.
pub(super) fn kept(written: &Written, name: &str, places: &Places<'_>) -> Option<PathBuf> {
    tls::state_folder(written, &Place::CommandLine, places).ok().map(|folder| folder.join(name))
}

/// Folders of programs: where they are in the tree, and in the file system.
fn program_folders(
    said: &[Said<PathBuf>],
    directory: &Path,
    places: &Places<'_>,
) -> Result<Vec<(VirtualPath, PathBuf)>, Failure> {
    let one = |said: &Said<PathBuf>| {
        let wrong = |why: &str| {
            let message =
                format!("the folder {} {why}; name one in that which is served", said.value.display());
            Err(places.error(&said.place, "--cgi", &message))
        };
        // Within the served folder, as it is written: that is how clients name it.
        let relative = said.value.strip_prefix(directory).unwrap_or(&said.value);
        let path = VirtualPath::root().resolve(relative.as_os_str().as_encoded_bytes());
        match directory.join(relative).canonicalize() {
            Err(_) => wrong("is not there"),
            Ok(folder) if !folder.is_dir() => wrong("is no folder"),
            Ok(folder) if folder == directory || !folder.starts_with(directory) => wrong("is not within it"),
            Ok(folder) => path.map(|path| (path, folder)).or_else(|_| wrong("has no usable name")),
        }
    };
    said.iter().map(one).collect()
}

fn users(written: &mut Written, places: &Places<'_>) -> Result<Vec<User>, Failure> {
    let UserList { texts, tables } = take(&mut written.user);
    let from_flags = texts.iter().map(|said| User::from_text(said, places));
    let from_tables = tables.into_iter().map(|table| User::from_table(table, places));
    from_flags.chain(from_tables).collect()
}

fn anonymous(
    said: Option<Said<Anonymous>>,
    has_users: bool,
    hosts_have_users: bool,
    places: &Places<'_>,
) -> Result<Option<Access>, Failure> {
    match said {
        None => Ok((!has_users).then_some(Access::ReadOnly)),
        Some(Said { value: Anonymous(None), place }) if !has_users && !hosts_have_users => {
            let message = "no login is possible: anonymous is off and there is no user; add a user, or let anonymous \
                           read (ro)";
            Err(places.error(&place, "--anonymous", message))
        }
        Some(said) => Ok(said.value.0),
    }
}

fn shutdown_password(said: Option<Said<String>>, places: &Places<'_>) -> Result<Option<Password>, Failure> {
    said.map(|said| {
        Password::hashed(&said.value).map_err(|error| {
            let message = format!("{error}. Run `millrace hash-password` and write here what it prints");
            places.error(&said.place, "shutdown-password", &message)
        })
    })
    .transpose()
}

/// A transfer log that could be written to now, without touching it.
fn xferlog(said: Option<Said<PathBuf>>, places: &Places<'_>) -> Result<Option<PathBuf>, Failure> {
    let Some(said) = said else { return Ok(None) };
    let path = places.path(&said);
    match obstacles::file(&path) {
        Ok(()) => Ok(Some(path)),
        Err(obstacle) => Err(places.error(&said.place, "--xferlog", &obstacle.to_string())),
    }
}

fn log(quiet: Option<Said<Switch>>, format: Option<Said<LogFormat>>) -> config::LogFormat {
    match (is_on(quiet, false), format.map(|said| said.value)) {
        (true, Some(LogFormat::Json | LogFormat::Journal)) => config::LogFormat::JsonWarnings,
        (true, _) => config::LogFormat::Warnings,
        (false, Some(LogFormat::Json | LogFormat::Journal)) => config::LogFormat::Json,
        (false, Some(LogFormat::Text) | None) => config::LogFormat::Text,
    }
}
