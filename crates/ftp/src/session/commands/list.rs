//! `LIST`, `NLST`, `STAT` (RFC 959 section 4.1.3), `MLSD` and `MLST` (RFC 3659 section 7).

use std::sync::Arc;

use millrace_vfs::{FileError, VirtualPath};

use super::{Argument, Command, Feat, PATH, Paths, ROW, When, parameters, retr};
use crate::codec::{Coding, Structure, Type};
use crate::escape::unescaped;
use crate::listing::facts::{FactWriter, Item, Place};
use crate::listing::search;
use crate::listing::{Facts, Format, Links, ListOptions, Listing, NumericOwners};
use crate::reply::{Reply, code};
use crate::session::{
    Access, Answer, Content, DataPlan, ListRequest, Permission, Permissions, Request, Session, Step,
    Transfer, Via,
};

pub(super) const LIST: Command = Command {
    verb: "LIST",
    argument: Argument::Optional,
    needs: Permissions::only(Permission::List),
    transfers: true,
    paths: LISTED,
    help: "LIST [-aARrtS1d] [<directory, file or pattern>]",
    note: "control characters in names are escaped, as `\\012`; folders may be patterns, too (`d*/x*`); a pattern that is also a name is the name",
    run: |session, argument| begin(session, argument, Format::Unix),
    ..ROW
};

pub(super) const NLST: Command = Command {
    verb: "NLST",
    argument: Argument::Optional,
    needs: Permissions::only(Permission::List),
    transfers: true,
    paths: LISTED,
    help: "NLST [-aARrtS1dl] [<directory or pattern>]",
    note: "as LIST",
    run: |session, argument| begin(session, argument, Format::Names),
    ..ROW
};

pub(super) const MLSD: Command = Command {
    verb: "MLSD",
    argument: Argument::Optional,
    needs: Permissions::only(Permission::List),
    transfers: true,
    paths: PATH,
    help: "MLSD [<directory>]",
    note: "control characters in names are escaped, as `\\012`; every command takes such a name back",
    source: "RFC 3659",
    run: mlsd,
    ..ROW
};

pub(super) const MLST: Command = Command {
    verb: "MLST",
    argument: Argument::Optional,
    needs: Permissions::only(Permission::List),
    feat: Feat::Made(|session| Some(format!("MLST {}", session.facts.feature()))),
    paths: PATH,
    help: "MLST [<path>]",
    note: "control characters in the path are escaped, as MLSD does it",
    source: "RFC 3659",
    run: mlst,
    ..ROW
};

pub(super) const STAT: Command = Command {
    verb: "STAT",
    argument: Argument::Optional,
    when: When::Always,
    busy: true,
    paths: Paths::Listed(|session, argument| match argument.is_empty() {
        true => Ok(None),
        false => request(session, argument, Format::Unix, b"\n").map(Some),
    }),
    help: "STAT [<path>]",
    run: stat,
    ..ROW
};

/// In which form it is listed is all one to what it is about.
const LISTED: Paths =
    Paths::Listed(|session, argument| request(session, argument, Format::Unix, b"\n").map(Some));

/// Reads `-options path`, where the path may end in a pattern, and asks for the listing.
fn begin(session: &mut Session, argument: &[u8], format: Format) -> Step {
    match request(session, argument, format, line_end(session.coding)) {
        Ok(request) => ask_for(session, request, opened),
        Err(reply) => reply.into(),
    }
}

fn ask_for(session: &mut Session, request: ListRequest, then: fn(&mut Session, Answer) -> Step) -> Step {
    session.subject = Some(request.path.clone());
    session.ask(Request::List(Box::new(request)), then)
}

/// The end of a listing's lines before encoding: in TYPE A they are done, but a record has no line end (RFC 959 section
/// 3.1.2.2), and the one of EBCDIC is made of LF.
fn line_end(coding: Coding) -> &'static [u8] {
    match coding {
        Coding { structure: Structure::Record, .. } | Coding { representation: Type::Ebcdic, .. } => b"\n",
        _ => b"\r\n",
    }
}

