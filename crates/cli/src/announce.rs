//! What `serve` prints when it is ready: the addresses, who may use them, and the URLs to paste.
//!
//! Scripts wait for the line that begins with `Ready` and read the real port from the first URL.

use std::fmt::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::path::Path;

use millrace_load::units::counted;
use millrace_server::auth::HostAddress;
use millrace_server::limits::period;

use crate::config::{Access, Login, Site};
use crate::qr_code;
use crate::who::{self, Door};

/// Logins shown for each address; more would scroll the URLs away.
const LOGINS_SHOWN: usize = 16;

/// Where a server is open.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bound<'a> {
    pub(crate) ftp: &'a [SocketAddr],
    pub(crate) http: &'a [SocketAddr],
    pub(crate) ftps: &'a [SocketAddr],
    pub(crate) https: &'a [SocketAddr],
    /// Where health checks and metrics are served.
    pub(crate) admin: &'a [SocketAddr],
    pub(crate) admin_has_tls: bool,
}

impl<'a> Bound<'a> {
    /// The scheme of URLs of the admin address.
    pub(crate) fn admin_scheme(self) -> &'static str {
        if self.admin_has_tls { "https" } else { "http" }
    }

    fn at(self, door: Door) -> &'a [SocketAddr] {
        match door {
            Door::Ftp => self.ftp,
            Door::Ftps => self.ftps,
            Door::Http => self.http,
            Door::Https => self.https,
        }
    }

    /// Returns true if other computers can connect.
    fn is_open(self) -> bool {
        let doors = [self.ftp, self.ftps, self.http, self.https];
        doors.into_iter().flatten().any(|address| !address.ip().is_loopback())
    }

    /// Returns true if clients by IPv4 come to an address of IPv6, too: to any address there is, at a port that nothing
    /// of IPv4 has.
    fn serves_ipv4(self, address: SocketAddr) -> bool {
        let doors = [self.ftp, self.ftps, self.http, self.https];
        let is_taken = |other: &SocketAddr| other.is_ipv4() && other.port() == address.port();
        address.is_ipv6() && address.ip().is_unspecified() && !doors.into_iter().flatten().any(is_taken)
    }
}

/// The announcement, for standard output; `fingerprints` are those of the certificates. A terminal gets a QR code, too.
pub(crate) fn announcement(
    site: &Site,
    bound: Bound<'_>,
    fingerprints: &[String],
    terminal: Option<Terminal>,
) -> String {
    let lines = Lines::of(site, bound);
    let width = lines.urls.iter().map(|(url, _)| url.chars().count()).max().unwrap_or(0);

    let mut text = format!("Millrace {} serves {}\n", env!("CARGO_PKG_VERSION"), site.directory.display());
    for (url, may) in &lines.urls {
        let _ = writeln!(text, "  {url:width$}   {may}");
    }
    if lines.hidden > 0 {
        let _ = writeln!(text, "  and {}", counted(lines.hidden as u64, "more user"));
    }
    for (name, why) in &lines.shut_out {
        let _ = writeln!(text, "  {name} is not served: {why}");
    }
    for address in bound.admin {
        let scheme = bound.admin_scheme();
        let _ = writeln!(
            text,
            "  The dashboard is at {scheme}://{address}/, metrics at {scheme}://{address}/metrics"
        );
    }
    for fingerprint in fingerprints {
        let _ = writeln!(text, "  The certificate's SHA-256 fingerprint:\n    {fingerprint}");
    }
    text += &opening(site, bound);
    if let (Some(Terminal { color }), Some(url)) = (terminal, url_for_phones(site, bound)) {
        let lines = qr_code::lines(&url, color);
        text.extend(lines.into_iter().map(|line| format!("  {line}\n")));
    }
    let _ = match site.config.grace.is_zero() {
        true => writeln!(text, "Ready. Ctrl-C stops at once."),
        false => writeln!(
            text,
            "Ready. Ctrl-C stops; running transfers get {}.",
            period::in_words(site.config.grace)
        ),
    };
    text
}

