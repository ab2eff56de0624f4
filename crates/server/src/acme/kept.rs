//! What is kept between starts: the account at the CA, and the certificate with its key.
//!
//! ```text
//!   acme/acme-v02.api.letsencrypt.org-directory/account.json
//!                                              /certificate.pem    the key, then the chain
//! ```
//!
//! The invariant: a name shows all of an old file or all of a new one, which is on the disk by then, and nobody but the
//! owner may read it. Key and certificate are one file, so they never belong to two orders.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use instant_acme::AccountCredentials;
use millrace_net::tls::{KeyPair, Standing, placeholder};

use super::settings::Acme;

impl Acme {
    /// The certificate, whether it is there or not: key and chain in one file.
    pub fn identity(&self) -> KeyPair {
        one_file(self.folder.join("certificate.pem"))
    }

    /// Sees to it that there is one that can be used: where none is kept, one that nobody vouches for.
    pub(crate) fn prepare(&self) -> io::Result<()> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.folder)?;
        if self.identity().standing(&[]).is_ok() {
            return Ok(());
        }
        let (certificate, key) = placeholder(&self.domains)?;
        replace(&self.identity().certificate, &[key, certificate].concat())
    }

    /// The certificate that is kept, if a CA has issued it for all of these names.
    pub(super) fn standing(&self) -> Option<Standing> {
        let standing = self.identity().standing(&self.domains).ok()?;
        (standing.covers && !standing.is_self_signed).then_some(standing)
    }

    /// Keeps a certificate in place of the other, if it is one that can be used.
    pub(super) fn keep_certificate(&self, chain: &str, key: &str) -> Result<Standing, String> {
        let path = self.identity().certificate;
        let failed = |error: io::Error| format!("{} cannot be written: {error}", path.display());
        let staged = stage(&path, &[key, chain].concat()).map_err(failed)?;
        let standing = one_file(staged.clone()).standing(&self.domains);
        let usable = match standing {
            Ok(standing) if standing.covers => Ok(standing),
            Ok(_) => Err("the certificate that came is not for these names".to_owned()),
            Err(error) => Err(format!("the certificate that came cannot be used: {error}")),
        };
        match usable {
            Ok(standing) => settle(&staged, &path).map(|()| standing).map_err(failed),
            Err(why) => {
                let _ = fs::remove_file(staged);
                Err(why)
            }
        }
    }

    /// The account, if there is one that can be read.
    pub(super) fn account(&self) -> Option<AccountCredentials> {
        serde_json::from_slice(&fs::read(self.account_path()).ok()?).ok()
    }

    pub(super) fn keep_account(&self, account: &AccountCredentials) -> io::Result<()> {
        replace(&self.account_path(), &serde_json::to_string(account)?)
    }

    /// The CA knows nothing of it.
    pub(super) fn forget_account(&self) {
        let _ = fs::remove_file(self.account_path());
    }

    fn account_path(&self) -> PathBuf {
        self.folder.join("account.json")
    }
}

fn one_file(path: PathBuf) -> KeyPair {
    KeyPair { key: path.clone(), certificate: path }
}

fn replace(path: &Path, text: &str) -> io::Result<()> {
    settle(&stage(path, text)?, path)
}

/// Writes beside a name.
fn stage(path: &Path, text: &str) -> io::Result<PathBuf> {
    let staged = path.with_extension(format!("new.{}", std::process::id()));
    // One that a killed process of this number has left may be another's to read.
    let _ = fs::remove_file(&staged);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&staged)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    Ok(staged)
}

/// Gives the name to what was written.
fn settle(staged: &Path, path: &Path) -> io::Result<()> {
    fs::rename(staged, path)?;
    path.parent().map_or(Ok(()), |folder| File::open(folder)?.sync_all())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair as Key};

    use super::*;

    struct Folder(PathBuf);

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn settings(test: &str, domain: &str) -> (Acme, Folder) {
        let folder = std::env::temp_dir().join(format!("millrace-acme-{test}-{}", std::process::id()));
        (Acme::new(vec![domain.to_owned()], folder.clone()), Folder(folder))
    }

    /// A chain for a name, and its key.
    fn issued(domain: &str) -> (String, String) {
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
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    #[test]
    fn what_is_made_for_the_time_being_is_none_of_the_cas() {
        let (settings, folder) = settings("placeholder", "a.example");
        settings.prepare().unwrap();
        let made = fs::read(settings.identity().certificate).unwrap();
        let standing = settings.identity().standing(&settings.domains).unwrap();
        assert!(standing.covers && standing.is_self_signed);
        assert_eq!(settings.standing(), None);
        settings.prepare().unwrap();
        assert_eq!(fs::read(settings.identity().certificate).unwrap(), made, "it is kept");
        fs::write(settings.identity().certificate, "garbage").unwrap();
        settings.prepare().unwrap();
        assert!(settings.identity().standing(&[]).is_ok(), "what cannot be used is made anew");
        assert_eq!(names(&folder.0), ["certificate.pem"]);
    }

    #[test]
    fn a_certificate_is_kept_for_its_owner_alone() {
        let (mut settings, folder) = settings("issued", "a.example");
        settings.prepare().unwrap();
        let (chain, key) = issued("a.example");
        let standing = settings.keep_certificate(&chain, &key).unwrap();
        assert_eq!(settings.standing(), Some(standing));
        let mode = fs::metadata(settings.identity().certificate).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(fs::metadata(&folder.0).unwrap().permissions().mode() & 0o777, 0o700);
        settings.prepare().unwrap();
        assert_eq!(settings.standing(), Some(standing), "a start leaves it there");
        settings.domains.push("b.example".to_owned());
        assert_eq!(settings.standing(), None, "it is not for all names");
    }

    #[test]
    fn what_cannot_be_used_does_not_take_the_place_of_the_old_one() {
        let (settings, folder) = settings("useless", "a.example");
        settings.prepare().unwrap();
        let (chain, key) = issued("a.example");
        let standing = settings.keep_certificate(&chain, &key).unwrap();
        let (of_other, key_of_other) = issued("b.example");
        for (chain, key, why) in [
            (&of_other, &key_of_other, "not for these names"),
            (&chain, &key_of_other, "does not belong to"),
            (&"nonsense".to_owned(), &key, "cannot be used"),
            (&String::new(), &key, "cannot be used"),
        ] {
            let error = settings.keep_certificate(chain, key).unwrap_err();
            assert!(error.contains(why), "{error}");
            assert_eq!(settings.standing(), Some(standing));
        }
        assert_eq!(names(&folder.0), ["certificate.pem"]);
    }
}
