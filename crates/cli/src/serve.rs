//! `millrace serve`: starts the server, announces it, and stops it on request.

use std::env;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{self, Command};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use millrace_admin::{Administration, Control, Orders, Reloaded, Tokens, sockets};
use millrace_admin_http::{AdminHttp, ConfigurationFile, Setup};
use millrace_load::units::counted;
use millrace_notices::Notices;
use millrace_server::limits::Quotas;
use millrace_server::{Config, Door, Predecessor, Prepared, ReloadError, Running, Server, StartError};
use millrace_storage::{LocalStorage, SweepReport};
use millrace_terminal::{Failure, has_color};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::activation::Activated;
use crate::announce::{self, Bound, Terminal};
use crate::args::Serve;
use crate::config::{self, Changed, Confined, Loaded, Site, Snapshot, Written};
use crate::confine::Held;
use crate::inetd;
use crate::notices;
use crate::notify;
use crate::ready;

/// Means that standard input is connected to the server to be replaced.
const TAKE_OVER: &str = "--take-over";

/// What a server begins with.
enum Beginning {
    /// Nothing but its configuration, and maybe sockets that a service manager has opened.
    Fresh(Option<Activated>),
    /// The server that it replaces.
    Upgrade(Predecessor),
    /// A connection, with which it ends.
    Connection(Door, OwnedFd),
}

pub(crate) fn run(arguments: Serve) -> Result<(), Failure> {
    if let Some(given) = arguments.inetd {
        let socket = inetd::take_connection()?;
        let (door, client) = (given.into(), socket.try_clone().ok());
        return serve(arguments, Beginning::Connection(door, socket))
            .inspect_err(|_| client.iter().for_each(|client| inetd::refuse(door, client)));
    }
    match arguments.take_over {
        false => serve(arguments, Beginning::Fresh(Activated::receive()?)),
        true => {
            let (before, socket) = meet()?;
            serve(arguments, Beginning::Upgrade(before))
                .inspect_err(|failure| Predecessor::fail(&socket, failure.to_string().trim_end_matches('.')))
        }
    }
}

/// Connects to the predecessor during `millrace ctl upgrade`, over standard input; and returns the descriptor for
/// reporting a failed start.
fn meet() -> Result<(Predecessor, OwnedFd), Failure> {
    let failed = |error: io::Error| {
        Failure::Running(format!(
            "there is no server to be relieved ({error}): --take-over is how \"millrace ctl upgrade\" starts another."
        ))
    };
    let socket = io::stdin().as_fd().try_clone_to_owned().map_err(failed)?;
    let nothing = File::open("/dev/null").map_err(failed)?;
    rustix::stdio::dup2_stdin(nothing).map_err(|error| failed(error.into()))?;
    let own = socket.try_clone().map_err(failed)?;
    Ok((Predecessor::meet(socket).map_err(failed)?, own))
}

/// The command that starts the successor: the program of the same name, which may be a new version.
fn successor() -> Vec<OsString> {
    let mut words = env::args_os();
    let program = words.next().unwrap_or_else(|| "millrace".into());
    let mut words: Vec<_> = words.filter(|word| word != TAKE_OVER).collect();
    // Behind the command's name: what follows may be no flags.
    words.insert(words.len().min(1), TAKE_OVER.into());
    words.insert(0, program);
    words
}

/// The same, to be started by this process.
fn successor_command() -> Command {
    let words = successor();
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]);
    command
}

