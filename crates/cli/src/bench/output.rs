//! Where the figures go: a table on standard output, and files.
//!
//! Files are made before anything is measured: half an hour of load must not end in "permission denied".

use std::fs::File;
use std::io::{self, IsTerminal, Write, stdout};
use std::path::{Path, PathBuf};

use millrace_bench::report::zb::{self, Spelling};
use millrace_bench::report::{Report, csv, html, markdown, text};
use millrace_bench::search::Capacity;

use super::Bench;
use crate::failure::Failure;

/// Everything that a run writes to.
pub(super) struct Output {
    json: Option<Sink>,
    html: Option<Sink>,
    csv: Option<Sink>,
    markdown: bool,
    is_zb: bool,
}

/// A file, or standard output.
pub(crate) struct Sink {
    path: PathBuf,
    file: Option<File>,
}

impl Output {
    /// Makes the files.
    pub(super) fn open(arguments: &Bench) -> Result<Self, Failure> {
        let open = |path: &Option<PathBuf>| path.as_deref().map(Sink::open).transpose();
        let Bench { json, html, csv, markdown, .. } = arguments;
        let output = Self {
            json: open(json)?,
            html: open(html)?,
            csv: open(csv)?,
            markdown: *markdown,
            is_zb: arguments.compat.is_some(),
        };
        let printed = output.sinks().filter(|sink| sink.is_stdout()).count();
        match printed {
            0 | 1 => Ok(output),
            _ => Err(Failure::Configuration(
                "only one of --json, --html and --csv can be \"-\", standard output.".to_owned(),
            )),
        }
    }

    /// Shows the figures, and what the gate says of them.
    pub(super) fn write(self, report: &Report, judgement: &str) -> Result<(), Failure> {
        if !self.shows_table() {
            eprint!("{judgement}");
        } else {
            let text = match self.markdown {
                _ if self.is_zb => zb::render(report, Spelling::Then),
                true => markdown::render(report),
                false => text::render(report, has_color(&stdout())),
            };
            print(&(text + judgement))?;
        }
        // One that cannot be written is no reason to lose the others.
        let json = write(self.json, || report.json());
        let html = write(self.html, || html::run(report));
        let csv = write(self.csv, || csv::render(report));
        json.and(html).and(csv)
    }

    /// Shows the answer of a search.
    pub(super) fn write_capacity(self, capacity: &Capacity) -> Result<(), Failure> {
        if self.shows_table() {
            print(&text::capacity(capacity))?;
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
        [&self.json, &self.html, &self.csv].into_iter().flatten()
    }
}

pub(crate) fn write(sink: Option<Sink>, render: impl FnOnce() -> String) -> Result<(), Failure> {
    let Some(Sink { path, file }) = sink else { return Ok(()) };
    match file {
        None => print(&render()),
        Some(mut file) => file.write_all(render().as_bytes()).map_err(|error| failed(&path, &error)),
    }
}

impl Sink {
    /// Claims that it is standard output.
    pub(crate) fn is_stdout(&self) -> bool {
        self.file.is_none()
    }

    /// Makes the file.
    pub(crate) fn open(path: &Path) -> Result<Self, Failure> {
        let file = match path.as_os_str() == "-" {
            true => None,
            false => Some(File::create(path).map_err(|error| {
                Failure::Configuration(format!("{} cannot be written: {error}.", path.display()))
            })?),
        };
        Ok(Self { path: path.to_owned(), file })
    }
}

fn failed(path: &Path, error: &io::Error) -> Failure {
    Failure::Running(format!("{} cannot be written: {error}.", path.display()))
}

/// A reader that has gone (`millrace bench ... | head`) is no failure.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    match stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(failed(Path::new("standard output"), &error))
        }
        _ => Ok(()),
    }
}

/// Claims that a person looks at it who wants color (<https://no-color.org>).
pub(crate) fn has_color(stream: &impl IsTerminal) -> bool {
    stream.is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}
