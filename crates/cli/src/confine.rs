//! Confines a server before it opens anything: the processes that keep what it gives up, the user, the sandbox.

use std::env;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use millrace_admin::sockets;
use millrace_privsep as privsep;
use millrace_process::{connect_spawner, run_spawner};
use millrace_sandbox::{Access, Confinement, Grant, Identity, enter, lock, probe};
use millrace_terminal::Failure;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::config::{Confined, Sandbox};

/// The command that starts programs for a server in a sandbox; the server runs it.
pub(crate) const SPAWNER: &str = "start-programs";

/// The command that keeps the rights of root for a server that gives them up; the server runs it.
pub(crate) const HELPER: &str = "privileged-helper";

/// The command that opens files with the rights of a user; the helper runs it.
pub(crate) const USER_FILES: &str = "user-files";

/// A server that is confined, and may have rights yet that it gives up before it serves.
#[derive(Debug)]
pub(crate) struct Held {
    identity: Option<Identity>,
    told: String,
}

impl Held {
    /// Confines this process, which has one thread yet. `helper` leads to the privileged helper of the predecessor.
    pub(crate) fn confine(
        confined: &Confined,
        ready_file: Option<&Path>,
        successor: Vec<OsString>,
        helper: Option<OwnedFd>,
    ) -> Result<Self, Failure> {
        let failed = |error: &dyn std::fmt::Display| Failure::Running(format!("{error}."));
        let identity = confined.run_as.as_ref().map(|said| Identity::find(&said.value)).transpose();
        let identity = identity.map_err(|error| failed(&error))?;
        if let Some(policy) = &confined.helper {
            begin_helper(policy, helper)?;
        }
        if let Some(identity) = &identity {
            identity.assume().map_err(|error| failed(&error))?;
        }
        if let Some(folder) = &confined.control_folder {
            // Whatever is wrong with it is told when the socket is opened.
            let _ = sockets::make_folder(folder);
        }
        if identity.is_some() && !confined.wants_sandbox() {
            lock().map_err(|error| failed(&error))?;
        }
        let told = match confined.sandbox {
            Sandbox::Off => "off".to_owned(),
            sandbox => {
                confined.make_folders();
                begin_spawner(confined, successor)?;
                let mut grants = [&confined.grants[..], &confined.more].concat();
                let sockets = confined.control_folder.iter();
                grants.extend(sockets.map(|folder| Grant::new(folder.clone(), Access::Socket)));
                grants
                    .extend(ready_file.into_iter().flat_map(|path| Grant::folder_of(path, Access::Replace)));
                let entered = enter(&grants).map_err(|error| failed(&error))?;
                if sandbox == Sandbox::Required && !entered.is_complete() {
                    let why = format!("sandbox = \"required\", but there are: {entered}");
                    return Err(failed(&why));
                }
                entered.to_string()
            }
        };
        Ok(Self { identity, told })
    }

    /// What holds, for the log.
    pub(crate) fn told(&self) -> String {
        self.told.clone()
    }

    /// Gives up all rights of root in all threads.
    pub(crate) fn drop_privileges(&self) -> Result<(), Failure> {
        match &self.identity {
            None => Ok(()),
            Some(identity) => {
                identity.drop_privileges().map_err(|error| Failure::Running(format!("{error}.")))
            }
        }
    }
}

/// Starts the privileged helper, or joins that of the predecessor, for this process from now on. It comes before the change
/// of user, as it is to stay root.
pub(crate) fn begin_helper(policy: &privsep::Policy, helper: Option<OwnedFd>) -> Result<(), Failure> {
    let begun = match helper {
        Some(socket) => privsep::join_helper(socket, policy.clone()),
        None => privsep::connect_helper(own(HELPER), policy.clone()),
    };
    begun.map_err(|error| match error {
        privsep::StartError::Process(_) => Failure::Running(format!("{error}.")),
        error => Failure::Configuration(format!("{error}.")),
    })
}

/// A command of this program.
fn own(name: &str) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.arg0(env::args_os().next().unwrap_or_else(|| "millrace".into())).arg(name);
    command
}

/// Starts the process that starts programs, where any may be started.
fn begin_spawner(confined: &Confined, successor: Vec<OsString>) -> Result<(), Failure> {
    let mut policy = confined.policy.clone();
    if confined.has_control {
        policy.successor = successor;
    }
    if policy.commands.is_empty() && policy.folders.is_empty() && policy.successor.is_empty() {
        return Ok(());
    }
    let is_for_upgrades_alone = policy.commands.is_empty() && policy.folders.is_empty();
    match connect_spawner(own(SPAWNER), &policy) {
        // Without /proc, as in a bare chroot. A server whose control socket was not asked for goes without upgrades.
        Err(error)
            if is_for_upgrades_alone
                && confined.control_folder.is_some()
                && error.kind() == io::ErrorKind::NotFound =>
        {
            Ok(())
        }
        begun => begun.map_err(|error| {
            Failure::Running(format!("cannot start the process that starts programs: {error}."))
        }),
    }
}

/// `millrace start-programs`: starts the programs of the server that standard input leads to.
pub(crate) fn run() -> Result<(), Failure> {
    let failed = |error: io::Error| {
        Failure::Running(format!("cannot start programs for a server ({error}): a server runs this command."))
    };
    let socket = socket().map_err(failed)?;
    // What ends the server is sent to its process group, too. The server still needs programs then, and tells by its end
    // of the socket when it does not.
    let _signals = Signals::new([SIGHUP, SIGINT, SIGTERM]).map_err(failed)?;
    run_spawner(socket).map_err(failed)
}

/// `millrace privileged-helper`: checks passwords for the server that standard input leads to.
pub(crate) fn run_helper() -> Result<(), Failure> {
    let failed = |error: io::Error| {
        Failure::Running(format!("cannot help a server ({error}): a server runs this command."))
    };
    let socket = socket().map_err(failed)?;
    // As above: the server tells by its end of the socket when it needs no more help.
    let _signals = Signals::new([SIGHUP, SIGINT, SIGTERM]).map_err(failed)?;
    privsep::run_helper(socket, || own(USER_FILES)).map_err(failed)
}

/// `millrace user-files`: opens files with the rights of a user, for the helper that standard input leads to.
pub(crate) fn run_user_files() -> Result<(), Failure> {
    let failed = |error: io::Error| {
        Failure::Running(format!("cannot open files for a server ({error}): a helper runs this command."))
    };
    privsep::close_inherited().map_err(failed)?;
    privsep::run_user_files(socket().map_err(failed)?).map_err(failed)
}

fn socket() -> io::Result<OwnedFd> {
    let socket = io::stdin().as_fd().try_clone_to_owned()?;
    rustix::net::sockopt::socket_type(&socket)?;
    rustix::stdio::dup2_stdin(File::open("/dev/null")?)?;
    Ok(socket)
}

/// What `millrace check` says of the sandbox.
pub(crate) fn shown(confined: &Confined) -> String {
    match confined.sandbox {
        Sandbox::Off => "none: sandbox is off".to_owned(),
        _ => {
            let held: Confinement = probe();
            let outside = match confined.policy.commands.is_empty() && confined.policy.folders.is_empty() {
                true => "",
                false => "; hooks and programs run outside",
            };
            let helped = match &confined.helper {
                None => "",
                Some(policy) if policy.opens_files() => {
                    "; a helper with the rights of root asks PAM, and opens files with the rights of users"
                }
                Some(_) => "; a helper with the rights of root asks PAM",
            };
            format!("{held}{outside}{helped}")
        }
    }
}
