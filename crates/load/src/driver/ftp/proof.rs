//! Verifies an upload: by the server's hash where it has one, else by reading it back.
//!
//! A wrong hash does not tell the kind of error. So the file is then read back, too, and the report always
//! distinguishes truncated, doubled and crossed-over data.

use millrace_ftp::digest::{Algorithm, Hasher, algorithm_of_verb};

use super::blocking_session::BlockingSession;
use crate::driver::error::DriverError;
use crate::fault::Fault;
use crate::payload::{FileId, Flaw, Payload, READING_BACK};

/// The command that asks for a hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Means {
    /// `HASH` (draft-bryan-ftpext-hash) by this algorithm.
    Hash(Algorithm),
    /// A command that many servers have, without a specification.
    Verb(&'static str, Algorithm),
    ReadBack,
}

/// Algorithms that this client prefers of those that a server has: the safe ones first.
const PREFERRED: [Algorithm; 6] = [
    Algorithm::Sha256,
    Algorithm::Sha512,
    Algorithm::Blake3,
    Algorithm::Sha1,
    Algorithm::Md5,
    Algorithm::Crc32,
];
const VERBS: [&str; 6] = ["XSHA256", "XSHA512", "XSHA1", "XSHA", "XMD5", "XCRC"];

impl Means {
    /// The best that a server has, by its answer to `FEAT`.
    fn of(features: &str) -> Self {
        let words = |line: &str| -> Vec<String> {
            let separators = |letter: char| letter.is_ascii_whitespace() || letter == ';';
            line.split(separators).filter(|word| !word.is_empty()).map(str::to_ascii_uppercase).collect()
        };
        let lines: Vec<Vec<String>> = features.lines().map(words).collect();
        let line = |verb: &str| lines.iter().find(|words| words.first().is_some_and(|word| word == verb));
        // ` HASH SHA-256*;SHA-512;MD5`: the star follows the selected algorithm.
        let known = |word: &String| Algorithm::parse(word.trim_end_matches('*').as_bytes());
        let algorithms: Vec<_> = line("HASH").into_iter().flatten().skip(1).filter_map(known).collect();
        let hash = PREFERRED.into_iter().find(|algorithm| algorithms.contains(algorithm)).map(Self::Hash);
        let verb = || VERBS.into_iter().find(|verb| line(verb).is_some());
        let by_verb = || verb().and_then(|verb| Some(Self::Verb(verb, algorithm_of_verb(verb)?)));
        hash.or_else(by_verb).unwrap_or(Self::ReadBack)
    }

    fn name(self) -> String {
        match self {
            Self::Hash(algorithm) => format!("HASH {}", algorithm.name()),
            Self::Verb(verb, _) => verb.to_owned(),
            Self::ReadBack => READING_BACK.to_owned(),
        }
    }
}

/// An upload that the server has confirmed.
pub(super) struct Upload {
    pub(super) path: String,
    pub(super) content: FileId,
    pub(super) size: u64,
}

/// Verifies uploads, one after the other.
pub(super) struct Prover {
    means: Means,
    payload: Payload,
    chunk: Vec<u8>,
}

/// The result for an upload.
pub(super) enum Proof {
    /// The server's hash is the expected one.
    ByHash,
    /// It was read back, and is correct.
    ReadBack,
    /// Its content is wrong.
    Flawed(Flaw),
    /// Another error: a sentence without the name.
    Wrong(Fault, String),
}

impl Prover {
    /// Asks the server for its features.
    pub(super) fn new(session: &mut BlockingSession<'_>, payload: Payload) -> Result<Self, DriverError> {
        let features = match session.ask(b"FEAT", b"") {
            Err(DriverError::Refused { .. }) => String::new(),
            features => features?,
        };
        let mut means = Means::of(&features);
        if let Means::Hash(algorithm) = means
            && let Err(error) = session.command(b"OPTS", format!("HASH {}", algorithm.name()).as_bytes())
        {
            match error {
                DriverError::Refused { .. } => means = Means::ReadBack,
                error => return Err(error),
            }
        }
        Ok(Self { means, payload, chunk: vec![0; 64 * 1024] })
    }