fn serve(arguments: Serve, beginning: Beginning) -> Result<(), Failure> {
    let Serve { config: file, written, ready_file, ready_json, .. } = arguments;
    let file = file.or_else(config::named_by_environment);
    let (mut before, activated, connection) = match beginning {
        Beginning::Fresh(activated) => (None, activated, None),
        Beginning::Upgrade(before) => (Some(before), None, None),
        Beginning::Connection(door, socket) => (None, None, Some((door, socket))),
    };
    let sockets = match &before {
        Some(before) => Activated::of_predecessor(before),
        None => activated.as_ref().map(Activated::addresses),
    };
    let Activated { listeners, control: inherited } = activated.unwrap_or_default();
    let loaded = config::open(written.clone(), file.as_deref())?.listening_at(sockets.as_deref());
    // Before anything else is opened, and before there is a second thread.
    let confined = loaded.confined()?;
    let confined = if connection.is_some() { confined.without_control() } else { confined };
    let helper = before.as_mut().and_then(Predecessor::take_helper);
    let held = Held::confine(&confined, ready_file.as_deref(), successor(), helper)?;
    let mut site = loaded.resolve(None)?;
    site.config.inherited = listeners;
    if connection.is_some() {
        site.serve_one_connection();
    }
    site.check_obstacles()?;
    let away = site.open(before.is_some())?;
    let troubles = site.accounts.begin();
    if let Some(certificate) = &site.self_signed {
        certificate.make()?;
    }
    // Before the server starts: a signal that comes while it does is not lost.
    let signals = Signals::new([SIGHUP, SIGINT, SIGTERM])
        .map_err(|error| Failure::Running(format!("cannot listen for signals: {error}")))?;
    ready_file.iter().for_each(|path| ready::clear(path));
    let failed = |error: StartError| Failure::Running(advise(&error, &site.config));
    let (prepared, moved) = prepare(&site, held.told(), before.as_ref()).map_err(failed)?;
    // While its port may yet be one of root's.
    let admin = Arc::new(bind_admin(&site.admin.addresses, before.as_mut())?);
    held.drop_privileges()?;
    let running = Arc::new(prepared.begin(before.as_mut()).map_err(failed)?);
    moved.iter().for_each(|warning| warn(&running, warning));
    if let Err(error) = site.name_audit_log() {
        warn(&running, &format!("\"millrace user\" does not learn of the audit log: {error}"));
    }
    for trouble in troubles {
        warn(&running, &format!("{trouble}; its users are refused until it can"));
    }
    for trouble in away {
        warn(&running, &trouble);
    }
    let folder = confined.control_folder.clone();
    let again = Again {
        written,
        file,
        sockets,
        running: Arc::downgrade(&running),
        quotas: site.config.quotas.clone(),
        begun: site.snapshot.clone(),
        last: Arc::new(Mutex::new(site.snapshot.clone())),
        confined,
        admin: Arc::clone(&admin),
    };
    let notices = Arc::new(notices::watch(std::mem::take(&mut site.notices), &running)?);
    let telemetry = site.otlp.take().map(|collector| millrace_admin_http::tell(collector, &running));
    let telemetry = telemetry.transpose().map_err(|error| no_thread(&error))?;
    let administration = administration(&site, &running, orders(&again, notices));
    let control = match folder.filter(|_| inherited.is_none()) {
        Some(folder) => open_default_control(&folder, &running, &administration),
        None => open_control(site.control.as_deref(), inherited, before.is_some(), &administration)?,
    };
    serve_admin(&admin, &site, &running, administration, again.file.clone())?;
    let is_main = before.is_none();
    before.into_iter().for_each(|before| before.serving(&running));
    match connection {
        Some((door, socket)) => running
            .serve_connection(door, socket)
            .map_err(|error| Failure::Running(format!("the connection cannot be served: {error}.")))?,
        None => announce(&site, &running, admin.addresses(), ready_json, ready_file.as_deref())?,
    }
    if is_main {
        notify::say("READY=1");
    }
    listen_to_signals(signals, Arc::downgrade(&running), again)?;
    // A process for each connection would each look through the whole tree.
    if !site.serves_one_connection {
        sweep(site.writable(), Arc::downgrade(&running));
    }
    running.wait();
    drop(control);
    admin.close();
    telemetry.iter().for_each(|telemetry| telemetry.finish(LAST_LOOK));
    let lingering = Lingering::of(&running, &site);
    // FTP and HTTP, and so the whole served tree: unnamed files of open uploads leave nothing behind.
    drop((running, site));
    lingering.wait();
    Ok(())
}

/// How long the end waits for a thread that has just heard of it, or still looks through a tree.
const LAST_LOOK: Duration = Duration::from_secs(2);

