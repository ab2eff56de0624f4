//! A self-signed certificate for first steps: generated once, and stored.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

use rcgen::{CertificateParams, DnType, KeyPair as GeneratedKey};

use super::calls::call;
use super::key_pair::KeyPair;

impl KeyPair {
    /// The pair that [`self_signed`] stores in a folder, whether or not it exists.
    pub fn self_signed(folder: &Path) -> Self {
        let folder = folder.join("self-signed");
        Self { certificate: folder.join("certificate.pem"), key: folder.join("key.pem") }
    }
}

/// The pair of a folder: the one that is kept there, or else a new one (P-256, valid for ten years and for
/// these names). Of several that are made at a time, one is kept: a folder gets its name whole, or not.
pub fn self_signed(folder: &Path, names: &[String]) -> io::Result<KeyPair> {
    let pair = KeyPair::self_signed(folder);
    if is_there(&pair)? {
        return Ok(pair);
    }
    let (certificate, key) = generate(names).map_err(io::Error::other)?;
    let staged = folder.join(format!("self-signed.{}", std::process::id()));
    let stored = stage(&staged, &certificate, &key)
        .and_then(|()| call(|| fs::rename(&staged, folder.join("self-signed"))));
    match stored {
        Ok(()) => Ok(pair),
        Err(error) => {
            let _ = call(|| fs::remove_dir_all(&staged));
            match is_there(&pair) {
                // Another process has stored one first.
                Ok(true) => Ok(pair),
                _ if error.kind() == io::ErrorKind::DirectoryNotEmpty => {
                    Err(incomplete(&folder.join("self-signed")))
                }
                _ => Err(error),
            }
        }
    }
}

/// The error of a folder that has something else than a pair: what is in it may be wanted, and so is not replaced.
fn incomplete(folder: &Path) -> io::Error {
    io::Error::other(format!(
        "{} has not both certificate.pem and key.pem; move it away, and a new pair is made",
        folder.display()
    ))
}

/// Returns whether both files are there; an error where that cannot be told.
fn is_there(pair: &KeyPair) -> io::Result<bool> {
    let is_file = |path: &Path| match call(|| fs::metadata(path)) {
        Ok(metadata) => Ok(metadata.is_file()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    };
    Ok(is_file(&pair.certificate)? && is_file(&pair.key)?)
}

/// Makes a folder with a certificate and its key.
fn stage(folder: &Path, certificate: &str, key: &str) -> io::Result<()> {
    call(|| fs::DirBuilder::new().recursive(true).mode(0o700).create(folder))?;
    write(&folder.join("key.pem"), key, 0o600)?;
    write(&folder.join("certificate.pem"), certificate, 0o644)?;
    // Else a power cut could leave the folder with one of them, beneath its last name.
    let names = call(|| File::open(folder))?;
    call(|| names.sync_all())
}

/// A certificate of the same kind and its key, in PEM, in this order: for as long as a better one is not there.
pub fn placeholder(names: &[String]) -> io::Result<(String, String)> {
    generate(names).map_err(io::Error::other)
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

fn write(path: &Path, text: &str, mode: u32) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(mode);
    let mut file: File = call(|| options.open(path))?;
    call(|| file.write_all(text.as_bytes()))?;
    call(|| file.sync_all())
}
