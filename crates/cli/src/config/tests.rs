//! Flags and files: what they mean, and the full text of every error.

mod documentation;
mod environment;
mod files;
mod flags;
mod reload;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use clap::Parser;
use millrace_server::Config;

use super::*;
use crate::args::{Cli, Command};

/// The hash of `password`, from the tests of the reference implementation in C.
const HASH: &str = "$argon2id$v=19$m=256,t=2,p=1$c29tZXNhbHQ$nf65EOgLrQMR/uIPnA4rEsF5h7TKyQwu9U1bMCHGi/4";

/// A folder to serve, with `photos/`, `file` and `out` (a link that leads out) in it.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("millrace-config-{}-{number}", std::process::id()));
        fs::create_dir_all(path.join("photos")).unwrap();
        fs::write(path.join("file"), "").unwrap();
        std::os::unix::fs::symlink("/", path.join("out")).unwrap();
        Self(path.canonicalize().unwrap())
    }

    fn path(&self) -> &Path {
        &self.0
    }

    /// The configuration of a file beside the served things.
    fn file(&self, text: &str) -> Result<Site, Failure> {
        self.file_and_flags(text, &[])
    }

    fn file_and_flags(&self, text: &str, flags: &[&str]) -> Result<Site, Failure> {
        let path = self.0.join("m.toml");
        fs::write(&path, text).unwrap();
        load(written(flags), Some(&path))
    }

    /// The configuration of flags that serve this folder.
    fn flags(&self, flags: &[&str]) -> Result<Site, Failure> {
        let mut flags = flags.to_vec();
        flags.push(self.0.to_str().unwrap());
        load(written(&flags), None)
    }

    /// An error's text, with this folder as `HERE`.
    fn error(&self, result: Result<Site, Failure>) -> String {
        let text = match result {
            Err(Failure::Configuration(text)) => text,
            Err(other) => panic!("not a matter of configuration: {other}"),
            Ok(site) => panic!("accepted: {site:?}"),
        };
        text.replace(self.0.to_str().unwrap(), "HERE")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn parse(flags: &[&str]) -> Result<Cli, clap::Error> {
    Cli::try_parse_from(["millrace", "serve"].iter().chain(flags))
}

fn written(flags: &[&str]) -> Written {
    match parse(flags).unwrap_or_else(|error| panic!("{error}")).command {
        Command::Serve(arguments) => arguments.written,
        other => panic!("not serve: {other:?}"),
    }
}

/// The users and their permissions, in one line.
fn logins(site: &Site) -> String {
    site.logins.iter().map(crate::who::may).collect::<Vec<_>>().join("; ")
}