/// Resources that other threads may hold for a moment longer than the server runs: the last holder cleans up, and the
/// program must not end before that.
struct Lingering {
    running: Weak<Running>,
    trees: Vec<Weak<LocalStorage>>,
}

impl Lingering {
    fn of(running: &Arc<Running>, site: &Site) -> Self {
        let trees = site.writable().iter().map(Arc::downgrade).collect();
        Self { running: Arc::downgrade(running), trees }
    }

    fn wait(&self) {
        let end = Instant::now() + LAST_LOOK;
        let is_held =
            || self.running.strong_count() > 0 || self.trees.iter().any(|tree| tree.strong_count() > 0);
        while is_held() && Instant::now() < end {
            thread::sleep(Duration::from_millis(1));
        }
    }
}

/// What is needed to reload the configuration.
#[derive(Clone)]
struct Again {
    written: Written,
    file: Option<PathBuf>,
    /// Where sockets were handed to it.
    sockets: Option<Vec<(Door, SocketAddr)>>,
    running: Weak<Running>,
    /// The counts of quotas: shared by the accounts before and after a reload.
    quotas: Option<Arc<Quotas>>,
    /// The settings that the server was started with.
    begun: Snapshot,
    /// Those of the last reload.
    last: Arc<Mutex<Snapshot>>,
    /// What it may use since then.
    confined: Confined,
    /// Health checks and metrics, until a successor has them.
    admin: Arc<AdminHttp>,
}

