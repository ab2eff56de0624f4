//! Which files a confined process may use, and for what.

use std::path::{Path, PathBuf};

/// What a path is granted for. A folder is granted with everything beneath it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Access {
    /// Files are read, folders are listed.
    Read,
    /// Files are read, written, made, renamed, linked and removed; folders and symbolic links, too.
    Write,
    /// Files are made and written, but neither read nor removed: logs.
    Append,
    /// Files are listed, made, read and written, but neither cut nor removed: logs that are gone on with.
    Extend,
    /// Files are made, written and removed, but not read: a file that is replaced as a whole.
    Replace,
    /// Sockets are made, renamed and removed.
    Socket,
    /// A device is read and written.
    Device,
}

impl Access {
    /// Returns whether who has this needs no grant of the other.
    fn includes(self, other: Self) -> bool {
        self == other
            || (self == Self::Write
                && matches!(other, Self::Read | Self::Append | Self::Extend | Self::Replace))
    }
}

/// A path that a confined process may use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// The path. One that is not there is granted nothing.
    pub path: PathBuf,
    /// What for.
    pub access: Access,
}

impl Grant {
    /// Grants a path.
    pub fn new(path: impl Into<PathBuf>, access: Access) -> Self {
        Self { path: path.into(), access }
    }

    /// Grants what it takes to use a file that may be replaced while the process runs: the folder that it is in. A folder
    /// directly beneath the root (`/etc`, `/tmp`) is too much for one file: then the file is granted alone. Where the
    /// path is a symbolic link, the file that it leads to is granted likewise.
    pub fn file(path: &Path, access: Access) -> Vec<Self> {
        let one = |path: &Path| {
            let folder = path.parent().filter(|folder| folder.components().count() > 2);
            Self::new(folder.unwrap_or(path), access)
        };
        places(path).iter().map(|path| one(path)).collect()
    }

    /// Grants the folder of a file that is made beside others (databases, sockets), whichever folder that is; also that of the
    /// file that the path leads to, where it is a symbolic link.
    pub fn folder_of(path: &Path, access: Access) -> Vec<Self> {
        places(path).iter().map(|path| Self::new(path.parent().unwrap_or(path), access)).collect()
    }
}

/// The path, absolute; where it is a symbolic link, the file that it leads to as well, which need not be there yet.
fn places(path: &Path) -> Vec<PathBuf> {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let made_later = || {
        let target = path.parent()?.join(path.read_link().ok()?);
        Some(target.parent()?.canonicalize().ok()?.join(target.file_name()?))
    };
    let target = path.canonicalize().ok().or_else(made_later).filter(|target| *target != path);
    std::iter::once(path).chain(target).collect()
}

/// Returns whether all that is wanted was granted; else the first that was not.
pub fn covers<'a>(granted: &[Grant], wanted: &'a [Grant]) -> Result<(), &'a Grant> {
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let granted: Vec<_> = granted.iter().map(|grant| (real(&grant.path), grant.access)).collect();
    let is_covered = |wanted: &&Grant| {
        let path = real(&wanted.path);
        granted.iter().any(|(of, access)| path.starts_with(of) && access.includes(wanted.access))
    };
    match wanted.iter().find(|wanted| !is_covered(wanted)) {
        None => Ok(()),
        Some(missing) => Err(missing),
    }
}

/// What any server needs of the system: libraries for name look-ups, time zones, the kernel's figures.
///
/// A process of root's gets those files of `/etc` that it needs by name, so that it cannot read the others. Any other
/// user gets `/etc` as a whole, where files are guarded by their modes: then a `resolv.conf` that is replaced while the
/// process runs is read.
pub fn of_the_system(is_root: bool) -> Vec<Grant> {
    const FOLDERS: [&str; 12] = [
        "/usr",
        "/lib",
        "/lib32",
        "/lib64",
        "/nix/store",
        "/gnu/store",
        // Entries of other processes are protected by Landlock's rules for ptrace.
        "/proc",
        "/sys/fs/cgroup",
        "/sys/devices/system/cpu",
        // Where resolv.conf leads to.
        "/run/systemd/resolve",
        "/run/resolvconf",
        "/run/NetworkManager",
    ];
    const OF_ETC: [&str; 15] = [
        "resolv.conf",
        "hosts",
        "host.conf",
        "nsswitch.conf",
        "gai.conf",
        "services",
        "protocols",
        "networks",
        "localtime",
        "timezone",
        "ld.so.cache",
        "passwd",
        "group",
        "mime.types",
        "ssl/certs",
    ];
    const DEVICES: [&str; 3] = ["/dev/null", "/dev/random", "/dev/urandom"];
    let etc: Vec<PathBuf> = match is_root {
        true => OF_ETC.iter().map(|name| Path::new("/etc").join(name)).collect(),
        false => vec!["/etc".into()],
    };
    let read = FOLDERS.iter().map(PathBuf::from).chain(etc).map(|path| Grant::new(path, Access::Read));
    read.chain(DEVICES.iter().map(|path| Grant::new(path, Access::Device))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_brings_its_folder_and_never_one_directly_beneath_the_root() {
        let of = |path: &str| Grant::file(Path::new(path), Access::Read);
        assert_eq!(of("/etc/millrace/server.toml"), [Grant::new("/etc/millrace", Access::Read)]);
        assert_eq!(of("/etc/millrace-none.toml"), [Grant::new("/etc/millrace-none.toml", Access::Read)]);
        assert_eq!(of("/none"), [Grant::new("/none", Access::Read)]);
    }

    #[test]
    fn a_link_brings_the_folder_that_it_leads_to() {
        let folder = std::env::temp_dir().join(format!("millrace-grants-{}", std::process::id()));
        for part in ["live", "archive"] {
            std::fs::create_dir_all(folder.join(part)).unwrap();
        }
        let folder = folder.canonicalize().unwrap();
        std::fs::write(folder.join("archive/cert1.pem"), "").unwrap();
        std::os::unix::fs::symlink("../archive/cert1.pem", folder.join("live/cert.pem")).unwrap();
        let granted = Grant::file(&folder.join("live/cert.pem"), Access::Read);
        let paths: Vec<&Path> = granted.iter().map(|grant| &*grant.path).collect();
        assert_eq!(paths, [folder.join("live"), folder.join("archive")]);
        std::os::unix::fs::symlink("../archive/later.db", folder.join("live/later.db")).unwrap();
        for name in ["cert.pem", "later.db"] {
            let granted = Grant::folder_of(&folder.join("live").join(name), Access::Write);
            let paths: Vec<&Path> = granted.iter().map(|grant| &*grant.path).collect();
            assert_eq!(paths, [folder.join("live"), folder.join("archive")], "{name}");
        }
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn what_was_granted_covers_what_lies_beneath_it_and_needs_no_more_rights() {
        let granted = [Grant::new("/srv/a", Access::Write), Grant::new("/srv/b", Access::Read)];
        let is_covered = |path: &str, access| covers(&granted, &[Grant::new(path, access)]).is_ok();
        assert!(is_covered("/srv/a", Access::Write) && is_covered("/srv/a/deep/er", Access::Read));
        assert!(is_covered("/srv/a", Access::Append) && is_covered("/srv/b/x", Access::Read));
        assert!(!is_covered("/srv/b", Access::Write) && !is_covered("/srv/ab", Access::Read));
        assert!(!is_covered("/srv/a/socket", Access::Socket) && !is_covered("/srv", Access::Read));
    }
}
