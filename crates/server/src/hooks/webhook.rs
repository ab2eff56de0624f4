//! A receiver of events over HTTP: JSON is posted to it, and it may answer in JSON.

use std::time::Duration;

use thiserror::Error;

/// Of an answer, as much is read.
const ANSWER: u64 = 64 * 1024;

/// Where events are posted to. Connections are kept between them.
#[derive(Debug, Clone)]
pub(super) struct Webhook {
    url: String,
    agent: ureq::Agent,
}

/// Why an event was not taken.
#[derive(Debug, Error)]
pub(super) enum NotTaken {
    /// It may be taken another time.
    #[error("{0}")]
    Yet(String),
    /// It will not be: the receiver says that there is something wrong with it.
    #[error("the receiver refuses it with {0}")]
    Ever(u16),
}

impl Webhook {
    pub(super) fn new(url: &str, time_limit: Duration) -> Self {
        let config = ureq::Agent::config_builder()
            .timeout_global(Some(time_limit))
            .http_status_as_error(false)
            .max_redirects(0)
            .max_idle_connections_per_host(64)
            .max_idle_connections(64)
            .user_agent("millrace")
            .build();
        Self { url: url.to_owned(), agent: ureq::Agent::new_with_config(config) }
    }

    /// Claims that events can be posted to this.
    pub(super) fn check(url: &str) -> Result<(), String> {
        let wrong =
            || Err(format!("{url:?} is no address of a receiver, such as \"http://127.0.0.1:8080/events\""));
        let Ok(address) = url.parse::<ureq::http::Uri>() else { return wrong() };
        match (address.scheme_str(), address.host()) {
            (Some("http" | "https"), Some(host)) if !host.is_empty() => Ok(()),
            _ => wrong(),
        }
    }

    /// Posts a body, and answers what came back with success.
    pub(super) fn post(&self, body: &[u8]) -> Result<Vec<u8>, NotTaken> {
        let request = self.agent.post(&self.url).header("content-type", "application/json");
        let mut response = request.send(body).map_err(|error| NotTaken::Yet(error.to_string()))?;
        let status = response.status().as_u16();
        // Read to its end also where it means nothing: the connection can then be used again.
        let answer = response.body_mut().with_config().limit(ANSWER).read_to_vec();
        match status {
            200..300 => answer.map_err(|error| NotTaken::Yet(error.to_string())),
            // Too early, too many, and what gateways say of themselves.
            408 | 425 | 429 => Err(NotTaken::Yet(format!("the receiver answers {status}"))),
            400..500 => Err(NotTaken::Ever(status)),
            _ => Err(NotTaken::Yet(format!("the receiver answers {status}"))),
        }
    }
}
