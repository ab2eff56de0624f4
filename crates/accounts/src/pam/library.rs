//! Calls the PAM library, and interprets its results.
//!
//! Every call may take as long as the modules like. A prompt with echo is not answered with the password, because the
//! module treats the answer as public.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use nix::unistd;
use nonstick::items::{Items, ItemsMut};
use nonstick::{AuthnFlags, ConversationAdapter, ErrorCode, PamShared, Transaction, TransactionBuilder};

use super::{Entry, Question, Verdict, within};
use crate::Protocol;

pub(super) const IS_LINKED: bool = true;

pub(super) const MISSING: &str = "";

/// Answers what modules ask.
struct Answers {
    password: OsString,
}

impl ConversationAdapter for Answers {
    fn prompt(&self, _: impl AsRef<OsStr>) -> nonstick::Result<OsString> {
        Err(ErrorCode::ConversationError)
    }

    fn masked_prompt(&self, _: impl AsRef<OsStr>) -> nonstick::Result<OsString> {
        Ok(self.password.clone())
    }

    /// Clients are told nothing of what modules have to say.
    fn error_msg(&self, _: impl AsRef<OsStr>) {}

    fn info_msg(&self, _: impl AsRef<OsStr>) {}
}

/// Makes sure that the library can read what it is set up with.
pub(super) fn begin(service: &str) -> Result<(), String> {
    let answers = Answers { password: OsString::new() };
    let begun = TransactionBuilder::new_with_service(service).build(answers.into_conversation());
    begun.map(drop).map_err(|error| error.to_string())
}

pub(super) fn ask(question: &Question) -> Result<Verdict, String> {
    let answers = Answers { password: question.password.clone().into() };
    let mut transaction = TransactionBuilder::new_with_service(&question.service)
        .username(&question.user)
        .build(answers.into_conversation())
        .map_err(told)?;
    let mut items = transaction.items_mut();
    items.set_remote_host(Some(question.from.to_string().as_ref())).map_err(told)?;
    // Some modules check the terminal: it is named as by other servers.
    let door = match question.protocol {
        Protocol::Ftp => "ftp",
        Protocol::Http => "http",
    };
    items.set_tty_name(Some(door.as_ref())).map_err(told)?;
    drop(items);
    let flags = AuthnFlags::SILENT | AuthnFlags::DISALLOW_NULL_AUTHTOK;
    if let Err(error) = transaction.authenticate(flags) {
        return refusal_of_password(error);
    }
    if let Err(error) = transaction.account_management(flags) {
        return refusal_of_account(error);
    }
    // A module may have changed the user name to one that the settings here do not know.
    match transaction.items().user().map_err(told)? {
        Some(user) if user == question.user.as_str() => {}
        other => {
            let other = other.unwrap_or_default();
            return Ok(Verdict::Refused(format!("to PAM this is the user {}", other.display())));
        }
    }
    let root = question.passwd.as_deref();
    let entry = root.map(|root| entry(&question.user, root)).transpose()?;
    Ok(Verdict::Right(entry))
}

/// The meaning of a refused password.
fn refusal_of_password(error: ErrorCode) -> Result<Verdict, String> {
    match error {
        ErrorCode::UserUnknown => Ok(Verdict::Unknown),
        ErrorCode::AuthenticationError
        | ErrorCode::PermissionDenied
        | ErrorCode::MaxTries
        | ErrorCode::CredentialsInsufficient
        | ErrorCode::CredentialsError => Ok(Verdict::Wrong),
        ErrorCode::AccountExpired | ErrorCode::CredentialsExpired | ErrorCode::NewAuthTokRequired => {
            Ok(Verdict::Refused(told(error)))
        }
        error => Err(told(error)),
    }
}

/// The meaning of an account error.
fn refusal_of_account(error: ErrorCode) -> Result<Verdict, String> {
    match error {
        ErrorCode::UserUnknown
        | ErrorCode::AuthenticationError
        | ErrorCode::PermissionDenied
        | ErrorCode::AccountExpired
        | ErrorCode::CredentialsExpired
        | ErrorCode::AuthTokExpired
        | ErrorCode::NewAuthTokRequired => Ok(Verdict::Refused(told(error))),
        error => Err(told(error)),
    }
}

fn told(error: ErrorCode) -> String {
    format!("PAM says: {error}")
}

/// A user as the system's own database knows it.
fn entry(name: &str, root: &Path) -> Result<Entry, String> {
    let cannot = |why: String| format!("the passwd entry of {name} cannot be read: {why}");
    let user = unistd::User::from_name(name).map_err(|error| cannot(error.to_string()))?;
    let user = user.ok_or_else(|| cannot("there is none".to_owned()))?;
    let c_name = std::ffi::CString::new(name).map_err(|error| cannot(error.to_string()))?;
    let groups = unistd::getgrouplist(&c_name, user.gid).map_err(|error| cannot(error.to_string()))?;
    let named = |gid| unistd::Group::from_gid(gid).ok().flatten().map(|group| group.name);
    let groups = groups.into_iter().filter_map(named).collect();
    Ok(Entry { folder: within(&user.dir, root)?, groups })
}
