//! The files that last between starts: the account at the CA, and the certificate with its key.
//!
//! ```text
//!   acme/acme-v02.api.letsencrypt.org-directory/account.json
//!                                              /certificate.pem    the key, then the chain
//! ```
//!
//! The invariant: a name shows all of an old file or all of a new one, which is on the disk by then, and only the owner
//! may read it. Key and certificate are one file, so they never belong to two orders. A file that cannot be read now
//! may be readable later, and an unusable one may hold the only copy of a key: neither is ever overwritten.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

#[cfg(feature = "client")]
use instant_acme::AccountCredentials;
#[cfg(feature = "client")]
use millrace_net::tls::CertificateInfo;
use millrace_net::tls::{KeyPair, LoadError, placeholder};
use thiserror::Error;

use super::calls::call;
use super::settings::Acme;

/// Why an issued certificate is not stored.
#[derive(Debug, Error)]
pub(super) enum KeepError {
    /// The file cannot be written.
    #[error("{} cannot be written: {source}", path.display())]
    Write { path: PathBuf, source: io::Error },
    /// It lacks some of the wanted names.
    #[error("the certificate that came is not for these names")]
    OtherNames,
    /// It cannot be loaded.
    #[error("the certificate that came cannot be used: {0}")]
    Unusable(LoadError),
}

/// Serialises writers: the temporary names beside a file are unique by process, not by thread.
static WRITING: Mutex<()> = Mutex::new(());

impl Acme {
    /// The certificate, whether it is there or not: key and chain in one file.
    pub fn identity(&self) -> KeyPair {
        one_file(self.folder.join("certificate.pem"))
    }

    /// Makes sure that a usable certificate exists: makes a self-signed one if none is stored. An unusable one is
    /// renamed, and the returned message says so. An unreadable one stays. Fails where this program was built without
    /// ACME: a self-signed certificate would never be replaced.
    pub fn prepare(&self) -> io::Result<Option<String>> {
        Self::built().map_err(|error| io::Error::new(io::ErrorKind::Unsupported, error))?;
        call(|| fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.folder))?;
        let path = self.identity().certificate;
        let warning = match self.identity().info(&[]) {
            Ok(_) => return Ok(None),
            Err(LoadError::Unread(_, error)) if error.kind() == io::ErrorKind::NotFound => None,
            Err(LoadError::Unread(_, error)) => {
                return Err(io::Error::new(error.kind(), format!("{}: {error}", path.display())));
            }
            Err(error) => Some(format!("ACME: {error}; it is kept as {}", set_aside(&path)?.display())),
        };
        let (certificate, key) = placeholder(&self.domains)?;
        replace(&path, &[key, certificate].concat())?;
        Ok(warning)
    }
}

#[cfg(feature = "client")]
impl Acme {
    /// The certificate that is kept, if a CA has issued it for all of these names; an error where that cannot be told now.
    pub(super) fn info(&self) -> Result<Option<CertificateInfo>, LoadError> {
        match self.identity().info(&self.domains) {
            Ok(info) => Ok((info.covers && !info.is_self_signed).then_some(info)),
            Err(LoadError::Unread(path, error)) if error.kind() != io::ErrorKind::NotFound => {
                Err(LoadError::Unread(path, error))
            }
            Err(_) => Ok(None),
        }
    }

    /// Replaces the stored certificate, if the new one can be used.
    pub(super) fn keep_certificate(&self, chain: &str, key: &str) -> Result<CertificateInfo, KeepError> {
        let path = self.identity().certificate;
        let failed = |source| KeepError::Write { path: path.clone(), source };
        let _alone = alone();
        let staged = stage(&path, &[key, chain].concat()).map_err(failed)?;
        let info = one_file(staged.clone()).info(&self.domains);
        let usable = match info {
            Ok(info) if info.covers => Ok(info),
            Ok(_) => Err(KeepError::OtherNames),
            Err(error) => Err(KeepError::Unusable(error)),
        };
        match usable {
            Ok(info) => settle_staged(&staged, &path).map(|()| info).map_err(failed),
            Err(why) => {
                let _ = call(|| fs::remove_file(staged));
                Err(why)
            }
        }
    }

