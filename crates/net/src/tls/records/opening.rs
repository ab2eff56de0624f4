//! Decrypts received records in place, and handles those that are not application data.

use ring::aead::{Aad, NONCE_LEN, Nonce};
use rustls::{AlertDescription, Error, PeerMisbehaved};

use super::half::Half;
use super::{
    ALERT, APPLICATION_DATA, CHANGE_CIPHER_SPEC, EXPLICIT, Form, HANDSHAKE, HEADER, PLAIN, Records, TAG,
    WARNING, additional, general,
};
use crate::Wire;

/// How much longer a record may be than its plaintext: the type, padding, nonce and tag (RFC 5246, 6.2.3).
const EXPANSION: usize = 2048;

/// How many records or requests without a byte of content are borne one after the other, as rustls bears them.
pub(super) const PATIENCE: u8 = 32;

/// The result of decryption.
#[derive(Debug, Default, PartialEq, Eq)]
pub(in crate::tls) struct Opened {
    /// The number of plaintext bytes at the front.
    pub(in crate::tls) plain: usize,
    /// The number of wire bytes that were complete records.
    pub(in crate::tls) used: usize,
    /// The other side has said that nothing more will come.
    pub(in crate::tls) ended: bool,
}

/// A record that is no application data, and what it leads to.
enum Other {
    Nothing,
    Ended,
}

impl Records {
    /// Decrypts the complete records in `wire`, and moves the plaintext to its front. A response, if one is due, goes
    /// to `out`, as does the alert that belongs to an error. [`Opened::plain`] bytes of `opened` arrived before an
    /// error.
    pub(in crate::tls) fn open(
        &mut self,
        wire: &mut [u8],
        opened: &mut Opened,
        out: &mut Wire,
    ) -> Result<(), Error> {
        while !opened.ended
            && let Some(&header) = wire[opened.used..].first_chunk::<HEADER>()
        {
            let body = opened.used + HEADER;
            let length = usize::from(u16::from_be_bytes([header[3], header[4]]));
            if length > PLAIN + EXPANSION {
                return Err(self.alarm(
                    AlertDescription::RecordOverflow,
                    Error::PeerSentOversizedRecord,
                    out,
                ));
            }
            let Some(room) = wire.get_mut(opened.plain..body + length) else { break };
            let record = self.open_one(header, room, body - opened.plain);
            let (kind, count) = record.map_err(|(alert, error)| self.alarm(alert, error, out))?;
            opened.used = body + length;
            let plain = &wire[opened.plain..opened.plain + count];
            if kind == APPLICATION_DATA {
                opened.plain += count;
            }
            if kind == APPLICATION_DATA && count > 0 {
                self.idle = 0;
                continue;
            }
            self.idle += 1;
            let heard = match kind {
                _ if self.idle > PATIENCE => {
                    let error = Error::PeerMisbehaved(PeerMisbehaved::TooManyEmptyFragments);
                    Err((AlertDescription::UnexpectedMessage, error))
                }
                APPLICATION_DATA => Ok(Other::Nothing),
                ALERT => self.heed_alert(plain),
                HANDSHAKE if self.form == Form::Tls13 => self.heed_key_update(plain),
                HANDSHAKE => Err((AlertDescription::NoRenegotiation, general("a renegotiation is refused"))),
                _ => Err((AlertDescription::UnexpectedMessage, general("a record of an unexpected type"))),
            };
            match heard {
                Ok(Other::Nothing) => {}
                Ok(Other::Ended) => opened.ended = true,
                Err((alert, error)) => return Err(self.alarm(alert, error, out)),
            }
        }
        Ok(())
    }

    /// Opens one record, whose body is `room` from `at`, and moves what it says to the front; answers its type, and
    /// how long it is.
    fn open_one(
        &mut self,
        header: [u8; HEADER],
        room: &mut [u8],
        at: usize,
    ) -> Result<(u8, usize), (AlertDescription, Error)> {
        let bad = || (AlertDescription::BadRecordMac, Error::DecryptError);
        let (sequence, mut nonce) = self.reading.next().map_err(|_| bad())?;
        let explicit = self.form.explicit();
        let length = room.len() - at;
        let content = length.checked_sub(explicit + TAG).ok_or_else(bad)?;
        if explicit > 0 {
            nonce[NONCE_LEN - EXPLICIT..].copy_from_slice(&room[at..at + EXPLICIT]);
        }
        let nonce = Nonce::assume_unique_for_key(nonce);
        let from = at + explicit..;
        let key = &self.reading.key;
        let opened = match self.form {
            Form::Tls13 if header[0] != APPLICATION_DATA => {
                let what = if header[0] == CHANGE_CIPHER_SPEC {
                    "a late change of ciphers"
                } else {
                    "a plain record"
                };
                return Err((AlertDescription::UnexpectedMessage, general(what)));
            }
            Form::Tls13 => key.open_within(nonce, Aad::from(header), room, from),
            Form::Tls12Gcm | Form::Tls12ChaCha => {
                let data = additional(sequence, header[0], [header[1], header[2]], content);
                key.open_within(nonce, Aad::from(data), room, from)
            }
        };
        let opened = opened.map_err(|_| bad())?;
        let (kind, count) = match self.form {
            // The type is the last byte that is not padding.
            Form::Tls13 => match opened.iter().rposition(|&byte| byte != 0) {
                Some(last) => (opened[last], last),
                None => {
                    return Err((AlertDescription::UnexpectedMessage, general("a record without a type")));
                }
            },
            Form::Tls12Gcm | Form::Tls12ChaCha => (header[0], opened.len()),
        };
        match count {
            0..=PLAIN => Ok((kind, count)),
            _ => Err((AlertDescription::RecordOverflow, Error::PeerSentOversizedRecord)),
        }
    }

    fn heed_alert(&self, content: &[u8]) -> Result<Other, (AlertDescription, Error)> {
        let &[level, description] = content else {
            return Err((AlertDescription::DecodeError, general("an alert of a wrong length")));
        };
        match (AlertDescription::from(description), level) {
            (AlertDescription::CloseNotify, _) => Ok(Other::Ended),
            // Warnings went with TLS 1.2, all but this one.
            (AlertDescription::UserCanceled, WARNING) => Ok(Other::Nothing),
            (_, WARNING) if self.form != Form::Tls13 => Ok(Other::Nothing),
            (description, _) => Err((AlertDescription::CloseNotify, Error::AlertReceived(description))),
        }
    }

    /// New keys for what comes, and if they are asked for, for what goes (RFC 8446, section 4.6.3).
    fn heed_key_update(&mut self, content: &[u8]) -> Result<Other, (AlertDescription, Error)> {
        let failed = |error| (AlertDescription::InternalError, error);
        let &[24, 0, 0, 1, wanted @ (0 | 1)] = content else {
            let what = "a handshake message that is no key update";
            return Err((AlertDescription::UnexpectedMessage, general(what)));
        };
        self.owes_keys |= wanted == 1;
        self.reading = self.keys.update_rx_secret().and_then(Half::new).map_err(failed)?;
        Ok(Other::Nothing)
    }
}
