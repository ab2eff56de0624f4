//! Periodic work, on a thread of its own: schedules that take effect on the minute, certificates, stored counts, and the
//! load of the machine where logins depend on it.

use std::sync::Arc;
use std::time::{Instant, SystemTime};

use millrace_limits::wall_seconds;

use crate::auth::Changed;
use crate::periodic::{Periodic, Turn};
use crate::state::ServerState;
use crate::worker::Client;
use crate::worker::{Errand, Sender, WorkerMessage};

/// Starts the thread, which ends when the result is dropped.
pub(crate) fn start(server: Arc<ServerState>, workers: Vec<Sender>) -> std::io::Result<Periodic> {
    let mut minute = None;
    Periodic::start("millrace-clock", move |turn| {
        if turn == Turn::Usual {
            minute = Some(look(&server, &workers, minute));
        }
        true
    })
}

/// Does what is due now. Returns the minute since 1970.
fn look(server: &ServerState, workers: &[Sender], before: Option<i64>) -> i64 {
    let wall = wall_seconds();
    let minute = wall.div_euclid(60);
    if !server.cpu_limit.is_none() {
        server.load.look();
    }
    server.limits.set_clock(wall);
    if before != Some(minute) {
        server.limits.tick(Instant::now());
        server.cpu_limit.tick(wall);
        server.sessions.tick(wall);
        if server.limits.sessions_follow_the_clock() {
            let errand = Errand::new(Client::tick);
            workers.iter().for_each(|worker| worker.send(WorkerMessage::Each(errand.clone())));
        }
    }
    follow_certificates(server, before != Some(minute));
    keep_quotas(server, false);
    keep_dav(server);
    keep_bans(server);
    review(server, workers, before.is_some_and(|before| before != minute));
    minute
}

/// Stores the counts of quotas.
pub(crate) fn keep_quotas(server: &ServerState, last: bool) {
    if let Some(Err(error)) = server.config.quotas.as_ref().map(|quotas| quotas.keep(last)) {
        server.log.warn(&format!("{error}; trees are counted instead"));
    }
}

/// Stores locks and properties of WebDAV.
pub(crate) fn keep_dav(server: &ServerState) {
    if let Err(error) = server.shared.http.dav.keep() {
        server.log.warn(&error.to_string());
    }
}

/// Stores the bans.
pub(crate) fn keep_bans(server: &ServerState) {
    if let Err(error) = server.ban_file.keep(&server.bans) {
        server.log.warn(&error.to_string());
    }
}

/// Reloads renewed certificates by itself, and reports new problems with them.
fn follow_certificates(server: &ServerState, is_new_minute: bool) {
    let Some(tls) = &server.tls else { return };
    let followed = tls.follow();
    match &followed {
        None => {}
        Some(Ok(())) => server.log.warn("the certificates have changed and were read again"),
        Some(Err(error)) => server.log.warn(&format!("the old certificates stay in force: {error}")),
    }
    if is_new_minute || followed.is_some() {
        tls.doubts(SystemTime::now()).iter().for_each(|text| server.log.warn(text));
    }
}

/// Has sessions look at their accounts again where these were changed, and with a new minute where they follow
/// the clock.
fn review(server: &ServerState, workers: &[Sender], is_new_minute: bool) {
    let changed = server.accounts().changed(&|| server.limits.users_present());
    if changed == Changed::Nothing && !is_new_minute {
        return;
    }
    if changed != Changed::Nothing {
        server.policy.begin_edition();
    }
    let errand = Errand::new(move |client, core| {
        client
            .review(core, |user, account| changed.concerns(user) || (is_new_minute && account.follows_clock));
    });
    workers.iter().for_each(|worker| worker.send(WorkerMessage::Each(errand.clone())));
}
