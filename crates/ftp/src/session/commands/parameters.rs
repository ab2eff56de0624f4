//! `TYPE`, `STRU`, `MODE`: how bytes become a stream (RFC 959 section 3), and `OPTS MODE`.

use super::{Argument, Command, Feat, ROW};
use crate::codec::{Coding, Mode, Structure, Type};
use crate::reply::{Reply, code};
use crate::session::{Session, Step};

pub(super) const TYPE: Command = Command {
    verb: "TYPE",
    argument: Argument::Required,
    help: "TYPE A|I|E|L 8",
    note: "A N, E N (code page 037), I, L 8; Telnet and carriage control formats get 504",
    run: r#type,
    ..ROW
};

pub(super) const STRU: Command = Command {
    verb: "STRU",
    argument: Argument::Required,
    help: "STRU F|R",
    note: "a line of a file is a record; pages get 504",
    run: stru,
    ..ROW
};

pub(super) const MODE: Command = Command {
    verb: "MODE",
    argument: Argument::Required,
    feat: Feat::Made(|session| session.settings.mode_z.then(|| "MODE Z".to_owned())),
    help: "MODE S|B|Z",
    note: "block with restart markers, deflate (draft-preston-ftpext-deflate); compressed gets 504",
    run: mode,
    ..ROW
};

/// The level of `MODE Z` until `OPTS MODE Z LEVEL` says otherwise: source text becomes 0.29 of what it was, at 1.5 times the
/// pace of level 6, which makes it 0.25.
const DEFLATE_LEVEL: u8 = 2;

/// `TYPE A, STRU F, MODE S`, for `STAT`.
pub(super) fn describe(coding: Coding) -> String {
    let representation = match coding.representation {
        Type::Ascii => "A",
        Type::Ebcdic => "E",
        Type::Image => "I",
    };
    let structure = match coding.structure {
        Structure::File => "F",
        Structure::Record => "R",
    };
    let mode = match coding.mode {
        Mode::Stream => "S",
        Mode::Block => "B",
        Mode::Deflate { .. } => "Z",
    };
    format!("TYPE {representation}, STRU {structure}, MODE {mode}")
}

fn r#type(session: &mut Session, argument: &[u8]) -> Step {
    let words = argument.trim_ascii().to_ascii_uppercase();
    let representation = match &words[..] {
        b"I" | b"L 8" | b"L8" => Type::Image,
        b"A" | b"A N" => Type::Ascii,
        b"E" | b"E N" => Type::Ebcdic,
        b"A T" | b"A C" | b"E T" | b"E C" | b"L" => {
            return Reply::new(code::BAD_PARAMETER, "Only non-print format and 8-bit bytes are served.")
                .into();
        }
        other if other.starts_with(b"L ") => {
            return Reply::new(code::BAD_PARAMETER, "Only 8-bit bytes are served.").into();
        }
        _ => return Reply::new(code::BAD_ARGUMENT, "Syntax: TYPE A|I|E|L 8").into(),
    };
    session.coding.representation = representation;
    match representation {
        Type::Image => Reply::new(code::OK, "Type is image."),
        Type::Ascii => Reply::new(code::OK, "Type is ASCII non-print."),
        Type::Ebcdic => Reply::new(code::OK, "Type is EBCDIC non-print (code page 037)."),
    }
    .into()
}

fn stru(session: &mut Session, argument: &[u8]) -> Step {
    match &argument.trim_ascii().to_ascii_uppercase()[..] {
        b"F" => session.coding.structure = Structure::File,
        b"R" => session.coding.structure = Structure::Record,
        b"P" => return Reply::new(code::BAD_PARAMETER, "Page structure is not served.").into(),
        _ => return Reply::new(code::BAD_ARGUMENT, "Syntax: STRU F|R").into(),
    }
    Reply::new(code::OK, "Structure set.").into()
}

fn mode(session: &mut Session, argument: &[u8]) -> Step {
    let level = session.extras.as_ref().and_then(|extras| extras.deflate_level).unwrap_or(DEFLATE_LEVEL);
    match &argument.trim_ascii().to_ascii_uppercase()[..] {
        b"S" => session.coding.mode = Mode::Stream,
        b"B" => session.coding.mode = Mode::Block,
        b"Z" if !session.settings.mode_z => {
            return Reply::new(code::BAD_PARAMETER, "MODE Z is switched off on this server.").into();
        }
        b"Z" => session.coding.mode = Mode::Deflate { level },
        b"C" => return Reply::new(code::BAD_PARAMETER, "Compressed mode is not served.").into(),
        _ => return Reply::new(code::BAD_ARGUMENT, "Syntax: MODE S|B|Z").into(),
    }
    Reply::new(code::OK, "Mode set.").into()
}

/// `OPTS MODE Z LEVEL n` (draft-preston-ftpext-deflate section 3.1).
pub(super) fn opts_mode(session: &mut Session, rest: &[u8]) -> Step {
    let words: Vec<&[u8]> = rest.split(|&byte| byte == b' ').filter(|word| !word.is_empty()).collect();
    let [z, level, digits] = words[..] else {
        return Reply::new(code::BAD_ARGUMENT, "Syntax: OPTS MODE Z LEVEL <0-9>").into();
    };
    let [digit @ b'0'..=b'9'] = digits else {
        return Reply::new(code::BAD_ARGUMENT, "The level is a digit from 0 to 9.").into();
    };
    if !z.eq_ignore_ascii_case(b"Z") || !level.eq_ignore_ascii_case(b"LEVEL") {
        return Reply::new(code::BAD_ARGUMENT, "Syntax: OPTS MODE Z LEVEL <0-9>").into();
    }
    let level = digit - b'0';
    session.extras_mut().deflate_level = Some(level);
    if let Mode::Deflate { level: current } = &mut session.coding.mode {
        *current = level;
    }
    Reply::new(code::OK, "Deflate level set.").into()
}
