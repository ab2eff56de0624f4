//! What is printed when a server is ready: what is open, to whom, and the URL to paste.
//!
//! Scripts wait for the line that begins with `Ready` and read the real port from the first URL.

use std::fmt::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::path::Path;

use crate::check::time;
use crate::config::{Access, Login, Site};

/// Logins shown for each address; more would scroll the URLs away.
const LOGINS_SHOWN: usize = 16;

/// Where a server is open.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bound<'a> {
    pub(crate) ftp: &'a [SocketAddr],
    pub(crate) http: &'a [SocketAddr],
    pub(crate) ftps: &'a [SocketAddr],
    pub(crate) https: &'a [SocketAddr],
}

impl Bound<'_> {
    /// Claims that somebody else than this computer can connect.
    fn is_open(self) -> bool {
        let doors = [self.ftp, self.ftps, self.http, self.https];
        doors.into_iter().flatten().any(|address| !address.ip().is_loopback())
    }

    /// Claims that clients by IPv4 come to an address of IPv6, too: to any address there is, at a port that nothing
    /// of IPv4 has.
    fn serves_ipv4(self, address: SocketAddr) -> bool {
        let doors = [self.ftp, self.ftps, self.http, self.https];
        let is_taken = |other: &SocketAddr| other.is_ipv4() && other.port() == address.port();
        address.is_ipv6() && address.ip().is_unspecified() && !doors.into_iter().flatten().any(is_taken)
    }
}

/// The announcement, for standard output; `fingerprints` are those of the certificates.
pub(crate) fn announcement(site: &Site, bound: Bound<'_>, fingerprints: &[String]) -> String {
    let doors = bound.ftp.iter().map(|address| ("ftp", address));
    let doors = doors.chain(bound.ftps.iter().map(|address| ("ftps", address)));
    let hosts = |address: &SocketAddr| hosts(site.config.public_ip, *address, bound.serves_ipv4(*address));
    let doors =
        doors.flat_map(|(scheme, address)| hosts(address).into_iter().map(move |host| (scheme, host)));
    let ftp = doors.flat_map(|(scheme, host)| {
        let listed =
            site.logins.iter().take(LOGINS_SHOWN).map(move |login| (url(scheme, login, host), may(login)));
        listed.chain(site.sources.iter().map(move |source| (format!("{scheme}://{host}/"), users(source))))
    });
    let http = bound.http.iter().map(|address| ("http", address));
    let http = http.chain(bound.https.iter().map(|address| ("https", address)));
    let http = http.flat_map(|(scheme, address)| {
        let url = move |host| (format!("{scheme}://{host}/"), browsers(site, scheme).to_owned());
        hosts(address).into_iter().map(url)
    });
    let lines: Vec<(String, String)> = ftp.chain(http).collect();
    let width = lines.iter().map(|(url, _)| url.chars().count()).max().unwrap_or(0);

    let mut text = format!("Millrace {} serves {}\n", env!("CARGO_PKG_VERSION"), site.directory.display());
    for (url, may) in &lines {
        let _ = writeln!(text, "  {url:width$}   {may}");
    }
    if let Some(hidden @ 1..) = site.logins.len().checked_sub(LOGINS_SHOWN) {
        let _ = writeln!(text, "  and {hidden} more users");
    }
    for fingerprint in fingerprints {
        let _ = writeln!(text, "  The certificate's SHA-256 fingerprint:\n    {fingerprint}");
    }
    if let ([address], false) = (bound.ftp, bound.is_open()) {
        let _ = writeln!(
            text,
            "  Only this computer can connect; --ftp 0.0.0.0:{} opens it to the network.",
            address.port()
        );
    }
    let _ = match site.config.grace.is_zero() {
        true => writeln!(text, "Ready. Ctrl-C stops at once."),
        false => writeln!(text, "Ready. Ctrl-C stops; running transfers get {}.", time(site.config.grace)),
    };
    text
}

/// What is served by HTTP.
fn browsers(site: &Site, scheme: &str) -> &'static str {
    match &site.config.tls {
        Some(tls) if scheme == "http" && tls.data_required => {
            "nothing: files have to be encrypted (tls-required)"
        }
        Some(tls) if scheme == "http" && tls.login_required => "the same, but logins have to be encrypted",
        _ => "the same, for browsers",
    }
}

/// What an operator should think about, for standard error.
pub(crate) fn warnings(site: &Site, bound: Bound<'_>) -> Vec<String> {
    let open = bound.is_open();
    let may_write = |login: &&Login| login.name.is_none() && login.access == Access::ReadWrite;
    let mut warnings = Vec::new();
    if open && site.logins.iter().any(|login| may_write(&login)) {
        warnings.push(
            "everyone who can reach this computer may write, delete and fill the disk: anonymous is rw"
                .to_owned(),
        );
    }
    let ftp_is_open = bound.ftp.iter().any(|address| !address.ip().is_loopback());
    if ftp_is_open && (!site.sources.is_empty() || site.logins.iter().any(|login| login.name.is_some())) {
        warnings.extend(in_clear(site).map(str::to_owned));
    }
    warnings.extend(programs_of_clients(site));
    warnings.extend(site.exposed.iter().cloned());
    warnings
}

/// Who may put programs where they are run, with the server's own rights.
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

/// What is to be said of passwords at the port of FTP.
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

/// `alice may read and write, in photos`.
pub(crate) fn may(login: &Login) -> String {
    let name = login.name.as_deref().unwrap_or("anonymous");
    let access = match login.access {
        Access::ReadOnly => "read",
        Access::ReadWrite => "read and write",
    };
    match &login.beneath {
        None => format!("{name} may {access}"),
        Some(folder) => format!("{name} may {access}, in {}", folder.display()),
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
            Bound { ftp: &ftp, http: &http, ftps: &[], https: &[] }.serves_ipv4(any)
        };
        assert!(bound(&["[::]:21"], &["0.0.0.0:80"]));
        assert!(!bound(&["[::]:21", "0.0.0.0:21"], &[]));
        assert!(!bound(&["[::]:21"], &["127.0.0.1:21"]));
    }
}
