//! Where a server is open: the addresses, and the ports of data connections.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use millrace_server::Config;
use millrace_terminal::Failure;

use super::places::Places;
use super::said::{Place, Said};
use super::value::{Listen, Ports};
use super::written::Written;
use crate::activation::LISTEN_FDS;

/// Where FTP is served when nothing says where.
const DEFAULT_FTP: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 2121);

/// Where HTTP is served when nothing says where.
const DEFAULT_HTTP: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8080);

/// The default, or a free port if FTP has a free one: several servers can then run at once.
fn default_http(ftp: &[SocketAddr]) -> SocketAddr {
    let wants_free = ftp.iter().any(|address| address.port() == 0);
    SocketAddr::new(DEFAULT_HTTP.ip(), if wants_free { 0 } else { DEFAULT_HTTP.port() })
}

/// Puts addresses, whose sockets a service manager has opened, in the place of those that were written for their doors.
pub(super) fn listen_at(written: &mut Written, sockets: &[(millrace_server::Door, SocketAddr)]) {
    use millrace_server::Door;

    let said = |value| Said { value, place: Place::Environment(LISTEN_FDS.to_owned()) };
    for (door, said_there, is_by_default) in [
        (Door::Ftp, &mut written.ftp, true),
        (Door::Ftps, &mut written.ftps, false),
        (Door::Http, &mut written.http, true),
        (Door::Https, &mut written.https, false),
    ] {
        let here = sockets.iter().filter(|(other, _)| *other == door);
        let here: Vec<_> = here.map(|(_, address)| said(Listen::On(*address))).collect();
        if !here.is_empty() {
            *said_there = here;
        } else if said_there.is_empty() && is_by_default {
            *said_there = vec![said(Listen::Off)];
        }
    }
}

/// Where FTP and HTTP are served in the clear; `in_tls` is what is served beside them.
pub(super) fn in_clear(
    written: &Written,
    in_tls: &[SocketAddr],
    places: &Places<'_>,
) -> Result<(Vec<SocketAddr>, Vec<SocketAddr>), Failure> {
    refuse_to_serve_nothing(&written.ftp, in_tls, &written.http, places)?;
    let ftp = listens(written.ftp.clone(), "--ftp", vec![DEFAULT_FTP], places)?;
    let http = listens(written.http.clone(), "--http", vec![default_http(&ftp)], places)?;
    Ok((ftp, http))
}

fn refuse_to_serve_nothing(
    ftp: &[Said<Listen>],
    in_tls: &[SocketAddr],
    http: &[Said<Listen>],
    places: &Places<'_>,
) -> Result<(), Failure> {
    match (ftp, in_tls, http) {
        ([Said { value: Listen::Off, place }], [], [Said { value: Listen::Off, .. }]) => {
            let message = "nothing would be served: FTP is off, and HTTP is too";
            Err(places.error(place, "--ftp", message))
        }
        _ => Ok(()),
    }
}

pub(super) fn listens(
    said: Vec<Said<Listen>>,
    flag: &str,
    default: Vec<SocketAddr>,
    places: &Places<'_>,
) -> Result<Vec<SocketAddr>, Failure> {
    if said.is_empty() {
        return Ok(default);
    }
    let mut addresses = Vec::new();
    for (index, one) in said.iter().enumerate() {
        let address = match one.value {
            Listen::On(address) => address,
            Listen::Off if said.len() > 1 => {
                return Err(places.error(&one.place, flag, "\"off\" cannot stand beside an address"));
            }
            Listen::Off => return Ok(Vec::new()),
        };
        let again = said[..index].iter().any(|other| other.value == one.value);
        if again && address.port() != 0 {
            return Err(places.error(&one.place, flag, &format!("{address} is named twice")));
        }
        addresses.push(address);
    }
    Ok(addresses)
}

pub(super) fn passive_ports(
    said: Option<Said<Ports>>,
    doors: &[(&str, &[SocketAddr])],
    places: &Places<'_>,
) -> Result<std::ops::RangeInclusive<u16>, Failure> {
    let (range, place) = match said {
        Some(Said { value: Ports(range), place }) => (range, place),
        None => (Config::DEFAULT_PASSIVE_PORTS, Place::CommandLine),
    };
    let mut ports = doors
        .iter()
        .flat_map(|(name, addresses)| addresses.iter().map(move |address| (*name, address.port())));
    match ports.find(|(_, port)| range.contains(port)) {
        None => Ok(range),
        Some((name, port)) => {
            let message = format!(
                "port {port} is where {name} is served, so it cannot be one of the data ports {} to {} too",
                range.start(),
                range.end()
            );
            Err(places.error(&place, "--passive-ports", &message))
        }
    }
}

/// A listener as configured: the name of its flag, the protocol, the addresses.
type Door<'a> = (&'static str, &'static str, &'a [Said<Listen>]);

/// Refuses an address that two doors ask for, or of which one has all that there are.
pub(super) fn refuse_shared_addresses(written: &Written, places: &Places<'_>) -> Result<(), Failure> {
    let by_default = [Said::on_command_line(Listen::On(DEFAULT_FTP))];
    let ftp = if written.ftp.is_empty() { &by_default } else { &written.ftp[..] };
    let doors: [Door<'_>; 5] = [
        ("--ftp", "FTP", ftp),
        ("--ftps", "FTPS", &written.ftps),
        ("--http", "HTTP", &written.http),
        ("--https", "HTTPS", &written.https),
        ("--admin", "health and metrics", &written.admin),
    ];
    let mut taken: Vec<(SocketAddr, &str)> = Vec::new();
    for (flag, name, said) in doors {
        for one in said {
            let Listen::On(address) = one.value else { continue };
            // An address that is twice in one list is told as that.
            let is_another = |whose: &str, other| whose != name || other != address;
            let conflict =
                |(other, whose): &&(SocketAddr, &str)| are_one(*other, address) && is_another(whose, *other);
            if let Some((other, whose)) = taken.iter().find(conflict) {
                let message = format!(
                    "{address} cannot be had, as {whose} is served at {other}; choose another port for one of the two"
                );
                return Err(places.error(&one.place, flag, &message));
            }
            taken.push((address, name));
        }
    }
    Ok(())
}

/// Returns true if two addresses conflict. A port that is still to be chosen conflicts with no other.
fn are_one(one: SocketAddr, other: SocketAddr) -> bool {
    let is_any = one.ip().is_unspecified() || other.ip().is_unspecified();
    one.port() == other.port()
        && one.port() != 0
        && one.is_ipv4() == other.is_ipv4()
        && (is_any || one.ip() == other.ip())
}
