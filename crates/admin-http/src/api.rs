//! The door of the API: which operation is meant, who calls, whether that may be, and then the operation.
//!
//! The invariant: without a token or a login of the least role nothing is performed, and no body is read but that of a
//! login. A connection counts as busy while its request is performed, not while its client sends.

use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hyper::body::{Body as _, Incoming};
use hyper::header::{ALLOW, AUTHORIZATION, HOST, HeaderMap, ORIGIN, WWW_AUTHENTICATE};
use hyper::{Method, StatusCode};
use millrace_server::{Running, note_wrong_token};

use super::arrival::{Arrival, check_host, cookie, text};
use super::call::{Api, Call, Means, Who};
use super::handlers::{orders, visits};
use super::logins;
use super::openapi;
use super::operation::{Action, Operation};
use super::reply::{Problem, Reply};
use super::table::OPERATIONS;

/// What all paths of the API begin with.
pub(crate) const PREFIX: &str = "/api/";

/// The largest body: a configuration file.
const BODY: usize = 2 * 1024 * 1024;

/// How long a body may take.
const BODY_TIME: Duration = Duration::from_secs(20);

/// How long an operation may take: an upgrade, or a count of all files.
const OPERATION_TIME: Duration = Duration::from_secs(3600);

/// The field that a page of another site cannot send.
const OWN_REQUEST: &str = "x-millrace-request";

/// Answers a request.
pub(crate) async fn answer(api: &Arc<Api>, running: Arc<Running>, arrival: Arrival) -> Reply {
    let answered = perform(api, running, arrival).await;
    answered.unwrap_or_else(Reply::from)
}

async fn perform(api: &Arc<Api>, running: Arc<Running>, arrival: Arrival) -> Result<Reply, Problem> {
    let Arrival { request, peer, local, certificate, busy } = arrival;
    let (head, body) = request.into_parts();
    check_host(api, &head.headers, local)?;
    let operation = find(&head.method, head.uri.path())?;
    let is_encrypted = certificate.is_some();
    let who = who_calls(api, &running, &head.headers, certificate).await;
    check_origin(&head.method, &head.headers, &who)?;
    if let Some(least) = operation.role {
        match &who {
            None => {
                if head.headers.contains_key(AUTHORIZATION) && api.wrong_tokens.is_told(Instant::now()) {
                    note_wrong_token(&running, peer);
                }
                return Err(unknown(api, &head.headers));
            }
            Some(who) if who.role < least => {
                let refused = format!("this needs the role {least}, and {} has {}", who.name, who.role);
                return Err(Problem::new(StatusCode::FORBIDDEN, refused));
            }
            Some(_) => {}
        }
    }
    let mut arguments = operation.arguments(head.uri.path(), head.uri.query().unwrap_or_default())?;
    operation.read_body(&read(body).await?, &mut arguments)?;
    let _answering = busy.begin();
    let call =
        Call { api: Arc::clone(api), running, who, peer, is_encrypted, fields: head.headers, arguments };
    let done = match operation.action {
        Action::Order(name, switches) => orders::order(name, switches, call),
        Action::Own(function) | Action::Live(_, function) => function(call),
        Action::Describe => return Ok(Reply::json(&openapi::describe(OPERATIONS))),
    };
    let done = tokio::time::timeout(OPERATION_TIME, done).await;
    done.unwrap_or_else(|_| Err(Problem::failed("it takes too long")))
}

/// Finds the operation of a path. `HEAD` is a `GET` without its body.
fn find(method: &Method, path: &str) -> Result<&'static Operation, Problem> {
    let of_path = || OPERATIONS.iter().filter(|operation| operation.segments(path).is_some());
    let wanted = if method == Method::HEAD { &Method::GET } else { method };
    // A path without arguments goes first.
    let found = of_path().find(|operation| operation.path == path && operation.method == *wanted);
    found.or_else(|| of_path().find(|operation| operation.method == *wanted)).ok_or_else(|| {
        let methods: Vec<_> = of_path().map(|operation| operation.method.as_str()).collect();
        match methods.is_empty() {
            true => Problem::new(StatusCode::NOT_FOUND, "/api/v1/openapi.json lists what there is"),
            false => {
                Problem::new(StatusCode::METHOD_NOT_ALLOWED, format!("{path} has {}", methods.join(", ")))
                    .with(ALLOW, methods.join(", "))
            }
        }
    })
}

