//! Who calls: logins with the accounts of the server, and their end.

use std::sync::Arc;
use std::time::Instant;

use hyper::StatusCode;
use hyper::header::{ORIGIN, SET_COOKIE};
use millrace_server::{AdminLogin, LoginAttempt, Protocol};
use serde_json::json;
use tokio::sync::oneshot;

use crate::call::{Call, Means, Who, too_many};
use crate::logins::{COOKIE, Login, groups};
use crate::operation::Answering;
use crate::reply::{Problem, Reply};

/// Returns the name and the role of who calls.
pub(crate) fn me(call: Call) -> Answering {
    Box::pin(async move {
        let Some(who) = &call.who else { return Err(Problem::failed("no one calls")) };
        let by = match who.by {
            Means::Token(_) => "token",
            Means::Cookie(_) => "login",
            Means::Certificate(_) => "certificate",
        };
        Ok(Reply::json(&json!({ "ok": true, "name": who.name, "role": who.role, "by": by })))
    })
}

/// Lets a user in who has a role, and sends the cookie.
pub(crate) fn log_in(call: Call) -> Answering {
    Box::pin(async move {
        let Ok(_permit) = call.api.guesses.try_acquire() else {
            return Err(too_many("Others log in just now; try again.", 1));
        };
        if !call.is_encrypted && !call.peer.ip().to_canonical().is_loopback() {
            let refused = "passwords are not sent in clear over a network: admin-tls encrypts this address; or log in from \
                           this computer, or by a proxy with TLS on it, or use a token";
            return Err(Problem::new(StatusCode::FORBIDDEN, refused));
        }
        let attempt = attempt(&call);
        let (tell, told) = oneshot::channel();
        call.running.log_in(attempt.clone(), call.peer, move |login| drop(tell.send(login)));
        let login = told.await.map_err(|_| Problem::failed("the accounts are out of order"))?;
        match login {
            AdminLogin::Granted(account, edition) => {
                admit(&call, Login::new(attempt, *account, edition, Instant::now()))
            }
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
        session: 0,
    }
}

/// Returns whether the browser came by TLS, to this address or to a proxy on this computer.
fn is_encrypted(call: &Call) -> bool {
    call.is_encrypted || call.field(ORIGIN.as_str()).is_some_and(|origin| origin.starts_with("https://"))
}

fn admit(call: &Call, login: Login) -> Result<Reply, Problem> {
    let (name, groups) = (login.user(), groups(&login.account));
    let Some(role) = call.api.access(|access| access.role_of(&name, &groups)) else {
        let refused = "this account may not administer the server: admin-viewers, admin-operators and \
                       admin-administrators name those that may";
        return Err(Problem::new(StatusCode::FORBIDDEN, refused));
    };
    let cookie = call.api.logins.add(login, Instant::now())?;
    let secure = if is_encrypted(call) { "; Secure" } else { "" };
    let cookie = format!("{COOKIE}={cookie}; Path=/; HttpOnly; SameSite=Strict{secure}");
    let told = json!({ "ok": true, "name": name, "role": role, "by": "login" });
    Ok(Reply::json(&told).with(SET_COOKIE, &cookie))
}

/// Ends the login of a cookie.
pub(crate) fn log_out(call: Call) -> Answering {
    Box::pin(async move {
        if let Some(Who { by: Means::Cookie(cookie), .. }) = &call.who {
            call.api.logins.remove(cookie);
        }
        let gone = format!("{COOKIE}=; Path=/; HttpOnly; SameSite=Strict; Max-Age=0");
        Ok(Reply::json(&json!({ "ok": true })).with(SET_COOKIE, &gone))
    })
}

/// Returns who has a cookie, and may still. The accounts are asked again where they have changed since.
pub(crate) async fn who_has(
    cookie: &str,
    api: &Arc<crate::call::Api>,
    running: &millrace_server::Running,
) -> Option<Who> {
    let login = api.logins.find(cookie, Instant::now())?;
    let edition = running.edition();
    let account = if login.edition == edition {
        Some(login.account.clone())
    } else {
        let (tell, told) = oneshot::channel();
        let account = login.account.clone();
        running.look_again(login.attempt.clone(), account, move |account| drop(tell.send(account)));
        told.await.ok()?
    };
    let Some(account) = account else {
        api.logins.remove(cookie);
        return None;
    };
    api.logins.renew(cookie, account.clone(), edition);
    let (name, groups) = (login.user(), groups(&account));
    let role = api.access(|access| access.role_of(&name, &groups))?;
    Some(Who { name, role, by: Means::Cookie(cookie.to_owned()) })
}
