//! The live log and traces as server-sent events.

use std::sync::Arc;
use std::time::Duration;

use hyper::StatusCode;
use hyper::body::Bytes;
use millrace_admin::Wake;
use millrace_server::cluster::Cluster;
use millrace_server::{Live, cluster_of};
use tokio::sync::{Notify, OwnedSemaphorePermit, mpsc};

use crate::call::{Api, Call, Who, too_many};
use crate::operation::Answering;
use crate::reply::{Body, EVENTS, Problem, Reply};
use crate::shared_logins;

/// How often a stream without lines shows that it is there, and whether its reader may still have it.
const PULSE: Duration = Duration::from_secs(5);

/// Parts that wait for the client.
const PARTS: usize = 4;

/// Sends each line of the log from now on as an event, and some of the last before.
pub(crate) fn log(call: Call) -> Answering {
    Box::pin(async move {
        let place = Place::take(&call)?;
        let notify = Arc::new(Notify::new());
        let live = call.follow("log", waking(&notify)).await?;
        Ok(place.stream(live, notify, ": the log from now on\n\n"))
    })
}

/// Sends commands and replies of some sessions from now on, each as an event.
pub(crate) fn trace(call: Call) -> Answering {
    Box::pin(async move {
        let place = Place::take(&call)?;
        let notify = Arc::new(Notify::new());
        let live = call.follow("trace", waking(&notify)).await?;
        Ok(place.stream(live, notify, ": commands and replies from now on\n\n"))
    })
}

/// Returns what wakes a stream.
fn waking(notify: &Arc<Notify>) -> Wake {
    let notify = Arc::clone(notify);
    Box::new(move || notify.notify_one())
}

/// The place of one of the few streams.
struct Place {
    api: Arc<Api>,
    who: Who,
    cluster: Option<Arc<Cluster>>,
    permit: OwnedSemaphorePermit,
}

impl Place {
    fn take(call: &Call) -> Result<Self, Problem> {
        let Ok(permit) = Arc::clone(&call.api.streams).try_acquire_owned() else {
            return Err(too_many("there are as many streams as there may be", 10));
        };
        let who = call.who.clone().ok_or_else(|| Problem::failed("no one calls"))?;
        let cluster = cluster_of(&call.running).map(Arc::clone);
        Ok(Self { api: Arc::clone(&call.api), who, cluster, permit })
    }

    /// Begins a stream with these words.
    fn stream(self, live: Live, notify: Arc<Notify>, first: &str) -> Reply {
        let (sender, parts) = mpsc::channel(PARTS);
        let Self { api, who, cluster, permit } = self;
        let stream = Stream { sender, api, who, cluster, _permit: permit };
        tokio::spawn(stream.send(live, notify, first.to_owned()));
        Reply::new(StatusCode::OK, EVENTS, Body::Parts(parts))
    }
}

/// A client that reads the lines.
struct Stream {
    sender: mpsc::Sender<Bytes>,
    api: Arc<Api>,
    who: Who,
    cluster: Option<Arc<Cluster>>,
    _permit: OwnedSemaphorePermit,
}

impl Stream {
    async fn is_still_let_in(&self) -> bool {
        // It may have ended at another node. To read on is no use of it: who idles is logged out.
        if let (Some(cookie), Some(cluster)) = (self.who.by.cookie(), &self.cluster) {
            shared_logins::confirm(cookie, false, &self.api, cluster).await;
        }
        self.who.is_still_let_in(&self.api)
    }

    /// Sends until the client is gone, or may not read any more.
    async fn send(self, live: Live, notify: Arc<Notify>, mut text: String) {
        loop {
            let sent = self.sender.send(Bytes::from(std::mem::take(&mut text)));
            if sent.await.is_err() || !self.is_still_let_in().await {
                return;
            }
            let waited = tokio::select! {
                waited = tokio::time::timeout(PULSE, notify.notified()) => waited,
                () = self.sender.closed() => return,
            };
            let (lines, dropped) = live.take();
            lines.iter().for_each(|line| text += &format!("data: {line}\n\n"));
            if dropped > 0 {
                text += &format!("event: dropped\ndata: {dropped}\n\n");
            }
            if waited.is_err() && text.is_empty() {
                text += ":\n\n";
            }
        }
    }
}
