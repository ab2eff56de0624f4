//! `millrace check`: a configuration file in plain words.

use std::fmt::{self, Display};
use std::net::SocketAddr;
use std::time::SystemTime;

use millrace_server::config::{Acme, Challenge, Clients, Peer, ProxyRoute, Resumption, Tls, Upstream};
use millrace_server::limits::Limit;
use millrace_server::web::HttpsRedirect;
use millrace_server::{Config, Permissions};
use millrace_storage::{Durability, LocalOptions, Uploads};
use millrace_terminal::{Failure, print};

use crate::announce::{self, Bound};
use crate::args::Check;
use crate::config::{self, DEFAULT, Origin, Site, Written};
use crate::confine;
use crate::who;

pub(crate) fn run(arguments: &Check) -> Result<(), Failure> {
    let site = config::load(Written::default(), Some(&arguments.file))?;
    site.check_obstacles()?;
    if let Some(policy) = &site.confined.helper {
        confine::begin_helper(policy, None)?;
    }
    let mut text = format!(
        "{} can be used. It means:\n\n{}",
        arguments.file.display(),
        Meaning { site: &site, all: arguments.all }
    );
    let Config { ftp, ftps, http, https, .. } = &site.config;
    let doubts = site.config.tls.iter().flat_map(|tls| tls.plan.outlook().doubts(SystemTime::now()));
    let warnings = announce::warnings(
        &site,
        Bound { ftp, ftps, http, https, admin: &site.admin.addresses, admin_has_tls: site.admin.has_tls },
    );
    for warning in warnings.into_iter().chain(absent(&site.config.proxy_routes)).chain(doubts) {
        text += &format!("\nwarning: {warning}\n");
    }
    print(&text)
}

/// The upstream servers that do not answer. They may be started later.
fn absent(proxy_routes: &[ProxyRoute]) -> impl Iterator<Item = String> {
    proxy_routes.iter().filter_map(|route| {
        let (Upstream::FastCgi(peer) | Upstream::Http(peer)) = &route.to;
        let Peer::Unix(path) = peer else { return None };
        let what = "there is no such socket, and as long as there is none these requests are answered by 502";
        matches!(path.try_exists(), Ok(false)).then(|| format!("{route}: {what}"))
    })
}

/// A configuration in plain words.
struct Meaning<'a> {
    site: &'a Site,
    /// Whether settings that were not written are listed too.
    all: bool,
}

impl Display for Meaning<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { site, all } = self;
        writeln!(out, "Files         {}", site.directory.display())?;
        writeln!(out, "              {}", uploads(&site.files))?;
        folders(site, out)?;
        section("Hosts", &site.shown.hosts, out)?;
        let in_clear = if site.config.tls.is_some() { "TLS for clients that ask" } else { "not encrypted" };
        for (door, addresses, security) in [
            ("FTP", &site.config.ftp, in_clear),
            ("FTPS", &site.config.ftps, "begins with TLS"),
            ("HTTP", &site.config.http, "not encrypted"),
            ("HTTPS", &site.config.https, "begins with TLS"),
        ] {
            door_rows(door, addresses, security, out)?;
        }
        let port = match (site.config.web.https_redirect, site.config.https.first()) {
            (HttpsRedirect::To(port), _) => Some(port),
            (HttpsRedirect::ToOwn, Some(address)) => Some(address.port()),
            _ => None,
        };
        if let Some(port) = port {
            writeln!(out, "              Requests by HTTP are sent on to HTTPS (308), at port {port}.")?;
        }
        for (path, _) in &site.config.programs.folders {
            let most = site.config.programs.most;
            writeln!(out, "              The files in {path} are programs; at most {most} run at once.")?;
        }
        let admin = match site.admin.has_tls {
            true => "health, metrics and the dashboard, begins with TLS",
            false => "health, metrics and the dashboard, not encrypted",
        };
        door_rows("Admin", &site.admin.addresses, admin, out)?;
        if let Some(tls) = &site.config.tls {
            encryption(tls, site.config.acme.as_ref(), out)?;
        }
        section("Passed on", &site.shown.proxy_routes, out)?;
        section("Headers", &site.shown.headers, out)?;
        section("Origins", &site.shown.origins, out)?;
        section("Error pages", &site.shown.error_pages, out)?;
        section("Logins", &logins(site), out)?;
        section("Groups", &site.shown.groups, out)?;
        section("Hooks", &site.shown.hooks, out)?;
        section("Notices", &site.shown.notices, out)?;
        section("OpenTelemetry", &site.shown.otlp, out)?;
        section("Cluster", &site.shown.cluster, out)?;
        network(&site.config, out)?;
        kept(site, out)?;
        confined(site, out)?;
        let shown = |origin: &&Origin| *all || origin.place != DEFAULT;
        let width = site.origins.iter().filter(shown).map(|origin| origin.key.len()).max().unwrap_or(0);
        let lines = site.origins.iter().filter(shown).map(|Origin { key, value, place }| {
            let value = shortened(value);
            format!("{key:width$}  {value}   ({place})")
        });
        section("Settings", &lines.collect::<Vec<_>>(), out)
    }
}

