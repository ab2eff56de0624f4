//! The keys of the audit log and of syslog.

use std::path::PathBuf;

use millrace_server::config::{AuditSettings, KeyPair, SyslogError, SyslogSettings, Trust};
use millrace_terminal::Failure;

use super::places::Places;
use super::said::Said;
use super::slot::is_on;
use super::written::Written;

/// The audit log; its file can be written to now.
pub(super) fn audit_log(written: &Written, places: &Places<'_>) -> Result<Option<AuditSettings>, Failure> {
    let files = is_on(written.audit_files.clone(), false);
    match (&written.audit_log, &written.audit_files) {
        (Some(said), _) => Ok(Some(AuditSettings { path: absolute(said, places), files })),
        (None, Some(said)) if files => {
            let message = "there is no audit log; name its file with audit-log";
            Err(places.error(&said.place, "audit-files", message))
        }
        (None, _) => Ok(None),
    }
}

/// Where messages of syslog are sent.
pub(super) fn syslog(written: &Written, places: &Places<'_>) -> Result<Option<SyslogSettings>, Failure> {
    let events = is_on(written.syslog_events.clone(), false);
    let Some(said) = &written.syslog else {
        let files = [&written.syslog_ca, &written.syslog_cert, &written.syslog_key];
        let place = files.into_iter().flatten().map(|said| &said.place).next();
        let place = place.or(written.syslog_events.as_ref().filter(|_| events).map(|said| &said.place));
        return match place {
            None => Ok(None),
            Some(place) => {
                let message = "there is no collector that this could be about; name one with syslog";
                Err(places.error(place, "syslog", message))
            }
        };
    };
    if written.audit_log.is_none() && !events {
        let message = "nothing would be sent there: set audit-log, or syslog-events = true";
        return Err(places.error(&said.place, "syslog", message));
    }
    let authorities = written.syslog_ca.as_ref().map(|said| places.path(said));
    let trust = authorities.as_deref().map_or(Trust::Public, Trust::Authorities);
    let own = match (&written.syslog_cert, &written.syslog_key) {
        (None, None) => None,
        (Some(certificate), key) => {
            let certificate = places.path(certificate);
            let key = key.as_ref().map_or_else(|| certificate.clone(), |said| places.path(said));
            Some(KeyPair { certificate, key })
        }
        (None, Some(key)) => {
            let message = "a key needs its certificate; name it with syslog-cert";
            return Err(places.error(&key.place, "syslog-key", message));
        }
    };
    SyslogSettings::new(&said.value, trust, own.as_ref(), events).map(Some).map_err(|error| {
        let file = match &error {
            SyslogError::Tls(error) => error.file(),
            SyslogError::Address(_) => None,
        };
        let keys = [
            ("syslog-ca", &written.syslog_ca),
            ("syslog-cert", &written.syslog_cert),
            ("syslog-key", &written.syslog_key),
        ];
        let named = keys.into_iter().find_map(|(key, said)| {
            let said = said.as_ref().filter(|said| file == Some(&*places.path(said)))?;
            Some((key, &said.place))
        });
        let (key, place) = named.unwrap_or(("syslog", &said.place));
        places.error(place, key, &error.to_string())
    })
}

/// A file that another program finds by this name from wherever it is run.
fn absolute(said: &Said<PathBuf>, places: &Places<'_>) -> PathBuf {
    let path = places.path(said);
    std::path::absolute(&path).unwrap_or(path)
}