fn request(
    session: &Session,
    argument: &[u8],
    format: Format,
    line_end: &'static [u8],
) -> Result<ListRequest, Reply> {
    let (mut options, path) = ListOptions::parse(argument);
    // As in `ls`: a directory that is not searched is not traversed.
    options.recursive &= !options.directory;
    let format = match format {
        Format::Names if options.long => Format::Unix,
        format => format,
    };
    let listing = Listing { options, line_end, ..Listing::new(format, session.now.wall) };
    let literal = literal(session, path, listing.clone());
    let Some((folder, search)) = search::split(path, options) else { return literal };
    let only_directories = options.directory && path.ends_with(b"/");
    let prefix = unescaped(folder).into_owned();
    let path = session.path(folder)?;
    let rights = session.permissions_at(&path).into();
    let listing = Listing { prefix, search, rights, only_directories, ..listing };
    // A pattern may be longer than any name.
    let literal = literal.ok().map(Box::new);
    Ok(ListRequest { path, listing, files: true, literal })
}

/// The listing of the entry with this literal name.
fn literal(session: &Session, name: &[u8], mut listing: Listing) -> Result<ListRequest, Reply> {
    if listing.format == Format::Names && !name.is_empty() {
        listing.prefix = unescaped(name).into_owned();
        if !name.ends_with(b"/") {
            listing.prefix.push(b'/');
        }
    }
    let path = session.path(name)?;
    listing.rights = session.permissions_at(&path).into();
    Ok(ListRequest { path, listing, files: true, literal: None })
}

fn mlsd(session: &mut Session, argument: &[u8]) -> Step {
    let path = match session.path(argument) {
        Ok(path) => path,
        Err(reply) => return reply.into(),
    };
    let rights = session.permissions_at(&path).into();
    // The entry of the directory itself is part of an MLSD (RFC 3659 section 7.2).
    let line_end = line_end(session.coding);
    let (links, fact_source) = (links(session), Arc::clone(&session.settings.fact_source));
    let format = Format::Facts(session.facts);
    let listing = Listing { rights, line_end, links, fact_source, ..Listing::new(format, session.now.wall) };
    let request = ListRequest { path: path.clone(), listing, files: false, literal: None };
    session.subject = Some(path);
    session.ask_whether(Request::List(Box::new(request)), |session, answer| match answer {
        // RFC 3659 section 7.2.1: an entry that exists but is not a directory is a wrong argument.
        Answer::Failed(error @ FileError::NotDirectory) => {
            session.refusal(&error).coded(code::BAD_ARGUMENT).into()
        }
        Answer::Failed(error) => session.refusal(&error).into(),
        answer => opened(session, answer),
    })
}

/// How links are shown. A client that sends `CLNT` (lftp, FileZilla, WinSCP, NcFTP) understands links and sees them
/// with their targets: lftp mirrors them as links, both ways. One that does not (rclone, and most libraries) takes an
/// entry that is neither `file` nor `dir` for an empty file, so it sees the target instead.
fn links(session: &Session) -> Links {
    match session.extras.as_ref().is_some_and(|extras| extras.client.is_some()) {
        true => Links::Shown,
        false => Links::Followed,
    }
}

fn opened(session: &mut Session, answer: Answer) -> Step {
    let (Answer::Listing(lister), Some(path)) = (answer, session.subject.take()) else {
        return Step::mismatch();
    };
    // A listing is text whose lines end as `line_end` says: TYPE A has nothing left to do.
    let coding = match session.coding {
        coding @ Coding { representation: Type::Ascii, .. } => {
            Coding { representation: Type::Image, ..coding }
        }
        coding => coding,
    };
    let transfer = Transfer::new(Content::List(lister), coding, path);
    session.transfer(Reply::new(code::OPENING_DATA, "Here comes the listing."), transfer, retr::complete)
}

