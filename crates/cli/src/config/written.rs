//! What was written: flags and keys, one struct for both.
//!
//! A field is a flag `--name` and a key `name`; fields under `#[arg(skip)]` are keys only, so that the help
//! fits a screen. What is absent is `None`; defaults are added when it is resolved.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::PathBuf;

use clap::Args;
use clap::builder::{PathBufValueParser, TypedValueParser};
use millrace_server::Network;
use millrace_server::config::{Challenge, Resumption};
use millrace_server::limits::{Limit, RateLimit};
use serde::Deserialize;

use super::folders::FolderTable;
use super::hooks::HookTable;
use super::hosts::HostTable;
use super::limits::ListenerTable;
use super::logins::{GroupTable, UserTable};
use super::passes::PassTable;
use super::said::{Said, one_or_more};
use super::sources::SourceTable;
use super::value::{
    Anonymous, Count, Durability, Listen, LogFormat, Period, Ports, Redirect, Switch, TlsRequired, Uploads,
};
use super::web::{CorsTable, ErrorPageTable, HeaderTable};

/// What was written, in the order of the help.
// The comments are the help too, where `[::]` is an address and no link.
#[allow(rustdoc::broken_intra_doc_links)]
#[derive(Debug, Clone, Default, Args, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct Written {
    /// The folder to serve [default: the current one]
    ///
    /// Nothing outside it can be reached, not by ".." and not by a symbolic link.
    #[arg(value_name = "DIR", value_parser = PathBufValueParser::new().map(Said::on_command_line))]
    pub(crate) directory: Option<Said<PathBuf>>,

    /// Where to serve FTP, or "off" [default: 127.0.0.1:2121]
    ///
    /// The default is reachable from this computer only. To open it to the network: --ftp 0.0.0.0:2121,
    /// for IPv6 --ftp [::]:2121. May be given more than once. Port 0 takes a free port; the one it got is
    /// printed.
    #[arg(long, value_name = "ADDR:PORT", help_heading = "Network")]
    #[serde(deserialize_with = "one_or_more")]
    pub(crate) ftp: Vec<Said<Listen>>,

    /// Where to serve HTTP, or "off" [default: 127.0.0.1:8080]
    ///
    /// The same files and users, for browsers: http://127.0.0.1:8080/. Where nothing is written here and the
    /// default is taken, or --ftp asks for a free port, a free port is taken instead, and printed. Passwords
    /// are taken from this computer only.
    #[arg(long, value_name = "ADDR:PORT", help_heading = "Network")]
    #[serde(deserialize_with = "one_or_more")]
    pub(crate) http: Vec<Said<Listen>>,

    /// A folder in DIR whose files are programs that HTTP runs (CGI), such as cgi-bin; may be given more than once
    ///
    /// Whoever may read there by HTTP may have them run, as the user that runs this server; so nobody else
    /// should be able to write there. Their standard error goes to the log.
    #[arg(long, value_name = "FOLDER", help_heading = "Network",
        value_parser = PathBufValueParser::new().map(Said::on_command_line))]
    #[serde(deserialize_with = "one_or_more")]
    pub(crate) cgi: Vec<Said<PathBuf>>,

    /// Ports for passive data connections [default: 50000-50999]
    ///
    /// Open these in the firewall, with the port of --ftp. No other port is ever used for them. One is
    /// enough (50000-50000): then clients take turns on it where they share an address.
    #[arg(long, value_name = "A-B", help_heading = "Network")]
    pub(crate) passive_ports: Option<Said<Ports>>,

    /// The IPv4 address that clients outside a NAT connect to, for PASV [default: the one they reached]
    ///
    /// Example: --public-ip 203.0.113.7. EPSV needs none.
    #[arg(long, value_name = "ADDR", help_heading = "Network")]
    pub(crate) public_ip: Option<Said<Ipv4Addr>>,

    /// Threads that serve connections [default: one for each core]
    #[arg(long, value_name = "N", help_heading = "Network")]
    pub(crate) workers: Option<Said<Count>>,

    /// How long transfers may go on after Ctrl-C or SIGTERM [default: 30s]
    ///
    /// A number of seconds, or a number with ms, s, m or h. 0 ends them at once.
    #[arg(long, value_name = "TIME", help_heading = "Network")]
    pub(crate) grace: Option<Said<Period>>,

    /// A socket for "millrace ctl", to ask and tell the running server things; only its owner may use it
    #[arg(long, value_name = "FILE", help_heading = "Network",
        value_parser = PathBufValueParser::new().map(Said::on_command_line))]
    pub(crate) control: Option<Said<PathBuf>>,

    /// Let the two replies to a small download share a packet: on or off [default: on]
    ///
    /// The file's bytes may then be on their way before the 150 that announces them. Turn it off should a
    /// client mind.
    #[arg(long, value_name = "on|off", help_heading = "Network")]
    pub(crate) coalesce: Option<Said<Switch>>,

    /// The server's certificate in PEM, those that vouch for it behind it; switches FTPS on
    ///
    /// May be given more than once: clients get the one for the name that they ask for. The files are read
    /// again when they change.
    #[arg(long, value_name = "FILE", help_heading = "TLS",
        value_parser = PathBufValueParser::new().map(Said::on_command_line))]
    #[serde(deserialize_with = "one_or_more")]
    pub(crate) tls_cert: Vec<Said<PathBuf>>,

    /// The certificate's private key in PEM, where it is not in the same file
    #[arg(long, value_name = "FILE", help_heading = "TLS",
        value_parser = PathBufValueParser::new().map(Said::on_command_line))]
    #[serde(deserialize_with = "one_or_more")]
    pub(crate) tls_key: Vec<Said<PathBuf>>,

    /// Make a certificate for a first try, and keep it: clients ask whether its fingerprint is right
    ///
    /// The fingerprint is printed when the server starts.
    #[arg(long, num_args = 0, default_missing_value = "on", help_heading = "TLS")]
    pub(crate) tls_self_signed: Option<Said<Switch>>,

    /// Fetch a certificate for this name from Let's Encrypt, and renew it (ACME); may be given more than once
    ///
    /// The CA asks at port 80 of the name, which has to lead to --http; or at port 443, if only --https is there. Until
    /// it has answered, clients get a certificate that nobody vouches for.
    #[arg(long, value_name = "DOMAIN", help_heading = "TLS")]
    #[serde(deserialize_with = "one_or_more")]
    pub(crate) acme: Vec<Said<String>>,

    /// Agree to the terms of service of the CA of --acme
    #[arg(long, num_args = 0, default_missing_value = "on", help_heading = "TLS")]
    pub(crate) acme_agree: Option<Said<Switch>>,

    /// What has to be encrypted: off, login (names and passwords) or data (files as well) [default: off]
    #[arg(long, value_name = "off|login|data", help_heading = "TLS")]
    pub(crate) tls_required: Option<Said<TlsRequired>>,

    /// Where to serve FTP that begins with TLS (implicit FTPS), such as 0.0.0.0:990
    ///
    /// Clients that can choose should use the port of --ftp, on which they ask for TLS.
    #[arg(long, value_name = "ADDR:PORT", help_heading = "TLS")]
    #[serde(deserialize_with = "one_or_more")]
    pub(crate) ftps: Vec<Said<Listen>>,

    /// Where to serve HTTP that begins with TLS, such as 0.0.0.0:443
    ///
    /// The same as --http, with the certificates of --tls-cert, and passwords from everywhere.
    #[arg(long, value_name = "ADDR:PORT", help_heading = "TLS")]
    #[serde(deserialize_with = "one_or_more")]
    pub(crate) https: Vec<Said<Listen>>,

    /// Where to keep what is made, such as certificates [default: ~/.local/state/millrace]
    ///
    /// Under systemd it is the unit's StateDirectory, elsewhere XDG_STATE_HOME/millrace if that is set.
    #[arg(long, value_name = "DIR", help_heading = "TLS",
        value_parser = PathBufValueParser::new().map(Said::on_command_line))]
    pub(crate) state: Option<Said<PathBuf>>,

    /// An account; may be given more than once
    ///
    /// NAME:PASSWORD may read and write everything; NAME:PASSWORD:ro may only read;
    /// NAME:PASSWORD:rw:SUBDIR sees only that folder of DIR. A password here cannot contain a colon, and
    /// other users of this computer can see it in the list of processes: for more than a trial, write
    /// accounts to a configuration file, with hashes from "millrace hash-password".
    #[arg(long = "user", value_name = "NAME:PASSWORD[:ro|rw][:SUBDIR]", help_heading = "Who may log in")]
    #[serde(skip)]
    pub(crate) user_flags: Vec<String>,

    /// A database of accounts, or "off" [default: the one of "millrace user", once it is used]
    #[arg(long, value_name = "FILE", help_heading = "Who may log in",
        value_parser = PathBufValueParser::new().map(Said::on_command_line))]
    pub(crate) users: Option<Said<PathBuf>>,

    /// Accounts, in the file.
    #[arg(skip)]
    #[serde(rename = "user")]
    pub(crate) user_tables: Vec<UserTable>,

    /// Where else accounts are kept, in the file.
    #[arg(skip)]
    #[serde(rename = "source")]
    pub(crate) source_tables: Vec<SourceTable>,

    /// What holds for members of groups, in the file.
    #[arg(skip)]
    #[serde(rename = "group")]
    pub(crate) group_tables: Vec<GroupTable>,

    /// Other places that users see in the served folder.
    #[arg(skip)]
    #[serde(rename = "folder")]
    pub(crate) folder_tables: Vec<FolderTable>,

    /// Whether a folder can be read as an archive of itself.
    #[arg(skip)]
    pub(crate) archives: Option<Said<Switch>>,

    /// Whether directories say something to those who enter them.
    #[arg(skip)]
    pub(crate) messages: Option<Said<Switch>>,

    /// What everyone may do without a password: ro, rw or off [default: ro without any --user, else off]
    #[arg(long, value_name = "ro|rw|off", help_heading = "Who may log in")]
    pub(crate) anonymous: Option<Said<Anonymous>>,

    /// How uploads are written: staged or in-place [default: staged]
    ///
    /// "staged" writes beside the name and then gives the name to the whole file, so that a name shows the
    /// old file or all of the new one. "in-place" writes into the file: faster, but an upload that is cut
    /// leaves the part that came. Resumed and appended uploads are always in place.
    #[arg(long, value_name = "staged|in-place", help_heading = "Files")]
    pub(crate) uploads: Option<Said<Uploads>>,

    /// What an acknowledged change survives: none, whole or full [default: whole]
    ///
    /// "none": a crash of the server. "whole": a power cut leaves no acknowledged file empty or half; its name may be
    /// lost. "full": a power cut loses nothing that was acknowledged. docs/guide.md has a table.
    #[arg(long, value_name = "none|whole|full", help_heading = "Files")]
    pub(crate) durability: Option<Said<Durability>>,

    /// Sort listings of up to N entries; larger folders come unsorted [default: 2048]
    #[arg(long, value_name = "N", help_heading = "Files")]
    pub(crate) list_sort: Option<Said<Count>>,

    /// Log only warnings; what is open is still printed
    #[arg(long, num_args = 0, default_missing_value = "on", help_heading = "Logs")]
    pub(crate) quiet: Option<Said<Switch>>,

    /// How events are logged to standard error: text or json [default: text]
    #[arg(long, value_name = "text|json", help_heading = "Logs")]
    pub(crate) log_format: Option<Said<LogFormat>>,

    /// Also write a line for each transfer to FILE, in the format of wu-ftpd
    #[arg(long, value_name = "FILE", help_heading = "Logs",
        value_parser = PathBufValueParser::new().map(Said::on_command_line))]
    pub(crate) xferlog: Option<Said<PathBuf>>,

    /// Write requests of HTTP to FILE, in the Combined format, or as JSON with --log-format json
    ///
    /// Without it they stand among the events.
    #[arg(long, value_name = "FILE", help_heading = "Logs",
        value_parser = PathBufValueParser::new().map(Said::on_command_line))]
    pub(crate) access_log: Option<Said<PathBuf>>,

    /// From the first byte of a request to the end of its head.
    #[arg(skip)]
    pub(crate) http_head_timeout: Option<Said<Period>>,

    /// Silence between two requests of HTTP.
    #[arg(skip)]
    pub(crate) http_idle_timeout: Option<Said<Period>>,

    /// How many programs run at once.
    #[arg(skip)]
    pub(crate) cgi_processes: Option<Said<Count>>,

    /// From a request to the end of a program's answer.
    #[arg(skip)]
    pub(crate) cgi_timeout: Option<Said<Period>>,

    /// Processor time that a program may take.
    #[arg(skip)]
    pub(crate) program_cpu: Option<Said<Period>>,

    /// Bytes of memory that a program may have.
    #[arg(skip)]
    pub(crate) program_memory: Option<Said<Count>>,

    /// Processes at most of the user that programs run as.
    #[arg(skip)]
    pub(crate) program_processes: Option<Said<Count>>,

    /// Names of files that are sent in place of their folder.
    #[arg(skip)]
    #[serde(deserialize_with = "one_or_more")]
    pub(crate) index: Vec<Said<String>>,

    /// Media types by the ends of names.
    #[arg(skip)]
    pub(crate) mime: BTreeMap<String, Said<String>>,

    /// Whether compressed neighbours of files are sent.
    #[arg(skip)]
    pub(crate) http_precompressed: Option<Said<Switch>>,

    /// Whether answers have the fields that keep browsers safe.
    #[arg(skip)]
    pub(crate) http_security_headers: Option<Said<Switch>>,

    /// Whether browsers run nothing of files.
    #[arg(skip)]
    pub(crate) http_sandbox: Option<Said<Switch>>,

    /// For how long browsers are to come by HTTPS only.
    #[arg(skip)]
    pub(crate) http_hsts: Option<Said<Period>>,

    /// Whether requests in clear are sent on to HTTPS.
    #[arg(skip)]
    pub(crate) https_redirect: Option<Said<Redirect>>,

    /// Files up to which a digest is sent where one is wanted.
    #[arg(skip)]
    pub(crate) http_digest: Option<Said<Count>>,

    /// The keys of links that expire.
    #[arg(skip)]
    pub(crate) http_link_keys: Option<Said<PathBuf>>,

    /// What all who come to an address share.
    #[arg(skip)]
    #[serde(rename = "listener")]
    pub(crate) listener_tables: Vec<ListenerTable>,

    /// Names under which other trees are served.
    #[arg(skip)]
    #[serde(rename = "host")]
    pub(crate) host_tables: Vec<HostTable>,

    /// Fields of answers.
    #[arg(skip)]
    #[serde(rename = "header")]
    pub(crate) header_tables: Vec<HeaderTable>,

    /// What pages of other origins may do.
    #[arg(skip)]
    #[serde(rename = "cors")]
    pub(crate) cors_tables: Vec<CorsTable>,

    /// Pages in place of our own.
    #[arg(skip)]
    #[serde(rename = "error-page")]
    pub(crate) error_page_tables: Vec<ErrorPageTable>,

    /// Paths that others answer.
    #[arg(skip)]
    #[serde(rename = "pass")]
    pub(crate) pass_tables: Vec<PassTable>,

    /// Whether uploads by HTTP may go on where they were cut.
    #[arg(skip)]
    pub(crate) tus: Option<Said<Switch>>,

    /// For how long one waits for more.
    #[arg(skip)]
    pub(crate) tus_expire: Option<Said<Period>>,

    /// Where the CA finds somebody.
    #[arg(skip)]
    #[serde(deserialize_with = "one_or_more")]
    pub(crate) acme_contact: Vec<Said<String>>,
    /// Which CA.
    #[arg(skip)]
    pub(crate) acme_directory: Option<Said<String>>,
    /// Who vouches for it.
    #[arg(skip)]
    pub(crate) acme_ca: Option<Said<PathBuf>>,
    /// How it finds out who has a name.
    #[arg(skip)]
    pub(crate) acme_challenge: Option<Said<Challenge>>,
    /// The names in a certificate that is made.
    #[arg(skip)]
    #[serde(deserialize_with = "one_or_more")]
    pub(crate) tls_names: Vec<Said<String>>,
    /// Whether a data connection has to resume its control connection's session.
    #[arg(skip)]
    pub(crate) tls_resumption: Option<Said<Resumption>>,
    /// Whether an upload has to end with close_notify.
    #[arg(skip)]
    pub(crate) tls_close_notify: Option<Said<Switch>>,
    /// Clients that are excused from it.
    #[arg(skip)]
    #[serde(deserialize_with = "one_or_more")]
    pub(crate) tls_close_notify_excused: Vec<Said<String>>,
    /// Whether `CCC` is allowed.
    #[arg(skip)]
    pub(crate) tls_ccc: Option<Said<Switch>>,
    /// Who vouches for clients.
    #[arg(skip)]
    pub(crate) tls_client_ca: Option<Said<PathBuf>>,
    /// Certificates of clients that were taken back.
    #[arg(skip)]
    #[serde(deserialize_with = "one_or_more")]
    pub(crate) tls_client_crl: Vec<Said<PathBuf>>,
    /// Whether clients need one.
    #[arg(skip)]
    pub(crate) tls_client_cert: Option<Said<Switch>>,
    /// Threads at most for what may wait: disks, hashes, passwords.
    #[arg(skip)]
    pub(crate) blocking_threads: Option<Said<Count>>,
    /// Who has a word in what sessions do.
    #[arg(skip)]
    #[serde(rename = "hook")]
    pub(crate) hook_tables: Vec<HookTable>,
    /// Events are kept in it until they are delivered.
    #[arg(skip)]
    pub(crate) hooks_queue: Option<Said<PathBuf>>,
    /// Hooks that are called at a time.
    #[arg(skip)]
    pub(crate) hook_threads: Option<Said<Count>>,
    /// Sessions at most.
    #[arg(skip)]
    pub(crate) sessions: Option<Said<Limit>>,
    /// Sessions at most from one address.
    #[arg(skip)]
    pub(crate) sessions_per_address: Option<Said<Limit>>,
    /// Sessions at most from one network.
    #[arg(skip)]
    pub(crate) sessions_per_network: Option<Said<Limit>>,
    /// How many bits of an IPv4 address are its network's.
    #[arg(skip)]
    pub(crate) network_bits_ipv4: Option<Said<Count>>,
    /// And of an IPv6 address.
    #[arg(skip)]
    pub(crate) network_bits_ipv6: Option<Said<Count>>,
    /// Logins on the server.
    #[arg(skip)]
    pub(crate) logins: Option<Said<RateLimit>>,
    /// Logins from each address.
    #[arg(skip)]
    pub(crate) logins_per_address: Option<Said<RateLimit>>,
    /// Logins from each network.
    #[arg(skip)]
    pub(crate) logins_per_network: Option<Said<RateLimit>>,
    /// Logins of each user.
    #[arg(skip)]
    pub(crate) user_logins: Option<Said<RateLimit>>,
    /// Bytes a second to all clients together.
    #[arg(skip)]
    pub(crate) download_limit: Option<Said<Limit>>,
    /// Bytes a second from all clients together.
    #[arg(skip)]
    pub(crate) upload_limit: Option<Said<Limit>>,
    /// Bytes a second to all sessions of a user together.
    #[arg(skip)]
    pub(crate) user_download_limit: Option<Said<Limit>>,
    /// Bytes a second from all sessions of a user together.
    #[arg(skip)]
    pub(crate) user_upload_limit: Option<Said<Limit>>,
    /// Sessions of a user at a time.
    #[arg(skip)]
    pub(crate) user_sessions: Option<Said<Limit>>,
    /// Bytes a second to each session.
    #[arg(skip)]
    pub(crate) session_download_limit: Option<Said<Limit>>,
    /// Bytes a second from each session.
    #[arg(skip)]
    pub(crate) session_upload_limit: Option<Said<Limit>>,
    /// Where it is kept what is held where quotas are.
    #[arg(skip)]
    pub(crate) quotas: Option<Said<PathBuf>>,
    /// Only these networks may connect.
    #[arg(skip)]
    #[serde(deserialize_with = "one_or_more")]
    pub(crate) allow: Vec<Said<Network>>,
    /// These networks may not.
    #[arg(skip)]
    #[serde(deserialize_with = "one_or_more")]
    pub(crate) deny: Vec<Said<Network>>,
    /// Networks from which proxies connect.
    #[arg(skip)]
    #[serde(deserialize_with = "one_or_more")]
    pub(crate) proxy_from: Vec<Said<Network>>,
    /// Failed logins until a user is banned at an address.
    #[arg(skip)]
    pub(crate) ban_after: Option<Said<Count>>,
    /// For how long.
    #[arg(skip)]
    pub(crate) ban_time: Option<Said<Period>>,
    /// Percent of the machine's processors above which nobody may log in.
    #[arg(skip)]
    pub(crate) cpu_limit: Option<Said<Limit>>,
    /// The hash of the password of `INTERNALSHUTDOWN`.
    #[arg(skip)]
    pub(crate) shutdown_password: Option<Said<String>>,
    /// The text of the first reply.
    #[arg(skip)]
    pub(crate) greeting: Option<Said<String>>,
    /// From connecting to being logged in.
    #[arg(skip)]
    pub(crate) login_timeout: Option<Said<Period>>,
    /// Silence of a client while nothing is transferred.
    #[arg(skip)]
    pub(crate) idle_timeout: Option<Said<Period>>,
    /// From the transfer command to the data connection.
    #[arg(skip)]
    pub(crate) connect_timeout: Option<Said<Period>>,
    /// Silence on a data connection.
    #[arg(skip)]
    pub(crate) stall_timeout: Option<Said<Period>>,
    /// TCP keepalive of control connections.
    #[arg(skip)]
    pub(crate) keepalive: Option<Said<Period>>,
    /// How long the reply to a first wrong password is held back.
    #[arg(skip)]
    pub(crate) login_delay: Option<Said<Period>>,
    /// Wrong passwords until the connection is closed.
    #[arg(skip)]
    pub(crate) login_attempts: Option<Said<Count>>,
    /// Whether `PORT` may name another host than the client's.
    #[arg(skip)]
    pub(crate) foreign_data: Option<Said<Switch>>,
    /// Whether `MODE Z` is served.
    #[arg(skip)]
    pub(crate) mode_z: Option<Said<Switch>>,
}

