//! Test files: what they are called and what they contain.

use crate::payload::FileId;
use crate::plan::{Cell, Download, Names};
use crate::target::Target;

/// The test files of one cell.
#[derive(Debug, Clone, Copy)]
pub(super) struct Files<'a> {
    target: &'a Target,
    cell: &'a Cell,
}

impl<'a> Files<'a> {
    pub(super) fn new(target: &'a Target, cell: &'a Cell) -> Self {
        Self { target, cell }
    }

    /// The path of the `number`-th file to download.
    pub(super) fn download(&self, number: u32) -> String {
        if self.cell.settings.download == Download::Uploaded {
            return self.upload(number, 0);
        }
        let name = || format!("millrace-bench-{}-{number}", self.cell.size.unwrap_or(0));
        self.named(number).unwrap_or_else(|| self.target.file(&name()))
    }

    pub(super) fn download_id(number: u32) -> FileId {
        FileId::new(number)
    }

    /// The path of a user's upload.
    pub(super) fn upload(&self, user: u32, serial: u32) -> String {
        let user = if self.cell.settings.names == Names::One { 0 } else { user };
        let base =
            self.named(user).unwrap_or_else(|| self.target.file(&format!("millrace-bench-upload-{user}")));
        match self.cell.settings.names {
            Names::Same | Names::One => base,
            Names::Fresh => format!("{base}-{serial}"),
        }
    }

    pub(super) fn upload_id(user: u32, serial: u32) -> FileId {
        FileId::upload(user, serial)
    }

    /// The paths of all that a user uploaded.
    pub(super) fn uploads(self, user: u32, count: u32) -> impl Iterator<Item = String> + use<'a> {
        let names = match self.cell.settings.names {
            Names::Same | Names::One => count.min(1),
            Names::Fresh => count,
        };
        (0..names).map(move |serial| self.upload(user, serial))
    }

    /// The directory to list; empty for the session's own.
    pub(super) fn directory(&self, user: u32) -> String {
        self.named(user).unwrap_or_else(|| self.target.path.clone())
    }

    /// What `--file` says, for this number.
    fn named(&self, number: u32) -> Option<String> {
        let pattern = self.cell.settings.file.as_ref()?;
        Some(pattern.replacen("%d", &number.to_string(), 1))
    }
}
