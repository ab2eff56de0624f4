//! Certificates that the server fetches and renews itself (ACME, RFC 8555).
//!
//! ```text
//!   certificate.pem --is it due?--> an order --the CA asks at our doors--> certificate.pem, written anew
//! ```
//!
//! - `settings.rs` is the configuration, `kept.rs` the stored files.
//! - `renewing.rs` is the loop that keeps a good certificate; `without.rs` stands in its place where the feature `client` is off.
//! - `advice.rs` asks when the CA would have a certificate renewed; `schedule.rs` says when something is to be done: pure, and told what time it is.
//! - `order.rs` has one order, from the account to the certificate; `directory.rs` is how the CA is talked to.
//! - `challenges.rs` answers the CA when it connects to validate a name.
//!
//! The invariant: nothing else waits for the CA. The server starts with the stored certificate, or with a self-signed
//! one; everything else runs on the side runtime, and disk access on its blocking threads. Configuring the same again
//! changes nothing: a running order or pause goes on. A new certificate replaces the old one atomically on the disk.
//! New connections then use it as after a reload of certificate files; existing sessions keep theirs.

#[cfg(feature = "client")]
mod advice;
mod calls;
mod challenges;
#[cfg(feature = "client")]
mod directory;
mod kept;
#[cfg(feature = "client")]
mod off_thread;
#[cfg(feature = "client")]
mod order;
#[cfg_attr(not(feature = "client"), path = "without.rs")]
mod renewing;
#[cfg(feature = "client")]
mod schedule;
mod settings;
#[cfg(all(test, feature = "client"))]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use millrace_net::tls::{Acceptor, LoadError};
use tokio::sync::{Notify, watch};

pub use challenges::{Shown, Tokens};
pub use renewing::renew;
pub use settings::{Acme, Challenge, ChallengeError, Clock, LETS_ENCRYPT, NotBuilt};

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
