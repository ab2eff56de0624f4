//! A request as it arrives, and what its head says of the browser and of this server.

use std::net::SocketAddr;
use std::sync::Arc;

use hyper::body::Incoming;
use hyper::header::{COOKIE, HOST, HeaderMap};
use hyper::{Request, StatusCode};

use super::call::Api;
use super::connections::Busy;
use super::reply::Problem;

/// A request, and where it came from and to.
pub(crate) struct Arrival {
    pub(crate) request: Request<Incoming>,
    pub(crate) peer: SocketAddr,
    pub(crate) local: SocketAddr,
    /// The names in the client's certificate, which may be none; `None` where there is no TLS.
    pub(crate) certificate: Option<Arc<[String]>>,
    pub(crate) busy: Busy,
}

/// Returns the value of a field, if it is a text.
pub(crate) fn text(fields: &HeaderMap, name: impl hyper::header::AsHeaderName) -> Option<&str> {
    fields.get(name).and_then(|value| value.to_str().ok())
}

/// Refuses names that are not this server's: a page may have had its own name lead here (DNS rebinding).
pub(crate) fn check_host(api: &Api, fields: &HeaderMap, local: SocketAddr) -> Result<(), Problem> {
    let host = text(fields, HOST).unwrap_or_default();
    match api.access(|access| access.knows_host(host, local.ip())) {
        true => Ok(()),
        false => Err(Problem::new(
            StatusCode::MISDIRECTED_REQUEST,
            format!("this server is not known as {host:?}: admin-hosts lists names that it has"),
        )),
    }
}

/// Returns the value of a cookie.
pub(crate) fn cookie<'a>(fields: &'a HeaderMap, wanted: &str) -> Option<&'a str> {
    let cookies = fields.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs =
        cookies.flat_map(|cookies| cookies.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(name, _)| *name == wanted).map(|(_, value)| value)
}