    /// The account, if one is stored. An invalid one is renamed.
    pub(super) fn account(&self) -> io::Result<Option<AccountCredentials>> {
        let path = self.account_path();
        let text = match call(|| fs::read(&path)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            text => text?,
        };
        match serde_json::from_slice(&text) {
            Ok(account) => Ok(Some(account)),
            Err(_) => set_aside(&path).map(|_| None),
        }
    }

    pub(super) fn keep_account(&self, account: &AccountCredentials) -> io::Result<()> {
        replace(&self.account_path(), &serde_json::to_string(account)?)
    }

    /// The CA knows nothing of it.
    pub(super) fn forget_account(&self) {
        let _ = call(|| fs::remove_file(self.account_path()));
    }

    pub(super) fn account_path(&self) -> PathBuf {
        self.folder.join("account.json")
    }
}

fn one_file(path: PathBuf) -> KeyPair {
    KeyPair { key: path.clone(), certificate: path }
}

fn alone() -> impl Drop {
    WRITING.lock().unwrap_or_else(PoisonError::into_inner)
}

fn replace(path: &Path, text: &str) -> io::Result<()> {
    let _alone = alone();
    settle_staged(&stage(path, text)?, path)
}

/// Gives a file a name beside its own that nothing has, and answers it.
fn set_aside(path: &Path) -> io::Result<PathBuf> {
    let _alone = alone();
    let extension = path.extension().unwrap_or_default().to_string_lossy();
    let mut number = 1_u64;
    loop {
        let name = path.with_extension(format!("unusable-{number}.{extension}"));
        match call(|| fs::symlink_metadata(&name)) {
            Ok(_) => number += 1,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return settle(path, &name).map(|()| name);
            }
            Err(error) => return Err(error),
        }
    }
}

/// Writes beside a name. A failure leaves no file.
fn stage(path: &Path, text: &str) -> io::Result<PathBuf> {
    let staged = path.with_extension(format!("new.{}", std::process::id()));
    // A file left by a killed process of the same ID may be readable by others.
    let _ = call(|| fs::remove_file(&staged));
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600);
    let mut file = call(|| options.open(&staged))?;
    let written = call(|| file.write_all(text.as_bytes())).and_then(|()| call(|| file.sync_all()));
    written.map(|()| staged.clone()).inspect_err(|_| drop(call(|| fs::remove_file(&staged))))
}

/// Gives the name to what was staged. A failure leaves no second file.
fn settle_staged(staged: &Path, path: &Path) -> io::Result<()> {
    settle(staged, path).inspect_err(|_| drop(call(|| fs::remove_file(staged))))
}

/// Gives the name to what was written.
fn settle(staged: &Path, path: &Path) -> io::Result<()> {
    call(|| fs::rename(staged, path))?;
    let Some(folder) = path.parent() else { return Ok(()) };
    let names = call(|| File::open(folder))?;
    call(|| names.sync_all())
}

#[cfg(all(test, feature = "client"))]
mod fault_tests;