/// Why a reload changed nothing.
#[derive(Debug, thiserror::Error)]
enum ReloadRefused {
    /// The file is wrong, or needs more than the sandbox grants.
    #[error("the old configuration stays in force: {0}")]
    Configuration(#[from] Failure),
    /// The server cannot apply it.
    #[error("the old configuration stays in force: {0}")]
    Server(#[from] ReloadError),
}

impl Again {
    /// Applies what the file says now; where that is wrong, all stays as it was. Returns the keys that have changed.
    fn reload(&self) -> Result<Reloaded, ReloadRefused> {
        let site = self.load()?;
        self.admin.configure(site.admin.access);
        let snapshot = site.snapshot;
        if let Some(running) = self.running.upgrade() {
            running.reload(site.config)?;
        }
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::replace(&mut *last, snapshot.clone());
        let Changed { now: changed, at_next_start: next_start } = self.begun.compare(&before, &snapshot);
        self.running.upgrade().iter().for_each(|running| running.note_reloaded(&changed, &next_start));
        Ok(Reloaded { changed, next_start })
    }

    /// Reads the configuration, unless it needs what the sandbox leaves out of reach.
    fn load(&self) -> Result<Site, Failure> {
        self.resolve(config::open(self.written.clone(), self.file.as_deref())?)
    }

    /// Looks at a text of the configuration file as if it were there.
    fn validate(&self, text: &str) -> Result<(), Failure> {
        let Some(file) = &self.file else { return Ok(()) };
        self.resolve(config::open_text(self.written.clone(), file, text.to_owned())?)?.check_obstacles()
    }

    fn resolve(&self, loaded: Loaded) -> Result<Site, Failure> {
        let loaded = loaded.listening_at(self.sockets.as_deref());
        let next = loaded.confined()?;
        next.check_helper()?;
        if self.confined.wants_sandbox() {
            self.confined.check_reload(&next)?;
        }
        loaded.resolve(self.quotas.clone())
    }
}

/// What an operator should know of a reload, in a sentence for the log; nothing where all that has changed is in force.
fn trouble(reloaded: Result<Reloaded, ReloadRefused>) -> Option<String> {
    match reloaded {
        Err(why) => Some(on_one_line(&why.to_string())),
        Ok(Reloaded { next_start, .. }) if next_start.is_empty() => None,
        Ok(Reloaded { next_start, .. }) => {
            Some(format!("configuration reloaded; these need a restart: {}", next_start.join(", ")))
        }
    }
}

/// Returns errors of a file without the lines that they quote, which a log has no room for.
fn on_one_line(text: &str) -> String {
    text.lines().filter(|line| !line.starts_with(' ')).collect::<Vec<_>>().join(" ")
}

/// Listens where health checks, metrics and the admin API are.
fn bind_admin(addresses: &[SocketAddr], before: Option<&mut Predecessor>) -> Result<AdminHttp, Failure> {
    AdminHttp::bind(addresses, before).map_err(|(address, source)| {
        let hint = hint(&source, &address, "--admin");
        Failure::Running(format!("cannot serve health and metrics at {address} (--admin): {source}{hint}."))
    })
}

/// Answers there.
fn serve_admin(
    admin: &AdminHttp,
    site: &Site,
    running: &Arc<Running>,
    administration: Arc<Administration>,
    file_of: Option<PathBuf>,
) -> Result<(), Failure> {
    let history =
        site.admin.state.as_deref().map(|folder| file_of_served(site, folder).with_extension("history"));
    let file = |path: PathBuf| {
        let path = std::path::absolute(&path).unwrap_or(path);
        ConfigurationFile { path, is_writable: site.admin.writes_config, history }
    };
    let setup = Setup { administration, access: site.admin.access.clone(), configuration: file_of.map(file) };
    admin
        .serve(running, Some(setup), site.admin.has_tls)
        .map_err(|error| Failure::Running(format!("cannot serve health and metrics (--admin): {error}.")))
}

/// What performs the orders of administrators. Where the tokens of the admin API cannot be read, as the account that the server
/// runs as may not enter the folder, none is taken, and clients are served all the same.
fn administration(site: &Site, running: &Arc<Running>, orders: Orders) -> Arc<Administration> {
    let state = site.admin.state.as_deref().filter(|_| !site.serves_one_connection);
    let tokens = Tokens::open(state.map(|folder| file_of_served(site, folder))).unwrap_or_else(|error| {
        if !site.admin.addresses.is_empty() {
            warn(running, &format!("{error}; no token is taken"));
        }
        Tokens::default()
    });
    Administration::new(running, orders, tokens)
}

/// Opens the control socket: at its path, in the place of a predecessor's, or as a service manager has opened it.
fn open_control(
    path: Option<&Path>,
    inherited: Option<(PathBuf, UnixListener)>,
    replaces: bool,
    administration: &Arc<Administration>,
) -> Result<Option<Control>, Failure> {
    let (path, opened) = match (inherited, path) {
        (Some((path, listener)), _) => {
            let opened = Control::inherited(&path, listener, administration);
            (path, opened)
        }
        (None, Some(path)) if replaces => (path.to_owned(), Control::replace(path, administration)),
        (None, Some(path)) => (path.to_owned(), Control::open(path, administration)),
        (None, None) => return Ok(None),
    };
    opened.map(Some).map_err(|error| {
        let hint = match error.kind() {
            io::ErrorKind::AddrInUse if is_socket(&path) => " (another server answers there)",
            io::ErrorKind::AddrInUse => " (a file that is no socket is there: remove it, or name another)",
            io::ErrorKind::NotFound => "; make its folder first, or name another",
            _ => "",
        };
        Failure::Running(format!("cannot open the control socket {}: {error}{hint}.", path.display()))
    })
}

/// Opens the control socket that no setting names. A server that cannot have it serves all the same.
fn open_default_control(
    folder: &Path,
    running: &Running,
    administration: &Arc<Administration>,
) -> Option<Control> {
    let without = |why: &dyn std::fmt::Display| {
        warn(
            running,
            &format!("there is no control socket: {why}; \"control\" names another place, or is \"off\""),
        );
    };
    let path = sockets::own_socket(folder).inspect_err(|error| without(error)).ok()?;
    Control::open(&path, administration)
        .inspect_err(|error| without(&format!("{}: {error}", path.display())))
        .ok()
}

/// What administrators can have done.
fn orders(again: &Again, notices: Arc<Notices>) -> Orders {
    let (again, admin) = (again.clone(), Arc::clone(&again.admin));
    let validating = again.clone();
    Orders {
        reload: Box::new(move || Ok(again.reload()?)),
        validate: Box::new(move |text| Ok(validating.validate(text)?)),
        test_notices: Box::new(move || notices.test()),
        successor: Box::new(successor_command),
        relieved: Box::new(move |pid| {
            // The successor listens there by now.
            admin.stop_listening();
            notify::say(&format!("MAINPID={pid}\nREADY=1"));
        }),
    }
}

fn is_socket(path: &Path) -> bool {
    path.metadata().is_ok_and(|found| found.file_type().is_socket())
}

/// Prints a warning: as text, or in the log if its format is JSON.
fn warn(running: &Running, warning: &str) {
    if !running.warn_in_json(warning) {
        let _ = writeln!(io::stderr(), "warning: {warning}");
    }
}

/// Prepares everything that comes before clients. If another program has HTTP's default port, which was not configured,
/// a free one is taken; the announcement names it, with a warning.
fn prepare(
    site: &Site,
    confinement: String,
    before: Option<&Predecessor>,
) -> Result<(Prepared, Option<String>), StartError> {
    let config = Config {
        confinement: Some(confinement),
        dav: site.config.dav.as_deref().map(|folder| file_of_served(site, folder)),
        ban_file: site.config.ban_file.as_deref().map(|folder| file_of_served(site, folder)),
        ..site.config.clone()
    };
    match Server::prepare(config.clone(), before) {
        Err(StartError::Listen { address, source })
            if site.http_by_default
                && site.config.http == [address]
                && source.kind() == io::ErrorKind::AddrInUse =>
        {
            let mut config = config;
            config.http.iter_mut().for_each(|address| address.set_port(0));
            let moved = format!(
                "another program has {address}, where HTTP is by default; it is on a free port now, and --http \
                 ADDR:PORT or --http off chooses"
            );
            Ok((Server::prepare(config, before)?, Some(moved)))
        }
        prepared => Ok((prepared?, None)),
    }
}

/// Returns the file of this server in a folder of state: one for each served folder, named by its number (FNV-1a). Two
/// servers of one account have other locks, properties and bans.
fn file_of_served(site: &Site, folder: &Path) -> PathBuf {
    let bytes = site.directory.as_os_str().as_encoded_bytes().iter();
    let number = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    folder.join(format!("{number:016x}.json"))
}

/// Prints where the server is open, and writes the file of `--ready-file`. A closed standard output stops nothing.
fn announce(
    site: &Site,
    running: &Running,
    admin: &[SocketAddr],
    in_json: bool,
    ready_file: Option<&Path>,
) -> Result<(), Failure> {
    let bound = Bound {
        ftp: running.ftp_addresses(),
        ftps: running.ftps_addresses(),
        http: running.http_addresses(),
        https: running.https_addresses(),
        admin,
        admin_has_tls: site.admin.has_tls,
    };
    announce::warnings(site, bound).iter().for_each(|warning| warn(running, warning));
    let text = match in_json {
        true => ready::line(bound),
        false => {
            let terminal = io::stdout().is_terminal().then(|| Terminal { color: has_color(&io::stdout()) });
            announce::announcement(site, bound, &running.fingerprints(), terminal)
        }
    };
    ready_file.map_or(Ok(()), |path| ready::write(path, bound))?;
    let mut out = io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    Ok(())
}

/// SIGHUP reads the configuration anew. Of the others the first asks the transfers to end; the second does
/// not ask.
fn listen_to_signals(mut signals: Signals, running: Weak<Running>, again: Again) -> Result<(), Failure> {
    let listen = move || {
        let mut is_ending = false;
        for signal in signals.forever() {
            match (signal, running.upgrade()) {
                (SIGHUP, Some(running)) => {
                    let reloaded = again.reload();
                    let failed = reloaded.as_ref().err().map(|why| on_one_line(&why.to_string()));
                    running.note_administered("SIGHUP", failed.as_deref(), None);
                    trouble(reloaded).iter().for_each(|trouble| running.warn(trouble));
                }
                (SIGHUP, None) => {}
                (signal, _) if is_ending => process::exit(128 + signal),
                (signal, running) => {
                    is_ending = true;
                    let what = if signal == SIGINT { "SIGINT" } else { "SIGTERM" };
                    running.iter().for_each(|running| running.note_administered(what, None, None));
                    running.iter().for_each(|running| running.note_why_it_ends(what));
                    running.iter().for_each(|running| running.request_shutdown());
                }
            }
        }
    };
    thread::Builder::new()
        .name("millrace-signals".to_owned())
        .spawn(listen)
        .map(drop)
        .map_err(|error| no_thread(&error))
}

fn no_thread(error: &io::Error) -> Failure {
    Failure::Running(format!("cannot start a thread: {error}"))
}

/// How often expired partial uploads are removed.
const SWEEP: Duration = Duration::from_secs(3600);

/// The warning about a sweep. Unreadable folders are not reported where nothing was left behind.
fn swept(report: SweepReport) -> Option<String> {
    let SweepReport { removed, failed, unseen, .. } = report;
    let about = |count: u64, what: String| if count > 0 { format!("; {what}") } else { String::new() };
    (removed > 0 || failed > 0).then(|| {
        format!(
            "removed {} that a killed server left unfinished{}{}",
            counted(removed, "upload"),
            about(failed, format!("{failed} could not be removed")),
            about(unseen, format!("{} could not be looked through", counted(unseen, "folder")))
        )
    })
}

/// Removes what a killed server left, while this one already serves; and now and then what clients have left.
fn sweep(trees: Vec<Arc<LocalStorage>>, running: Weak<Running>) {
    // They end with the server, which this thread does not keep from it.
    let trees: Vec<Weak<LocalStorage>> = trees.iter().map(Arc::downgrade).collect();
    let sweep = move || {
        for tree in trees.iter().filter_map(Weak::upgrade) {
            if let (Some(text), Some(running)) = (swept(tree.sweep()), running.upgrade()) {
                warn(&running, &text);
            }
        }
        loop {
            thread::sleep(SWEEP);
            trees.iter().filter_map(Weak::upgrade).for_each(|tree| tree.sweep_partials());
        }
    };
    // Without a thread the leftovers stay, hidden, until the next start.
    let _ = thread::Builder::new().name("millrace-sweep".to_owned()).spawn(sweep);
}

fn advise(error: &StartError, config: &Config) -> String {
    let hint = match error {
        StartError::Listen { address, source } => {
            let doors = [("--ftps", &config.ftps), ("--http", &config.http), ("--https", &config.https)];
            let door = doors.iter().find(|(_, addresses)| addresses.contains(address));
            hint(source, address, door.map_or("--ftp", |(flag, _)| flag))
        }
        _ => String::new(),
    };
    format!("{error}{hint}.")
}

/// Returns what to do about an address that cannot be listened on, which this flag chooses.
fn hint(error: &io::Error, address: &SocketAddr, flag: &str) -> String {
    match error.kind() {
        io::ErrorKind::AddrInUse => {
            let host = address_of(address);
            format!("; another program has that port: end it, or choose another, such as {flag} {host}:0")
        }
        io::ErrorKind::PermissionDenied => {
            "; ports below 1024 need root or the capability CAP_NET_BIND_SERVICE".to_owned()
        }
        io::ErrorKind::AddrNotAvailable => {
            "; this computer has no such address: 0.0.0.0 stands for all that it has".to_owned()
        }
        _ => String::new(),
    }
}

fn address_of(address: &SocketAddr) -> String {
    match address {
        SocketAddr::V4(address) => address.ip().to_string(),
        SocketAddr::V6(address) => format!("[{}]", address.ip()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sweep_is_told_of_where_something_was_left() {
        let told =
            |removed, failed, unseen| swept(SweepReport { removed, failed, unseen, ..Default::default() });
        assert_eq!(told(0, 0, 3), None);
        let whole = "removed 2 uploads that a killed server left unfinished";
        assert_eq!(told(2, 0, 0).unwrap(), whole);
        assert!(told(1, 0, 1).unwrap().starts_with("removed 1 upload that"));
        let rest = "; 1 could not be removed; 3 folders could not be looked through";
        assert_eq!(told(2, 1, 3).unwrap(), format!("{whole}{rest}"));
    }
}
