//! Where the figures go: a table on standard output, and files.
//!
//! Whether files can be written is tried before anything is measured: half an hour of load must not end in "permission
//! denied". They are written when there is something to say, beside their place, and then take it: what a file holds, which
//! may be the baseline, stays whole until then, whatever becomes of the run.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write, stdout};
use std::path::{Path, PathBuf};

use millrace_lab::from_log::LogRates;
use millrace_lab::html;
use millrace_lab::report::{Report, csv, markdown, text, zb};
use millrace_lab::search::Capacity;
use millrace_terminal::{Failure, has_color, print};

use super::Bench;

/// Everything that a run writes to.
pub(super) struct Output {
    json: Option<Sink>,
    html: Option<Sink>,
    csv: Option<Sink>,
    markdown: Option<Sink>,
    is_zb: bool,
}

/// A file, or standard output.
pub(crate) struct Sink {
    /// The path as given.
    path: PathBuf,
    place: Place,
}

/// Where it goes.
enum Place {
    StandardOutput,
    /// A device or a pipe, which holds nothing.
    Open(File),
    /// This file: it is replaced.
    File(PathBuf),
}

impl Output {
    /// Looks that all can be written.
    pub(super) fn open(arguments: &Bench) -> Result<Self, Failure> {
        let Bench { json, html, csv, markdown, .. } = arguments;
        let [json, html, csv, markdown] = Sink::open_all([json, html, csv, markdown])?;
        Ok(Self { json, html, csv, markdown, is_zb: arguments.compat.is_some() })
    }

    /// Shows the figures, and what the gate says of them.
    pub(super) fn write(self, report: &Report, judgement: &str) -> Result<(), Failure> {
        if !self.shows_table() {
            eprint!("{judgement}");
        } else {
            let text = match self.is_zb {
                true => zb::compat(report),
                false => text::render(report, has_color(&stdout())),
            };
            print(&(text + judgement))?;
        }
        // A file that cannot be written does not prevent the others.
        let json = write(self.json, || report.json());
        let html = write(self.html, || html::run(report));
        let csv = write(self.csv, || csv::render(report));
        let markdown = write(self.markdown, || markdown::render(report));
        json.and(html).and(csv).and(markdown)
    }

    /// Shows the rates that a log tells.
    pub(super) fn write_rates(self, rates: &LogRates) -> Result<(), Failure> {
        if self.shows_table() {
            print(&rates.to_string())?;
        }
        write(self.json, || rates.json())
    }

    /// Shows the answer of a search.
    pub(super) fn write_capacity(self, capacity: &Capacity) -> Result<(), Failure> {
        if self.shows_table() {
            print(&millrace_lab::search::text::render(capacity))?;
        }
        let json = write(self.json, || capacity.json());
        let html = write(self.html, || html::search(capacity));
        let csv = write(self.csv, || capacity.csv());
        json.and(html).and(csv)
    }

    /// Standard output is for one thing at a time.
    fn shows_table(&self) -> bool {
        !self.sinks().any(Sink::is_stdout)
    }

    fn sinks(&self) -> impl Iterator<Item = &Sink> {
        [&self.json, &self.html, &self.csv, &self.markdown].into_iter().flatten()
    }
}

pub(crate) fn write(sink: Option<Sink>, render: impl FnOnce() -> String) -> Result<(), Failure> {
    let Some(Sink { path, place }) = sink else { return Ok(()) };
    match place {
        Place::StandardOutput => return print(&render()),
        Place::Open(mut file) => file.write_all(render().as_bytes()),
        Place::File(place) => replace(&place, render().as_bytes()),
    }
    .map_err(|error| failed(&path, &error))
}

impl Sink {
    /// Returns true if it is standard output.
    pub(crate) fn is_stdout(&self) -> bool {
        matches!(self.place, Place::StandardOutput)
    }

    /// Opens those of `--json`, `--html`, `--csv` and `--markdown`, no two of which may be one.
    pub(crate) fn open_all(paths: [&Option<PathBuf>; 4]) -> Result<[Option<Self>; 4], Failure> {
        let [json, html, csv, markdown] = paths.map(|path| path.as_deref().map(Self::open).transpose());
        let sinks = [json?, html?, csv?, markdown?];
        let mut rest = sinks.iter().flatten();
        while let Some(sink) = rest.next() {
            let Some(other) = rest.clone().find(|other| sink.is_one_with(other)) else { continue };
            let only_one = "only one of --json, --html, --csv and --markdown can be";
            return Err(Failure::Configuration(match sink.is_stdout() {
                true => format!("{only_one} \"-\", standard output."),
                false => format!("{only_one} {}.", other.path.display()),
            }));
        }
        Ok(sinks)
    }

    fn is_one_with(&self, other: &Self) -> bool {
        match (&self.place, &other.place) {
            (Place::StandardOutput, Place::StandardOutput) => true,
            (Place::File(one), Place::File(other)) => one == other,
            _ => false,
        }
    }

    /// Checks that it can be written, without changing it.
    fn open(path: &Path) -> Result<Self, Failure> {
        let place = Place::of(path).map_err(|error| {
            Failure::Configuration(format!("{} cannot be written: {error}.", path.display()))
        })?;
        Ok(Self { path: path.to_owned(), place })
    }
}

impl Place {
    fn of(path: &Path) -> io::Result<Self> {
        if path.as_os_str() == "-" {
            return Ok(Self::StandardOutput);
        }
        let place = match fs::canonicalize(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
                let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
                fs::canonicalize(parent.unwrap_or(Path::new(".")))?.join(name)
            }
            Err(error) => return Err(error),
            Ok(place) => {
                let file = OpenOptions::new().write(true).open(&place)?;
                if !file.metadata()?.is_file() {
                    return Ok(Self::Open(file));
                }
                place
            }
        };
        create_beside(&place).and_then(|(beside, _)| fs::remove_file(beside))?;
        Ok(Self::File(place))
    }
}

/// A new file in the same folder.
fn create_beside(place: &Path) -> io::Result<(PathBuf, File)> {
    let name = place.file_name().unwrap_or_default().to_string_lossy();
    let beside = place.with_file_name(format!(".{name}.{}", std::process::id()));
    let file = OpenOptions::new().write(true).create_new(true).open(&beside)?;
    Ok((beside, file))
}

/// Replaces a file atomically, and keeps its permissions.
fn replace(place: &Path, bytes: &[u8]) -> io::Result<()> {
    let (beside, mut file) = create_beside(place)?;
    let written = file.write_all(bytes).and_then(|()| match fs::metadata(place) {
        Ok(old) => file.set_permissions(old.permissions()),
        Err(_) => Ok(()),
    });
    let outcome = written.and_then(|()| fs::rename(&beside, place));
    if outcome.is_err() {
        let _ = fs::remove_file(&beside);
    }
    outcome
}

fn failed(path: &Path, error: &io::Error) -> Failure {
    Failure::Running(format!("{} cannot be written: {error}.", path.display()))
}
