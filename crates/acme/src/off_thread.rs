//! Work that may wait for a disk, on another thread.

/// Has another thread do what may wait for a disk: those of the side runtime are few, and carry connections.
pub(super) async fn elsewhere<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // The runtime ends, and its tasks with it.
            Err(_) => std::future::pending().await,
        },
    }
}
