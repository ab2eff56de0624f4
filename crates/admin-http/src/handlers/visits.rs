//! Who calls: logins with the accounts of the server, and their end.

use std::sync::Arc;
use std::time::Instant;

use hyper::StatusCode;
use hyper::header::{ORIGIN, SET_COOKIE};
use millrace_server::{Account, AdminLogin, LoginAttempt, Protocol, Running, cluster_of};
use serde_json::json;
use tokio::sync::oneshot;

use crate::call::{Api, Call, Means, Who, too_many};
use crate::logins::{COOKIE, Login, User, groups, name_of};
use crate::operation::Answering;
use crate::reply::{Problem, Reply};
use crate::shared_logins;

/// Returns the name and the role of who calls.
pub(crate) fn me(call: Call) -> Answering {
    Box::pin(async move {
        let Some(who) = &call.who else { return Err(Problem::failed("no one calls")) };
        let by = match who.by {
            Means::Token(_) => "token",
            Means::Cookie(_) => "login",
            Means::Provided(_) => "oidc",
            Means::Certificate(_) => "certificate",
        };
        Ok(Reply::json(&json!({ "ok": true, "name": who.name, "role": who.role, "by": by })))
    })
}

/// Tells the ways to log in.
pub(crate) fn ways(call: Call) -> Answering {
    let has_provider = call.api.access(|access| access.provider.is_some());
    Box::pin(async move { Ok(Reply::json(&json!({ "ok": true, "password": true, "oidc": has_provider }))) })
}

/// Lets a user in who has a role, and sends the cookie.
pub(crate) fn log_in(call: Call) -> Answering {
    Box::pin(async move {
        let Ok(_permit) = call.api.guesses.try_acquire() else {
            return Err(too_many("Others log in just now; try again.", 1));
        };
        check_privacy(&call)?;
        let attempt = attempt(&call);
        let (tell, told) = oneshot::channel();
        call.running.log_in(attempt.clone(), call.peer, move |login| drop(tell.send(login)));
        let login = told.await.map_err(|_| Problem::failed("the accounts are out of order"))?;
        match login {
            AdminLogin::Granted(account, edition) => admit(&call, attempt, *account, edition).await,
            AdminLogin::NeedsCode => {
                Err(Problem::new(StatusCode::UNAUTHORIZED, "the one-time code is missing")
                    .of_kind("code-needed"))
            }
            AdminLogin::Denied(delay) => {
                tokio::time::sleep(delay).await;
                Err(Problem::new(StatusCode::UNAUTHORIZED, "the name or the password is wrong"))
            }
            AdminLogin::Limited(reason, wait) => {
                Err(too_many(reason, wait.map_or(10, |wait| wait.as_secs())))
            }
        }
    })
}

/// Refuses a login that others on the way could read.
pub(super) fn check_privacy(call: &Call) -> Result<(), Problem> {
    if call.is_encrypted || call.peer.ip().to_canonical().is_loopback() {
        return Ok(());
    }
    let refused = "passwords are not sent in clear over a network: admin-tls encrypts this address; or log in from \
                   this computer, or by a proxy with TLS on it, or use a token";
    Err(Problem::new(StatusCode::FORBIDDEN, refused))
}

/// The code stands behind the password, as the accounts want it.
fn attempt(call: &Call) -> LoginAttempt {
    let text = |name| call.text(name).unwrap_or_default();
    LoginAttempt {
        user: text("name").into(),
        password: [text("password"), text("code")].concat().into_bytes(),
        from: call.peer.ip().to_canonical(),
        protocol: Protocol::Http,
        encrypted: is_encrypted(call),
        certified: false,
        host: String::new(),
        local: None,
        listener: None,
        class: None,
        session: 0,
    }
}

/// Returns whether the browser came by TLS, to this address or to a proxy on this computer.
fn is_encrypted(call: &Call) -> bool {
    call.is_encrypted || call.field(ORIGIN.as_str()).is_some_and(|origin| origin.starts_with("https://"))
}

async fn admit(call: &Call, attempt: LoginAttempt, account: Account, edition: u64) -> Result<Reply, Problem> {
    let (name, groups) = (name_of(&attempt), groups(&account));
    let Some(role) = call.api.access(|access| access.role_of(&name, &groups)) else {
        let refused = "this account may not administer the server: admin-viewers, admin-operators and \
                       admin-administrators name those that may";
        return Err(Problem::new(StatusCode::FORBIDDEN, refused));
    };
    let cookie = begin(User::of_accounts(attempt, account, edition), &call.api, &call.running).await?;
    let told = json!({ "ok": true, "name": name, "role": role, "by": "login" });
    Ok(Reply::json(&told).with(SET_COOKIE, &session_cookie(&cookie, is_encrypted(call))))
}

/// Begins the login of a user, at all nodes if this is one. Returns the cookie.
pub(super) async fn begin(user: User, api: &Api, running: &Running) -> Result<String, Problem> {
    let now = Instant::now();
    let login = Login::new(user, now);
    let cookie = api.logins.add(login.clone(), now)?;
    if let Some(cluster) = cluster_of(running) {
        shared_logins::tell(&cookie, &login, api, cluster).await;
    }
    Ok(cookie)
}

/// Returns the field that has a browser keep a cookie, which goes over TLS alone if it came so.
pub(super) fn session_cookie(cookie: &str, is_encrypted: bool) -> String {
    let secure = if is_encrypted { "; Secure" } else { "" };
    format!("{COOKIE}={cookie}; Path=/; HttpOnly; SameSite=Strict{secure}")
}

/// Ends the login of a cookie.
pub(crate) fn log_out(call: Call) -> Answering {
    Box::pin(async move {
        if let Some(cookie) = call.who.as_ref().and_then(|who| who.by.cookie()) {
            shared_logins::end_cookie(cookie, &call.running).await;
            call.api.logins.remove(cookie);
        }
        let gone = format!("{COOKIE}=; Path=/; HttpOnly; SameSite=Strict; Max-Age=0");
        Ok(Reply::json(&json!({ "ok": true })).with(SET_COOKIE, &gone))
    })
}

/// Returns who has a cookie, and may still. The accounts are asked again where they have changed since.
pub(crate) async fn who_has(cookie: &str, api: &Arc<Api>, running: &Running) -> Option<Who> {
    shared_logins::refresh(cookie, api, running).await;
    match api.logins.find(cookie, Instant::now())?.user {
        User::OfAccounts { attempt, account, edition } => {
            let account = still_granted(attempt.clone(), account, edition, running).await;
            let Some((account, edition)) = account else {
                api.logins.remove(cookie);
                return None;
            };
            let name = name_of(&attempt);
            let role = api.access(|access| access.role_of(&name, &groups(&account)));
            api.logins.renew(cookie, account, edition);
            Some(Who { name, role: role?, by: Means::Cookie(cookie.to_owned()) })
        }
        User::OfProvider(identity) => {
            let role = api.access(|access| access.role_of_identity(&identity))?;
            Some(Who { name: identity.name().to_owned(), role, by: Means::Provided(cookie.to_owned()) })
        }
    }
}

/// Returns the account as the accounts have it now, with their edition.
async fn still_granted(
    attempt: LoginAttempt,
    account: Account,
    edition: u64,
    running: &Running,
) -> Option<(Account, u64)> {
    let now = running.edition();
    if edition == now {
        return Some((account, now));
    }
    let (tell, told) = oneshot::channel();
    running.look_again(attempt, account, move |account| drop(tell.send(account)));
    told.await.ok()?.map(|account| (account, now))
}
