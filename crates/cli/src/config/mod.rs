//! The configuration: what was written (`written.rs`), and what it means (`resolve.rs`).
//!
//! Flags and the keys of a file are one struct, [`Written`], so that every flag has a key by construction.
//! Each value remembers where it was written, and an error points there (`report.rs`).

mod acme;
mod begun;
mod database;
mod doors;
mod folders;
mod hooks;
mod hosts;
mod keys;
mod limits;
mod logins;
mod mistakes;
mod obstacles;
mod own;
mod passes;
mod places;
mod profiles;
mod report;
mod resolve;
mod said;
mod settings;
mod shown;
mod sources;
mod tls;
mod value;
mod web;
mod written;

use std::fs;
use std::path::Path;
use std::sync::Arc;

use millrace_server::limits::Quotas;

use crate::failure::Failure;

pub(crate) use begun::Begun;
pub(crate) use database::default_path;
pub(crate) use logins::{Login, check_name};
pub(crate) use report::Source;
pub(crate) use resolve::Site;
pub(crate) use said::Said;
pub(crate) use value::{Access, Period};
pub(crate) use written::Written;

/// What the flags and the file mean together; a flag goes before the same key of the file.
pub(crate) fn load(flags: Written, file: Option<&Path>) -> Result<Site, Failure> {
    load_beside(flags, file, None)
}

/// The same for a server that runs already, and has counted this for quotas.
pub(crate) fn load_beside(
    flags: Written,
    file: Option<&Path>,
    quotas: Option<Arc<Quotas>>,
) -> Result<Site, Failure> {
    match file {
        None => resolve::resolve(flags, None, quotas),
        Some(path) => {
            let source = read(path)?;
            let written = flags.over(parse(&source)?);
            resolve::resolve(written, Some(&source), quotas)
        }
    }
}

fn read(path: &Path) -> Result<Source, Failure> {
    let failed = |what: String| {
        Failure::Configuration(format!("cannot read the configuration file {}: {what}.", path.display()))
    };
    let bytes = fs::read(path).map_err(|error| failed(error.to_string()))?;
    let text = String::from_utf8(bytes).map_err(|error| {
        let line = error.as_bytes()[..error.utf8_error().valid_up_to()].split(|&byte| byte == b'\n').count();
        failed(format!("line {line} is not UTF-8, which TOML has to be"))
    })?;
    Ok(Source { path: path.to_owned(), text, keys: keys::known() })
}

fn parse(source: &Source) -> Result<Written, Failure> {
    keys::refuse_unknown(source)?;
    mistakes::read(source)
}

#[cfg(test)]
mod tests;
