//! Records that go: made around plain bytes where these lie, or are read to.

use std::io::{self, IoSliceMut};

use ring::aead::{Aad, NONCE_LEN, Nonce};
use rustls::{AlertDescription, Error};

use super::{ALERT, APPLICATION_DATA, FATAL, Form, HEADER, PLAIN, Records, TAG, WARNING, additional};
use crate::Wire;
use crate::tls::unwritten::Unwritten;

/// How much of a file is encrypted at a time: 4 full records, one read and one write.
pub(super) const BATCH: usize = 4 * PLAIN;

/// Fills buffers with plaintext; returns how many bytes there were.
pub(in crate::tls) type Read<'a> = dyn FnMut(&mut [IoSliceMut<'_>]) -> io::Result<usize> + 'a;

impl Records {
    /// Puts the records of plain bytes into `out`, as large as they may be.
    pub(in crate::tls) fn seal(&mut self, plain: &[u8], out: &mut Wire) -> Result<(), Error> {
        plain.chunks(PLAIN).try_for_each(|part| {
            self.renew_keys(1, out)?;
            self.seal_one(APPLICATION_DATA, part, out)
        })
    }

    /// Sends close_notify.
    pub(in crate::tls) fn close(&mut self, out: &mut Wire) -> Result<(), Error> {
        self.seal_one(ALERT, &[WARNING, AlertDescription::CloseNotify.into()], out)
    }

    /// Has `read` put up to `most` plain bytes, and no more than [`BATCH`], where they are sealed: into the records of
    /// `out`. Answers how many there were.
    pub(in crate::tls) fn seal_from(
        &mut self,
        most: usize,
        read: &mut Read<'_>,
        out: &mut Wire,
    ) -> Result<usize, Unwritten> {
        let most = most.min(BATCH);
        let needed = most.div_ceil(PLAIN);
        self.renew_keys(needed, out).map_err(Unwritten::sealing)?;
        let (start, stride) = (self.start(), self.length(PLAIN));
        let room = &mut out.room(stride * needed)[..stride * needed];
        let mut left = most;
        let mut records = room.chunks_exact_mut(stride);
        let mut parts: [IoSliceMut<'_>; BATCH / PLAIN] = std::array::from_fn(|_| {
            let length = left.min(PLAIN);
            left -= length;
            // Fewer, where less is left.
            IoSliceMut::new(records.next().map_or(&mut [], |record| &mut record[start..start + length]))
        });
        let count = read(&mut parts).map_err(Unwritten::Source)?.min(most);
        let mut sealed = 0;
        for (record, at) in room.chunks_exact_mut(stride).zip((0..count).step_by(PLAIN)) {
            let length = (count - at).min(PLAIN);
            let whole = self.length(length);
            let record = &mut record[..whole];
            self.seal_within(APPLICATION_DATA, record, length).map_err(Unwritten::sealing)?;
            sealed += whole;
        }
        out.fill(sealed);
        Ok(count)
    }

    pub(super) fn seal_one(&mut self, kind: u8, plain: &[u8], out: &mut Wire) -> Result<(), Error> {
        let (start, most) = (self.start(), self.length(plain.len()));
        let room = &mut out.room(most)[..most];
        room[start..start + plain.len()].copy_from_slice(plain);
        self.seal_within(kind, room, plain.len())?;
        out.fill(most);
        Ok(())
    }

    /// Where the plain bytes of a record are.
    fn start(&self) -> usize {
        HEADER + self.form.explicit()
    }

    /// How long a record of this many plain bytes is.
    fn length(&self, plain: usize) -> usize {
        self.start() + plain + self.form.hidden() + TAG
    }

    /// Makes a record around `plain` bytes that are in their place.
    fn seal_within(&mut self, kind: u8, record: &mut [u8], plain: usize) -> Result<(), Error> {
        let (sequence, nonce) = self.writing.next()?;
        let (explicit, hidden) = (self.form.explicit(), self.form.hidden());
        let length = (record.len() - HEADER) as u16;
        let (header, rest) = record.split_at_mut(HEADER);
        let outer = if self.form == Form::Tls13 { APPLICATION_DATA } else { kind };
        header.copy_from_slice(&[outer, 3, 3, (length >> 8) as u8, length as u8]);
        let (before, rest) = rest.split_at_mut(explicit);
        before.copy_from_slice(&nonce[NONCE_LEN - explicit..]);
        let (content, place) = rest.split_at_mut(plain + hidden);
        content[plain..].fill(kind);
        let nonce = Nonce::assume_unique_for_key(nonce);
        let key = &self.writing.key;
        let tag = match self.form {
            Form::Tls13 => key.seal_in_place_separate_tag(nonce, Aad::from(&*header), content),
            Form::Tls12Gcm | Form::Tls12ChaCha => {
                let data = additional(sequence, kind, [3, 3], plain);
                key.seal_in_place_separate_tag(nonce, Aad::from(data), content)
            }
        };
        place.copy_from_slice(tag.map_err(|_| Error::EncryptError)?.as_ref());
        Ok(())
    }

    /// Sends an alert for an error, unless the peer has sent one.
    pub(super) fn alarm(&mut self, alert: AlertDescription, error: Error, out: &mut Wire) -> Error {
        if alert != AlertDescription::CloseNotify {
            // An error is on its way already.
            let _ = self.seal_one(ALERT, &[FATAL, alert.into()], out);
        }
        error
    }
}