    /// `HASH SHA-256`, `XCRC`, `reading back`.
    pub(super) fn means(&self) -> String {
        self.means.name()
    }

    /// Verifies one upload.
    pub(super) fn look(
        &mut self,
        session: &mut BlockingSession<'_>,
        upload: &Upload,
    ) -> Result<Proof, DriverError> {
        let hash = self.hash(session, upload)?;
        let (claims, expected) = match &hash {
            Some((said, expected)) if said.eq_ignore_ascii_case(expected) => return Ok(Proof::ByHash),
            Some((said, expected)) => (said.as_str(), expected.as_str()),
            None => ("", ""),
        };
        let checker = self.payload.checker(upload.content, upload.size);
        Ok(match session.check(&upload.path, checker) {
            // The confirmed upload is missing.
            Err(DriverError::Refused { reply, .. }) => {
                Proof::Wrong(Fault::DataLost, format!("was confirmed, and cannot be read back: {reply}"))
            }
            Err(error) => return Err(error),
            Ok(Err(flaw)) => Proof::Flawed(flaw),
            Ok(Ok(())) if hash.is_some() => {
                let why = format!("is right, and the server's hash of it is not: {claims} for {expected}");
                Proof::Wrong(Fault::Protocol, why)
            }
            Ok(Ok(())) => Proof::ReadBack,
        })
    }

    /// The server's hash of a file, and the expected one; `None` where it has none.
    fn hash(
        &mut self,
        session: &mut BlockingSession<'_>,
        upload: &Upload,
    ) -> Result<Option<(String, String)>, DriverError> {
        let (verb, algorithm) = match self.means {
            Means::Hash(algorithm) => ("HASH", algorithm),
            Means::Verb(verb, algorithm) => (verb, algorithm),
            Means::ReadBack => return Ok(None),
        };
        let said = match session.ask(verb.as_bytes(), upload.path.as_bytes()) {
            // It has the command, but not for this file.
            Err(DriverError::Refused { .. }) => return Ok(None),
            said => said?,
        };
        let expected = self.expected(algorithm, upload);
        // `213 SHA-256 0-49 <hash> name` or `250 <hash>`: some replies have more words, so the one with the right
        // length counts.
        let is_hash =
            |word: &&str| word.len() == expected.len() && word.bytes().all(|digit| digit.is_ascii_hexdigit());
        let said = said.split_ascii_whitespace().skip(1).find(is_hash).map(str::to_owned);
        Ok(said.map(|said| (said, expected)))
    }

    fn expected(&mut self, algorithm: Algorithm, upload: &Upload) -> String {
        let (mut hasher, mut offset) = (Hasher::new(algorithm), 0);
        while offset < upload.size {
            let count = (upload.size - offset).min(self.chunk.len() as u64) as usize;
            self.payload.fill(upload.content, offset, &mut self.chunk[..count]);
            hasher.update(&self.chunk[..count]);
            offset += count as u64;
        }
        hasher.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_hash_of_a_server_is_taken() {
        let millrace = "211-Features:\n HASH CRC32;MD5;SHA-1;SHA-256*;SHA-512;BLAKE3;\n XCRC\n211 End";
        assert_eq!(Means::of(millrace), Means::Hash(Algorithm::Sha256));
        let old = "211-Features:\n HASH MD5*;CRC32\n XSHA256\n211 End";
        assert_eq!(Means::of(old), Means::Hash(Algorithm::Md5));
        let serv_u = "211-Extension supported\n XCRC \"filename\" SP EP\n XSHA256\n211 End";
        assert_eq!(Means::of(serv_u), Means::Verb("XSHA256", Algorithm::Sha256));
        assert_eq!(Means::of(" xcrc filename;start;end"), Means::Verb("XCRC", Algorithm::Crc32));
        for without in ["", "500 What?", " HASH WHIRLPOOL*;", " MLST type*;size*;\n REST STREAM"] {
            assert_eq!(Means::of(without), Means::ReadBack, "{without}");
        }
    }
}
