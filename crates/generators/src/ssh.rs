//! Starts programs on other machines by OpenSSH's client, and copies this one there first.
//!
//! The copy's name has the SHA-256 of its content, so that builds do not overwrite one another. It is copied where it is
//! missing, or where the file of that name has another hash, and is hashed once more afterwards.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use sha2::{Digest, Sha256};
use thiserror::Error;

/// Where copies are kept, in the home directory of the user there.
const FOLDER: &str = ".cache/millrace";

/// Why a generator did not start.
#[derive(Debug, Error)]
pub enum StartError {
    /// The program cannot be started, or read.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// OpenSSH's client failed, or what it ran.
    #[error("{step}: {said}")]
    Ssh {
        /// What it was to do.
        step: &'static str,
        /// What it said.
        said: String,
    },
}

/// A machine that OpenSSH's client reaches.
pub(crate) struct Ssh<'a> {
    /// The client with its options, divided by blanks.
    pub(crate) client: &'a str,
    /// `user@host`, or the host.
    pub(crate) login: String,
    pub(crate) port: Option<u16>,
}

impl Ssh<'_> {
    /// Returns the client with a script for the shell there. It never asks for a password.
    pub(crate) fn command(&self, script: &str) -> Command {
        let mut words = self.client.split_whitespace();
        let mut command = Command::new(words.next().unwrap_or("ssh"));
        command.args(words).args([
            "-T",
            "-oBatchMode=yes",
            "-oServerAliveInterval=3",
            "-oServerAliveCountMax=3",
        ]);
        command.args(self.port.map(|port| format!("-p{port}")));
        command.args(["--", self.login.as_str(), script]);
        command
    }

    fn run(&self, step: &'static str, script: &str, input: Stdio) -> Result<String, StartError> {
        let Output { status, stdout, stderr } = self
            .command(script)
            .stdin(input)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?
            .wait_with_output()?;
        if status.success() {
            return Ok(String::from_utf8_lossy(&stdout).trim().to_owned());
        }
        let said = String::from_utf8_lossy(&stderr).trim().replace('\n', "; ");
        Err(StartError::Ssh { step, said: if said.is_empty() { status.to_string() } else { said } })
    }
}

/// Sees to it that the program is there; returns its path for the shell there.
pub(crate) fn install(ssh: &Ssh<'_>, program: &Path) -> Result<String, StartError> {
    let hash = hash(program)?;
    let path = format!("\"$HOME\"/{FOLDER}/bench-{}", &hash[..16]);
    let ask = format!("sha256sum < {path} 2>/dev/null || echo none");
    if is_hash(&ssh.run("the program there cannot be looked at", &ask, Stdio::null())?, &hash) {
        return Ok(path);
    }
    let copy = format!(
        "umask 077 && mkdir -p \"$HOME\"/{FOLDER} && cat > {path}.$$ && chmod 700 {path}.$$ && mv {path}.$$ {path} && sha256sum < {path}"
    );
    let came = ssh.run("the program cannot be copied", &copy, File::open(program)?.into())?;
    match is_hash(&came, &hash) {
        true => Ok(path),
        false => Err(StartError::Ssh {
            step: "the program was copied",
            said: format!("and its hash is {came:?}, not {hash}"),
        }),
    }
}

/// Returns whether `sha256sum` says so.
fn is_hash(said: &str, hash: &str) -> bool {
    said.split_whitespace().next() == Some(hash)
}

/// Returns the SHA-256 of a file in hexadecimal digits.
fn hash(path: &Path) -> io::Result<String> {
    let (mut file, mut hasher, mut buffer) = (File::open(path)?, Sha256::new(), vec![0; 1 << 20]);
    loop {
        match file.read(&mut buffer)? {
            0 => break,
            count => hasher.update(&buffer[..count]),
        }
    }
    Ok(hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}
