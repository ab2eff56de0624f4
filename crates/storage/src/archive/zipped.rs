//! zip, written without going back: lengths and checksums follow each file.

use std::fmt;
use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};

use millrace_vfs::{Civil, Metadata, Timestamp};
use zip::write::{SimpleFileOptions, StreamWriter};
use zip::{CompressionMethod, DateTime, ZipWriter};

use super::pack::{Form, Item};

/// Files from this size on get the longer fields of zip64, in bytes.
const LARGE: u64 = 1 << 31;

/// A zip file in the making.
pub(super) struct Zipped {
    /// Nothing once it is finished.
    writer: Option<ZipWriter<StreamWriter<Shared>>>,
    made: Shared,
}

/// A buffer that the writer fills and the packer empties.
#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Vec<u8>>>);

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl fmt::Debug for Zipped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Zipped")
    }
}

impl Zipped {
    pub(super) fn new() -> Self {
        let made = Shared::default();
        Self { writer: Some(ZipWriter::new_stream(made.clone())), made }
    }

    fn writer(&mut self) -> io::Result<&mut ZipWriter<StreamWriter<Shared>>> {
        self.writer.as_mut().ok_or_else(|| io::Error::other("the archive is finished"))
    }
}

fn options(metadata: &Metadata) -> SimpleFileOptions {
    SimpleFileOptions::default()
        .compression_method(CompressionMethod::Deflated)
        .unix_permissions(metadata.mode & 0o777)
        .large_file(metadata.size >= LARGE)
        .last_modified_time(time(metadata.modified))
}

/// A time in UTC, as zip has it: from 1980 on, every other second.
fn time(timestamp: Timestamp) -> DateTime {
    let Civil { year, month, day, hour, minute, second } = Civil::from_seconds(timestamp.seconds);
    DateTime::from_date_and_time(year, month, day, hour, minute, second).unwrap_or_default()
}

impl Form for Zipped {
    fn directory(&mut self, item: &Item<'_>) -> io::Result<()> {
        let name = String::from_utf8_lossy(item.name).into_owned();
        self.writer()?.add_directory(name, options(&item.entry.metadata))?;
        Ok(())
    }

    fn link(&mut self, _: &Item<'_>, _: &[u8]) -> io::Result<()> {
        Ok(())
    }

    fn begin_file(&mut self, item: &Item<'_>) -> io::Result<()> {
        let name = String::from_utf8_lossy(item.name).into_owned();
        self.writer()?.start_file(name, options(&item.entry.metadata))?;
        Ok(())
    }

    fn data(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.writer()?.write_all(bytes)
    }

    fn end_file(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn finish(&mut self) -> io::Result<()> {
        if let Some(writer) = self.writer.take() {
            writer.finish()?;
        }
        Ok(())
    }

    fn take(&mut self, out: &mut Vec<u8>) {
        out.append(&mut self.made.0.lock().unwrap_or_else(PoisonError::into_inner));
    }

    fn has_links(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_zip_are_its_first() {
        assert_eq!(time(Timestamp::default()), DateTime::default());
    }
}
