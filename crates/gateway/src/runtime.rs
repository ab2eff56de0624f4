//! The runtime beside the workers: started when it is first needed, ended behind them.

use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;

/// How long connections may take, when the workers have ended, to send what they have.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// The number of threads: performance-critical work is elsewhere.
const THREADS: usize = 2;

/// What runs beside the workers.
#[derive(Debug, Default)]
pub struct Side {
    started: OnceLock<Option<Started>>,
}

#[derive(Debug)]
struct Started {
    /// Taken when it ends.
    runtime: Mutex<Option<Runtime>>,
    /// Whether the server is closing; every task has a receiver.
    ending: watch::Sender<bool>,
}

/// Says that the server is closing, to those who wait for it; and that they have not ended yet, to the server.
pub type Ending = watch::Receiver<bool>;

impl Side {
    /// Runs something until it has ended. Where no thread is to be had, it is dropped.
    pub fn spawn<F>(&self, work: impl FnOnce(Ending) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let Some(started) = self.started.get_or_init(start) else { return };
        if let Some(runtime) = &*started.runtime.lock().unwrap_or_else(PoisonError::into_inner) {
            runtime.spawn(work(started.ending.subscribe()));
        }
    }

    /// Tells what runs that the server is closing.
    pub fn begin_shutdown(&self) {
        if let Some(Some(started)) = self.started.get() {
            started.ending.send_replace(true);
        }
    }

    /// Ends running tasks, once they have had the time to send pending data. No new ones begin afterwards.
    pub fn close(&self) {
        self.begin_shutdown();
        let Some(started) = self.started.get_or_init(|| None) else { return };
        let runtime = started.runtime.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(runtime) = runtime {
            runtime.block_on(async {
                let _ = tokio::time::timeout(LAST_WORDS, started.ending.closed()).await;
            });
            runtime.shutdown_background();
        }
    }
}

fn start() -> Option<Started> {
    let runtime =
        Builder::new_multi_thread().worker_threads(THREADS).thread_name("millrace-side").enable_all().build();
    let runtime = Mutex::new(Some(runtime.ok()?));
    Some(Started { runtime, ending: watch::Sender::new(false) })
}
