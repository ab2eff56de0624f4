//! The paths that are served, and their answers.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::time::Duration;

use hyper::body::Incoming;
use hyper::header::{ACCEPT, ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderValue, X_CONTENT_TYPE_OPTIONS};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use millrace_metrics::{Format, Reading, write};
use millrace_server::{Readiness, Running};

use super::api::{self, PREFIX};
use super::arrival::Arrival;
use super::call::Api;
use super::connections::Busy;
use super::dashboard;
use super::handlers::provided;
use super::pulse::{self, Beat, Pulse, SCRAPE_PATIENCE};
use super::reply::{Body, Reply};

/// A worker that has not answered for so long is stuck.
const STUCK: Duration = Duration::from_secs(2);

/// How long a scrape waits for the queue of the hooks, which is on a disk.
const QUEUE_PATIENCE: Duration = Duration::from_secs(2);

const TEXT: &str = "text/plain; charset=utf-8";

/// What is served.
#[derive(Debug)]
pub(crate) struct Site {
    /// Not kept alive.
    server: Weak<Running>,
    pulse: Arc<Pulse>,
    api: Option<Arc<Api>>,
    /// Requests come by TLS.
    pub(crate) has_tls: bool,
}

impl Site {
    pub(crate) fn new(server: &Arc<Running>, api: Option<Arc<Api>>, has_tls: bool) -> Self {
        let pulse = Arc::new(Pulse::new(server.worker_count()));
        Self { server: Arc::downgrade(server), pulse, api, has_tls }
    }

    /// Returns the server, while it runs.
    pub(crate) fn running(&self) -> Option<Arc<Running>> {
        self.server.upgrade()
    }
}

/// The answer of a page: a status and a line of text.
fn text(status: StatusCode, text: impl Into<String>) -> Reply {
    Reply::new(status, TEXT, text.into() + "\n")
}

type Answering<'a> = Pin<Box<dyn Future<Output = Reply> + Send + 'a>>;

/// A path, and what answers it.
struct Route {
    path: &'static str,
    answer: for<'a> fn(&'a Site, Arc<Running>, &'a Request<Incoming>) -> Answering<'a>,
}

/// All pages. Each is for `GET` and `HEAD`. Paths of the API are in its table.
const ROUTES: [Route; 3] = [
    Route { path: "/healthz", answer: |site, server, _| Box::pin(health(site, server)) },
    Route { path: "/readyz", answer: |_, server, _| Box::pin(async move { readiness(&server) }) },
    Route { path: "/metrics", answer: |site, server, request| Box::pin(metrics(site, server, request)) },
];

/// Answers the requests of a connection between these addresses, and says when it is `busy`.
pub(crate) fn service(
    site: Arc<Site>,
    [peer, local]: [SocketAddr; 2],
    certificate: Option<Arc<[String]>>,
    busy: Busy,
) -> impl hyper::service::Service<
    Request<Incoming>,
    Response = Response<Body>,
    Error = Infallible,
    Future: Send + 'static,
> {
    service_fn(move |request| {
        let (site, certificate, busy) = (Arc::clone(&site), certificate.clone(), busy.clone());
        async move { Ok(response(answer(&site, Arrival { request, peer, local, certificate, busy }).await)) }
    })
}

async fn answer(site: &Site, arrival: Arrival) -> Reply {
    let path = arrival.request.uri().path();
    let Some(server) = site.server.upgrade() else { return text(StatusCode::SERVICE_UNAVAILABLE, "ended") };
    if let Some(api) = site.api.as_ref().filter(|_| path.starts_with(PREFIX)) {
        return api::answer(api, server, arrival).await;
    }
    if let Some(api) = site.api.as_ref().filter(|_| path == provided::RETURN) {
        return provided::finish(api, &server, &arrival).await;
    }
    if let Some(page) = page(site, &arrival.request) {
        return page;
    }
    let Some(route) = ROUTES.iter().find(|route| route.path == path) else {
        return text(StatusCode::NOT_FOUND, "There are /, /healthz, /readyz, /metrics and /api/v1/.");
    };
    if ![Method::GET, Method::HEAD].contains(arrival.request.method()) {
        return text(StatusCode::METHOD_NOT_ALLOWED, "Use GET.").with(ALLOW, "GET, HEAD");
    }
    let _answering = arrival.busy.begin();
    (route.answer)(site, server, &arrival.request).await
}

