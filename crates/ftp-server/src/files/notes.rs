//! What lies in a directory for those who enter it: `.message`, and files that ask to be read.

use std::os::unix::fs::FileExt;

use millrace_vfs::Civil;
use millrace_vfs::{FileError, ReadHandle, Storage, VirtualPath, Wait};

/// The file whose lines are told.
const MESSAGE: &[u8] = b".message";
/// Files that are pointed at where they lie.
const README: &[&[u8]] = &[b"README", b"README.txt", b"README.md"];
/// The most bytes of a file in a reply.
const MOST: usize = 8 << 10;

/// The lines; none where there is nothing to be told.
pub(super) fn read(files: &dyn Storage, directory: &VirtualPath) -> Result<Vec<Vec<u8>>, FileError> {
    let mut lines = match message(files, directory) {
        Ok(text) => text.lines(),
        Err(FileError::NotFound | FileError::IsDirectory | FileError::PermissionDenied) => Vec::new(),
        Err(error) => return Err(error),
    };
    for name in README {
        let Ok(path) = directory.join(name) else { continue };
        let Ok(metadata) = files.metadata(&path, Wait::Allowed) else { continue };
        if metadata.is_file() {
            let time = Civil::from_seconds(metadata.modified.seconds);
            let changed = format!(
                ", last changed {:04}-{:02}-{:02} {:02}:{:02} UTC.",
                time.year, time.month, time.day, time.hour, time.minute
            );
            lines.push([b"Please read the file ", *name, changed.as_bytes()].concat());
        }
    }
    Ok(lines)
}

/// The beginning of a file.
struct Text(Vec<u8>);

impl Text {
    /// Its lines, without the last one where that was cut.
    fn lines(self) -> Vec<Vec<u8>> {
        let Self(text) = self;
        let whole = match text.len() {
            MOST => text.iter().rposition(|&byte| byte == b'\n').unwrap_or(MOST),
            length => length,
        };
        let text = text[..whole].strip_suffix(b"\n").unwrap_or(&text[..whole]);
        let bare = |line: &[u8]| line.strip_suffix(b"\r").unwrap_or(line).to_vec();
        if text.is_empty() { Vec::new() } else { text.split(|&byte| byte == b'\n').map(bare).collect() }
    }
}

fn message(files: &dyn Storage, directory: &VirtualPath) -> Result<Text, FileError> {
    let path = directory.join(MESSAGE).map_err(|_| FileError::NotFound)?;
    let mut handle = files.open_read(&path, Wait::Allowed)?;
    let (mut text, mut length) = (vec![0; MOST], 0);
    while length < MOST {
        let part = &mut text[length..];
        let count = match &mut handle {
            ReadHandle::File(range) => range.file.read_at(part, length as u64)?,
            ReadHandle::Stream(stream) => stream.read_at(length as u64, part)?,
        };
        if count == 0 {
            break;
        }
        length += count;
    }
    text.truncate(length);
    Ok(Text(text))
}
