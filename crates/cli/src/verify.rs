//! `millrace verify`: says which files are not what their uploads have stored hashes of.

use std::fmt;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};

use clap::Args;
use millrace_storage::{FileState, verify};
use millrace_terminal::{Failure, print};
use serde_json::json;

#[derive(Debug, Args)]
pub(crate) struct Verify {
    /// The folder
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// Print JSON: a line for each file that is damaged, changed or unreadable, and one with the totals
    #[arg(long)]
    json: bool,
    /// How many files are read at once; more than one helps where there is more than one disk
    #[arg(long, value_name = "N", default_value = "1")]
    jobs: NonZeroUsize,
}

/// How many files were found in each state.
#[derive(Debug, Default)]
struct Totals {
    intact: u64,
    bytes: u64,
    damaged: u64,
    changed: u64,
    unhashed: u64,
    unreadable: u64,
}

pub(crate) fn run(arguments: &Verify) -> Result<ExitCode, Failure> {
    let Verify { directory, json, jobs } = arguments;
    let totals = Mutex::new(Totals::default());
    let tell = |path: &Path, state: FileState| {
        let mut totals = totals.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((word, details)) = totals.count(state) {
            // While the totals are held, so that no two lines mix; a reader who has gone needs none.
            let _ = print(&line(path, word, details, *json));
        }
    };
    verify(directory, *jobs, &tell).map_err(|error| {
        let name = directory.display();
        Failure::Configuration(format!(
            "cannot read the folder {name}: {error}; name a folder to look through."
        ))
    })?;
    let totals = totals.into_inner().unwrap_or_else(PoisonError::into_inner);
    print(&if *json { totals.to_json() } else { totals.to_string() })?;
    Ok(ExitCode::from(u8::from(totals.damaged + totals.unreadable > 0)))
}

/// Words about a file: the key and the value of each.
type Details = Vec<(&'static str, String)>;

fn line(path: &Path, word: &str, details: Details, json: bool) -> String {
    if json {
        let mut object = json!({ "state": word, "path": path.to_string_lossy() });
        details.into_iter().for_each(|(key, value)| object[key] = value.into());
        return format!("{object}\n");
    }
    let details: String = details.iter().map(|(key, value)| format!("; {key}: {value}")).collect();
    // Without characters that would move the cursor.
    let escape = |char: char| match char.is_control() {
        true => char.escape_default().to_string(),
        false => char.to_string(),
    };
    let path: String = path.to_string_lossy().chars().map(escape).collect();
    format!("{word:10} {path}{details}\n")
}

impl Totals {
    /// Counts a file; returns what is said of it, if anything is.
    fn count(&mut self, state: FileState) -> Option<(&'static str, Details)> {
        let (count, said) = match state {
            FileState::Intact(bytes) => {
                self.bytes += bytes;
                (&mut self.intact, None)
            }
            FileState::Unhashed => (&mut self.unhashed, None),
            FileState::Changed => (&mut self.changed, Some(("changed", Vec::new()))),
            FileState::Damaged { stored, found } => {
                let details = vec![("stored", stored.to_string()), ("found", found.to_string())];
                (&mut self.damaged, Some(("damaged", details)))
            }
            FileState::Unreadable(error) => {
                (&mut self.unreadable, Some(("unreadable", vec![("reason", error.to_string())])))
            }
        };
        *count += 1;
        said
    }

    fn to_json(&self) -> String {
        let Self { intact, bytes, damaged, changed, unhashed, unreadable } = self;
        let object = json!({
            "state": "totals", "intact": intact, "bytes": bytes, "damaged": damaged, "changed": changed,
            "unhashed": unhashed, "unreadable": unreadable,
        });
        format!("{object}\n")
    }
}

impl fmt::Display for Totals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { intact, bytes, damaged, changed, unhashed, unreadable } = self;
        writeln!(f, "{}, {bytes} bytes: as they came.", files(*intact))?;
        writeln!(f, "{}: damaged.", files(*damaged))?;
        writeln!(f, "{}: changed since they came.", files(*changed))?;
        writeln!(f, "{}: without a hash.", files(*unhashed))?;
        if *unreadable > 0 {
            writeln!(f, "{}: could not be read.", files(*unreadable))?;
        }
        if intact + damaged + changed == 0 && *unhashed > 0 {
            writeln!(f, "Uploads get a hash where the server has one set: upload-hash = \"sha256\".")?;
        }
        Ok(())
    }
}

fn files(count: u64) -> String {
    if count == 1 { "1 file".to_owned() } else { format!("{count} files") }
}
