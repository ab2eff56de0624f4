//! One direction of a connection: its key, and the nonces under it, each of which is given out once.

use ring::aead::{AES_128_GCM, AES_256_GCM, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, UnboundKey};
use rustls::{ConnectionTrafficSecrets, Error};

/// One direction: its key, and what its nonces are made of.
pub(super) struct Half {
    pub(super) key: LessSafeKey,
    iv: [u8; NONCE_LEN],
    sequence: u64,
}

impl Half {
    pub(super) fn new((sequence, secrets): (u64, ConnectionTrafficSecrets)) -> Result<Self, Error> {
        let (algorithm, key, iv) = match &secrets {
            ConnectionTrafficSecrets::Aes128Gcm { key, iv } => (&AES_128_GCM, key, iv),
            ConnectionTrafficSecrets::Aes256Gcm { key, iv } => (&AES_256_GCM, key, iv),
            ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv } => (&CHACHA20_POLY1305, key, iv),
            _ => return Err(unusable("cipher")),
        };
        let key = UnboundKey::new(algorithm, key.as_ref()).map_err(|_| unusable("key"))?;
        let iv = iv.as_ref().try_into().map_err(|_| unusable("initialization vector"))?;
        Ok(Self { key: LessSafeKey::new(key), iv, sequence })
    }

    /// How many records were encrypted or decrypted with this key.
    pub(super) fn used(&self) -> u64 {
        self.sequence
    }

    /// The sequence number of the next record, and its nonce.
    pub(super) fn next(&mut self) -> Result<(u64, [u8; NONCE_LEN]), Error> {
        let sequence = self.sequence;
        self.sequence = sequence.checked_add(1).ok_or(Error::EncryptError)?;
        let mut nonce = self.iv;
        for (byte, part) in nonce[NONCE_LEN - 8..].iter_mut().zip(sequence.to_be_bytes()) {
            *byte ^= part;
        }
        Ok((sequence, nonce))
    }
}

fn unusable(what: &str) -> Error {
    Error::General(format!("a {what} of an unknown kind"))
}
