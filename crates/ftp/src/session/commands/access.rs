//! `USER`, `PASS`, `ACCT`, `REIN`, `QUIT` (RFC 959 section 4.1.1): who the client is.

use super::{Argument, Command, ROW, When};
use crate::codec::Coding;
use crate::listing::Facts;
use crate::reply::{Reply, code};
use crate::session::notes;
use crate::session::{Access, Act, Answer, Credentials, DataPlan, Login, Request, Session, Step, Verdict};

pub(super) const USER: Command = Command {
    verb: "USER",
    argument: Argument::Required,
    when: When::Always,
    help: "USER <name>",
    run: user,
    ..ROW
};

pub(super) const PASS: Command = Command {
    verb: "PASS",
    argument: Argument::Optional,
    when: When::Always,
    help: "PASS <password>",
    run: pass,
    ..ROW
};

pub(super) const ACCT: Command = Command {
    verb: "ACCT",
    argument: Argument::Required,
    when: When::Always,
    help: "ACCT <account>",
    note: "the code of a second factor, where `PASS` was answered by 332; else superfluous",
    run: acct,
    ..ROW
};

pub(super) const REIN: Command =
    Command { verb: "REIN", when: When::Always, help: "REIN (log out, stay connected)", run: rein, ..ROW };

pub(super) const QUIT: Command = Command {
    verb: "QUIT",
    argument: Argument::Optional,
    when: When::Always,
    busy: true,
    help: "QUIT",
    run: |session, _| session.say_goodbye(),
    ..ROW
};

/// As RFC 959 has it, `USER` flushes the login and leaves the transfer parameters as they are.
fn user(session: &mut Session, name: &[u8]) -> Step {
    let was_logged_in = matches!(session.access, Access::User(_));
    if was_logged_in {
        session.log_out();
        session.data = DataPlan::None;
    }
    if let Some(reply) = session.login_refusal() {
        return reply.into();
    }
    session.access = Access::Named(name.to_vec());
    if !was_logged_in && session.may_be_recognized() {
        return session.ask(Request::Recognize(name.to_vec()), recognized);
    }
    let act = was_logged_in.then_some(Act::LogOut);
    Step { act, ..password_wanted(session, name).into() }
}

/// Decides what the client's certificate proves (RFC 4217 section 9).
fn recognized(session: &mut Session, answer: Answer) -> Step {
    match (&session.access, answer) {
        (Access::Named(name), Answer::Login(Verdict::NeedsPassword)) => password_wanted(session, name).into(),
        (_, answer) => logged_in(session, None, answer),
    }
}

/// Returns true if any password is accepted for this name.
fn is_guest(session: &Session, name: &[u8]) -> bool {
    session.settings.anonymous
        && (name.eq_ignore_ascii_case(b"anonymous") || name.eq_ignore_ascii_case(b"ftp"))
}

/// Anonymous users send their mail address as a password, by custom (RFC 1635). Any other text may be a real password
/// typed by mistake, and is discarded.
fn address_of_guest(session: &Session, name: &[u8], password: &[u8]) -> Option<Box<[u8]>> {
    let is_address = password.contains(&b'@') && password.len() <= 128;
    (session.settings.keeps_addresses && is_guest(session, name) && is_address).then(|| password.into())
}

fn password_wanted(session: &Session, name: &[u8]) -> Reply {
    match is_guest(session, name) {
        true => Reply::new(code::NEED_PASSWORD, "Anonymous access is welcome; any password will do."),
        false => Reply::new(code::NEED_PASSWORD, "Password, please."),
    }
}

fn pass(session: &mut Session, password: &[u8]) -> Step {
    let user = match &session.access {
        Access::Named(name) => name.clone(),
        Access::Stranger => return Reply::new(code::BAD_SEQUENCE, "Give USER first.").into(),
        Access::Half(_) => return Reply::new(code::BAD_SEQUENCE, "Give ACCT, or USER to begin anew.").into(),
        Access::User(_) => {
            return Reply::new(code::BAD_SEQUENCE, "Already logged in; USER begins anew.").into();
        }
    };
    let password = password.to_vec();
    let credentials = Credentials { user, password: password.clone() };
    session.ask(Request::LogIn(credentials), |session, answer| logged_in(session, Some(password), answer))
}

/// The argument of `ACCT` is a one-time code; it is appended to the password.
fn acct(session: &mut Session, code: &[u8]) -> Step {
    let Credentials { user, mut password } = match std::mem::replace(&mut session.access, Access::Stranger) {
        Access::Half(credentials) => credentials,
        other => {
            session.access = other;
            return Reply::new(code::SUPERFLUOUS, "No account is needed here.").into();
        }
    };
    session.access = Access::Named(user.clone());
    password.extend_from_slice(code);
    let credentials = Credentials { user, password: password.clone() };
    session.ask(Request::LogIn(credentials), |session, answer| logged_in(session, Some(password), answer))
}

/// Without a password, a certificate was enough.
fn logged_in(session: &mut Session, password: Option<Vec<u8>>, answer: Answer) -> Step {
    let Answer::Login(verdict) = answer else { return Step::mismatch() };
    match verdict {
        Verdict::Granted(grant) => {
            let Access::Named(name) = std::mem::replace(&mut session.access, Access::Stranger) else {
                return Step::mismatch();
            };
            session.directory = grant.home.clone();
            let guest = password.as_deref().and_then(|said| address_of_guest(session, &name, said));
            // The earlier user's mail address is removed, too.
            if guest.is_some() || session.extras.is_some() {
                session.extras_mut().guest = guest;
            }
            session.note_class(grant.class);
            session.access = Access::User(Login {
                name: name.into(),
                permissions: grant.permissions,
                rules: grant.rules,
                home: grant.home,
                encrypted_data: grant.encrypted_data,
            });
            let reply = match password {
                Some(_) => Reply::new(code::LOGGED_IN, "Logged in."),
                None => Reply::new(code::AUTHORIZED, "Logged in: your certificate is enough."),
            };
            notes::welcome(session, reply)
        }
        Verdict::NeedsCode => {
            let Access::Named(user) = std::mem::replace(&mut session.access, Access::Stranger) else {
                return Step::mismatch();
            };
            let password = password.unwrap_or_default();
            session.access = Access::Half(Credentials { user, password });
            Reply::new(code::NEED_ACCOUNT, "Give the code of your second factor, by ACCT.").into()
        }
        Verdict::NeedsPassword => Step::mismatch(),
        Verdict::Denied => session.punish(),
        Verdict::Refused(reason) => {
            session.access = Access::Stranger;
            Reply::owned(code::NOT_LOGGED_IN, reason).into()
        }
        Verdict::Unavailable(reason) => session.close(Reply::owned(code::SERVICE_CLOSING, reason)),
        Verdict::Limited { reason, lines, most } => notes::turn_away(session, reason, &lines, most),
    }
}

/// Back to before `USER`: nothing that the last user set survives.
fn rein(session: &mut Session, _: &[u8]) -> Step {
    session.log_out();
    session.coding = Coding::default();
    session.data = DataPlan::None;
    session.extended_only = false;
    session.facts = Facts::default();
    session.extras = None;
    Step::from(Reply::new(code::READY, "Ready for a new user.")).then(Act::LogOut)
}
