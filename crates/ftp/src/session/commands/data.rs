//! `PORT`, `PASV`, `EPRT`, `EPSV`, `LPRT`, `LPSV`, `PRET`: setup of the next data connection.
//!
//! An address that the client names must be its own and its port no lower than 1024 (the bounce attack
//! of RFC 2577), unless the server allows foreign data connections.

use std::net::{IpAddr, SocketAddr};

use super::{Argument, Command, Feat, ROW, Status};
use crate::address::{self, ExtendedError};
use crate::reply::{Reply, code};
use crate::session::{Act, Answer, DataPlan, Request, Session, Step, split};

pub(super) const PORT: Command = Command {
    verb: "PORT",
    argument: Argument::Required,
    help: "PORT <h1,h2,h3,h4,p1,p2>",
    run: |session, argument| match address::parse_port(argument.trim_ascii()) {
        Some(address) if session.peer.is_ipv4() || session.settings.foreign_data => active(session, address),
        Some(_) => Reply::new(code::BAD_ARGUMENT, "This connection is IPv6: use EPRT or EPSV.").into(),
        None => Reply::new(code::BAD_ARGUMENT, "Syntax: PORT h1,h2,h3,h4,p1,p2 with numbers from 0 to 255.")
            .into(),
    },
    ..ROW
};

pub(super) const PASV: Command =
    Command { verb: "PASV", help: "PASV", run: |session, _| pasv(session), ..ROW };

pub(super) const EPRT: Command = Command {
    verb: "EPRT",
    argument: Argument::Required,
    feat: Feat::Line("EPRT"),
    help: "EPRT |<1 or 2>|<address>|<port>|",
    source: "RFC 2428",
    run: |session, argument| eprt(session, address::parse_extended(argument.trim_ascii())),
    ..ROW
};

pub(super) const EPSV: Command = Command {
    verb: "EPSV",
    argument: Argument::Optional,
    feat: Feat::Line("EPSV"),
    help: "EPSV [1|2|ALL]",
    source: "RFC 2428",
    run: epsv,
    ..ROW
};

pub(super) const LPRT: Command = Command {
    verb: "LPRT",
    argument: Argument::Required,
    help: "LPRT <family,length,octets...,2,p1,p2>",
    source: "RFC 1639",
    run: |session, argument| lprt(session, address::parse_long(argument.trim_ascii())),
    ..ROW
};

pub(super) const LPSV: Command = Command {
    verb: "LPSV",
    help: "LPSV",
    source: "RFC 1639",
    run: |session, _| listen(session, false, long_listening),
    ..ROW
};

pub(super) const PRET: Command = Command {
    verb: "PRET",
    argument: Argument::Required,
    feat: Feat::Line("PRET"),
    help: "PRET <transfer command> [<argument>]",
    source: "drftpd",
    note: "lets a distributed server choose a node before PASV; there is one node here",
    run: pret,
    ..ROW
};

pub(super) const ESTA: Command = Command {
    verb: "ESTA",
    argument: Argument::Optional,
    help: "ESTA",
    source: "none",
    status: Status::Refused,
    note: "no document defines it: neither an RFC, nor a draft, nor the registry of RFC 5797",
    run: |_, _| NOT_DEFINED.into(),
    ..ROW
};

pub(super) const ESTP: Command = Command { verb: "ESTP", help: "ESTP", ..ESTA };

const NOT_DEFINED: Reply =
    Reply::new(code::NOT_IMPLEMENTED, "No document says what this command does: use EPRT or EPSV.");

const ONLY_EXTENDED: Reply = Reply::new(code::BAD_ARGUMENT, "Refused: EPSV ALL was given.");

const NOT_AN_ADDRESS: Reply = Reply::new(code::BAD_ARGUMENT, "Not an address and port.");

fn eprt(session: &mut Session, address: Result<SocketAddr, ExtendedError>) -> Step {
    match address {
        Ok(address) => match family_refusal(session, address) {
            None => active(session, address),
            Some(reply) => reply.into(),
        },
        Err(ExtendedError::Family) => {
            Reply::new(code::BAD_FAMILY, "Network protocol not supported, use (1,2).").into()
        }
        Err(ExtendedError::Malformed) => NOT_AN_ADDRESS.into(),
    }
}

/// The client's own address is of the control connection's family, and no other is taken without FXP.
fn family_refusal(session: &Session, address: SocketAddr) -> Option<Reply> {
    let is_same = address.ip().to_canonical().is_ipv4() == session.peer.is_ipv4();
    match session.peer.is_ipv4() {
        _ if is_same || session.settings.foreign_data => None,
        true => Some(ONLY_IPV4),
        false => Some(ONLY_IPV6),
    }
}

const ONLY_IPV4: Reply = Reply::new(code::BAD_FAMILY, "This connection is IPv4, use (1).");
const ONLY_IPV6: Reply = Reply::new(code::BAD_FAMILY, "This connection is IPv6, use (2).");

