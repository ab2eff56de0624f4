//! `AUTH`, `PBSZ`, `PROT`, `CCC` and their kin (RFC 2228, RFC 4217), and `HOST` (RFC 7151): protection of the
//! connections.
//!
//! The handshake itself is the driver's. Between `AUTH`'s 234 and [`Input::Secured`](crate::session::Input)
//! the session takes no line, and nothing that was said before survives it: not a name, not a `REST`.

use super::data;
use super::{Argument, Command, Feat, ROW, Status, When};
use crate::reply::{Reply, code};
use crate::session::{Access, Act, Answer, Request, Security, Session, Step};

pub(super) const AUTH: Command = Command {
    verb: "AUTH",
    argument: Argument::Required,
    when: When::Always,
    feat: Feat::WithTls("AUTH TLS;TLS-C;TLS-P;SSL"),
    help: "AUTH <TLS, TLS-C, TLS-P or SSL>",
    source: "RFC 4217",
    note: "TLS 1.2 and 1.3. TLS-P and SSL begin with PROT P, the others with PROT C",
    run: auth,
    ..ROW
};

pub(super) const PBSZ: Command = Command {
    verb: "PBSZ",
    argument: Argument::Required,
    when: When::Always,
    feat: Feat::WithTls("PBSZ"),
    help: "PBSZ <size>",
    source: "RFC 4217",
    note: "always 0: TLS has its own blocks",
    run: pbsz,
    ..ROW
};

pub(super) const PROT: Command = Command {
    verb: "PROT",
    argument: Argument::Required,
    when: When::Always,
    feat: Feat::WithTls("PROT"),
    help: "PROT <C or P>",
    source: "RFC 4217",
    note: "S and E are no levels of TLS: 536",
    run: prot,
    ..ROW
};

pub(super) const CCC: Command = Command {
    verb: "CCC",
    feat: Feat::WithTls("CCC"),
    help: "CCC",
    source: "RFC 4217",
    note: "only where the server is set to allow it: who can change packets can then give commands",
    run: ccc,
    ..ROW
};

pub(super) const ADAT: Command = Command {
    verb: "ADAT",
    argument: Argument::Required,
    when: When::Always,
    help: "ADAT <data>",
    source: "RFC 2228",
    status: Status::Unfit,
    note: "TLS exchanges nothing on the control connection: 503",
    run: |_, _| Reply::new(code::BAD_SEQUENCE, "TLS needs no ADAT.").into(),
    ..ROW
};

pub(super) const MIC: Command = Command {
    verb: "MIC",
    argument: Argument::Required,
    when: When::Always,
    help: "MIC <data>",
    source: "RFC 2228",
    status: Status::Unfit,
    note: "TLS protects the whole connection, not single commands: 537",
    run: |_, _| {
        Reply::new(code::BAD_COMMAND_PROTECTION, "TLS protects the whole connection: use AUTH TLS.").into()
    },
    ..ROW
};

pub(super) const CONF: Command = Command { verb: "CONF", help: "CONF <data>", ..MIC };

pub(super) const ENC: Command = Command { verb: "ENC", help: "ENC <data>", ..MIC };

pub(super) const SSCN: Command = Command {
    verb: "SSCN",
    argument: Argument::Optional,
    feat: Feat::WithTls("SSCN"),
    help: "SSCN [ON|OFF]",
    source: "FlashFXP",
    note: "for copies between two servers: this one then plays the client in the handshake of data connections",
    run: sscn,
    ..ROW
};

pub(super) const CPSV: Command = Command {
    verb: "CPSV",
    feat: Feat::WithTls("CPSV"),
    help: "CPSV",
    source: "glftpd",
    note: "PASV for a copy between two servers, as with SSCN",
    run: |session, _| match session.security.protects_data {
        true => data::listen_as_client(session),
        false => Reply::new(code::BAD_SEQUENCE, "CPSV needs PROT P.").into(),
    },
    ..ROW
};

pub(super) const HOST: Command = Command {
    verb: "HOST",
    argument: Argument::Required,
    when: When::Always,
    feat: Feat::Line("HOST"),
    help: "HOST <name>",
    source: "RFC 7151",
    note: "before the login, and before AUTH, whose certificate it chooses where there are several",
    run: host,
    ..ROW
};