/// Says where a door is, a row an address.
fn door_rows(
    door: &str,
    addresses: &[SocketAddr],
    security: &str,
    out: &mut fmt::Formatter<'_>,
) -> fmt::Result {
    let names = std::iter::once(door).chain(std::iter::repeat(""));
    addresses.iter().zip(names).try_for_each(|(address, door)| {
        writeln!(out, "{door:14}{}, {}{security}", listen(*address), reach(*address))
    })
}

/// As whom the server runs, and what it can reach.
fn confined(site: &Site, out: &mut fmt::Formatter<'_>) -> fmt::Result {
    if let Some(said) = &site.confined.run_as {
        writeln!(out, "User          {}, once ports are bound and keys are read", said.value)?;
    }
    writeln!(out, "Sandbox       {}", confine::shown(&site.confined))
}

/// A value that fits a line.
fn shortened(value: &str) -> String {
    const MOST: usize = 60;
    match value.char_indices().nth(MOST) {
        Some((end, _)) => format!("{}...", &value[..end]),
        None => value.to_owned(),
    }
}

/// Lines, the first of which has the title before it.
fn section(title: &str, lines: &[String], out: &mut fmt::Formatter<'_>) -> fmt::Result {
    lines
        .iter()
        .enumerate()
        .try_for_each(|(index, line)| writeln!(out, "{:14}{line}", if index == 0 { title } else { "" }))
}

/// The users and their permissions, each with its limits.
fn logins(site: &Site) -> Vec<String> {
    let mut lines = Vec::new();
    for login in &site.logins {
        lines.push(who::standing(login, &site.config));
        lines.extend(who::limits(&login.effective).map(|limits| format!("{}: {limits}", login.shown())));
    }
    lines.extend(site.sources.iter().map(|source| format!("{}.", announce::users(source))));
    lines
}

/// The stored files, and the control socket.
fn kept(site: &Site, out: &mut fmt::Formatter<'_>) -> fmt::Result {
    if let Some(state) = &site.shown.state {
        writeln!(out, "State         is kept between starts in {}", state.display())?;
    }
    match &site.shown.quotas {
        Some(Some(path)) => writeln!(out, "Quotas        are counted in {}", path.display()),
        Some(None) => writeln!(out, "Quotas        are counted anew at each start"),
        None => Ok(()),
    }
}

fn folders(site: &Site, out: &mut fmt::Formatter<'_>) -> fmt::Result {
    for (index, mount) in site.mounts.mounts().iter().enumerate() {
        let encrypted = if mount.key.is_some() { ", encrypted" } else { "" };
        let of_users = mount.users.iter().cloned();
        let of_groups = mount.groups.iter().map(|group| format!("the group {group}"));
        let whose: Vec<String> = of_users.chain(of_groups).collect();
        let whose = if whose.is_empty() { "everybody".to_owned() } else { whose.join(", ") };
        let title = if index == 0 { "Folders" } else { "" };
        let access = if mount.access == Permissions::READ_ONLY { "read" } else { "read and write" };
        writeln!(
            out,
            "{title:14}{} is {}{encrypted}: {whose} may {access}.",
            mount.path,
            mount.files.shown()
        )?;
    }
    if site.mounts.archives() {
        writeln!(out, "Archives      A folder can be read as .tar, .tar.gz, .tgz and .zip.")?;
    }
    match site.mounts.conversions() {
        true => writeln!(
            out,
            "Conversions   A file can be read by FTP as .gz, .zst and .Z, and such a file without it."
        ),
        false => Ok(()),
    }
}

fn uploads(files: &LocalOptions) -> String {
    let how = match files.uploads {
        Uploads::Staged => "staged: a name shows the old file or all of the new one",
        Uploads::InPlace => "written in place: one that is cut leaves the part that came",
    };
    let survives = match files.durability {
        Durability::None => "An acknowledged one survives a crash of the server, not a power cut",
        Durability::Whole => "An acknowledged one is never half or empty after a power cut",
        Durability::Full => "An acknowledged change survives a power cut",
    };
    let kinds: Vec<_> = files.hashes.iter().map(|algorithm| algorithm.name()).collect();
    let hashed =
        if kinds.is_empty() { String::new() } else { format!(" Each is hashed: {}.", kinds.join(", ")) };
    format!("Uploads are {how}. {survives}.{hashed}")
}

fn reach(address: SocketAddr) -> &'static str {
    match address.ip() {
        ip if ip.is_loopback() => "reachable from this computer only, ",
        ip if ip.is_unspecified() => "every address of this computer, ",
        _ => "",
    }
}

