//! Logins by a provider of OpenID Connect: a call of the API begins one, and a page, to which the provider sends the browser back,
//! finishes it.
//!
//! The page answers by a redirect to the dashboard: the browser comes from another site, and is not to show what it brought.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use hyper::header::{LOCATION, ORIGIN, REFERRER_POLICY, SET_COOKIE};
use hyper::{Method, StatusCode};
use millrace_admin::Role;
use millrace_oidc::{Identity, LoginError, Pending, Provider, Response, Seals};
use millrace_server::{Administrator, Running, cluster_of};
use serde_json::json;

use super::visits::{begin as begin_login, check_privacy, session_cookie};
use crate::arrival::{Arrival, check_host, cookie};
use crate::call::{Api, Call, too_many};
use crate::logins::User;
use crate::operation::{Answering, percent_decoded};
use crate::reply::{Problem, Reply};

/// Where a provider sends the browser.
pub(crate) const RETURN: &str = "/login/oidc";

/// The cookie of a browser that is at a provider.
const AWAY: &str = "millrace-admin-oidc";

/// Where the dashboard says why a login failed.
const FAILED: &str = "/#/overview?login=";

/// Why a login came to nothing.
#[derive(Debug, thiserror::Error)]
enum Failed {
    /// The provider, or what came from it, is not as it should be.
    #[error(transparent)]
    Provider(#[from] LoginError),
    /// The user has no role here.
    #[error("no role is given to {0}")]
    Role(String),
    /// Too many others wait for the provider.
    #[error("too many logins wait for the provider")]
    Busy,
    /// The login cannot be kept.
    #[error("{0}")]
    Kept(&'static str),
}

impl Failed {
    /// Returns what the dashboard calls it.
    fn word(&self) -> &'static str {
        match self {
            Self::Provider(LoginError::Refused(_)) => "refused",
            Self::Provider(LoginError::Unknown) => "late",
            Self::Role(_) => "role",
            Self::Provider(_) | Self::Busy | Self::Kept(_) => "failed",
        }
    }
}

/// Begins a login: answers with the address of the provider's page, and sends a cookie to know the browser by.
pub(crate) fn begin(call: Call) -> Answering {
    Box::pin(async move {
        let none = || Problem::new(StatusCode::NOT_FOUND, "this server has no [admin-oidc] table");
        let provider = call.api.access(|access| access.provider.clone()).ok_or_else(none)?;
        check_privacy(&call)?;
        let origin = call.field(ORIGIN.as_str());
        let origin = origin.ok_or_else(|| Problem::invalid("a browser begins this, and sends Origin"))?;
        let is_secure = if origin.starts_with("https://") { "; Secure" } else { "" };
        let redirect = format!("{origin}{RETURN}");
        let seals = seals(&call.running);
        let begin = move |pending: &Pending| provider.begin((pending, &seals), &redirect, seconds());
        let begun = at_provider(&call.api, begin).await;
        let begun = begun.map_err(|failed| {
            if matches!(failed, Failed::Busy) {
                return too_many("Others log in just now; try again.", 1);
            }
            note(&call.running, call.peer.ip(), None, Some(&failed.to_string()));
            Problem::new(StatusCode::BAD_GATEWAY, "the provider of logins does not answer as it should")
        })?;
        let cookie = begun.cookie;
        let away = format!("{AWAY}={cookie}; Path={RETURN}; HttpOnly; SameSite=Lax; Max-Age=600{is_secure}");
        Ok(Reply::json(&json!({ "ok": true, "url": begun.url })).with(SET_COOKIE, &away))
    })
}

/// Finishes a login, with what the browser has brought from the provider.
pub(crate) async fn finish(api: &Arc<Api>, running: &Running, arrival: &Arrival) -> Reply {
    let fields = arrival.request.headers();
    if let Err(problem) = check_host(api, fields, arrival.local) {
        return problem.into();
    }
    let provider = api.access(|access| access.provider.clone());
    let Some(provider) = provider.filter(|_| arrival.request.method() == Method::GET) else {
        return Problem::new(StatusCode::NOT_FOUND, "no login by a provider is expected").into();
    };
    let _answering = arrival.busy.begin();
    let response = response(arrival.request.uri().query().unwrap_or_default());
    let away = cookie(fields, AWAY).unwrap_or_default().to_owned();
    let from = arrival.peer.ip();
    let back = format!("{AWAY}=; Path={RETURN}; HttpOnly; SameSite=Lax; Max-Age=0");
    let (location, cookies) = match log_in(api, running, provider, response, away).await {
        Ok((identity, session)) => {
            note(running, from, Some(&identity), None);
            ("/".to_owned(), vec![back, session])
        }
        // Anyone can cause these at any rate: they are nothing to keep, and end no login.
        Err(failed @ (Failed::Busy | Failed::Provider(LoginError::Unknown))) => {
            (format!("{FAILED}{}", failed.word()), Vec::new())
        }
        Err(failed) => {
            note(running, from, None, Some(&failed.to_string()));
            (format!("{FAILED}{}", failed.word()), vec![back])
        }
    };
    let reply = Reply::new(StatusCode::SEE_OTHER, "text/plain; charset=utf-8", String::new());
    let reply = reply.with(LOCATION, &location).with(REFERRER_POLICY, "no-referrer");
    cookies.iter().fold(reply, |reply, cookie| reply.with(SET_COOKIE, cookie))
}

/// Finds out who it is, and lets the user in who has a role. Returns the cookie, too.
async fn log_in(
    api: &Arc<Api>,
    running: &Running,
    provider: Arc<Provider>,
    response: Response,
    away: String,
) -> Result<(Identity, String), Failed> {
    let seals = seals(running);
    let finish = move |pending: &Pending| provider.finish((pending, &seals), &response, &away, seconds());
    let (identity, redirect) = at_provider(api, finish).await?;
    let role: Option<Role> = api.access(|access| access.role_of_identity(&identity));
    role.ok_or_else(|| Failed::Role(identity.name().to_owned()))?;
    let session = begin_login(User::OfProvider(identity.clone()), api, running).await;
    let session = session.map_err(|_| Failed::Kept("the system has no random numbers"))?;
    Ok((identity, session_cookie(&session, redirect.starts_with("https://"))))
}

/// Returns the keys by which all nodes know a login under way, if this is one.
fn seals(running: &Running) -> Seals {
    let secrets = cluster_of(running).map_or(Vec::new(), |cluster| cluster.secrets());
    let aged: Vec<_> = secrets.iter().map(|secret| (secret.bytes, secret.made.elapsed())).collect();
    Seals::derive(&aged)
}

/// Has a thread wait for the provider, a few at a time. The thread has the permit: it goes on when the client is gone.
async fn at_provider<T: Send + 'static>(
    api: &Api,
    work: impl FnOnce(&Pending) -> Result<T, LoginError> + Send + 'static,
) -> Result<T, Failed> {
    let permit = Arc::clone(&api.at_provider).try_acquire_owned().map_err(|_| Failed::Busy)?;
    let pending = Arc::clone(&api.pending);
    let work = move || {
        let _permit = permit;
        work(&pending)
    };
    let done = tokio::task::spawn_blocking(work).await;
    Ok(done.map_err(|_| Failed::Kept("the server ends"))??)
}

/// Writes to the log who has logged in, or why a login failed.
fn note(running: &Running, from: IpAddr, identity: Option<&Identity>, failed: Option<&str>) {
    let name = identity.map_or_else(|| "oidc".to_owned(), |identity| format!("oidc {}", identity.name()));
    let by = Administrator::Remote { name: &name, from: from.to_canonical() };
    running.note_administered("log-in", failed, Some(by));
}

/// Reads what a provider has added to the address. Parameters of other names are ignored (RFC 6749, section 4.1.2).
fn response(query: &str) -> Response {
    let mut response = Response::default();
    for (name, value) in query.split('&').filter_map(|pair| pair.split_once('=')) {
        let Ok(value) = percent_decoded(value, true) else { continue };
        match name {
            "state" => response.state = value,
            "code" => response.code = Some(value),
            "iss" => response.issuer = Some(value),
            "error" => response.error = Some(value),
            _ => {}
        }
    }
    response
}

/// Returns the time in seconds since 1970.
fn seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}
