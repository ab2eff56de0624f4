//! The user that this process runs as.
//!
//! ```text
//!   root --- assume() ---> the user, who still binds low ports and opens root's files --- drop_privileges() ---> the user
//! ```
//!
//! Between the two the files that are made belong to the user already. The saved user is still root: its change to the user
//! takes the capabilities of all threads with it, which `capset` does for the calling one only.

use std::fs;
use std::io;

use nix::unistd::{self, Gid, Group, Uid, User};
use rustix::thread::{
    CapabilitySet, CapabilitySets, remove_capability_from_bounding_set, set_capabilities, set_no_new_privs,
};
use thiserror::Error;

/// A user to run as, and the groups.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    name: String,
    user: Uid,
    group: Gid,
    /// All of its groups.
    groups: Vec<Gid>,
}

/// Why this process cannot run as a user: a sentence without its full stop.
#[derive(Debug, Error)]
pub enum IdentityError {
    /// There is none.
    #[error("there is no user {0:?}; make one, for example by `useradd --system {0}`")]
    NoUser(String),
    /// There is none.
    #[error("there is no group {0:?}; make one, for example by `groupadd --system {0}`")]
    NoGroup(String),
    /// A number that is no user's says nothing of groups.
    #[error("{0} is the number of no user: name the group, too, as {0}:GROUP")]
    NeedsGroup(String),
    /// To run as root is what it is not for.
    #[error("{0:?} is root")]
    IsRoot(String),
    /// Only root may change its user.
    #[error("only root can run as another user: this process is of user {0}")]
    NotRoot(u32),
    /// A call failed.
    #[error("cannot run as {name}: {source}")]
    Failed {
        /// The user.
        name: String,
        /// What the system said.
        source: io::Error,
    },
    /// A thread has kept something.
    #[error("thread {thread} still has {what}")]
    Kept {
        /// Its number.
        thread: String,
        /// A line of its status.
        what: String,
    },
}

impl Identity {
    /// Finds a user, `USER` or `USER:GROUP`, by names or numbers.
    pub fn find(text: &str) -> Result<Self, IdentityError> {
        let failed =
            |error: nix::Error| IdentityError::Failed { name: text.to_owned(), source: error.into() };
        let (name, group) = text.split_once(':').map_or((text, None), |(name, group)| (name, Some(group)));
        let group = group.map(group_of).transpose()?;
        let known = match name.parse() {
            Ok(number) => User::from_uid(Uid::from_raw(number)).map_err(failed)?,
            Err(_) => User::from_name(name).map_err(failed)?,
        };
        let (user, groups) = match (known, name.parse()) {
            (Some(user), _) => {
                let group = group.unwrap_or(user.gid);
                let name = std::ffi::CString::new(&*user.name)
                    .map_err(|_| IdentityError::NoUser(user.name.clone()))?;
                (user.uid, unistd::getgrouplist(&name, group).map_err(failed)?)
            }
            (None, Ok(number)) => {
                let group = group.ok_or_else(|| IdentityError::NeedsGroup(name.to_owned()))?;
                (Uid::from_raw(number), vec![group])
            }
            (None, Err(_)) => return Err(IdentityError::NoUser(name.to_owned())),
        };
        if user.is_root() {
            return Err(IdentityError::IsRoot(name.to_owned()));
        }
        let group =
            group.or(groups.first().copied()).ok_or_else(|| IdentityError::NoUser(name.to_owned()))?;
        Ok(Self { name: text.to_owned(), user, group, groups })
    }

    /// Returns whether this process runs as this user already.
    pub fn is_current(&self) -> bool {
        Uid::current() == self.user && Uid::effective() == self.user
    }

    /// Returns whether this process may change to this user.
    fn check_reachable(&self) -> Result<(), IdentityError> {
        match self.is_current() || Uid::effective().is_root() {
            true => Ok(()),
            false => Err(IdentityError::NotRoot(Uid::effective().as_raw())),
        }
    }

    /// The user's number, and the group's.
    pub fn numbers(&self) -> (u32, u32) {
        (self.user.as_raw(), self.group.as_raw())
    }

    /// Becomes the user, but keeps what binding low ports and opening root's files takes. For a process with one thread.
    pub fn assume(&self) -> Result<(), IdentityError> {
        self.check_reachable()?;
        if self.is_current() {
            return Ok(());
        }
        let root = Uid::from_raw(0);
        unistd::setgroups(&self.groups)
            .and_then(|()| unistd::setresgid(self.group, self.group, self.group))
            .and_then(|()| unistd::setresuid(self.user, self.user, root))
            .map_err(|error| self.failed(error.into()))?;
        let needed = NEEDED_AT_START | CapabilitySet::SETPCAP;
        let sets =
            CapabilitySets { effective: needed, permitted: needed, inheritable: CapabilitySet::empty() };
        set_capabilities(None, sets).map_err(|error| self.failed(error.into()))
    }

