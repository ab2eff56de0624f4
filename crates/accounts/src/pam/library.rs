//! Calls the PAM library, and interprets its results.
//!
//! Every call may take as long as the modules like. A prompt with echo is not answered with the password, because the
//! module treats the answer as public.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use nix::unistd;
use nonstick::items::{Items, ItemsMut};
use nonstick::{AuthnFlags, ConversationAdapter, ErrorCode, PamShared, Transaction, TransactionBuilder};

use super::{Entry, HomePathError, Question, Verdict, within};
use crate::Protocol;

pub(super) const IS_LINKED: bool = true;

/// Why PAM gives no verdict.
#[derive(Debug, thiserror::Error)]
pub(super) enum PamError {
    /// The library or a module.
    #[error("PAM says: {0}")]
    Library(#[from] ErrorCode),
    /// The system's own database has no entry that can be used.
    #[error("the passwd entry of {user} cannot be read: {source}")]
    Entry { user: String, source: Box<dyn std::error::Error + Send + Sync> },
    /// The home directory cannot be served.
    #[error(transparent)]
    Home(#[from] HomePathError),
}

/// Answers the prompts of modules.
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

    /// Clients do not see the messages of modules.
    fn error_msg(&self, _: impl AsRef<OsStr>) {}

    fn info_msg(&self, _: impl AsRef<OsStr>) {}
}

/// Checks that the library can read the service's configuration.
pub(super) fn begin(service: &str) -> Result<(), ErrorCode> {
    let answers = Answers { password: OsString::new() };
    let begun = TransactionBuilder::new_with_service(service).build(answers.into_conversation());
    begun.map(drop)
}

pub(super) fn ask(question: &Question) -> Result<Verdict, PamError> {
    let answers = Answers { password: question.password.clone().into() };
    let mut transaction = TransactionBuilder::new_with_service(&question.service)
        .username(&question.user)
        .build(answers.into_conversation())?;
    let mut items = transaction.items_mut();
    items.set_remote_host(Some(question.from.to_string().as_ref()))?;
    // Some modules check the terminal: it is named as by other servers.
    let door = match question.protocol {
        Protocol::Ftp => "ftp",
        Protocol::Http => "http",
    };
    items.set_tty_name(Some(door.as_ref()))?;
    drop(items);
    let flags = AuthnFlags::SILENT | AuthnFlags::DISALLOW_NULL_AUTHTOK;
    if let Err(error) = transaction.authenticate(flags) {
        return Ok(refusal_of_password(error)?);
    }
    if let Err(error) = transaction.account_management(flags) {
        return Ok(refusal_of_account(error)?);
    }
    // A module may have changed the user name to one that the settings here do not know.
    match transaction.items().user()? {
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
fn refusal_of_password(error: ErrorCode) -> Result<Verdict, ErrorCode> {
    match error {
        ErrorCode::UserUnknown => Ok(Verdict::Unknown),
        ErrorCode::AuthenticationError
        | ErrorCode::PermissionDenied
        | ErrorCode::MaxTries
        | ErrorCode::CredentialsInsufficient
        | ErrorCode::CredentialsError => Ok(Verdict::Wrong),
        ErrorCode::AccountExpired | ErrorCode::CredentialsExpired | ErrorCode::NewAuthTokRequired => {
            Ok(Verdict::Refused(PamError::from(error).to_string()))
        }
        error => Err(error),
    }
}

/// The meaning of an account error.
fn refusal_of_account(error: ErrorCode) -> Result<Verdict, ErrorCode> {
    match error {
        ErrorCode::UserUnknown
        | ErrorCode::AuthenticationError
        | ErrorCode::PermissionDenied
        | ErrorCode::AccountExpired
        | ErrorCode::CredentialsExpired
        | ErrorCode::AuthTokExpired
        | ErrorCode::NewAuthTokRequired => Ok(Verdict::Refused(PamError::from(error).to_string())),
        error => Err(error),
    }
}

/// A user as the system's own database knows it.
fn entry(name: &str, root: &Path) -> Result<Entry, PamError> {
    let cannot = |source| PamError::Entry { user: name.to_owned(), source };
    let user = unistd::User::from_name(name).map_err(|error| cannot(error.into()))?;
    let user = user.ok_or_else(|| cannot("there is none".into()))?;
    let c_name = std::ffi::CString::new(name).map_err(|error| cannot(error.into()))?;
    let groups = unistd::getgrouplist(&c_name, user.gid).map_err(|error| cannot(error.into()))?;
    let named = |gid| unistd::Group::from_gid(gid).ok().flatten().map(|group| group.name);
    let groups = groups.into_iter().filter_map(named).collect();
    Ok(Entry { folder: within(&user.dir, root)?, groups })
}
