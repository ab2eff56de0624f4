//! A certificate that nobody vouches for, for a first try: made once, and kept.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

use rcgen::{CertificateParams, DnType, KeyPair as GeneratedKey};

use super::acceptor::KeyPair;

/// The pair of a folder: the one that is kept there, or else a new one (P-256, valid for ten years and for
/// these names).
pub fn self_signed(folder: &Path, names: &[String]) -> io::Result<KeyPair> {
    let pair = KeyPair { certificate: folder.join("self-signed.pem"), key: folder.join("self-signed.key") };
    if pair.certificate.is_file() && pair.key.is_file() {
        return Ok(pair);
    }
    let (certificate, key) = generate(names).map_err(io::Error::other)?;
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    // The key first: a certificate is never there without it.
    write(&pair.key, &key, 0o600)?;
    write(&pair.certificate, &certificate, 0o644)?;
    Ok(pair)
}

fn generate(names: &[String]) -> Result<(String, String), rcgen::Error> {
    let mut params = CertificateParams::new(names)?;
    params.distinguished_name.remove(DnType::CommonName);
    params.distinguished_name.push(DnType::CommonName, "Millrace self-signed");
    let now = std::time::SystemTime::now();
    // A day of grace for clocks that go wrong.
    params.not_before = (now - std::time::Duration::from_secs(24 * 3600)).into();
    params.not_after = (now + std::time::Duration::from_secs(3650 * 24 * 3600)).into();
    let key = GeneratedKey::generate()?;
    let certificate = params.self_signed(&key)?;
    Ok((certificate.pem(), key.serialize_pem()))
}

/// Writes a file beside its name and then gives it the name: half a key is of no use to anybody.
fn write(path: &Path, text: &str, mode: u32) -> io::Result<()> {
    let staged = path.with_extension("new");
    let mut file: File =
        OpenOptions::new().write(true).create(true).truncate(true).mode(mode).open(&staged)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(staged, path)
}
