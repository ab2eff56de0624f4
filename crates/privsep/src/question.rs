//! What a server asks the helper, and the answers.

use std::ffi::OsStr;
use std::fmt;
use std::io;
use std::net::IpAddr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use crate::policy::{LONGEST_PATH, LONGEST_SERVICE};
use crate::wire::{Reader, Writer, malformed};

/// The longest name of a user, in bytes.
pub const LONGEST_USER: usize = 255;

/// The longest password, in bytes: PAM's `PAM_MAX_RESP_SIZE` without its NUL byte.
pub const LONGEST_PASSWORD: usize = 511;

/// The longest reason, in bytes; the rest of a longer one is cut off.
const LONGEST_REASON: usize = 512;

/// Groups of a user that are told.
const MOST_GROUPS: usize = 2048;

/// The longest name of a group, in bytes.
const LONGEST_GROUP: usize = 255;

/// A login that PAM is asked about.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Question<'a> {
    /// The service of PAM.
    pub service: &'a str,
    /// The name of the user.
    pub user: &'a str,
    /// The password.
    pub password: &'a str,
    /// The client's address (`PAM_RHOST`).
    pub from: IpAddr,
    /// Whether the client speaks HTTP, otherwise FTP (`PAM_TTY`).
    pub by_http: bool,
    /// Whether the home and the groups of the system's own database are wanted.
    pub wants_entry: bool,
}

/// Never shows the password.
impl fmt::Debug for Question<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Question({:?} from {} of {:?})", self.user, self.from, self.service)
    }
}

/// A request to the helper.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Request<'a> {
    /// Says whether this service can be asked.
    Begin(&'a str),
    /// Checks a password and the account.
    Check(Question<'a>),
    /// Starts a process that opens files with the rights of this user.
    OpenFiles(&'a str),
    /// Serves another server, too: the successor of this one, at the socket that comes with it.
    Join,
}

const BEGIN: u8 = 0;
const CHECK: u8 = 1;
const OPEN_FILES: u8 = 2;
const JOIN: u8 = 3;

impl<'a> Request<'a> {
    /// Reads a request. Every byte of the message has to belong to it.
    pub fn read(message: &'a [u8]) -> io::Result<Self> {
        let mut reader = Reader::new(message);
        let request = match reader.byte()? {
            BEGIN => Self::Begin(reader.string(LONGEST_SERVICE)?),
            CHECK => Self::Check(Question {
                service: reader.string(LONGEST_SERVICE)?,
                user: user(&mut reader)?,
                password: reader.string(LONGEST_PASSWORD)?,
                from: match reader.byte()? {
                    4 => IpAddr::from(reader.octets::<4>()?),
                    6 => IpAddr::from(reader.octets::<16>()?),
                    _ => return Err(malformed()),
                },
                by_http: reader.flag()?,
                wants_entry: reader.flag()?,
            }),
            OPEN_FILES => Self::OpenFiles(user(&mut reader)?),
            JOIN => Self::Join,
            _ => return Err(malformed()),
        };
        reader.end()?;
        Ok(request)
    }

    /// Writes it as [`Request::read`] reads it.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Writer::default();
        match self {
            Self::Begin(service) => {
                out.byte(BEGIN);
                out.text(service);
            }
            Self::Check(question) => {
                out.byte(CHECK);
                out.text(question.service);
                out.text(question.user);
                out.text(question.password);
                match question.from {
                    IpAddr::V4(from) => {
                        out.byte(4);
                        from.octets().iter().for_each(|octet| out.byte(*octet));
                    }
                    IpAddr::V6(from) => {
                        out.byte(6);
                        from.octets().iter().for_each(|octet| out.byte(*octet));
                    }
                }
                out.flag(question.by_http);
                out.flag(question.wants_entry);
            }
            Self::OpenFiles(user) => {
                out.byte(OPEN_FILES);
                out.text(user);
            }
            Self::Join => out.byte(JOIN),
        }
        out.into_bytes()
    }
}

fn user<'a>(reader: &mut Reader<'a>) -> io::Result<&'a str> {
    Some(reader.string(LONGEST_USER)?).filter(|user| !user.is_empty()).ok_or_else(malformed)
}

/// What PAM says of a login.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The service does not know the name.
    Unknown,
    /// The password is wrong.
    Wrong,
    /// The password is right, but the account may not be used now: why, for the log.
    Refused(String),
    /// The password is right, and the account in order.
    Right(Option<Entry>),
}

/// A user of the system's own database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The home directory.
    pub home: PathBuf,
    /// The names of all groups.
    pub groups: Vec<String>,
}

impl Entry {
    /// Returns whether it is read again as it is written.
    pub(crate) fn is_within_bounds(&self) -> bool {
        let home = self.home.as_os_str();
        home.len() <= LONGEST_PATH
            && self.groups.len() <= MOST_GROUPS
            && self.groups.iter().all(|group| group.len() <= LONGEST_GROUP)
    }
}

/// An answer of the helper, or of `user-files` to its setup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// Of [`Request::Check`].
    Verdict(Verdict),
    /// It is done.
    Done,
    /// Of [`Request::OpenFiles`]: the number of the user.
    Opened(u32),
    /// It is not done: why, for the log.
    Failed(String),
}

impl Answer {
    /// Reads an answer. Every byte of the message has to belong to it.
    pub fn read(message: &[u8]) -> io::Result<Self> {
        let mut reader = Reader::new(message);
        let answer = match reader.byte()? {
            0 => Self::Done,
            1 => Self::Failed(reader.string(LONGEST_REASON)?.to_owned()),
            2 => Self::Verdict(Verdict::Unknown),
            3 => Self::Verdict(Verdict::Wrong),
            4 => Self::Verdict(Verdict::Refused(reader.string(LONGEST_REASON)?.to_owned())),
            5 => Self::Verdict(Verdict::Right(None)),
            6 => {
                let home = PathBuf::from(OsStr::from_bytes(reader.text(LONGEST_PATH)?));
                let groups = reader.texts(MOST_GROUPS, LONGEST_GROUP)?;
                let group = |name: &[u8]| String::from_utf8(name.to_vec()).map_err(|_| malformed());
                let groups = groups.into_iter().map(group).collect::<io::Result<_>>()?;
                Self::Verdict(Verdict::Right(Some(Entry { home, groups })))
            }
            7 => Self::Opened(reader.number()?),
            _ => return Err(malformed()),
        };
        reader.end()?;
        Ok(answer)
    }

    /// Writes it as [`Answer::read`] reads it. Reasons that are too long are cut.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Writer::default();
        match self {
            Self::Done => out.byte(0),
            Self::Opened(user) => {
                out.byte(7);
                out.number(*user);
            }
            Self::Failed(why) => {
                out.byte(1);
                out.text(cut(why));
            }
            Self::Verdict(Verdict::Unknown) => out.byte(2),
            Self::Verdict(Verdict::Wrong) => out.byte(3),
            Self::Verdict(Verdict::Refused(why)) => {
                out.byte(4);
                out.text(cut(why));
            }
            Self::Verdict(Verdict::Right(None)) => out.byte(5),
            Self::Verdict(Verdict::Right(Some(Entry { home, groups }))) => {
                out.byte(6);
                out.text(home.as_os_str().as_bytes());
                out.texts(groups);
            }
        }
        out.into_bytes()
    }
}

/// A reason without what would end it for its reader.
fn cut(why: &str) -> String {
    let why = why.replace('\0', " ");
    let end = (0..=why.len().min(LONGEST_REASON)).rev().find(|end| why.is_char_boundary(*end));
    why[..end.unwrap_or(0)].to_owned()
}