fn lprt(session: &mut Session, address: Result<SocketAddr, ExtendedError>) -> Step {
    match address {
        Ok(address) => active(session, address),
        Err(ExtendedError::Family) => {
            Reply::new(code::BAD_LONG_FAMILY, "Supported address families are (4,6).").into()
        }
        Err(ExtendedError::Malformed) => NOT_AN_ADDRESS.into(),
    }
}

fn active(session: &mut Session, address: SocketAddr) -> Step {
    if session.extended_only {
        return ONLY_EXTENDED.into();
    }
    let ip = address.ip().to_canonical();
    if !session.settings.foreign_data && ip != session.peer.ip() {
        return Reply::new(code::BAD_ARGUMENT, "Refused: the address is not that of this client.").into();
    }
    if address.port() < 1024 {
        return Reply::new(code::BAD_ARGUMENT, "Refused: ports below 1024 are not for data.").into();
    }
    session.security.plays_client_next = false;
    session.data = DataPlan::Active(SocketAddr::new(ip, address.port()));
    Step::from(Reply::new(code::OK, "Will connect to you.")).then(Act::DropPassive)
}

fn epsv(session: &mut Session, argument: &[u8]) -> Step {
    match (&argument.trim_ascii().to_ascii_uppercase()[..], session.local.ip()) {
        (b"ALL", _) => {
            session.extended_only = true;
            Reply::new(code::OK, "Only EPSV from now on.").into()
        }
        (b"", _) | (b"1", IpAddr::V4(_)) | (b"2", IpAddr::V6(_)) => listen(session, true, extended_listening),
        (b"1", _) => ONLY_IPV6.into(),
        (b"2", _) => ONLY_IPV4.into(),
        (other, _) if other.iter().all(u8::is_ascii_digit) => {
            Reply::new(code::BAD_FAMILY, "Network protocol not supported, use (1,2).").into()
        }
        _ => Reply::new(code::BAD_ARGUMENT, "Syntax: EPSV [1|2|ALL]").into(),
    }
}

fn pasv(session: &mut Session) -> Step {
    if session.local.is_ipv6() {
        return Reply::new(code::NO_DATA_CONNECTION, "PASV cannot name an IPv6 address: use EPSV.").into();
    }
    listen(session, false, listening)
}

/// `CPSV`: passive, and the client in the handshake.
pub(super) fn listen_as_client(session: &mut Session) -> Step {
    let step = pasv(session);
    session.security.plays_client_next = true;
    step
}

fn listen(session: &mut Session, extended: bool, then: fn(&mut Session, Answer) -> Step) -> Step {
    if session.extended_only && !extended {
        return ONLY_EXTENDED.into();
    }
    session.data = DataPlan::None;
    session.security.plays_client_next = false;
    session.ask(Request::Listen, then)
}

fn listening(session: &mut Session, answer: Answer) -> Step {
    match leased(session, answer) {
        Ok(address) => {
            // The driver listens where the client connected to, which is IPv4.
            let IpAddr::V4(ip) = named(session, address).ip() else { return Step::mismatch() };
            let numbers = address::format_port(ip, address.port());
            Reply::owned(code::PASSIVE, format!("Entering Passive Mode ({numbers}).")).into()
        }
        Err(reply) => reply.into(),
    }
}

/// The address to tell a client: behind NAT not our own.
fn named(session: &Session, address: SocketAddr) -> SocketAddr {
    match (address.ip().to_canonical(), session.settings.public_ip) {
        (IpAddr::V4(_), Some(public)) => SocketAddr::new(public.into(), address.port()),
        (ip, _) => SocketAddr::new(ip, address.port()),
    }
}

fn extended_listening(session: &mut Session, answer: Answer) -> Step {
    match leased(session, answer) {
        Ok(address) => {
            let text = format!("Entering Extended Passive Mode (|||{}|)", address.port());
            Reply::owned(code::EXTENDED_PASSIVE, text).into()
        }
        Err(reply) => reply.into(),
    }
}

fn long_listening(session: &mut Session, answer: Answer) -> Step {
    match leased(session, answer) {
        Ok(address) => {
            let text =
                format!("Entering Long Passive Mode ({})", address::format_long(named(session, address)));
            Reply::owned(code::LONG_PASSIVE, text).into()
        }
        Err(reply) => reply.into(),
    }
}

fn leased(session: &mut Session, answer: Answer) -> Result<SocketAddr, Reply> {
    match answer {
        Answer::Listening(address) => {
            session.data = DataPlan::Passive;
            Ok(address)
        }
        Answer::NoPort(why) => Err(Reply::filled(code::NO_DATA_CONNECTION, "No passive port: {}.", [why])),
        _ => Err(Reply::new(code::NO_DATA_CONNECTION, "No passive port.")),
    }
}

fn pret(_: &mut Session, argument: &[u8]) -> Step {
    match super::find(split(argument).0) {
        Some(command) if command.transfers => {
            Reply::new(code::OK, "One server has it all: go on with PASV.").into()
        }
        _ => Reply::new(code::BAD_PARAMETER, "PRET takes a command that uses the data connection.").into(),
    }
}
