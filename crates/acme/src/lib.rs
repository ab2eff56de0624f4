//! Certificates that the server fetches and renews itself (ACME, RFC 8555).
//!
//! ```text
//!   certificate.pem --is it due?--> an order --the CA asks at our doors--> certificate.pem, written anew
//! ```
//!
//! - `settings.rs` is the configuration, `kept.rs` the stored files.
//! - `advice.rs` asks when the CA would have a certificate renewed; `schedule.rs` says when something is to be done: pure, and told what time it is.
//! - `order.rs` has one order, from the account to the certificate; `directory.rs` is how the CA is talked to.
//! - `challenges.rs` answers the CA when it connects to validate a name.
//!
//! The invariant: nothing else waits for the CA. The server starts with the stored certificate, or with a self-signed
//! one; everything else runs on the side runtime, and disk access on its blocking threads. Configuring the same again
//! changes nothing: a running order or pause goes on. A new certificate replaces the old one atomically on the disk.
//! New connections then use it as after a reload of certificate files; existing sessions keep theirs.

mod advice;
mod challenges;
mod directory;
mod kept;
mod order;
mod schedule;
mod settings;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use instant_acme::CertificateIdentifier;
use millrace_net::tls::{Acceptor, CertificateInfo, LoadError};
use ring::rand::{SecureRandom, SystemRandom};
use tokio::sync::{Notify, watch};

use advice::Advice;
pub use challenges::{Shown, Tokens};
use directory::Directory;
use order::{Issued, Order, Trouble};
use schedule::Schedule;
pub use settings::{Acme, Challenge, ChallengeError, Clock, LETS_ENCRYPT};

/// How late a due renewal may be noticed, also after a change of the clock.
const LOOK: Duration = Duration::from_secs(1);

/// How soon a file is looked at again that could not be read.
const AGAIN: Duration = Duration::from_secs(10);

/// What the renewal of certificates needs of its server.
pub trait Host: Send + Sync + 'static {
    /// Returns the state of the renewal, which lives as long as the server.
    fn renewal(&self) -> &Renewal;

    /// Returns what answers connections of TLS; `None` where there is no TLS.
    fn acceptor(&self) -> Option<&Acceptor>;

    /// Reloads the certificate files; new connections use them.
    fn reload_certificates(&self) -> Result<(), LoadError>;

    /// Logs something that an operator should look at.
    fn warn(&self, text: &str);
}

/// The renewal's settings, and the pending challenges.
#[derive(Debug)]
pub struct Renewal {
    settings: watch::Sender<Option<Arc<Acme>>>,
    /// The same was configured again: the files may have changed.
    again: Notify,
    is_running: AtomicBool,
    /// The answers to challenges by HTTP.
    pub tokens: Tokens,
}

impl Default for Renewal {
    fn default() -> Self {
        Self {
            settings: watch::Sender::new(None),
            again: Notify::new(),
            is_running: AtomicBool::new(false),
            tokens: Tokens::default(),
        }
    }
}

impl Renewal {
    /// Applies settings, or with `None` cancels a running order. Returns true if the caller must start [`renew`]: that
    /// happens once in a server's life.
    pub fn configure(&self, settings: Option<&Acme>) -> bool {
        let is_other = self.settings.send_if_modified(|now| {
            let is_same = match (&*now, settings) {
                (Some(now), Some(settings)) => now.wants_the_same_as(settings),
                (now, settings) => now.is_none() && settings.is_none(),
            };
            if !is_same {
                *now = settings.cloned().map(Arc::new);
            }
            !is_same
        });
        if !is_other {
            self.again.notify_one();
        }
        settings.is_some() && !self.is_running.swap(true, Ordering::Relaxed)
    }
}

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

/// Has another thread do what may wait for a disk: those of the side runtime are few, and carry connections.
async fn elsewhere<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // The runtime ends, and its tasks with it.
            Err(_) => std::future::pending().await,
        },
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
fn in_minutes(pause: Duration) -> u64 {
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