#[cfg(all(test, feature = "client"))]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair as Key};

    use super::*;

    pub(super) struct Folder(PathBuf);

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    pub(super) fn settings(test: &str, domain: &str) -> (Acme, Folder) {
        let folder = std::env::temp_dir().join(format!("millrace-acme-{test}-{}", std::process::id()));
        (Acme::new(vec![domain.to_owned()], folder.clone()), Folder(folder))
    }

    /// A chain for a name, and its key.
    pub(super) fn issued(domain: &str) -> (String, String) {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(rcgen::DnType::CommonName, "an authority");
        let authority = CertifiedIssuer::self_signed(params, Key::generate().unwrap()).unwrap();
        let params = CertificateParams::new([domain.to_owned()]).unwrap();
        let key = Key::generate().unwrap();
        let certificate = params.signed_by(&key, &authority).unwrap();
        (certificate.pem() + &authority.pem(), key.serialize_pem())
    }

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_self_signed_certificate_does_not_count_as_the_cas() {
        let (settings, folder) = settings("placeholder", "a.example");
        settings.prepare().unwrap();
        let made = fs::read(settings.identity().certificate).unwrap();
        let info = settings.identity().info(&settings.domains).unwrap();
        assert!(info.covers && info.is_self_signed);
        assert_eq!(settings.info().unwrap(), None);
        settings.prepare().unwrap();
        assert_eq!(fs::read(settings.identity().certificate).unwrap(), made, "it is kept");
        assert_eq!(names(&folder.0), ["certificate.pem"]);
    }

    #[test]
    fn unusable_files_are_renamed_and_kept() {
        let (settings, folder) = settings("aside", "a.example");
        assert_eq!(settings.prepare().unwrap(), None);
        for (round, text) in ["garbage", "", "more"].into_iter().enumerate() {
            fs::write(settings.identity().certificate, text).unwrap();
            fs::write(settings.account_path(), text).unwrap();
            let told = settings.prepare().unwrap().unwrap();
            assert!(settings.identity().info(&[]).is_ok() && settings.account().unwrap().is_none());
            let aside = |name: &str, kind: &str| format!("{name}.unusable-{}.{kind}", round + 1);
            assert!(told.contains(&aside("certificate", "pem")), "{told}");
            for name in [aside("certificate", "pem"), aside("account", "json")] {
                assert_eq!(fs::read_to_string(folder.0.join(name)).unwrap(), text);
            }
        }
    }

    /// A link to itself cannot be followed, not even by root; whatever else keeps a file from being read is like it.
    #[test]
    fn unreadable_files_are_left_alone() {
        let (settings, folder) = settings("unread", "a.example");
        settings.prepare().unwrap();
        let (chain, key) = issued("a.example");
        let info = settings.keep_certificate(&chain, &key).unwrap();
        let (name, good) = (settings.identity().certificate, folder.0.join("good"));
        fs::rename(&name, &good).unwrap();
        std::os::unix::fs::symlink("certificate.pem", &name).unwrap();
        std::os::unix::fs::symlink("account.json", settings.account_path()).unwrap();
        let before = names(&folder.0);
        let error = settings.prepare().unwrap_err().to_string();
        assert!(error.contains("certificate.pem"), "{error}");
        assert!(settings.info().is_err() && settings.account().is_err());
        assert_eq!(names(&folder.0), before);
        fs::rename(&good, &name).unwrap();
        settings.prepare().unwrap();
        assert_eq!(settings.info().unwrap(), Some(info));
    }

    #[test]
    fn a_certificate_is_kept_for_its_owner_alone() {
        let (mut settings, folder) = settings("issued", "a.example");
        settings.prepare().unwrap();
        let (chain, key) = issued("a.example");
        let info = settings.keep_certificate(&chain, &key).unwrap();
        assert_eq!(settings.info().unwrap(), Some(info));
        let mode = fs::metadata(settings.identity().certificate).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(fs::metadata(&folder.0).unwrap().permissions().mode() & 0o777, 0o700);
        settings.prepare().unwrap();
        assert_eq!(settings.info().unwrap(), Some(info), "a start leaves it there");
        settings.domains.push("b.example".to_owned());
        assert_eq!(settings.info().unwrap(), None, "it is not for all names");
    }

    #[test]
    fn an_unusable_certificate_does_not_replace_the_old_one() {
        let (settings, folder) = settings("useless", "a.example");
        settings.prepare().unwrap();
        let (chain, key) = issued("a.example");
        let info = settings.keep_certificate(&chain, &key).unwrap();
        let (of_other, key_of_other) = issued("b.example");
        for (chain, key, why) in [
            (&of_other, &key_of_other, "not for these names"),
            (&chain, &key_of_other, "does not belong to"),
            (&"nonsense".to_owned(), &key, "cannot be used"),
            (&String::new(), &key, "cannot be used"),
        ] {
            let error = settings.keep_certificate(chain, key).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
            assert_eq!(settings.info().unwrap(), Some(info));
        }
        assert_eq!(names(&folder.0), ["certificate.pem"]);
    }
}
