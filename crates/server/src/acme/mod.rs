//! Certificates that the server fetches and renews itself (ACME, RFC 8555).
//!
//! ```text
//!   certificate.pem --is it due?--> an order --the CA asks at our doors--> certificate.pem, written anew
//! ```
//!
//! - `settings.rs` is what is configured, `kept.rs` what is kept in its folder.
//! - `schedule.rs` says when something is to be done: pure, and told what time it is.
//! - `order.rs` has one order, from the account to the certificate; `directory.rs` is how the CA is talked to.
//! - `challenges.rs` answers the CA when it asks at our doors who has a name.
//!
//! The invariant: nobody waits for the CA. The server begins with the certificate that is kept, or with one that it
//! made itself; all else is done on the side runtime. A new certificate takes the place of the old one whole and in
//! one step, on the disk and for connections from then on, in the way in which other files of certificates are read
//! again; sessions go on with theirs.

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

use millrace_net::tls::Standing;
use ring::rand::{SecureRandom, SystemRandom};
use tokio::sync::watch;

use challenges::Tokens;
use directory::Directory;
use order::{Issued, Order, Trouble};
use schedule::Schedule;
pub use settings::{Acme as Settings, Challenge, ChallengeError, Clock, LETS_ENCRYPT};

use crate::http::Ending;
use crate::state::Server;

/// How late it may be noticed that something is due, also where somebody has set the clock.
const LOOK: Duration = Duration::from_secs(1);

/// What all of a server share of this.
#[derive(Debug)]
pub(crate) struct Acme {
    settings: watch::Sender<Option<Arc<Settings>>>,
    is_running: AtomicBool,
    pub(crate) tokens: Tokens,
}

impl Default for Acme {
    fn default() -> Self {
        Self {
            settings: watch::Sender::new(None),
            is_running: AtomicBool::new(false),
            tokens: Tokens::default(),
        }
    }
}

/// Puts this in force, from now on.
pub(crate) fn configure(server: &Arc<Server>, settings: Option<&Settings>) {
    let acme = &server.acme;
    acme.settings.send_replace(settings.cloned().map(Arc::new));
    if settings.is_some() && !acme.is_running.swap(true, Ordering::Relaxed) {
        let shared = Arc::clone(server);
        server.side.spawn(move |mut ending| async move {
            tokio::select! {
                () = renew(&shared) => {}
                () = ended(&mut ending) => {}
            }
        });
    }
}

/// The server is closing.
async fn ended(ending: &mut Ending) {
    let _ = ending.wait_for(|is_ending| *is_ending).await;
}

/// Has a certificate there, for as long as the server runs.
async fn renew(server: &Arc<Server>) {
    let mut settings = server.acme.settings.subscribe();
    loop {
        let now = settings.borrow_and_update().clone();
        tokio::select! {
            () = keep(server, now.as_deref()) => {}
            changed = settings.changed() => if changed.is_err() { return },
        }
    }
}

/// Has a certificate there, for as long as the settings are these.
async fn keep(server: &Arc<Server>, settings: Option<&Settings>) {
    let Some(settings) = settings else { return std::future::pending().await };
    let (mut schedule, mut standing) = (Schedule::default(), settings.standing());
    loop {
        let now = settings.clock.now();
        if !schedule.is_due(standing.as_ref(), now) {
            tokio::time::sleep(LOOK).await;
            continue;
        }
        match fetch(server, settings).await {
            Ok(issued) => {
                schedule.succeeded(settings.clock.now());
                standing = Some(issued);
                server.log.warn(&arrived(settings, &issued));
                take_over(server);
            }
            Err(trouble) => {
                let pause = schedule.failed(&trouble, settings.clock.now(), luck());
                server.log.warn(&missed(settings, &trouble, pause, standing.as_ref()));
            }
        }
    }
}

/// One order, to its end; the certificate is on the disk then.
async fn fetch(server: &Server, settings: &Settings) -> Result<Standing, Trouble> {
    let tls = server.tls.as_ref().ok_or_else(|| Trouble::of("there is no TLS"))?;
    let directory = Directory::new(settings).map_err(Trouble::of)?;
    let order = Order { settings, directory, tokens: &server.acme.tokens, acceptor: &tls.acceptor };
    let Issued { chain, key } = order.fulfil().await?;
    settings.keep_certificate(&chain, &key).map_err(Trouble::of)
}

/// New connections get it, as if somebody else had written the file.
fn take_over(server: &Server) {
    if let Some(Err(error)) = server.tls.as_ref().map(|tls| tls.reload()) {
        server.log.warn(&format!("the old certificates stay in force: {error}"));
    }
}

fn arrived(settings: &Settings, issued: &Standing) -> String {
    let Settings { directory, .. } = settings;
    format!(
        "ACME: {directory} has issued a certificate for {}, good until {}",
        names(settings),
        date(issued.until)
    )
}

fn missed(settings: &Settings, trouble: &Trouble, pause: Duration, standing: Option<&Standing>) -> String {
    let meanwhile = match standing {
        Some(standing) => format!("the old one, which is good until {}", date(standing.until)),
        None => "one that nobody vouches for".to_owned(),
    };
    format!(
        "ACME: {} has issued no certificate for {}: {trouble}; the next try is in {} min, and clients get {meanwhile}",
        settings.directory,
        names(settings),
        pause.as_secs().div_ceil(60)
    )
}

fn names(settings: &Settings) -> String {
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
    // Without chance the pauses are those of everybody.
    let _ = SystemRandom::new().fill(&mut bytes);
    f64::from(u32::from_be_bytes(bytes)) / f64::from(u32::MAX)
}