/// Returns a file of the dashboard, where there is an API for it.
fn page(site: &Site, request: &Request<Incoming>) -> Option<Reply> {
    site.api.as_ref().filter(|_| [Method::GET, Method::HEAD].contains(request.method()))?;
    dashboard::file(request.uri().path(), request.uri().query(), request.headers())
}

fn response(reply: Reply) -> Response<Body> {
    let Reply { status, media_type, body, fields } = reply;
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let all = response.headers_mut();
    all.insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    all.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    all.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    all.extend(fields);
    response
}

/// Every worker turns.
async fn health(site: &Site, server: Arc<Running>) -> Reply {
    let beats = site.pulse.feel(&server, STUCK).await;
    let silences: Vec<_> = beats.iter().map(|beat| beat.as_ref().map(Beat::silence)).collect();
    health_of(&silences, server.readiness())
}

fn health_of(silences: &[Option<Duration>], readiness: Readiness) -> Reply {
    let fault = silences.iter().enumerate().find_map(|(worker, silence)| match silence {
        Some(silence) if *silence >= STUCK => {
            Some(format!("worker {worker} has not answered for {:.1} s", silence.as_secs_f64()))
        }
        // It ends with its last connection where no more are accepted.
        None if readiness == Readiness::Ready => Some(format!("worker {worker} has ended")),
        _ => None,
    });
    match fault {
        Some(fault) => text(StatusCode::SERVICE_UNAVAILABLE, fault),
        None => text(StatusCode::OK, "ok"),
    }
}

/// It takes clients.
fn readiness(server: &Running) -> Reply {
    match server.readiness() {
        Readiness::Ready => text(StatusCode::OK, "ready"),
        Readiness::Draining => text(StatusCode::SERVICE_UNAVAILABLE, "draining"),
        Readiness::HandedOver => text(StatusCode::SERVICE_UNAVAILABLE, "handed over"),
    }
}

async fn metrics(site: &Site, server: Arc<Running>, request: &Request<Incoming>) -> Reply {
    let beats = site.pulse.feel(&server, SCRAPE_PATIENCE).await;
    let mut readings = server.readings();
    readings.extend(pulse::readings(&beats));
    readings.extend(queue(&server).await);
    let accept = request.headers().get(ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
    let format = Format::accepted(accept);
    let text = write(server.metrics(), &readings, format);
    Reply::new(StatusCode::OK, format.media_type(), text)
}

/// Reads the queue of the hooks. Where its disk does not answer, there is no reading.
async fn queue(server: &Running) -> Vec<Reading> {
    let Some(backlog) = server.backlog() else { return Vec::new() };
    let counted = tokio::task::spawn_blocking(move || Running::queue_readings(&backlog));
    let counted = tokio::time::timeout(QUEUE_PATIENCE, counted).await;
    counted.ok().and_then(Result::ok).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(reply: Reply) -> String {
        let Body::Whole(Some(bytes)) = reply.body else { panic!("it is no text") };
        String::from_utf8(bytes.to_vec()).unwrap()
    }

    #[test]
    fn a_stuck_worker_is_named() {
        let brief = [Some(Duration::ZERO), Some(Duration::from_millis(1999))];
        assert_eq!(health_of(&brief, Readiness::Ready).status, StatusCode::OK);
        let answer = health_of(&[brief[0], Some(Duration::from_secs(3))], Readiness::Draining);
        assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(said(answer), "worker 1 has not answered for 3.0 s\n");
    }

    #[test]
    fn a_worker_may_end_where_the_server_drains() {
        let lags = [Some(Duration::ZERO), None];
        assert_eq!(said(health_of(&lags, Readiness::Ready)), "worker 1 has ended\n");
        assert_eq!(health_of(&lags, Readiness::Draining).status, StatusCode::OK);
    }
}
