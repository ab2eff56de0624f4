//! Logins that all nodes of a cluster know, so that a balancer may send each request to another one.
//!
//! The database has a hash of each cookie. A node looks there for a cookie that it does not know, and once a second for one
//! that is in use: so a login that was ended at one node has ended at all a second later. While the database is away each
//! node knows the logins that it knew before, and tells the others later what has begun or ended meanwhile.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use millrace_log::Sha256;
use millrace_server::cluster::{BrowserLogin, Cluster, LoginEnd, LoginLifetime, LoginUse, TableError};
use millrace_server::{LoginAttempt, Protocol, Running, cluster_of, find_account};
use serde_json::{Value, json};
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use crate::call::Api;
use crate::logins::{IDLE, LONGEST, Login, SharedState, User, name_of};

/// How long a login lasts.
const LIFETIME: LoginLifetime = LoginLifetime { idle: IDLE, longest: LONGEST };

/// How often the end of a login is told again while the database is away.
const PAUSE: Duration = Duration::from_secs(1);

/// How many characters a cookie has.
const COOKIE_LENGTH: usize = 64;

/// How long a cookie that this node does not know waits for others of this kind.
const WAIT: Duration = Duration::from_secs(2);

/// Has this node know of a cookie what the others do.
pub(crate) async fn refresh(cookie: &str, api: &Api, running: &Running) {
    let Some(cluster) = cluster_of(running) else { return };
    if !confirm(cookie, true, api, cluster).await && is_sound(cookie) {
        adopt(cookie, api, cluster, running).await;
    }
}

