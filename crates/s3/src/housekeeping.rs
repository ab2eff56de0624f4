//! What a store needs beside requests: the probe, and the removal of what killed servers have left.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use millrace_vfs::FileError;

use crate::bucket::Bucket;
use crate::probe;

/// How often unfinished uploads are looked for.
const UPLOADS_EVERY: Duration = Duration::from_secs(3600);
/// How often renames are looked for that another server has left behind: one request.
const RENAMES_EVERY: Duration = Duration::from_secs(300);
/// How long until the next look where something is still to be done.
const SOON: Duration = Duration::from_secs(30);

/// How long unfinished uploads may go on; older ones were left behind.
const UPLOADS_LEFT_AFTER: Duration = Duration::from_secs(24 * 3600);

/// Probes the store and finishes what was left behind. Returns what the operator should know.
pub(crate) async fn begin(bucket: &Arc<Bucket>) -> Result<Vec<String>, FileError> {
    // A look first: what changes the store waits for longer until it answers.
    bucket.client.list(&bucket.reserved_key("renames/"), true, None, 1).await?;
    let broken = probe::probe(bucket).await?;
    let mut messages: Vec<String> = broken.iter().map(|promise| promise.to_string()).collect();
    let (finished, _) = bucket.finish_renames().await?;
    if finished > 0 {
        messages.push(format!("had unfinished renames of folders ({finished}), which are finished now"));
    }
    Ok(messages)
}

/// Looks after the store from now on, as long as it is used.
pub(crate) fn go_on(bucket: &Arc<Bucket>, has_begun: bool) {
    let weak = Arc::downgrade(bucket);
    bucket.runtime().spawn(look_after(weak, has_begun));
}

async fn look_after(bucket: Weak<Bucket>, mut has_begun: bool) {
    let mut swept: Option<Instant> = None;
    loop {
        let Some(strong) = bucket.upgrade() else { return };
        if !has_begun {
            has_begun = begin(&strong).await.is_ok();
        }
        if swept.is_none_or(|swept| swept.elapsed() >= UPLOADS_EVERY) {
            // Not every store lists uploads; then its own rules have to remove them.
            let _ = strong.sweep_uploads(UPLOADS_LEFT_AFTER).await;
            let _ = strong.sweep_probes().await;
            swept = Some(Instant::now());
        }
        let is_quiet = matches!(strong.finish_renames().await, Ok((_, false)));
        // The last one may not end the runtime on a thread of its own.
        let dropped = tokio::task::spawn_blocking(move || drop(strong));
        let _ = dropped.await;
        tokio::time::sleep(if has_begun && is_quiet { RENAMES_EVERY } else { SOON }).await;
    }
}
