//! When the CA would have a certificate renewed (ACME renewal information, ARI, RFC 9773): earlier than by its age where it
//! has to be taken back, or where many would come at one time.
//!
//! The invariant: advice is optional. Nothing waits for it, and without it renewal follows its own schedule.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use instant_acme::{Account, CertificateIdentifier, Error, HttpClient};
use tokio_rustls::rustls::pki_types::Der;

use super::directory::Directory;
use super::off_thread::elsewhere;
use super::settings::Acme;

/// How soon a CA is asked again whose answer was none, or which gives no advice; and the bounds of what it asks for itself
/// (section 4.3.2).
const AGAIN: Duration = Duration::from_secs(6 * 3600);
const SOONEST: Duration = Duration::from_secs(60);
const LATEST: Duration = Duration::from_secs(86_400);

/// The CA's advice about a certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Advice {
    /// From when until when it is to be renewed, if there was an answer.
    pub(super) window: Option<(SystemTime, SystemTime)>,
    /// When it is to be asked for again.
    pub(super) again: Duration,
    /// Where the reason can be read.
    pub(super) reason: Option<String>,
    /// The CA's identifier of the certificate.
    pub(super) certificate: Option<CertificateIdentifier<'static>>,
}

impl Advice {
    pub(super) fn none() -> Self {
        Self { window: None, again: AGAIN, reason: None, certificate: None }
    }
}

/// Asks about the certificate that is kept.
pub(super) async fn ask(settings: &Arc<Acme>, directory: Directory) -> Advice {
    answer(settings, directory).await.unwrap_or_else(|_| Advice::none())
}

async fn answer(settings: &Arc<Acme>, directory: Directory) -> Result<Advice, Error> {
    let own = Arc::clone(settings);
    // Without an account there is no certificate that this CA knows.
    let kept = elsewhere(move || Some((own.account().ok()??, identifier(&own)?))).await;
    let Some((account, certificate)) = kept else { return Ok(Advice::none()) };
    let http: Box<dyn HttpClient> = Box::new(directory);
    let account = Account::builder_with_http(http).from_credentials(account).await?;
    let (info, again) = account.renewal_info(&certificate).await?;
    let window = (info.suggested_window.start.into(), info.suggested_window.end.into());
    Ok(Advice {
        window: Some(window).filter(|(start, end)| start <= end),
        again: again.clamp(SOONEST, LATEST),
        reason: info.explanation_url,
        certificate: Some(certificate),
    })
}

/// How a CA knows the certificate that is kept (section 4.1).
fn identifier(settings: &Acme) -> Option<CertificateIdentifier<'static>> {
    let (authority, serial) = settings.identity().authority_and_serial()?;
    let identifier = CertificateIdentifier::new(Der::from_slice(&authority), Der::from_slice(&serial));
    Some(identifier.into_owned())
}