fn is_sound(cookie: &str) -> bool {
    cookie.len() == COOKIE_LENGTH && cookie.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Looks whether a login that this node knows has ended elsewhere. `is_use`: for a request of the user, and not for what one
/// has begun. Returns whether this node knew it.
pub(crate) async fn confirm(cookie: &str, is_use: bool, api: &Api, cluster: &Arc<Cluster>) -> bool {
    match api.logins.shared_state(cookie, Instant::now()) {
        SharedState::Unknown => return false,
        SharedState::Lately => {}
        SharedState::Before(unused) => {
            let Ok(permit) = Arc::clone(&api.lookups).acquire_owned().await else { return true };
            match find(cookie, LoginUse { unused: Some(unused), is_use }, permit, cluster).await {
                Ok(Some(_)) => api.logins.note_shared(cookie, Instant::now()),
                Ok(None) => api.logins.remove(cookie),
                Err(_) => {}
            }
        }
        SharedState::Untold(login) => tell(cookie, &login, api, cluster).await,
    }
    true
}

/// Has all nodes know a login that has begun here.
pub(crate) async fn tell(cookie: &str, login: &Login, api: &Api, cluster: &Arc<Cluster>) {
    let (hash, cluster) = (hash_of(cookie), Arc::clone(cluster));
    let user = match &login.user {
        User::OfAccounts { attempt, .. } => Some(name_of(attempt)),
        User::OfProvider(_) => None,
    };
    let kept = BrowserLogin { user, detail: detail(&login.user).to_string(), age: login.begun.elapsed() };
    let told = tokio::task::spawn_blocking(move || cluster.keep_login(&hash, &kept, LIFETIME)).await;
    match told {
        Ok(Ok(true)) => api.logins.note_shared(cookie, Instant::now()),
        // Another node has ended the logins of the user meanwhile.
        Ok(Ok(false)) => api.logins.remove(cookie),
        _ => {}
    }
}

/// Ends logins at all nodes, now or as soon as the database is back. Waits for the database; on a thread of the pool.
pub(crate) fn end(cluster: &Arc<Cluster>, end: LoginEnd) {
    let begun = Instant::now();
    if cluster.end_logins(&end, Duration::ZERO, LIFETIME).is_ok() {
        return;
    }
    let cluster = Arc::clone(cluster);
    Handle::current().spawn(async move {
        // After that they have ended by themselves.
        let until = begun + LONGEST;
        while Instant::now() < until {
            tokio::time::sleep(PAUSE).await;
            let (cluster, end) = (Arc::clone(&cluster), end.clone());
            let tell = move || cluster.end_logins(&end, begun.elapsed(), LIFETIME);
            if let Ok(Ok(())) = tokio::task::spawn_blocking(tell).await {
                return;
            }
        }
    });
}

/// Ends the login of a cookie at all nodes, if this is one.
pub(crate) async fn end_cookie(cookie: &str, running: &Running) {
    let Some(cluster) = cluster_of(running).map(Arc::clone) else { return };
    let of_cookie = LoginEnd::Hash(hash_of(cookie));
    let _ = tokio::task::spawn_blocking(move || end(&cluster, of_cookie)).await;
}

/// Ends the logins of a user of the accounts at all nodes, if this is one. Waits for the database.
pub(crate) fn end_user(user: &str, running: &Running) {
    cluster_of(running).iter().for_each(|cluster| end(cluster, LoginEnd::User(user.to_owned())));
}

/// Takes over a login that has begun at another node. Anyone may show a cookie: such lookups are apart from those of known ones.
async fn adopt(cookie: &str, api: &Api, cluster: &Arc<Cluster>, running: &Running) {
    let permit = tokio::time::timeout(WAIT, Arc::clone(&api.unknown_lookups).acquire_owned()).await;
    let Ok(Ok(permit)) = permit else { return };
    if !matches!(api.logins.shared_state(cookie, Instant::now()), SharedState::Unknown) {
        // Another request of the browser was first.
        return;
    }
    let Ok(Some(found)) = find(cookie, LoginUse { unused: None, is_use: true }, permit, cluster).await else {
        return;
    };
    let Ok(detail) = serde_json::from_str::<Value>(&found.detail) else { return };
    let Some(user) = user(&detail, running).await else { return };
    let now = Instant::now();
    let begun = now.checked_sub(found.age).unwrap_or(now);
    api.logins.insert(cookie.to_owned(), Login { user, begun, used: now, shared: Some(now) }, now);
}

/// Asks the database. The thread has the permit: it goes on when the client is gone.
async fn find(
    cookie: &str,
    usage: LoginUse,
    permit: OwnedSemaphorePermit,
    cluster: &Arc<Cluster>,
) -> Result<Option<BrowserLogin>, TableError> {
    let ended = || TableError::Away("the server ends".to_owned());
    let (hash, cluster) = (hash_of(cookie), Arc::clone(cluster));
    let find = move || {
        let _permit = permit;
        cluster.find_login(&hash, LIFETIME, usage)
    };
    let found = tokio::task::spawn_blocking(find).await;
    found.map_err(|_| ended())?
}

fn hash_of(cookie: &str) -> String {
    Sha256::of(cookie.as_bytes()).to_string()
}

/// Who it is, for other nodes.
fn detail(user: &User) -> Value {
    match user {
        User::OfAccounts { attempt, account, .. } => json!({
            "user": name_of(attempt),
            "source": account.told.as_ref().map(|told| &*told.source),
            "from": attempt.from.to_string(),
            "encrypted": attempt.encrypted,
        }),
        User::OfProvider(identity) => json!({ "identity": identity }),
    }
}

/// Reads who it is. The source that has let the user in is asked for the user as it is now.
async fn user(detail: &Value, running: &Running) -> Option<User> {
    if let Some(identity) = detail.get("identity") {
        return serde_json::from_value(identity.clone()).ok().map(User::OfProvider);
    }
    let attempt = LoginAttempt {
        user: detail.get("user")?.as_str()?.into(),
        password: Vec::new(),
        from: detail.get("from")?.as_str()?.parse::<IpAddr>().ok()?,
        protocol: Protocol::Http,
        encrypted: detail.get("encrypted")?.as_bool()?,
        certified: false,
        host: String::new(),
        local: None,
        listener: None,
        class: None,
        session: 0,
    };
    let source = detail.get("source")?.as_str()?.to_owned();
    let (tell, told) = oneshot::channel();
    find_account(running, (source, attempt.clone()), move |account| drop(tell.send(account)));
    let (account, edition) = told.await.ok()??;
    Some(User::of_accounts(attempt, account, edition))
}
