//! In place of the renewal, where this program was built without ACME: [`Acme::prepare`](super::Acme::prepare) refuses
//! the settings, and so there is never anything to renew.

use std::sync::Arc;

use super::Host;

/// Waits for ever.
pub async fn renew<H: Host>(_: Arc<H>) {
    std::future::pending().await
}
