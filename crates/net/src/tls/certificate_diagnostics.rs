//! Warnings about usable certificates and lists: they have expired or soon will, or a chain is out of order.
//!
//! Files are looked at when they are put in force; what time has to do with them can then be asked at any time.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rustls::pki_types::CertificateDer;

use super::acceptor::{Clients, Plan};
use super::certificate_info::{self, CertificateInfo};
use super::identity;

/// A certificate whose time is over so soon is worth a warning.
const SOON: Duration = Duration::from_secs(7 * DAY);

const DAY: u64 = 86_400;

/// The problems to expect with the files of a [`Plan`].
#[derive(Debug, Clone, Default)]
pub struct CertificateDiagnostics {
    certificates: Vec<(PathBuf, CertificateInfo)>,
    /// Files of lists of what was taken back, with the earliest time at which a list was to be replaced.
    lists: Vec<(PathBuf, SystemTime)>,
    /// Problems that do not depend on the time.
    always: Vec<String>,
}

impl Plan {
    /// Looks at the files; those that cannot be read are not spoken of.
    pub fn outlook(&self) -> CertificateDiagnostics {
        let mut diagnostics = CertificateDiagnostics::default();
        for pair in &self.identities {
            let file = &pair.certificate;
            diagnostics.certificates.extend(pair.info(&[]).ok().map(|info| (file.clone(), info)));
            let chain = identity::certificates(file).unwrap_or_default();
            diagnostics.always.extend(disorder(file, &chain));
        }
        if let Clients::Accept(authorities) | Clients::Require(authorities) = &self.clients {
            let until = |file: &Path| {
                let lists = identity::revocations(file).unwrap_or_default();
                lists.iter().filter_map(|list| certificate_info::next_update(list)).min()
            };
            let dated = |file: &PathBuf| Some((file.clone(), until(file)?));
            diagnostics.lists = authorities.revoked.iter().filter_map(dated).collect();
        }
        diagnostics
    }
}

impl CertificateDiagnostics {
    /// Returns when each certificate expires, by its file.
    pub fn expiries(&self) -> Vec<(PathBuf, SystemTime)> {
        self.certificates.iter().map(|(file, info)| (file.clone(), info.until)).collect()
    }

    /// Sentences for an administrator.
    pub fn doubts(&self, now: SystemTime) -> Vec<String> {
        let certificates = self.certificates.iter().filter_map(|(file, info)| {
            let file = file.display();
            match () {
                () if info.until <= now => Some(format!(
                    "TLS: the certificate in {file} has expired, and clients refuse it: put a new one in its place, \
                     which is read within seconds"
                )),
                () if info.from > now => Some(format!("TLS: the certificate in {file} is not good yet")),
                () if info.until < now + SOON => {
                    let days = days(info.until.duration_since(now));
                    Some(format!("TLS: the certificate in {file} expires in {days}"))
                }
                () => None,
            }
        });
        let lists = self.lists.iter().filter(|(_, until)| *until <= now).map(|(file, until)| {
            format!(
                "TLS: the revocation list in {} was to be replaced {} ago (nextUpdate): it holds as it is, and \
                 clients whose certificates were taken back since are let in; fetch the CA's new one",
                file.display(),
                days(now.duration_since(*until))
            )
        });
        certificates.chain(lists).chain(self.always.iter().cloned()).collect()
    }
}

fn days<E>(time: Result<Duration, E>) -> String {
    match time.map_or(0, |time| time.as_secs() / DAY) {
        1 => "1 day".to_owned(),
        days => format!("{days} days"),
    }
}