/// What has to be encrypted, and how far that is seen to.
fn encryption(tls: &Tls, acme: Option<&Acme>, out: &mut fmt::Formatter<'_>) -> fmt::Result {
    let mut title = "TLS";
    for pair in &tls.plan.identities {
        writeln!(out, "{title:14}certificate {}", pair.certificate.display())?;
        title = "";
    }
    if let Some(acme) = acme {
        fetched(acme, out)?;
    }
    let required = match (tls.login_required, tls.data_required) {
        (_, true) => "required for logins and for data",
        (true, false) => "required for logins",
        (false, false) => "not required",
    };
    let resumption = match tls.resumption {
        Resumption::Require => "data connections have to resume their session",
        Resumption::Prefer => "the log says which data connections do not resume their session",
        Resumption::Off => "data connections need not resume their session",
    };
    writeln!(out, "              {required}; {resumption}")?;
    if !tls.close_notify.required {
        writeln!(out, "              an upload that ends without close_notify counts as whole")?;
    } else if !tls.close_notify.excused.is_empty() {
        let excused = tls.close_notify.excused.join(", ");
        writeln!(out, "              an upload has to end with close_notify, but not from {excused}")?;
    }
    if tls.clear_command_channel {
        writeln!(out, "              CCC may end the encryption of commands")?;
    }
    match &tls.plan.clients {
        Clients::Anybody => Ok(()),
        Clients::Accept(by) => {
            writeln!(out, "              clients may show a certificate of {}", by.certificates.display())
        }
        Clients::Require(by) => {
            writeln!(out, "              clients need a certificate of {}", by.certificates.display())
        }
    }
}

/// A certificate that the server fetches itself.
fn fetched(acme: &Acme, out: &mut fmt::Formatter<'_>) -> fmt::Result {
    let Acme { domains, directory, challenge, .. } = acme;
    writeln!(out, "              is for {}, and fetched and renewed by ACME from", domains.join(", "))?;
    writeln!(out, "              {directory},")?;
    let port = match challenge {
        Challenge::Http => "80 of each name, which has to lead to HTTP here",
        Challenge::TlsAlpn => "443 of each name, which has to lead to HTTPS here",
    };
    writeln!(out, "              which asks by {challenge} at port {port};")?;
    writeln!(out, "              until one is issued, clients get a self-signed one")
}

fn listen(address: SocketAddr) -> String {
    match address.port() {
        0 => format!("a free port of {}", address.ip()),
        _ => address.to_string(),
    }
}

/// Returns true if FTP is served, which has data ports, a greeting and timeouts of its own.
fn serves_ftp(config: &Config) -> bool {
    !config.ftp.is_empty() || !config.ftps.is_empty()
}

/// What concerns FTP alone.
fn of_ftp(config: &Config, out: &mut fmt::Formatter<'_>) -> fmt::Result {
    let (first, last) = (config.passive_ports.start(), config.passive_ports.end());
    match first == last {
        true => writeln!(out, "Data ports    {first} only")?,
        false => writeln!(out, "Data ports    {first} to {last}")?,
    }
    if let Some(address) = config.public_ip {
        writeln!(out, "              PASV tells clients to connect to {address}.")?;
    }
    Ok(())
}

fn network(config: &Config, out: &mut fmt::Formatter<'_>) -> fmt::Result {
    if serves_ftp(config) {
        of_ftp(config, out)?;
    }
    let sessions = limit(&config.sessions, "as many as the descriptor limit allows");
    let a_quarter = || "a quarter of them, but from this computer any number".to_owned();
    let each = config.sessions_per_address.as_ref().map_or_else(a_quarter, |each| limit(each, "no limit"));
    writeln!(out, "Sessions      {sessions}; from one address: {each}")?;
    if !config.sessions_per_network.is_none() {
        let (network, bits) = (limit(&config.sessions_per_network, ""), config.network_bits);
        writeln!(out, "              from one network (/{}, or IPv6 /{}): {network}", bits.ipv4, bits.ipv6)?;
    }
    bandwidth(config, out)
}

/// Only what was said.
fn bandwidth(config: &Config, out: &mut fmt::Formatter<'_>) -> fmt::Result {
    let limits = &config.limits;
    let listeners = limits.listeners.iter().map(|(address, limits)| (format!("all at {address}"), limits));
    let groups = limits.groups.iter().map(|(name, limits)| (format!("all of the group {name}"), limits));
    let scopes = std::iter::once(("all together".to_owned(), &limits.server))
        .chain(listeners)
        .chain(groups)
        .chain([("each user".to_owned(), &limits.user), ("each session".to_owned(), &limits.session)]);
    let mut title = "Limits";
    for (whose, limits) in scopes {
        let all = [
            ("to", "bytes/s", &limits.download),
            ("from", "bytes/s", &limits.upload),
            ("", "sessions", &limits.sessions),
        ];
        for (way, unit, limit) in all {
            let Some(limit) = limit else { continue };
            writeln!(
                out,
                "{title:14}{unit} {way}{}{whose}: {limit}",
                if way.is_empty() { "of " } else { " " }
            )?;
            title = "";
        }
    }
    Ok(())
}

fn limit(limit: &Limit, unlimited: &str) -> String {
    if limit.is_none() { unlimited.to_owned() } else { format!("at most {limit}") }
}