fn stat(session: &mut Session, argument: &[u8]) -> Step {
    match argument.is_empty() {
        true => status(session),
        false => session.run(&STAT_PATH, Some(argument)),
    }
}

/// The gate's conditions for a listing on the control connection.
static STAT_PATH: Command = Command {
    when: When::LoggedIn,
    needs: Permissions::only(Permission::List),
    run: |session, argument| {
        if let Some(reply) = session.listing_refusal() {
            return reply.into();
        }
        match request(session, argument, Format::Unix, b"\r\n") {
            Ok(request) => ask_for(session, request, stat_opened),
            Err(reply) => reply.into(),
        }
    },
    ..STAT
};

fn stat_opened(session: &mut Session, answer: Answer) -> Step {
    let (Answer::Listing(lister), Some(path)) = (answer, session.subject.take()) else {
        return Step::mismatch();
    };
    let via = Via::Control(code::FILE_STATUS);
    session.report(Transfer { via, ..Transfer::new(Content::List(lister), Coding::PLAIN, path) })
}

/// The state of the session, line by line. Also `SITE STAT`.
pub(super) fn status(session: &mut Session) -> Step {
    Reply::lines(code::SYSTEM_STATUS, "Millrace status:", status_lines(session), "End of status.").into()
}

pub(super) fn status_lines(session: &Session) -> Vec<Vec<u8>> {
    let user = match &session.access {
        Access::User(login) => [b" Logged in as ", &login.name[..]].concat(),
        _ => b" Not logged in".to_vec(),
    };
    let data = match session.data {
        DataPlan::None => " No data connection is agreed".to_owned(),
        DataPlan::Passive => " The next data connection is passive".to_owned(),
        DataPlan::Active(address) => format!(" The next data connection goes to {address}"),
    };
    let mut lines = vec![
        format!(" Connected from {}", session.peer).into_bytes(),
        user,
        format!(" {}", parameters::describe(session.coding)).into_bytes(),
        data.into_bytes(),
    ];
    if let Some(client) = session.extras.as_ref().and_then(|extras| extras.client.as_deref()) {
        lines.push([b" The client calls itself ", client].concat());
    }
    lines
}

fn mlst(session: &mut Session, argument: &[u8]) -> Step {
    if let Some(reply) = session.listing_refusal() {
        return reply.into();
    }
    let wants_hash = session.facts.contains(Facts::HASH);
    session.ask_at(
        argument,
        move |path| Request::Look(path, wants_hash),
        |session, answer| {
            let (Answer::Entry(entry), Some(path)) = (answer, session.subject.take()) else {
                return Step::mismatch();
            };
            let rights = session.permissions_at(&path).into();
            let writer = FactWriter::new(session.facts, rights, Arc::new(NumericOwners))
                .with_links(links(session))
                .with_fact_source(Arc::clone(&session.settings.fact_source));
            Reply::lines(code::FILE_ACTION_OK, "Facts:", [fact_line(&writer, &entry, &path)], "End").into()
        },
    )
}

/// One blank, the facts, one blank, the whole path (RFC 3659 section 7.2).
fn fact_line(writer: &FactWriter, entry: &millrace_vfs::DirEntry, path: &VirtualPath) -> Vec<u8> {
    let place = if entry.metadata.is_directory() && path.is_root() { Place::Itself } else { Place::Within };
    let item = Item { link: entry.link.as_ref(), place, ..Item::new(path.as_bytes(), &entry.metadata) };
    let mut line = b" ".to_vec();
    writer.write(&item, &mut line);
    line
}

/// `OPTS MLST type;size;`: which facts are given from now on (RFC 3659 section 7.9).
pub(super) fn opts_mlst(session: &mut Session, rest: &[u8]) -> Step {
    session.facts = Facts::parse(rest);
    Reply::owned(code::OK, format!("MLST OPTS {}", session.facts)).into()
}
