//! zip, written without going back: lengths and checksums follow each file.

use std::fmt;
use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};

use millrace_vfs::{Metadata, Timestamp};
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
    let (days, second) = (timestamp.seconds.div_euclid(86_400), timestamp.seconds.rem_euclid(86_400) as u32);
    let (year, month, day) = civil(days);
    let clock = ((second / 3600) as u8, (second / 60 % 60) as u8, (second % 60) as u8);
    u16::try_from(year)
        .ok()
        .and_then(|year| DateTime::from_date_and_time(year, month, day, clock.0, clock.1, clock.2).ok())
        .unwrap_or_default()
}

/// The date of a day counted from 1970-01-01 (Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms").
fn civil(days: i64) -> (i64, u8, u8) {
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year + year / 4 - year / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = (day_of_year - (153 * shifted_month + 2) / 5 + 1) as u8;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    (year + era * 400 + i64::from(month <= 2), month as u8, day)
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
    fn days_are_dates() {
        for (days, date) in
            [(0, (1970, 1, 1)), (11_016, (2000, 2, 29)), (19_782, (2024, 2, 29)), (-1, (1969, 12, 31))]
        {
            assert_eq!(civil(days), date);
        }
    }

    #[test]
    fn times_before_zip_are_its_first() {
        assert_eq!(time(Timestamp::default()), DateTime::default());
    }
}