/// Returns a warning if a certificate is not followed by its issuer, though the file has it (RFC 8446 section 4.4.2).
/// Some clients sort a chain, others fail.
fn disorder(file: &Path, chain: &[CertificateDer<'_>]) -> Option<String> {
    let names: Vec<_> =
        chain.iter().map(|certificate| certificate_info::names(certificate)).collect::<Option<_>>()?;
    names.iter().enumerate().find_map(|(at, (issuer, subject))| {
        if issuer == subject {
            return None;
        }
        let found = names.iter().position(|(_, subject)| subject == issuer)?;
        (found != at + 1).then(|| {
            format!(
                "TLS: the chain in {} is out of order, and some clients will not find their way: number {} in it has \
                 issued number {}, and has to follow it",
                file.display(),
                found + 1,
                at + 1
            )
        })
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use rcgen::{
        BasicConstraints, CertificateParams, CertificateRevocationListParams, CertifiedIssuer, DnType, IsCa,
        KeyIdMethod, KeyPair as Key, KeyUsagePurpose, SerialNumber, date_time_ymd,
    };

    use super::super::tests::Folder;
    use super::super::{Authorities, KeyPair};
    use super::*;

    type Issuer = CertifiedIssuer<'static, Key>;

    fn authority(name: &str, above: Option<&Issuer>) -> Issuer {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params.distinguished_name.push(DnType::CommonName, name);
        let key = Key::generate().unwrap();
        match above {
            None => CertifiedIssuer::self_signed(params, key).unwrap(),
            Some(above) => CertifiedIssuer::signed_by(params, key, above).unwrap(),
        }
    }

    #[test]
    fn a_chain_out_of_order_is_told_of() {
        let folder = Folder::new();
        fs::create_dir_all(&folder.0).unwrap();
        let root = authority("root", None);
        let upper = authority("upper", Some(&root));
        let lower = authority("lower", Some(&upper));
        let key = Key::generate().unwrap();
        let own = CertificateParams::new(["localhost".to_owned()]).unwrap().signed_by(&key, &lower).unwrap();
        let own = own.pem();
        let (root, upper, lower) = (root.pem(), upper.pem(), lower.pem());
        let pair = KeyPair { certificate: folder.0.join("chain.pem"), key: folder.0.join("own.key") };
        fs::write(&pair.key, key.serialize_pem()).unwrap();
        for (chain, expected) in [
            (vec![&own], None),
            (vec![&own, &lower, &upper], None),
            (vec![&own, &lower, &upper, &root], None),
            (vec![&own, &lower], None),
            (vec![&own, &upper, &lower], Some("number 3 in it has issued number 1")),
            (vec![&own, &lower, &root, &upper], Some("number 4 in it has issued number 2")),
        ] {
            let chain: String = chain.into_iter().map(String::as_str).collect();
            fs::write(&pair.certificate, chain).unwrap();
            let plan = Plan { identities: vec![pair.clone()], ..Plan::default() };
            plan.check().unwrap();
            let doubts = plan.outlook().doubts(SystemTime::now());
            match expected {
                None => assert!(doubts.is_empty(), "{doubts:?}"),
                Some(words) => assert!(doubts.len() == 1 && doubts[0].contains(words), "{doubts:?}"),
            }
        }
    }

    #[test]
    fn a_list_that_was_to_be_replaced_is_told_of_from_then_on() {
        let folder = Folder::new();
        fs::create_dir_all(&folder.0).unwrap();
        let authority = authority("root", None);
        let list = |year| {
            let list = CertificateRevocationListParams {
                this_update: date_time_ymd(2020, 1, 1),
                next_update: date_time_ymd(year, 1, 1),
                crl_number: SerialNumber::from(1),
                issuing_distribution_point: None,
                revoked_certs: Vec::new(),
                key_identifier_method: KeyIdMethod::Sha256,
            };
            list.signed_by(&authority).unwrap().pem().unwrap()
        };
        let (ca, crl) = (folder.0.join("ca.pem"), folder.0.join("crl.pem"));
        fs::write(&ca, authority.pem()).unwrap();
        // The name of the older one is printed, whatever their order.
        fs::write(&crl, list(2060) + &list(2030)).unwrap();
        let authorities = Authorities { certificates: ca, revoked: vec![crl, folder.0.join("missing.pem")] };
        let plan = Plan { clients: Clients::Require(authorities), ..Plan::default() };
        let diagnostics = plan.outlook();
        let until = SystemTime::UNIX_EPOCH + Duration::from_secs(DAY * 21_915);
        assert!(diagnostics.doubts(until - Duration::from_secs(1)).is_empty());
        for (now, words) in [(until, "0 days ago"), (until + SOON, "7 days ago")] {
            let doubts = diagnostics.doubts(now);
            assert!(doubts.len() == 1 && doubts[0].contains("crl.pem was to be replaced"), "{doubts:?}");
            assert!(doubts[0].contains(words), "{doubts:?}");
        }
    }
}
