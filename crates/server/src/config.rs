//! Everything about a server that can be set, with its default.
//!
//! This is what it *means*; what a person writes (flags, TOML) is turned into it by the command line's
//! `config` module.

use std::net::{Ipv4Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

pub use millrace_acme::{Acme, Challenge, ChallengeError, Clock, LETS_ENCRYPT, NotBuilt};
pub use millrace_ftp::session::Texts;
pub use millrace_ftp_server::FtpHost;
pub use millrace_gateway::settings::ProgramSettings as Programs;
pub use millrace_gateway::upstream::{Peer, ProxyRoute, Upstream};
pub use millrace_http::forwarded::ForwardingField;
pub use millrace_http_server::{Resumable, TrustedProxies};
pub use millrace_net::tls::{Authorities, Clients, KeyPair, LoadError, Plan, Trust, self_signed};
pub use millrace_process::ProgramLimits;

use millrace_cluster::Cluster;

use crate::auth::{Authenticator, Password};
pub use crate::auth::{CertificateLogin, CertificateLoginError, Resumption, ResumptionError};
use crate::hooks::Hooks;
use crate::limits::{BanRules, Class, Limit, LoginRates, Network, NetworkBits, Quotas, ServerLimits};
pub use crate::log::audit::AuditSettings;
pub use crate::log::{AccessFormat, LogFormat, Rotation, SyslogError, SyslogSettings};
pub use crate::tls::{CloseNotify, Tls};
use crate::web::Web;
use crate::worker::Door;

/// A listening socket that another process has opened: a service manager.
#[derive(Debug, Clone)]
pub struct Inherited {
    /// What is spoken there.
    pub door: Door,
    /// The address that it is bound to.
    pub address: SocketAddr,
    /// The socket.
    pub socket: Arc<OwnedFd>,
}

/// What a server is started with.
#[derive(Debug, Clone)]
pub struct Config {
    /// Where FTP is served; port 0 takes a free one. Empty: nowhere.
    pub ftp: Vec<SocketAddr>,
    /// Where FTP is served that begins with TLS (implicit FTPS). Empty: nowhere.
    pub ftps: Vec<SocketAddr>,
    /// Certificates, and what they are for. `None`: no TLS.
    pub tls: Option<Tls>,
    /// A certificate among those of `tls` that the server fetches and renews itself.
    pub acme: Option<Acme>,
    /// The addresses of HTTP, in the same form.
    pub http: Vec<SocketAddr>,
    /// Where HTTP is served that begins with TLS. Empty: nowhere.
    pub https: Vec<SocketAddr>,
    /// Sockets that are open already, for addresses among those above.
    pub inherited: Vec<Inherited>,
    /// How this process is confined, for the log.
    pub confinement: Option<String>,
    /// Programs that HTTP runs (CGI).
    pub programs: Programs,
    /// What each program may use that this process starts: hooks, CGI, those that decide logins.
    pub program_limits: ProgramLimits,
    /// What HTTP adds to files, and names of hosts.
    pub web: Web,
    /// Paths of HTTP that others answer. The first that takes a path has it.
    pub proxy_routes: Vec<ProxyRoute>,
    /// Uploads by HTTP that go on where they were cut (tus).
    pub resumable: Resumable,
    /// The cluster that this server is to be a node of; no member yet. A reload does not change it.
    pub cluster: Option<Arc<Cluster>>,
    /// Folders whose free space is read, for metrics and notices.
    pub disks: Vec<PathBuf>,
    /// The file in which bans are kept, so that they outlive the server.
    pub ban_file: Option<PathBuf>,
    /// The file in which locks and properties of WebDAV are kept, so that they outlive the server.
    pub dav: Option<PathBuf>,
    /// The users, and their files.
    pub accounts: Arc<dyn Authenticator>,
    /// Ports for passive data connections. Nothing ever leaves this range.
    pub passive_ports: RangeInclusive<u16>,
    /// Networks of proxies, which name their clients (PROXY protocol); other connections from there are refused.
    pub proxy_from: Vec<Network>,
    /// Proxies that pass requests of HTTP on, and name their client.
    pub trusted_proxies: TrustedProxies,
    /// The address that PASV names instead of the server's own (NAT).
    pub public_ip: Option<Ipv4Addr>,
    /// Reactor threads; 0 for one a core.
    pub workers: usize,
    /// Threads at most for what may wait: disks, hashes, passwords.
    pub blocking_threads: usize,
    /// The hooks for session events.
    pub hooks: Option<Arc<dyn Hooks>>,
    /// Threads for hooks at most, which is how many hooks may be called at a time.
    pub hook_threads: usize,
    /// Sessions at most; none for what the descriptor limit allows.
    pub sessions: Limit,
    /// Sessions at most from one address. `None` for a quarter of all, but from the machine itself any number.
    pub sessions_per_address: Option<Limit>,
    /// Sessions at most from one network.
    pub sessions_per_network: Limit,
    /// How large such a network is.
    pub network_bits: NetworkBits,
    /// The limits on the rate of logins.
    pub logins: LoginRates,
    /// Bandwidth, and sessions by listener and user. Listeners are named as in [`Config::ftp`].
    pub limits: ServerLimits,
    /// The counts of quotas, shared with the accounts. The server stores and reports them.
    pub quotas: Option<Arc<Quotas>>,
    /// Which networks may connect, and which clients are banned for failed logins.
    pub bans: BanRules,
    /// Percent of the machine's processors above which logins are refused.
    pub cpu_limit: Limit,
    /// The text of the first reply.
    pub greeting: String,
    /// Texts of several lines.
    pub texts: Arc<Texts>,
    /// Classes of sessions of FTP: the first that a session is in has it.
    pub classes: Vec<Class>,
    /// The virtual hosts, as FTP knows them.
    pub hosts: Vec<FtpHost>,
    /// From connecting to being logged in.
    pub login_timeout: Duration,
    /// Silence of a logged-in client while nothing is transferred.
    pub idle_timeout: Duration,
    /// From the transfer command to the data connection; also how long `PASV` waits for a free port, and how
    /// long a port is kept for a client that begins no transfer.
    pub connect_timeout: Duration,
    /// Silence on a data connection.
    pub stall_timeout: Duration,
    /// From a request's first byte, or the connection, to the end of its head.
    pub http_head_timeout: Duration,
    /// Silence between two requests.
    pub http_idle_timeout: Duration,
    /// After how long a silent HTTP/2 client gets a `PING`, and how long it may take to answer.
    pub http2_ping: Duration,
    /// TCP keepalive of control connections; zero for none.
    pub keepalive: Duration,
    /// How long the reply to a first wrong password is held back; doubled each time.
    pub login_delay: Duration,
    /// Wrong passwords until the connection is closed.
    pub login_attempts: u32,
    /// How long transfers may go on after a shutdown was asked for.
    pub grace: Duration,
    /// What an administrator proves with `INTERNALSHUTDOWN` (Waarp's command) that the server is to stop; `None`:
    /// it cannot be stopped so.
    pub shutdown_password: Option<Password>,
    /// Whether `PORT` may name another host than the client's (FXP).
    pub foreign_data: bool,
    /// Whether clients may have transfers compressed (`MODE Z`). lftp (4.9.2) does wherever it can, and then loses the
    /// rest of a listing after the first 128 KiB: its mirrors lack files, or have them removed.
    pub mode_z: bool,
    /// Whether a small file's data may be sent before the 150 that announces it, so that 150 and 226 share a packet.
    /// Two connections have no order; all tested clients accept that.
    pub coalesce: bool,
    /// Whether who logs in, or enters a directory, is told the lines of its `.message`, and of a `README`.
    pub messages: bool,
    /// Entries up to which listings are sorted; larger directories come in the file system's order.
    pub sort_entries: usize,
    /// Whether the user prompt says that `anonymous` is welcome.
    pub anonymous: bool,
    /// A transfer log in wu-ftpd's format.
    pub xferlog: Option<PathBuf>,
    /// Whether its lines end with the start and the end of the transfer, in microseconds.
    pub xferlog_times: bool,
    /// When the files of transfers and requests are moved away.
    pub log_rotation: Rotation,
    /// A log of HTTP's requests, as JSON where events are, else in the format below; with the events where it is `None`.
    pub access_log: Option<PathBuf>,
    /// How its lines are written.
    pub access_log_format: AccessFormat,
    /// Bytes of that file, where it is a binary log.
    pub access_log_size: u64,
    /// A log of who changed what, each record of which carries the SHA-256 of the one before it.
    pub audit: Option<AuditSettings>,
    /// Where the records of that log are sent, and events where it says so (syslog over TLS).
    pub syslog: Option<SyslogSettings>,
    /// The log on standard error.
    pub log: LogFormat,
    /// Whether events go to systemd's journal.
    pub log_to_journal: bool,
}

impl Config {
    /// The data ports used when no range is given: 50000 to 50999, one line in a firewall. Linux
    /// gives outgoing connections ports from there as well; one that is taken is passed over.
    pub const DEFAULT_PASSIVE_PORTS: RangeInclusive<u16> = 50000..=50999;

    /// Hooks that are called at a time, where nothing is said: a program each, at the most.
    pub const DEFAULT_HOOK_THREADS: usize = 32;

    /// Returns whether the anonymous user may log in, if only to one of the hosts.
    pub(crate) fn is_open_to_anonymous(&self) -> bool {
        self.anonymous || self.hosts.iter().any(|host| host.anonymous == Some(true))
    }

    /// The defaults, with these accounts.
    pub fn new(accounts: Arc<dyn Authenticator>) -> Self {
        Self {
            ftp: vec![SocketAddr::from(([127, 0, 0, 1], 2121))],
            ftps: Vec::new(),
            tls: None,
            acme: None,
            http: Vec::new(),
            https: Vec::new(),
            inherited: Vec::new(),
            confinement: None,
            programs: Programs::default(),
            program_limits: ProgramLimits::default(),
            web: Web::default(),
            proxy_routes: Vec::new(),
            resumable: Resumable::default(),
            ban_file: None,
            cluster: None,
            disks: Vec::new(),
            dav: None,
            accounts,
            passive_ports: Self::DEFAULT_PASSIVE_PORTS,
            proxy_from: Vec::new(),
            trusted_proxies: TrustedProxies::default(),
            public_ip: None,
            workers: 0,
            blocking_threads: 256,
            hooks: None,
            hook_threads: Self::DEFAULT_HOOK_THREADS,
            sessions: Limit::none(),
            sessions_per_address: None,
            sessions_per_network: Limit::none(),
            network_bits: NetworkBits::default(),
            logins: LoginRates::default(),
            limits: ServerLimits::default(),
            quotas: None,
            bans: BanRules::default(),
            cpu_limit: Limit::none(),
            greeting: "Millrace ready.".to_owned(),
            texts: Arc::default(),
            classes: Vec::new(),
            hosts: Vec::new(),
            login_timeout: Duration::from_secs(60),
            idle_timeout: Duration::from_secs(300),
            connect_timeout: Duration::from_secs(15),
            stall_timeout: Duration::from_secs(60),
            http_head_timeout: Duration::from_secs(30),
            http_idle_timeout: Duration::from_secs(75),
            http2_ping: Duration::from_secs(30),
            keepalive: Duration::from_secs(60),
            login_delay: Duration::from_secs(1),
            login_attempts: 5,
            grace: Duration::from_secs(30),
            shutdown_password: None,
            foreign_data: false,
            mode_z: false,
            coalesce: true,
            messages: false,
            sort_entries: millrace_ftp::listing::SORT_BOUND,
            anonymous: false,
            xferlog: None,
            xferlog_times: false,
            log_rotation: Rotation { size: 0, age: Duration::ZERO, keep: 7 },
            access_log: None,
            access_log_format: AccessFormat::default(),
            access_log_size: 64 << 20,
            audit: None,
            syslog: None,
            log: LogFormat::Text,
            log_to_journal: false,
        }
    }
}