    /// Gives up root for good, in all threads, and makes sure that none has kept anything.
    pub fn drop_privileges(&self) -> Result<(), IdentityError> {
        // The C library has every thread do it. The saved user was root's, and with it go the capabilities.
        unistd::setresuid(self.user, self.user, self.user).map_err(|error| self.failed(error.into()))?;
        for thread in fs::read_dir("/proc/self/task").map_err(|error| self.failed(error))? {
            let thread = thread.map_err(|error| self.failed(error))?;
            // One that has ended meanwhile has nothing.
            let Ok(status) = fs::read_to_string(thread.path().join("status")) else { continue };
            if let Some(what) = self.kept(&status) {
                let thread = thread.file_name().to_string_lossy().into_owned();
                return Err(IdentityError::Kept { thread, what });
            }
        }
        Ok(())
    }

    /// A line of a thread's status that shows another user, or a capability.
    fn kept(&self, status: &str) -> Option<String> {
        let is_other = |line: &&str| {
            let (key, values) = line.split_once(':').unwrap_or((line, ""));
            let all = |number: u32| values.split_whitespace().all(|value| value == number.to_string());
            match key {
                "Uid" => !all(self.user.as_raw()),
                "Gid" => !all(self.group.as_raw()),
                "CapPrm" | "CapEff" | "CapInh" | "CapAmb" => values.trim().contains(|digit| digit != '0'),
                _ => false,
            }
        };
        status.lines().find(is_other).map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
    }

    fn failed(&self, source: io::Error) -> IdentityError {
        IdentityError::Failed { name: self.name.clone(), source }
    }
}

fn group_of(name: &str) -> Result<Gid, IdentityError> {
    match name.parse() {
        Ok(number) => Ok(Gid::from_raw(number)),
        Err(_) => match Group::from_name(name) {
            Ok(Some(group)) => Ok(group.gid),
            Ok(None) => Err(IdentityError::NoGroup(name.to_owned())),
            Err(error) => Err(IdentityError::Failed { name: name.to_owned(), source: error.into() }),
        },
    }
}

/// What binding ports and opening files takes.
const NEEDED_AT_START: CapabilitySet = CapabilitySet::NET_BIND_SERVICE.union(CapabilitySet::DAC_OVERRIDE);

/// What a server of root's works with: files of all users, low ports, signals, the limit of descriptors.
const OF_ROOT: CapabilitySet = NEEDED_AT_START
    .union(CapabilitySet::CHOWN)
    .union(CapabilitySet::DAC_READ_SEARCH)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::FSETID)
    .union(CapabilitySet::KILL)
    .union(CapabilitySet::SYS_RESOURCE)
    .union(CapabilitySet::LEASE);

/// What modules of PAM and a change to any user take: files of all users, users and groups, records of the kernel's audit.
const OF_HELPER: CapabilitySet = CapabilitySet::SETUID
    .union(CapabilitySet::SETGID)
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::DAC_READ_SEARCH)
    .union(CapabilitySet::CHOWN)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::AUDIT_WRITE);

/// Leaves root the capabilities that a privileged helper needs, and no program that this thread starts more
/// (`no_new_privs`).
pub(crate) fn lock_helper() -> io::Result<()> {
    let sets = rustix::thread::capabilities(None)?;
    if sets.permitted.contains(CapabilitySet::SETPCAP) {
        bound_by(OF_HELPER);
    }
    keep(sets, sets.permitted & OF_HELPER)?;
    Ok(set_no_new_privs(true)?)
}

/// Gives up all capabilities of these sets but the ones that are kept.
fn keep(sets: CapabilitySets, kept: CapabilitySet) -> io::Result<()> {
    // A service manager may refuse the call where there is nothing to give up.
    if kept == sets.permitted {
        return Ok(());
    }
    rustix::thread::clear_ambient_capability_set()?;
    let effective = sets.effective & kept;
    let inheritable = CapabilitySet::empty();
    Ok(set_capabilities(None, CapabilitySets { effective, permitted: kept, inheritable })?)
}

/// Has no program that this thread starts get another capability than these. That takes a capability itself.
fn bound_by(kept: CapabilitySet) {
    // A number that this kernel does not know is an error, behind which there are none.
    for capability in CapabilitySet::all().difference(kept).iter() {
        let _ = remove_capability_from_bounding_set(capability);
    }
}

/// Has no program that this thread starts get more rights than it has (`no_new_privs`), and gives up the capabilities that
/// no server needs, where it has any.
pub fn lock() -> io::Result<()> {
    let sets = rustix::thread::capabilities(None)?;
    if sets.permitted.contains(CapabilitySet::SETPCAP) {
        bound_by(CapabilitySet::empty());
    }
    let kept = match Uid::effective().is_root() {
        true => sets.permitted & OF_ROOT,
        false => sets.permitted & NEEDED_AT_START,
    };
    keep(sets, kept)?;
    Ok(set_no_new_privs(true)?)
}
