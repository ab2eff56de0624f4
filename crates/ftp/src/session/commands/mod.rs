//! The commands: one row each in [`COMMANDS`], one file a verb or small family.
//!
//! `SITE` has a table of the same rows, [`SITE_COMMANDS`]. The gate, `FEAT`, `HELP` and `docs/rfc.md` follow from the table, and nothing is advertised that is
//! not in it. To add a command: write its file, put its row here.

mod access;
mod admin;
mod control;
mod data;
mod digest;
mod directory;
mod facts;
mod files;
mod list;
mod options;
mod parameters;
mod protection;
mod rest;
mod retr;
pub(crate) mod site;
mod size;
mod stor;
mod tree;

pub use site::SITE_COMMANDS;

use millrace_vfs::VirtualPath;

use crate::reply::Reply;
use crate::session::{ListRequest, Permissions, Session, Step};

/// One row of the table.
pub struct Command {
    /// The verb, in capitals.
    pub verb: &'static str,
    /// Whether an argument follows.
    pub argument: Argument,
    /// When the command may be given.
    pub when: When,
    /// The required permissions: all of them.
    pub needs: Permissions,
    /// Whether the command is answered during a transfer.
    pub busy: bool,
    /// Whether it uses the data connection: without one agreed it gets 425, and it uses up `REST`.
    pub transfers: bool,
    /// Which paths it names.
    pub paths: Paths,
    /// Its line in `FEAT`.
    pub feat: Feat,
    /// The syntax, as `HELP` and a 501 reply show it.
    pub help: &'static str,
    /// The document that defines it, or the server that it is known from.
    pub source: &'static str,
    /// How much of it is served.
    pub status: Status,
    /// Its note in `docs/rfc.md`, or the reason why it is not served.
    pub note: &'static str,
    /// Executes it; the argument is empty where none was given.
    pub run: fn(&mut Session, &[u8]) -> Step,
}

/// Which paths a command names: hooks with rules about paths must know all of them.
///
/// They are read by the function that the command itself reads its argument with, so that the checked path and the used
/// one cannot differ.
#[derive(Debug, Clone, Copy)]
pub enum Paths {
    /// None: it is about the session, the server, or nothing that is done here.
    None,
    /// The argument is a path, from the first byte to the last, or may be: another can be put in its place.
    Whole(ReadPaths),
    /// The argument is more than a path, or several.
    Within(ReadPaths),
    /// The argument asks for a listing, perhaps of what matches a pattern.
    Listed(ReadListing),
}

/// The paths of an argument, the one that the command is about first; or the reply to one that names none, which is the
/// command's own.
pub type ReadPaths = fn(&Session, &[u8]) -> Result<Vec<VirtualPath>, Reply>;

/// The listing that an argument asks for; `None` if it does not name one.
pub type ReadListing = fn(&Session, &[u8]) -> Result<Option<ListRequest>, Reply>;

/// How much of a command is served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// It does what its source says.
    Served,
    /// It is answered with success and has nothing to do here.
    Superfluous,
    /// It is known, belongs to another mechanism than ours, and is answered with the code for that.
    Unfit,
    /// It is known and refused; the row's note says why.
    Refused,
}

/// Whether a command takes an argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Argument {
    /// None is allowed.
    None,
    /// One may follow.
    Optional,
    /// One must follow.
    Required,
}

/// When a command may be given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// At any time.
    Always,
    /// After the login.
    LoggedIn,
}

/// A command's line in `FEAT`.
#[derive(Debug, Clone, Copy)]
pub enum Feat {
    /// Nothing (the commands of RFC 959 are not features).
    Silent,
    /// This line.
    Line(&'static str),
    /// This line, where there is a certificate.
    WithTls(&'static str),
    /// A line, or none, that depends on the session.
    Made(fn(&Session) -> Option<String>),
}

/// The defaults of a row, so that each row shows only its differences.
const ROW: Command = Command {
    verb: "",
    argument: Argument::None,
    when: When::LoggedIn,
    needs: Permissions::NONE,
    busy: false,
    transfers: false,
    paths: Paths::None,
    feat: Feat::Silent,
    help: "",
    source: "RFC 959",
    status: Status::Served,
    note: "",
    run: |_, _| Step::NOTHING,
};

/// The argument is a path; without one it is the working directory.
const PATH: Paths = Paths::Whole(|session, argument| Ok(vec![session.path(argument)?]));

/// Whatever the argument says, the command is about the working directory.
const HERE: Paths = Paths::Within(|session, _| Ok(vec![session.directory().clone()]));

/// Every verb that the server knows, grouped as the documents group them.
pub static COMMANDS: &[Command] = &[
    // RFC 959: access control
    access::USER,
    access::PASS,
    access::ACCT,
    directory::CWD,
    directory::CDUP,
    directory::SMNT,
    access::REIN,
    access::QUIT,
    // RFC 959: transfer parameters
    data::PORT,
    data::PASV,
    parameters::TYPE,
    parameters::STRU,
    parameters::MODE,
    // RFC 959: service
    retr::RETR,
    stor::STOR,
    stor::STOU,
    stor::APPE,
    stor::ALLO,
    rest::REST,
    files::RNFR,
    files::RNTO,
    control::ABOR,
    files::DELE,
    files::RMD,
    files::MKD,
    directory::PWD,
    list::LIST,
    list::NLST,
    control::SITE,
    control::SYST,
    list::STAT,
    control::HELP,
    control::NOOP,
    // RFC 775
    directory::XCWD,
    directory::XCUP,
    directory::XPWD,
    files::XMKD,
    files::XRMD,
    // RFC 2389
    control::FEAT,
    options::OPTS,
    // RFC 2428, RFC 1639
    data::EPRT,
    data::EPSV,
    data::LPRT,
    data::LPSV,
    // RFC 3659
    size::SIZE,
    size::MDTM,
    list::MLST,
    list::MLSD,
    // RFC 2228, RFC 4217, RFC 7151
    protection::AUTH,
    protection::ADAT,
    protection::PBSZ,
    protection::PROT,
    protection::CCC,
    protection::MIC,
    protection::CONF,
    protection::ENC,
    protection::SSCN,
    protection::CPSV,
    protection::HOST,
    // RFC 2640
    options::LANG,
    // Drafts, and what servers have without one
    rest::RANG,
    digest::HASH,
    digest::XCRC,
    digest::XMD5,
    digest::XSHA,
    digest::XSHA1,
    digest::XSHA256,
    digest::XSHA512,
    digest::MD5,
    digest::MMD5,
    digest::XDIGEST,
    facts::MFMT,
    facts::MFCT,
    facts::MFF,
    tree::AVBL,
    tree::COMB,
    tree::DSIZ,
    tree::RMDA,
    options::CLNT,
    options::CSID,
    data::PRET,
    data::ESTA,
    data::ESTP,
    // Waarp FTP
    admin::LIMITBANDWIDTH,
    admin::INTERNALSHUTDOWN,
];

/// The row of a verb, in any case.
pub fn find(verb: &[u8]) -> Option<&'static Command> {
    find_in(COMMANDS, verb)
}

/// The row of a command of `SITE`, in any case.
pub fn find_of_site(verb: &[u8]) -> Option<&'static Command> {
    find_in(SITE_COMMANDS, verb)
}

/// The row of a verb in a table.
pub(crate) fn find_in(table: &'static [Command], verb: &[u8]) -> Option<&'static Command> {
    // The first letter settles most rows; a perfect hash would save some 30 ns of a 50 us command.
    table.iter().find(|command| command.verb.as_bytes().eq_ignore_ascii_case(verb))
}