/// How a server that only this computer can reach is opened to the network, and where it is then.
fn opening(site: &Site, bound: Bound<'_>) -> String {
    if bound.is_open() {
        return String::new();
    }
    // From elsewhere HTTP takes no passwords.
    let is_for_all = served(site, Door::Http).logins.iter().any(|index| site.logins[*index].name.is_none());
    let opened = Door::ALL.into_iter().filter(|door| *door != Door::Http || is_for_all);
    let flags: Vec<String> = opened
        .filter_map(|door| {
            let port = bound.at(door).first()?.port();
            Some(format!(" --{} 0.0.0.0:{port}", door.scheme()))
        })
        .collect();
    if flags.is_empty() {
        return String::new();
    }
    // Scripts look for addresses of the server: that is none yet.
    let place = site.config.public_ip.or_else(own_v4).map_or(String::new(), |ip| format!(", at {ip}"));
    format!("  Only this computer can connect;{} opens it to the network{place}.\n", flags.concat())
}

/// Where a phone on the network finds pages that it may read.
fn url_for_phones(site: &Site, bound: Bound<'_>) -> Option<String> {
    let doors = [Door::Https, Door::Http].into_iter();
    let mut at = doors.flat_map(|door| bound.at(door).iter().map(move |address| (door, *address)));
    at.find_map(|(door, address)| {
        let host = host(site.config.public_ip, address);
        let served = served(site, door).at(door, host, site);
        let is_of_use = !host.ip().is_loopback() && (served.sources || !served.logins.is_empty());
        is_of_use.then(|| format!("{}://{host}/", door.scheme()))
    })
}

/// A terminal that the announcement is printed to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Terminal {
    pub(crate) color: bool,
}

/// The users that each address admits.
#[derive(Default)]
struct Lines<'a> {
    /// An address to paste, and what its users may do there.
    urls: Vec<(String, String)>,
    /// Users that the list omits for length.
    hidden: usize,
    /// Users that no address admits, and why.
    shut_out: Vec<(&'a str, String)>,
}

/// The users that a door admits.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Served {
    /// Their places among the logins.
    logins: Vec<usize>,
    /// Whether users from elsewhere do.
    sources: bool,
}

impl Served {
    /// Returns true if there are users with passwords.
    fn has_names(&self, site: &Site) -> bool {
        self.sources || self.logins.iter().any(|index| site.logins[*index].name.is_some())
    }

    /// The users admitted at one address: plain HTTP accepts passwords from this computer only.
    fn at(mut self, door: Door, host: SocketAddr, site: &Site) -> Self {
        if door == Door::Http && !host.ip().is_loopback() {
            self.logins.retain(|index| site.logins[*index].name.is_none());
            self.sources = false;
        }
        self
    }
}

/// Where this computer comes to an address that is all that it has.
fn own_loopback(bound: SocketAddr, serves_ipv4: bool) -> SocketAddr {
    let ip = match bound.is_ipv4() || serves_ipv4 {
        true => IpAddr::V4(Ipv4Addr::LOCALHOST),
        false => Ipv6Addr::LOCALHOST.into(),
    };
    SocketAddr::new(ip, bound.port())
}

impl<'a> Lines<'a> {
    fn of(site: &'a Site, bound: Bound<'_>) -> Self {
        let mut lines = Self::default();
        let mut listed: Option<Served> = None;
        for door in Door::ALL {
            let served = served(site, door);
            for address in bound.at(door) {
                let serves_ipv4 = bound.serves_ipv4(*address);
                let mut hosts = hosts(site.config.public_ip, *address, serves_ipv4);
                // Users with a password are admitted at this address only.
                if door == Door::Http && address.ip().is_unspecified() && served.has_names(site) {
                    hosts.push(own_loopback(*address, serves_ipv4));
                    hosts.dedup();
                }
                for host in hosts {
                    let served = served.clone().at(door, host, site);
                    let is_the_same = door.is_http() && listed.as_ref() == Some(&served);
                    lines.add(site, door, host, &served, is_the_same);
                }
                if door != Door::Http {
                    listed = Some(served.clone());
                }
            }
        }
        let out = site.logins.iter().filter_map(|login| Some((login, who::shut_out(login, &site.config)?)));
        let out: Vec<_> = out.map(|(login, why)| (login.shown(), why)).collect();
        lines.hidden = (site.logins.len() - out.len()).saturating_sub(LOGINS_SHOWN)
            + out.len().saturating_sub(LOGINS_SHOWN);
        lines.shut_out = out.into_iter().take(LOGINS_SHOWN).collect();
        lines
    }

