//! Digests of representations (RFC 9530): which one a client wants, and how it is written.
//!
//! Only those that are good for something are known: the older ones of the registry are said to be insecure.

use crate::base64;
use crate::request::{Field, Head};

/// An algorithm of the registry (RFC 9530 section 7.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Algorithm {
    Sha256,
    Sha512,
}

impl Algorithm {
    const ALL: [Self; 2] = [Self::Sha256, Self::Sha512];

    /// As fields name it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sha256 => "sha-256",
            Self::Sha512 => "sha-512",
        }
    }
}

/// The algorithm that a client would rather have, of `Want-Repr-Digest: sha-512=3, sha-256=10`; `None` for none that is
/// known here. 0 says that it is not wanted, and of equals the first one known here is taken.
pub fn wanted(head: &Head) -> Option<Algorithm> {
    head.get(Field::WantReprDigest)?;
    let preference = |algorithm: Algorithm| {
        let members = head.all(Field::WantReprDigest).flat_map(|line| line.split(|&byte| byte == b','));
        // The last one of a name counts (RFC 8941 section 4.2.2).
        let said = members.filter_map(|member| {
            let (name, value) = member.trim_ascii().split_at_checked(algorithm.name().len())?;
            let value = value.strip_prefix(b"=")?;
            let value = value.split(|&byte| byte == b';').next()?;
            (name == algorithm.name().as_bytes()).then_some(value)
        });
        match said.last() {
            Some(b"10") => 10,
            Some([digit @ b'1'..=b'9']) => digit - b'0',
            _ => 0,
        }
    };
    let mut best = None;
    for algorithm in Algorithm::ALL {
        let preference = preference(algorithm);
        if preference > best.map_or(0, |(_, best)| best) {
            best = Some((algorithm, preference));
        }
    }
    best.map(|(algorithm, _)| algorithm)
}

/// The line that says a digest.
pub fn line(algorithm: Algorithm, digest: &[u8]) -> String {
    let mut line = format!("Repr-Digest: {}=:", algorithm.name());
    line.push_str(&base64::encode(digest));
    line.push_str(":\r\n");
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_of_what_is_wanted_is_found() {
        for (field, expected) in [
            ("X: y", None),
            ("Want-Repr-Digest: sha-256=1", Some(Algorithm::Sha256)),
            ("Want-Repr-Digest: sha-512=3, sha-256=10, unixsum=0", Some(Algorithm::Sha256)),
            ("Want-Repr-Digest: sha-512=10,sha-256=3", Some(Algorithm::Sha512)),
            ("Want-Repr-Digest: sha-512=2\r\nWant-Repr-Digest: sha-256=1", Some(Algorithm::Sha512)),
            ("Want-Repr-Digest: sha-256=5, sha-512=5", Some(Algorithm::Sha256)),
            ("Want-Repr-Digest: sha-256=0", None),
            ("Want-Repr-Digest: sha-256=11", None),
            ("Want-Repr-Digest: sha-256=-1", None),
            ("Want-Repr-Digest: sha-256", None),
            ("Want-Repr-Digest: sha-256=3;a=b", Some(Algorithm::Sha256)),
            ("Want-Repr-Digest: sha-256=3, sha-256=0", None),
            ("Want-Repr-Digest: md5=10", None),
            ("Want-Repr-Digest: sha-256x=10", None),
        ] {
            let text = format!("GET / HTTP/1.1\r\nHost: h\r\n{field}\r\n\r\n");
            let (head, _) = crate::request::parse(text.as_bytes()).unwrap().unwrap();
            assert_eq!(wanted(&head), expected, "{field}");
        }
    }
}
