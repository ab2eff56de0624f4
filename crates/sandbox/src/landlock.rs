//! Files, by Landlock.

use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access as _, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, LandlockStatus, PathBeneath,
    PathFd, Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetError, RulesetStatus, Scope, make_bitflags,
};

use crate::grants::{Access, Grant, of_the_system};
use crate::{EnterError, Missing};

/// The newest interface whose rights are handled here: files of devices and truncation, which came after the first.
const NEWEST: ABI = ABI::V5;

/// The oldest that is used: the first forbids every rename and link between folders, which uploads and clients need.
const OLDEST: ABI = ABI::V2;

/// Restricts the calling thread to these files and those of the system; answers the version that holds.
pub(crate) fn restrict(grants: &[Grant]) -> Result<Result<u32, Missing>, EnterError> {
    let is_root = rustix::process::geteuid().is_root();
    let granted = of_the_system(is_root).into_iter().chain(grants.iter().cloned());
    let granted = granted.map(|Grant { path, access }| (path, rights(access)));
    enforce(granted, |rules| rules.handle_access(AccessFs::from_all(NEWEST)))
}

/// Restricts changes of files to these folders, for the calling thread, which reads and runs any. It signals no process
/// but those that it starts, and binds no TCP port, where the kernel is new enough.
pub(crate) fn restrict_changes(folders: &[&Path]) -> Result<Result<u32, Missing>, EnterError> {
    let changes = AccessFs::from_write(NEWEST);
    let granted = folders.iter().map(|folder| (folder.to_path_buf(), changes));
    enforce(granted, |rules| {
        rules.handle_access(changes)?.handle_access(AccessNet::BindTcp)?.scope(Scope::Signal)
    })
}

/// Restricts the calling thread: `handle` names what is refused, but for what is granted.
fn enforce(
    granted: impl Iterator<Item = (PathBuf, BitFlags<AccessFs>)>,
    handle: impl FnOnce(Ruleset) -> Result<Ruleset, RulesetError>,
) -> Result<Result<u32, Missing>, EnterError> {
    let has_oldest = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::from_all(OLDEST))
        .and_then(Ruleset::create);
    if has_oldest.is_err() {
        let why = "this kernel has no Landlock of Linux 5.19 or newer, or it is not switched on";
        return Ok(Err(Missing(why.to_owned())));
    }
    let wrong = |error: &dyn std::fmt::Display| EnterError::Rules(error.to_string());
    let rules = Ruleset::default().set_compatibility(CompatLevel::BestEffort);
    let mut rules = handle(rules).and_then(Ruleset::create).map_err(|error| wrong(&error))?;
    for (path, mut rights) in granted {
        let Ok(metadata) = path.metadata() else { continue };
        let opened = PathFd::new(&path).map_err(|error| EnterError::Path {
            path: path.display().to_string(),
            source: std::io::Error::other(error.to_string()),
        })?;
        if !metadata.is_dir() {
            rights &= AccessFs::from_file(NEWEST);
        }
        if rights.is_empty() {
            continue;
        }
        rules = rules.add_rule(PathBeneath::new(opened, rights)).map_err(|error| wrong(&error))?;
    }
    let status = rules.restrict_self().map_err(|error| wrong(&error))?;
    let missing = || Missing("the kernel does not enforce the rules".to_owned());
    Ok(match (status.ruleset, status.landlock) {
        (RulesetStatus::NotEnforced, _) => Err(missing()),
        (_, LandlockStatus::Available { kernel_abi: Some(abi), .. }) => Ok(abi.unsigned_abs()),
        (_, LandlockStatus::Available { effective_abi, .. }) => Ok(effective_abi as u32),
        _ => Err(missing()),
    })
}

fn rights(access: Access) -> BitFlags<AccessFs> {
    match access {
        Access::Read => make_bitflags!(AccessFs::{ReadFile | ReadDir}),
        Access::Write => make_bitflags!(AccessFs::{
            ReadFile | ReadDir | WriteFile | Truncate | RemoveFile | RemoveDir | MakeReg | MakeDir | MakeSym | Refer
        }),
        Access::Append => make_bitflags!(AccessFs::{WriteFile | MakeReg}),
        Access::Extend => make_bitflags!(AccessFs::{ReadFile | ReadDir | WriteFile | MakeReg}),
        Access::Replace => make_bitflags!(AccessFs::{WriteFile | Truncate | MakeReg | RemoveFile}),
        Access::Socket => make_bitflags!(AccessFs::{MakeSock | RemoveFile}),
        Access::Device => make_bitflags!(AccessFs::{ReadFile | WriteFile | IoctlDev}),
    }
}