    /// Adds the lines of a door at an address.
    fn add(&mut self, site: &Site, door: Door, host: SocketAddr, served: &Served, is_the_same: bool) {
        let (scheme, Served { logins, sources }) = (door.scheme(), served);
        let bare = format!("{scheme}://{host}/");
        if logins.is_empty() && !sources {
            let told = match who::closed_to_names(door, &site.config) {
                Some(who::SENT_ON) => who::SENT_ON.to_owned(),
                Some(why) => format!("no logins: {why}"),
                None if door == Door::Http => "no logins over plain HTTP (use --https)".to_owned(),
                None => "no user is admitted here".to_owned(),
            };
            return self.urls.push((bare, told));
        }
        if is_the_same {
            return self.urls.push((bare, "the same, for browsers".to_owned()));
        }
        for login in logins.iter().take(LOGINS_SHOWN).map(|index| &site.logins[*index]) {
            self.urls.push((url(scheme, login, host), who::may(login)));
        }
        if *sources {
            self.urls.extend(site.sources.iter().map(|source| (bare.clone(), users(source))));
        }
    }
}

/// The users that a door admits.
fn served(site: &Site, door: Door) -> Served {
    let comes_in = |login: &Login| who::barred(login, door, &site.config).is_none();
    let logins = site.logins.iter().enumerate().filter(|(_, login)| comes_in(login));
    let sources = !site.sources.is_empty() && who::closed_to_names(door, &site.config).is_none();
    Served { logins: logins.map(|(index, _)| index).collect(), sources }
}

/// Where browsers find the server, as far as the configuration tells: by HTTPS, where that is there. By the name that a
/// certificate is fetched for, or else the first address.
pub(crate) fn web_url(site: &Site) -> Option<String> {
    let config = &site.config;
    let (scheme, usual, address) = match (config.https.first(), config.http.first()) {
        (Some(address), _) => ("https", 443, *address),
        (None, Some(address)) => ("http", 80, *address),
        (None, None) => return None,
    };
    let named = config.acme.as_ref().filter(|_| scheme == "https").and_then(|acme| acme.domains.first());
    let host = match (named, host(config.public_ip, address).ip()) {
        (Some(name), _) => name.clone(),
        (None, IpAddr::V4(ip)) => ip.to_string(),
        (None, IpAddr::V6(ip)) => format!("[{ip}]"),
    };
    match address.port() {
        0 => None,
        port if port == usual => Some(format!("{scheme}://{host}")),
        port => Some(format!("{scheme}://{host}:{port}")),
    }
}