/// Refuses changes that a page of another site has a browser ask for, with the cookie of this one.
fn check_origin(method: &Method, fields: &HeaderMap, who: &Option<Who>) -> Result<(), Problem> {
    let refused = |why: &str| Err(Problem::new(StatusCode::FORBIDDEN, why));
    let is_by_cookie = who.as_ref().is_some_and(|who| who.by.cookie().is_some());
    let is_by_token = matches!(who, Some(Who { by: Means::Token(_), .. }));
    if [Method::GET, Method::HEAD].contains(method) || is_by_token {
        return Ok(());
    }
    let origin = text(fields, ORIGIN).map(|origin| origin.split_once("://").map_or("", |(_, host)| host));
    match (origin, text(fields, HOST)) {
        (Some(origin), Some(host)) if origin.eq_ignore_ascii_case(host) => {}
        (Some(_), _) => return refused("the field Origin names another site"),
        (None, _) if is_by_cookie => return refused("a change by cookie needs the field Origin"),
        (None, _) => {}
    }
    match is_by_cookie && text(fields, OWN_REQUEST) != Some("1") {
        true => refused("a change by cookie needs the field X-Millrace-Request: 1"),
        false => Ok(()),
    }
}

/// Finds out who calls. A token goes before a cookie, and one that is wrong is no one's; a certificate is asked for its name
/// where neither is there.
async fn who_calls(
    api: &Arc<Api>,
    running: &Running,
    fields: &HeaderMap,
    certificate: Option<Arc<[String]>>,
) -> Option<Who> {
    if let Some(authorization) = text(fields, AUTHORIZATION) {
        let (scheme, token) = authorization.split_once(' ')?;
        let token = token.trim();
        let (name, role) = api.administration.tokens().find(token)?;
        return scheme.eq_ignore_ascii_case("bearer").then(|| Who {
            name,
            role,
            by: Means::Token(token.to_owned()),
        });
    }
    match cookie(fields, logins::COOKIE) {
        Some(cookie) => visits::who_has(cookie, api, running).await,
        None => {
            let names = certificate?;
            let (role, name) = api.access(|access| access.role_of_certificate(&names))?;
            Some(Who { name, role, by: Means::Certificate(names) })
        }
    }
}

/// Says how to get in.
fn unknown(api: &Api, fields: &HeaderMap) -> Problem {
    let is_closed =
        api.administration.tokens().is_empty() && api.access(super::access::AdminAccess::is_empty);
    let problem = match is_closed {
        true => Problem::new(
            StatusCode::UNAUTHORIZED,
            "nothing may use the API yet: make a token with \"millrace ctl token add NAME --role administrator\", or \
             name users in admin-administrators",
        )
        .of_kind("set-up"),
        // Which of these it is would help only those who guess.
        false if fields.contains_key(AUTHORIZATION) => Problem::new(
            StatusCode::UNAUTHORIZED,
            "this server knows no such token, or it has expired: \"millrace ctl token list\" lists the tokens",
        ),
        false => Problem::new(
            StatusCode::UNAUTHORIZED,
            "send a token as \"Authorization: Bearer TOKEN\", or log in by POST /api/v1/login",
        ),
    };
    problem.with(WWW_AUTHENTICATE, "Bearer realm=\"Millrace\"")
}

/// Reads a body.
async fn read(mut body: Incoming) -> Result<Vec<u8>, Problem> {
    let all = async {
        let mut bytes = Vec::new();
        while let Some(frame) = std::future::poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await
        {
            let frame = frame.map_err(|_| Problem::new(StatusCode::BAD_REQUEST, "the body is cut"))?;
            bytes.extend(frame.into_data().iter().flat_map(|data| data.iter()));
            if bytes.len() > BODY {
                return Err(Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "the body is too large"));
            }
        }
        Ok(bytes)
    };
    let slow = |_| Problem::new(StatusCode::REQUEST_TIMEOUT, "the body takes too long");
    tokio::time::timeout(BODY_TIME, all).await.map_err(slow)?
}
