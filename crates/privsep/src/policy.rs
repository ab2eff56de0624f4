//! What the helper may do, as the server says once, before it serves; and what it passes on to `user-files`.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use crate::wire::{Reader, Writer, malformed};

/// Services of PAM that a server may ask.
pub(crate) const MOST_SERVICES: usize = 8;

/// Trees that the sandbox of `user-files` leaves it.
const MOST_TREES: usize = 1024;

/// Supplementary groups of a user.
const MOST_GROUPS: usize = 4096;

/// The longest path, without its NUL byte.
pub(crate) const LONGEST_PATH: usize = 4095;

/// The longest name of a service, that of a file.
pub(crate) const LONGEST_SERVICE: usize = 255;

/// A service of PAM that may be asked.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Service {
    /// Its name, that of a file.
    pub name: String,
    /// Whether its users are those of the system, with whose rights files may be opened. Those of another service may only
    /// be called the same.
    pub opens_files: bool,
}

/// What the helper may do. It is fixed when the helper is started.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Policy {
    /// The services of PAM that may be asked.
    pub services: Vec<Service>,
    /// The sandbox of the processes that do; `None` for none.
    pub sandbox: Option<Vec<PathBuf>>,
}

impl Policy {
    /// Returns whether it permits all that another one does.
    pub fn covers(&self, other: &Self) -> bool {
        let has_services = other.services.iter().all(|wanted| {
            self.service(&wanted.name).is_some_and(|service| service.opens_files || !wanted.opens_files)
        });
        let has_trees = match (&self.sandbox, &other.sandbox) {
            (Some(own), Some(theirs)) => {
                theirs.iter().all(|tree| own.iter().any(|own| tree.starts_with(own)))
            }
            (None, None) => true,
            (Some(_), None) | (None, Some(_)) => false,
        };
        has_services && (!other.opens_files() || has_trees)
    }

    /// Returns whether files may be opened with the rights of users.
    pub fn opens_files(&self) -> bool {
        self.services.iter().any(|service| service.opens_files)
    }

    pub(crate) fn service(&self, name: &str) -> Option<&Service> {
        self.services.iter().find(|service| service.name == name)
    }

    /// Writes it as [`Policy::read`] reads it.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Writer::default();
        out.number(u32::try_from(self.services.len()).unwrap_or(u32::MAX));
        for Service { name, opens_files } in &self.services {
            out.text(name);
            out.flag(*opens_files);
        }
        write_sandbox(&mut out, self.sandbox.as_deref());
        out.into_bytes()
    }

    /// Reads a policy. Every byte of the message has to belong to it.
    pub fn read(message: &[u8]) -> io::Result<Self> {
        let mut reader = Reader::new(message);
        let count = usize::try_from(reader.number()?).map_err(|_| malformed())?;
        if count > MOST_SERVICES {
            return Err(malformed());
        }
        let services = (0..count).map(|_| Service::read(&mut reader)).collect::<io::Result<_>>()?;
        let policy = Self { services, sandbox: read_sandbox(&mut reader)? };
        reader.end()?;
        Ok(policy)
    }
}

impl Service {
    fn read(reader: &mut Reader<'_>) -> io::Result<Self> {
        let name = String::from_utf8(reader.text(LONGEST_SERVICE)?.to_vec()).map_err(|_| malformed())?;
        Ok(Self { name, opens_files: reader.flag()? })
    }
}

/// What `user-files` becomes before it serves: a user, in a sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Setup {
    /// The number of the user.
    pub user: u32,
    /// That of the user's group.
    pub group: u32,
    /// Those of all groups of the user.
    pub groups: Vec<u32>,
    /// The trees of the sandbox; `None` for none.
    pub sandbox: Option<Vec<PathBuf>>,
}

impl Setup {
    /// Writes it as [`Setup::read`] reads it.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Writer::default();
        out.number(self.user);
        out.number(self.group);
        out.number(u32::try_from(self.groups.len()).unwrap_or(u32::MAX));
        self.groups.iter().for_each(|group| out.number(*group));
        write_sandbox(&mut out, self.sandbox.as_deref());
        out.into_bytes()
    }

    /// Reads it. Every byte of the message has to belong to it.
    pub fn read(message: &[u8]) -> io::Result<Self> {
        let mut reader = Reader::new(message);
        let (user, group) = (reader.number()?, reader.number()?);
        let count = usize::try_from(reader.number()?).map_err(|_| malformed())?;
        if count > MOST_GROUPS {
            return Err(malformed());
        }
        let groups = (0..count).map(|_| reader.number()).collect::<io::Result<_>>()?;
        let setup = Self { user, group, groups, sandbox: read_sandbox(&mut reader)? };
        reader.end()?;
        Ok(setup)
    }
}

fn write_sandbox(out: &mut Writer, trees: Option<&[PathBuf]>) {
    out.flag(trees.is_some());
    if let Some(trees) = trees {
        let trees: Vec<&[u8]> = trees.iter().map(|tree| tree.as_os_str().as_bytes()).collect();
        out.texts(&trees);
    }
}

fn read_sandbox(reader: &mut Reader<'_>) -> io::Result<Option<Vec<PathBuf>>> {
    if !reader.flag()? {
        return Ok(None);
    }
    let trees = reader.texts(MOST_TREES, LONGEST_PATH)?;
    Ok(Some(trees.into_iter().map(|tree| PathBuf::from(OsStr::from_bytes(tree))).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_successor_gets_no_more_than_the_first_server() {
        let policy = |opens_files, sandbox: Option<&[&str]>| Policy {
            services: vec![Service { name: "millrace".to_owned(), opens_files }],
            sandbox: sandbox.map(|trees| trees.iter().map(PathBuf::from).collect()),
        };
        let first = policy(true, Some(&["/srv"]));
        for covered in [policy(true, Some(&["/srv/a"])), policy(false, None), Policy::default()] {
            assert!(first.covers(&covered), "{covered:?}");
        }
        for more in [policy(true, Some(&["/srv", "/home"])), policy(true, None)] {
            assert!(!first.covers(&more), "{more:?}");
        }
        assert!(!policy(true, None).covers(&first), "it would run without its sandbox");
        assert!(!policy(false, None).covers(&policy(true, None)));
        let other = Service { name: "other".to_owned(), opens_files: false };
        assert!(!first.covers(&Policy { services: vec![other], sandbox: None }));
    }
}