/// Warnings for the operator, for standard error.
pub(crate) fn warnings(site: &Site, bound: Bound<'_>) -> Vec<String> {
    let open = bound.is_open();
    let may_write = |login: &Login| {
        login.name.is_none()
            && login.access == Access::ReadWrite
            && who::shut_out(login, &site.config).is_none()
    };
    let mut warnings = Vec::new();
    let is_rw = |login: &Login| may_write(login) && login.effective.rules().is_uniform();
    if open && site.logins.iter().any(is_rw) {
        warnings.push(
            "everyone who can reach this computer may write, delete and fill the disk: anonymous is rw"
                .to_owned(),
        );
    } else if open && site.logins.iter().any(may_write) {
        warnings
            .push("everyone who can reach this computer may fill the disk: anonymous may write".to_owned());
    }
    let ftp_is_open = bound.ftp.iter().any(|address| !address.ip().is_loopback());
    let comes_by_ftp =
        |login: &Login| login.name.is_some() && who::barred(login, Door::Ftp, &site.config).is_none();
    if ftp_is_open && (!site.sources.is_empty() || site.logins.iter().any(comes_by_ftp)) {
        warnings.extend(in_clear(site).map(str::to_owned));
    }
    let is_foreign = |address: &&SocketAddr| !address.ip().is_loopback();
    warnings.extend(bound.admin.iter().find(is_foreign).map(|address| {
        format!("other computers can read health and metrics at {address}: there is no password, so a firewall has to keep them away")
    }));
    warnings.extend(shut_out_by_mistake(site));
    if open && rustix::process::geteuid().is_root() && site.confined.run_as.is_none() {
        warnings.push(
            "this server runs as root, so an attacker who breaks into it controls the whole computer: name a user of its own by \
             run-as = \"millrace\""
                .to_owned(),
        );
    }
    warnings.extend(programs_of_clients(site));
    warnings.extend(unheard_hosts(site, bound));
    warnings.extend(site.warnings.all().cloned());
    warnings
}

/// Warns of addresses of `[[host]]` tables at which nothing listens.
fn unheard_hosts(site: &Site, bound: Bound<'_>) -> Vec<String> {
    let doors = [bound.ftp, bound.ftps, bound.http, bound.https];
    let is_heard =
        |address: &&HostAddress| doors.into_iter().flatten().any(|bound| address.is_heard_at(*bound));
    // A proxy may name addresses that are not this computer's, and another process may listen.
    let is_told = site.serves_one_connection || !site.config.proxy_from.is_empty();
    let unheard = site.host_addresses.iter().filter(|address| !is_told && !is_heard(address));
    unheard
        .map(|address| {
            format!(
                "no client reaches the host at {address}: none of the addresses in ftp, ftps, http and https covers it"
            )
        })
        .collect()
}

/// Warns of users that are refused for other reasons than a setting that disables them.
fn shut_out_by_mistake(site: &Site) -> impl Iterator<Item = String> {
    let kept_out = site.logins.iter().filter(|login| !who::is_shut_out_on_purpose(login));
    kept_out.take(LOGINS_SHOWN).filter_map(|login| {
        Some(format!("{} is not served: {}", login.shown(), who::shut_out(login, &site.config)?))
    })
}

/// Warns of users that may write to a folder of programs, which run with the server's rights.
fn programs_of_clients(site: &Site) -> Option<String> {
    let writers = site.logins.iter().filter(|login| login.access == Access::ReadWrite);
    let (writer, folder) = writers.into_iter().find_map(|login| {
        let beneath = login.beneath.as_deref().unwrap_or(Path::new(""));
        let beneath = site.directory.join(beneath);
        let mut folders = site.config.programs.folders.iter();
        Some((login, &folders.find(|(_, folder)| folder.starts_with(&beneath))?.0))
    })?;
    Some(format!(
        "{} may write to {folder}, whose files are programs, and so run anything with the rights of this server",
        writer.name.as_deref().unwrap_or("anonymous"),
    ))
}

/// The warning about unencrypted passwords at the FTP port.
fn in_clear(site: &Site) -> Option<&'static str> {
    match &site.config.tls {
        None => Some("passwords and files cross the network unencrypted: this is FTP without TLS"),
        Some(tls) if !tls.login_required => Some(
            "passwords of clients that do not ask for TLS cross the network unencrypted; --tls-required login \
             turns these away",
        ),
        Some(_) => None,
    }
}

/// `the users of /var/lib/millrace/users.db`
pub(crate) fn users(source: &str) -> String {
    format!("the users {source}")
}

fn url(scheme: &str, login: &Login, host: SocketAddr) -> String {
    match &login.name {
        None => format!("{scheme}://{host}/"),
        Some(name) => format!("{scheme}://{}@{host}/", percent_encoded(name)),
    }
}

