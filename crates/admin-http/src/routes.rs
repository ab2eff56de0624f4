//! The paths that are served, and their answers.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::header::{ACCEPT, ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use millrace_metrics::{Format, Metric, Reading, write};
use millrace_server::{Readiness, Running};

use super::Server;
use super::connections::Busy;
use super::pulse::{Beat, Pulse};

/// A worker that has not answered for so long is stuck.
const STUCK: Duration = Duration::from_secs(2);

/// How long a scrape waits for workers.
const SCRAPE_PATIENCE: Duration = Duration::from_millis(100);

/// How long a scrape waits for the queue of the hooks, which is on a disk.
const QUEUE_PATIENCE: Duration = Duration::from_secs(2);

const TEXT: &str = "text/plain; charset=utf-8";

/// What is served.
#[derive(Debug)]
pub(crate) struct Site {
    server: Server,
    pulse: Arc<Pulse>,
}

impl Site {
    pub(crate) fn new(server: Server, workers: usize) -> Self {
        Self { server, pulse: Arc::new(Pulse::new(workers)) }
    }
}

/// An answer to a request.
#[derive(Debug)]
struct Answer {
    status: StatusCode,
    media_type: &'static str,
    text: String,
}

impl Answer {
    fn text(status: StatusCode, text: impl Into<String>) -> Self {
        Self { status, media_type: TEXT, text: text.into() + "\n" }
    }
}

type Answering<'a> = Pin<Box<dyn Future<Output = Answer> + Send + 'a>>;

/// A path, and what answers it.
struct Route {
    path: &'static str,
    answer: for<'a> fn(&'a Site, Arc<Running>, &'a Request<Incoming>) -> Answering<'a>,
}

/// All paths. Each is for `GET` and `HEAD`.
const ROUTES: [Route; 3] = [
    Route { path: "/healthz", answer: |site, server, _| Box::pin(health(site, server)) },
    Route { path: "/readyz", answer: |_, server, _| Box::pin(async move { readiness(&server) }) },
    Route { path: "/metrics", answer: |site, server, request| Box::pin(metrics(site, server, request)) },
];

/// Answers the request of a connection, and says meanwhile that it is `busy`.
pub(crate) fn service(
    site: Arc<Site>,
    busy: Busy,
) -> impl hyper::service::Service<
    Request<Incoming>,
    Response = Response<String>,
    Error = Infallible,
    Future: Send + 'static,
> {
    service_fn(move |request| {
        let (site, answering) = (Arc::clone(&site), busy.begin());
        async move {
            let answer = answer(&site, &request).await;
            drop(answering);
            Ok(response(answer))
        }
    })
}

async fn answer(site: &Site, request: &Request<Incoming>) -> Answer {
    let Some(route) = ROUTES.iter().find(|route| route.path == request.uri().path()) else {
        return Answer::text(StatusCode::NOT_FOUND, "There are /healthz, /readyz and /metrics.");
    };
    if ![Method::GET, Method::HEAD].contains(request.method()) {
        return Answer::text(StatusCode::METHOD_NOT_ALLOWED, "Use GET.");
    }
    match site.server.upgrade() {
        Some(server) => (route.answer)(site, server, request).await,
        None => Answer::text(StatusCode::SERVICE_UNAVAILABLE, "ended"),
    }
}

fn response(answer: Answer) -> Response<String> {
    let Answer { status, media_type, text } = answer;
    let mut response = Response::new(text);
    *response.status_mut() = status;
    let fields = response.headers_mut();
    fields.insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    fields.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if status == StatusCode::METHOD_NOT_ALLOWED {
        fields.insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
    }
    response
}

/// Every worker turns.
async fn health(site: &Site, server: Arc<Running>) -> Answer {
    let beats = site.pulse.feel(&server, STUCK).await;
    let silences: Vec<_> = beats.iter().map(|beat| beat.as_ref().map(Beat::silence)).collect();
    health_of(&silences, server.readiness())
}

fn health_of(silences: &[Option<Duration>], readiness: Readiness) -> Answer {
    let fault = silences.iter().enumerate().find_map(|(worker, silence)| match silence {
        Some(silence) if *silence >= STUCK => {
            Some(format!("worker {worker} has not answered for {:.1} s", silence.as_secs_f64()))
        }
        // It ends with its last connection where no more are accepted.
        None if readiness == Readiness::Ready => Some(format!("worker {worker} has ended")),
        _ => None,
    });
    match fault {
        Some(fault) => Answer::text(StatusCode::SERVICE_UNAVAILABLE, fault),
        None => Answer::text(StatusCode::OK, "ok"),
    }
}

/// It takes clients.
fn readiness(server: &Running) -> Answer {
    match server.readiness() {
        Readiness::Ready => Answer::text(StatusCode::OK, "ready"),
        Readiness::Draining => Answer::text(StatusCode::SERVICE_UNAVAILABLE, "draining"),
        Readiness::HandedOver => Answer::text(StatusCode::SERVICE_UNAVAILABLE, "handed over"),
    }
}

async fn metrics(site: &Site, server: Arc<Running>, request: &Request<Incoming>) -> Answer {
    let beats = site.pulse.feel(&server, SCRAPE_PATIENCE).await;
    let mut readings = server.readings();
    readings.extend(beats.iter().enumerate().filter_map(|(worker, beat)| {
        Some(Reading::at(Metric::WorkerLag, worker.to_string(), beat.as_ref()?.lag().as_secs_f64()))
    }));
    readings.extend(queue(&server).await);
    let accept = request.headers().get(ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
    let format = Format::accepted(accept);
    let text = write(server.metrics(), &readings, format);
    Answer { status: StatusCode::OK, media_type: format.media_type(), text }
}

/// Reads the queue of the hooks. Where its disk does not answer, there is no reading.
async fn queue(server: &Running) -> Vec<Reading> {
    let Some(backlog) = server.backlog() else { return Vec::new() };
    let counted = tokio::task::spawn_blocking(move || backlog.counts().ok());
    let counts = tokio::time::timeout(QUEUE_PATIENCE, counted).await;
    let counts = counts.ok().and_then(Result::ok).flatten();
    let readings = counts.map(|(waiting, parked)| {
        [("waiting", waiting), ("parked", parked)]
            .map(|(state, count)| Reading::at(Metric::DeliveryQueue, state, count as f64))
    });
    readings.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stuck_worker_is_named() {
        let brief = [Some(Duration::ZERO), Some(Duration::from_millis(1999))];
        assert_eq!(health_of(&brief, Readiness::Ready).status, StatusCode::OK);
        let answer = health_of(&[brief[0], Some(Duration::from_secs(3))], Readiness::Draining);
        assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(answer.text, "worker 1 has not answered for 3.0 s\n");
    }

    #[test]
    fn a_worker_may_end_where_the_server_drains() {
        let lags = [Some(Duration::ZERO), None];
        assert_eq!(health_of(&lags, Readiness::Ready).text, "worker 1 has ended\n");
        assert_eq!(health_of(&lags, Readiness::Draining).status, StatusCode::OK);
    }
}
