//! The renewal: what is to be done next, done at its time, and told to the operator.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use instant_acme::CertificateIdentifier;
use millrace_net::tls::CertificateInfo;
use ring::rand::{SecureRandom, SystemRandom};

use super::Host;
use super::advice::{self, Advice};
use super::directory::Directory;
use super::off_thread::elsewhere;
use super::order::{Issued, Order, Trouble};
use super::schedule::Schedule;
use super::settings::Acme;

/// How late a due renewal may be noticed, also after a change of the clock.
const LOOK: Duration = Duration::from_secs(1);

/// How soon a file is looked at again that could not be read.
const AGAIN: Duration = Duration::from_secs(10);

/// Keeps a good certificate on the disk, and in force, for as long as it is polled. To be run on a tokio runtime.
pub async fn renew<H: Host>(host: Arc<H>) {
    let mut settings = host.renewal().settings.subscribe();
    loop {
        let now = settings.borrow_and_update().clone();
        tokio::select! {
            () = keep(&host, now) => {}
            changed = settings.changed() => if changed.is_err() { return },
        }
    }
}

/// Keeps a valid certificate, as long as these settings apply.
async fn keep<H: Host>(host: &Arc<H>, settings: Option<Arc<Acme>>) {
    let Some(settings) = settings else { return std::future::pending().await };
    let (mut schedule, mut info) = (Schedule::default(), kept(host, &settings).await);
    // The CA's identifier of the certificate, if the CA uses one.
    let mut known = None;
    loop {
        let now = settings.clock.now();
        if let Some(held) = &info
            && schedule.wants_advice(held, now)
        {
            let advice = advise(&settings).await;
            schedule.advised(held, &advice, settings.clock.now(), luck());
            if schedule.is_early(held, settings.clock.now()) {
                host.warn(&hurried(&settings, &advice));
            }
            known = advice.certificate.or(known);
            continue;
        }
        if !schedule.is_due(info.as_ref(), now) {
            tokio::select! {
                () = tokio::time::sleep(LOOK) => {}
                () = host.renewal().again.notified() => {
                    (info, known) = (kept(host, &settings).await, None);
                }
            }
            continue;
        }
        match fetch(&**host, &settings, known.clone()).await {
            Ok(issued) => {
                schedule.succeeded(settings.clock.now());
                (info, known) = (Some(issued), None);
                host.warn(&arrived(&settings, &issued));
                take_over(host).await;
            }
            Err(trouble) => {
                let pause = schedule.failed(&trouble, settings.clock.now(), luck());
                host.warn(&missed(&settings, &trouble, pause, info.as_ref()));
            }
        }
    }
}

/// The stored certificate, if the CA issued it for these names. While that cannot be determined, nothing is ordered.
async fn kept<H: Host>(host: &Arc<H>, settings: &Arc<Acme>) -> Option<CertificateInfo> {
    let mut is_told = false;
    loop {
        let settings = Arc::clone(settings);
        match elsewhere(move || settings.info()).await {
            Ok(info) => return info,
            Err(error) if !is_told => {
                host.warn(&format!("ACME: {error}; nothing is ordered before it can be read"));
                is_told = true;
            }
            Err(_) => {}
        }
        tokio::time::sleep(AGAIN).await;
    }
}

/// When the CA would have the certificate renewed.
async fn advise(settings: &Arc<Acme>) -> Advice {
    let own = Arc::clone(settings);
    match elsewhere(move || Directory::new(&own)).await {
        Ok(directory) => advice::ask(settings, directory).await,
        Err(_) => Advice::none(),
    }
}

/// One order, to its end; the certificate is on the disk then. It takes the place of one that the CA may know.
async fn fetch<H: Host>(
    host: &H,
    settings: &Arc<Acme>,
    replaces: Option<CertificateIdentifier<'static>>,
) -> Result<CertificateInfo, Trouble> {
    let acceptor = host.acceptor().ok_or_else(|| Trouble::of("there is no TLS"))?;
    let own = Arc::clone(settings);
    let directory = elsewhere(move || Directory::new(&own)).await.map_err(Trouble::of)?;
    let order = Order { settings, directory, tokens: &host.renewal().tokens, acceptor, replaces };
    let Issued { chain, key } = order.fulfil().await?;
    let own = Arc::clone(settings);
    elsewhere(move || own.keep_certificate(&chain, &key)).await.map_err(Trouble::of)
}

/// New connections use the certificate, as if its file had been replaced by hand.
async fn take_over<H: Host>(host: &Arc<H>) {
    let own = Arc::clone(host);
    if let Err(error) = elsewhere(move || own.reload_certificates()).await {
        host.warn(&format!("the old certificates stay in force: {error}"));
    }
}

fn arrived(settings: &Acme, issued: &CertificateInfo) -> String {
    let Acme { directory, .. } = settings;
    format!(
        "ACME: {directory} has issued a certificate for {}, good until {}",
        names(settings),
        date(issued.until)
    )
}

fn hurried(settings: &Acme, advice: &Advice) -> String {
    let reason = advice.reason.as_ref().map(|url| format!("; it says why at {}", Trouble::of(url)));
    format!(
        "ACME: {} wants the certificate for {} renewed before its time{}",
        settings.directory,
        names(settings),
        reason.unwrap_or_default()
    )
}

fn missed(settings: &Acme, trouble: &Trouble, pause: Duration, info: Option<&CertificateInfo>) -> String {
    let meanwhile = match info {
        Some(info) => format!("the old one, which is good until {}", date(info.until)),
        None => "a self-signed one".to_owned(),
    };
    format!(
        "ACME: {} has issued no certificate for {}: {trouble}; the next try is in {} min, and clients get {meanwhile}",
        settings.directory,
        names(settings),
        in_minutes(pause)
    )
}

/// A minute and some seconds of luck are a minute.
pub(super) fn in_minutes(pause: Duration) -> u64 {
    (pause.as_secs().saturating_add(30) / 60).max(1)
}

fn names(settings: &Acme) -> String {
    settings.domains.join(", ")
}

fn date(time: SystemTime) -> String {
    let seconds = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
    let mut out = Vec::new();
    millrace_http::date::write(i64::try_from(seconds).unwrap_or(i64::MAX), &mut out);
    String::from_utf8_lossy(&out).into_owned()
}

/// A number from 0 to 1, so that servers that failed together do not come back together.
fn luck() -> f64 {
    let mut bytes = [0; 4];
    // Without jitter the pauses of all servers would be equal.
    let _ = SystemRandom::new().fill(&mut bytes);
    f64::from(u32::from_be_bytes(bytes)) / f64::from(u32::MAX)
}
