//! Where a server is installed, and which version it is.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::Peer;

/// Where a server is looked for.
#[derive(Debug)]
pub(super) struct Place {
    /// Its program, by name.
    pub(super) program: &'static str,
    /// And below the folder of `peers/install`.
    pub(super) below: &'static str,
    /// Debian's name for the package that `peers/install` unpacked.
    pub(super) package: Option<&'static str>,
    /// Makes it say its version.
    pub(super) version: &'static [&'static str],
}

/// A server that is installed.
#[derive(Debug, Clone)]
pub struct Installed {
    /// Which.
    pub peer: &'static Peer,
    /// Its program.
    pub program: PathBuf,
    /// The version that it reports, or its package's.
    pub version: String,
    /// The environment that it needs: libraries that were unpacked beside it, Python's packages.
    pub(super) environment: Vec<(&'static str, String)>,
}

/// Where `peers/install` puts servers.
pub fn peers_folder() -> PathBuf {
    let home = || Path::new(&env::var_os("HOME").unwrap_or_default()).join(".cache");
    env::var_os("XDG_CACHE_HOME").map_or_else(home, PathBuf::from).join("millrace-peers")
}

pub(super) fn find(peer: &'static Peer, path: Option<&Path>) -> Option<Installed> {
    let folder = peers_folder();
    let environment = environment(&folder);
    let (program, environment) = match path {
        // It is started in a folder of its own.
        Some(path) => (std::path::absolute(path).ok()?, Vec::new()),
        None if peer.name == "millrace" => (env::current_exe().ok()?, Vec::new()),
        None => match in_path(peer.place.program) {
            Some(program) => (program, only_python(environment)),
            None => (folder.join(peer.place.below), environment),
        },
    };
    if !program.is_file() {
        return None;
    }
    let version = version(peer, &program, &folder, &environment)?;
    Some(Installed { peer, program, version, environment })
}

/// Daemons live where an ordinary user's `PATH` does not look.
fn in_path(program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let system = ["/usr/local/sbin", "/usr/sbin", "/sbin"].map(PathBuf::from);
    env::split_paths(&path).chain(system).map(|folder| folder.join(program)).find(|path| path.is_file())
}

fn environment(folder: &Path) -> Vec<(&'static str, String)> {
    let libraries: Vec<String> = ["debian/usr/lib", "debian/lib"]
        .iter()
        .flat_map(|below| fs::read_dir(folder.join(below)).into_iter().flatten().flatten())
        .map(|entry| entry.path().display().to_string())
        .filter(|path| path.ends_with("-linux-gnu"))
        .collect();
    vec![
        ("LD_LIBRARY_PATH", libraries.join(":")),
        ("PYTHONPATH", folder.join("python").display().to_string()),
    ]
}

/// A program installed in the system uses the system's libraries.
fn only_python(environment: Vec<(&'static str, String)>) -> Vec<(&'static str, String)> {
    environment.into_iter().filter(|(name, _)| *name == "PYTHONPATH").collect()
}

/// `None` where the program does not even say that: pyftpdlib is a module of a Python that is always there.
fn version(
    peer: &Peer,
    program: &Path,
    folder: &Path,
    environment: &[(&'static str, String)],
) -> Option<String> {
    if program.starts_with(folder)
        && let Some(package) = peer.place.package
        && let Some(version) = packaged(&folder.join("debian/packages"), package)
    {
        return Some(version);
    }
    if peer.place.version.is_empty() {
        return Some("of unknown version".to_owned());
    }
    let mut command = Command::new(program);
    command.args(peer.place.version).envs(environment.iter().cloned()).stdin(Stdio::null());
    let output = command.output().ok()?;
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    let line = said.lines().next().unwrap_or_default().trim();
    output.status.success().then(|| digits_on(line).to_owned())
}

/// `nginx version: nginx/1.22.1` is 1.22.1: from the first digit not preceded by a letter.
fn digits_on(line: &str) -> &str {
    let words = line
        .split([' ', '/'])
        .find(|word| word.trim_start_matches('v').starts_with(|letter: char| letter.is_ascii_digit()));
    words.unwrap_or(line).trim_start_matches('v').trim_end_matches([',', ';'])
}

/// The version in a package's file name, `vsftpd_3.0.3-13+b2_amd64.deb`; colons are escaped there.
fn packaged(packages: &Path, package: &str) -> Option<String> {
    let names =
        fs::read_dir(packages).ok()?.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let versions = names.filter_map(|name| {
        let mut parts = name.strip_suffix(".deb")?.split('_');
        (parts.next()? == package).then_some(())?;
        Some(parts.next()?.replace("%3a", ":"))
    });
    versions.max()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_cut_out_of_what_is_said() {
        for (said, version) in [
            ("nginx version: nginx/1.22.1", "1.22.1"),
            ("lighttpd/1.4.69 (ssl) - a light and fast webserver", "1.4.69"),
            ("pure-ftpd v1.0.50 [privsep]", "1.0.50"),
            ("ProFTPD Version 1.3.8", "1.3.8"),
            ("millrace 0.1.0", "0.1.0"),
            ("2.2.0", "2.2.0"),
            ("", ""),
        ] {
            assert_eq!(digits_on(said), version);
        }
    }
}
