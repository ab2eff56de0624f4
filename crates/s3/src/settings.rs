//! Which store is asked, and how.

use std::sync::Arc;
use std::time::Duration;

use millrace_net::tls::{RootsError, client_config};
use thiserror::Error;
use tokio_rustls::TlsConnector;

use crate::client::Client;
use crate::http::Endpoint;
use crate::sign::{Credentials, Signer};
use crate::site::Site;

/// The settings of a store.
#[derive(Debug, Clone)]
pub struct Settings {
    /// `https://s3.eu-central-1.amazonaws.com`, `http://127.0.0.1:8333`.
    pub endpoint: String,
    /// The region that requests are signed for.
    pub region: String,
    /// The bucket.
    pub bucket: String,
    /// What stands before all keys; without a slash at its ends.
    pub prefix: String,
    /// Who asks.
    pub credentials: Credentials,
    /// The bucket is named in the path of URLs, not in the name of the host.
    pub path_style: bool,
    /// Certificates in PEM, one of which has to have signed the store's; those of browsers where there are none.
    pub roots: Option<Vec<u8>>,
    /// The URL of the store for clients of HTTP, which are sent there for large files; `None` where they are not.
    pub redirect: Option<String>,
    /// How long the store may take for an answer.
    pub time: Duration,
}

/// What is wrong with the settings.
#[derive(Debug, Error)]
pub enum SettingsError {
    /// The endpoint.
    #[error("the endpoint {0:?} is no URL of a server, such as https://s3.eu-central-1.amazonaws.com")]
    Endpoint(String),
    /// The name of the bucket.
    #[error(
        "the bucket {0:?} has no name of a bucket: 3 to 63 letters, digits, points and hyphens, in lower case"
    )]
    Bucket(String),
    /// The prefix.
    #[error("the prefix {0:?} is no path without empty parts, `.` and `..`")]
    Prefix(String),
    /// The access key or the secret key is not there.
    #[error("there is no {0}")]
    Credentials(&'static str),
    /// The certificates.
    #[error(transparent)]
    Roots(#[from] RootsError),
    /// The runtime.
    #[error("{0}")]
    System(#[from] std::io::Error),
}

impl Settings {
    /// A name for it in messages: `the bucket files at http://127.0.0.1:8333`.
    pub fn name(&self) -> String {
        let beneath = if self.prefix.is_empty() { String::new() } else { format!("{} in ", self.prefix) };
        format!("{beneath}the bucket {} at {}", self.bucket, self.endpoint)
    }

    /// The prefix as keys have it: empty, or with a slash at its end.
    pub(crate) fn key_prefix(&self) -> Result<String, SettingsError> {
        let prefix = self.prefix.trim_matches('/');
        if prefix.is_empty() {
            return Ok(String::new());
        }
        let is_path = prefix
            .split('/')
            .all(|part| !matches!(part, "" | "." | "..") && !part.contains(char::is_control));
        if is_path { Ok(format!("{prefix}/")) } else { Err(SettingsError::Prefix(self.prefix.clone())) }
    }

    pub(crate) fn client(&self) -> Result<Client, SettingsError> {
        let is_part = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'.' | b'-');
        if !(3..=63).contains(&self.bucket.len()) || !self.bucket.bytes().all(is_part) {
            return Err(SettingsError::Bucket(self.bucket.clone()));
        }
        for (value, what) in
            [(&self.credentials.access_key, "access key"), (&self.credentials.secret_key, "secret key")]
        {
            if value.is_empty() || !value.bytes().all(|byte| byte.is_ascii_graphic()) {
                return Err(SettingsError::Credentials(what));
            }
        }
        let site = self.site(&self.endpoint)?;
        let for_clients = self.redirect.as_deref().map(|url| self.site(url)).transpose()?;
        let tls = match site.scheme {
            "https" => Some(TlsConnector::from(client_config(self.roots.as_deref())?)),
            _ => None,
        };
        let endpoint = Arc::new(Endpoint::new(site.host.clone(), site.port, tls, self.time));
        let signer = Signer { credentials: self.credentials.clone(), region: self.region.clone() };
        Ok(Client { endpoint, signer, site, for_clients, bucket: self.bucket.clone() })
    }

    /// The bucket at a URL of the store.
    fn site(&self, url: &str) -> Result<Site, SettingsError> {
        let wrong = || SettingsError::Endpoint(url.to_owned());
        let uri: hyper::Uri = url.trim_end_matches('/').parse().map_err(|_| wrong())?;
        let host = uri.host().ok_or_else(wrong)?;
        let (scheme, usual) = match uri.scheme_str() {
            Some("https") => ("https", 443),
            Some("http") => ("http", 80),
            _ => return Err(wrong()),
        };
        if uri.path().len() > 1 || uri.query().is_some() {
            return Err(wrong());
        }
        let port = uri.port_u16().unwrap_or(usual);
        let (host, root) = match self.path_style {
            true => (host.to_owned(), format!("/{}/", self.bucket)),
            false => (format!("{}.{host}", self.bucket), "/".to_owned()),
        };
        let shown = if port == usual { host.clone() } else { format!("{host}:{port}") };
        Ok(Site { scheme, host, port, shown, root })
    }
}