fn auth(session: &mut Session, mechanism: &[u8]) -> Step {
    let protects_data = match &mechanism.trim_ascii().to_ascii_uppercase()[..] {
        b"TLS" | b"TLS-C" => false,
        b"TLS-P" | b"SSL" => true,
        _ => return Reply::new(code::BAD_PARAMETER, "Unknown mechanism: use AUTH TLS.").into(),
    };
    if session.settings.tls.is_none() {
        return Reply::new(code::POLICY, "This server has no certificate: TLS is not available.").into();
    }
    if session.security.is_encrypted {
        return Reply::new(code::BAD_SEQUENCE, "The connection is encrypted already.").into();
    }
    session.secure(Security { agreed_size: protects_data, protects_data, ..Security::default() });
    Step::from(Reply::new(code::SECURITY_ACCEPTED, "Begin with TLS.")).then(Act::StartTls)
}

fn pbsz(session: &mut Session, size: &[u8]) -> Step {
    if !session.security.was_encrypted {
        return FIRST_AUTH.into();
    }
    let size = size.trim_ascii();
    if !size.iter().all(u8::is_ascii_digit) || size.len() > 10 {
        return Reply::new(code::BAD_ARGUMENT, "Syntax: PBSZ <size>, a number up to 4294967295.").into();
    }
    session.security.agreed_size = true;
    Reply::new(code::OK, "PBSZ=0").into()
}

fn prot(session: &mut Session, level: &[u8]) -> Step {
    if !session.security.was_encrypted {
        return FIRST_AUTH.into();
    }
    if !session.security.agreed_size {
        return Reply::new(code::BAD_SEQUENCE, "Give PBSZ first.").into();
    }
    match &level.trim_ascii().to_ascii_uppercase()[..] {
        b"P" => {
            session.security.protects_data = true;
            Reply::new(code::OK, "Data connections are encrypted.").into()
        }
        b"C" if session.requires_encrypted_data() => {
            Reply::new(code::POLICY, "Data connections have to be encrypted here: PROT P.").into()
        }
        b"C" => {
            session.security.protects_data = false;
            Reply::new(code::OK, "Data connections are in clear.").into()
        }
        b"S" | b"E" => {
            Reply::new(code::BAD_PROTECTION, "TLS has no such level: use PROT P, or PROT C.").into()
        }
        _ => Reply::new(code::BAD_PARAMETER, "Syntax: PROT <C or P>").into(),
    }
}

const FIRST_AUTH: Reply = Reply::new(code::BAD_SEQUENCE, "Give AUTH TLS first.");

fn ccc(session: &mut Session, _: &[u8]) -> Step {
    if !session.security.is_encrypted {
        return Reply::new(code::BAD_COMMAND_LEVEL, "The control connection is in clear already.").into();
    }
    if !session.settings.tls.as_ref().is_some_and(|tls| tls.clear_command_channel) {
        return Reply::new(code::POLICY, "Commands stay encrypted on this server.").into();
    }
    session.security.is_encrypted = false;
    session.wait_for_handshake();
    Step::from(Reply::new(code::OK, "Back to clear text.")).then(Act::StopTls)
}

fn sscn(session: &mut Session, argument: &[u8]) -> Step {
    if !session.security.protects_data {
        return Reply::new(code::BAD_SEQUENCE, "SSCN needs PROT P.").into();
    }
    match &argument.trim_ascii().to_ascii_uppercase()[..] {
        b"" => {}
        b"ON" => session.security.plays_client = true,
        b"OFF" => session.security.plays_client = false,
        _ => return Reply::new(code::BAD_ARGUMENT, "Syntax: SSCN [ON|OFF]").into(),
    }
    match session.security.plays_client {
        true => Reply::new(code::OK, "SSCN:CLIENT METHOD").into(),
        false => Reply::new(code::OK, "SSCN:SERVER METHOD").into(),
    }
}

fn host(session: &mut Session, name: &[u8]) -> Step {
    if !matches!(session.access, Access::Stranger) {
        return Reply::new(code::BAD_SEQUENCE, "HOST comes before USER.").into();
    }
    let name = name.trim_ascii();
    // An address of version 6 stands in brackets; a name ends without its dot.
    let bare = name.strip_prefix(b"[").and_then(|name| name.strip_suffix(b"]")).unwrap_or(name);
    let bare = bare.strip_suffix(b".").unwrap_or(bare);
    let good = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._:".contains(byte);
    match std::str::from_utf8(bare) {
        Ok(bare) if !bare.is_empty() && bare.len() <= 255 && bare.bytes().all(|byte| good(&byte)) => {
            session.ask_whether(Request::Host(bare.to_ascii_lowercase()), chosen)
        }
        _ => Reply::new(code::BAD_ARGUMENT, "Not the name of a host.").into(),
    }
}

fn chosen(_: &mut Session, answer: Answer) -> Step {
    match answer {
        Answer::Done => Reply::new(code::READY, "Welcome there.").into(),
        _ => Reply::new(code::BAD_PARAMETER, "There is no such host here.").into(),
    }
}