fn percent_encoded(name: &str) -> String {
    let mut encoded = String::new();
    for byte in name.bytes() {
        match byte {
            b'-' | b'.' | b'_' | b'~' => encoded.push(byte.into()),
            _ if byte.is_ascii_alphanumeric() => encoded.push(byte.into()),
            _ => encoded += &format!("%{byte:02X}"),
        }
    }
    encoded
}

/// The addresses to paste: of IPv4 and IPv6, where both come to this one.
fn hosts(public: Option<Ipv4Addr>, bound: SocketAddr, serves_ipv4: bool) -> Vec<SocketAddr> {
    let any_v4 = SocketAddr::from((Ipv4Addr::UNSPECIFIED, bound.port()));
    let v4 = serves_ipv4.then(|| host(public, any_v4));
    v4.into_iter().chain([host(public, bound)]).collect()
}

/// An address to paste: the public one, or for `0.0.0.0` the one that this computer has on its network.
fn host(public: Option<Ipv4Addr>, bound: SocketAddr) -> SocketAddr {
    let ip = match bound.ip() {
        ip if !ip.is_unspecified() => ip,
        IpAddr::V4(_) => public.or_else(own_v4).unwrap_or(Ipv4Addr::LOCALHOST).into(),
        IpAddr::V6(_) => own_v6().unwrap_or(Ipv6Addr::LOCALHOST).into(),
    };
    SocketAddr::new(ip, bound.port())
}

fn own_v4() -> Option<Ipv4Addr> {
    match own_address("0.0.0.0:0", "192.0.2.1:9")? {
        IpAddr::V4(ip) => Some(ip),
        IpAddr::V6(_) => None,
    }
}

fn own_v6() -> Option<Ipv6Addr> {
    match own_address("[::]:0", "[2001:db8::1]:9")? {
        IpAddr::V6(ip) => Some(ip),
        IpAddr::V4(_) => None,
    }
}

/// The address that packets to `beyond` would leave from. Connecting a datagram socket sends nothing.
fn own_address(any: &str, beyond: &str) -> Option<IpAddr> {
    let socket = UdpSocket::bind(any).ok()?;
    socket.connect(beyond).ok()?;
    Some(socket.local_addr().ok()?.ip())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_encoded_for_urls() {
        assert_eq!(percent_encoded("alice-2"), "alice-2");
        assert_eq!(percent_encoded("a b@c:é"), "a%20b%40c%3A%C3%A9");
    }

    #[test]
    fn the_public_address_stands_for_any_address_only() {
        let public = Some(Ipv4Addr::new(203, 0, 113, 7));
        assert_eq!(host(public, "0.0.0.0:21".parse().unwrap()).to_string(), "203.0.113.7:21");
        assert_eq!(host(public, "127.0.0.1:21".parse().unwrap()).to_string(), "127.0.0.1:21");
        assert!(!host(None, "[::]:21".parse().unwrap()).ip().is_unspecified());
    }

    #[test]
    fn any_address_of_ipv6_is_one_of_ipv4_too_unless_that_has_the_port() {
        let public = Some(Ipv4Addr::new(203, 0, 113, 7));
        let any: SocketAddr = "[::]:21".parse().unwrap();
        let both = hosts(public, any, true);
        assert_eq!(both[0].to_string(), "203.0.113.7:21");
        assert!(both.len() == 2 && both[1].is_ipv6() && !both[1].ip().is_unspecified());
        let bound = |ftp: &[&str], http: &[&str]| {
            let parse = |list: &[&str]| list.iter().map(|text| text.parse().unwrap()).collect::<Vec<_>>();
            let (ftp, http) = (parse(ftp), parse(http));
            Bound { ftp: &ftp, http: &http, ftps: &[], https: &[], admin: &[], admin_has_tls: false }
                .serves_ipv4(any)
        };
        assert!(bound(&["[::]:21"], &["0.0.0.0:80"]));
        assert!(!bound(&["[::]:21", "0.0.0.0:21"], &[]));
        assert!(!bound(&["[::]:21"], &["127.0.0.1:21"]));
    }
}
