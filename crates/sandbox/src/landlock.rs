//! Files, by Landlock.

use landlock::{
    ABI, Access as _, AccessFs, BitFlags, CompatLevel, Compatible, LandlockStatus, PathBeneath, PathFd,
    Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetStatus, make_bitflags,
};

use crate::grants::{Access, Grant, of_the_system};
use crate::{EnterError, Missing};

/// The newest interface whose rights are handled here: files of devices and truncation, which came after the first.
const NEWEST: ABI = ABI::V5;

/// The oldest that is used: the first forbids every rename and link between folders, which uploads and clients need.
const OLDEST: ABI = ABI::V2;

/// Restricts the calling thread to these files and those of the system; answers the version that holds.
pub(crate) fn restrict(grants: &[Grant]) -> Result<Result<u32, Missing>, EnterError> {
    let has_oldest = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::from_all(OLDEST))
        .and_then(Ruleset::create);
    if has_oldest.is_err() {
        let why = "this kernel has no Landlock of Linux 5.19 or newer, or it is not switched on";
        return Ok(Err(Missing(why.to_owned())));
    }
    let wrong = |error: &dyn std::fmt::Display| EnterError::Rules(error.to_string());
    let mut rules = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(NEWEST))
        .map_err(|error| wrong(&error))?
        .create()
        .map_err(|error| wrong(&error))?;
    let is_root = rustix::process::geteuid().is_root();
    for Grant { path, access } in of_the_system(is_root).iter().chain(grants) {
        let Ok(metadata) = path.metadata() else { continue };
        let opened = PathFd::new(path).map_err(|error| EnterError::Path {
            path: path.display().to_string(),
            source: std::io::Error::other(error.to_string()),
        })?;
        let mut rights = rights(*access);
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
        Access::Extend => make_bitflags!(AccessFs::{ReadFile | WriteFile | MakeReg}),
        Access::Replace => make_bitflags!(AccessFs::{WriteFile | Truncate | MakeReg | RemoveFile}),
        Access::Socket => make_bitflags!(AccessFs::{MakeSock | RemoveFile}),
        Access::Device => make_bitflags!(AccessFs::{ReadFile | WriteFile | IoctlDev}),
    }
}