impl Written {
    /// This, and from the file what this does not say. A list of the flags replaces that of the file; what has no flag is
    /// the file's.
    pub(crate) fn over(self, file: Self) -> Self {
        Self {
            directory: self.directory.or(file.directory),
            ftp: either(self.ftp, file.ftp),
            http: either(self.http, file.http),
            cgi: either(self.cgi, file.cgi),
            passive_ports: self.passive_ports.or(file.passive_ports),
            public_ip: self.public_ip.or(file.public_ip),
            workers: self.workers.or(file.workers),
            grace: self.grace.or(file.grace),
            control: self.control.or(file.control),
            coalesce: self.coalesce.or(file.coalesce),
            tls_cert: either(self.tls_cert, file.tls_cert),
            tls_key: either(self.tls_key, file.tls_key),
            tls_self_signed: self.tls_self_signed.or(file.tls_self_signed),
            acme: either(self.acme, file.acme),
            acme_agree: self.acme_agree.or(file.acme_agree),
            tls_required: self.tls_required.or(file.tls_required),
            ftps: either(self.ftps, file.ftps),
            https: either(self.https, file.https),
            state: self.state.or(file.state),
            user_tables: if self.user_flags.is_empty() { file.user_tables } else { Vec::new() },
            user_flags: self.user_flags,
            users: self.users.or(file.users),
            anonymous: self.anonymous.or(file.anonymous),
            uploads: self.uploads.or(file.uploads),
            durability: self.durability.or(file.durability),
            list_sort: self.list_sort.or(file.list_sort),
            quiet: self.quiet.or(file.quiet),
            log_format: self.log_format.or(file.log_format),
            xferlog: self.xferlog.or(file.xferlog),
            access_log: self.access_log.or(file.access_log),
            ..file
        }
    }
}

/// A list of the flags, or that of the file where there is none.
fn either<T>(flags: Vec<T>, file: Vec<T>) -> Vec<T> {
    if flags.is_empty() { file } else { flags }
}
